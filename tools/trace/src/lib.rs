//! Traces the parts of TLS handshakes on this machine, from outside of the programs.
//!
//! A [`Tracer`] puts probes into the processes that a [`Filter`] matches, at the functions of a
//! [`Table`], and gives [`Event`]s: calls with their times, and the beginnings of TLS flights. What
//! people see is computed from these by code that needs no kernel.

#![forbid(unsafe_code)]

pub mod advise;
mod batches;
mod calls;
mod clock;
mod entries;
mod error;
mod event;
mod expected;
mod filter;
mod forks;
mod functions;
pub mod handshakes;
mod image;
mod inside;
mod kernel;
pub mod latency;
mod marks;
mod names;
mod nesting;
mod notes;
mod outcome;
mod pcapng;
mod pclntab;
mod plaintext;
mod probes;
mod reader;
mod ready;
mod record;
mod returns;
#[cfg(test)]
mod sample;
mod search;
mod snoop;
#[cfg(test)]
mod specimens;
mod state;
mod symbols;
mod table;
mod targets;
pub mod text;
pub mod tls;
mod tracer;
mod want;

pub use advise::Watch;
pub use batches::Batches;
pub use calls::Calls;
pub use clock::Clock;
pub use error::TraceError;
pub use event::{Bytes, Call, Direction, Event, Reached, Stack};
pub use filter::Filter;
pub use functions::{Function, Returns, Role, Side, Size};
pub use handshakes::{Handshake, Handshakes};
pub use image::{Image, ImageError, Located, Marked};
pub use latency::Latencies;
pub use marks::{Argument, Mark, Tells};
pub use notes::{Form, Place, Register};
pub use outcome::Outcome;
pub use pcapng::{Pcapng, Sender};
pub use plaintext::{Style, redacted, shown};
pub use snoop::{Snoop, Snooped};
pub use table::{Library, Table, TableError};
pub use targets::{Exits, MarkProbe, Probe, Site, Target, TargetError, Targets};
pub use tracer::{Seen, Tracer};
pub use want::{Count, Want};
