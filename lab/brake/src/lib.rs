//! A brake: real-time threads that take CPU time away, so that CPUs without a licence penalty behave
//! as those of a named [`Model`] do under wide code.
//!
//! Programs mark where they run wide code, on a page of shared memory (`widelane-marks`). One thread per CPU reads the
//! marks, computes with the licence's state machine of `widelane-cpu` what the model would do, and takes the CPU for
//! the time that the model loses: all of it for a halt, three quarters for throttled dispatch, and the share by which a
//! level's clock is lower. An observer can report code that carries no marks ([`Brake::watch`]).
//!
//! - [`Model`]: the processor, from the published figures;
//! - [`Account`]: time that a core has lost by now, by the state machine; pure;
//! - [`Controller`]: when to take how much, so that the brake takes what the model loses; pure;
//! - [`Brake`]: the threads, which call both in real time.
//!
//! The brake is exact in the long run only: a wake-up by a timer costs 5 to 30 µs, which is taken from the program as
//! well, so that the brake takes shares in pieces of several wake-ups' length. [`Exactness`] gives the error on this
//! machine.

#![deny(unsafe_code)]

mod account;
mod brake;
mod calibrate;
mod controller;
mod core;
mod error;
mod model;
#[allow(unsafe_code)]
mod realtime;
mod thread;
mod watch;

pub use account::Account;
pub use brake::{Brake, Summary};
pub use calibrate::{Exactness, lost_when_idle};
pub use controller::{Controller, Costs, Step};
pub use error::BrakeError;
pub use model::{Burst, Model, ModelError};
pub use watch::ObservedBurst;
