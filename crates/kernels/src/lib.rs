//! The assembled kernels, and safe functions that call them.
//!
//! `build.rs` proves and prints every kernel of `widelane-lanes`. Three files contain `unsafe`:
//! `assembled.rs` calls the printed code, `arena.rs` holds memory for it, and [`port_limit`]
//! measures the most that a core can do. A [`Callable`] is one kernel on one [`Machine`]; it checks
//! its arguments against the kernel's definition. On top of that, each family of kernels has a safe
//! file with operations that take several calls: [`Montgomery`] for numbers of one size, [`Keccak`]
//! for hash functions, [`MlKem`] for one parameter set.
//!
//! With the feature `model`, which tests alone enable, a machine can be the model: the same kernels in
//! portable Rust.
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
#[cfg(feature = "fault-injection")]
pub mod faults;
mod keccak;
mod machine;
mod mldsa;
mod mlkem;
#[cfg(any(test, feature = "model"))]
mod model;
mod montgomery;
mod nist;
pub mod port_limit;
mod sha512;

pub use arena::Arena;
pub use assembled::{Callable, Read, Written, wipe_registers};
pub use chacha20poly1305::{ChaCha20Poly1305, Sums};
pub use curve25519::Curve25519;
pub use keccak::{Keccak, Sponge};
pub use machine::Machine;
pub use mldsa::MlDsa;
pub use mlkem::MlKem;
pub use montgomery::{MODULUS_BITS, Method, Moduli, Montgomery, PowerSpace};
pub use nist::{NistCurve, NistSpace};
pub use sha512::Sha512;
