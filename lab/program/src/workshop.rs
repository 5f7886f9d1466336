//! The commands of the feature `workshop`: all but the comparisons of `handshakes`.

use crate::{PROGRAM, advise, emulate, experiment, report, simulate, speed, timing};
use clap::Subcommand;
use std::process::ExitCode;
use widelane_cli::failure;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Measure operations a second on one core, batched and single, beside openssl and libcrux
    #[command(after_help = speed::examples())]
    Speed(speed::Args),
    Timing(timing::Args),
    Simulate(simulate::Args),
    Advise(advise::Args),
    Emulate(emulate::Args),
    Experiment(experiment::Args),
    Report(report::Args),
}

impl Command {
    /// Does it, and gives the exit status.
    pub(crate) fn run(self) -> ExitCode {
        let result = match self {
            Self::Speed(args) => speed::run(args),
            Self::Timing(args) => timing::run(&args),
            Self::Simulate(args) => simulate::run(args),
            Self::Advise(args) => advise::run(&args),
            // The status is that of the program that it runs.
            Self::Emulate(args) => return emulate::run(args),
            Self::Experiment(args) => experiment::run(args),
            Self::Report(args) => report::run(args),
        };
        failure::status(PROGRAM, result)
    }
}
