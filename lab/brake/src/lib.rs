//! A brake: real-time threads that take CPU time away, so that CPUs without a licence penalty behave
//! as those of a named [`Model`] do under wide code.
//!
//! Programs mark where they run wide code, on a page of shared memory (`widelane-marks`). One thread
//! a CPU reads the marks, asks the licence's state machine of `widelane-cpu` what the model would do,
//! and takes the CPU for as much of the time as is missing there: all of it for a halt, three
//! quarters for throttled dispatch, and the share by which a level's clock is lower. What is not marked
//! can be told to it by another one who sees it ([`Brake::watch`]).
//!
//! - [`Model`]: the processor, from the published figures;
//! - [`Account`]: what a core owes by now, by the state machine; pure;
//! - [`Pacer`]: when to take how much, so that what is taken is what is owed; pure;
//! - [`Brake`]: the threads, which call both in real time.
//!
//! It is exact in the long run only: a wake-up by a timer costs 5 to 30 µs, which is taken from the
//! program as well, so that shares are taken in pieces of several wake-ups' length. [`Exactness`] says
//! what that comes to on this machine.

#![deny(unsafe_code)]

mod account;
mod brake;
mod calibrate;
mod core;
mod error;
mod model;
mod pacer;
#[allow(unsafe_code)]
mod realtime;
mod thread;
mod watch;

pub use account::Account;
pub use brake::{Brake, Summary};
pub use calibrate::{Exactness, lost_when_idle};
pub use error::BrakeError;
pub use model::{Burst, Model, ModelError};
pub use pacer::{Costs, Pacer, Step};
pub use watch::Seen;
