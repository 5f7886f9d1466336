//! Finds the users of wide registers now: CPU time in which the registers of AVX-512 held something, by process,
//! thread, cgroup and container.
//!
//! The processor keeps a note of which register groups are in use, and the kernel sees it when it saves the registers
//! of a thread at the end of a time slice. That is a note about registers, not about instructions: a thread that called
//! a string function of the C library once may carry registers 16 to 31 "in use" for the rest of its life. So the
//! states of registers are counted apart ([`State`]), and compared with the code that the process could run
//! ([`Evidence`]) before a [`Verdict`] is given.
//!
//! Start with [`Collector`], which gives an [`Interval`] at a time, then [`Evidence::findings`] and
//! [`grouped`].

#![forbid(unsafe_code)]

mod account;
mod collect;
mod ebpf;
mod error;
mod evidence;
mod interval;
mod nudge;
mod overhead;
mod poll;
mod slices;

pub use account::{By, Finding, Key, Row, Verdict, grouped};
pub use collect::{Collector, Method};
pub use error::UsageError;
pub use evidence::Evidence;
pub use interval::{Interval, Sample, Sampled, State, Use};
pub use overhead::{Overhead, Spread, overhead};
pub use slices::{Slice, Slices};
pub use widelane_threads::Thread;
