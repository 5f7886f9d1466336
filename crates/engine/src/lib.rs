//! The mechanism that fills lanes: jobs of many connections, run together in passes.
//!
//! A [`Request`] is handed in, a [`Ticket`] comes back; an [`Operation`] runs several requests at
//! once. Which jobs run when and where is decided by `widelane-batching`; this crate asks and
//! obeys.
//!
//! It is *not* cryptography (it only registers that of `widelane-crypto`, see
//! [`Operations::standard`]), and it knows no sockets, timers or async runtime: a ticket is an
//! ordinary future.
//!
//! Start with [`Engine`]. There are three ways in:
//!
//! * an event loop takes a [`Worker`], submits and goes on with its sockets; with
//!   [`Placement::Inline`] it calls [`Worker::turn`] to run passes itself;
//! * with [`Placement::VectorCores`] the same jobs run on pinned threads instead, and with
//!   [`Placement::Auto`] wherever [`Config::clock`] says; [`Config::give_back`] lends the CPUs of
//!   those that are idle to others;
//! * any other thread calls [`Engine::run`] and blocks, its job sharing a pass with those of
//!   other threads that block at the same time.
//!
//! A job owns its input and its result slot, so whoever submitted it may vanish at any time: drop
//! the ticket. `slot.rs` holds that protocol and all of this crate's unsafe code.

#![deny(unsafe_code)]

#[cfg(not(loom))]
mod batched;
#[cfg(not(loom))]
pub mod calibration;
mod config;
mod core;
mod counters;
mod engine;
mod error;
mod group;
mod line;
#[cfg(all(loom, test))]
mod models;
mod operation;
#[cfg(not(loom))]
mod operations;
mod queue;
mod sleepers;
#[allow(unsafe_code)]
mod slot;
mod sync;
mod tenancy;
mod vector;
mod worker;

#[cfg(not(loom))]
pub use batched::Batched;
pub use config::{Config, Placement};
pub use counters::OperationCounters;
pub use engine::Engine;
pub use error::{JobError, StartError, SubmitError};
pub use operation::{Operation, Operations, Request};
#[cfg(not(loom))]
pub use operations::{Visitor, for_each_work};
pub use slot::Ticket;
pub use tenancy::{GiveBack, Tenancy, VectorCoreCounters};
pub use widelane_batching::{Clock, Idle, Toll, Width};
pub use worker::Worker;
