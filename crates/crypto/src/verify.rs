//! Verification of signatures of every kind.
//!
//! A [`Request`] owns what one verification by a [`Scheme`] needs. [`Request::alone`] answers it at once; the
//! operation that [takes](crate::Operation::takes) it answers several together: `rsa::Verification`,
//! `ecdsa::Verification` and their like.
//!
//! All of it is public, so that time may depend on it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use aws_lc_rs::digest::Digest;
use aws_lc_rs::signature::{self as aws, UnparsedPublicKey, VerificationAlgorithm};
use rustls_pki_types::{AlgorithmIdentifier, alg_id};

use crate::operation::Requests;
use crate::passes::lock;
use crate::sign::{self, Algorithm, KeyError, VerifyError, public_key_bytes};
use crate::{Hash, ecdsa, mldsa, rsa};

/// Signature scheme for which lanes verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// RSA with this padding and hash function, by keys of 2048 bits.
    Rsa(rsa::Scheme),
    /// ECDSA on this curve, of messages with this hash function.
    Ecdsa(ecdsa::Curve, Hash),
    /// Ed25519.
    Ed25519,
    /// ML-DSA with this parameter set.
    MlDsa(mldsa::Size),
}

impl From<sign::Scheme> for Scheme {
    fn from(scheme: sign::Scheme) -> Self {
        match scheme {
            sign::Scheme::Rsa(scheme) => Self::Rsa(scheme),
            sign::Scheme::Ecdsa(curve) => Self::Ecdsa(curve, Hash::of(curve)),
            sign::Scheme::Ed25519 => Self::Ed25519,
            sign::Scheme::MlDsa(size) => Self::MlDsa(size),
        }
    }
}

impl Scheme {
    /// The scheme of signatures that a certificate names so; `None` if lanes have none.
    pub fn of(key: AlgorithmIdentifier, signature: AlgorithmIdentifier) -> Option<Self> {
        Some(match (key, signature) {
            (alg_id::RSA_ENCRYPTION, _) => Self::Rsa(match signature {
                alg_id::RSA_PKCS1_SHA256 => rsa::Scheme::Pkcs1Sha256,
                alg_id::RSA_PKCS1_SHA384 => rsa::Scheme::Pkcs1Sha384,
                alg_id::RSA_PKCS1_SHA512 => rsa::Scheme::Pkcs1Sha512,
                alg_id::RSA_PSS_SHA256 => rsa::Scheme::PssSha256,
                alg_id::RSA_PSS_SHA384 => rsa::Scheme::PssSha384,
                alg_id::RSA_PSS_SHA512 => rsa::Scheme::PssSha512,
                _ => return None,
            }),
            (alg_id::ECDSA_P256, _) => Self::Ecdsa(ecdsa::Curve::P256, hash(signature)?),
            (alg_id::ECDSA_P384, _) => Self::Ecdsa(ecdsa::Curve::P384, hash(signature)?),
            (alg_id::ED25519, _) => Self::Ed25519,
            (alg_id::ML_DSA_44, _) => Self::MlDsa(mldsa::Size::MlDsa44),
            (alg_id::ML_DSA_65, _) => Self::MlDsa(mldsa::Size::MlDsa65),
            (alg_id::ML_DSA_87, _) => Self::MlDsa(mldsa::Size::MlDsa87),
            _ => return None,
        })
    }

    /// The hash function of messages; `None` if the algorithm takes them whole.
    fn hash(self) -> Option<Hash> {
        match self {
            Self::Rsa(scheme) => Some(scheme.hash()),
            Self::Ecdsa(_, hash) => Some(hash),
            Self::Ed25519 | Self::MlDsa(_) => None,
        }
    }

    /// Refuses public keys that lanes do not take.
    fn check(self, key: &[u8]) -> Result<(), KeyError> {
        let check_length = |expected| KeyError::check_length("the public key", expected, key.len());
        match self {
            Self::Rsa(_) => rsa::PublicKey::from_pkcs1_der(key).map(drop),
            Self::Ecdsa(curve, _) => ecdsa::check_point(curve, key),
            Self::Ed25519 => check_length(32),
            Self::MlDsa(size) => check_length(size.public_key_len()),
        }
    }

    fn aws_lc(self) -> &'static dyn VerificationAlgorithm {
        use ecdsa::Curve::{P256, P384};
        match self {
            Self::Rsa(scheme) => scheme.aws_lc_verification(),
            Self::Ecdsa(P256, Hash::Sha256) => &aws::ECDSA_P256_SHA256_ASN1,
            Self::Ecdsa(P256, Hash::Sha384) => &aws::ECDSA_P256_SHA384_ASN1,
            Self::Ecdsa(P256, Hash::Sha512) => &aws::ECDSA_P256_SHA512_ASN1,
            Self::Ecdsa(P384, Hash::Sha256) => &aws::ECDSA_P384_SHA256_ASN1,
            Self::Ecdsa(P384, Hash::Sha384) => &aws::ECDSA_P384_SHA384_ASN1,
            Self::Ecdsa(P384, Hash::Sha512) => &aws::ECDSA_P384_SHA512_ASN1,
            Self::Ed25519 => &aws::ED25519,
            Self::MlDsa(size) => size.aws_lc_verification(),
        }
    }
}

fn hash(signature: AlgorithmIdentifier) -> Option<Hash> {
    match signature {
        alg_id::ECDSA_SHA256 => Some(Hash::Sha256),
        alg_id::ECDSA_SHA384 => Some(Hash::Sha384),
        alg_id::ECDSA_SHA512 => Some(Hash::Sha512),
        _ => None,
    }
}

/// Result of a verification.
pub(crate) type Verdict = Result<(), VerifyError>;

/// One signature to be verified: owns its input.
#[derive(Clone, Debug)]
pub struct Request {
    pub(crate) scheme: Scheme,
    /// The public key, which was checked, as it stands inside `SubjectPublicKeyInfo`.
    pub(crate) key: Box<[u8]>,
    /// The message, or its hash value if the scheme has a hash function.
    pub(crate) text: Box<[u8]>,
    /// A signature of any length.
    pub(crate) signature: Box<[u8]>,
}

impl Request {
    /// Checks the key, which is as it stands inside `SubjectPublicKeyInfo`: DER of `RSAPublicKey` (RFC 8017,
    /// appendix A.1.1), an uncompressed point (SEC 1, section 2.3.3), or bytes (RFC 8032, section 5.1.2; FIPS 204,
    /// algorithm 22). Hashes the message if the scheme has a hash function, and copies the rest.
    ///
    /// A PSS salt must be as long as the hash value (RFC 8446, section 4.2.3), and the context of ML-DSA is empty.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if lanes do not take the key.
    pub fn new(scheme: Scheme, key: &[u8], message: &[u8], signature: &[u8]) -> Result<Self, KeyError> {
        scheme.check(key)?;
        let text = match scheme.hash() {
            Some(hash) => hash.digest(message).as_ref().into(),
            None => message.into(),
        };
        Ok(Self {
            scheme,
            key: key.into(),
            text,
            signature: signature.into(),
        })
    }

    /// Answers the request at once, on this thread, through aws-lc-rs.
    ///
    /// # Errors
    ///
    /// [`VerifyError`] if the signature is not one of this message by this key.
    pub fn alone(&self) -> Verdict {
        let key = UnparsedPublicKey::new(self.scheme.aws_lc(), &self.key);
        let verified = match self.scheme.hash() {
            Some(hash) => Digest::import_less_safe(&self.text, hash.algorithm())
                .and_then(|digest| key.verify_digest(&digest, &self.signature)),
            None => key.verify(&self.text, &self.signature),
        };
        verified.map_err(|_| VerifyError)
    }
}

impl crate::Request for Request {
    type Output = Verdict;

    fn failure(output: &Verdict) -> Option<&(dyn std::error::Error + 'static)> {
        output.as_ref().err().map(|error| error as _)
    }
}

impl Requests for Request {
    type Answer = ();
    type Error = VerifyError;

    fn answer_alone(&self) -> Verdict {
        self.alone()
    }

    fn misplaced(_operation: &'static str) -> VerifyError {
        VerifyError
    }
}

/// A request for measurements, with the specimen of an algorithm. What lanes need of a key is computed for every
/// request: only the bytes are those of others.
pub(crate) fn specimen(algorithm: Algorithm) -> Request {
    static KNOWN: Mutex<BTreeMap<u16, Request>> = Mutex::new(BTreeMap::new());
    let scheme = algorithm.schemes()[0];
    let mut known = lock(&KNOWN);
    let specimen = known.entry(scheme.tls_number()).or_insert_with(|| {
        let key = sign::specimen_key(algorithm, algorithm.specimen());
        let signature = sign::specimen(algorithm).alone();
        let signature = signature.expect("our own key signs");
        let info = key.public_key_info_der();
        let key = public_key_bytes(&info);
        Request::new(scheme.into(), key, sign::SPECIMEN_MESSAGE, &signature).expect("our own key has lanes")
    });
    specimen.clone()
}
