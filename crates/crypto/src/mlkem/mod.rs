//! ML-KEM (FIPS 203): key generation, encapsulation and decapsulation.
//!
//! Requests own their input: [`Keygen`], [`Encapsulate`], [`Decapsulate`]. Each has a task that
//! answers it, of one size: [`KeyGeneration`], [`Encapsulation`], [`Decapsulation`].
//!
//! What comes from the peer is checked as the standard asks: an encapsulation key for its length
//! and for coefficients that are not reduced (FIPS 203, section 7.2), a ciphertext for its length
//! (7.3). A ciphertext of the right length is never refused; if it was not made for the key, the
//! answer is a secret that only its owner knows ("implicit rejection"). A decapsulation key is
//! checked once, when it is loaded.

#[cfg(test)]
mod acvp_tests;
mod hashing;
mod key;
mod lanes;
mod parts;
mod pass;
mod request;
mod size;
#[cfg(test)]
mod tests;
mod work;

pub use key::DecapsulationKey;
pub use request::{Decapsulate, Encapsulate, Keygen};
pub use size::Size;
pub use work::{Decapsulation, Encapsulation, KeyGeneration};
