//! A discrete-event simulator of servers on cores whose clock follows what they run.
//!
//! It answers what wide code would cost on a processor that is not at hand, and which placement is
//! right there. A core follows the state machine of [`widelane_cpu::licence::machine`]; passes and
//! vector cores follow the policy of [`widelane_batching`], the same functions that the engine
//! calls. Costs are cycles of a class, not times. Two runs with the same seed are identical.
//!
//! It is no model of caches, memory, networks or the kernel's scheduler: work that is ready goes to
//! any core that is free. What no source tells is a named parameter, marked as assumed.
//!
//! Start with [`Scenario::parse`], [`Scenario::plan`] and [`simulate`].

#![forbid(unsafe_code)]

mod advice;
mod builtin;
mod compare;
mod core;
mod error;
mod events;
mod fleet;
mod gatherer;
mod impatient;
mod measured;
mod outcome;
mod placement;
mod plan;
mod random;
mod scenario;
mod server;
mod timeline;
mod transition;

#[cfg(test)]
mod tests;

pub use advice::{WorkloadAdvice, WorkloadOption};
pub use builtin::BUILTIN;
pub use compare::{Comparison, Gain, RunFigures};
pub use error::ScenarioError;
pub use fleet::{Capacity, Chosen, Fleet};
pub use outcome::{CoreOutcome, Figure, Outcome};
pub use placement::Placement;
pub use plan::{Plan, Settings};
pub use random::Random;
pub use scenario::{NumberText, Parameter, RunText, Scenario};
pub use server::{simulate, timeline};
pub use timeline::Span;
pub use widelane_cpu::licence::machine::Pace;
