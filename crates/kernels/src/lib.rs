//! The assembled kernels, and safe functions that call them.
//!
//! `build.rs` proves and prints every kernel of `widelane-lanes`; `assembled.rs` calls what it
//! printed, `arena.rs` holds the memory for it, and [`port_limit`] tells what there is to reach:
//! the three files with `unsafe`. On top of that there is one safe file for each family of kernels,
//! with the widths behind one type: [`Montgomery`] holds the kernels for numbers of one size,
//! [`Keccak`] those of a hash function, [`MlKem`] those of one of its users, chosen once.
//!
//! There are no keys and no protocols here, and no choice of a backend: the caller brings the
//! token that proves what the CPU can do.

#![deny(unsafe_code)]

mod arena;
mod assembled;
#[cfg(test)]
mod assembled_tests;
mod chacha20poly1305;
mod curve25519;
mod keccak;
mod mldsa;
mod mlkem;
mod montgomery;
mod nist;
pub mod port_limit;
mod sha512;

pub use arena::Arena;
pub use assembled::wipe_registers;
pub use chacha20poly1305::{ChaCha20Poly1305, Sums};
pub use curve25519::Curve25519;
pub use keccak::{Keccak, Sponge};
pub use mldsa::MlDsa;
pub use mlkem::MlKem;
pub use montgomery::{MODULUS_BITS, Moduli, Montgomery, PowerSpace};
pub use nist::{NistCurve, NistSpace};
pub use sha512::Sha512;
