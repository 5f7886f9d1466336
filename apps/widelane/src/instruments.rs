//! The commands of the feature `instruments`: all that a server does without.

use crate::{PROGRAM, advise, kernels, probe, run, scan, setup, speed, status, steer, top, trace, usage};
use clap::Subcommand;
use std::process::ExitCode;
use widelane_cli::failure;

#[derive(Subcommand)]
pub(crate) enum Command {
    Setup(setup::Args),
    #[command(after_help = speed::examples())]
    Speed(speed::Args),
    Kernels(kernels::Args),
    Probe(probe::Args),
    Advise(advise::Args),
    Scan(scan::Args),
    Steer(steer::Args),
    Run(run::Args),
    Status(status::Args),
    Usage(usage::Args),
    Top(top::Args),
    Trace(trace::Args),
}

impl Command {
    /// Does it, and gives the exit status.
    pub(crate) fn run(self) -> ExitCode {
        let result = match self {
            Self::Setup(args) => setup::run(&args),
            Self::Speed(args) => speed::run(args),
            Self::Kernels(args) => kernels::run(args),
            Self::Probe(args) => probe::run(args),
            Self::Advise(args) => advise::run(args),
            Self::Scan(args) => scan::run(args),
            Self::Steer(args) => steer::run(args),
            // Its status is that of the program that it runs.
            Self::Run(args) => return run::run(args),
            Self::Status(args) => status::run(&args),
            Self::Usage(args) => usage::run(&args),
            Self::Top(args) => top::run(&args),
            Self::Trace(args) => trace::run(args),
        };
        failure::status(PROGRAM, result)
    }
}

pub(crate) const EXAMPLES: &str = "
  sudo widelane setup nginx
  widelane speed rsa2048-sign
  widelane kernels
  widelane probe --quick && widelane advise
  widelane scan /usr/lib/x86_64-linux-gnu/libcrypto.so.3
  widelane steer --dry-run
  widelane run --wide -- openssl speed -evp chacha20-poly1305
  widelane status
  widelane usage
  widelane top --metrics 127.0.0.1:9464
  sudo widelane trace handshakes --comm nginx";
