//! A generator of TLS handshakes: it measures how many a second a server completes, and how long
//! each takes.
//!
//! `widelane load` runs it. It is a library so that tests and comparisons can run it in their own
//! process. It is not a benchmark of HTTP or another protocol (it sends at most one request after the
//! handshake) and not a conformance tester.
//!
//! Where to start: make a [`Plan`] with [`Plan::new`], change its public fields, pass it to [`run`]
//! and read the [`Report`]:
//!
//! ```no_run
//! let mut plan = widelane_load::Plan::new("127.0.0.1:8443")?;
//! plan.offer.trust = widelane_load::Trust::Unchecked;
//! let report = widelane_load::run(&plan)?;
//! println!("{report}");
//! # Ok::<(), widelane_load::LoadError>(())
//! ```
//!
//! Two ways to offer load:
//!
//! - a *closed loop* keeps a number of connections in flight and starts a new one when one has
//!   ended. It finds the server's capacity. Its latencies are those of a queue of that length;
//! - an *open loop* starts connections by the clock, whatever the server does, and measures each
//!   from its *intended* start. If a server stalls for a second, the latency of every connection
//!   that should have started in that second includes the stall (no coordinated omission). A
//!   [`Storm`] in it has another rate.
//!
//! Clients give up after [`Plan::timeout`], and try again [`Plan::retries`] times. *Goodput* counts the
//! clients that were served in time.
//!
//! Each thread runs one epoll loop over nonblocking sockets. With several connections in flight,
//! the client's public-key operations run several in one pass. A handshake is *done* when our last
//! flight was written, or when the server's last flight was read if the server sends last. It is
//! *counted* once the server has sent data or closed after that: in TLS 1.3 a server may still
//! refuse after our Finished. We send a close_notify in the same segment as Finished and wait until
//! the server closes. If we closed first, our kernel would answer the server's session tickets with
//! a reset, which a server counts as a failed handshake, and our ports would stay in TIME_WAIT.
//! [`Close`] says what happens after the server has closed.

#![forbid(unsafe_code)]

mod answer;
mod batching;
mod connection;
mod error;
mod http;
mod names;
mod offer;
mod plan;
mod report;
mod run;
mod schedule;
mod starttls;
mod tally;
mod tickets;
mod tls;
mod trust;
mod verifier;
mod watch;
mod worker;

pub use error::LoadError;
pub use names::{Group, SignatureAlgorithm, Suite, UnknownName, Version};
pub use offer::Offer;
pub use plan::{After, Arrivals, Close, Plan, Spacing, Storm};
pub use report::{Negotiated, Percentiles, Report};
pub use run::{run, run_watched};
pub use starttls::StartTls;
pub use trust::{Identity, Trust};
pub use watch::{Snapshot, Watch};

/// Parts of the private modules for fuzz targets. No part of the interface.
#[doc(hidden)]
pub mod fuzzing {
    use crate::starttls::{Dialogue, StartTls};

    /// Returns whether TLS begins after a server's replies, in pieces of `size` bytes; `None` if they are refused.
    pub fn starttls(protocol: StartTls, replies: &[u8], size: usize) -> Option<bool> {
        let mut dialogue = Dialogue::new(protocol);
        let mut begins = false;
        for piece in replies.chunks(size) {
            begins = dialogue.feed(piece).ok()?;
        }
        Some(begins)
    }
}
