//! The two tasks, each on one curve.

use super::der;
use super::request::SignRequest;
use crate::Task;
use crate::nist::{self, ADDED_BYTES, Curve, Pass, ToSign, ToVerify};
use crate::operation::{in_passes, task};
use crate::secrecy;
use crate::sign::{self, Algorithm, Error, Outcome, Request, VerifyError};
use crate::verify::{self, Scheme, Verdict};
use aws_lc_rs::rand;
use zeroize::Zeroizing;

/// Signatures with keys on one curve: `p256-ecdsa-sign`, `p384-ecdsa-sign`.
#[derive(Clone, Copy, Debug)]
pub struct Signing(pub Curve);

/// Verification of signatures by keys on one curve: `p256-ecdsa-verify`, `p384-ecdsa-verify`.
#[derive(Clone, Copy, Debug)]
pub struct Verification(pub Curve);

impl Task for Signing {
    task!(Request as SignRequest, in Curve);

    fn name(self) -> &'static str {
        Algorithm::Ecdsa(self.0).operations()[0]
    }

    fn family(self) -> Curve {
        self.0
    }

    fn answers(self, request: &SignRequest) -> bool {
        request.key.curve() == self.0
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
        sign::specimen(Algorithm::Ecdsa(self.0))
    }
}

impl Task for Verification {
    task!(verify::Request as verify::Request, in Curve);

    fn name(self) -> &'static str {
        match self.0 {
            Curve::P256 => "p256-ecdsa-verify",
            Curve::P384 => "p384-ecdsa-verify",
        }
    }

    fn family(self) -> Curve {
        self.0
    }

    fn answers(self, request: &verify::Request) -> bool {
        matches!(request.scheme, Scheme::Ecdsa(curve, _) if curve == self.0)
    }

    fn pass<const L: usize>(self, pass: &Pass<L>, requests: &[&verify::Request]) -> Vec<Verdict> {
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
                let digest = &request.text;
                ToVerify {
                    point: &request.key[1..],
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

    fn specimen(self) -> verify::Request {
        verify::specimen(Algorithm::Ecdsa(self.0))
    }
}
