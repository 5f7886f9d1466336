//! Private and public keys: parsing and checks.

use super::pass::{ORDER, sha512};
use crate::secrecy::opaque;
use crate::sign::public_key_info;
use crate::sign::{KeyError, check_no_parameters, malformed};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use crypto_bigint::{NonZero, U256};
use pkcs8::der::Decode;
use pkcs8::der::asn1::OctetStringRef;
use pkcs8::{ObjectIdentifier, PrivateKeyInfoRef};
use std::sync::Arc;
use zeroize::Zeroizing;

/// An Ed25519 private key.
#[derive(Clone)]
pub struct PrivateKey {
    inner: Arc<Inner>,
}

struct Inner {
    pair: Ed25519KeyPair,
    public: [u8; 32],
    expanded: Expanded,
}

/// Parts of the key that lanes sign with.
pub(super) struct Expanded {
    /// s of RFC 8032, section 5.1.5, modulo l.
    scalar: Zeroizing<[u8; 32]>,
    /// l - s.
    negative: Zeroizing<[u8; 32]>,
    /// The other half of the hash.
    prefix: Zeroizing<[u8; 32]>,
}

impl PrivateKey {
    /// Checks a key under id-Ed25519, as RFC 8410 (section 7) profiles it, with or without the public
    /// key.
    pub(crate) fn from_pkcs8(info: &PrivateKeyInfoRef<'_>) -> Result<Self, KeyError> {
        check_no_parameters(&info.algorithm, "the PKCS#8 key")?;
        let seed = <&OctetStringRef>::from_der(info.private_key.as_bytes())
            .map_err(|error| malformed("the key inside PKCS#8", error))?;
        let key = Self::from_seed(seed.as_bytes())?;
        match info.public_key {
            Some(public) if public.as_bytes() != Some(key.public_key()) => Err(KeyError::OTHER_PUBLIC_KEY),
            _ => Ok(key),
        }
    }

    /// The public half (RFC 8032, section 5.1.2).
    pub(super) fn public_key(&self) -> &[u8] {
        &self.inner.public
    }

    /// The public key as DER of `SubjectPublicKeyInfo` (RFC 8410, section 4).
    pub(crate) fn public_key_info_der(&self) -> Vec<u8> {
        public_key_info(ID, None, self.public_key())
    }

    pub(super) fn aws_lc(&self) -> &Ed25519KeyPair {
        &self.inner.pair
    }

    pub(super) fn expanded(&self) -> &Expanded {
        &self.inner.expanded
    }

    /// Damages the private scalar of a key that has no other clone.
    #[cfg(test)]
    pub(super) fn corrupt(&mut self) {
        let inner = Arc::get_mut(&mut self.inner).expect("the only clone");
        inner.expanded.scalar[7] ^= 0x20;
    }

    /// The key of RFC 8032's 32 secret bytes, section 5.1.5.
    pub(crate) fn from_seed(seed: &[u8]) -> Result<Self, KeyError> {
        KeyError::check_length("the Ed25519 key", 32, seed.len())?;
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| KeyError::AwsLc)?;
        let public = pair.public_key().as_ref();
        let public = public.try_into().map_err(|_| KeyError::AwsLc)?;
        Ok(Self {
            inner: Arc::new(Inner {
                pair,
                public,
                expanded: Expanded::new(seed),
            }),
        })
    }
}

impl Expanded {
    /// RFC 8032, section 5.1.5, steps 1 to 3.
    fn new(seed: &[u8]) -> Self {
        let mut hash = sha512(&[seed]);
        hash[0] &= 248;
        hash[31] &= 127;
        hash[31] |= 64;
        let (order, clamped) = (
            U256::from_le_slice(&ORDER),
            Zeroizing::new(U256::from_le_slice(&hash[..32])),
        );
        let nonzero = NonZero::new(order).expect("l is not zero");
        let scalar = Zeroizing::new(clamped.rem(&nonzero));
        let negative = Zeroizing::new(order.wrapping_sub(&scalar));
        let bytes = |number: &U256| {
            let mut bytes = Zeroizing::new([0; 32]);
            bytes.copy_from_slice(&number.to_le_bytes()[..]);
            bytes
        };
        let mut prefix = Zeroizing::new([0; 32]);
        prefix.copy_from_slice(&hash[32..]);
        Self {
            scalar: bytes(&scalar),
            negative: bytes(&negative),
            prefix,
        }
    }

    pub(super) fn scalar(&self) -> &[u8; 32] {
        &self.scalar
    }

    pub(super) fn negative(&self) -> &[u8; 32] {
        &self.negative
    }

    pub(super) fn prefix(&self) -> &[u8; 32] {
        &self.prefix
    }
}

opaque!(PrivateKey {});

/// id-Ed25519, which has no parameters (RFC 8410, section 3).
pub(crate) const ID: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
