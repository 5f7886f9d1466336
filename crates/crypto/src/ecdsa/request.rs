//! Requests: owned, so that they outlive the code that made them.

use super::key::{PrivateKey, PublicKey};
use crate::Hash;
use crate::nist::Curve;
use crate::sign::{Error, Outcome};
use aws_lc_rs::digest::Digest;
use std::fmt;

/// One signature to be made: the digest of its message and a counted reference to its key.
#[derive(Clone)]
pub(crate) struct SignRequest {
    key: PrivateKey,
    digest: Digest,
}

impl SignRequest {
    /// Hashes the message: with SHA-256 for P-256, with SHA-384 for P-384.
    pub(crate) fn new(key: &PrivateKey, message: &[u8]) -> Self {
        Self {
            key: key.clone(),
            digest: Hash::of(key.curve()).digest(message),
        }
    }

    /// Takes a hash value, by any hash function, in place of a message.
    pub(crate) fn prehashed(key: &PrivateKey, hash_value: &[u8]) -> Self {
        let len = key.curve().bytes();
        let leftmost = &hash_value[..hash_value.len().min(len)];
        // A shorter value is the same number with zeros before it.
        let mut number = vec![0; len - leftmost.len()];
        number.extend_from_slice(leftmost);
        let algorithm = Hash::of(key.curve()).algorithm();
        let digest = Digest::import_less_safe(&number, algorithm);
        Self {
            key: key.clone(),
            digest: digest.expect("the hash function of a curve is as long as its numbers"),
        }
    }

    /// Signs through aws-lc-rs.
    pub(crate) fn alone(&self) -> Outcome {
        let signature = self.key.aws_lc().sign_digest(&self.digest);
        Ok(signature.map_err(|_| Error::AwsLc)?.as_ref().to_vec())
    }

    pub(crate) fn key(&self) -> &PrivateKey {
        &self.key
    }

    pub(super) fn digest(&self) -> &Digest {
        &self.digest
    }
}

/// One signature to be verified.
#[derive(Clone)]
pub struct VerifyRequest {
    key: PublicKey,
    hash: Hash,
    digest: Digest,
    signature: Vec<u8>,
}

impl VerifyRequest {
    /// Hashes the message; `signature` is DER.
    pub fn new(key: &PublicKey, hash: Hash, message: &[u8], signature: &[u8]) -> Self {
        Self {
            key: key.clone(),
            hash,
            digest: hash.digest(message),
            signature: signature.to_vec(),
        }
    }

    /// The curve of the key.
    pub fn curve(&self) -> Curve {
        self.key.curve()
    }

    pub(super) fn key(&self) -> &PublicKey {
        &self.key
    }

    pub(super) fn hash(&self) -> Hash {
        self.hash
    }

    pub(super) fn digest(&self) -> &Digest {
        &self.digest
    }

    pub(super) fn signature(&self) -> &[u8] {
        &self.signature
    }
}

impl fmt::Debug for VerifyRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifyRequest")
            .field("curve", &self.curve())
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

/// The signature is not one of the message by the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ECDSA signature is wrong: malformed, or of another message or key")]
pub struct VerifyError;
