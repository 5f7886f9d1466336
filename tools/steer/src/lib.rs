//! Core specialisation for programs that know nothing of it: threads that use wide registers are
//! kept on vector cores, the others off them, by affinities, from outside.
//!
//! It moves whole threads, since that is all that can be done to a program that does not help. Our
//! own engine hands over single jobs instead. It changes nothing but affinities, only within what
//! users and service managers have set, and undoes every change, also after it was killed.
//!
//! Start with [`steer`] and [`run`], which last until a signal or until a program ends, then
//! [`Steering`], which does one round at a time, and [`Policy`], which decides. [`restore`] undoes
//! what a killed steerer left behind.

#![forbid(unsafe_code)]

mod cpusets;
mod error;
mod fairness;
mod keeper;
mod lineage;
mod membership;
mod policy;
mod returning;
mod sensor;
mod session;
mod state;
mod steering;
mod tasks;

pub use error::SteerError;
pub use fairness::{GroupId, Groups};
pub use keeper::Folder;
pub use policy::{Limits, Place, Plan, Policy, Thread, ThreadId, Why};
pub use returning::{Pauses, Returning};
pub use sensor::{All, Either, Named, RegistersInUse, Sensor};
pub use session::{Outcome, run, steer};
pub use state::{BadState, Original, Record, State};
pub use steering::{Event, Options, Scope, Steering, Summary, restore};
pub use tasks::Task;
