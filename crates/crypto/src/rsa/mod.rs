//! RSA signatures (RFC 8017): PKCS#1 v1.5 and PSS with SHA-256, SHA-384 and SHA-512.
//!
//! A [`PrivateKey`] is parsed and checked once. A [`SignRequest`] owns everything that a
//! signature needs: a counted reference to its key and the padded message. [`sign_single`]
//! answers one request; [`Passes`] answers several, of any keys of one [`Size`], in one run of
//! the chosen [`Backend`].
//!
//! Every private operation is blinded, and its result is raised to the public exponent and
//! compared before it is released: a fault in one request yields [`SignError::Fault`] for that
//! request ([`SignError::AwsLc`] where aws-lc-rs signs) and leaves its neighbours alone.
//!
//! Which code signs depends on the key and on the company it has:
//!
//! | request | signed by |
//! | --- | --- |
//! | 2048, 3072 or 4096 bits, both primes of half that size, on a vector backend | |
//! | … with others of its size | lanes |
//! | … by itself | lanes or, unless the backend was asked for by name, aws-lc-rs, whichever is measured to be faster |
//! | … by itself, and aws-lc-rs refuses the key | lanes |
//! | every other key, and every key on [`Backend::AwsLc`] ([`sign_single`]) | |
//! | … | aws-lc-rs |
//! | … and aws-lc-rs refuses the key | portable code: correct, constant-time and slow |
//!
//! aws-lc-rs refuses public exponents of more than 33 bits.

mod arithmetic;
#[cfg(test)]
mod chain;
mod key;
mod lone;
mod padding;
mod pass;
mod portable;
mod request;
mod signing;
#[cfg(test)]
mod vectors;

pub use key::{KeyError, PrivateKey};
pub use request::{Scheme, SignError, SignRequest, sign_single};
pub use signing::{OtherSigning, Signing};

use crate::{Backend, BackendUnavailable, Preference};
use lone::{Lone, Way};
use pass::Pass;
use std::fmt;
use widelane_cpu::{Avx512Ifma, Avx512IfmaVl};

/// A modulus size for which there are kernels. Requests of one size share passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Size {
    /// 2048 bits, two primes of 1024 bits.
    Rsa2048,
    /// 3072 bits, two primes of 1536 bits.
    Rsa3072,
    /// 4096 bits, two primes of 2048 bits.
    Rsa4096,
}

impl Size {
    /// Every size, smallest first.
    pub const ALL: [Self; 3] = [Self::Rsa2048, Self::Rsa3072, Self::Rsa4096];

    /// Bits in the modulus.
    pub const fn modulus_bits(self) -> usize {
        match self {
            Self::Rsa2048 => 2048,
            Self::Rsa3072 => 3072,
            Self::Rsa4096 => 4096,
        }
    }

    /// Bytes in the modulus, and so in a signature.
    pub const fn modulus_bytes(self) -> usize {
        self.modulus_bits() / 8
    }

    /// Bits in each of the two primes.
    pub const fn prime_bits(self) -> usize {
        self.modulus_bits() / 2
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RSA-{}", self.modulus_bits())
    }
}

/// Runs passes: several requests of one size, of any keys, together.
///
/// The backend is chosen once, when the value is made. A request that comes alone leaves most lanes
/// of a vector backend idle; it takes them nevertheless, or aws-lc-rs, by what the first such
/// requests, and a few of every 4096 after, have shown to be faster on this machine. A backend that
/// was asked for by name takes them always.
#[derive(Debug)]
pub struct Passes {
    lanes: Lanes,
    /// One for each [`Size`] in the order of [`Size::ALL`], where there is a choice.
    lone: Option<[Lone; 3]>,
}

/// The passes of the chosen backend, one for each [`Size`] in the order of [`Size::ALL`].
#[derive(Debug)]
enum Lanes {
    Single,
    Ymm([Pass<4>; 3]),
    Zmm([Pass<8>; 3]),
}

impl Passes {
    /// Prepares passes with the preferred backend.
    ///
    /// # Errors
    ///
    /// When a backend was asked for by name and this machine cannot run it.
    pub fn new(preference: Preference) -> Result<Self, BackendUnavailable> {
        let backend = preference.resolve()?;
        let missing = BackendUnavailable { backend };
        let lanes = match backend {
            Backend::AwsLc => Lanes::Single,
            Backend::Avx512Ifma256 => {
                let token = Avx512IfmaVl::detect().ok_or(missing)?;
                Lanes::Ymm(Size::ALL.map(|size| Pass::ymm(token, size.prime_bits())))
            }
            Backend::Avx512Ifma => {
                let token = Avx512Ifma::detect().ok_or(missing)?;
                Lanes::Zmm(Size::ALL.map(|size| Pass::zmm(token, size.prime_bits())))
            }
        };
        let free = preference == Preference::Auto && backend != Backend::AwsLc;
        let lone = free.then(|| Size::ALL.map(|_| Lone::new()));
        Ok(Self { lanes, lone })
    }

    /// The backend that was chosen.
    pub fn backend(&self) -> Backend {
        match self.lanes {
            Lanes::Single => Backend::AwsLc,
            Lanes::Ymm(_) => Backend::Avx512Ifma256,
            Lanes::Zmm(_) => Backend::Avx512Ifma,
        }
    }

    /// Requests of this size that one pass takes; 1 where they run one by one.
    pub fn lanes(&self, size: Size) -> usize {
        match &self.lanes {
            Lanes::Single => 1,
            Lanes::Ymm(passes) => passes[size as usize].lanes(),
            Lanes::Zmm(passes) => passes[size as usize].lanes(),
        }
    }

    /// Whether requests of this size that come alone go to the lanes of a vector backend; `None`
    /// where there is no choice, or no measurement yet.
    pub fn lone_in_lanes(&self, size: Size) -> Option<bool> {
        let faster = self.lone.as_ref()?[size as usize].faster()?;
        Some(faster == Way::Lanes)
    }

    /// Answers every request, in order, exactly one result each.
    ///
    /// `requests` is best no longer than [`lanes`](Self::lanes); a longer slice takes several
    /// passes. A request of another size gets [`SignError::WrongSize`] and harms no neighbour.
    pub fn run(&self, size: Size, requests: &[SignRequest]) -> Vec<Result<Vec<u8>, SignError>> {
        if requests.iter().all(|request| request.size() == Some(size)) {
            return requests
                .chunks(self.lanes(size))
                .flat_map(|some| self.pass(size, some))
                .collect();
        }
        let sign = |request: &SignRequest| match request.size() {
            Some(actual) if actual == size => {
                let mut results = self.pass(size, std::slice::from_ref(request));
                results.pop().expect("one result for one request")
            }
            _ => Err(SignError::WrongSize {
                expected: size,
                modulus_bits: request.modulus_bits(),
            }),
        };
        requests.iter().map(sign).collect()
    }

    /// Answers as many requests of this size as there are lanes.
    fn pass(&self, size: Size, requests: &[SignRequest]) -> Vec<Result<Vec<u8>, SignError>> {
        let in_lanes = |requests: &[SignRequest]| match &self.lanes {
            Lanes::Single => requests.iter().map(sign_single).collect(),
            Lanes::Ymm(passes) => passes[size as usize].run(requests),
            Lanes::Zmm(passes) => passes[size as usize].run(requests),
        };
        match &self.lone {
            Some(lone) => lone[size as usize].run(requests, in_lanes),
            None => in_lanes(requests),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::chain::{Pads, Subject};
    use super::*;

    fn check<const L: usize>(name: &str, vectors: usize, pass: impl Fn(usize) -> Pass<L>) {
        for size in Size::ALL {
            let pass = pass(size.prime_bits());
            let subject = Subject {
                name,
                lanes: pass.lanes(),
                pads: Pads::Request,
                vectors,
                sign: &|requests| pass.run(requests),
            };
            subject.check(size);
        }
    }

    #[test]
    fn model_passes_sign_like_the_standard() {
        check("model", 1, Pass::<4>::model);
    }

    #[test]
    fn zmm_passes_sign_like_the_standard() {
        match Avx512Ifma::detect() {
            Some(token) => check("zmm", usize::MAX, |bits| Pass::zmm(token, bits)),
            None => eprintln!("SKIP: no AVX-512 IFMA"),
        }
    }

    #[test]
    fn ymm_passes_sign_like_the_standard() {
        match Avx512IfmaVl::detect() {
            Some(token) => check("ymm", usize::MAX, |bits| Pass::ymm(token, bits)),
            None => eprintln!("SKIP: no AVX-512 IFMA with AVX-512 VL"),
        }
    }
}
