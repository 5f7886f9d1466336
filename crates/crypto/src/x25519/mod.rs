//! X25519 (RFC 7748): key generation and shared secrets.
//!
//! A [`Secret`] is made at once, from random bytes. Its public share is the answer to a [`Public`]
//! request, the secret shared with a peer the answer to [`Derive`]. Each has an operation that
//! answers it on one backend: [`Keygen`] and [`Derivation`].
//!
//! A peer's share may be any 32 bytes, as the standard wants it: the highest bit is ignored, and
//! numbers from the prime on are reduced (RFC 7748, section 5). A share of low order, which leads
//! to the all-zero secret, is refused (section 6.1).

mod pass;
mod request;
#[cfg(test)]
mod tests;
mod work;

pub use request::{Derive, Public, Secret};
pub use work::{Derivation, Keygen};
