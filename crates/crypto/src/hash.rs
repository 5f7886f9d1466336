//! The hash functions of signatures.

use aws_lc_rs::digest::{self, Digest};

use crate::nist::Curve;

/// A hash function of signatures.
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
    /// Every hash function, the shortest first.
    pub const ALL: [Self; 3] = [Self::Sha256, Self::Sha384, Self::Sha512];

    /// The names in OpenSSL, the usual one first.
    pub const fn names(self) -> [&'static str; 3] {
        match self {
            Self::Sha256 => ["SHA256", "SHA2-256", "SHA-256"],
            Self::Sha384 => ["SHA384", "SHA2-384", "SHA-384"],
            Self::Sha512 => ["SHA512", "SHA2-512", "SHA-512"],
        }
    }

    /// The hash function with one of these names, in any case of letters.
    pub fn named(name: &str) -> Option<Self> {
        let is = |known: &&str| known.eq_ignore_ascii_case(name);
        Self::ALL.into_iter().find(|hash| hash.names().iter().any(is))
    }

    /// The one that TLS 1.3 pairs with a curve (RFC 8446, section 4.2.3).
    pub const fn of(curve: Curve) -> Self {
        match curve {
            Curve::P256 => Self::Sha256,
            Curve::P384 => Self::Sha384,
        }
    }

    /// Bytes of a hash value.
    pub const fn output_len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// The hash value of a message.
    pub(crate) fn digest(self, message: &[u8]) -> Digest {
        digest::digest(self.algorithm(), message)
    }

    /// The implementation.
    pub(crate) fn algorithm(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        }
    }
}
