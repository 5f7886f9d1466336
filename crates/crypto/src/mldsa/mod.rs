//! ML-DSA signatures (FIPS 204): signing, hedged, and verification, with an empty context as in
//! TLS.
//!
//! [`Signing`] answers [requests](crate::sign::Request) for signatures, [`Verification`]
//! [those](crate::verify::Request) for their verification. Each is of one size on one backend.

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

pub(crate) use key::{PrivateKey, SEED_LEN};
pub(crate) use request::SignRequest;
pub use size::Size;
pub use work::{Signing, Verification};
