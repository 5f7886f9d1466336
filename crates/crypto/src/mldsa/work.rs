//! The two tasks, each of one size.

use super::key::{PrivateKey, PublicKey};
use super::lanes::{Kind, Pass};
use super::message::Message;
use super::request::{SignRequest, VerifyRequest};
use super::sign::{Job, sign};
use super::size::Size;
use super::verify::{Claim, verify};
use crate::Task;
use crate::operation::on_backend;
use crate::sign::{self, Algorithm, Error, Outcome, Prepared, Request, ToVerify, Verdict};
use aws_lc_rs::rand;
use std::sync::OnceLock;

/// Signatures with keys of one size.
#[derive(Clone, Copy, Debug)]
pub struct Signing(pub Size);

/// Verification of signatures by keys of one size.
#[derive(Clone, Copy, Debug)]
pub struct Verification(pub Size);

impl Task for Signing {
    type Request = Request;
    type Own = SignRequest;
    type Family = Kind;

    on_backend!();

    fn name(self) -> &'static str {
        Algorithm::MlDsa(self.0).operations()[0]
    }

    fn family(self) -> Kind {
        Kind::signing(self.0)
    }

    fn own(self, request: &Request) -> Option<&SignRequest> {
        match &request.0 {
            Prepared::MlDsa(request) if request.key.size() == self.0 => Some(request),
            _ => None,
        }
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
        SignRequest::new(specimen_key(self.0), &SPECIMEN_MESSAGE).into()
    }
}

impl Task for Verification {
    type Request = sign::VerifyRequest;
    type Own = VerifyRequest;
    type Family = Kind;

    on_backend!();

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

    fn own(self, request: &sign::VerifyRequest) -> Option<&VerifyRequest> {
        match &request.0 {
            ToVerify::MlDsa(request) if request.key.size() == self.0 => Some(request),
            _ => None,
        }
    }

    fn pass<const L: usize>(self, pass: &Pass<L>, requests: &[&VerifyRequest]) -> Vec<Verdict> {
        let claims = requests.iter().map(|request| Claim {
            key: &request.key,
            message: Message::plain(&request.message),
            signature: &request.signature,
        });
        verify(pass, &claims.collect::<Vec<_>>())
    }

    fn specimen(self) -> sign::VerifyRequest {
        static SIGNATURES: [OnceLock<Vec<u8>>; 3] = [const { OnceLock::new() }; 3];
        let key = specimen_key(self.0);
        let signature = SIGNATURES[self.0 as usize].get_or_init(|| {
            let request = SignRequest::new(key, &SPECIMEN_MESSAGE);
            let signature = request.alone();
            signature.expect("aws-lc-rs signs with its own key")
        });
        // A new one, as every peer's is.
        let key = PublicKey::from_bytes(self.0, key.public_key().as_bytes());
        let key = key.expect("the bytes of a key");
        VerifyRequest::new(&key, &SPECIMEN_MESSAGE, signature).into()
    }
}

/// A key that is used again and again, as a server's is.
fn specimen_key(size: Size) -> &'static PrivateKey {
    static KEYS: [OnceLock<PrivateKey>; 3] = [const { OnceLock::new() }; 3];
    KEYS[size as usize].get_or_init(|| {
        let key = PrivateKey::from_seed(size, &[0x5d; 32]);
        key.expect("a seed has 32 bytes")
    })
}

/// Message of the length that TLS 1.3 signs, with the digest of SHA-384 (RFC 8446, section 4.4.3).
const SPECIMEN_MESSAGE: [u8; 64 + 33 + 1 + 48] = [0x20; 146];
