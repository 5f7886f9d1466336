//! Counters of one worker.
//!
//! Every worker counts in its own cache lines; a scrape adds them up.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use rustls::{HandshakeKind, ProtocolVersion};

use crate::turn::Longest;

/// What one worker counts.
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
    /// How long handshakes waited for their turn.
    pub(crate) waits: [AtomicU64; BUCKETS + 1],
    pub(crate) wait_sum_us: AtomicU64,
    /// Whether the newest handshakes go first.
    pub(crate) overloaded: AtomicBool,
    /// How often that has begun.
    pub(crate) overloads: AtomicU64,
}

/// Why a handshake did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The limit `handshake_seconds`.
    Timeout,
    /// The limit `first_byte_seconds`.
    Silent,
    /// All places were taken, this client had sent nothing, and a new connection needed its place.
    MadeRoom,
    /// The client went away.
    Closed,
    /// The client went away while it waited for its turn.
    GaveUp,
    /// Under overload the client has waited for longer than clients do, and was refused.
    Overload,
    /// A load balancer has sent no PROXY header, or a bad one.
    ProxyHeader,
    /// The client's bytes are not TLS, or not a TLS that we speak.
    Protocol,
    /// The client has named no host that a certificate has, and `unknown_names` refuses that.
    UnknownName,
    /// The client's certificate is missing or bad.
    Certificate,
    /// Our own fault: a signature that could not be made.
    Internal,
}

/// Why a connection was not served at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The limit `connections`.
    Connections,
    /// The limit `handshakes`.
    Handshakes,
    /// The limit `source.handshakes`.
    SourceHandshakes,
    /// The limit `source.connections`.
    SourceConnections,
    /// The limit `source.connections_per_second`.
    SourceRate,
    /// The engine's queue is full.
    Engine,
}

/// How a connection ended whose handshake was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Both sides said that they were done.
    Clean,
    /// The client closed without saying so: what it sent may be cut short.
    Truncated,
    /// The client's connection broke, or its bytes were bad.
    Client,
    /// The backend's connection broke.
    Backend,
    /// The backend could not be reached.
    BackendUnreachable,
    /// The backend could not be reached within `backend_connect_seconds`.
    BackendTimeout,
    /// There is no backend for the client's host name and protocol.
    NoBackend,
    /// The limit `idle_seconds`.
    Idle,
}

/// Why a ticket does not resume its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TicketRefusal {
    /// No key that is in force has made it, or it is damaged.
    Key,
    /// The full handshake is too long ago, or in the future.
    Age,
    /// The client's certificate is no longer good, or is missing now.
    Certificate,
}

impl Stats {
    pub(crate) fn handshake(
        &self,
        version: Option<ProtocolVersion>,
        kind: Option<HandshakeKind>,
        took: Duration,
    ) {
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

impl Failure {
    pub(crate) const ALL: [Self; 11] = [
        Self::Timeout,
        Self::Silent,
        Self::MadeRoom,
        Self::Closed,
        Self::GaveUp,
        Self::Overload,
        Self::ProxyHeader,
        Self::Protocol,
        Self::UnknownName,
        Self::Certificate,
        Self::Internal,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Silent => "silent",
            Self::MadeRoom => "made_room",
            Self::Closed => "closed",
            Self::GaveUp => "gave_up",
            Self::Overload => "overload",
            Self::ProxyHeader => "proxy_header",
            Self::Protocol => "protocol",
            Self::UnknownName => "unknown_name",
            Self::Certificate => "certificate",
            Self::Internal => "internal",
        }
    }
}

impl Refusal {
    pub(crate) const ALL: [Self; 6] = [
        Self::Connections,
        Self::Handshakes,
        Self::SourceHandshakes,
        Self::SourceConnections,
        Self::SourceRate,
        Self::Engine,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Handshakes => "handshakes",
            Self::SourceHandshakes => "source_handshakes",
            Self::SourceConnections => "source_connections",
            Self::SourceRate => "source_rate",
            Self::Engine => "engine",
        }
    }
}

impl End {
    pub(crate) const ALL: [Self; 8] = [
        Self::Clean,
        Self::Truncated,
        Self::Client,
        Self::Backend,
        Self::BackendUnreachable,
        Self::BackendTimeout,
        Self::NoBackend,
        Self::Idle,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Truncated => "truncated",
            Self::Client => "client",
            Self::Backend => "backend",
            Self::BackendUnreachable => "backend_unreachable",
            Self::BackendTimeout => "backend_timeout",
            Self::NoBackend => "no_backend",
            Self::Idle => "idle",
        }
    }
}

impl TicketRefusal {
    pub(crate) const ALL: [Self; 3] = [Self::Key, Self::Age, Self::Certificate];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Age => "age",
            Self::Certificate => "certificate",
        }
    }
}

/// Adds a duration to a histogram.
fn add(histogram: &[AtomicU64; BUCKETS + 1], sum_us: &AtomicU64, took: Duration) {
    let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let bucket = BOUNDS_US.partition_point(|&bound| bound < took_us);
    histogram[bucket].fetch_add(1, Relaxed);
    sum_us.fetch_add(took_us, Relaxed);
}

/// Encodes metrics without labels: name, help and value of each.
pub(crate) fn encode_plain<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    metrics: impl IntoIterator<Item = (&'static str, &'static str, M)>,
) -> fmt::Result {
    for (name, help, metric) in metrics {
        let kind = metric.metric_type();
        metric.encode(encoder.encode_descriptor(name, help, None, kind)?)?;
    }
    Ok(())
}

/// Upper bounds in microseconds: from a loopback's 250 us to the default handshake limit.
pub(crate) const BOUNDS_US: [u64; BUCKETS] = [
    250, 500, 1_000, 2_000, 3_000, 5_000, 7_500, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];
pub(crate) const BUCKETS: usize = 17;
