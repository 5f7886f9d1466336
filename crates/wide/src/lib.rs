//! Runs any wide vector code where it slows down no other code.
//!
//! On some processors a little AVX-512 code lowers the clock of its core, for all code there and
//! for a while afterwards. [`run_wide`] runs a closure on cores reserved for such code and returns
//! its value:
//!
//! ```
//! let mut samples = vec![0.5_f32; 1024];
//! let energy = widelane::run_wide(|| {
//!     // A loop that the compiler, or a library, turns into wide vector code.
//!     samples.iter_mut().for_each(|sample| *sample *= 2.0);
//!     samples.iter().map(|sample| sample * sample).sum::<f32>()
//! });
//! assert_eq!(energy, 1024.0);
//! ```
//!
//! The caller waits until the closure has ended, so the closure may borrow from it. A panic in the
//! closure is resumed in the caller. A call inside a call runs in place.
//!
//! A [`Form`] says how and where the closure runs: in place, which is the default and costs
//! nothing; on the threads of a pool, each pinned to one CPU; or on the calling thread, which moves
//! to these CPUs and back. [`configure`] sets the form of the process. Each [`Wide`] has its own.
//! A brake (`widelane-lab emulate`) takes the closure for dense multiplications in 512-bit registers, which
//! ask for most, unless [`run_wide_as`] says what it is.
//! This crate reads nothing from the environment: a program that lets its operator choose reads
//! [`FORM_VARIABLE`] and passes it on.
//!
//! Widelane's own operations do *not* use it: they are jobs of `widelane-engine`, which owns them,
//! runs several in one pass and never makes their caller wait. Nor does it find out whether this
//! machine has the problem: `widelane probe` does.
//!
//! In the pool, a closure runs on another thread: with that thread's thread-locals, priority and
//! stack (of eight megabytes), and without signals. It must not wait for another thread that calls
//! `run_wide` itself: if all vector cores wait like this, none is left to run that call. In both
//! forms, threads and processes that it starts inherit the affinity of the vector cores. After
//! `fork` the child has no pool and runs everything in place.

#![deny(unsafe_code)]

#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
mod error;
#[allow(unsafe_code)]
mod job;
mod line;
#[cfg(all(loom, test))]
mod models;
#[cfg(not(loom))]
mod nested;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
mod process;
mod sync;
#[cfg(not(loom))]
mod visit;
#[cfg(not(loom))]
mod wide;

#[cfg(not(loom))]
pub use config::{Config, Form, FormError};
#[cfg(not(loom))]
pub use error::{RunError, StartError};
#[cfg(not(loom))]
pub use process::{FORM_VARIABLE, configure, run_wide, run_wide_as};
#[cfg(not(loom))]
pub use wide::Wide;
#[cfg(not(loom))]
pub use widelane_affinity::{Cpus, ParseCpusError};
#[cfg(not(loom))]
pub use widelane_cpu::licence::Class;
