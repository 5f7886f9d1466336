//! `widelane trace latency`: how long calls take, counted in the kernel.

use std::collections::HashMap;
use std::net::SocketAddr;

use widelane_trace::{Clock, Count, Latencies, Outcome, Role, Want};

use super::exposition::Exposition;
use super::session::Session;
use super::{Common, Interval};
use widelane_cli::failure::Failure;
use widelane_cli::output;

/// Show how long TLS and cryptographic functions take: a histogram for each, counted in the kernel
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    interval: Interval,

    /// Only the table, without histograms
    #[arg(long)]
    brief: bool,

    /// Serve the sums as Prometheus text at this address, at any path
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::values::address,
          conflicts_with = "json")]
    prometheus: Option<SocketAddr>,
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let exposition = args.prometheus.map(Exposition::open).transpose()?;
    let want = Want {
        roles: Role::PARTS.to_vec(),
        handshakes_only: true,
        counts: true,
        ..Want::default()
    };
    let table = !args.common.json && exposition.is_none();
    let mut session = Session::open(&args.common, want, table)?;
    let live = session.screen.live;
    let begin = session.tracer.cpu_time();
    let mut before = Sums {
        cpu: begin,
        ..Sums::default()
    };
    let period = args.interval.period(live || exposition.is_some());
    while session.take_for(period, |_| ())? {
        let counts = session.counts()?;
        let cpu = session.tracer.cpu_time();
        if let Some(exposition) = &exposition {
            exposition.show(latencies(&counts, &Sums::default()).prometheus());
        } else if args.interval.interval.is_some() {
            let part = latencies(&counts, &before);
            show(args, &session, &part, cpu.saturating_sub(before.cpu))?;
            before = Sums::of(&counts, cpu);
        } else {
            let all = latencies(&counts, &Sums::default());
            show(args, &session, &all, cpu.saturating_sub(begin))?;
        }
    }
    if exposition.is_none() {
        // The rest of the last interval, or all of it.
        let part = latencies(&session.counts()?, &before);
        let cpu = session.tracer.cpu_time().saturating_sub(before.cpu);
        if args.common.json {
            output::print(&part.json(now(), Some(cpu)))?;
        } else {
            output::print(&part.table(Some(cpu), !args.brief))?;
        }
    }
    Ok(())
}

/// Counts at some time.
#[derive(Default)]
struct Sums {
    counts: HashMap<(u32, String, bool, u32), (u64, u64)>,
    /// CPU time of the traced processes, in nanoseconds.
    cpu: u64,
}

impl Sums {
    fn of(counts: &[Count], cpu: u64) -> Self {
        let entries = counts.iter().map(|count| (key(count), (count.calls, count.total)));
        Self {
            counts: entries.collect(),
            cpu,
        }
    }
}

fn key(count: &Count) -> (u32, String, bool, u32) {
    let symbol = count.function.symbol.clone();
    (count.pid, symbol, count.succeeded, count.bucket)
}

/// Counts since then.
fn latencies(counts: &[Count], before: &Sums) -> Latencies {
    let mut latencies = Latencies::default();
    for count in counts {
        let (calls, total) = before.counts.get(&key(count)).copied().unwrap_or_default();
        let calls = count.calls.saturating_sub(calls);
        if calls == 0 {
            continue;
        }
        // What SSL_get_error says is not asked for, because each traced call costs. Of the functions that
        // are asked again, those that have not succeeded are almost all to be called again.
        let outcome = match count.succeeded {
            true => Outcome::Ok,
            false if count.function.role.is_called_again() => Outcome::Again,
            false => Outcome::Failed,
        };
        let function = &count.function;
        let row = latencies.row(&function.library, &function.symbol, outcome);
        let bucket = usize::try_from(count.bucket).unwrap_or(usize::MAX);
        row.add(bucket, calls, count.total.saturating_sub(total));
    }
    latencies
}

/// Seconds since 1970.
fn now() -> f64 {
    Clock::now().seconds(Clock::monotonic())
}

fn show(args: &Args, session: &Session, part: &Latencies, cpu: u64) -> Result<(), Failure> {
    if args.common.json {
        output::print(&part.json(now(), Some(cpu)))
    } else {
        let drawn = !args.brief && !session.screen.live;
        session.screen.show(&part.table(Some(cpu), drawn))
    }
}

const EXAMPLES: &str = "\
Examples:
  widelane trace latency --comm nginx --duration 10
  widelane trace latency --comm haproxy --interval 1 --brief
  widelane trace latency --prometheus 127.0.0.1:9465

The kernel counts the calls, which costs least. `again` are calls that did not succeed and are
repeated, because they wait for the peer. Functions call each other: their times overlap.";
