//! Operations a second on one core, batched and single, beside the peers.
//!
//! A [`Plan`] names operations and a CPU. [`run`] pins a thread to that CPU and measures every
//! condition (an operation, a backend, a number of jobs in flight) in short slices, all conditions
//! in turn, round after round, so that a change of clock or a noisy neighbour meets all of them
//! alike. A condition's rate is the median over its slices, by CPU time, so that other programs on
//! that CPU distort little; its spread are their quartiles; every slice is kept in the [`Row`]. The
//! `openssl` program, where it is installed, is measured between the rounds, on the same CPU.
//!
//! The [operations] are those of the engine, on every backend and as the engine itself chooses, and
//! some that explain them. What is new in the engine is here too; `operation.rs` describes it.
//!
//! What it is not: a measurement of clocks and licences, or of whole handshakes.
//!
//! Where to start: [`Plan::new`], then [`run`]; the loop itself is in `run.rs`.

#![forbid(unsafe_code)]

mod chacha20poly1305;
mod error;
#[cfg(feature = "peers")]
mod libcrux;
#[cfg(not(feature = "peers"))]
#[path = "without_libcrux.rs"]
mod libcrux;
mod multiply;
mod openssl;
mod operation;
mod pin;
mod report;
mod run;
mod statistics;
mod works;

pub use error::SpeedError;
pub use operation::{Operation, operations};
pub use report::{Report, Row};
pub use run::{Plan, Progress, run};
