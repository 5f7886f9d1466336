//! Marks where wide code runs, so that a brake can make a CPU behave as another model does.
//!
//! A brake (`widelane-lab emulate`) lends a machine the clock penalty of a named processor: it takes CPU
//! time away wherever wide code runs, and for a while afterwards. It cannot see which code runs. So
//! the code that is wide says so: [`wide`] before it, and the end of the [`Marked`] after it.
//!
//! ```
//! use widelane_cpu::licence::Class;
//!
//! let marked = widelane_marks::wide(Class::Heavy512);
//! // Code that multiplies in 512-bit registers.
//! drop(marked);
//! ```
//!
//! Without a brake a mark is one relaxed load and a branch. There is a brake if the environment
//! variable [`VARIABLE`] names its [`Page`] of shared memory. A page that is none is refused with a
//! message on standard error, once, and the program runs as if the variable were not set.
//!
//! This crate takes nothing away and knows no model: that is `widelane-brake`. Who has nothing to
//! mark can read what the brake took ([`here`]), as `widelane probe` does.

#![deny(unsafe_code)]

mod header;
#[cfg(not(loom))]
mod mark;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod memory;
#[cfg(all(loom, test))]
mod models;
#[cfg(not(loom))]
mod page;
mod slot;
mod sync;

pub use header::{Header, PageError};
#[cfg(not(loom))]
pub use mark::{Marked, Spot, VARIABLE, emulated_model, here, wide};
#[cfg(not(loom))]
pub use page::{Page, nanoseconds};
pub use slot::{Kind, Look, Quiet, Slot};

/// Mark that [`wide`] gives under loom.
#[cfg(loom)]
#[derive(Debug)]
pub struct Marked;

/// Marks nothing: models are about the state of one crate, and this crate's own are about its slots.
#[cfg(loom)]
pub fn wide(_class: widelane_cpu::licence::Class) -> Marked {
    Marked
}

/// Returns `None`: there is no brake under loom.
#[cfg(loom)]
pub fn emulated_model() -> Option<&'static str> {
    None
}
