//! Requests, their answer one by one, and how they fail.

use super::key::{PrivateKey, PublicKey};
use crate::sign::{Error, Outcome};

/// One signature to be made: owns its message and a counted reference to its key.
///
/// Signatures are hedged: answering the same request twice gives two different ones.
#[derive(Clone)]
pub(crate) struct SignRequest {
    key: PrivateKey,
    message: Box<[u8]>,
}

impl SignRequest {
    /// A request to sign the message itself, with an empty context.
    pub(crate) fn new(key: &PrivateKey, message: &[u8]) -> Self {
        Self {
            key: key.clone(),
            message: message.into(),
        }
    }

    pub(crate) fn key(&self) -> &PrivateKey {
        &self.key
    }

    /// What is signed.
    pub(super) fn message(&self) -> &[u8] {
        &self.message
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
    key: PublicKey,
    message: Box<[u8]>,
    signature: Box<[u8]>,
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

    /// The key.
    pub fn key(&self) -> &PublicKey {
        &self.key
    }

    /// What is said to be signed.
    pub(super) fn message(&self) -> &[u8] {
        &self.message
    }

    /// The signature, of any length.
    pub(super) fn signature(&self) -> &[u8] {
        &self.signature
    }

    /// Verifies through aws-lc-rs.
    pub(super) fn verify_alone(&self) -> Result<(), VerifyError> {
        self.check_length()?;
        let verified = self.key.aws_lc().verify_sig(&self.message, &self.signature);
        verified.map_err(|_| VerifyError::Invalid)
    }

    /// Whether the signature is as long as the key's size has it.
    pub(super) fn check_length(&self) -> Result<(), VerifyError> {
        let expected = self.key.size().signature_len();
        match self.signature.len() {
            found if found == expected => Ok(()),
            found => Err(VerifyError::Length { expected, found }),
        }
    }
}

/// Why a signature was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The signature is longer or shorter than every signature of the key's size.
    #[error("the signature has {found} bytes instead of {expected}")]
    Length {
        /// Bytes of a signature of the key's size.
        expected: usize,
        /// Bytes that came.
        found: usize,
    },
    /// It is not a signature of this message under this key.
    #[error("the signature is not one of this message under this key")]
    Invalid,
}
