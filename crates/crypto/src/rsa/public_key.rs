//! Public keys whose signatures have lanes.

use pkcs1::RsaPublicKeyRef;
use pkcs8::der::Decode;
use pkcs8::der::asn1::UintRef;

use super::key::{bits, inconsistent, is_odd};
use crate::sign::{KeyError, malformed};

/// An RSA public key of 2048 bits, the size for which verification has lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PublicKey<'a> {
    /// The modulus as big-endian bytes.
    modulus: &'a [u8],
    exponent: u64,
}

impl<'a> PublicKey<'a> {
    /// Bits in the modulus.
    pub(super) const MODULUS_BITS: usize = 2048;

    /// Takes DER of `RSAPublicKey` (RFC 8017, appendix A.1.1): what a certificate has inside its
    /// public key.
    ///
    /// Taken are moduli of 2048 bits, and odd public exponents of at least 3 and at most 33 bits.
    /// aws-lc-rs, which takes keys of up to 8192 bits, takes all of these.
    pub(crate) fn from_pkcs1_der(der: &'a [u8]) -> Result<Self, KeyError> {
        let key = RsaPublicKeyRef::from_der(der).map_err(|error| malformed("the RSA public key", error))?;
        let modulus_bits = bits(key.modulus);
        if modulus_bits != Self::MODULUS_BITS {
            return Err(KeyError::PublicSize { bits: modulus_bits });
        }
        if !is_odd(key.modulus) {
            return Err(inconsistent("its modulus is even"));
        }
        Ok(Self {
            modulus: key.modulus.as_bytes(),
            exponent: exponent(key.public_exponent).ok_or(KeyError::PublicExponent)?,
        })
    }

    /// The modulus as little-endian limbs.
    pub(super) fn modulus(self) -> [u64; 32] {
        let (_, limbs) = self.modulus.as_rchunks();
        std::array::from_fn(|i| u64::from_be_bytes(limbs[limbs.len() - 1 - i]))
    }

    /// The public exponent: odd, and at least 3.
    pub(super) fn exponent(self) -> u64 {
        self.exponent
    }

    /// Returns whether big-endian bytes are a signature representative: as long as the modulus, and less (RFC 8017,
    /// sections 5.2.2 and 8.2.2).
    pub(super) fn admits(self, signature: &[u8]) -> bool {
        signature.len() == self.modulus.len() && signature < self.modulus
    }
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
            let info = key.public_key_info_der();
            let public = PublicKey::from_pkcs1_der(public_key_bytes(&info)).unwrap();
            assert_eq!(public.modulus()[..], key.parts().n);
            assert_eq!([public.exponent()], *key.parts().e);
        }
    }

    #[test]
    fn exponents_are_those_of_aws_lc_rs() {
        for key in odd_exponent_keys(Size::Rsa2048) {
            let info = key.public_key_info_der();
            let public = PublicKey::from_pkcs1_der(public_key_bytes(&info));
            assert_eq!(public.is_ok(), key.aws_lc().is_some(), "{key:?}");
        }
    }

    #[test]
    fn what_is_no_key_of_this_size_is_refused() {
        let refused = |der: &[u8]| PublicKey::from_pkcs1_der(der).unwrap_err();
        let modulus = [0xff; 256];
        assert!(PublicKey::from_pkcs1_der(&der(&modulus, &[3])).is_ok());
        for exponent in [&[0][..], &[1], &[2], &[1, 0], &[2, 0, 0, 0, 1], &[1; 9]] {
            let refused = refused(&der(&modulus, exponent));
            assert_eq!(refused, KeyError::PublicExponent, "{exponent:?}");
        }
        let mut even = modulus;
        even[255] = 0xfe;
        let expected = inconsistent("its modulus is even");
        assert_eq!(refused(&der(&even, &[3])), expected);
        let mut short = modulus;
        short[0] = 0x7f;
        let expected = KeyError::PublicSize { bits: 2047 };
        assert_eq!(refused(&der(&short, &[3])), expected);
        for size in [Size::Rsa3072, Size::Rsa4096] {
            let [key, ..] = keys(size);
            let bits = size.modulus_bits();
            let info = key.public_key_info_der();
            let refused = refused(public_key_bytes(&info));
            assert_eq!(refused, KeyError::PublicSize { bits });
        }

        let good = der(&modulus, &[3]);
        let longer = [&good[..], &[0]].concat();
        // A modulus without the zero byte in front of it would be negative.
        let mut negative = good.clone();
        negative.remove(8);
        negative[3] -= 1;
        negative[7] -= 1;
        for bad in [&good[1..], &good[..good.len() - 1], &longer, &negative, &[]] {
            let refused = refused(bad);
            assert!(matches!(refused, KeyError::Malformed { .. }), "{bad:?}");
        }
    }
}
