//! The two tasks.

use super::SignRequest;
use super::pass;
use crate::Task;
use crate::lanes25519::{Kind, Pass};
use crate::operation::task;
use crate::sign::{self, Algorithm, Outcome, Request};
use crate::verify::{self, Scheme, Verdict};

/// Signatures, `ed25519-sign`.
#[derive(Clone, Copy, Debug)]
pub struct Signing;

/// Checks of signatures, `ed25519-verify`.
#[derive(Clone, Copy, Debug)]
pub struct Verification;

impl Task for Signing {
    task!(Request as SignRequest, in Kind);

    fn name(self) -> &'static str {
        Algorithm::Ed25519.operations()[0]
    }

    fn family(self) -> Kind {
        pass::SIGNING
    }

    fn pass<const L: usize>(self, pass: &Pass<L>, requests: &[&SignRequest]) -> Vec<Outcome> {
        pass::sign(pass, requests)
    }

    fn specimen(self) -> Request {
        sign::specimen(Algorithm::Ed25519)
    }
}

impl Task for Verification {
    task!(verify::Request as verify::Request, in Kind);

    fn name(self) -> &'static str {
        "ed25519-verify"
    }

    fn family(self) -> Kind {
        pass::VERIFICATION
    }

    fn answers(self, request: &verify::Request) -> bool {
        request.scheme == Scheme::Ed25519
    }

    fn pass<const L: usize>(self, pass: &Pass<L>, requests: &[&verify::Request]) -> Vec<Verdict> {
        pass::verify(pass, requests)
    }

    fn specimen(self) -> verify::Request {
        verify::specimen(Algorithm::Ed25519)
    }
}
