//! `widelane run`: starts a program with its threads where their code belongs.

use crate::PROGRAM;
use crate::steer::{Shared, event_text, failed, sensed, summary_text};
use std::ffi::OsString;
use std::process::ExitCode;
use widelane_cli::failure::{Failure, status_of_program, status_of_unstarted};
use widelane_cli::output;
use widelane_steer::{All, Scope, Sensor, SteerError};

/// Start a program and keep it and its descendants where their code belongs
///
/// Only the program and its descendants are moved, and those that outlive it get their affinities
/// back. Signals are passed on to it; the exit status is the program's, or 128 and the number of
/// the signal that ended it; 127 if there is no such program, 126 if it cannot be started, 125 if
/// anything else went wrong before, and 2 if this was called wrongly.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    side: Side,

    #[command(flatten)]
    shared: Shared,

    /// Tell on standard error what is done
    #[arg(long, short)]
    verbose: bool,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(clap::Args)]
#[group(multiple = false)]
struct Side {
    /// Keep all of it on vector cores: on all of --cores if given, else on as many as it can use
    #[arg(long)]
    wide: bool,

    /// Keep all of it off vector cores: off all of --cores if given, else off the last one
    #[arg(long)]
    scalar: bool,

    /// Keep those of its threads on vector cores that use wide registers, and the others off them;
    /// takes root. This is the default
    #[arg(long)]
    auto: bool,
}

/// Runs it; the program's status, or one of those that `nice` and its like give if there is none.
pub(crate) fn run(args: Args) -> ExitCode {
    status_of_program(PROGRAM, ran(args))
}

fn ran(args: Args) -> Result<u8, Failure> {
    let mut options = args.shared.options(Scope::Descendants, false)?;
    let sensor: Box<dyn Sensor> = match args.side {
        Side { wide: true, .. } => Box::new(All::Wide),
        Side { scalar: true, .. } => Box::new(All::Scalar),
        Side { .. } => Box::new(sensed("--wide or --scalar")?),
    };
    if args.side.wide || args.side.scalar {
        // Others' wide code on the vector cores is not seen from here.
        options.limits.reserved = true;
        options.limits.min = options.limits.min.max(1);
        if options.limits.candidates.is_some() && args.shared.max.is_none() {
            // All of them, and not as many as this program fills.
            options.limits.min = usize::MAX;
        }
    }
    let mut tell = |event| {
        if args.verbose || args.shared.json {
            output::complain(&event_text(&event, args.shared.json, false));
        }
    };
    let (program, arguments) = args
        .command
        .split_first()
        .ok_or_else(|| Failure::Usage("there is no program to run; name it after --".to_owned()))?;
    let interval = args.shared.interval;
    let ended = widelane_steer::run(program, arguments, options, sensor, interval, &mut tell);
    let ended = match ended {
        Err(SteerError::Start { program, source }) => {
            let status = status_of_unstarted(source.kind());
            failed(SteerError::Start { program, source }).report(PROGRAM);
            return Ok(status);
        }
        ended => ended.map_err(failed)?,
    };
    if args.verbose || args.shared.json {
        output::complain(&summary_text(&ended.summary, args.shared.json, false));
    }
    Ok(ended.status)
}

const EXAMPLES: &str = "\
Examples:
  widelane run --wide -- openssl speed -evp chacha20-poly1305
  widelane run --wide --cores 6-7 --verbose -- ffmpeg -i in.mkv out.mp4
  widelane run --cores 6-7 -- nginx -g 'daemon off;'";
