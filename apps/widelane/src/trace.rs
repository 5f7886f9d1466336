//! `widelane trace`: what TLS handshakes on this machine are made of.

mod advise;
mod batches;
mod exposition;
mod handshakes;
mod latency;
mod plaintext;
mod session;
mod snoop;

use std::path::PathBuf;
use std::time::Duration;

use widelane_cli::failure::Failure;

/// Show the TLS handshakes of running programs, live: what they are made of and how long they take
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    view: View,
}

#[derive(clap::Subcommand)]
enum View {
    Handshakes(handshakes::Args),
    Snoop(snoop::Args),
    Latency(latency::Args),
    Batches(batches::Args),
    Plaintext(plaintext::Args),
    Advise(advise::Args),
}

/// Choice of processes, and duration.
#[derive(clap::Args)]
struct Common {
    /// Only the process with this number; can be repeated
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<u32>,

    /// Only processes with this name, such as nginx; can be repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    comm: Vec<String>,

    /// Only processes of this cgroup, systemd unit or container; can be repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    cgroup: Vec<String>,

    /// Only processes that run this program: a path, or the name of a file; can be repeated
    #[arg(long, value_name = "FILE")]
    exe: Vec<PathBuf>,

    /// End after so many seconds [default: at ^C or SIGTERM]
    #[arg(long, value_name = "SECONDS", value_parser = widelane_cli::values::seconds)]
    duration: Option<Duration>,

    /// Print a JSON object for each line
    #[arg(long)]
    json: bool,

    /// Trace also the functions that this file lists, in the format of functions.toml; see the
    /// documentation of `trace`
    #[arg(long, value_name = "FILE")]
    functions: Option<PathBuf>,
}

/// Time between tables.
#[derive(clap::Args)]
struct Interval {
    /// Print what happened in each interval of so many seconds [default: all of it, at the end; on a
    /// terminal also each second]
    #[arg(long, value_name = "SECONDS", value_parser = crate::usage::seconds)]
    interval: Option<Duration>,
}

impl Interval {
    /// The time between tables; `live` if each replaces the one before.
    fn period(&self, live: bool) -> Duration {
        self.interval.unwrap_or(match live {
            true => Duration::from_secs(1),
            false => Duration::MAX,
        })
    }
}

/// Runs it.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.view {
        View::Handshakes(args) => handshakes::run(&args),
        View::Snoop(args) => snoop::run(&args),
        View::Latency(args) => latency::run(&args),
        View::Batches(args) => batches::run(&args),
        View::Plaintext(args) => plaintext::run(&args),
        View::Advise(args) => advise::run(args),
    }
}

const EXAMPLES: &str = "\
Examples:
  widelane trace handshakes
      a line for each handshake of any program, until ^C
  widelane trace handshakes --comm nginx --slow 5ms
  widelane trace handshakes --comm nginx --duration 6 --json
  widelane trace latency --comm haproxy --interval 1
  widelane trace snoop --pid 1234

Tracing takes root. Probes vanish with this program, in whatever way it ends.";
