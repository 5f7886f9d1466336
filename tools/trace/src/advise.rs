//! Estimates the gain of shared passes for the TLS servers that are watched.
//!
//! [`Pace`] counts handshakes while no function is traced, and [`Watch`] takes events of functions and looks
//! now and then at the queues of the servers' sockets. At the end it gives an [`Observed`] for each server:
//! what its handshakes are made of, what they cost, and how many of them were ready at the same time.
//! [`Estimate::of`] compares that with what passes cost on this machine. [`sentences`] says both to people,
//! [`json`] to programs.
//!
//! It is not a measurement of the server with Widelane in it: what cannot be known from outside, the
//! last sentences say.

mod estimate;
mod hand_over;
mod pace;
mod program;
mod queues;
mod ready;
mod sampler;
mod sentences;
mod show;
mod tally;
#[cfg(test)]
mod tests;
mod watch;

pub use estimate::{Estimate, Gain, Lanes, Part, Unestimated};
pub use hand_over::hand_over;
pub use pace::Pace;
pub use program::{Program, Tls, WayIn};
pub use ready::Ready;
pub use sentences::sentences;
pub use show::json;
pub use tally::{Kind, Operation};
pub use watch::{Observed, Watch};
