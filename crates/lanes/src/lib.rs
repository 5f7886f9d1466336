//! Kernels for vector registers, written once and run on three machines.
//!
//! A kernel is an ordinary Rust function over a [`Machine`]. Related kernels are a family, such as
//! [`Modular`], and [`Kernel`] is any of them. The same source
//!
//! * computes, on [`Kernel::model`]: portable arithmetic, the oracle of every test;
//! * is proved, by [`Kernel::prove`]: on intervals instead of numbers, no lane can overflow and
//!   every digit meets its bound;
//! * becomes machine code, by [`Kernel::assembly`]: recorded, given registers, printed for 512-bit
//!   or 256-bit registers.
//!
//! No operation of a machine branches on a lane's value or forms an address from it, so that a
//! kernel that can be written at all is constant time. [`Kernel::report`] says what the machine
//! code costs, as computed from its instructions.
//!
//! This crate neither assembles nor calls what it prints: that is the business of
//! `widelane-kernels`. Begin reading at `machine.rs`, then `modular.rs`
//! and `montgomery.rs`; `kernel.rs` is where a new family is entered.

#![forbid(unsafe_code)]

mod allocate;
mod analysis;
mod bounds;
mod chacha20;
mod chacha20poly1305;
mod convert;
mod curve25519;
mod edwards;
mod field25519;
mod keccak;
mod kernel;
mod machine;
mod mldsa;
mod mlkem;
mod model;
mod modular;
mod montgomery;
pub mod nist;
mod poly1305;
mod print;
mod scalar25519;
mod schedule;
mod sha512;
mod trace;

pub use analysis::{Licence, Report};
pub use bounds::{Bounds, BoundsError, Holds, Interval, Proof, Value};
pub use chacha20poly1305::ChaCha20Poly1305;
pub use curve25519::Curve25519;
pub use keccak::Keccak;
pub use kernel::{ArraySpec, Kernel};
pub use machine::{Array, DIGIT_BITS, DIGIT_MASK, Machine};
pub use mldsa::{Half, MlDsa, MlDsaShape};
pub use mlkem::MlKem;
pub use model::Model;
pub use modular::Modular;
pub use poly1305::Multiplier;
pub use print::Width;

pub use sha512::Sha512;

#[cfg(test)]
mod tests;
