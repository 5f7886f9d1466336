//! The two kinds of work: signing and verification, of one size on one backend.

use super::Size;
use super::key::{PrivateKey, PublicKey};
use super::lanes::Lanes;
use super::request::{SignError, SignRequest, VerifyError, VerifyRequest};
use super::sign::sign;
use super::verify::verify;
use crate::{Backend, BackendUnavailable, Work};
use aws_lc_rs::rand;
use std::sync::OnceLock;
use widelane_cpu::{Avx512Ifma, Avx512IfmaVl};

/// Answers [`SignRequest`]s of one size.
#[derive(Debug)]
pub struct Signing {
    size: Size,
    lanes: AnyLanes,
}

impl Signing {
    /// Signing with keys of this size on this backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(size: Size, backend: Backend) -> Result<Self, BackendUnavailable> {
        let lanes = AnyLanes::new(size, backend)?;
        Ok(Self { size, lanes })
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
        self.lanes.count()
    }

    fn takes(&self, request: &SignRequest) -> bool {
        request.key().size() == self.size
    }

    fn pass(&self, requests: &[SignRequest]) -> Vec<Self::Output> {
        if let AnyLanes::None = self.lanes {
            return requests.iter().map(|request| self.alone(request)).collect();
        }
        let mut random = vec![[0; 32]; requests.len()];
        if rand::fill(random.as_flattened_mut()).is_err() {
            return vec![Err(SignError::Random); requests.len()];
        }
        let jobs = requests.iter().zip(random);
        let jobs: Vec<_> = jobs.map(|(request, random)| request.job(random)).collect();
        match &self.lanes {
            AnyLanes::None => Vec::new(),
            AnyLanes::Ymm(lanes) => sign(lanes, &jobs),
            AnyLanes::Zmm(lanes) => sign(lanes, &jobs),
        }
    }

    fn alone(&self, request: &SignRequest) -> Self::Output {
        request.sign_alone()
    }

    fn specimen(&self) -> SignRequest {
        SignRequest::new(specimen_key(self.size), &SPECIMEN_MESSAGE)
    }
}

/// Answers [`VerifyRequest`]s of one size.
#[derive(Debug)]
pub struct Verification {
    size: Size,
    lanes: AnyLanes,
}

impl Verification {
    /// Verification with keys of this size on this backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(size: Size, backend: Backend) -> Result<Self, BackendUnavailable> {
        let lanes = AnyLanes::new(size, backend)?;
        Ok(Self { size, lanes })
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
        self.lanes.count()
    }

    fn takes(&self, request: &VerifyRequest) -> bool {
        request.key().size() == self.size
    }

    fn pass(&self, requests: &[VerifyRequest]) -> Vec<Self::Output> {
        let claims = || {
            requests
                .iter()
                .map(VerifyRequest::claim)
                .collect::<Vec<_>>()
        };
        match &self.lanes {
            AnyLanes::None => requests.iter().map(|request| self.alone(request)).collect(),
            AnyLanes::Ymm(lanes) => verify(lanes, &claims()),
            AnyLanes::Zmm(lanes) => verify(lanes, &claims()),
        }
    }

    fn alone(&self, request: &VerifyRequest) -> Self::Output {
        request.verify_alone()
    }

    fn specimen(&self) -> VerifyRequest {
        static SIGNATURES: [OnceLock<Vec<u8>>; 3] = [const { OnceLock::new() }; 3];
        let key = specimen_key(self.size);
        let signature = SIGNATURES[self.size as usize].get_or_init(|| {
            let request = SignRequest::new(key, &SPECIMEN_MESSAGE);
            let signature = request.sign_alone();
            signature.expect("aws-lc-rs signs with its own key")
        });
        // A new one, as every peer's is.
        let key = PublicKey::from_bytes(self.size, key.public_key().as_bytes());
        let key = key.expect("the bytes of a key");
        VerifyRequest::new(&key, &SPECIMEN_MESSAGE, signature)
    }
}

/// The lanes of a backend.
#[derive(Debug)]
enum AnyLanes {
    None,
    Ymm(Box<Lanes<4>>),
    Zmm(Box<Lanes<8>>),
}

impl AnyLanes {
    fn new(size: Size, backend: Backend) -> Result<Self, BackendUnavailable> {
        let missing = BackendUnavailable { backend };
        Ok(match backend {
            Backend::AwsLc => Self::None,
            Backend::Avx512Ifma256 => {
                let token = Avx512IfmaVl::detect().ok_or(missing)?;
                Self::Ymm(Box::new(Lanes::ymm(token, size)))
            }
            Backend::Avx512Ifma => {
                let token = Avx512Ifma::detect().ok_or(missing)?;
                Self::Zmm(Box::new(Lanes::zmm(token, size)))
            }
        })
    }

    fn count(&self) -> usize {
        match self {
            Self::None => 1,
            Self::Ymm(_) => 4,
            Self::Zmm(_) => 8,
        }
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
