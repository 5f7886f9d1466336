//! Wide vector code of any kind, run where it does no harm.
//!
//! On some processors a little AVX-512 code lowers the clock of all that runs on its core, and for
//! a while after it. [`run_wide`] runs a closure on cores set aside for such code and returns
//! what it returned:
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
//! The closure may borrow from its caller, who waits until it has ended. A panic in it is resumed
//! in the caller. A call within a call runs in place.
//!
//! Where it runs is a [`Placement`]: in place, which is the default and costs nothing; on threads
//! of a pool, each pinned to one CPU; or on the calling thread itself, which moves to these CPUs
//! and back. [`configure`] says so for the whole process, else the environment variable
//! [`PLACEMENT_VARIABLE`]; a [`Wide`] of one's own is configured by itself.
//!
//! It is *not* the way of Widelane's own operations: these are jobs of `widelane-engine`, which
//! owns them, shares passes among them and never makes their caller wait. Nor does it find out
//! whether this machine has the problem: `widelane probe` does.
//!
//! What a closure notices in the pool: it is on another thread, with that thread's thread-locals,
//! priority and stack (of eight megabytes), and takes no signals. It must not wait for another
//! thread that calls `run_wide` in its turn: if all vector cores do so, nobody is left to run that
//! call. In both forms, threads and processes that it starts inherit the vector cores. After `fork`
//! the child has no pool, and runs everything in place.

#![deny(unsafe_code)]

#[cfg(not(loom))]
mod affinity;
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
mod pool;
#[cfg(not(loom))]
mod process;
mod sync;
#[cfg(not(loom))]
mod wide;

#[cfg(not(loom))]
pub use config::{Config, Placement, PlacementError};
#[cfg(not(loom))]
pub use error::{RunError, StartError};
#[cfg(not(loom))]
pub use process::{PLACEMENT_VARIABLE, configure, run_wide};
#[cfg(not(loom))]
pub use wide::Wide;
