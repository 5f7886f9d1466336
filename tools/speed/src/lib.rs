//! Measures operations a second on one core, batched and single, beside other libraries.
//!
//! A [`Plan`] names operations and a CPU. [`run`] pins a thread to that CPU and measures every
//! condition (an operation, a backend, a number of jobs in flight) in short slices, all conditions
//! in turn, round after round, so that a change of clock or another program affects all of them
//! alike. A condition's rate is the median of its slices, by CPU time, so that other programs on
//! that CPU distort it little. Its spread is the distance of their quartiles. The [`Row`] keeps
//! every slice. If the `openssl` program is installed, it is measured between the rounds, on the
//! same CPU. Other libraries stand beside ours if the plan names them ([`Library`]); this crate links none.
//!
//! The [operations] are those of the engine, on every backend and with the engine's own choice, and
//! some that explain them. A new operation of the engine is measured without a change here, except
//! for its description in `operation.rs`.
//!
//! What it is not: a measurement of clocks and licences, or of whole handshakes.
//!
//! Where to start: [`Plan::new`], then [`run`]; the loop itself is in `run.rs`.

#![forbid(unsafe_code)]

mod chacha20poly1305;
mod error;
mod multiply;
mod openssl;
mod operation;
mod pin;
mod report;
mod run;
mod works;

pub use error::SpeedError;
pub use multiply::{MethodSpeed, method_speeds};
pub use operation::{Constructor, Done, Library, Operation, Prepared, Subject, operations};
pub use report::{Report, Row};
pub use run::{Plan, Progress, run};
