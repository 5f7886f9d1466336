//! A generator of TLS handshakes: how many a second does a server complete, and how long does
//! each take?
//!
//! It is what `widelane load` runs, and a library so that tests and comparisons can run it in
//! their own process. It is not an HTTP benchmark (one optional GET after the handshake is all
//! it asks for) and not a conformance tester.
//!
//! Start with [`Plan::new`], change the public fields that matter, hand it to [`run`] and read
//! the [`Report`]:
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
//! - a *closed loop* keeps a number of connections in flight and starts one when another ended;
//!   it finds the server's capacity, and its latencies are those of that queue length;
//! - an *open loop* starts connections by the clock, whatever the server does, and measures each
//!   from the instant it was *meant* to start. A server that stalls for a second is charged that
//!   second for every connection that should have started in it (no coordinated omission).
//!
//! How a connection goes, and why: one thread runs one epoll loop over nonblocking sockets; the
//! client's share of a handshake is kept to key exchange and key schedule, and with several
//! connections in flight its public-key operations run several a pass. A handshake is
//! *done* when our last flight was written (or, if the server speaks last, its last one was
//! read), and it is *counted* once the server has gone on from there, since in TLS 1.3 a server
//! may still refuse after our Finished. A close_notify travels in the same segment as Finished;
//! then we wait for the server to close first. Closing first would answer its session tickets
//! with a reset, which a server takes for a failed handshake, and would leave our ports in
//! TIME_WAIT. See [`Close`] for what happens after that.

#![forbid(unsafe_code)]

mod connection;
mod error;
mod http;
mod lanes;
mod names;
mod offer;
mod pace;
mod plan;
mod report;
mod run;
mod slots;
mod tally;
mod tickets;
mod tls;
mod trust;
mod verifier;
mod worker;

pub use error::LoadError;
pub use names::{Group, SignatureAlgorithm, Suite, UnknownName, Version};
pub use offer::Offer;
pub use plan::{After, Arrivals, Close, Plan, Spacing};
pub use report::{Negotiated, Percentiles, Report};
pub use run::{Snapshot, Watch, run, run_watched};
pub use trust::{Identity, Trust};
