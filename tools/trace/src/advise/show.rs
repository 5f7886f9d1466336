//! Prints observations and estimates for programs.

use serde::Serialize;

use super::estimate::{Estimate, Gain, Unestimated};
use super::program::WayIn;
use super::tally::Kind;
use super::watch::Observed;
use crate::text::{json_line, micros};

/// A line of JSON about a server.
pub fn json(observed: &Observed, estimate: &Result<Estimate, Unestimated>) -> String {
    let way_in = observed.program.way_in();
    let (estimate, why) = match estimate {
        Ok(estimate) => (Some(estimate), None),
        Err(why) => (None, Some(reason(*why))),
    };
    let kinds = observed.kinds.iter();
    let kinds = kinds.map(|(kind, &count)| LineKind { kind, count });
    let ready = &observed.ready;
    json_line(&Line {
        program: &observed.program.running.name,
        pids: &observed.processes,
        tls: observed.program.tls.name(),
        way_in: way_in.name(),
        setup: match way_in {
            WayIn::Setup => observed.program.running.argument(),
            _ => None,
        },
        seconds: observed.seconds,
        handshakes: observed.done,
        handshakes_per_s: observed.done as f64 / observed.seconds.max(1e-9),
        failed: observed.failed,
        as_client: observed.as_client,
        kinds: kinds.collect(),
        traced_cpu_us: micros(observed.cpu),
        looks: ready.looks,
        busy_share: ready.busy(),
        ready: (!ready.counts.is_empty()).then(|| ready.mean()),
        at_limit: ready.is_at_limit(),
        cpu_us: estimate.map(|one| one.own / 1e3),
        tracing_us: estimate.map(|one| one.tracing / 1e3),
        private_share: estimate.map(Estimate::private_share),
        exchange_share: estimate.map(Estimate::exchange_share),
        operations: estimate.map(|one| {
            let parts = one.parts.iter().map(|part| LinePart {
                name: &part.name,
                per_handshake: part.count,
                us: part.own / 1e3,
                in_passes_us: part.shared.map(|ns| ns / 1e3),
            });
            parts.collect()
        }),
        now: estimate.map(|one| LineGain::from(&one.now)),
        full: estimate.map(|one| LineGain::from(&one.full)),
        threads_wait: observed.program.has_waiting_threads(),
        why,
    })
}

fn reason(why: Unestimated) -> &'static str {
    match why {
        Unestimated::NoHandshakes => "no handshakes",
        Unestimated::NoTime => "too little CPU time",
        Unestimated::NoLanes(_) => "no lanes",
        Unestimated::NoCosts => "no calibration",
        Unestimated::Loaded => "loaded",
        Unestimated::NoOperations => "no operations",
        Unestimated::Alone => "a process for each connection",
    }
}

#[derive(Serialize)]
struct Line<'a> {
    program: &'a str,
    pids: &'a [u32],
    tls: &'static str,
    way_in: &'static str,
    setup: Option<String>,
    seconds: f64,
    handshakes: u64,
    handshakes_per_s: f64,
    failed: u64,
    as_client: u64,
    kinds: Vec<LineKind<'a>>,
    traced_cpu_us: f64,
    looks: usize,
    busy_share: f64,
    ready: Option<f64>,
    at_limit: bool,
    cpu_us: Option<f64>,
    tracing_us: Option<f64>,
    private_share: Option<f64>,
    exchange_share: Option<f64>,
    operations: Option<Vec<LinePart<'a>>>,
    now: Option<LineGain>,
    full: Option<LineGain>,
    threads_wait: bool,
    why: Option<&'static str>,
}

#[derive(Serialize)]
struct LineKind<'a> {
    #[serde(flatten)]
    kind: &'a Kind,
    count: u64,
}

#[derive(Serialize)]
struct LinePart<'a> {
    name: &'a str,
    per_handshake: f64,
    us: f64,
    in_passes_us: Option<f64>,
}

#[derive(Serialize)]
struct LineGain {
    ready: f64,
    cpu_us: f64,
    saved_us: f64,
    quotient: f64,
}

impl From<&Gain> for LineGain {
    fn from(gain: &Gain) -> Self {
        Self {
            ready: gain.ready,
            cpu_us: gain.with / 1e3,
            saved_us: gain.saved / 1e3,
            quotient: gain.quotient(),
        }
    }
}
