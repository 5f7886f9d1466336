//! TLS handshakes and relayed bytes of `widelane serve` beside its peers, on one core of this machine.
//!
//! What `make demo` ([`demo()`]), `make bench` ([`bench()`]) and `make ways-in` ([`ways_in()`])
//! run, and a closer look at two servers ([`pair()`]), at relayed bytes ([`relay()`]), at latency
//! against load ([`curve()`]), and at the server side alone, in memory on all CPUs ([`scaling()`]). `ways_in` compares
//! nginx, HAProxy, Apache, lighttpd and programs of other protocols with themselves, with and without the OpenSSL
//! provider, and [`beside()`] established clients of data stores. All start the servers as child processes with the
//! same certificates on the same CPU, drive them by `widelane load` from another CPU under several [`Condition`]s, take
//! turns between the servers, and report medians over the rounds.
//!
//! It is not a load generator (that is `widelane load`) and not a benchmark of single operations
//! (that is `widelane-lab speed`, to which [`speed()`] only adds a record, as [`timing()`] does to
//! `widelane-lab timing`). What it measures it uses as a user would, by these programs; only `scaling` has
//! no process between, and calls the rustls adapter.
//!
//! What is alike for all sides is a setup (`setup.rs`), one worker on the same CPU, no access log. Unless a
//! [`Condition`] says otherwise: TLS 1.3 with AES-128-GCM, no session tickets, and a client that says
//! close_notify with its last flight, so that neither side reaches for a backend or a page.
//!
//! Start with [`Stage`], what all runs have in common. Other experiments with real servers use it too,
//! and [`Server`], [`output`] and [`Record`]. Everything started is stopped and
//! everything written is removed when the [`Stage`] is dropped, also after Ctrl-C.

#![forbid(unsafe_code)]

mod backend;
mod bench;
mod beside;
mod condition;
mod crowd;
mod curve;
mod demo;
mod drive;
mod error;
mod interrupt;
mod lanes;
mod machine;
mod memory;
mod operations;
mod options;
mod pair;
mod peers;
mod plan;
mod process;
mod programs;
mod record;
mod relay;
mod scaling;
mod servers;
mod setup;
mod stage;
mod state;
mod summary;
mod unmodified;
mod ways_in;

pub use bench::{BenchPlan, bench};
pub use beside::{BesidePlan, beside};
pub use condition::Condition;
pub use curve::{CurvePlan, curve};
pub use demo::{DemoPlan, demo};
pub use drive::Drive;
pub use error::TrialError;
pub use interrupt::Interrupt;
pub use operations::{SpeedPlan, speed, timing};
pub use options::{Options, find_program};
pub use pair::{PairPlan, pair};
pub use process::{Server, output};
pub use record::Record;
pub use relay::{RelayPlan, Traffic, relay};
pub use scaling::{ScalingPlan, scaling};
pub use servers::{Contender, Side, free_address};
pub use stage::Stage;
pub use unmodified::Software;
pub use ways_in::{WaysIn, WaysInPlan, ways_in};
