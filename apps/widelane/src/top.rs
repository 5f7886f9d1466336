//! `widelane top`: the live picture.

use crate::failure::Failure;
use crate::output;
use crate::usage::seconds;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{IsTerminal, stdin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};
use widelane_top::{Monitor, Options, Screen, Snapshot, Told, plain};

/// Show clocks, licence levels, passes, handshakes and who uses AVX-512, renewed on the terminal
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The metrics address of a `widelane serve`
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<String>,

    /// Seconds between pictures
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,

    /// End after this many pictures [default: at q, Esc, ^C or SIGTERM]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Print one picture as plain text and end
    #[arg(long, conflicts_with = "count")]
    once: bool,

    /// Print a JSON object for each interval
    #[arg(long)]
    json: bool,

    /// No colours; a NO_COLOR that is set and not empty says the same
    #[arg(long)]
    no_color: bool,

    /// Do not find out who uses wide registers
    #[arg(long)]
    no_users: bool,
}

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let set = |name| std::env::var_os(name).filter(|value: &std::ffi::OsString| !value.is_empty());
    let terminal = stdin().is_terminal() && output::is_renewable();
    let renewed = terminal && !args.once && !args.json;
    let options = Options {
        metrics: args.metrics.clone(),
        users: !args.no_users,
        patience: if renewed { Duration::ZERO } else { PATIENCE },
    };
    if renewed {
        return live(args, options, !args.no_color && set("NO_COLOR").is_none());
    }
    let pictures = if args.once { Some(1) } else { args.count };
    let mut monitor = Monitor::new(options);
    let mut shown = 0;
    let mut next = Instant::now() + args.interval;
    while pictures.is_none_or(|pictures| shown < pictures) {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        next = (next + args.interval).max(Instant::now());
        let snapshot = monitor.snapshot();
        shown += 1;
        if args.json {
            output::print(&(serde_json::to_string(&snapshot)? + "\n"))?;
        } else {
            // An empty line between two.
            let gap = if shown > 1 { "\n" } else { "" };
            output::print(&format!("{gap}{}", plain(&snapshot)))?;
        }
    }
    Ok(())
}

/// On the terminal, until somebody wishes the end.
fn live(args: &Args, options: Options, colour: bool) -> Result<(), Failure> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, ended.clone())?;
    }
    let mut screen = Screen::open(colour)?;
    let snapshots = sample(options, args.interval)?;
    let mut last: Option<Snapshot> = None;
    let mut shown = 0;
    while !ended.load(Relaxed) && args.count.is_none_or(|count| shown < count) {
        match snapshots.try_recv() {
            Ok(snapshot) => {
                screen.show(&snapshot)?;
                last = Some(snapshot);
                shown += 1;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                return Err(Failure::Failed("the sampling thread has ended".to_owned()));
            }
        }
        match (screen.wait(REACTION)?, &last) {
            (Told::End, _) => break,
            (Told::Resized, Some(snapshot)) => screen.show(snapshot)?,
            _ => {}
        }
    }
    Ok(())
}

/// Takes snapshots on a thread of its own, so that keys are answered while a server is not.
fn sample(options: Options, interval: Duration) -> Result<Receiver<Snapshot>, Failure> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::Builder::new()
        .name("widelane-top".to_owned())
        .spawn(move || {
            let mut monitor = Monitor::new(options);
            // The first picture comes soon, that nobody looks at an empty screen.
            let mut wait = interval.min(FIRST);
            loop {
                thread::sleep(wait);
                if sender.send(monitor.snapshot()).is_err() {
                    break;
                }
                wait = interval;
            }
        })?;
    Ok(receiver)
}

/// How long a signal may wait to be seen.
const REACTION: Duration = Duration::from_millis(100);
const FIRST: Duration = Duration::from_millis(250);
/// Code that takes longer to look at is `unknown` in plain text and in JSON.
const PATIENCE: Duration = Duration::from_secs(3);
const EXAMPLES: &str = "\
Examples:
  widelane top
  widelane serve --demo --metrics 127.0.0.1:9464     and in another terminal
  widelane top --metrics 127.0.0.1:9464
  widelane top --once --no-users
  widelane top --json --interval 10 --count 6";
