//! The command `speed`: arguments and output of the measurement of single operations.

use crate::failure::Failure;
use crate::output;
use crate::values;
use std::io::{self, IsTerminal};
use std::time::Duration;
use widelane_speed::{Library, Plan, Progress, SpeedError};
use widelane_text::json_line;

/// Measure operations a second on one core, batched and single, beside openssl
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Operation to measure, like x25519-derive, or a group, like mlkem [default: all; see --list]
    #[arg(value_name = "OPERATION")]
    operations: Vec<String>,

    /// Measure on this CPU [default: the last that this process may run on]
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,

    /// Measure each condition for S seconds
    #[arg(long, short, value_name = "S", default_value = "1", value_parser = values::seconds)]
    seconds: Duration,

    /// Do not measure the openssl program
    #[arg(long)]
    no_openssl: bool,

    /// Print the operations and end
    #[arg(long, conflicts_with = "json")]
    list: bool,

    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// Runs it as a command of `program`, with other `libraries` beside ours.
///
/// # Errors
///
/// [`Failure::Usage`] for an operation or a CPU that is not there, [`Failure::Failed`] if an
/// operation fails.
pub fn run(program: &str, args: Args, libraries: Vec<Library>) -> Result<(), Failure> {
    if args.list {
        return output::print(&list());
    }
    let mut plan = Plan::new(&args.operations).map_err(failure)?;
    plan.cpu = args.cpu;
    plan.span = args.seconds;
    plan.openssl = !args.no_openssl;
    plan.libraries = libraries;
    plan.command = output::command_line(program);
    let mut told = Told::default();
    let report = widelane_speed::run(&plan, |progress| told.tell(progress));
    told.clear();
    let report = report.map_err(failure)?;
    if !args.json {
        return output::print(&report.to_string());
    }
    let mut lines = String::new();
    for row in report.rows() {
        lines.push_str(&json_line(row));
    }
    output::print(&lines)
}

/// The text behind the options, with examples for `program`.
pub fn examples(program: &str) -> String {
    EXAMPLES.replace("PROGRAM", program)
}

fn list() -> String {
    widelane_speed::operations()
        .iter()
        .map(|operation| format!("{:<18} {}\n", operation.name, operation.what))
        .collect()
}

/// The progress line on the terminal.
#[derive(Default)]
struct Told {
    last: Option<Duration>,
}

impl Told {
    fn tell(&mut self, progress: Progress) {
        let due = match self.last {
            None => progress.elapsed > PATIENCE_WITHOUT_PROGRESS,
            Some(last) => progress.elapsed - last > Duration::from_secs(1),
        };
        if !due || !io::stderr().is_terminal() {
            return;
        }
        self.last = Some(progress.elapsed);
        let elapsed = progress.elapsed.as_secs_f64();
        output::progress(&format!(
            "{elapsed:.0} s, {:.0} % done: {}",
            100.0 * progress.share,
            progress.operation,
        ));
    }

    fn clear(&self) {
        if self.last.is_some() {
            output::progress("");
        }
    }
}

/// A wrong operation or CPU is wrong usage. Every other error is a failure.
fn failure(error: SpeedError) -> Failure {
    match error {
        SpeedError::UnknownOperation { .. } | SpeedError::CpuNotAllowed { .. } => Failure::Usage(error.to_string()),
        error => error.into(),
    }
}

const EXAMPLES: &str = "\
Examples:
  PROGRAM speed x25519-derive
      shared secrets a second with 1 to 16 in flight, by backend, beside openssl
  PROGRAM speed mlkem768 p256
      all operations with ML-KEM-768, and all with P-256
  PROGRAM speed sign --seconds 0.2
      every signature, quickly
  PROGRAM speed --cpu 3 --seconds 5 --json
      everything, on CPU 3, as one JSON object a line; this takes an hour
  nice -n -10 PROGRAM speed rsa4096-sign
      ahead of most of what else runs on the CPU

The name of a group is the beginning of names, or a part of them between dashes.

All conditions are measured in turn, in slices of 50 ms: ops/s (by CPU time) is the median of the
slices, spread the distance of their quartiles, placed the slowest of five sets of buffers at
different addresses. A job's latency, in wall-clock time, ends when all jobs in flight are done.
With 1 in flight a vector backend runs a pass here. auto is the engine as servers use it: it has
measured when a pass is worth it, and chooses; the cost of submitting requests to it is included.
power-... is the exponentiation kernel alone, beside the limit of the CPU's ports.";

const PATIENCE_WITHOUT_PROGRESS: Duration = Duration::from_secs(2);
