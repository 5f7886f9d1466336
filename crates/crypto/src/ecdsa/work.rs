//! The two operations as kinds of work, each on one curve and one backend.

use super::key::PrivateKey;
use super::request::{Hash, SignError, SignRequest, VerifyError, VerifyRequest};
use crate::nist::Curve;
use crate::{Backend, BackendUnavailable, Preference, Work};
use aws_lc_rs::signature::{self as aws, EcdsaKeyPair};
use std::sync::OnceLock;

/// Signatures with keys on one curve: `p256-ecdsa-sign`, `p384-ecdsa-sign`.
#[derive(Debug)]
pub struct Signing {
    curve: Curve,
}

impl Signing {
    /// Signatures with this backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend, curve: Curve) -> Result<Self, BackendUnavailable> {
        Preference::Exactly(backend).resolve()?;
        Ok(Self { curve })
    }
}

impl Work for Signing {
    type Request = SignRequest;
    type Output = Result<Vec<u8>, SignError>;

    fn name(&self) -> &'static str {
        match self.curve {
            Curve::P256 => "p256-ecdsa-sign",
            Curve::P384 => "p384-ecdsa-sign",
        }
    }

    fn lanes(&self) -> usize {
        1
    }

    fn takes(&self, request: &SignRequest) -> bool {
        request.curve() == self.curve
    }

    fn pass(&self, requests: &[SignRequest]) -> Vec<Result<Vec<u8>, SignError>> {
        requests.iter().map(|request| self.alone(request)).collect()
    }

    fn alone(&self, request: &SignRequest) -> Result<Vec<u8>, SignError> {
        let signature = request.key().aws_lc().sign_digest(request.digest());
        Ok(signature.map_err(|_| SignError::AwsLc)?.as_ref().to_vec())
    }

    fn specimen(&self) -> SignRequest {
        SignRequest::new(specimen_key(self.curve), MESSAGE)
    }
}

/// Verification of signatures by keys on one curve: `p256-ecdsa-verify`, `p384-ecdsa-verify`.
#[derive(Debug)]
pub struct Verification {
    curve: Curve,
}

impl Verification {
    /// Verification with this backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend, curve: Curve) -> Result<Self, BackendUnavailable> {
        Preference::Exactly(backend).resolve()?;
        Ok(Self { curve })
    }
}

impl Work for Verification {
    type Request = VerifyRequest;
    type Output = Result<(), VerifyError>;

    fn name(&self) -> &'static str {
        match self.curve {
            Curve::P256 => "p256-ecdsa-verify",
            Curve::P384 => "p384-ecdsa-verify",
        }
    }

    fn lanes(&self) -> usize {
        1
    }

    fn takes(&self, request: &VerifyRequest) -> bool {
        request.curve() == self.curve
    }

    fn pass(&self, requests: &[VerifyRequest]) -> Vec<Result<(), VerifyError>> {
        requests.iter().map(|request| self.alone(request)).collect()
    }

    fn alone(&self, request: &VerifyRequest) -> Result<(), VerifyError> {
        let algorithm = match (request.curve(), request.hash()) {
            (Curve::P256, Hash::Sha256) => &aws::ECDSA_P256_SHA256_ASN1,
            (Curve::P256, Hash::Sha384) => &aws::ECDSA_P256_SHA384_ASN1,
            (Curve::P256, Hash::Sha512) => &aws::ECDSA_P256_SHA512_ASN1,
            (Curve::P384, Hash::Sha256) => &aws::ECDSA_P384_SHA256_ASN1,
            (Curve::P384, Hash::Sha384) => &aws::ECDSA_P384_SHA384_ASN1,
            (Curve::P384, Hash::Sha512) => &aws::ECDSA_P384_SHA512_ASN1,
        };
        aws::UnparsedPublicKey::new(algorithm, request.key().point())
            .verify_digest(request.digest(), request.signature())
            .map_err(|_| VerifyError)
    }

    fn specimen(&self) -> VerifyRequest {
        let key = specimen_key(self.curve);
        let request = SignRequest::new(key, MESSAGE);
        let signature = key.aws_lc().sign_digest(request.digest());
        let signature = signature.expect("aws-lc-rs signs with a good key");
        let hash = Hash::of(self.curve);
        VerifyRequest::new(&key.public_key(), hash, MESSAGE, signature.as_ref())
    }
}

/// A key that is never used for anything else.
fn specimen_key(curve: Curve) -> &'static PrivateKey {
    static KEYS: [OnceLock<PrivateKey>; 2] = [OnceLock::new(), OnceLock::new()];
    KEYS[curve as usize].get_or_init(|| {
        let algorithm = match curve {
            Curve::P256 => &aws::ECDSA_P256_SHA256_ASN1_SIGNING,
            Curve::P384 => &aws::ECDSA_P384_SHA384_ASN1_SIGNING,
        };
        let der = EcdsaKeyPair::generate(algorithm).and_then(|pair| pair.to_pkcs8v1());
        let der = der.expect("aws-lc-rs makes keys");
        PrivateKey::from_pkcs8_der(der.as_ref()).expect("a good key")
    })
}

const MESSAGE: &[u8] = b"specimen";
