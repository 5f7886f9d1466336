//! Counts of one thread.

use crate::connection::Connection;
use crate::error::Fault;
use hdrhistogram::Histogram;
use rustls::{CipherSuite, HandshakeKind, NamedGroup, ProtocolVersion, SignatureScheme};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The span of time that is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
}

impl Window {
    pub(crate) fn contains(&self, at: Instant) -> bool {
        self.from <= at && at < self.to
    }
}

/// Counts of one thread, and the sum of several.
///
/// Latencies and outcomes are those of the connections with an intended *start* in the window, no
/// matter when they ended. The rate counts the handshakes that were *done* in the window, no matter
/// when they started.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Connections with an intended start in the window that did start.
    pub(crate) attempted: u64,
    /// Attempts of clients that have failed before, among those.
    pub(crate) retries: u64,
    /// Clients that failed in the window for the last time.
    pub(crate) gave_up: u64,
    pub(crate) completed: u64,
    pub(crate) failed: BTreeMap<String, u64>,
    /// The first failure, whether or not it was in the window.
    pub(crate) first_fault: Option<Fault>,
    pub(crate) resumed: u64,
    pub(crate) hello_retries: u64,
    /// Closed by us because the server did not.
    pub(crate) unclosed: u64,
    /// Connections in flight when the run was stopped.
    pub(crate) unfinished: u64,
    /// Due in the window and never started: the generator could not keep up.
    pub(crate) not_started: u64,
    /// Handshakes done in the window.
    pub(crate) done_in_window: u64,
    /// Handshakes within the time limit of their clients, among those.
    pub(crate) good_in_window: u64,
    /// Nanoseconds from the intended start to the end of the handshake.
    pub(crate) handshakes: Spans,
    /// Nanoseconds from the intended start to the end of the answer.
    pub(crate) answers: Spans,
    /// Nanoseconds from the intended start to the actual one.
    pub(crate) lateness: Spans,
    pub(crate) negotiated: Vec<(Agreement, u64)>,
    /// CPU time of the threads within the window, together and of the busiest.
    pub(crate) cpu: Duration,
    pub(crate) busiest: Duration,
    /// The longest that a thread was ready to run within the window and had no CPU.
    pub(crate) waited: Option<Duration>,
}

/// Spans of time, in nanoseconds.
#[derive(Debug)]
pub(crate) struct Spans(pub(crate) Histogram<u64>);

impl Default for Spans {
    fn default() -> Self {
        let mut histogram =
            Histogram::new_with_bounds(1, LONGEST_NS, SIGNIFICANT_DIGITS).expect("constant bounds are valid");
        histogram.auto(true);
        Self(histogram)
    }
}

impl Spans {
    fn record(&mut self, span: Duration) {
        let nanoseconds = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanoseconds.max(1));
    }
}

/// Agreement of client and server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    pub(crate) version: ProtocolVersion,
    pub(crate) suite: CipherSuite,
    pub(crate) group: Option<NamedGroup>,
    /// Signature scheme of the server; `None` if a session was resumed.
    pub(crate) signature: Option<SignatureScheme>,
    pub(crate) alpn: Option<Vec<u8>>,
}

impl Tally {
    /// A connection that was due at `intended` started at `started`.
    pub(crate) fn started(&mut self, window: Window, intended: Instant, started: Instant, again: bool) {
        if window.contains(intended) {
            self.attempted += 1;
            self.retries += u64::from(again);
            self.lateness.record(started - intended);
        }
    }

    /// Counts a success. `patience` is the time limit of the connection's client.
    pub(crate) fn succeeded(&mut self, window: Window, connection: &Connection, patience: Duration) {
        let Some(done) = connection.done else { return };
        if window.contains(done) {
            self.done_in_window += 1;
            // The generator itself may have been late.
            self.good_in_window += u64::from(done - connection.intended <= patience);
        }
        if !window.contains(connection.intended) {
            return;
        }
        self.completed += 1;
        self.handshakes.record(done - connection.intended);
        if let Some(answered) = connection.answered {
            self.answers.record(answered - connection.intended);
        }
        match connection.tls.get().and_then(|tls| tls.handshake_kind()) {
            Some(HandshakeKind::Resumed) => self.resumed += 1,
            Some(HandshakeKind::FullWithHelloRetryRequest) => self.hello_retries += 1,
            _ => {}
        }
        self.agreed(connection);
    }

    /// A connection with this intended start failed.
    pub(crate) fn failed(&mut self, window: Window, intended: Instant, fault: Fault) {
        if window.contains(intended) {
            *self.failed.entry(fault.to_string()).or_default() += 1;
        }
        self.first_fault.get_or_insert(fault);
    }

    pub(crate) fn errors(&self) -> u64 {
        self.failed.values().sum()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.attempted += other.attempted;
        self.retries += other.retries;
        self.gave_up += other.gave_up;
        self.completed += other.completed;
        for (kind, count) in &other.failed {
            *self.failed.entry(kind.clone()).or_default() += count;
        }
        if self.first_fault.is_none() {
            self.first_fault.clone_from(&other.first_fault);
        }
        self.resumed += other.resumed;
        self.hello_retries += other.hello_retries;
        self.unclosed += other.unclosed;
        self.unfinished += other.unfinished;
        self.not_started += other.not_started;
        self.done_in_window += other.done_in_window;
        self.good_in_window += other.good_in_window;
        for (ours, theirs) in [
            (&mut self.handshakes, &other.handshakes),
            (&mut self.answers, &other.answers),
            (&mut self.lateness, &other.lateness),
        ] {
            ours.0
                .add(&theirs.0)
                .expect("an auto-resizing histogram takes everything");
        }
        for (agreement, count) in &other.negotiated {
            self.count_agreement(agreement.clone(), *count);
        }
        self.cpu += other.cpu;
        self.busiest = self.busiest.max(other.busiest);
        self.waited = self.waited.max(other.waited);
    }

    fn agreed(&mut self, connection: &Connection) {
        let Some(tls) = connection.tls.get() else { return };
        let (Some(version), Some(suite)) = (tls.protocol_version(), tls.negotiated_cipher_suite()) else {
            return;
        };
        let signature = connection.tls.signature;
        let group = tls.negotiated_key_exchange_group().map(|group| group.name());
        let alpn = tls.alpn_protocol();
        // Compares before it copies.
        let is_it = |known: &Agreement| {
            known.version == version
                && known.suite == suite.suite()
                && known.group == group
                && known.signature == signature
                && known.alpn.as_deref() == alpn
        };
        if let Some((_, count)) = self.negotiated.iter_mut().find(|(known, _)| is_it(known)) {
            *count += 1;
            return;
        }
        let agreement = Agreement {
            version,
            suite: suite.suite(),
            group,
            signature,
            alpn: alpn.map(<[u8]>::to_vec),
        };
        self.negotiated.push((agreement, 1));
    }

    fn count_agreement(&mut self, agreement: Agreement, more: u64) {
        match self.negotiated.iter_mut().find(|(known, _)| *known == agreement) {
            Some((_, count)) => *count += more,
            None => self.negotiated.push((agreement, more)),
        }
    }
}

/// The first range of a histogram. It grows when needed.
const LONGEST_NS: u64 = 10_000_000_000;
/// A percentile is exact to one part in a thousand.
const SIGNIFICANT_DIGITS: u8 = 3;
