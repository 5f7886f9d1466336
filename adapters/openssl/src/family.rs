//! The kinds of keys that the provider offers, and their curves.

use std::ffi::CStr;

use widelane_crypto::sign::Algorithm;
use widelane_crypto::{ecdh, ecdsa, mldsa};

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

    /// Whether each OpenSSL has keys of this kind; ML-DSA came with 3.5.
    pub(crate) const fn is_everywhere(self) -> bool {
        !matches!(self, Self::MlDsa44 | Self::MlDsa65 | Self::MlDsa87)
    }

    /// The algorithm of all keys of this kind, if they are for signatures only.
    pub(crate) const fn algorithm(self) -> Option<Algorithm> {
        match self {
            Self::Rsa => Some(Algorithm::Rsa),
            Self::Ed25519 => Some(Algorithm::Ed25519),
            Self::MlDsa44 => Some(Algorithm::MlDsa(mldsa::Size::MlDsa44)),
            Self::MlDsa65 => Some(Algorithm::MlDsa(mldsa::Size::MlDsa65)),
            Self::MlDsa87 => Some(Algorithm::MlDsa(mldsa::Size::MlDsa87)),
            Self::Ec | Self::X25519 => None,
        }
    }
}

/// The curves of key exchanges that run in lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Curve {
    X25519,
    Nist(ecdh::Curve),
}

impl Curve {
    /// The curve that one of OpenSSL's names means; `None` for curves without lanes.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let is = |names: &[&str]| names.iter().any(|one| one.eq_ignore_ascii_case(name));
        if is(&["P-256", "prime256v1", "secp256r1"]) {
            Some(Self::Nist(ecdh::Curve::P256))
        } else if is(&["P-384", "secp384r1"]) {
            Some(Self::Nist(ecdh::Curve::P384))
        } else if is(&["X25519"]) {
            Some(Self::X25519)
        } else {
            None
        }
    }

    /// OpenSSL's name of the group.
    pub(crate) fn group(self) -> &'static CStr {
        match self {
            Self::X25519 => c"x25519",
            Self::Nist(ecdh::Curve::P256) => c"prime256v1",
            Self::Nist(ecdh::Curve::P384) => c"secp384r1",
        }
    }

    /// Bits of the field.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::X25519 => 253,
            Self::Nist(ecdh::Curve::P256) => 256,
            Self::Nist(ecdh::Curve::P384) => 384,
        }
    }

    pub(crate) fn security_bits(self) -> u32 {
        match self {
            Self::X25519 | Self::Nist(ecdh::Curve::P256) => 128,
            Self::Nist(ecdh::Curve::P384) => 192,
        }
    }

    /// Bytes of a secret, and of what two sides agree on.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::X25519 | Self::Nist(ecdh::Curve::P256) => 32,
            Self::Nist(ecdh::Curve::P384) => 48,
        }
    }

    /// Bytes of a public share.
    pub(crate) fn public_len(self) -> usize {
        match self {
            Self::X25519 => 32,
            Self::Nist(_) => 2 * self.len() + 1,
        }
    }

    /// Whether bytes are a public share. On a curve of prime order each point of the curve is in the
    /// group (SP 800-56A, section 5.6.2.3.4), and X25519 takes every 32 bytes (RFC 7748, section 5).
    pub(crate) fn is_public(self, bytes: &[u8]) -> bool {
        match self {
            Self::X25519 => bytes.len() == 32,
            Self::Nist(curve) => ecdsa::PublicKey::from_point(curve, bytes).is_ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_have_openssls_names() {
        for curve in [
            Curve::X25519,
            Curve::Nist(ecdh::Curve::P256),
            Curve::Nist(ecdh::Curve::P384),
        ] {
            let name = curve.group().to_str().unwrap();
            assert_eq!(Curve::named(name), Some(curve));
        }
        assert_eq!(Curve::named("P-521"), None);
    }
}
