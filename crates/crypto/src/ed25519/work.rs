//! The two tasks.

use super::pass;
use super::{PrivateKey, SignRequest, VerifyRequest};
use crate::Task;
use crate::lanes25519::{Kind, Pass};
use crate::operation::on_backend;
use crate::sign::{self, Algorithm, Outcome, Prepared, Request, ToVerify, Verdict};

/// Signatures, `ed25519-sign`.
#[derive(Clone, Copy, Debug)]
pub struct Signing;

/// Checks of signatures, `ed25519-verify`.
#[derive(Clone, Copy, Debug)]
pub struct Verification;

impl Task for Signing {
    type Request = Request;
    type Own = SignRequest;
    type Family = Kind;

    on_backend!();

    fn name(self) -> &'static str {
        Algorithm::Ed25519.operations()[0]
    }

    fn family(self) -> Kind {
        pass::SIGNING
    }

    fn own(self, request: &Request) -> Option<&SignRequest> {
        match &request.0 {
            Prepared::Ed25519(request) => Some(request),
            _ => None,
        }
    }

    fn pass<const L: usize>(self, pass: &Pass<L>, requests: &[&SignRequest]) -> Vec<Outcome> {
        pass::sign(pass, requests)
    }

    fn specimen(self) -> Request {
        SignRequest::new(&specimen_key(), &SPECIMEN_MESSAGE).into()
    }
}

impl Task for Verification {
    type Request = sign::VerifyRequest;
    type Own = VerifyRequest;
    type Family = Kind;

    on_backend!();

    fn name(self) -> &'static str {
        "ed25519-verify"
    }

    fn family(self) -> Kind {
        pass::VERIFICATION
    }

    fn own(self, request: &sign::VerifyRequest) -> Option<&VerifyRequest> {
        match &request.0 {
            ToVerify::Ed25519(request) => Some(request),
            _ => None,
        }
    }

    fn pass<const L: usize>(self, pass: &Pass<L>, requests: &[&VerifyRequest]) -> Vec<Verdict> {
        pass::verify(pass, requests)
    }

    fn specimen(self) -> sign::VerifyRequest {
        let key = specimen_key();
        let signature = SignRequest::new(&key, &SPECIMEN_MESSAGE)
            .alone()
            .expect("aws-lc-rs signs with a good key");
        VerifyRequest::new(key.public_key(), &SPECIMEN_MESSAGE, &signature).into()
    }
}

fn specimen_key() -> PrivateKey {
    PrivateKey::from_seed(&[0x5a; 32]).expect("every seed is a key")
}

/// Message of the length that TLS 1.3 signs with SHA-384: 64 spaces, a text of 34 bytes and a digest of 48 (RFC 8446,
/// section 4.4.3).
const SPECIMEN_MESSAGE: [u8; 146] = [0x20; 146];
