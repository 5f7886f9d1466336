//! Keys: parsing and checks.

use crate::nist::{self, Curve, Scalar, UNCOMPRESSED};
use crate::private_keys::{is_encrypted, kind_of_key};
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::signature::{self as aws, EcdsaKeyPair, KeyPair, ParsedPublicKey};
use pkcs8::der::asn1::{AnyRef, BitStringRef};
use pkcs8::der::{self, Decode, Encode};
use pkcs8::spki::SubjectPublicKeyInfo;
use pkcs8::{ObjectIdentifier, PrivateKeyInfoRef};
use rustls_pki_types::PrivateKeyDer;
use sec1::{EcParameters, EcPrivateKey};
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

/// A private key that has passed every check of [`from_der`](Self::from_der).
///
/// Cloning copies a counted reference. The secret is wiped when the last clone is dropped.
/// [`Debug`](fmt::Debug) shows the curve and nothing else.
#[derive(Clone)]
pub struct PrivateKey {
    inner: Arc<Inner>,
}

struct Inner {
    curve: Curve,
    secret: Scalar,
    /// The secret in the form in which lanes multiply by it.
    secret_digits: Zeroizing<Vec<u64>>,
    point: Vec<u8>,
    public_key_info: Vec<u8>,
    aws_lc: EcdsaKeyPair,
}

impl PrivateKey {
    /// Parses and checks a key in either of its DER forms: PKCS#8 (RFC 5208, RFC 5958), and SEC 1
    /// (RFC 5915), where the length of the secret tells the curve if nothing else does.
    ///
    /// Checked are the range of the secret and, where the encoding has it, that the public key
    /// belongs to it. PKCS#8 may have it in two places (RFC 5915, section 3; RFC 5958, section 2).
    ///
    /// # Errors
    ///
    /// [`KeyError`] says what is wrong and what to do about it.
    pub fn from_der(der: &PrivateKeyDer<'_>) -> Result<Self, KeyError> {
        match der {
            PrivateKeyDer::Pkcs8(der) => Self::from_pkcs8_der(der.secret_pkcs8_der()),
            PrivateKeyDer::Sec1(der) => Self::from_sec1_der(der.secret_sec1_der()),
            PrivateKeyDer::Pkcs1(_) => Err(KeyError::NotEc {
                found: "an RSA key (PKCS#1)".to_owned(),
            }),
            _ => Err(KeyError::NotEc {
                found: "in an unknown encoding".to_owned(),
            }),
        }
    }

    /// Parses and checks an unencrypted PKCS#8 key.
    ///
    /// # Errors
    ///
    /// As for [`from_der`](Self::from_der).
    pub fn from_pkcs8_der(der: &[u8]) -> Result<Self, KeyError> {
        let info = match PrivateKeyInfoRef::from_der(der) {
            Ok(info) => info,
            Err(_) if is_encrypted(der) => return Err(KeyError::Encrypted),
            Err(error) => return Err(malformed("PKCS#8 key", error)),
        };
        if info.algorithm.oid != EC_PUBLIC_KEY {
            return Err(KeyError::NotEc {
                found: kind_of_key(info.algorithm.oid),
            });
        }
        let curve = curve_named(info.algorithm.parameters)?;
        let key = EcPrivateKey::from_der(info.private_key.as_bytes())
            .map_err(|error| malformed("EC key inside PKCS#8", error))?;
        let named = key.parameters.and_then(EcParameters::named_curve);
        if named.is_some_and(|oid| curve_of(oid) != Ok(curve)) {
            return Err(KeyError::Inconsistent);
        }
        let beside = info
            .public_key
            .map(|public| public.as_bytes().unwrap_or(&[]));
        Self::checked(curve, key.private_key, [key.public_key, beside])
    }

    /// Parses and checks a SEC 1 key (`ECPrivateKey` of RFC 5915).
    ///
    /// # Errors
    ///
    /// As for [`from_der`](Self::from_der).
    pub fn from_sec1_der(der: &[u8]) -> Result<Self, KeyError> {
        let key = EcPrivateKey::from_der(der).map_err(|error| malformed("SEC 1 key", error))?;
        let curve = match key.parameters {
            Some(EcParameters::NamedCurve(oid)) => curve_of(oid)?,
            None => Curve::ALL
                .into_iter()
                .find(|curve| curve.bytes() == key.private_key.len())
                .ok_or_else(|| KeyError::OtherCurve {
                    found: "which the key does not name".to_owned(),
                })?,
        };
        Self::checked(curve, key.private_key, [key.public_key, None])
    }

    /// The curve.
    pub fn curve(&self) -> Curve {
        self.inner.curve
    }

    /// The public key as DER of `SubjectPublicKeyInfo` (RFC 5480).
    pub fn public_key_info_der(&self) -> Vec<u8> {
        self.inner.public_key_info.clone()
    }

    /// The public key.
    pub fn public_key(&self) -> PublicKey {
        PublicKey {
            curve: self.curve(),
            point: self.inner.point.as_slice().into(),
        }
    }

    /// The secret, big endian.
    pub(super) fn secret(&self) -> &[u8] {
        &self.inner.secret
    }

    /// The secret in Montgomery form.
    pub(super) fn secret_digits(&self) -> &[u64] {
        &self.inner.secret_digits
    }

    /// The same key inside aws-lc-rs.
    pub(super) fn aws_lc(&self) -> &EcdsaKeyPair {
        &self.inner.aws_lc
    }

    /// The key of `secret`, of which an encoding has said that these are its public keys.
    fn checked(curve: Curve, secret: &[u8], publics: [Option<&[u8]>; 2]) -> Result<Self, KeyError> {
        let secret = nist::scalar(curve, secret).ok_or(KeyError::OutOfRange { curve })?;
        let algorithm = match curve {
            Curve::P256 => &aws::ECDSA_P256_SHA256_ASN1_SIGNING,
            Curve::P384 => &aws::ECDSA_P384_SHA384_ASN1_SIGNING,
        };
        // Encoded anew: aws-lc-rs does not take all encodings that there are.
        let bare = EcPrivateKey {
            private_key: &secret,
            parameters: Some(EcParameters::NamedCurve(oid_of(curve))),
            public_key: None,
        };
        let bare = Zeroizing::new(bare.to_der().map_err(|_| KeyError::Inconsistent)?);
        let aws_lc = EcdsaKeyPair::from_private_key_der(algorithm, &bare)
            .map_err(|_| KeyError::Inconsistent)?;
        let public = aws_lc.public_key();
        let is_ours = |said| is_point(said, public.as_ref());
        if !publics.into_iter().flatten().all(is_ours) {
            return Err(KeyError::Inconsistent);
        }
        let info: PublicKeyX509Der<'_> = public.as_der().map_err(|_| KeyError::Inconsistent)?;
        Ok(Self {
            inner: Arc::new(Inner {
                curve,
                secret_digits: nist::secret_digits(curve, &secret),
                secret,
                point: public.as_ref().to_vec(),
                public_key_info: info.as_ref().to_vec(),
                aws_lc,
            }),
        })
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey")
            .field("curve", &self.curve())
            .finish_non_exhaustive()
    }
}

/// Why a private key was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The encoding is broken.
    #[error(
        "the {part} is malformed: {reason}; check that the file is complete, or export it again \
         with `openssl pkey`"
    )]
    Malformed {
        /// The structure that could not be read.
        part: &'static str,
        /// What is wrong with it, and where.
        reason: String,
    },
    /// The key is protected by a passphrase.
    #[error(
        "the private key is encrypted; decrypt it with `openssl pkey -in KEY -out DECRYPTED` \
         and guard that file by its permissions"
    )]
    Encrypted,
    /// The key is for another algorithm.
    #[error("the private key is not for ECDSA but {found}; use an elliptic-curve key here")]
    NotEc {
        /// What it is instead.
        found: String,
    },
    /// The key is on a curve that is not supported.
    #[error("the private key is on another curve, {found}; use P-256 or P-384")]
    OtherCurve {
        /// The curve.
        found: String,
    },
    /// The secret is no scalar of the curve.
    #[error(
        "the private key is not a number from 1 to the order of {curve} less 1, as long as that \
         order; make a new key"
    )]
    OutOfRange {
        /// The curve that the key names.
        curve: Curve,
    },
    /// The public half in the encoding belongs to another key.
    #[error(
        "the private key is inconsistent: its public half is of another key; restore it from a \
         backup or make a new one"
    )]
    Inconsistent,
}

/// A public key: a point that is known to be on its curve. Cloning copies a counted reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    curve: Curve,
    point: Arc<[u8]>,
}

impl PublicKey {
    /// Takes an uncompressed point (SEC 1, section 2.3.3).
    ///
    /// # Errors
    ///
    /// [`PublicKeyError`] if it has another form, or is not on the curve.
    pub fn from_point(curve: Curve, point: &[u8]) -> Result<Self, PublicKeyError> {
        if point.len() != curve.point_bytes() || point[0] != UNCOMPRESSED {
            return Err(PublicKeyError::Form { curve });
        }
        let algorithm = match curve {
            Curve::P256 => &aws::ECDSA_P256_SHA256_ASN1,
            Curve::P384 => &aws::ECDSA_P384_SHA384_ASN1,
        };
        match ParsedPublicKey::new(algorithm, point) {
            Ok(_) => Ok(Self {
                curve,
                point: point.into(),
            }),
            Err(_) => Err(PublicKeyError::OffCurve { curve }),
        }
    }

    /// Takes DER of `SubjectPublicKeyInfo` (RFC 5480).
    ///
    /// # Errors
    ///
    /// [`PublicKeyError`] if it is malformed, for another algorithm or curve, or not on its curve.
    pub fn from_spki(der: &[u8]) -> Result<Self, PublicKeyError> {
        let info: SubjectPublicKeyInfo<AnyRef<'_>, BitStringRef<'_>> =
            SubjectPublicKeyInfo::from_der(der).map_err(|_| PublicKeyError::Malformed)?;
        if info.algorithm.oid != EC_PUBLIC_KEY {
            return Err(PublicKeyError::Unsupported);
        }
        let curve =
            curve_named(info.algorithm.parameters).map_err(|_| PublicKeyError::Unsupported)?;
        let point = info.subject_public_key.as_bytes();
        Self::from_point(curve, point.ok_or(PublicKeyError::Malformed)?)
    }

    /// The curve.
    pub fn curve(&self) -> Curve {
        self.curve
    }

    /// The uncompressed point.
    pub fn point(&self) -> &[u8] {
        &self.point
    }
}

/// Why a public key was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublicKeyError {
    /// The encoding is broken.
    #[error("the public key is malformed: it is not DER of SubjectPublicKeyInfo")]
    Malformed,
    /// The key is for another algorithm, or on another curve.
    #[error("the public key is not for ECDSA on P-256 or P-384")]
    Unsupported,
    /// The point is not of the only form that is taken.
    #[error("the public key is not an uncompressed point of {curve}")]
    Form {
        /// The curve.
        curve: Curve,
    },
    /// The point satisfies another equation.
    #[error("the public key is not a point of {curve}")]
    OffCurve {
        /// The curve.
        curve: Curve,
    },
}

fn curve_named(parameters: Option<AnyRef<'_>>) -> Result<Curve, KeyError> {
    let oid = parameters.map(|parameters| parameters.decode_as::<ObjectIdentifier>());
    match oid {
        Some(Ok(oid)) => curve_of(oid),
        _ => Err(KeyError::OtherCurve {
            found: "which the key does not name".to_owned(),
        }),
    }
}

/// Whether an encoding, compressed or not (SEC 1, section 2.3.3), is that of an uncompressed point.
fn is_point(encoding: &[u8], uncompressed: &[u8]) -> bool {
    let (x, y) = uncompressed[1..].split_at(uncompressed.len() / 2);
    let parity = y.last().map_or(0, |byte| byte & 1);
    encoding == uncompressed || encoding == [&[COMPRESSED | parity], x].concat()
}

fn curve_of(oid: ObjectIdentifier) -> Result<Curve, KeyError> {
    match oid {
        SECP256R1 => Ok(Curve::P256),
        SECP384R1 => Ok(Curve::P384),
        other => Err(KeyError::OtherCurve {
            found: other.to_string(),
        }),
    }
}

fn oid_of(curve: Curve) -> ObjectIdentifier {
    match curve {
        Curve::P256 => SECP256R1,
        Curve::P384 => SECP384R1,
    }
}

fn malformed(part: &'static str, error: der::Error) -> KeyError {
    KeyError::Malformed {
        part,
        reason: error.to_string(),
    }
}

/// RFC 5480, section 2.1.1.
const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const SECP256R1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const SECP384R1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
/// The first byte of a compressed point whose y is even (SEC 1, section 2.3.3).
const COMPRESSED: u8 = 2;
