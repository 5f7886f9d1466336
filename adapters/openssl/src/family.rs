//! The kinds of keys that the provider offers.

use std::ffi::CStr;

use widelane_crypto::mldsa;

/// A kind of key, as OpenSSL names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    Rsa,
    Ec,
    Ed25519,
    X25519,
    /// Only where OpenSSL has it: from 3.5 on.
    MlDsa44,
    MlDsa65,
    MlDsa87,
}

impl Family {
    pub(crate) const COUNT: usize = 7;

    pub(crate) const ALL: [Self; Self::COUNT] = [
        Self::Rsa,
        Self::Ec,
        Self::Ed25519,
        Self::X25519,
        Self::MlDsa44,
        Self::MlDsa65,
        Self::MlDsa87,
    ];

    /// The name of the keys.
    pub(crate) const fn key_name(self) -> &'static CStr {
        match self {
            Self::Rsa => c"RSA",
            Self::Ec => c"EC",
            Self::Ed25519 => c"ED25519",
            Self::X25519 => c"X25519",
            Self::MlDsa44 => c"ML-DSA-44",
            Self::MlDsa65 => c"ML-DSA-65",
            Self::MlDsa87 => c"ML-DSA-87",
        }
    }

    /// The name of their signature algorithm.
    pub(crate) const fn signature_name(self) -> Option<&'static CStr> {
        match self {
            Self::Rsa => Some(c"RSA"),
            Self::Ec => Some(c"ECDSA"),
            Self::Ed25519 => Some(c"ED25519"),
            Self::X25519 => None,
            Self::MlDsa44 | Self::MlDsa65 | Self::MlDsa87 => Some(self.key_name()),
        }
    }

    /// The name of their key exchange.
    pub(crate) const fn exchange_name(self) -> Option<&'static CStr> {
        match self {
            Self::Ec => Some(c"ECDH"),
            Self::X25519 => Some(c"X25519"),
            Self::Rsa | Self::Ed25519 | Self::MlDsa44 | Self::MlDsa65 | Self::MlDsa87 => None,
        }
    }

    /// The parameter set, of ML-DSA keys.
    pub(crate) const fn ml_dsa(self) -> Option<mldsa::Size> {
        match self {
            Self::MlDsa44 => Some(mldsa::Size::MlDsa44),
            Self::MlDsa65 => Some(mldsa::Size::MlDsa65),
            Self::MlDsa87 => Some(mldsa::Size::MlDsa87),
            Self::Rsa | Self::Ec | Self::Ed25519 | Self::X25519 => None,
        }
    }
}
