//! Requests: owned, so that they outlive the code that made them.

use super::key::{PrivateKey, PublicKey};
use crate::nist::Curve;
use aws_lc_rs::digest::{self, Digest};
use std::fmt;

/// The hash function of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Hash {
    /// The one that TLS 1.3 pairs with a curve (RFC 8446, section 4.2.3).
    pub const fn of(curve: Curve) -> Self {
        match curve {
            Curve::P256 => Self::Sha256,
            Curve::P384 => Self::Sha384,
        }
    }

    fn digest(self, message: &[u8]) -> Digest {
        digest::digest(self.algorithm(), message)
    }

    fn algorithm(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        }
    }
}

/// One signature to be made: the digest of its message and a counted reference to its key.
#[derive(Clone)]
pub struct SignRequest {
    key: PrivateKey,
    digest: Digest,
}

impl SignRequest {
    /// Hashes the message: with SHA-256 for P-256, with SHA-384 for P-384.
    pub fn new(key: &PrivateKey, message: &[u8]) -> Self {
        Self {
            key: key.clone(),
            digest: Hash::of(key.curve()).digest(message),
        }
    }

    /// Takes a hash value in place of a message, by any hash function. Of a value that is longer than
    /// the numbers of the curve, the leftmost bits are signed (FIPS 186-5, section 6.4.1, step 2).
    ///
    /// The caller answers for where the value comes from: a peer that chooses it freely gets
    /// signatures of values for which no message is known.
    pub fn prehashed(key: &PrivateKey, hash_value: &[u8]) -> Self {
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

    /// The curve of the key.
    pub fn curve(&self) -> Curve {
        self.key.curve()
    }

    pub(super) fn key(&self) -> &PrivateKey {
        &self.key
    }

    pub(super) fn digest(&self) -> &Digest {
        &self.digest
    }
}

impl fmt::Debug for SignRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignRequest")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Why a request was not answered with a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignError {
    /// The system's random generator failed.
    #[error("the system's random generator failed; check that getrandom(2) is allowed here")]
    Random,
    /// The result failed its check and was withheld.
    #[error(
        "the signature failed its check and was withheld; if this repeats, the CPU or the memory \
         of this machine is faulty"
    )]
    Fault,
    /// The caller put a request into a pass of another curve.
    #[error("a request of another curve was put into a pass for {curve}; group by curve")]
    OtherCurve {
        /// The curve of the pass.
        curve: Curve,
    },
    /// aws-lc-rs gave no signature.
    #[error("aws-lc-rs gave no signature; it may be out of memory")]
    AwsLc,
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
