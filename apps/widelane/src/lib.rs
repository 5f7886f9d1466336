//! `widelane`, the one binary. It parses arguments and prints; everything else lives in libraries.
//!
//! Each sub-command is one file here with its clap `Args` and a `run(args) -> Result<(), Failure>`.
//! To add one: a module, a variant of `Command`, an arm of the `match` in [`main`], an example
//! in `EXAMPLES`.
//!
//! It is a library so that manual pages and shell completions are made from the same definitions
//! ([`command`]) by a program that does not ship.
//!
//! Exit status: 0 it worked, 1 it failed, 2 it was called wrongly; of `run` and `emulate`, that of their
//! program.

#![deny(unsafe_code)]

mod advise;
mod allocator;
mod emulate;
mod experiment;
mod failure;
mod features;
mod kernels;
mod load;
mod machine;
mod output;
mod places;
mod probe;
mod report;
mod run;
mod scan;
mod screen;
mod serve;
mod setup;
mod simulate;
mod speed;
mod status;
mod steer;
mod tickets;
mod top;
mod trace;
mod usage;
mod values;

use clap::{CommandFactory, Parser, Subcommand};
use failure::Failure;
use std::process::ExitCode;

/// TLS handshakes whose expensive mathematics share the lanes of wide vector registers
#[derive(Parser)]
#[command(
    name = "widelane",
    version,
    long_version = features::long_version(),
    arg_required_else_help = true,
    subcommand_required = true,
    max_term_width = 100,
    after_help = EXAMPLES
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::Args),
    Tickets(tickets::Args),
    Setup(setup::Args),
    Load(load::Args),
    Speed(speed::Args),
    Kernels(kernels::Args),
    Probe(probe::Args),
    Advise(advise::Args),
    Simulate(simulate::Args),
    Experiment(experiment::Args),
    Report(report::Args),
    Scan(scan::Args),
    Steer(steer::Args),
    Run(run::Args),
    Emulate(emulate::Args),
    Status(status::Args),
    Usage(usage::Args),
    Top(top::Args),
    Trace(trace::Args),
}

/// What the program understands: all sub-commands with their options and texts.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Does what the arguments of this process ask for, and gives its exit status.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result: Result<(), Failure> = match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Tickets(args) => tickets::run(&args),
        Command::Setup(args) => setup::run(&args),
        Command::Load(args) => load::run(args),
        Command::Speed(args) => speed::run(args),
        Command::Kernels(args) => kernels::run(args),
        Command::Probe(args) => probe::run(args),
        Command::Advise(args) => advise::run(args),
        Command::Simulate(args) => simulate::run(args),
        Command::Experiment(args) => experiment::run(args),
        Command::Report(args) => report::run(args),
        Command::Scan(args) => scan::run(args),
        Command::Steer(args) => steer::run(args),
        // Its status is that of the program that it runs.
        Command::Run(args) => return run::run(args),
        Command::Emulate(args) => return emulate::run(args),
        Command::Status(args) => status::run(&args),
        Command::Usage(args) => usage::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Trace(args) => trace::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

const EXAMPLES: &str = "\
Examples:
  widelane serve --demo
  widelane tickets new /etc/widelane/tickets
  sudo widelane setup nginx
  widelane load 127.0.0.1:8443 --insecure --concurrency 32 --duration 10
  widelane speed rsa2048-sign
  widelane kernels
  widelane probe --quick && widelane advise
  widelane simulate cloudflare-2017
  sudo widelane experiment cloudflare --quick
  widelane report
  widelane scan /usr/lib/x86_64-linux-gnu/libcrypto.so.3
  widelane steer --dry-run
  widelane run --wide -- openssl speed -evp chacha20-poly1305
  sudo widelane emulate --as \"Silver 4116\" -- widelane probe
  widelane status
  widelane usage
  widelane top --metrics 127.0.0.1:9464
  sudo widelane trace handshakes --comm nginx

What is measured is printed as a table for people, or as JSON for programs with --json.
Exit status: 0 it worked, 1 it failed, 2 it was called wrongly; of `run` and
`emulate`, that of their program.";
