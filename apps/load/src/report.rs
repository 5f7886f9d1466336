//! The result of a run: one serialisable object, and a table for people.

use crate::names::{group_name, signature_name, suite_name, version_name};
use crate::plan::{After, Arrivals, Close, Plan, Spacing, Storm};
use crate::tally::{Tally, Window};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The result of a run. Everything is for the measured time, without the warm-up.
///
/// Latencies, counts and errors are those of the connections whose intended start is in that time,
/// no matter when they ended. Rates count the handshakes that were done in that time. What could
/// not be measured is `None`, with the reason in `notes`.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The server's address.
    pub address: String,
    /// The name in SNI.
    pub server_name: String,
    /// `closed` or `open`.
    pub mode: &'static str,
    /// Connections in flight, of a closed loop.
    pub concurrency: Option<usize>,
    /// Starts a second that were asked for, of an open loop.
    pub rate: Option<f64>,
    /// `even` or `poisson`, of an open loop.
    pub spacing: Option<&'static str>,
    /// The span with another rate, of an open loop.
    pub storm: Option<Storm>,
    /// Most seconds that a client waits for one connection.
    pub timeout_s: f64,
    /// Number of further attempts of a client.
    pub retries: u32,
    /// Threads of the generator.
    pub threads: usize,
    /// True if the generator's own public-key operations were batched.
    pub batching: bool,
    /// Measured time in seconds.
    pub duration_s: f64,
    /// True if the run was stopped before its time.
    pub interrupted: bool,

    /// Handshakes done in the measured time, a second.
    pub handshakes_per_s: Option<f64>,
    /// Handshakes within the time limit of their clients, a second. A client counts once, however often it has tried.
    pub goodput_per_s: Option<f64>,
    /// Connections started.
    pub attempted: u64,
    /// Further attempts of clients that had failed, among those connections.
    pub retried: u64,
    /// Clients that failed in the measured time with their last attempt; 0 without retries.
    pub gave_up: u64,
    /// Connections that succeeded, among those started.
    pub completed: u64,
    /// Connections that failed, among those started.
    pub errors: u64,
    /// Connections still in flight when the run was stopped, among those started.
    pub unfinished: u64,
    /// The failures by kind.
    pub errors_by_kind: BTreeMap<String, u64>,

    /// Latency of a handshake in microseconds: from the start (in an open loop: from the intended
    /// start) to the last flight. Median.
    pub p50_us: Option<f64>,
    /// 90th percentile.
    pub p90_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// 99.9th percentile.
    pub p999_us: Option<f64>,
    /// Longest.
    pub max_us: Option<f64>,
    /// Mean.
    pub mean_us: Option<f64>,
    /// Latency until the end of the answer, if there was a request.
    pub answer: Option<Percentiles>,

    /// Completed handshakes that resumed a session.
    pub resumed: u64,
    /// Share of those among the completed ones.
    pub resumed_share: Option<f64>,
    /// Completed handshakes with another round trip, because the server wanted another group.
    pub hello_retries: u64,
    /// Protocol version of most completed handshakes, `1.2` or `1.3`.
    pub version: Option<&'static str>,
    /// The cipher suite.
    pub cipher: Option<String>,
    /// The key exchange group.
    pub group: Option<String>,
    /// The algorithm of the server's signature.
    pub signature: Option<String>,
    /// Everything that was agreed on, most frequent first.
    pub negotiated: Vec<Negotiated>,
    /// Connections that the server did not close within a second of our close_notify.
    pub unclosed: u64,

    /// CPU time of the generator's threads in seconds.
    pub cpu_s: f64,
    /// CPU time of the generator for each handshake, in microseconds.
    pub cpu_us_per_handshake: Option<f64>,
    /// The share of its CPU that the busiest thread used. Near 1, the generator is the limit, not
    /// the server.
    pub busiest_thread: Option<f64>,
    /// The largest share of the time in which a thread was ready to run and had no CPU. Well above
    /// 0, other programs disturbed the measurement.
    pub cpu_wait: Option<f64>,
    /// Lateness of the starts in an open loop. It is part of the latency.
    pub lateness: Option<Percentiles>,
    /// Connections that were due in an open loop and never started.
    pub not_started: u64,

    /// Notes that readers need to judge the figures.
    pub notes: Vec<String>,
}

/// A distribution in microseconds.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Percentiles {
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Longest.
    pub max_us: f64,
    /// Mean.
    pub mean_us: f64,
}

/// One outcome of negotiation and how often it happened.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Negotiated {
    /// `1.2` or `1.3`.
    pub version: &'static str,
    /// Cipher suite.
    pub cipher: String,
    /// Key exchange group; none where a TLS 1.2 session was resumed.
    pub group: Option<String>,
    /// Algorithm of the server's signature; none where a session was resumed.
    pub signature: Option<String>,
    /// Application protocol.
    pub alpn: Option<String>,
    /// Connections.
    pub count: u64,
}

impl Report {
    pub(crate) fn new(plan: &Plan, tally: &Tally, window: Window, interrupted: bool) -> Self {
        let seconds = window.to.saturating_duration_since(window.from).as_secs_f64();
        let per_second = |count: u64| (seconds > 0.0).then(|| count as f64 / seconds);
        let (mode, concurrency, rate, spacing, storm) = match plan.arrivals {
            Arrivals::Concurrency(n) => ("closed", Some(n), None, None, None),
            Arrivals::Rate {
                per_second,
                spacing,
                storm,
            } => {
                let spacing = match spacing {
                    Spacing::Even => "even",
                    Spacing::Poisson => "poisson",
                };
                ("open", None, Some(per_second), Some(spacing), storm)
            }
        };
        let mut agreements = tally.negotiated.clone();
        agreements.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let negotiated: Vec<_> = agreements
            .iter()
            .map(|(agreement, count)| Negotiated {
                version: version_name(agreement.version),
                cipher: suite_name(agreement.suite),
                group: agreement.group.map(group_name),
                signature: agreement.signature.map(signature_name),
                alpn: agreement
                    .alpn
                    .as_deref()
                    .map(|a| String::from_utf8_lossy(a).into_owned()),
                count: *count,
            })
            .collect();
        let latency = Percentiles::of(&tally.handshakes.0);
        let pick = |value: fn(&Percentiles) -> f64| latency.as_ref().map(value);
        let cpu_s = tally.cpu.as_secs_f64();
        let mut report = Self {
            address: plan.address.to_string(),
            server_name: plan.server_name.clone(),
            mode,
            concurrency,
            rate,
            spacing,
            storm,
            timeout_s: plan.timeout.as_secs_f64(),
            retries: plan.retries,
            threads: plan.threads,
            batching: plan.batches(),
            duration_s: seconds,
            interrupted,
            handshakes_per_s: per_second(tally.done_in_window),
            goodput_per_s: per_second(tally.good_in_window),
            attempted: tally.attempted,
            retried: tally.retries,
            gave_up: tally.gave_up,
            completed: tally.completed,
            errors: tally.errors(),
            unfinished: tally.unfinished,
            errors_by_kind: tally.failed.clone(),
            p50_us: pick(|p| p.p50_us),
            p90_us: pick(|p| p.p90_us),
            p99_us: pick(|p| p.p99_us),
            p999_us: pick(|p| p.p999_us),
            max_us: pick(|p| p.max_us),
            mean_us: pick(|p| p.mean_us),
            answer: Percentiles::of(&tally.answers.0),
            resumed: tally.resumed,
            resumed_share: (tally.completed > 0).then(|| tally.resumed as f64 / tally.completed as f64),
            hello_retries: tally.hello_retries,
            version: negotiated.first().map(|first| first.version),
            cipher: negotiated.first().map(|first| first.cipher.clone()),
            group: negotiated.first().and_then(|first| first.group.clone()),
            signature: negotiated.first().and_then(|first| first.signature.clone()),
            negotiated,
            unclosed: tally.unclosed,
            cpu_s,
            cpu_us_per_handshake: (tally.done_in_window > 0).then(|| cpu_s * 1e6 / tally.done_in_window as f64),
            busiest_thread: (seconds > 0.0).then(|| tally.busiest.as_secs_f64() / seconds),
            cpu_wait: tally
                .waited
                .filter(|_| seconds > 0.0)
                .map(|waited| waited.as_secs_f64() / seconds),
            lateness: (mode == "open").then(|| Percentiles::of(&tally.lateness.0)).flatten(),
            not_started: tally.not_started,
            notes: Vec::new(),
        };
        report.notes = report.notes_on(plan, tally);
        report
    }

    fn notes_on(&self, plan: &Plan, tally: &Tally) -> Vec<String> {
        let mut notes = Vec::new();
        if self.interrupted {
            notes.push(format!(
                "stopped early: {:.1} of {:.1} s were measured",
                self.duration_s,
                plan.duration.as_secs_f64()
            ));
        }
        if self.attempted == 0 {
            let before = tally.first_fault.as_ref().map_or_else(
                || "connections of the warm-up were still in flight; is the server so slow?".into(),
                |fault| format!("the first failure of the warm-up: {fault}"),
            );
            notes.push(format!(
                "latencies n/a: no connection started in the measured time ({before})"
            ));
        } else if self.completed == 0 {
            notes.push("latencies n/a: no handshake of the measured time completed".into());
        }
        if self.cpu_us_per_handshake.is_none() {
            notes.push("CPU a handshake n/a: none was done in the measured time".into());
        }
        if self.answer.is_none() && matches!(plan.after, After::Get(_)) {
            notes.push("answer latencies n/a: no answer was complete".into());
        }
        if self.mode == "closed" {
            notes.push(format!("lateness n/a: {NO_SCHEDULE}"));
        }
        if self.cpu_wait.is_none() && self.duration_s > 0.0 {
            notes.push("waiting for a CPU n/a: this kernel has no /proc/*/schedstat".into());
        }
        if let Some(share) = self.cpu_wait.filter(|share| *share > DISTURBED) {
            notes.push(format!(
                "a thread of the generator waited for a CPU for {:.0} % of the time: other \
                 programs disturb it, and the figures are worse than the server's own; give it \
                 a free CPU with --cpus",
                share * 100.0
            ));
        }
        let late = self.lateness.as_ref().is_some_and(|lateness| lateness.p99_us > LATE_US);
        if late || self.not_started > 0 {
            notes.push(format!(
                "the generator itself was late ({} connections never started): the latencies \
                 include that; use more --threads, other --cpus or a lower --rate",
                self.not_started
            ));
        }
        if self.busiest_thread.is_some_and(|share| share > BUSY) {
            notes.push(
                "a thread of the generator used nearly all of its CPU: the server may be capable \
                 of more; use more --threads or other --cpus"
                    .into(),
            );
        }
        if self.unclosed > 0 {
            notes.push(format!(
                "{} connections were not closed by the server within a second of our \
                 close_notify; we reset them then",
                self.unclosed
            ));
        }
        if plan.close == Close::Abrupt && self.completed > 0 {
            notes.push(
                "connections ended with the client's last flight: whether the server accepted it is \
                 not seen"
                    .into(),
            );
        }
        if self.hello_retries > 0 {
            notes.push(format!(
                "{} handshakes took another round trip: the server wanted another group than \
                 the first one that was offered (--group)",
                self.hello_retries
            ));
        }
        if plan.offer.resume && self.completed > 0 && self.resumed == 0 {
            notes.push("no session was resumed: the server sends no tickets, or accepts none".into());
        }
        notes
    }
}

impl Percentiles {
    fn of(histogram: &Histogram<u64>) -> Option<Self> {
        let us = |nanoseconds: f64| (nanoseconds / 100.0).round() / 10.0;
        let at = |quantile| us(histogram.value_at_quantile(quantile) as f64);
        (!histogram.is_empty()).then(|| Self {
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: us(histogram.max() as f64),
            mean_us: us(histogram.mean()),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let load = match (self.concurrency, self.rate) {
            (Some(n), _) => format!("closed loop, {n} in flight"),
            (_, Some(rate)) => {
                let storm = self.storm.as_ref().map_or(String::new(), |storm| {
                    format!(
                        ", {}{} from {} s for {} s",
                        if storm.ramp { "up to " } else { "" },
                        storm.per_second,
                        storm.from.as_secs_f64(),
                        storm.length.as_secs_f64()
                    )
                });
                format!(
                    "open loop, {rate} starts/s{storm}, {} gaps",
                    self.spacing.unwrap_or("even")
                )
            }
            _ => self.mode.to_owned(),
        };
        let plural = if self.threads == 1 { "" } else { "s" };
        writeln!(
            f,
            "{} as {}: {load}, {} thread{plural}, {:.1} s",
            self.address, self.server_name, self.threads, self.duration_s
        )?;
        for agreed in &self.negotiated {
            write!(f, "TLS {}, {}", agreed.version, agreed.cipher)?;
            if let Some(group) = &agreed.group {
                write!(f, ", {group}")?;
            }
            for name in [&agreed.signature, &agreed.alpn].into_iter().flatten() {
                write!(f, ", {name}")?;
            }
            writeln!(f, ": {}", agreed.count)?;
        }
        writeln!(f)?;
        writeln!(f, "{:<18}{:>12}", "handshakes/s", or_na(self.handshakes_per_s))?;
        writeln!(
            f,
            "{:<18}{:>12}  within {} s",
            "goodput/s",
            or_na(self.goodput_per_s),
            self.timeout_s
        )?;
        for (name, count) in [
            ("attempted", self.attempted),
            ("completed", self.completed),
            ("resumed", self.resumed),
            ("errors", self.errors),
        ] {
            writeln!(f, "{name:<18}{count:>12}")?;
        }
        for (kind, count) in &self.errors_by_kind {
            writeln!(f, "{:<18}{count:>12}  {kind}", "")?;
        }
        for (name, count) in [
            ("unfinished", self.unfinished),
            ("never started", self.not_started),
            ("retried", self.retried),
            ("gave up", self.gave_up),
        ] {
            if count > 0 {
                writeln!(f, "{name:<18}{count:>12}")?;
            }
        }
        writeln!(f)?;
        write!(f, "{:<18}", "microseconds")?;
        for name in ["p50", "p90", "p99", "p99.9", "max", "mean"] {
            write!(f, "{name:>12}")?;
        }
        writeln!(f)?;
        let [p50, p90, p99, p999] = [self.p50_us, self.p90_us, self.p99_us, self.p999_us];
        row(f, "handshake", [p50, p90, p99, p999, self.max_us, self.mean_us])?;
        for (name, percentiles) in [("answer", &self.answer), ("start lateness", &self.lateness)] {
            if let Some(p) = percentiles {
                let values = [p.p50_us, p.p90_us, p.p99_us, p.p999_us, p.max_us, p.mean_us];
                row(f, name, values.map(Some))?;
            }
        }
        if self.mode == "closed" {
            writeln!(f, "{:<18}{:>12} ({NO_SCHEDULE})", "start lateness", "n/a")?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "generator: {} µs of CPU a handshake; its busiest thread used {} of a CPU and one \
             waited {} of the time for it",
            or_na(self.cpu_us_per_handshake),
            percent(self.busiest_thread),
            percent(self.cpu_wait),
        )?;
        // Without the notes that are in the table.
        for note in self.notes.iter().filter(|note| !note.contains(NO_SCHEDULE)) {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, values: [Option<f64>; 6]) -> fmt::Result {
    write!(f, "{name:<18}")?;
    for value in values {
        write!(f, "{:>12}", or_na(value))?;
    }
    writeln!(f)
}

fn or_na(value: Option<f64>) -> String {
    value.map_or("n/a".into(), |value| format!("{value:.1}"))
}

fn percent(share: Option<f64>) -> String {
    share.map_or("n/a".into(), |share| format!("{:.0} %", share * 100.0))
}

const NO_SCHEDULE: &str = "a closed loop has no schedule to be late for";
/// Lateness in microseconds of one start in a hundred above which a note is printed.
const LATE_US: f64 = 1000.0;
/// Share of its CPU that a thread uses above which a note says that the generator may be the limit.
const BUSY: f64 = 0.95;
/// Share of the time that a thread waits for a CPU above which a note is printed.
const DISTURBED: f64 = 0.05;
