//! Verification of signatures of every kind.

use rustls_pki_types::{AlgorithmIdentifier, alg_id};

use super::{KeyError, VerifyError};
use crate::operation::requests;
use crate::{Hash, ecdsa, ed25519, mldsa, rsa};

/// Verifies a signature in lanes.
#[derive(Clone, Copy, Debug)]
pub struct Verifier(Kind);

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// RSA, by keys of 2048 bits only.
    Rsa(rsa::Scheme),
    Ecdsa(ecdsa::Curve, Hash),
    Ed25519,
    MlDsa(mldsa::Size),
}

/// Result of a verification.
pub(crate) type Verdict = Result<(), VerifyError>;

requests! {
    /// One signature to be verified: owns its input.
    VerifyRequest(ToVerify) => (), VerifyError, |_| VerifyError;
    Rsa(rsa::VerifyRequest),
    Ecdsa(ecdsa::VerifyRequest),
    Ed25519(ed25519::VerifyRequest),
    MlDsa(mldsa::VerifyRequest),
}

impl Verifier {
    /// The verifier of signatures that a certificate names so; `None` if lanes have none.
    pub fn of(key: AlgorithmIdentifier, signature: AlgorithmIdentifier) -> Option<Self> {
        Some(Self(match (key, signature) {
            (alg_id::RSA_ENCRYPTION, _) => Kind::Rsa(match signature {
                alg_id::RSA_PKCS1_SHA256 => rsa::Scheme::Pkcs1Sha256,
                alg_id::RSA_PKCS1_SHA384 => rsa::Scheme::Pkcs1Sha384,
                alg_id::RSA_PKCS1_SHA512 => rsa::Scheme::Pkcs1Sha512,
                alg_id::RSA_PSS_SHA256 => rsa::Scheme::PssSha256,
                alg_id::RSA_PSS_SHA384 => rsa::Scheme::PssSha384,
                alg_id::RSA_PSS_SHA512 => rsa::Scheme::PssSha512,
                _ => return None,
            }),
            (alg_id::ECDSA_P256, _) => Kind::Ecdsa(ecdsa::Curve::P256, hash(signature)?),
            (alg_id::ECDSA_P384, _) => Kind::Ecdsa(ecdsa::Curve::P384, hash(signature)?),
            (alg_id::ED25519, _) => Kind::Ed25519,
            (alg_id::ML_DSA_44, _) => Kind::MlDsa(mldsa::Size::MlDsa44),
            (alg_id::ML_DSA_65, _) => Kind::MlDsa(mldsa::Size::MlDsa65),
            (alg_id::ML_DSA_87, _) => Kind::MlDsa(mldsa::Size::MlDsa87),
            _ => return None,
        }))
    }

    /// A request, for the key's bytes inside `SubjectPublicKeyInfo`.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if lanes do not take the key.
    pub fn request(
        self,
        key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<VerifyRequest, KeyError> {
        Ok(match self.0 {
            Kind::Rsa(scheme) => {
                let key = rsa::PublicKey::from_pkcs1_der(key)?;
                rsa::VerifyRequest::new(&key, scheme, message, signature).into()
            }
            Kind::Ecdsa(curve, hash) => {
                let key = ecdsa::PublicKey::from_point(curve, key)?;
                ecdsa::VerifyRequest::new(&key, hash, message, signature).into()
            }
            Kind::Ed25519 => {
                let key = ed25519::PublicKey::from_bytes(key)?;
                ed25519::VerifyRequest::new(&key, message, signature).into()
            }
            Kind::MlDsa(size) => {
                let key = mldsa::PublicKey::from_bytes(size, key)?;
                mldsa::VerifyRequest::new(&key, message, signature).into()
            }
        })
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
