//! Private keys by the names that OpenSSL has for their values.

use std::ffi::CStr;

use pkcs1::{RsaPrivateKeyRef, UintRef};
use pkcs8::der::{self, Decode, Encode};
use zeroize::Zeroizing;

use super::{Algorithm, KeyError, malformed};
use crate::{agreement, rsa};

/// Public half of a key, empty if it is not known, and its secret as [`Key::from_secret`](super::Key::from_secret)
/// takes it.
pub type Values = (Vec<u8>, Zeroizing<Vec<u8>>);

impl Algorithm {
    /// Reads a private key. `value` looks one of its values up: bytes as they are, and an integer big-endian, also
    /// with zeros before it.
    ///
    /// `None` if the key is not whole.
    ///
    /// # Errors
    ///
    /// [`KeyError::MultiPrime`] and [`KeyError::NoPrimes`], for RSA.
    pub fn read(self, value: impl Fn(&CStr) -> Option<Zeroizing<Vec<u8>>>) -> Result<Option<Values>, KeyError> {
        let private = || value(c"priv");
        let secret = match self {
            Self::Rsa => return read_rsa(value).map(Some),
            Self::Ecdsa(curve) => private().and_then(|integer| agreement::Curve::Nist(curve).sized(&integer)),
            // ML-DSA has a seed, which tells as much as the key.
            Self::Ed25519 | Self::MlDsa(_) => value(c"seed").filter(|seed| !seed.is_empty()).or_else(private),
        };
        let public = value(c"pub").map(|public| public.to_vec());
        Ok(secret.map(|secret| (public.unwrap_or_default(), secret)))
    }

    /// Values of a key for measurements, of the operation in this place of [`operations`](Self::operations); `None`
    /// where a new key is made as fast. It is public.
    pub fn specimen_values(self, operation: usize) -> Option<Vec<(&'static CStr, &'static [u8])>> {
        let size = rsa::Size::ALL.get(operation).filter(|_| self == Self::Rsa)?;
        let key = RsaPrivateKeyRef::from_der(size.specimen()).expect("our own key is sound");
        let integers = [
            key.modulus,
            key.public_exponent,
            key.private_exponent,
            key.prime1,
            key.prime2,
            key.exponent1,
            key.exponent2,
            key.coefficient,
        ];
        let values = RSA.into_iter().zip(integers);
        Some(values.map(|(name, integer)| (name, integer.as_bytes())).collect())
    }
}

/// An RSA key from its integers.
fn read_rsa(value: impl Fn(&CStr) -> Option<Zeroizing<Vec<u8>>>) -> Result<Values, KeyError> {
    if value(c"rsa-factor3").is_some() {
        return Err(KeyError::MultiPrime);
    }
    let values: Option<Vec<_>> = RSA.into_iter().map(value).collect();
    let values = values.ok_or(KeyError::NoPrimes)?;
    let integer = |place: usize| UintRef::new(&values[place]);
    let encode = || -> der::Result<Values> {
        let key = RsaPrivateKeyRef {
            modulus: integer(0)?,
            public_exponent: integer(1)?,
            private_exponent: integer(2)?,
            prime1: integer(3)?,
            prime2: integer(4)?,
            exponent1: integer(5)?,
            exponent2: integer(6)?,
            coefficient: integer(7)?,
            other_prime_infos: None,
        };
        let public = key.modulus.as_bytes().to_vec();
        Ok((public, Zeroizing::new(key.to_der()?)))
    };
    encode().map_err(|error| malformed("the RSA key", error))
}

/// Integers of an RSA key, in the order of PKCS#1 (RFC 8017, appendix A.1.2).
const RSA: [&CStr; 8] = [
    c"n",
    c"e",
    c"d",
    c"rsa-factor1",
    c"rsa-factor2",
    c"rsa-exponent1",
    c"rsa-exponent2",
    c"rsa-coefficient1",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sign::Key;

    /// OpenSSL pads the integers of keys. Their lengths are those of the file that they came from.
    #[test]
    fn integers_lose_their_padding() {
        for (place, size) in rsa::Size::ALL.into_iter().enumerate() {
            let values = Algorithm::Rsa.specimen_values(place).unwrap();
            let padded = |name: &CStr| {
                let (_, value) = values.iter().find(|(known, _)| *known == name)?;
                Some(Zeroizing::new([&[0, 0], *value].concat()))
            };
            let (public, secret) = Algorithm::Rsa.read(padded).unwrap().unwrap();
            assert_eq!((public.len() * 8, &secret[..]), (size.modulus_bits(), size.specimen()));
            assert!(Key::from_secret(Algorithm::Rsa, &secret).is_ok());
        }
        assert_eq!(Algorithm::Ed25519.specimen_values(0), None);
    }

    #[test]
    fn keys_that_are_not_whole_are_refused() {
        let all = |_: &CStr| Some(Zeroizing::new(vec![7]));
        assert_eq!(Algorithm::Rsa.read(all), Err(KeyError::MultiPrime));
        let public = |name: &CStr| all(name).filter(|_| name == c"n" || name == c"e");
        assert_eq!(Algorithm::Rsa.read(public), Err(KeyError::NoPrimes));
        assert_eq!(Algorithm::Ed25519.read(public), Ok(None));
    }
}
