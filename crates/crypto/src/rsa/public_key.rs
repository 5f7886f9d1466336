//! Public keys whose signatures have lanes.

use aws_lc_rs::signature::UnparsedPublicKey;
use crypto_bigint::BoxedUint;
use pkcs1::RsaPublicKeyRef;
use pkcs8::der::Decode;
use pkcs8::der::asn1::UintRef;
use std::sync::Arc;

use super::key::{bits, inconsistent, is_odd};
use super::request::Scheme;
use crate::secrecy::opaque;
use crate::sign::{KeyError, malformed};

/// An RSA public key of 2048 bits, the size for which verification has lanes.
///
/// Cloning copies a counted reference.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    inner: Arc<Inner>,
}

impl PublicKey {
    /// Bits in the modulus.
    pub const MODULUS_BITS: usize = 2048;

    /// Takes DER of `RSAPublicKey` (RFC 8017, appendix A.1.1): what a certificate has inside its
    /// public key.
    ///
    /// Taken are moduli of 2048 bits, and odd public exponents of at least 3 and at most 33 bits.
    /// aws-lc-rs, which takes keys of up to 8192 bits, takes all of these.
    ///
    /// # Errors
    ///
    /// [`KeyError`] says what is wrong.
    pub fn from_pkcs1_der(der: &[u8]) -> Result<Self, KeyError> {
        let key = RsaPublicKeyRef::from_der(der).map_err(|error| malformed(PART, error))?;
        let modulus_bits = bits(key.modulus);
        if modulus_bits != Self::MODULUS_BITS {
            return Err(KeyError::PublicSize { bits: modulus_bits });
        }
        if !is_odd(key.modulus) {
            return Err(inconsistent("its modulus is even"));
        }
        let exponent = exponent(key.public_exponent).ok_or(KeyError::PublicExponent)?;
        let modulus = BoxedUint::from_be_slice_truncated(key.modulus.as_bytes(), 2048);
        Ok(Self {
            inner: Arc::new(Inner {
                modulus: modulus.as_words().to_vec(),
                exponent,
                bytes: key.modulus.as_bytes().to_vec(),
                der: der.to_vec(),
            }),
        })
    }

    /// The modulus as little-endian limbs.
    pub(super) fn modulus(&self) -> &[u64] {
        &self.inner.modulus
    }

    /// The public exponent: odd, and at least 3.
    pub(super) fn exponent(&self) -> u64 {
        self.inner.exponent
    }

    /// Returns whether big-endian bytes are a signature representative: as long as the modulus, and less (RFC 8017,
    /// sections 5.2.2 and 8.2.2).
    pub(super) fn admits(&self, signature: &[u8]) -> bool {
        signature.len() == self.inner.bytes.len() && *signature < *self.inner.bytes
    }

    /// Key for aws-lc-rs.
    pub(super) fn aws_lc(&self, scheme: Scheme) -> UnparsedPublicKey<&[u8]> {
        UnparsedPublicKey::new(scheme.aws_lc_verification(), &self.inner.der)
    }
}

opaque!(PublicKey { exponent });

const PART: &str = "the RSA public key";

#[derive(PartialEq, Eq)]
struct Inner {
    modulus: Vec<u64>,
    exponent: u64,
    /// The modulus as big-endian bytes.
    bytes: Vec<u8>,
    /// The key as `RSAPublicKey`.
    der: Vec<u8>,
}

/// An odd number of 2 to 33 bits.
fn exponent(integer: UintRef<'_>) -> Option<u64> {
    if !is_odd(integer) || !(2..=MAX_EXPONENT_BITS).contains(&bits(integer)) {
        return None;
    }
    let bytes = integer.as_bytes().iter();
    Some(bytes.fold(0, |value, &byte| value << 8 | u64::from(byte)))
}

/// The bound of aws-lc-rs.
const MAX_EXPONENT_BITS: usize = 33;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rsa::Size;
    use crate::rsa::chain::{keys, odd_exponent_keys};
    use crate::sign::public_key_bytes;
    use pkcs8::der::Encode;

    fn der(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
        let key = RsaPublicKeyRef {
            modulus: UintRef::new(modulus).unwrap(),
            public_exponent: UintRef::new(exponent).unwrap(),
        };
        key.to_der().unwrap()
    }

    #[test]
    fn public_keys_are_those_of_their_private_keys() {
        for key in keys(Size::Rsa2048) {
            let public =
                PublicKey::from_pkcs1_der(public_key_bytes(&key.public_key_info_der())).unwrap();
            assert_eq!(public.modulus(), key.parts().n);
            assert_eq!([public.exponent()], *key.parts().e);
            assert_eq!(PublicKey::from_pkcs1_der(&public.inner.der), Ok(public));
        }
    }

    #[test]
    fn exponents_are_those_of_aws_lc_rs() {
        for key in odd_exponent_keys(Size::Rsa2048) {
            let public = PublicKey::from_pkcs1_der(public_key_bytes(&key.public_key_info_der()));
            assert_eq!(public.is_ok(), key.aws_lc().is_some(), "{key:?}");
        }
    }

    #[test]
    fn what_is_no_key_of_this_size_is_refused() {
        let modulus = [0xff; 256];
        assert!(PublicKey::from_pkcs1_der(&der(&modulus, &[3])).is_ok());
        for exponent in [&[0][..], &[1], &[2], &[1, 0], &[2, 0, 0, 0, 1], &[1; 9]] {
            let refused = PublicKey::from_pkcs1_der(&der(&modulus, exponent));
            assert_eq!(refused, Err(KeyError::PublicExponent), "{exponent:?}");
        }
        let mut even = modulus;
        even[255] = 0xfe;
        let refused = PublicKey::from_pkcs1_der(&der(&even, &[3]));
        assert_eq!(refused, Err(inconsistent("its modulus is even")));
        let mut short = modulus;
        short[0] = 0x7f;
        let refused = PublicKey::from_pkcs1_der(&der(&short, &[3]));
        assert_eq!(refused, Err(KeyError::PublicSize { bits: 2047 }));
        for size in [Size::Rsa3072, Size::Rsa4096] {
            let [key, ..] = keys(size);
            let bits = size.modulus_bits();
            let refused = PublicKey::from_pkcs1_der(public_key_bytes(&key.public_key_info_der()));
            assert_eq!(refused, Err(KeyError::PublicSize { bits }));
        }

        let good = der(&modulus, &[3]);
        let longer = [&good[..], &[0]].concat();
        // A modulus without the zero byte in front of it would be negative.
        let mut negative = good.clone();
        negative.remove(8);
        negative[3] -= 1;
        negative[7] -= 1;
        for bad in [&good[1..], &good[..good.len() - 1], &longer, &negative, &[]] {
            let refused = PublicKey::from_pkcs1_der(bad);
            assert!(
                matches!(refused, Err(KeyError::Malformed { .. })),
                "{bad:?}"
            );
        }
    }
}
