//! The engine: runs jobs of many connections together in passes.
//!
//! Submit a [`Request`], get a [`Ticket`]; an [`Operation`] runs several requests at once.
//! `widelane-batching` decides which jobs run when and where; this crate does what it decides.
//!
//! It is *not* cryptography: it only registers the operations of `widelane-crypto` (see
//! [`Operations::standard`]). It knows no sockets, timers or async runtime: a ticket is an ordinary
//! future.
//!
//! Start with [`Engine`]. There are three ways to submit:
//!
//! * An event loop takes a [`Worker`], submits, and goes on with its sockets. With
//!   [`Placement::Inline`] it calls [`Worker::turn`] to run passes itself.
//! * With [`Placement::VectorCores`] pinned threads run the passes of these jobs.
//!   [`Config::lending`] lends the CPUs of idle vector cores to other threads.
//! * Any other thread calls [`Engine::run`] and blocks. Its job shares a pass with those of other
//!   blocked threads.
//!
//! Several requests of one caller go the same ways together ([`Tickets`]).
//!
//! A job owns its input and its result slot, so its submitter may drop the ticket and go away at
//! any time. `slot.rs` holds that protocol and all unsafe code of this crate.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod background;
pub mod calibration;
mod config;
mod core;
mod cost;
mod counters;
mod engine;
mod error;
mod group;
mod join;
mod lending;
mod line;
#[cfg(all(loom, test))]
mod models;
mod operations;
mod queue;
mod shared;
mod sleepers;
#[allow(unsafe_code)]
mod slot;
mod standard;
mod sync;
mod vector;
mod worker;

pub use config::{Config, Switch};
pub use cost::CostModel;
pub use counters::OperationCounters;
pub use engine::Engine;
pub use error::{JobError, StartError, SubmitError};
pub use join::Tickets;
pub use lending::{CoreBorrower, CoreLending, VectorCoreCounters};
pub use operations::Operations;
pub use slot::Ticket;
pub use standard::{Visitor, for_each_operation};
pub use widelane_batching::{Clock, ClockPenalty, Costs, Cpus, Idle, Placement, Width};
pub use widelane_crypto::{Operation, Request};
pub use worker::Worker;
