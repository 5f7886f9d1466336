//! ECDSA signatures on P-256 and P-384 (FIPS 186-5, section 6), made and verified.
//!
//! [`Signing`] answers [requests](crate::sign::Request) for signatures, [`Verification`]
//! [those](crate::verify::Request) for their verification.
//! Signatures are DER of `ECDSA-Sig-Value` (RFC 3279, section 2.2.3).

#[cfg(test)]
mod campaign;
mod der;
mod key;
mod request;
#[cfg(test)]
mod tests;
mod work;

pub use crate::nist::Curve;
pub(crate) use key::{PUBLIC_KEY, PrivateKey, check_point};
pub(crate) use request::SignRequest;
pub use work::{Signing, Verification};
