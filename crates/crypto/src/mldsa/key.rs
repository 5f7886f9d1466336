//! Private and public keys: their encodings (RFC 9881) and checks.

use super::prepared::Prepared;
use super::size::Size;
use crate::private_keys::{is_encrypted, kind_of_key};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::encoding::AsRawBytes;
use aws_lc_rs::signature::{KeyPair, ParsedPublicKey, PqdsaKeyPair};
use pkcs8::PrivateKeyInfoRef;
use pkcs8::der::asn1::{AnyRef, BitStringRef, OctetStringRef};
use pkcs8::der::{self, Decode, Encode, Reader, SliceReader, Tag, TagMode, TagNumber};
use pkcs8::spki::{AlgorithmIdentifierRef, SubjectPublicKeyInfo, SubjectPublicKeyInfoRef};
use rustls_pki_types::PrivateKeyDer;
use std::fmt;
use std::sync::{Arc, OnceLock};
use zeroize::Zeroizing;

/// An ML-DSA private key that has passed every check of [`from_pkcs8_der`](Self::from_pkcs8_der).
///
/// Cloning copies a counted reference. The secret parts are wiped when the last clone is dropped.
/// [`Debug`](fmt::Debug) shows the size and nothing else.
#[derive(Clone)]
pub struct PrivateKey {
    inner: Arc<Private>,
}

struct Private {
    public: PublicKey,
    aws_lc: PqdsaKeyPair,
    /// The expanded form (FIPS 204, algorithm 24).
    expanded: Zeroizing<Vec<u8>>,
    /// What passes derive from it, once.
    prepared: OnceLock<Prepared>,
}

impl PrivateKey {
    /// Parses and checks a key in DER. The only form is PKCS#8.
    ///
    /// # Errors
    ///
    /// [`KeyError`] says what is wrong and what to do about it.
    pub fn from_der(der: &PrivateKeyDer<'_>) -> Result<Self, KeyError> {
        let found = match der {
            PrivateKeyDer::Pkcs8(der) => return Self::from_pkcs8_der(der.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(_) => "an RSA key (PKCS#1)",
            PrivateKeyDer::Sec1(_) => "an elliptic-curve key (SEC 1)",
            _ => "in an unknown encoding",
        };
        Err(KeyError::NotMlDsa {
            found: found.to_owned(),
        })
    }

    /// Parses and checks an unencrypted PKCS#8 key, as strict DER, in each of the three forms of
    /// RFC 9881, section 6: the seed, the expanded key, or both, which must then agree.
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
        let size = size(&info.algorithm)?;
        let form = read_private_key(info.private_key.as_bytes())
            .map_err(|error| malformed("the ML-DSA key inside PKCS#8", error))?;
        let key = match form {
            Form::Seed(seed) => Self::from_seed(size, seed)?,
            Form::Expanded(expanded) => Self::from_expanded(size, expanded)?,
            Form::Both(seed, expanded) => {
                let key = Self::from_seed(size, seed)?;
                verify_slices_are_equal(&key.inner.expanded, expanded)
                    .map_err(|_| KeyError::SeedMismatch)?;
                key
            }
        };
        match info.public_key {
            Some(public) if public.as_bytes() != Some(key.public_key().as_bytes()) => {
                Err(KeyError::PublicKeyMismatch)
            }
            _ => Ok(key),
        }
    }

    /// The key that this seed of 32 bytes stands for (FIPS 204, algorithm 6).
    ///
    /// # Errors
    ///
    /// [`KeyError::Length`] if the seed has another length.
    pub fn from_seed(size: Size, seed: &[u8]) -> Result<Self, KeyError> {
        if seed.len() != SEED_LEN {
            return Err(KeyError::Length {
                part: "the seed",
                size,
                expected: SEED_LEN,
                found: seed.len(),
            });
        }
        let pair = PqdsaKeyPair::from_seed(size.aws_lc_signing(), seed)
            .map_err(|_| KeyError::Inconsistent)?;
        Self::from_aws_lc(size, pair)
    }

    /// A key in expanded form (FIPS 204, algorithm 24), whose parts must fit each other.
    ///
    /// # Errors
    ///
    /// [`KeyError::Length`], and [`KeyError::Inconsistent`] if a coefficient is out of range or
    /// the parts do not belong together.
    pub fn from_expanded(size: Size, expanded: &[u8]) -> Result<Self, KeyError> {
        let expected = size.expanded_key_len();
        if expanded.len() != expected {
            return Err(KeyError::Length {
                part: "the expanded key",
                size,
                expected,
                found: expanded.len(),
            });
        }
        let pair = PqdsaKeyPair::from_raw_private_key(size.aws_lc_signing(), expanded)
            .map_err(|_| KeyError::Inconsistent)?;
        Self::from_aws_lc(size, pair)
    }

    /// The parameter set.
    pub fn size(&self) -> Size {
        self.inner.public.size()
    }

    /// The public half.
    pub fn public_key(&self) -> &PublicKey {
        &self.inner.public
    }

    /// The public key as DER of `SubjectPublicKeyInfo` (RFC 9881, section 4).
    pub fn public_key_info_der(&self) -> Vec<u8> {
        self.inner.public.to_spki_der()
    }

    /// The same key inside aws-lc-rs.
    pub(super) fn aws_lc(&self) -> &PqdsaKeyPair {
        &self.inner.aws_lc
    }

    /// The expanded form of the key.
    pub(super) fn expanded(&self) -> &[u8] {
        &self.inner.expanded
    }

    /// What passes need of the key, from `prepare` the first time.
    pub(super) fn prepared(&self, prepare: impl FnOnce() -> Prepared) -> &Prepared {
        self.inner.prepared.get_or_init(prepare)
    }

    /// Whether both are clones of one key.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    fn from_aws_lc(size: Size, pair: PqdsaKeyPair) -> Result<Self, KeyError> {
        let public = PublicKey::from_bytes(size, pair.public_key().as_ref())?;
        let raw = pair
            .private_key()
            .as_raw_bytes()
            .map_err(|_| KeyError::Inconsistent)?;
        let expanded = Zeroizing::new(raw.as_ref().to_vec());
        Ok(Self {
            inner: Arc::new(Private {
                public,
                aws_lc: pair,
                expanded,
                prepared: OnceLock::new(),
            }),
        })
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey")
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

/// An ML-DSA public key. Cloning copies a counted reference.
#[derive(Clone)]
pub struct PublicKey {
    inner: Arc<Public>,
}

struct Public {
    size: Size,
    bytes: Box<[u8]>,
    aws_lc: ParsedPublicKey,
}

impl PublicKey {
    /// Reads DER of `SubjectPublicKeyInfo` (RFC 9881, section 4).
    ///
    /// # Errors
    ///
    /// [`KeyError`] says what is wrong.
    pub fn from_spki(der: &[u8]) -> Result<Self, KeyError> {
        let info = SubjectPublicKeyInfoRef::from_der(der)
            .map_err(|error| malformed("the public key", error))?;
        let size = size(&info.algorithm)?;
        let bytes = info.subject_public_key.as_bytes().ok_or_else(|| {
            let reason = "its bits are no whole bytes".to_owned();
            KeyError::Malformed {
                part: "the public key",
                reason,
            }
        })?;
        Self::from_bytes(size, bytes)
    }

    /// Reads the encoding of FIPS 204, algorithm 22. Of the right length every one is a key.
    ///
    /// # Errors
    ///
    /// [`KeyError::Length`] if there are more or fewer bytes than the size has.
    pub fn from_bytes(size: Size, bytes: &[u8]) -> Result<Self, KeyError> {
        let expected = size.public_key_len();
        if bytes.len() != expected {
            return Err(KeyError::Length {
                part: "the public key",
                size,
                expected,
                found: bytes.len(),
            });
        }
        let aws_lc = ParsedPublicKey::new(size.aws_lc_verification(), bytes)
            .map_err(|_| KeyError::Inconsistent)?;
        Ok(Self {
            inner: Arc::new(Public {
                size,
                bytes: bytes.into(),
                aws_lc,
            }),
        })
    }

    /// The parameter set.
    pub fn size(&self) -> Size {
        self.inner.size
    }

    /// The encoding of FIPS 204, algorithm 22.
    pub fn as_bytes(&self) -> &[u8] {
        &self.inner.bytes
    }

    /// DER of `SubjectPublicKeyInfo`.
    pub fn to_spki_der(&self) -> Vec<u8> {
        let encode = || {
            SubjectPublicKeyInfo::<AnyRef<'_>, _> {
                algorithm: AlgorithmIdentifierRef {
                    oid: self.size().oid(),
                    parameters: None,
                },
                subject_public_key: BitStringRef::from_bytes(self.as_bytes())?,
            }
            .to_der()
        };
        encode().expect("a few thousand bytes can be encoded")
    }

    /// The same key inside aws-lc-rs.
    pub(super) fn aws_lc(&self) -> &ParsedPublicKey {
        &self.inner.aws_lc
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicKey")
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

/// Why a key was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Not the encoding that it should be.
    #[error("{part} is malformed: {reason}")]
    Malformed {
        /// What could not be read.
        part: &'static str,
        /// Why not.
        reason: String,
    },
    /// The key is encrypted.
    #[error("the key is encrypted; decrypt it first, for example with `openssl pkcs8`")]
    Encrypted,
    /// The key is for another algorithm.
    #[error("the key is {found}; an ML-DSA key is needed")]
    NotMlDsa {
        /// What it is.
        found: String,
    },
    /// A part is longer or shorter than it must be.
    #[error("{part} has {found} bytes; {size} needs {expected}")]
    Length {
        /// Which part.
        part: &'static str,
        /// The size that the key is said to have.
        size: Size,
        /// Bytes that it must have.
        expected: usize,
        /// Bytes that it has.
        found: usize,
    },
    /// The seed and the expanded key beside it are not the same key.
    #[error("the expanded key does not belong to the seed beside it; make the key file anew")]
    SeedMismatch,
    /// The public key in the file belongs to another private key.
    #[error("the public key in the file does not belong to the private key; make the file anew")]
    PublicKeyMismatch,
    /// Parts of the key contradict each other.
    #[error("the parts of the expanded key do not belong together; make the key anew")]
    Inconsistent,
}

/// `ML-DSA-PrivateKey` (RFC 9881, section 6).
enum Form<'a> {
    Seed(&'a [u8]),
    Expanded(&'a [u8]),
    Both(&'a [u8], &'a [u8]),
}

fn read_private_key(der: &[u8]) -> der::Result<Form<'_>> {
    let mut reader = SliceReader::new(der)?;
    let form = match Tag::peek(&reader)? {
        Tag::OctetString => Form::Expanded(<&OctetStringRef>::decode(&mut reader)?.as_bytes()),
        Tag::Sequence => reader.sequence(|inner| -> der::Result<_> {
            let seed = <&OctetStringRef>::decode(inner)?;
            let expanded = <&OctetStringRef>::decode(inner)?;
            Ok(Form::Both(seed.as_bytes(), expanded.as_bytes()))
        })?,
        tag => {
            let seed: Option<&OctetStringRef> =
                reader.context_specific(TagNumber(0), TagMode::Implicit)?;
            Form::Seed(seed.ok_or_else(|| tag.unexpected_error(None))?.as_bytes())
        }
    };
    reader.finish()?;
    Ok(form)
}

/// The size that the identifier names. There must be no parameters (RFC 9881, section 2).
fn size(algorithm: &AlgorithmIdentifierRef<'_>) -> Result<Size, KeyError> {
    let named = |size: &Size| size.oid() == algorithm.oid;
    let size = Size::ALL.into_iter().find(named);
    let size = size.ok_or_else(|| KeyError::NotMlDsa {
        found: kind_of_key(algorithm.oid),
    })?;
    match algorithm.parameters {
        None => Ok(size),
        Some(_) => Err(KeyError::Malformed {
            part: "the algorithm identifier",
            reason: "ML-DSA has no parameters, and there are some".to_owned(),
        }),
    }
}

fn malformed(part: &'static str, error: der::Error) -> KeyError {
    KeyError::Malformed {
        part,
        reason: error.to_string(),
    }
}

/// Bytes of a seed, in every size.
const SEED_LEN: usize = 32;
