//! Counters of one worker.
//!
//! Every worker counts in its own cache lines; a scrape adds them up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rustls::{HandshakeKind, ProtocolVersion};
use widelane_text::named;

use crate::turn::Longest;

/// Counters of one worker.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Stats {
    pub(crate) accepted: AtomicU64,
    pub(crate) accept_errors: AtomicU64,
    pub(crate) bytes_from_clients: AtomicU64,
    pub(crate) bytes_to_clients: AtomicU64,
    pub(crate) closed_without_request: AtomicU64,
    pub(crate) handshakes: [AtomicU64; 4],
    pub(crate) durations: [AtomicU64; BUCKETS + 1],
    pub(crate) duration_sum_us: AtomicU64,
    pub(crate) failures: [AtomicU64; Failure::ALL.len()],
    pub(crate) refusals: [AtomicU64; Refusal::ALL.len()],
    pub(crate) ends: [AtomicU64; End::ALL.len()],
    pub(crate) tickets_refused: [AtomicU64; TicketRefusal::ALL.len()],
    /// Between an instant at which the worker had work and its event loop's next look at sockets and timers.
    pub(crate) longest_look: Longest,
    /// Times for which handshakes waited for their turn.
    pub(crate) waits: [AtomicU64; BUCKETS + 1],
    pub(crate) wait_sum_us: AtomicU64,
    /// True if the newest handshakes go first.
    pub(crate) overloaded: AtomicBool,
    /// Number of times that overload has begun.
    pub(crate) overloads: AtomicU64,
}

named! {
    /// The reason for which a handshake did not come to its end.
    pub(crate) enum Failure {
        /// The limit `handshake_seconds`.
        Timeout = "timeout",
        /// The limit `first_byte_seconds`.
        Silent = "silent",
        /// All places were taken, this client had sent nothing, and a new connection needed its place.
        MadeRoom = "made_room",
        /// The client went away.
        Closed = "closed",
        /// The client went away while it waited for its turn.
        GaveUp = "gave_up",
        /// Under overload the client has waited for longer than clients do, and was refused.
        Overload = "overload",
        /// A load balancer has sent no PROXY header, or a bad one.
        ProxyHeader = "proxy_header",
        /// The client's bytes are not TLS, or not a TLS that we speak.
        Protocol = "protocol",
        /// The client has named no host that a certificate has, and `unknown_names` refuses that.
        UnknownName = "unknown_name",
        /// The client's certificate is missing or bad.
        Certificate = "certificate",
        /// Our own fault: a signature that could not be made.
        Internal = "internal",
    }
}

named! {
    /// The reason for which a connection was not served at all.
    pub(crate) enum Refusal {
        /// The limit `connections`.
        Connections = "connections",
        /// The limit `handshakes`.
        Handshakes = "handshakes",
        /// The limit `source.handshakes`.
        SourceHandshakes = "source_handshakes",
        /// The limit `source.connections`.
        SourceConnections = "source_connections",
        /// The limit `source.connections_per_second`.
        SourceRate = "source_rate",
        /// The engine's queue is full.
        Engine = "engine",
    }
}

named! {
    /// The end of a connection whose handshake was complete.
    pub(crate) enum End {
        /// Both sides said that they were done.
        Clean = "clean",
        /// The client closed without saying so: what it sent may be cut short.
        Truncated = "truncated",
        /// The client's connection broke, or its bytes were bad.
        Client = "client",
        /// The backend's connection broke.
        Backend = "backend",
        /// The backend could not be reached.
        BackendUnreachable = "backend_unreachable",
        /// The backend could not be reached within `backend_connect_seconds`.
        BackendTimeout = "backend_timeout",
        /// There is no backend for the client's host name and protocol.
        NoBackend = "no_backend",
        /// The limit `idle_seconds`.
        Idle = "idle",
    }
}

named! {
    /// The reason for which a ticket does not resume its session.
    pub(crate) enum TicketRefusal {
        /// No key that is in force has made it, or it is damaged.
        Key = "key",
        /// The full handshake is too long ago, or in the future.
        Age = "age",
        /// The client's certificate is no longer good, or is missing now.
        Certificate = "certificate",
    }
}

impl Stats {
    pub(crate) fn handshake(&self, version: Option<ProtocolVersion>, kind: Option<HandshakeKind>, took: Duration) {
        let tls12 = usize::from(version == Some(ProtocolVersion::TLSv1_2));
        let resumed = usize::from(kind == Some(HandshakeKind::Resumed));
        self.handshakes[2 * tls12 + resumed].fetch_add(1, Relaxed);
        add(&self.durations, &self.duration_sum_us, took);
    }

    /// A handshake had its turn after a wait.
    pub(crate) fn waited(&self, wait: Duration) {
        add(&self.waits, &self.wait_sum_us, wait);
    }

    pub(crate) fn failed(&self, why: Failure) {
        self.failures[why as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn refused(&self, why: Refusal) {
        self.refusals[why as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn ended(&self, how: End) {
        self.ends[how as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn ticket_refused(&self, why: TicketRefusal) {
        self.tickets_refused[why as usize].fetch_add(1, Relaxed);
    }
}

/// Adds a duration to a histogram.
fn add(histogram: &[AtomicU64; BUCKETS + 1], sum_us: &AtomicU64, took: Duration) {
    let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let bucket = BOUNDS_US.partition_point(|&bound| bound < took_us);
    histogram[bucket].fetch_add(1, Relaxed);
    sum_us.fetch_add(took_us, Relaxed);
}

/// Upper bounds in microseconds: from a loopback's 250 us to the default handshake limit.
pub(crate) const BOUNDS_US: [u64; BUCKETS] = [
    250, 500, 1_000, 2_000, 3_000, 5_000, 7_500, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];
pub(crate) const BUCKETS: usize = 17;
