//! `widelane trace snoop`: every call of a traced function, in order.

use std::time::Duration;

use widelane_trace::{Clock, Event, Role, Snoop, Snooped, Want};

use super::Common;
use super::session::Session;
use widelane_cli::failure::Failure;
use widelane_cli::output;

/// Show every call of TLS and cryptographic functions, in order, those inside others indented
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,

    /// Also the calls that carry data of the application, without the data
    #[arg(long)]
    data: bool,
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let mut roles = Role::of_handshakes();
    roles.push(Role::Around);
    if args.data {
        roles.extend([Role::Read, Role::Write]);
    }
    let want = Want {
        roles,
        calls: true,
        ..Want::default()
    };
    let mut session = Session::open(&args.common, want, false)?;
    let mut snoop = Snoop::new(Clock::now());
    if !args.common.json {
        output::print(&Snooped::header())?;
    }
    let line = |call: Snooped| match args.common.json {
        true => call.json(),
        false => call.text(),
    };
    let mut at_most = Duration::MAX;
    while let Some(events) = session.events(at_most)? {
        let mut lines = String::new();
        for event in &events {
            match event {
                Event::Call(call) => lines.extend(snoop.take(call).into_iter().map(line)),
                Event::Exit { pid } => snoop.forget(*pid),
                Event::Bytes(_) | Event::Reached(_) => {}
            }
        }
        lines.extend(snoop.settle(Clock::monotonic()).into_iter().map(line));
        // Calls wait for those around them: when there are some, the next look comes soon.
        at_most = match snoop.is_waiting() {
            true => LOOKS,
            false => Duration::MAX,
        };
        if !lines.is_empty() {
            output::print(&lines)?;
        }
    }
    let lines: String = snoop.finish().into_iter().map(line).collect();
    output::print(&lines)
}

const LOOKS: Duration = Duration::from_millis(100);
const EXAMPLES: &str = "\
Examples:
  widelane trace snoop --pid 1234
  widelane trace snoop --comm curl --data
  widelane trace snoop --comm nginx --duration 1 --json";
