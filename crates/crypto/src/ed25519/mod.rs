//! Ed25519 signatures (RFC 8032, pure: without context and without prehash).
//!
//! [`Signing`] answers [requests](crate::sign::Request) for signatures, [`Verification`]
//! [those](crate::verify::Request) for their verification. Signatures are deterministic: lanes and aws-lc-rs make the
//! same bytes.
//!
//! Verification accepts and refuses exactly what aws-lc-rs does: keys and R in canonical form only,
//! S below the order of the base point, and the equation without the cofactor (RFC 8032, section
//! 5.1.7, its last sentence).

#[cfg(test)]
mod campaign;
mod key;
mod pass;
mod request;
#[cfg(test)]
mod tests;
mod work;

pub(crate) use key::{ID, PrivateKey};
pub(crate) use request::SignRequest;
pub use work::{Signing, Verification};
