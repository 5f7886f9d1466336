//! `widelane status`: whether the OpenSSL provider works.

mod show;

use std::path::PathBuf;
use widelane_cli::failure::Failure;
use widelane_cli::output;
use widelane_status_tool::{Survey, process, survey};

/// Show which processes have loaded the OpenSSL provider, and what they do with it
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only this process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,

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
    let found = match args.pid {
        Some(pid) => Survey {
            processes: Vec::from_iter(process(pid).map_err(|error| Failure::from_error(&error))?),
            hidden: 0,
            held_up: 0,
        },
        None => survey()
            .map_err(|error| Failure::Failed(format!("processes cannot be listed: {error}")))?,
    };
    let text = if args.json {
        show::json(&found.processes)?
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
        Some(pid) => format!("process {pid} has not loaded the provider; see widelane setup"),
        None => "no process has loaded the provider; see widelane setup".to_owned(),
    }))
}

const EXAMPLES: &str = "\
Examples:
  widelane status
      every process that has loaded the provider
  widelane status 4711
  widelane status --json
  widelane status --prometheus --output /var/lib/node_exporter/widelane-status.prom

Exit status: 0 found, 1 no process has loaded the provider, 2 it was called wrongly.";
