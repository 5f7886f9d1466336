//! Requests for signatures: owned, so that they outlive the code that made them.

use super::key::PrivateKey;
use crate::Hash;
use crate::sign::{Error, Outcome};
use aws_lc_rs::digest::Digest;

/// One signature to be made: the digest of its message and a counted reference to its key.
#[derive(Clone)]
pub struct SignRequest {
    pub(crate) key: PrivateKey,
    pub(super) digest: Digest,
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
}
