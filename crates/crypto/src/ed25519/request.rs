//! Requests, and their answers one by one, from aws-lc-rs.

use super::{PrivateKey, PublicKey};
use crate::sign::{Error, Outcome, Verdict, VerifyError};
use aws_lc_rs::signature::{self, UnparsedPublicKey};

/// Sign a message.
#[derive(Clone)]
pub struct SignRequest {
    pub(crate) key: PrivateKey,
    pub(super) message: Box<[u8]>,
}

/// Verify a signature.
#[derive(Clone, Debug)]
pub struct VerifyRequest {
    pub(super) key: PublicKey,
    pub(super) message: Box<[u8]>,
    signature: Box<[u8]>,
}

impl SignRequest {
    /// Copies the message.
    pub(crate) fn new(key: &PrivateKey, message: &[u8]) -> Self {
        Self {
            key: key.clone(),
            message: message.into(),
        }
    }

    /// Signs through aws-lc-rs.
    pub(crate) fn alone(&self) -> Outcome {
        let signature = self.key.aws_lc().try_sign(&self.message);
        let signature = signature.map_err(|_| Error::AwsLc)?;
        Ok(signature.as_ref().to_vec())
    }
}

impl VerifyRequest {
    /// Copies message and signature, which may be of any length.
    pub fn new(key: &PublicKey, message: &[u8], signature: &[u8]) -> Self {
        Self {
            key: *key,
            message: message.into(),
            signature: signature.into(),
        }
    }

    /// R and S, if the signature has the right length.
    pub(super) fn halves(&self) -> Option<([u8; 32], [u8; 32])> {
        let (first, second) = self.signature.split_at_checked(32)?;
        Some((first.try_into().ok()?, second.try_into().ok()?))
    }

    pub(crate) fn alone(&self) -> Verdict {
        UnparsedPublicKey::new(&signature::ED25519, self.key.as_bytes())
            .verify(&self.message, &self.signature)
            .map_err(|_| VerifyError)
    }
}
