//! The two kinds of work: signing and verification, of one size on one backend.

use super::Size;
use super::key::PrivateKey;
use super::request::{SignError, SignRequest, VerifyError, VerifyRequest};
use crate::{Backend, BackendUnavailable, Work};

/// Answers [`SignRequest`]s of one size.
#[derive(Debug)]
pub struct Signing {
    size: Size,
}

impl Signing {
    /// Signing with keys of this size on this backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(size: Size, backend: Backend) -> Result<Self, BackendUnavailable> {
        check(backend)?;
        Ok(Self { size })
    }
}

impl Work for Signing {
    type Request = SignRequest;
    type Output = Result<Vec<u8>, SignError>;

    fn name(&self) -> &'static str {
        match self.size {
            Size::MlDsa44 => "mldsa44-sign",
            Size::MlDsa65 => "mldsa65-sign",
            Size::MlDsa87 => "mldsa87-sign",
        }
    }

    fn lanes(&self) -> usize {
        1
    }

    fn takes(&self, request: &SignRequest) -> bool {
        request.key().size() == self.size
    }

    fn pass(&self, requests: &[SignRequest]) -> Vec<Self::Output> {
        requests.iter().map(|request| self.alone(request)).collect()
    }

    fn alone(&self, request: &SignRequest) -> Self::Output {
        request.sign_alone()
    }

    fn specimen(&self) -> SignRequest {
        SignRequest::new(&specimen_key(self.size), &SPECIMEN_MESSAGE)
    }
}

/// Answers [`VerifyRequest`]s of one size.
#[derive(Debug)]
pub struct Verification {
    size: Size,
}

impl Verification {
    /// Verification with keys of this size on this backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(size: Size, backend: Backend) -> Result<Self, BackendUnavailable> {
        check(backend)?;
        Ok(Self { size })
    }
}

impl Work for Verification {
    type Request = VerifyRequest;
    type Output = Result<(), VerifyError>;

    fn name(&self) -> &'static str {
        match self.size {
            Size::MlDsa44 => "mldsa44-verify",
            Size::MlDsa65 => "mldsa65-verify",
            Size::MlDsa87 => "mldsa87-verify",
        }
    }

    fn lanes(&self) -> usize {
        1
    }

    fn takes(&self, request: &VerifyRequest) -> bool {
        request.key().size() == self.size
    }

    fn pass(&self, requests: &[VerifyRequest]) -> Vec<Self::Output> {
        requests.iter().map(|request| self.alone(request)).collect()
    }

    fn alone(&self, request: &VerifyRequest) -> Self::Output {
        request.verify_alone()
    }

    fn specimen(&self) -> VerifyRequest {
        let key = specimen_key(self.size);
        let signature = SignRequest::new(&key, &SPECIMEN_MESSAGE)
            .sign_alone()
            .expect("aws-lc-rs signs with its own key");
        VerifyRequest::new(key.public_key(), &SPECIMEN_MESSAGE, &signature)
    }
}

fn check(backend: Backend) -> Result<(), BackendUnavailable> {
    match backend.is_available() {
        true => Ok(()),
        false => Err(BackendUnavailable { backend }),
    }
}

fn specimen_key(size: Size) -> PrivateKey {
    PrivateKey::from_seed(size, &[0x5d; 32]).expect("a seed has 32 bytes")
}

/// As long as what TLS 1.3 signs, with the digest of SHA-384 (RFC 8446, section 4.4.3).
const SPECIMEN_MESSAGE: [u8; 64 + 33 + 1 + 48] = [0x20; 146];
