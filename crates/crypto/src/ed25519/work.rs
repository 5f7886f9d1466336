//! The two operations, each on one backend.

use super::pass;
use super::{PrivateKey, SignRequest, VerifyRequest};
use crate::lanes25519::Kind;
use crate::operation::requests;
use crate::passes::{Passes, with_pass};
use crate::sign::{Outcome, Prepared, Request, VerifyError, pass_of};
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
    VerifyRequest => (), VerifyError;
}

/// The request, if its key is for Ed25519.
fn own(request: &Request) -> Option<&SignRequest> {
    match &request.0 {
        Prepared::Ed25519(request) => Some(request),
        _ => None,
    }
}

impl Operation for Signing {
    type Request = Request;

    fn name(&self) -> &'static str {
        "ed25519-sign"
    }

    fn lanes(&self) -> usize {
        self.0.lanes()
    }

    fn takes(&self, request: &Request) -> bool {
        own(request).is_some()
    }

    fn pass(&self, requests: &[Request]) -> Vec<Outcome> {
        pass_of(self, requests, own, |requests| {
            with_pass!(&self.0, lanes => pass::sign(lanes, requests), else {
                requests.iter().map(|request| request.alone()).collect()
            })
        })
    }

    fn alone(&self, request: &Request) -> Outcome {
        request.alone()
    }

    fn specimen(&self) -> Request {
        SignRequest::new(&specimen_key(), &SPECIMEN_MESSAGE).into()
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
