//! RSA signatures (RFC 8017): PKCS#1 v1.5 and PSS with SHA-256, SHA-384 and SHA-512.
//!
//! A [`PrivateKey`] is parsed and checked once. A [`SignRequest`] owns everything that a
//! signature needs: a counted reference to its key and the padded message. [`sign_single`]
//! answers one request; [`Passes`] answers several, of any keys of one [`Size`], in one run of
//! the chosen [`Backend`].
//!
//! Every private operation is blinded, and its result is raised to the public exponent and
//! compared before it is released: a fault in one request yields [`SignError::Fault`] for that
//! request and leaves its neighbours alone.
//!
//! Which code signs depends on the key. [`Passes`] with a vector backend take keys of 2048, 3072
//! or 4096 bits both of whose primes have half that size. Everything else, and everything on
//! [`Backend::AwsLc`], goes through [`sign_single`]: to aws-lc-rs, or, for public exponents of more
//! than 33 bits, which that refuses, to portable code over crypto-bigint that is correct,
//! constant-time and slow.

mod arithmetic;
#[cfg(test)]
mod chain;
mod key;
mod padding;
mod portable;
mod request;
#[cfg(test)]
mod vectors;

pub use key::{KeyError, PrivateKey};
pub use request::{Scheme, SignError, SignRequest, sign_single};

use crate::{Backend, BackendUnavailable, Preference};
use std::fmt;

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
/// The backend is chosen once, when the value is made.
#[derive(Debug)]
pub struct Passes {
    backend: Backend,
}

impl Passes {
    /// Prepares passes with the preferred backend.
    ///
    /// # Errors
    ///
    /// When a backend was asked for by name and this machine cannot run it.
    pub fn new(preference: Preference) -> Result<Self, BackendUnavailable> {
        let backend = preference.resolve()?;
        Ok(Self { backend })
    }

    /// The backend that was chosen.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Requests of this size that one pass takes; 1 where they run one by one.
    pub fn lanes(&self, size: Size) -> usize {
        match (self.backend, size) {
            (Backend::AwsLc, _) => 1,
            (Backend::Avx512Ifma256 | Backend::Avx512Ifma, _) => 1,
        }
    }

    /// Answers every request, in order, exactly one result each.
    ///
    /// `requests` is best no longer than [`lanes`](Self::lanes); a longer slice takes several
    /// passes. A request of another size gets [`SignError::WrongSize`] and harms no neighbour.
    pub fn run(&self, size: Size, requests: &[SignRequest]) -> Vec<Result<Vec<u8>, SignError>> {
        requests
            .iter()
            .map(|request| match request.size() {
                Some(actual) if actual == size => sign_single(request),
                _ => Err(SignError::WrongSize {
                    expected: size,
                    modulus_bits: request.modulus_bits(),
                }),
            })
            .collect()
    }
}
