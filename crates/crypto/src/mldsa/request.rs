//! Requests, their answer one by one, and how they fail.

use super::key::{PrivateKey, PublicKey};
use crate::sign::{Error, Outcome, Verdict, VerifyError};

/// One signature to be made: owns its message and a counted reference to its key.
///
/// Signatures are hedged: answering the same request twice gives two different ones.
#[derive(Clone)]
pub struct SignRequest {
    pub(crate) key: PrivateKey,
    pub(super) message: Box<[u8]>,
}

impl SignRequest {
    /// A request to sign the message itself, with an empty context.
    pub(crate) fn new(key: &PrivateKey, message: &[u8]) -> Self {
        Self {
            key: key.clone(),
            message: message.into(),
        }
    }

    /// Signs through aws-lc-rs.
    pub(crate) fn alone(&self) -> Outcome {
        let mut signature = vec![0; self.key.size().signature_len()];
        match self.key.aws_lc().sign(&self.message, &mut signature) {
            Ok(_) => Ok(signature),
            Err(_) => Err(Error::AwsLc),
        }
    }
}

/// One signature to be verified: owns the message and the signature.
#[derive(Clone, Debug)]
pub struct VerifyRequest {
    pub(super) key: PublicKey,
    pub(super) message: Box<[u8]>,
    /// Signature of any length.
    pub(super) signature: Box<[u8]>,
}

impl VerifyRequest {
    /// A request to verify the signature of this message, made with an empty context. Signatures
    /// of any length can be put into a request.
    pub fn new(key: &PublicKey, message: &[u8], signature: &[u8]) -> Self {
        Self {
            key: key.clone(),
            message: message.into(),
            signature: signature.into(),
        }
    }

    /// Verifies through aws-lc-rs.
    pub(crate) fn alone(&self) -> Verdict {
        let verified = self.key.aws_lc().verify_sig(&self.message, &self.signature);
        verified.map_err(|_| VerifyError)
    }
}
