//! The two operations as kinds of work, each on one backend.

use super::pass;
use super::{PrivateKey, SignError, SignRequest, VerifyError, VerifyRequest};
use crate::lanes25519::Lanes;
use crate::{Backend, BackendUnavailable, Work};

/// Signatures, `ed25519-sign`.
#[derive(Debug)]
pub struct Signing(Lanes);

/// Checks of signatures, `ed25519-verify`.
#[derive(Debug)]
pub struct Verification(Lanes);

impl Signing {
    /// The operation on a backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend) -> Result<Self, BackendUnavailable> {
        Lanes::new(backend).map(Self)
    }
}

impl Verification {
    /// The operation on a backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend) -> Result<Self, BackendUnavailable> {
        Lanes::new(backend).map(Self)
    }
}

impl Work for Signing {
    type Request = SignRequest;
    type Output = Result<Vec<u8>, SignError>;

    fn name(&self) -> &'static str {
        "ed25519-sign"
    }

    fn lanes(&self) -> usize {
        self.0.count()
    }

    fn pass(&self, requests: &[SignRequest]) -> Vec<Self::Output> {
        match &self.0 {
            Lanes::Single => requests.iter().map(SignRequest::alone).collect(),
            Lanes::Ymm(lanes) => pass::sign(lanes, requests),
            Lanes::Zmm(lanes) => pass::sign(lanes, requests),
        }
    }

    fn alone(&self, request: &SignRequest) -> Self::Output {
        request.alone()
    }

    fn specimen(&self) -> SignRequest {
        SignRequest::new(&specimen_key(), &SPECIMEN_MESSAGE)
    }
}

impl Work for Verification {
    type Request = VerifyRequest;
    type Output = Result<(), VerifyError>;

    fn name(&self) -> &'static str {
        "ed25519-verify"
    }

    fn lanes(&self) -> usize {
        self.0.count()
    }

    fn pass(&self, requests: &[VerifyRequest]) -> Vec<Self::Output> {
        match &self.0 {
            Lanes::Single => requests.iter().map(VerifyRequest::alone).collect(),
            Lanes::Ymm(lanes) => pass::verify(lanes, requests),
            Lanes::Zmm(lanes) => pass::verify(lanes, requests),
        }
    }

    fn alone(&self, request: &VerifyRequest) -> Self::Output {
        request.alone()
    }

    fn specimen(&self) -> VerifyRequest {
        let key = specimen_key();
        let signature = SignRequest::new(&key, &SPECIMEN_MESSAGE)
            .alone()
            .expect("aws-lc-rs signs with a good key");
        VerifyRequest::new(key.public_key(), &SPECIMEN_MESSAGE, &signature)
    }
}

fn specimen_key() -> PrivateKey {
    PrivateKey::from_seed(&[0x5a; 32]).expect("every seed is a key")
}

/// As long as what TLS 1.3 signs with SHA-384: 64 spaces, a text of 34 bytes and a digest of 48
/// (RFC 8446, section 4.4.3).
const SPECIMEN_MESSAGE: [u8; 146] = [0x20; 146];
