//! The two operations, each on one backend.

use super::pass;
use super::{PrivateKey, SignError, SignRequest, VerifyError, VerifyRequest};
use crate::lanes25519::Kind;
use crate::operation::requests;
use crate::passes::{Passes, with_pass};
use crate::{Backend, BackendUnavailable, Operation};

/// Signatures, `ed25519-sign`.
#[derive(Debug)]
pub struct Signing(Passes<Kind>);

/// Checks of signatures, `ed25519-verify`.
#[derive(Debug)]
pub struct Verification(Passes<Kind>);

impl Signing {
    /// The operation on a backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend) -> Result<Self, BackendUnavailable> {
        Passes::new(backend, pass::SIGNING).map(Self)
    }
}

impl Verification {
    /// The operation on a backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend) -> Result<Self, BackendUnavailable> {
        Passes::new(backend, pass::VERIFICATION).map(Self)
    }
}

requests! {
    SignRequest => Vec<u8>, SignError;
    VerifyRequest => (), VerifyError;
}

impl Operation for Signing {
    type Request = SignRequest;

    fn name(&self) -> &'static str {
        "ed25519-sign"
    }

    fn lanes(&self) -> usize {
        self.0.lanes()
    }

    fn pass(&self, requests: &[SignRequest]) -> Vec<Result<Vec<u8>, SignError>> {
        with_pass!(&self.0, lanes => pass::sign(lanes, requests), else {
            requests.iter().map(SignRequest::alone).collect()
        })
    }

    fn alone(&self, request: &SignRequest) -> Result<Vec<u8>, SignError> {
        request.alone()
    }

    fn specimen(&self) -> SignRequest {
        SignRequest::new(&specimen_key(), &SPECIMEN_MESSAGE)
    }
}

impl Operation for Verification {
    type Request = VerifyRequest;

    fn name(&self) -> &'static str {
        "ed25519-verify"
    }

    fn lanes(&self) -> usize {
        self.0.lanes()
    }

    fn pass(&self, requests: &[VerifyRequest]) -> Vec<Result<(), VerifyError>> {
        with_pass!(&self.0, lanes => pass::verify(lanes, requests), else {
            requests.iter().map(VerifyRequest::alone).collect()
        })
    }

    fn alone(&self, request: &VerifyRequest) -> Result<(), VerifyError> {
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
