//! Which processes have loaded the OpenSSL provider, and what they do with it.
//!
//! A process with the provider counts on a page of its memory (`widelane_status`). This crate finds
//! the page in `/proc/PID/maps` and reads it through `/proc/PID/mem`: the process is neither stopped
//! nor asked, and need not share a file system, a user or a PID namespace with the reader.
//!
//! The same page has a switch: a [`Server`] asks processes to do without lanes, and a [`proof`] does so again and
//! again to see what that costs.
//!
//! What it is not: it prints nothing, and changes nothing but that switch. What it reads may come from a hostile
//! process; names and reasons may hold any letters.
//!
//! Start with [`survey`] for all processes, [`process`] for one, [`Server::of`] to switch.

#![forbid(unsafe_code)]

mod error;
mod look;
pub mod proof;
mod server;

pub use error::StatusError;
pub use look::{Process, State, Survey, process, survey};
pub use server::{Living, NoSwitch, Server, now, only_server};
pub use widelane_status::{
    Asked, BadPage, Facts, Found, InProof, Operation, Overload, Proved, Reason, Report, Times, Totals, Way,
};
