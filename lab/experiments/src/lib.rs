//! Published experiments about wide code, done again with real servers on this machine.
//!
//! Each experiment starts its servers, takes turns between its conditions, checks the answers, and
//! stands beside what was published and what the simulator predicts. Without a brake it shows what
//! this CPU does, which may be no loss at all: the control. Under one (`widelane-lab emulate`) the same
//! servers run on CPUs that behave as a named model's.
//!
//! It is not a load generator and no simulator: it uses both. Start with [`cloudflare()`],
//! [`kit()`], [`xu()`] or [`intel()`]; [`remedy()`] asks what gives back the loss that the first one shows.

#![forbid(unsafe_code)]

mod cloudflare;
mod error;
mod forecast;
mod front;
mod handshakes;
mod inside;
mod interval;
mod kit;
mod load;
mod outcome;
mod plan;
mod programs;
mod remedy;
mod terminator;
mod web;
mod worker;

pub use cloudflare::{CipherPlace, cloudflare};
pub use error::ExperimentError;
pub use handshakes::{intel, xu};
pub use interval::Interval;
pub use kit::kit;
pub use outcome::{Outcome, Row};
pub use plan::Plan;
pub use remedy::{Loss, RecoveredShare, Recovery, Verdict, remedy};
pub use widelane_handshakes::Options;
pub use worker::{Order, work};
