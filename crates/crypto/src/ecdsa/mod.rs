//! ECDSA signatures on P-256 and P-384 (FIPS 186-5, section 6), made and verified.
//!
//! [`PrivateKey::from_der`] loads a key, [`SignRequest::new`] makes a request that [`Signing`]
//! answers; [`PublicKey`], [`VerifyRequest`] and [`Verification`] are their counterparts.
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
pub use key::{KeyError, PrivateKey, PublicKey, PublicKeyError};
pub use request::{Hash, SignError, SignRequest, VerifyError, VerifyRequest};
pub use work::{Signing, Verification};
