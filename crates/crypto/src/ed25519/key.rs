//! Private and public keys: parsing and checks.

use super::pass::{ORDER, sha512};
use crate::private_keys::{is_encrypted, kind_of_key};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use crypto_bigint::{NonZero, U256};
use pkcs8::der::asn1::{BitStringRef, OctetStringRef};
use pkcs8::der::{self, Decode, Encode};
use pkcs8::spki::{AlgorithmIdentifierRef, SubjectPublicKeyInfo, SubjectPublicKeyInfoRef};
use pkcs8::{ObjectIdentifier, PrivateKeyInfoRef};
use rustls_pki_types::PrivateKeyDer;
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

/// An Ed25519 private key.
///
/// Cloning copies a counted reference. The secret parts are wiped when the last clone is dropped.
/// [`Debug`](fmt::Debug) shows the public key and nothing else.
#[derive(Clone)]
pub struct PrivateKey {
    inner: Arc<Inner>,
}

struct Inner {
    pair: Ed25519KeyPair,
    public: PublicKey,
    expanded: Expanded,
}

/// What lanes sign with.
pub(super) struct Expanded {
    /// s of RFC 8032, section 5.1.5, modulo l.
    scalar: Zeroizing<[u8; 32]>,
    /// l - s.
    negative: Zeroizing<[u8; 32]>,
    /// The other half of the hash.
    prefix: Zeroizing<[u8; 32]>,
}

impl PrivateKey {
    /// Parses and checks a key in DER: PKCS#8, as RFC 8410 (section 7) profiles it, with or
    /// without the public key.
    ///
    /// # Errors
    ///
    /// [`KeyError`] says what is wrong and what to do about it.
    pub fn from_der(der: &PrivateKeyDer<'_>) -> Result<Self, KeyError> {
        match der {
            PrivateKeyDer::Pkcs8(der) => Self::from_pkcs8_der(der.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(_) => Err(KeyError::NotEd25519 {
                found: "an RSA key (PKCS#1)".to_owned(),
            }),
            PrivateKeyDer::Sec1(_) => Err(KeyError::NotEd25519 {
                found: "an elliptic-curve key (SEC 1)".to_owned(),
            }),
            _ => Err(KeyError::NotEd25519 {
                found: "in an unknown encoding".to_owned(),
            }),
        }
    }

    /// Parses and checks an unencrypted PKCS#8 key, version 1 or 2, as strict DER.
    ///
    /// # Errors
    ///
    /// As for [`from_der`](Self::from_der).
    pub fn from_pkcs8_der(der: &[u8]) -> Result<Self, KeyError> {
        let info = match PrivateKeyInfoRef::from_der(der) {
            Ok(info) => info,
            Err(_) if is_encrypted(der) => return Err(KeyError::Encrypted),
            Err(error) => return Err(malformed("the PKCS#8 key", error)),
        };
        check_algorithm(&info.algorithm, "the PKCS#8 key")?;
        let seed = <&OctetStringRef>::from_der(info.private_key.as_bytes())
            .map_err(|error| malformed("the key inside PKCS#8", error))?;
        let seed = <&[u8; 32]>::try_from(seed.as_bytes()).map_err(|_| KeyError::Malformed {
            part: "the key inside PKCS#8",
            reason: format!("it has {} bytes and needs 32", seed.as_bytes().len()),
        })?;
        let key = Self::from_seed(seed)?;
        match info.public_key {
            Some(public) if public.as_bytes() != Some(key.public_key().as_bytes()) => {
                Err(KeyError::Inconsistent)
            }
            _ => Ok(key),
        }
    }

    /// The public half.
    pub fn public_key(&self) -> &PublicKey {
        &self.inner.public
    }

    /// The public key as DER of `SubjectPublicKeyInfo` (RFC 8410, section 4).
    pub fn public_key_info_der(&self) -> Vec<u8> {
        self.inner.public.to_spki()
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
    pub(super) fn from_seed(seed: &[u8; 32]) -> Result<Self, KeyError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| KeyError::Failed)?;
        let public = pair.public_key().as_ref();
        let public = PublicKey::from_bytes(public).map_err(|_| KeyError::Failed)?;
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
    fn new(seed: &[u8; 32]) -> Self {
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

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey")
            .field("public", &self.inner.public)
            .finish_non_exhaustive()
    }
}

/// An Ed25519 public key: 32 bytes.
///
/// Whether they encode a point of the curve shows when a signature is verified; no signature
/// verifies with a key that does not.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey {
    bytes: [u8; 32],
}

impl PublicKey {
    /// The key of these bytes (RFC 8032, section 5.1.2).
    ///
    /// # Errors
    ///
    /// [`KeyError::Malformed`] if they are not 32.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, KeyError> {
        let bytes = bytes.try_into().map_err(|_| KeyError::Malformed {
            part: "the public key",
            reason: format!("it has {} bytes and needs 32", bytes.len()),
        })?;
        Ok(Self { bytes })
    }

    /// The key in DER of a `SubjectPublicKeyInfo`, as certificates contain it (RFC 8410, section
    /// 4).
    ///
    /// # Errors
    ///
    /// [`KeyError::Malformed`] and [`KeyError::NotEd25519`].
    pub fn from_spki(der: &[u8]) -> Result<Self, KeyError> {
        const PART: &str = "the public key information";
        let info =
            SubjectPublicKeyInfoRef::from_der(der).map_err(|error| malformed(PART, error))?;
        check_algorithm(&info.algorithm, PART)?;
        // A bit string that does not end with a whole byte has no bytes.
        Self::from_bytes(info.subject_public_key.as_bytes().unwrap_or_default())
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn to_spki(self) -> Vec<u8> {
        let key = BitStringRef::from_bytes(&self.bytes).expect("32 bytes are no overlong string");
        let info = SubjectPublicKeyInfo {
            algorithm: AlgorithmIdentifierRef {
                oid: ED25519,
                parameters: None,
            },
            subject_public_key: key,
        };
        info.to_der().expect("the lengths are fixed")
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublicKey(")?;
        for byte in self.bytes {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

/// Why a key was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The encoding is broken.
    #[error(
        "{part} is malformed: {reason}; check that the file is complete, or export it again \
         with `openssl pkey`"
    )]
    Malformed {
        /// The structure that could not be read.
        part: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The key is protected by a passphrase.
    #[error(
        "the private key is encrypted; decrypt it with `openssl pkey -in KEY -out DECRYPTED` \
         and guard that file by its permissions"
    )]
    Encrypted,
    /// The key is for another algorithm.
    #[error("the key is not Ed25519 but {found}; use an Ed25519 key here")]
    NotEd25519 {
        /// What it is instead.
        found: String,
    },
    /// The file contains a public key that belongs to another private key.
    #[error(
        "the Ed25519 key is inconsistent: its public key belongs to another private key; restore \
         it from a backup or make a new one"
    )]
    Inconsistent,
    /// aws-lc-rs failed and does not say why.
    #[error("aws-lc-rs failed on a valid Ed25519 key; it may be out of memory")]
    Failed,
}

/// id-Ed25519, which has no parameters (RFC 8410, section 3).
fn check_algorithm(
    algorithm: &AlgorithmIdentifierRef<'_>,
    part: &'static str,
) -> Result<(), KeyError> {
    if algorithm.oid != ED25519 {
        return Err(KeyError::NotEd25519 {
            found: kind_of_key(algorithm.oid),
        });
    }
    match algorithm.parameters {
        None => Ok(()),
        Some(_) => Err(KeyError::Malformed {
            part,
            reason: "the algorithm has parameters".to_owned(),
        }),
    }
}

fn malformed(part: &'static str, error: der::Error) -> KeyError {
    KeyError::Malformed {
        part,
        reason: error.to_string(),
    }
}

const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
