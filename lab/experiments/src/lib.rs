//! Published experiments about wide code, done again with real servers on this machine.
//!
//! Each experiment starts its servers, takes turns between its conditions, checks the answers, and
//! stands beside what was published and what the simulator predicts. Without a brake it shows what
//! this CPU does, which may be no loss at all: the control. Under one (`widelane emulate`) the same
//! servers run on CPUs that behave as a named model's.
//!
//! It is not a load generator and no simulator: it uses both. Start with [`cloudflare()`], [`kit()`] or [`pairs()`].

#![forbid(unsafe_code)]

mod cloudflare;
mod error;
mod kit;
mod load;
mod needs;
mod pairs;
mod rates;
mod web;
mod worker;

pub use cloudflare::{Cloudflare, CloudflarePlan, Row, cloudflare};
pub use error::ExperimentError;
pub use kit::{Kit, KitPlan, KitRow, kit};
pub use pairs::{PairRow, Pairs, PairsPlan, pairs};
pub use rates::Interval;
pub use widelane_handshakes::Options;
pub use worker::{Order, work};
