//! The two tasks, each on one curve.

use super::der;
use super::key::PrivateKey;
use super::request::{SignRequest, VerifyRequest};
use crate::nist::{self, ADDED_BYTES, Curve, Pass, ToSign, ToVerify};
use crate::operation::{in_passes, on_backend};
use crate::secrecy;
use crate::sign::{
    self, Algorithm, Error, Key, Kind, Outcome, Prepared, Request, Verdict, VerifyError,
};
use crate::{Hash, Task};
use aws_lc_rs::rand;
use aws_lc_rs::signature::{self as aws, EcdsaKeyPair};
use std::sync::OnceLock;
use zeroize::Zeroizing;

/// Signatures with keys on one curve: `p256-ecdsa-sign`, `p384-ecdsa-sign`.
#[derive(Clone, Copy, Debug)]
pub struct Signing(pub Curve);

/// Verification of signatures by keys on one curve: `p256-ecdsa-verify`, `p384-ecdsa-verify`.
#[derive(Clone, Copy, Debug)]
pub struct Verification(pub Curve);

impl Task for Signing {
    type Request = Request;
    type Own = SignRequest;
    type Family = Curve;

    on_backend!();

    fn name(self) -> &'static str {
        Algorithm::Ecdsa(self.0).operations()[0]
    }

    fn family(self) -> Curve {
        self.0
    }

    fn own(self, request: &Request) -> Option<&SignRequest> {
        match &request.0 {
            Prepared::Ecdsa(request) if request.key.curve() == self.0 => Some(request),
            _ => None,
        }
    }

    fn pass<const L: usize>(self, pass: &Pass<L>, requests: &[&SignRequest]) -> Vec<Outcome> {
        let mut added = Zeroizing::new(vec![0; ADDED_BYTES * requests.len()]);
        if rand::fill(&mut added).is_err() {
            return vec![Err(Error::Random); requests.len()];
        }
        secrecy::secret(&added);
        let nonces = requests.iter().zip(added.chunks(ADDED_BYTES));
        let nonces = nonces.map(|(request, added)| {
            let (secret, digest) = (request.key.secret(), request.digest.as_ref());
            nist::nonce(self.0, secret, digest, added)
        });
        let nonces: Vec<_> = nonces.collect();
        let to_sign = requests.iter().zip(&nonces).map(|(request, nonce)| ToSign {
            secret: request.key.secret(),
            digits: request.key.secret_digits(),
            digest: request.digest.as_ref(),
            nonce,
        });
        let signatures = pass.sign(&to_sign.collect::<Vec<_>>()).into_iter();
        signatures
            .map(|signature| match signature {
                Ok((r, s)) => Ok(der::signature(&r, &s)),
                Err(nist::Fault) => Err(Error::Fault),
            })
            .collect()
    }

    fn specimen(self) -> Request {
        SignRequest::new(specimen_key(self.0), MESSAGE).into()
    }
}

impl Task for Verification {
    type Request = sign::VerifyRequest;
    type Own = VerifyRequest;
    type Family = Curve;

    on_backend!();

    fn name(self) -> &'static str {
        match self.0 {
            Curve::P256 => "p256-ecdsa-verify",
            Curve::P384 => "p384-ecdsa-verify",
        }
    }

    fn family(self) -> Curve {
        self.0
    }

    fn own(self, request: &sign::VerifyRequest) -> Option<&VerifyRequest> {
        match &request.0 {
            sign::ToVerify::Ecdsa(request) if request.key.curve() == self.0 => Some(request),
            _ => None,
        }
    }

    fn pass<const L: usize>(self, pass: &Pass<L>, requests: &[&VerifyRequest]) -> Vec<Verdict> {
        let problems = requests.iter().map(|request| {
            let numbers = der::numbers(&request.signature).ok_or(VerifyError)?;
            let [r, s] = numbers.map(|number| nist::scalar_from(self.0, number));
            match (r, s) {
                (Some(r), Some(s)) => Ok((request, r, s)),
                _ => Err(VerifyError),
            }
        });
        in_passes(L, problems.collect(), |problems| {
            let to_verify = problems.iter().map(|(request, r, s)| {
                // FIPS 186-5, section 6.4.2, step 2: the leftmost bits of the digest.
                let digest = request.digest.as_ref();
                ToVerify {
                    point: &request.key.point()[1..],
                    digest: &digest[..digest.len().min(self.0.bytes())],
                    r,
                    s,
                }
            });
            let verdicts = pass.verify(&to_verify.collect::<Vec<_>>()).into_iter();
            verdicts
                .zip(problems)
                .map(|(verdict, (request, ..))| match verdict {
                    Some(true) => Ok(()),
                    Some(false) => Err(VerifyError),
                    None => request.alone(),
                })
                .collect()
        })
    }

    fn specimen(self) -> sign::VerifyRequest {
        let key = specimen_key(self.0);
        let signature = SignRequest::new(key, MESSAGE).alone();
        let signature = signature.expect("aws-lc-rs signs with a good key");
        let hash = Hash::of(self.0);
        VerifyRequest::new(&key.public_key(), hash, MESSAGE, &signature).into()
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
