//! The two operations, each on one curve and one backend.

use super::der;
use super::key::PrivateKey;
use super::request::{SignRequest, VerifyRequest};
use crate::nist::{self, ADDED_BYTES, Curve, Lanes, ToSign, ToVerify};
use crate::operation::{in_passes, requests};
use crate::secrecy;
use crate::sign::{Error, Key, Kind, Outcome, Prepared, Request, VerifyError, pass_of};
use crate::{Backend, BackendUnavailable, Hash, Operation};
use aws_lc_rs::rand;
use aws_lc_rs::signature::{self as aws, EcdsaKeyPair};
use std::sync::OnceLock;
use zeroize::Zeroizing;

/// Signatures with keys on one curve: `p256-ecdsa-sign`, `p384-ecdsa-sign`.
#[derive(Debug)]
pub struct Signing {
    curve: Curve,
    lanes: Option<Box<dyn Lanes>>,
}

impl Signing {
    /// Signatures with this backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend, curve: Curve) -> Result<Self, BackendUnavailable> {
        let lanes = nist::lanes(backend, curve)?;
        Ok(Self { curve, lanes })
    }

    /// The request, if its key is on this curve.
    fn own<'a>(&self, request: &'a Request) -> Option<&'a SignRequest> {
        match &request.0 {
            Prepared::Ecdsa(request) if request.key.curve() == self.curve => Some(request),
            _ => None,
        }
    }

    /// Signs in one pass.
    fn sign(&self, lanes: &dyn Lanes, requests: &[&SignRequest]) -> Vec<Outcome> {
        let mut added = Zeroizing::new(vec![0; ADDED_BYTES * requests.len()]);
        if rand::fill(&mut added).is_err() {
            return vec![Err(Error::Random); requests.len()];
        }
        secrecy::secret(&added);
        let nonces = requests.iter().zip(added.chunks(ADDED_BYTES));
        let nonces = nonces.map(|(request, added)| {
            let (secret, digest) = (request.key.secret(), request.digest.as_ref());
            nist::nonce(self.curve, secret, digest, added)
        });
        let nonces: Vec<_> = nonces.collect();
        let to_sign = requests.iter().zip(&nonces).map(|(request, nonce)| ToSign {
            secret: request.key.secret(),
            digits: request.key.secret_digits(),
            digest: request.digest.as_ref(),
            nonce,
        });
        let signatures = lanes.sign(&to_sign.collect::<Vec<_>>()).into_iter();
        signatures
            .map(|signature| match signature {
                Ok((r, s)) => Ok(der::signature(&r, &s)),
                Err(nist::Fault) => Err(Error::Fault),
            })
            .collect()
    }

    #[cfg(test)]
    pub(super) fn with(curve: Curve, lanes: Box<dyn Lanes>) -> Self {
        let lanes = Some(lanes);
        Self { curve, lanes }
    }
}

requests! {
    VerifyRequest => (), VerifyError;
}

impl Operation for Signing {
    type Request = Request;

    fn name(&self) -> &'static str {
        match self.curve {
            Curve::P256 => "p256-ecdsa-sign",
            Curve::P384 => "p384-ecdsa-sign",
        }
    }

    fn lanes(&self) -> usize {
        self.lanes.as_ref().map_or(1, |lanes| lanes.lanes())
    }

    fn takes(&self, request: &Request) -> bool {
        self.own(request).is_some()
    }

    fn pass(&self, requests: &[Request]) -> Vec<Outcome> {
        let own = |request| self.own(request);
        pass_of(self, requests, own, |requests| match &self.lanes {
            Some(lanes) => self.sign(&**lanes, requests),
            None => requests.iter().map(|request| request.alone()).collect(),
        })
    }

    fn alone(&self, request: &Request) -> Outcome {
        request.alone()
    }

    fn specimen(&self) -> Request {
        SignRequest::new(specimen_key(self.curve), MESSAGE).into()
    }
}

/// Verification of signatures by keys on one curve: `p256-ecdsa-verify`, `p384-ecdsa-verify`.
#[derive(Debug)]
pub struct Verification {
    curve: Curve,
    lanes: Option<Box<dyn Lanes>>,
}

impl Verification {
    /// Verification with this backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend, curve: Curve) -> Result<Self, BackendUnavailable> {
        let lanes = nist::lanes(backend, curve)?;
        Ok(Self { curve, lanes })
    }

    #[cfg(test)]
    pub(super) fn with(curve: Curve, lanes: Box<dyn Lanes>) -> Self {
        let lanes = Some(lanes);
        Self { curve, lanes }
    }
}

impl Operation for Verification {
    type Request = VerifyRequest;

    fn name(&self) -> &'static str {
        match self.curve {
            Curve::P256 => "p256-ecdsa-verify",
            Curve::P384 => "p384-ecdsa-verify",
        }
    }

    fn lanes(&self) -> usize {
        self.lanes.as_ref().map_or(1, |lanes| lanes.lanes())
    }

    fn takes(&self, request: &VerifyRequest) -> bool {
        request.key.curve() == self.curve
    }

    fn pass(&self, requests: &[VerifyRequest]) -> Vec<Result<(), VerifyError>> {
        let Some(lanes) = &self.lanes else {
            return requests.iter().map(|request| self.alone(request)).collect();
        };
        let problems = requests.iter().map(|request| {
            if request.key.curve() != self.curve {
                return Err(VerifyError);
            }
            let numbers = der::numbers(&request.signature).ok_or(VerifyError)?;
            let [r, s] = numbers.map(|number| nist::scalar_from(self.curve, number));
            match (r, s) {
                (Some(r), Some(s)) => Ok((request, r, s)),
                _ => Err(VerifyError),
            }
        });
        in_passes(lanes.lanes(), problems.collect(), |problems| {
            let to_verify = problems.iter().map(|(request, r, s)| {
                // FIPS 186-5, section 6.4.2, step 2: the leftmost bits of the digest.
                let digest = request.digest.as_ref();
                ToVerify {
                    point: &request.key.point()[1..],
                    digest: &digest[..digest.len().min(self.curve.bytes())],
                    r,
                    s,
                }
            });
            let verdicts = lanes.verify(&to_verify.collect::<Vec<_>>()).into_iter();
            verdicts
                .zip(problems)
                .map(|(verdict, (request, ..))| match verdict {
                    Some(true) => Ok(()),
                    Some(false) => Err(VerifyError),
                    None => self.alone(request),
                })
                .collect()
        })
    }

    fn alone(&self, request: &VerifyRequest) -> Result<(), VerifyError> {
        let algorithm = match (request.key.curve(), request.hash) {
            (Curve::P256, Hash::Sha256) => &aws::ECDSA_P256_SHA256_ASN1,
            (Curve::P256, Hash::Sha384) => &aws::ECDSA_P256_SHA384_ASN1,
            (Curve::P256, Hash::Sha512) => &aws::ECDSA_P256_SHA512_ASN1,
            (Curve::P384, Hash::Sha256) => &aws::ECDSA_P384_SHA256_ASN1,
            (Curve::P384, Hash::Sha384) => &aws::ECDSA_P384_SHA384_ASN1,
            (Curve::P384, Hash::Sha512) => &aws::ECDSA_P384_SHA512_ASN1,
        };
        aws::UnparsedPublicKey::new(algorithm, request.key.point())
            .verify_digest(&request.digest, &request.signature)
            .map_err(|_| VerifyError)
    }

    fn specimen(&self) -> VerifyRequest {
        let key = specimen_key(self.curve);
        let signature = SignRequest::new(key, MESSAGE).alone();
        let signature = signature.expect("aws-lc-rs signs with a good key");
        let hash = Hash::of(self.curve);
        VerifyRequest::new(&key.public_key(), hash, MESSAGE, &signature)
    }
}

/// A key that is never used for anything else.
fn specimen_key(curve: Curve) -> &'static PrivateKey {
    static KEYS: [OnceLock<PrivateKey>; 2] = [OnceLock::new(), OnceLock::new()];
    KEYS[curve as usize].get_or_init(|| {
        let algorithm = match curve {
            Curve::P256 => &aws::ECDSA_P256_SHA256_ASN1_SIGNING,
            Curve::P384 => &aws::ECDSA_P384_SHA384_ASN1_SIGNING,
        };
        let der = EcdsaKeyPair::generate(algorithm).and_then(|pair| pair.to_pkcs8v1());
        let der = der.expect("aws-lc-rs makes keys");
        match Key::from_pkcs8_der(der.as_ref()).map(|key| key.0) {
            Ok(Kind::Ecdsa(key)) => key,
            _ => unreachable!("a good key"),
        }
    })
}

const MESSAGE: &[u8] = b"specimen";
