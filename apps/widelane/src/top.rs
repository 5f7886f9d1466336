//! `widelane top`: the live picture.

#[cfg(not(feature = "terminal"))]
use crate::features;
use crate::screen::{Screen, is_renewable};
use crate::usage::seconds;
use std::io::{IsTerminal, stdin};
use std::time::{Duration, Instant};
use widelane_cli::failure::Failure;
use widelane_cli::places::{Places, profile_name};
use widelane_cli::{machine, output};
use widelane_frequency::Machine;
use widelane_text::json_line;
use widelane_top::metrics::{MetricsError, place};
use widelane_top::{Monitor, Options, plain};

#[cfg(feature = "terminal")]
mod live;
#[cfg(feature = "terminal")]
use live::live;

/// Show clocks, licence levels, passes, handshakes and who uses AVX-512, renewed on the terminal
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The metrics address of a `widelane serve`
    #[arg(long, value_name = "ADDR:PORT", value_parser = metrics_address)]
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

    /// Show also the TLS handshakes of all processes, and the functions that take their time: by probes, as
    /// `widelane trace`
    #[arg(long)]
    handshakes: bool,
}

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let terminal = stdin().is_terminal() && is_renewable();
    let renewed = terminal && !args.once && !args.json;
    let options = Options {
        metrics: args
            .metrics
            .clone()
            .ok_or_else(|| "start `widelane serve` with --metrics 127.0.0.1:9464, and this with the same".to_owned()),
        users: match args.no_users {
            true => Err("left out with --no-users".to_owned()),
            false => Ok(()),
        },
        handshakes: args.handshakes,
        profile: machine::kept(&Places::here().to_read(profile_name()), &Machine::here())
            .map(|(_, profile)| profile)
            .map_err(|why| format!("{why}; `widelane probe` measures one")),
        patience: if renewed { Duration::ZERO } else { PATIENCE },
    };
    if renewed {
        #[cfg(feature = "terminal")]
        return live(args, options, !args.no_color && !is_set("NO_COLOR"));
        #[cfg(not(feature = "terminal"))]
        output::complain(&format!(
            "widelane: prints one picture after the other, because the one that is renewed in \
             place is not in this program; {}\n",
            features::build_in("terminal"),
        ));
    }
    let pictures = if args.once { Some(1) } else { args.count };
    let screen = Screen::open(false)?;
    let mut monitor = Monitor::new(options);
    let mut shown = 0;
    let mut next = Instant::now() + args.interval;
    while pictures.is_none_or(|pictures| shown < pictures) && !screen.ended_before(next)? {
        next = (next + args.interval).max(Instant::now());
        let snapshot = monitor.snapshot();
        shown += 1;
        if args.json {
            output::print(&json_line(&snapshot))?;
        } else {
            // An empty line between two.
            let gap = if shown > 1 { "\n" } else { "" };
            output::print(&format!("{gap}{}", plain(&snapshot)))?;
        }
    }
    Ok(())
}

/// Reads the metrics address of a server.
fn metrics_address(text: &str) -> Result<String, MetricsError> {
    place(text).map(|_| text.to_owned())
}

/// Returns whether a variable of the environment is there and not empty.
#[cfg(feature = "terminal")]
fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// Code that takes longer to look at is `unknown` in plain text and in JSON.
const PATIENCE: Duration = Duration::from_secs(3);
const EXAMPLES: &str = "\
Examples:
  widelane top
  widelane serve --demo --metrics 127.0.0.1:9464     and in another terminal
  widelane top --metrics 127.0.0.1:9464
  widelane top --handshakes
  widelane top --once --no-users
  widelane top --json --interval 10 --count 6";
