//! `widelane trace advise`: what Widelane would change for a TLS server that is in use.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use widelane_engine::{Config, Engine, calibration};
use widelane_threads::Proc;
use widelane_trace::advise::{Estimate, Lanes, Pace, hand_over, json, sentences};
use widelane_trace::{Clock, Want, Watch};

use super::Common;
use super::session::Session;
use crate::clock::clock;
use widelane_cli::failure::Failure;
use widelane_cli::output;
use widelane_cli::places::{CALIBRATION, Places};

/// Watch TLS servers in use, and say what Widelane would change for each
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, mut_arg("duration", of_duration))]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
}

/// Runs it.
pub(super) fn run(mut args: Args) -> Result<(), Failure> {
    let duration = *args.common.duration.get_or_insert(DURATION);
    // Before anything is traced: it takes a moment of a CPU that the servers may need.
    let lanes = lanes()?;
    let before = (duration / 4).min(MOST_BEFORE);
    let Some(pace) = pace(&args.common, before)? else {
        return Ok(());
    };
    args.common.duration = Some(duration - before);
    let mut session = Session::open(&args.common, Watch::want(), false)?;
    let mut watch = Watch::new(Proc::here(), Clock::now(), pace);
    while let Some(events) = session.events(PAUSE)? {
        watch.take(&events);
    }
    watch.close();
    session.rest(|events| watch.take(&events))?;
    let observed = watch.finish(has_provider);
    drop(session);
    let mut text = String::new();
    for one in &observed {
        let estimate = Estimate::of(one, &lanes);
        if args.common.json {
            text.push_str(&json(one, &estimate));
        } else {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&sentences(one, &estimate));
        }
    }
    if observed.is_empty() {
        return Err(Failure::Failed(
            "no TLS handshake was seen; is the server in use, and does --pid or --comm name it? \
             `widelane trace snoop` shows the calls that can be seen"
                .to_owned(),
        ));
    }
    output::print(&text)
}

fn of_duration(duration: clap::Arg) -> clap::Arg {
    let seconds = DURATION.as_secs();
    duration.help(format!("Watch for so many seconds [default: {seconds}]"))
}

/// Watches the servers while none of their functions is traced. `None`: the user has ended it.
fn pace(common: &Common, duration: Duration) -> Result<Option<Pace>, Failure> {
    let want = Want {
        bytes: true,
        ..Want::default()
    };
    let end = Instant::now() + duration;
    let mut session = Session::start(common, want, false)?;
    session.end = Some(end);
    let mut pace = Pace::new(Proc::here());
    while let Some(events) = session.events(PAUSE)? {
        events.iter().for_each(|event| pace.take(event));
        pace.refresh();
    }
    pace.close();
    session.rest(|events| events.iter().for_each(|event| pace.take(event)))?;
    Ok((Instant::now() >= end).then_some(pace))
}

/// Costs of passes here: from the file of the machine, or measured now in some tenths of a second.
fn lanes() -> Result<Lanes, Failure> {
    if let Some(file) = Places::here().to_write(CALIBRATION) {
        calibration::keep_in(&file);
    }
    let here = widelane_cpu::lanes();
    if !here.exist() {
        // Everything is AWS-LC's, and there is nothing to measure.
        return Ok(Lanes::None(here));
    }
    let config = Config {
        clock: clock(None)?.unwrap_or_default(),
        ..Config::default()
    };
    let engine = Engine::start(config)?;
    engine.calibrate();
    // Of two widths, the wider comes last.
    let passes: BTreeMap<_, _> = (calibration::known().into_iter())
        .map(|entry| (entry.name, entry.costs))
        .collect();
    let hand_over = hand_over();
    Ok(Lanes::Costs { passes, hand_over })
}

fn has_provider(pid: u32) -> bool {
    let found = widelane_status_tool::process(pid);
    found.is_ok_and(|process| process.is_some_and(|process| process.state.is_loaded()))
}

/// Time for which it watches.
const DURATION: Duration = Duration::from_secs(10);
/// Longest time at the beginning in which no function is traced.
const MOST_BEFORE: Duration = Duration::from_secs(3);
/// Time between takings of events, also while few come.
const PAUSE: Duration = Duration::from_millis(20);
const EXAMPLES: &str = "\
Examples:
  widelane trace advise --comm nginx
      ten seconds
  widelane trace advise --cgroup haproxy.service --duration 60
  widelane trace advise --pid 1234 --json

It watches the server, measures what passes cost on this machine (once, some tenths of a second),
and compares. The server is neither changed nor restarted.";
