//! ML-DSA signatures (FIPS 204): signing, hedged, and verification, with an empty context as in
//! TLS.
//!
//! A [`PrivateKey`] or [`PublicKey`] is parsed and checked once (RFC 9881). A [`SignRequest`] or
//! [`VerifyRequest`] owns its message and a counted reference to its key. Each has an operation
//! that answers it, of one size on one backend: [`Signing`], [`Verification`].

#[cfg(test)]
mod acvp_tests;
#[cfg(test)]
mod campaign;
mod hints;
mod key;
mod lanes;
mod message;
mod prepared;
mod request;
mod sign;
mod size;
#[cfg(test)]
mod tests;
mod verify;
mod work;

pub use key::{KeyError, PrivateKey, PublicKey};
pub use request::{SignError, SignRequest, VerifyError, VerifyRequest};
pub use size::Size;
pub use work::{Signing, Verification};
