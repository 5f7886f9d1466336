//! `widelane trace batches`: how well multi-buffer libraries fill their passes.

use std::time::Instant;

use widelane_trace::{Batches, Role, Tells, Want};

use super::session::Session;
use super::{Common, Interval};
use widelane_cli::failure::Failure;
use widelane_cli::output;

/// Show how many operations share a pass in Widelane, crypto_mb and QAT
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    interval: Interval,
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let want = Want {
        roles: vec![Role::Pass, Role::Poll],
        tells: Tells::PASSES.to_vec(),
        calls: true,
        ..Want::default()
    };
    let mut session = Session::open(&args.common, want, !args.common.json)?;
    let live = session.screen.live;
    let period = args.interval.period(live);
    let mut batches = Batches::default();
    let mut since = Instant::now();
    while session.take_for(period, |event| batches.take(event))? {
        match args.common.json {
            true => output::print(&batches.json(since.elapsed()))?,
            false => session.screen.show(&batches.table(since.elapsed()))?,
        }
        if args.interval.interval.is_some() {
            batches.clear();
            since = Instant::now();
        }
    }
    output::print(&match args.common.json {
        true => batches.json(since.elapsed()),
        false => batches.table(since.elapsed()),
    })
}

const EXAMPLES: &str = "\
Examples:
  widelane trace batches --comm nginx --duration 10
  widelane trace batches --comm widelane --interval 1
  widelane trace batches --interval 1 --json

For Widelane's own passes, `widelane status` and `widelane top` show sums without tracing.";
