//! `widelane status`: whether the OpenSSL provider works.

pub(crate) mod prove;
mod show;

use crate::values::pid;
use std::path::PathBuf;
use std::time::Duration;
use widelane_cli::failure::Failure;
use widelane_cli::output;
use widelane_cli::values::seconds;
use widelane_status_tool::{Asked, Server, Survey, process, survey};
use widelane_text::escaped;

/// Show which processes have loaded the OpenSSL provider, and what they do with it; prove what lanes save
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only this process; with --prove, --off and --on, this one and those that it has forked
    #[arg(value_name = "PID", value_parser = pid)]
    pid: Option<u32>,

    /// Switch lanes off and on again and again, and say what a handshake takes with and without
    #[arg(long, conflicts_with_all = ["on", "off", "prometheus"])]
    prove: bool,

    /// How long --prove takes
    #[arg(long = "for", value_name = "SECONDS", default_value = "60", value_parser = seconds, requires = "prove")]
    length: Duration,

    /// The share of that time in which --prove switches lanes off
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, requires = "prove")]
    share: f64,

    /// Switch lanes off, until --on
    #[arg(long, requires = "pid", conflicts_with_all = ["on", "json", "prometheus"])]
    off: bool,

    /// Switch lanes on again
    #[arg(long, requires = "pid", conflicts_with_all = ["json", "prometheus"])]
    on: bool,

    /// Print a JSON object a line for each process
    #[arg(long)]
    json: bool,

    /// Print Prometheus text
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,

    /// Write the Prometheus text to this file instead, replacing it whole
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    output: Option<PathBuf>,
}

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.prove {
        return prove::run(args.pid, args.length, args.share, args.json);
    }
    if let Some(pid) = args.pid.filter(|_| args.on || args.off) {
        return switch(pid, if args.on { Asked::On } else { Asked::Off });
    }
    let found = match args.pid {
        Some(pid) => Survey {
            processes: Vec::from_iter(process(pid)?),
            hidden: 0,
            held_up: 0,
        },
        None => survey().map_err(|error| Failure::Failed(format!("processes cannot be listed: {error}")))?,
    };
    let text = if args.json {
        show::json(&found.processes)
    } else if args.prometheus {
        show::prometheus(&found.processes)?
    } else {
        show::table(&found.processes)
    };
    match &args.output {
        // Also without a process: the figures of one that has ended must go.
        Some(file) => output::replace(file, &text)?,
        None => output::print(&text)?,
    }
    if found.hidden > 0 {
        let hidden = found.hidden;
        output::complain(&format!(
            "widelane: processes that this user may not look at: {hidden}; it takes root with \
             CAP_SYS_PTRACE\n"
        ));
    }
    if found.held_up > 0 {
        let held_up = found.held_up;
        output::complain(&format!(
            "widelane: processes whose memory could not be read in time: {held_up}; their owners hold that up\n"
        ));
    }
    if found.processes.iter().any(|one| one.state.is_loaded()) {
        return Ok(());
    }
    Err(Failure::Failed(match args.pid {
        Some(pid) => format!(
            "process {pid} has not loaded the provider; `sudo widelane setup --inspect {pid}` says whether it can, and how"
        ),
        None => "no process has loaded the provider; see widelane setup".to_owned(),
    }))
}

/// Asks a process and those that it has forked for lanes, or for none.
fn switch(pid: u32, asked: Asked) -> Result<(), Failure> {
    let server = Server::of(pid)?;
    (server.ask(asked))?;
    let (pids, name) = server.processes();
    let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
    let what = match asked {
        Asked::On => "lanes are on",
        _ => "lanes are off, until --on",
    };
    output::print(&format!("{} {}: {what}\n", escaped(name), pids.join(", ")))
}

const EXAMPLES: &str = "\
Examples:
  widelane status
      every process that has loaded the provider
  widelane status 4711
  widelane status --json
  widelane status --prometheus --output /var/lib/node_exporter/widelane-status.prom
  sudo widelane status --prove 4711
      what lanes save the server whose first process is 4711, under the load that it has
  sudo widelane status --off 4711

Exit status: 0 found, 1 no process has loaded the provider, 2 it was called wrongly.";
