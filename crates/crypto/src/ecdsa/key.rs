//! Keys: parsing and checks.

use crate::nist::{self, Curve, Scalar, UNCOMPRESSED};
use crate::secrecy::opaque;
use crate::sign::{KeyError, malformed, public_key_info};
use aws_lc_rs::signature::{self as aws, EcdsaKeyPair, KeyPair, ParsedPublicKey};
use pkcs8::der::asn1::AnyRef;
use pkcs8::der::{Decode, Encode};
use pkcs8::{ObjectIdentifier, PrivateKeyInfoRef};
use sec1::{EcParameters, EcPrivateKey};
use std::sync::Arc;
use zeroize::Zeroizing;

/// A private key that was checked as [`sign::Key`](crate::sign::Key) says.
#[derive(Clone)]
pub(crate) struct PrivateKey {
    inner: Arc<Inner>,
}

struct Inner {
    curve: Curve,
    secret: Scalar,
    /// The secret in the form in which lanes multiply by it.
    secret_digits: Zeroizing<Vec<u64>>,
    point: Vec<u8>,
    aws_lc: EcdsaKeyPair,
}

impl PrivateKey {
    /// Checks a key under id-ecPublicKey.
    pub(crate) fn from_pkcs8(info: &PrivateKeyInfoRef<'_>) -> Result<Self, KeyError> {
        let curve = curve_named(info.algorithm.parameters)?;
        let key = EcPrivateKey::from_der(info.private_key.as_bytes())
            .map_err(|error| malformed("the EC key inside PKCS#8", error))?;
        let named = key.parameters.and_then(EcParameters::named_curve);
        if named.is_some_and(|oid| curve_of(oid) != Ok(curve)) {
            return Err(KeyError::OTHER_PUBLIC_KEY);
        }
        let beside = info.public_key.map(|public| public.as_bytes().unwrap_or(&[]));
        Self::checked(curve, key.private_key, [key.public_key, beside])
    }

    /// Reads and checks `ECPrivateKey` (RFC 5915).
    pub(crate) fn from_sec1(der: &[u8]) -> Result<Self, KeyError> {
        let key = EcPrivateKey::from_der(der).map_err(|error| malformed("the SEC 1 key", error))?;
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

    /// The key of a big-endian scalar.
    pub(crate) fn from_scalar(curve: Curve, scalar: &[u8]) -> Result<Self, KeyError> {
        Self::checked(curve, scalar, [None, None])
    }

    /// The curve.
    pub(crate) fn curve(&self) -> Curve {
        self.inner.curve
    }

    /// The public key as DER of `SubjectPublicKeyInfo` (RFC 5480).
    pub(crate) fn public_key_info_der(&self) -> Vec<u8> {
        let curve = oid_of(self.curve());
        public_key_info(PUBLIC_KEY, Some(AnyRef::from(&curve)), &self.inner.point)
    }

    /// The public key as an uncompressed point.
    #[cfg(test)]
    pub(super) fn point(&self) -> &[u8] {
        &self.inner.point
    }

    /// The secret, big endian.
    pub(super) fn secret(&self) -> &[u8] {
        &self.inner.secret
    }

    /// The secret in Montgomery form.
    pub(super) fn secret_digits(&self) -> &[u64] {
        &self.inner.secret_digits
    }

    /// Key inside aws-lc-rs.
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
        let bare = Zeroizing::new(bare.to_der().map_err(|_| KeyError::AwsLc)?);
        let aws_lc = EcdsaKeyPair::from_private_key_der(algorithm, &bare).map_err(|_| KeyError::AwsLc)?;
        let public = aws_lc.public_key();
        let is_ours = |said| is_point(said, public.as_ref());
        if !publics.into_iter().flatten().all(is_ours) {
            return Err(KeyError::OTHER_PUBLIC_KEY);
        }
        Ok(Self {
            inner: Arc::new(Inner {
                curve,
                secret_digits: nist::secret_digits(curve, &secret),
                secret,
                point: public.as_ref().to_vec(),
                aws_lc,
            }),
        })
    }
}

opaque!(PrivateKey { curve });

/// Refuses what is not an uncompressed point (SEC 1, section 2.3.3) of the curve.
pub(crate) fn check_point(curve: Curve, point: &[u8]) -> Result<(), KeyError> {
    if point.len() != curve.point_bytes() || point[0] != UNCOMPRESSED {
        return Err(KeyError::Form { curve });
    }
    let algorithm = match curve {
        Curve::P256 => &aws::ECDSA_P256_SHA256_ASN1,
        Curve::P384 => &aws::ECDSA_P384_SHA384_ASN1,
    };
    let parsed = ParsedPublicKey::new(algorithm, point);
    parsed.map(drop).map_err(|_| KeyError::OffCurve { curve })
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

/// Returns whether an encoding, compressed or not (SEC 1, section 2.3.3), is that of an uncompressed point.
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

/// RFC 5480, section 2.1.1.
pub(crate) const PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const SECP256R1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const SECP384R1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
/// The first byte of a compressed point whose y is even (SEC 1, section 2.3.3).
const COMPRESSED: u8 = 2;
