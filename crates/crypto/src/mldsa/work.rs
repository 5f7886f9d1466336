//! The two operations: signing and verification, of one size on one backend.

use super::key::{PrivateKey, PublicKey};
use super::lanes::Kind;
use super::message::Message;
use super::request::{SignRequest, VerifyRequest};
use super::sign::{Job, sign};
use super::size::Size;
use super::verify::{Claim, verify};
use crate::operation::requests;
use crate::passes::{Passes, with_pass};
use crate::sign::{Error, Outcome, Prepared, Request, VerifyError, pass_of};
use crate::{Backend, BackendUnavailable, Operation};
use aws_lc_rs::rand;
use std::sync::OnceLock;

/// Signatures with keys of one size.
#[derive(Debug)]
pub struct Signing {
    size: Size,
    passes: Passes<Kind>,
}

impl Signing {
    /// Signing with keys of this size on this backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend, size: Size) -> Result<Self, BackendUnavailable> {
        let passes = Passes::new(backend, Kind::signing(size))?;
        Ok(Self { size, passes })
    }

    /// The request, if its key has this size.
    fn own<'a>(&self, request: &'a Request) -> Option<&'a SignRequest> {
        match &request.0 {
            Prepared::MlDsa(request) if request.key.size() == self.size => Some(request),
            _ => None,
        }
    }

    /// Signs in one pass.
    fn sign(&self, requests: &[&SignRequest]) -> Vec<Outcome> {
        if let Passes::None = self.passes {
            return requests.iter().map(|request| request.alone()).collect();
        }
        let mut random = vec![[0; 32]; requests.len()];
        if rand::fill(random.as_flattened_mut()).is_err() {
            return vec![Err(Error::Random); requests.len()];
        }
        let jobs = requests.iter().zip(random).map(|(request, random)| Job {
            key: &request.key,
            message: Message::plain(&request.message),
            random,
        });
        let jobs: Vec<_> = jobs.collect();
        with_pass!(&self.passes, pass => sign(pass, &jobs), else Vec::new())
    }
}

requests! {
    VerifyRequest => (), VerifyError;
}

impl Operation for Signing {
    type Request = Request;

    fn name(&self) -> &'static str {
        match self.size {
            Size::MlDsa44 => "mldsa44-sign",
            Size::MlDsa65 => "mldsa65-sign",
            Size::MlDsa87 => "mldsa87-sign",
        }
    }

    fn lanes(&self) -> usize {
        self.passes.lanes()
    }

    fn takes(&self, request: &Request) -> bool {
        self.own(request).is_some()
    }

    fn pass(&self, requests: &[Request]) -> Vec<Outcome> {
        let own = |request| self.own(request);
        pass_of(self, requests, own, |requests| self.sign(requests))
    }

    fn alone(&self, request: &Request) -> Outcome {
        request.alone()
    }

    fn specimen(&self) -> Request {
        SignRequest::new(specimen_key(self.size), &SPECIMEN_MESSAGE).into()
    }
}

/// Answers [`VerifyRequest`]s of one size.
#[derive(Debug)]
pub struct Verification {
    size: Size,
    passes: Passes<Kind>,
}

impl Verification {
    /// Verification with keys of this size on this backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend, size: Size) -> Result<Self, BackendUnavailable> {
        let passes = Passes::new(backend, Kind::verification(size))?;
        Ok(Self { size, passes })
    }
}

impl Operation for Verification {
    type Request = VerifyRequest;

    fn name(&self) -> &'static str {
        match self.size {
            Size::MlDsa44 => "mldsa44-verify",
            Size::MlDsa65 => "mldsa65-verify",
            Size::MlDsa87 => "mldsa87-verify",
        }
    }

    fn lanes(&self) -> usize {
        self.passes.lanes()
    }

    fn takes(&self, request: &VerifyRequest) -> bool {
        request.key.size() == self.size
    }

    fn pass(&self, requests: &[VerifyRequest]) -> Vec<Result<(), VerifyError>> {
        let claims = requests.iter().map(|request| Claim {
            key: &request.key,
            message: Message::plain(&request.message),
            signature: &request.signature,
        });
        let claims: Vec<_> = claims.collect();
        with_pass!(&self.passes, pass => verify(pass, &claims), else {
            requests.iter().map(|request| self.alone(request)).collect()
        })
    }

    fn alone(&self, request: &VerifyRequest) -> Result<(), VerifyError> {
        request.verify_alone()
    }

    fn specimen(&self) -> VerifyRequest {
        static SIGNATURES: [OnceLock<Vec<u8>>; 3] = [const { OnceLock::new() }; 3];
        let key = specimen_key(self.size);
        let signature = SIGNATURES[self.size as usize].get_or_init(|| {
            let request = SignRequest::new(key, &SPECIMEN_MESSAGE);
            let signature = request.alone();
            signature.expect("aws-lc-rs signs with its own key")
        });
        // A new one, as every peer's is.
        let key = PublicKey::from_bytes(self.size, key.public_key().as_bytes());
        let key = key.expect("the bytes of a key");
        VerifyRequest::new(&key, &SPECIMEN_MESSAGE, signature)
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

/// As long as what TLS 1.3 signs, with the digest of SHA-384 (RFC 8446, section 4.4.3).
const SPECIMEN_MESSAGE: [u8; 64 + 33 + 1 + 48] = [0x20; 146];
