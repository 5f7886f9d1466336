//! Kernels for vector registers, written once and run on three machines.
//!
//! A kernel is an ordinary Rust function over a [`Machine`], with a [`Definition`]. Related kernels
//! are a family, such as [`Modular`], and [`Kernel`] is any of them. The same source
//!
//! * computes, on [`Definition::model`]: portable arithmetic, the oracle of every test;
//! * is proved, by [`Definition::prove`]: on intervals instead of numbers, no lane can overflow and
//!   every digit meets its bound;
//! * becomes machine code, by [`Definition::assembly`]: recorded, given registers, printed for
//!   a [`Target`].
//!
//! No operation of a machine branches on a lane's value or forms an address from it, so that a
//! kernel that can be written at all is constant time. [`Definition::report`] says what the machine
//! code costs, as computed from its instructions.
//!
//! This crate prints assembly; `widelane-kernels` assembles and calls it. Begin reading at
//! `machine.rs`, then `definition.rs`, `modular.rs` and `montgomery.rs`. A new family is a file
//! with a `kernels!`, and a line in `kernel.rs`.

#![forbid(unsafe_code)]

mod allocate;
mod analysis;
mod bounds;
mod chacha20;
mod chacha20poly1305;
mod convert;
mod curve25519;
mod definition;
mod edwards;
mod field25519;
mod keccak;
mod kernel;
mod lower;
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
pub use chacha20poly1305::{ChaCha20Poly1305, ChaCha20Poly1305Kernels};
pub use curve25519::{Curve25519, Curve25519Kernels};
pub use definition::{ArraySpec, Definition};
pub use keccak::{Keccak, KeccakKernels};
pub use kernel::Kernel;
pub use machine::{Array, DIGIT_BITS, DIGIT_MASK, Machine};
pub use mldsa::{Half, MlDsa, MlDsaKernels, MlDsaShape};
pub use mlkem::{MlKem, MlKemKernels};
pub use model::Model;
pub use modular::{Modular, ModularKernels};
pub use poly1305::Multiplier;
pub use schedule::Multipliers;
pub use sha512::{Sha512, Sha512Kernels};
pub use widelane_cpu::Target;

#[cfg(test)]
mod tests;
