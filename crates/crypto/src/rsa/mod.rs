//! RSA signatures (RFC 8017): PKCS#1 v1.5 and PSS with SHA-256, SHA-384 and SHA-512.
//!
//! [`Signing`] answers several [requests](crate::sign::Request) by any keys of one [`Size`] in one
//! run of the chosen [`Backend`](crate::Backend).
//!
//! Every private operation is blinded, and its result is raised to the public exponent and
//! compared before it is released: a fault in one request yields [`Error::Fault`] for that
//! request ([`Error::AwsLc`] where aws-lc-rs signs) and leaves its neighbours alone.
//!
//! Which code signs depends on the key and on what it is asked by:
//!
//! | request | signed by |
//! | --- | --- |
//! | a pass, on a vector backend, of keys with 2048, 3072 or 4096 bits and both primes of half that size | lanes |
//! | every other key; [`Request::alone`]; every key on [`Backend::AwsLc`](crate::Backend::AwsLc) | aws-lc-rs |
//! | … and aws-lc-rs refuses the key | portable code: correct, constant-time and slow |
//!
//! aws-lc-rs refuses public exponents of more than 33 bits.
//!
//! Signatures by keys of 2048 bits are verified in lanes too: [`Verification`] answers several
//! [requests](crate::verify::Request) at once. Keys of other sizes are for aws-lc-rs.
//!
//! [`Error::Fault`]: crate::sign::Error::Fault
//! [`Error::AwsLc`]: crate::sign::Error::AwsLc
//! [`Request::alone`]: crate::sign::Request::alone

pub(crate) mod arithmetic;
#[cfg(test)]
mod campaign;
#[cfg(test)]
mod chain;
mod key;
mod opening;
mod padding;
mod pass;
mod portable;
mod public_key;
mod request;
mod signing;
#[cfg(test)]
mod vectors;
mod verification;

pub(crate) use key::{ENCRYPTION, PrivateKey, SSA_PSS};
pub(crate) use public_key::PublicKey;
pub use request::Scheme;
pub(crate) use request::SignRequest;
pub use signing::{METHOD_VARIABLE, OtherSigning, Signing, UnknownMethod, forced_method};
pub use verification::Verification;

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

    /// Bits in each of the two primes.
    pub(crate) const fn prime_bits(self) -> usize {
        self.modulus_bits() / 2
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RSA-{}", self.modulus_bits())
    }
}

#[cfg(test)]
mod tests {
    use super::chain::{Pads, Subject, assert_verifies, keys, request};
    use super::pass::{Pass, Signatures};
    use super::*;
    use widelane_cpu::on_every_target;
    use widelane_kernels::Method;

    const MESSAGE: &[u8] = b"a message";

    fn check<const L: usize>(name: &str, vectors: usize, pass: impl Fn(usize) -> Pass<L>) {
        for size in Size::ALL {
            let pass = pass(size.prime_bits());
            for method in pass.kernels.methods() {
                let subject = Subject {
                    name: &format!("{name}, {}", method.name()),
                    lanes: L / 2,
                    pads: Pads::Request,
                    vectors,
                    sign: &|requests| pass.sign(method, requests),
                };
                subject.check(size);
            }
        }
    }

    #[test]
    fn model_passes_sign_like_the_standard() {
        check("model", 1, |prime_bits| Pass::<4>::model(Signatures { prime_bits }));
    }

    #[test]
    fn passes_of_every_target_sign_like_the_standard() {
        on_every_target!(token => check(token.target().name(), usize::MAX, |prime_bits| {
            Pass::new(Signatures { prime_bits }, token)
        }));
    }

    /// Whole passes as portable Rust: private exponents, everything that lanes derive from a key,
    /// and blinding values are secret, in the first pass of a key and in the next. That the key's
    /// constants are derived without a branch is not shown: crypto-bigint compares each divisor
    /// with zero.
    #[test]
    fn poison_rsa2048_signatures_branch_on_no_secret() {
        let [one, other, ..] = keys(Size::Rsa2048);
        let requests = [
            request(&one, Scheme::Pkcs1Sha256, MESSAGE),
            request(&other, Scheme::PssSha256, MESSAGE),
        ];
        let pass = Pass::<4>::model(Signatures {
            prime_bits: Size::Rsa2048.prime_bits(),
        });
        crate::secrecy::assert_no_secret_branch(|| {
            for key in [&one, &other] {
                key.prepared().declare_secret();
                let parts = key.parts();
                for secret in [&parts.p.exponent, &parts.q.exponent, &parts.q_inverse] {
                    widelane_poison::secret(secret);
                }
            }
            for method in Method::ALL.into_iter().chain([Method::Apart]) {
                let signatures = pass.sign(method, &requests);
                for (request, signature) in requests.iter().zip(signatures) {
                    assert_verifies("model", request, MESSAGE, &signature.unwrap());
                }
            }
        });
    }
}
