//! Counters of one worker, and the text that Prometheus reads.
//!
//! Every worker counts in its own cache lines; a scrape adds them up.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustls::{HandshakeKind, ProtocolVersion};

use crate::server::Shared;

/// What one worker counts.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Stats {
    pub(crate) accepted: AtomicU64,
    pub(crate) accept_errors: AtomicU64,
    pub(crate) bytes_from_clients: AtomicU64,
    pub(crate) bytes_to_clients: AtomicU64,
    pub(crate) closed_without_request: AtomicU64,
    handshakes: [AtomicU64; 4],
    durations: [AtomicU64; BUCKETS + 1],
    duration_sum_us: AtomicU64,
    failures: [AtomicU64; Failure::ALL.len()],
    refusals: [AtomicU64; Refusal::ALL.len()],
    ends: [AtomicU64; End::ALL.len()],
}

/// Why a handshake did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The limit `handshake_seconds`.
    Timeout,
    /// The client went away.
    Closed,
    /// The client's bytes are not TLS, or not a TLS that we speak.
    Protocol,
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
    /// The limit `idle_seconds`.
    Idle,
}

/// Sums over all workers, rendered at each scrape.
pub(crate) struct Scrape(pub(crate) Arc<Shared>);

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
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_US.partition_point(|&bound| bound < took_us);
        self.durations[bucket].fetch_add(1, Relaxed);
        self.duration_sum_us.fetch_add(took_us, Relaxed);
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
}

impl Failure {
    const ALL: [Self; 5] = [
        Self::Timeout,
        Self::Closed,
        Self::Protocol,
        Self::Certificate,
        Self::Internal,
    ];

    fn label(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Protocol => "protocol",
            Self::Certificate => "certificate",
            Self::Internal => "internal",
        }
    }
}

impl Refusal {
    const ALL: [Self; 3] = [Self::Connections, Self::Handshakes, Self::Engine];

    fn label(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Handshakes => "handshakes",
            Self::Engine => "engine",
        }
    }
}

impl End {
    const ALL: [Self; 7] = [
        Self::Clean,
        Self::Truncated,
        Self::Client,
        Self::Backend,
        Self::BackendUnreachable,
        Self::BackendTimeout,
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
            Self::Idle => "idle",
        }
    }
}

impl Scrape {
    fn sum(&self, field: impl Fn(&Stats) -> &AtomicU64) -> u64 {
        self.0
            .stats
            .iter()
            .map(|stats| field(stats).load(Relaxed))
            .sum()
    }

    fn handshakes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "widelane_handshakes",
            "Handshakes by result, version and resumption",
            None,
            MetricType::Counter,
        )?;
        for (index, (version, resumed)) in
            [("1.3", "no"), ("1.3", "yes"), ("1.2", "no"), ("1.2", "yes")]
                .into_iter()
                .enumerate()
        {
            let labels = [("result", "ok"), ("version", version), ("resumed", resumed)];
            let value = self.sum(|stats| &stats.handshakes[index]);
            family
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        for failure in Failure::ALL {
            let labels = [
                ("result", failure.label()),
                ("version", ""),
                ("resumed", ""),
            ];
            let value = self.sum(|stats| &stats.failures[failure as usize]);
            family
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    fn durations(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut buckets = Vec::with_capacity(BUCKETS + 1);
        let mut count = 0;
        for index in 0..=BUCKETS {
            let bound = BOUNDS_US
                .get(index)
                .map_or(f64::INFINITY, |&bound| bound as f64 / 1e6);
            let inside = self.sum(|stats| &stats.durations[index]);
            count += inside;
            buckets.push((bound, inside));
        }
        let sum = self.sum(|stats| &stats.duration_sum_us) as f64 / 1e6;
        encoder
            .encode_descriptor(
                "widelane_handshake_duration_seconds",
                "Time from accept to the end of the handshake",
                None,
                MetricType::Histogram,
            )?
            .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn labelled(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        label: &'static str,
        values: impl IntoIterator<Item = (&'static str, u64)>,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (value, count) in values {
            family
                .encode_family(&[(label, value)])?
                .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        Ok(())
    }

    fn certificates(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "widelane_certificate_expiry_timestamp_seconds",
            "When each certificate expires, in seconds since 1970",
            None,
            MetricType::Gauge,
        )?;
        for (file, names, not_after) in self.0.certificates() {
            let labels = [("file", file), ("names", names)];
            family.encode_family(&labels)?.encode_gauge(&not_after)?;
        }
        Ok(())
    }
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

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counters: [(_, _, u64); 7] = [
            (
                "widelane_connections_accepted",
                "Connections accepted",
                self.sum(|s| &s.accepted),
            ),
            (
                "widelane_accept_errors",
                "accept calls that failed",
                self.sum(|s| &s.accept_errors),
            ),
            (
                "widelane_client_received_bytes",
                "Decrypted bytes from clients to backends",
                self.sum(|s| &s.bytes_from_clients),
            ),
            (
                "widelane_client_sent_bytes",
                "Bytes from backends to clients before encryption",
                self.sum(|s| &s.bytes_to_clients),
            ),
            (
                "widelane_connections_closed_unused",
                "Clients that closed right after the handshake, for which no backend was opened",
                self.sum(|s| &s.closed_without_request),
            ),
            (
                "widelane_reloads_ok",
                "Reloads that took effect",
                self.0.reloads_ok.load(Relaxed),
            ),
            (
                "widelane_reloads_failed",
                "Reloads that kept the old configuration",
                self.0.reloads_failed.load(Relaxed),
            ),
        ];
        let counters = counters.map(|(name, help, value)| (name, help, ConstCounter::new(value)));
        encode_plain(&mut encoder, counters)?;
        let gauges: [(_, _, i64); 3] = [
            (
                "widelane_connections",
                "Live connections",
                self.0.live_connections() as i64,
            ),
            (
                "widelane_handshakes_pending",
                "Connections inside their handshake",
                self.0.live_handshakes() as i64,
            ),
            (
                "widelane_draining",
                "1 while stopping",
                i64::from(self.0.is_draining()),
            ),
        ];
        let gauges = gauges.map(|(name, help, value)| (name, help, ConstGauge::new(value)));
        encode_plain(&mut encoder, gauges)?;
        self.handshakes(&mut encoder)?;
        self.durations(&mut encoder)?;
        let refusals =
            Refusal::ALL.map(|why| (why.label(), self.sum(|stats| &stats.refusals[why as usize])));
        self.labelled(
            &mut encoder,
            (
                "widelane_refused",
                "Connections refused for overload, by the limit that was hit",
            ),
            "limit",
            refusals,
        )?;
        let ends = End::ALL.map(|how| (how.label(), self.sum(|stats| &stats.ends[how as usize])));
        self.labelled(
            &mut encoder,
            (
                "widelane_connections_ended",
                "Connections past their handshake, by how they ended",
            ),
            "how",
            ends,
        )?;
        self.certificates(&mut encoder)?;
        self.0.signing.encode(&mut encoder)
    }
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

/// Upper bounds in microseconds: from a loopback's 250 us to the default handshake limit.
const BOUNDS_US: [u64; BUCKETS] = [
    250, 500, 1_000, 2_000, 3_000, 5_000, 7_500, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];
const BUCKETS: usize = 17;
