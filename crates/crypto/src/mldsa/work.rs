//! The two tasks, each of one size.

use super::lanes::{Kind, Pass};
use super::message::Message;
use super::request::SignRequest;
use super::sign::{Job, sign};
use super::size::Size;
use super::verify::{Claim, verify as in_lanes};
use crate::Task;
use crate::operation::task;
use crate::sign::{self, Algorithm, Error, Outcome, Request};
use crate::verify::{self, Scheme, Verdict};
use aws_lc_rs::rand;

/// Signatures with keys of one size.
#[derive(Clone, Copy, Debug)]
pub struct Signing(pub Size);

/// Verification of signatures by keys of one size.
#[derive(Clone, Copy, Debug)]
pub struct Verification(pub Size);

impl Task for Signing {
    task!(Request as SignRequest, in Kind);

    fn name(self) -> &'static str {
        Algorithm::MlDsa(self.0).operations()[0]
    }

    fn family(self) -> Kind {
        Kind::signing(self.0)
    }

    fn answers(self, request: &SignRequest) -> bool {
        request.key.size() == self.0
    }

    fn pass<const L: usize>(self, pass: &Pass<L>, requests: &[&SignRequest]) -> Vec<Outcome> {
        let mut random = vec![[0; 32]; requests.len()];
        if rand::fill(random.as_flattened_mut()).is_err() {
            return vec![Err(Error::Random); requests.len()];
        }
        let jobs = requests.iter().zip(random).map(|(request, random)| Job {
            key: &request.key,
            message: Message::plain(&request.message),
            random,
        });
        sign(pass, &jobs.collect::<Vec<_>>())
    }

    fn specimen(self) -> Request {
        sign::specimen(Algorithm::MlDsa(self.0))
    }
}

impl Task for Verification {
    task!(verify::Request as verify::Request, in Kind);

    fn name(self) -> &'static str {
        match self.0 {
            Size::MlDsa44 => "mldsa44-verify",
            Size::MlDsa65 => "mldsa65-verify",
            Size::MlDsa87 => "mldsa87-verify",
        }
    }

    fn family(self) -> Kind {
        Kind::verification(self.0)
    }

    fn answers(self, request: &verify::Request) -> bool {
        request.scheme == Scheme::MlDsa(self.0)
    }

    fn pass<const L: usize>(self, pass: &Pass<L>, requests: &[&verify::Request]) -> Vec<Verdict> {
        let claims = requests.iter().map(|request| Claim {
            key: &request.key,
            message: Message::plain(&request.text),
            signature: &request.signature,
        });
        in_lanes(pass, &claims.collect::<Vec<_>>())
    }

    fn specimen(self) -> verify::Request {
        verify::specimen(Algorithm::MlDsa(self.0))
    }
}
