//! Signatures by private keys of every kind.
//!
//! [`Key::from_der`] reads the algorithm of a key and loads it. A [`Request`] owns what one
//! signature by one of the key's [`schemes`](Key::schemes) needs. [`Request::alone`] answers it at
//! once; the operation that [takes](crate::Operation::takes) it answers several together:
//! `rsa::Signing`, `ecdsa::Signing` and their like.
//!
//! Signatures are verified by [`verify`](crate::verify).
//!
//! A new algorithm is a variant of [`Algorithm`] and [`Scheme`], and a key and a request of its own
//! module. Callers that take keys and schemes as they come do not change.

mod error;
mod key;
mod request;
mod specimen;
mod values;

use std::ffi::CStr;

use crate::{Hash, agreement, ecdsa, mldsa, rsa};

pub use error::{Error, KeyError, VerifyError};
pub use key::Key;
pub(crate) use key::{Kind, check_no_parameters, is_encrypted, malformed};
pub(crate) use key::{public_key_bytes, public_key_info};
pub use request::{Input, Request};
pub(crate) use request::{Outcome, Prepared, Whole};
pub(crate) use specimen::{SPECIMEN_MESSAGE, specimen, specimen_by, specimen_key};
pub use values::Values;

/// The kind of a private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// RSA, of any size.
    Rsa,
    /// ECDSA on this curve.
    Ecdsa(ecdsa::Curve),
    /// Ed25519.
    Ed25519,
    /// ML-DSA with this parameter set.
    MlDsa(mldsa::Size),
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 7] = [
        Self::Rsa,
        Self::Ecdsa(ecdsa::Curve::P256),
        Self::Ecdsa(ecdsa::Curve::P384),
        Self::Ed25519,
        Self::MlDsa(mldsa::Size::MlDsa44),
        Self::MlDsa(mldsa::Size::MlDsa65),
        Self::MlDsa(mldsa::Size::MlDsa87),
    ];

    /// The names of its keys and of their signatures, in OpenSSL.
    pub const fn names(self) -> [&'static CStr; 2] {
        match self {
            Self::Rsa => [c"RSA", c"RSA"],
            Self::Ecdsa(_) => [c"EC", c"ECDSA"],
            Self::Ed25519 => [c"ED25519", c"ED25519"],
            Self::MlDsa(mldsa::Size::MlDsa44) => [c"ML-DSA-44", c"ML-DSA-44"],
            Self::MlDsa(mldsa::Size::MlDsa65) => [c"ML-DSA-65", c"ML-DSA-65"],
            Self::MlDsa(mldsa::Size::MlDsa87) => [c"ML-DSA-87", c"ML-DSA-87"],
        }
    }

    /// The curve of its keys, if they name one among several.
    pub const fn curve(self) -> Option<agreement::Curve> {
        match self {
            Self::Ecdsa(curve) => Some(agreement::Curve::Nist(curve)),
            Self::Rsa | Self::Ed25519 | Self::MlDsa(_) => None,
        }
    }

    /// The names of the operations that make such signatures in lanes: of an RSA key its size decides.
    pub const fn operations(self) -> &'static [&'static str] {
        match self {
            Self::Rsa => &["rsa2048-sign", "rsa3072-sign", "rsa4096-sign"],
            Self::Ecdsa(ecdsa::Curve::P256) => &["p256-ecdsa-sign"],
            Self::Ecdsa(ecdsa::Curve::P384) => &["p384-ecdsa-sign"],
            Self::Ed25519 => &["ed25519-sign"],
            Self::MlDsa(mldsa::Size::MlDsa44) => &["mldsa44-sign"],
            Self::MlDsa(mldsa::Size::MlDsa65) => &["mldsa65-sign"],
            Self::MlDsa(mldsa::Size::MlDsa87) => &["mldsa87-sign"],
        }
    }

    /// The name of such signatures in settings.
    pub const fn setting(self) -> &'static str {
        match self {
            Self::Rsa => "rsa",
            Self::Ecdsa(_) => "ecdsa",
            Self::Ed25519 => "ed25519",
            Self::MlDsa(_) => "mldsa",
        }
    }

    /// The schemes of such keys in TLS, best first. TLS 1.3 allows fewer than 1.2.
    ///
    /// SHA-256 leads: CPUs have instructions for it, and an RSA signature is as strong as its key
    /// with it.
    pub const fn schemes(self) -> &'static [Scheme] {
        use mldsa::Size;
        match self {
            Self::Rsa => &[
                Scheme::Rsa(rsa::Scheme::PssSha256),
                Scheme::Rsa(rsa::Scheme::PssSha384),
                Scheme::Rsa(rsa::Scheme::PssSha512),
                Scheme::Rsa(rsa::Scheme::Pkcs1Sha256),
                Scheme::Rsa(rsa::Scheme::Pkcs1Sha384),
                Scheme::Rsa(rsa::Scheme::Pkcs1Sha512),
            ],
            Self::Ecdsa(ecdsa::Curve::P256) => &[Scheme::Ecdsa(ecdsa::Curve::P256)],
            Self::Ecdsa(ecdsa::Curve::P384) => &[Scheme::Ecdsa(ecdsa::Curve::P384)],
            Self::Ed25519 => &[Scheme::Ed25519],
            Self::MlDsa(Size::MlDsa44) => &[Scheme::MlDsa(Size::MlDsa44)],
            Self::MlDsa(Size::MlDsa65) => &[Scheme::MlDsa(Size::MlDsa65)],
            Self::MlDsa(Size::MlDsa87) => &[Scheme::MlDsa(Size::MlDsa87)],
        }
    }
}

/// Signature scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scheme {
    /// RSA with this padding and hash function.
    Rsa(rsa::Scheme),
    /// ECDSA on this curve, of messages with the hash function that TLS 1.3 pairs with it.
    Ecdsa(ecdsa::Curve),
    /// Ed25519.
    Ed25519,
    /// ML-DSA with this parameter set.
    MlDsa(mldsa::Size),
}

impl Scheme {
    /// The number of the scheme in TLS (IANA's registry "TLS SignatureScheme").
    pub const fn tls_number(self) -> u16 {
        use rsa::Scheme;
        match self {
            Self::Rsa(Scheme::Pkcs1Sha256) => 0x0401,
            Self::Rsa(Scheme::Pkcs1Sha384) => 0x0501,
            Self::Rsa(Scheme::Pkcs1Sha512) => 0x0601,
            Self::Rsa(Scheme::PssSha256) => 0x0804,
            Self::Rsa(Scheme::PssSha384) => 0x0805,
            Self::Rsa(Scheme::PssSha512) => 0x0806,
            Self::Ecdsa(ecdsa::Curve::P256) => 0x0403,
            Self::Ecdsa(ecdsa::Curve::P384) => 0x0503,
            Self::Ed25519 => 0x0807,
            Self::MlDsa(mldsa::Size::MlDsa44) => 0x0904,
            Self::MlDsa(mldsa::Size::MlDsa65) => 0x0905,
            Self::MlDsa(mldsa::Size::MlDsa87) => 0x0906,
        }
    }

    /// The hash function of messages; `None` if the algorithm takes them whole.
    pub const fn hash(self) -> Option<Hash> {
        match self {
            Self::Rsa(scheme) => Some(scheme.hash()),
            Self::Ecdsa(curve) => Some(Hash::of(curve)),
            Self::Ed25519 | Self::MlDsa(_) => None,
        }
    }

    /// Returns whether the scheme is RSASSA-PSS.
    pub const fn is_pss(self) -> bool {
        matches!(self, Self::Rsa(scheme) if scheme.is_pss())
    }
}
