//! The kinds of keys that the provider offers.

use std::ffi::CStr;

/// A kind of key, as OpenSSL names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Rsa,
    Ec,
    Ed25519,
    X25519,
}

impl Family {
    pub(crate) const COUNT: usize = 4;

    pub(crate) const ALL: [Self; Self::COUNT] = [Self::Rsa, Self::Ec, Self::Ed25519, Self::X25519];

    /// The name of the keys.
    pub(crate) const fn key_name(self) -> &'static CStr {
        match self {
            Self::Rsa => c"RSA",
            Self::Ec => c"EC",
            Self::Ed25519 => c"ED25519",
            Self::X25519 => c"X25519",
        }
    }

    /// The name of their signature algorithm.
    pub(crate) const fn signature_name(self) -> Option<&'static CStr> {
        match self {
            Self::Rsa => Some(c"RSA"),
            Self::Ec => Some(c"ECDSA"),
            Self::Ed25519 => Some(c"ED25519"),
            Self::X25519 => None,
        }
    }

    /// The name of their key exchange.
    pub(crate) const fn exchange_name(self) -> Option<&'static CStr> {
        match self {
            Self::Ec => Some(c"ECDH"),
            Self::X25519 => Some(c"X25519"),
            Self::Rsa | Self::Ed25519 => None,
        }
    }
}
