//! Verification of signatures, in certificates and over handshakes, through the engine.
//!
//! ECDSA on P-256 and P-384, Ed25519, ML-DSA and RSA with 2048 bits run in passes. RSA of other
//! sizes, P-521 and whatever else aws-lc-rs verifies stays with aws-lc-rs.
//!
//! A verifier can only say yes or no. When the engine is full or has been shut down, aws-lc-rs
//! answers at once instead: no peer is called a forger because this machine is busy.

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls_pki_types::{
    AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id,
};
use widelane_crypto::{Hash, ecdsa, ed25519, mldsa, rsa};
use widelane_engine::Engine;

use crate::jobs::{Failure, run};

/// The algorithms of `theirs`, those that have lanes through `engine`.
///
/// rustls wants them for ever (`&'static`), so each call leaks a few kilobytes.
pub(crate) fn in_passes(
    theirs: WebPkiSupportedAlgorithms,
    engine: &Engine,
) -> WebPkiSupportedAlgorithms {
    let ours = |algorithms: &[Algorithm]| -> &'static [Algorithm] {
        let ours = algorithms.iter().map(|algorithm| ours(*algorithm, engine));
        ours.collect::<Vec<_>>().leak()
    };
    let mapping = theirs.mapping.iter();
    let mapping = mapping.map(|(scheme, algorithms)| (*scheme, ours(algorithms)));
    WebPkiSupportedAlgorithms {
        all: ours(theirs.all),
        mapping: mapping.collect::<Vec<_>>().leak(),
    }
}

type Algorithm = &'static dyn SignatureVerificationAlgorithm;

fn ours(theirs: Algorithm, engine: &Engine) -> Algorithm {
    let key = theirs.public_key_alg_id();
    let Some(kind) = Kind::of(key, theirs.signature_alg_id()) else {
        return theirs;
    };
    Box::leak(Box::new(InPasses {
        kind,
        theirs,
        engine: engine.clone(),
    }))
}

/// What has lanes.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Ecdsa(ecdsa::Curve, Hash),
    Ed25519,
    MlDsa(mldsa::Size),
    /// rustls has no algorithm for RSA that refuses 2048 bits.
    Rsa(rsa::Scheme),
}

impl Kind {
    fn of(key: AlgorithmIdentifier, signature: AlgorithmIdentifier) -> Option<Self> {
        let curve = match key {
            alg_id::ED25519 => return Some(Self::Ed25519),
            alg_id::ML_DSA_44 => return Some(Self::MlDsa(mldsa::Size::MlDsa44)),
            alg_id::ML_DSA_65 => return Some(Self::MlDsa(mldsa::Size::MlDsa65)),
            alg_id::ML_DSA_87 => return Some(Self::MlDsa(mldsa::Size::MlDsa87)),
            alg_id::ECDSA_P256 => ecdsa::Curve::P256,
            alg_id::ECDSA_P384 => ecdsa::Curve::P384,
            alg_id::RSA_ENCRYPTION => return rsa_scheme(signature).map(Self::Rsa),
            _ => return None,
        };
        let hash = match signature {
            alg_id::ECDSA_SHA256 => Hash::Sha256,
            alg_id::ECDSA_SHA384 => Hash::Sha384,
            alg_id::ECDSA_SHA512 => Hash::Sha512,
            _ => return None,
        };
        Some(Self::Ecdsa(curve, hash))
    }

    /// Whether the signature is right; `None` if the key has a form that our types do not take.
    fn verify(
        self,
        engine: &Engine,
        key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Option<Result<bool, Failure>> {
        Some(match self {
            Self::Ecdsa(curve, hash) => {
                let key = ecdsa::PublicKey::from_point(curve, key).ok()?;
                let request = ecdsa::VerifyRequest::new(&key, hash, message, signature);
                run(engine, request).map(|verdict| verdict.is_ok())
            }
            Self::Ed25519 => {
                let key = ed25519::PublicKey::from_bytes(key).ok()?;
                let request = ed25519::VerifyRequest::new(&key, message, signature);
                run(engine, request).map(|verdict| verdict.is_ok())
            }
            Self::MlDsa(size) => {
                let key = mldsa::PublicKey::from_bytes(size, key).ok()?;
                let request = mldsa::VerifyRequest::new(&key, message, signature);
                run(engine, request).map(|verdict| verdict.is_ok())
            }
            Self::Rsa(scheme) => {
                let key = rsa::PublicKey::from_pkcs1_der(key).ok()?;
                let request = rsa::VerifyRequest::new(&key, scheme, message, signature);
                run(engine, request).map(|verdict| verdict.is_ok())
            }
        })
    }
}

/// An algorithm that has lanes, and the same of aws-lc-rs.
#[derive(Debug)]
struct InPasses {
    kind: Kind,
    theirs: Algorithm,
    engine: Engine,
}

impl SignatureVerificationAlgorithm for InPasses {
    fn verify_signature(
        &self,
        key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        match self.kind.verify(&self.engine, key, message, signature) {
            Some(Ok(true)) => Ok(()),
            Some(Ok(false)) => Err(InvalidSignature),
            // The answer has no reader.
            Some(Err(Failure::Cancelled(_))) => Err(InvalidSignature),
            Some(Err(_)) | None => self.theirs.verify_signature(key, message, signature),
        }
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.theirs.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.theirs.signature_alg_id()
    }
}

fn rsa_scheme(signature: AlgorithmIdentifier) -> Option<rsa::Scheme> {
    Some(match signature {
        alg_id::RSA_PKCS1_SHA256 => rsa::Scheme::Pkcs1Sha256,
        alg_id::RSA_PKCS1_SHA384 => rsa::Scheme::Pkcs1Sha384,
        alg_id::RSA_PKCS1_SHA512 => rsa::Scheme::Pkcs1Sha512,
        alg_id::RSA_PSS_SHA256 => rsa::Scheme::PssSha256,
        alg_id::RSA_PSS_SHA384 => rsa::Scheme::PssSha384,
        alg_id::RSA_PSS_SHA512 => rsa::Scheme::PssSha512,
        _ => return None,
    })
}
