//! ECDSA signatures on P-256 and P-384 (FIPS 186-5, section 6), made and verified.
//!
//! [`Signing`] answers [requests](crate::sign::Request) for signatures; [`PublicKey`],
//! [`VerifyRequest`] and [`Verification`] are their counterparts.
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
pub use key::PublicKey;
pub(crate) use key::{PUBLIC_KEY, PrivateKey};
pub(crate) use request::SignRequest;
pub use request::VerifyRequest;
pub use work::{Signing, Verification};
