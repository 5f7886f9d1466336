//! Measures the effect of wide code on the clock of this machine, keeps it as a profile, and turns it into advice.
//!
//! [`probe`] measures, without counters if need be: the clock by class of code on one and on more
//! cores, the edges of wide code, what hand-over to another core costs. [`Profile`] keeps the
//! result and knows when it is stale. [`advise`] says what follows from it, or from what is
//! published about another machine, and [`clock`] tells the engine's policy.
//!
//! What could not be measured is missing in the profile, with the reason where there is one.
//! Nothing is guessed.

#![deny(unsafe_code)]

mod advice;
mod clocks;
mod counters;
mod estimate;
mod forms;
mod handover;
mod machine;
mod policy;
mod profile;
mod siblings;
mod spin;
mod subject;
mod transitions;

pub use advice::{Advice, advise};
pub use clocks::Clock;
pub use counters::Counter;
pub use estimate::{Distribution, Estimate};
pub use forms::{Form, RSA2048_IN_AVX2, fastest, forms};
pub use handover::HandOver;
pub use machine::Machine;
pub use policy::{clock, run_wide};
pub use profile::{Depth, Penalty, Profile, ProfileError, Stale, probe};
pub use siblings::{Beside, Siblings};
pub use spin::runs;
pub use subject::Subject;
pub use transitions::Transition;
