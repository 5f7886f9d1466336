//! `widelane`, the program for servers. It parses arguments and prints; everything else lives in
//! libraries.
//!
//! Each sub-command is one file here with its clap `Args` and a `run(args) -> Result<(), Failure>`.
//! To add one that a server does without: a module behind the feature `instruments`, and in
//! `instruments.rs` a variant, an arm and an example. What only a laboratory needs is in
//! `widelane-lab`.
//!
//! It is a library so that manual pages and shell completions are made from the same definitions
//! ([`command`]) by a program that does not ship.
//!
//! Exit status: 0 it worked, 1 it failed, 2 it was called wrongly; of `run`, that of its program.

#![deny(unsafe_code)]

#[cfg(feature = "instruments")]
mod advise;
mod allocator;
mod clock;
mod features;
#[cfg(feature = "instruments")]
mod instruments;
#[cfg(feature = "instruments")]
mod kernels;
mod load;
mod log;
#[cfg(feature = "instruments")]
mod object;
#[cfg(feature = "instruments")]
mod probe;
#[cfg(feature = "instruments")]
mod run;
#[cfg(feature = "instruments")]
mod scan;
#[cfg(feature = "instruments")]
mod screen;
#[cfg(feature = "instruments")]
mod series;
mod serve;
#[cfg(feature = "instruments")]
mod setup;
#[cfg(feature = "instruments")]
mod speed;
#[cfg(feature = "instruments")]
mod status;
#[cfg(feature = "instruments")]
mod steer;
mod tickets;
#[cfg(feature = "instruments")]
mod top;
#[cfg(feature = "instruments")]
mod trace;
#[cfg(feature = "instruments")]
mod usage;
mod values;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;
use widelane_cli::failure;

/// TLS handshakes whose expensive mathematics share the lanes of wide vector registers
#[derive(Parser)]
#[command(
    name = PROGRAM,
    version,
    long_version = features::long_version(),
    arg_required_else_help = true,
    subcommand_required = true,
    max_term_width = 100,
    after_help = examples()
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::Args),
    Tickets(tickets::Args),
    Load(load::Args),
    #[cfg(feature = "instruments")]
    #[command(flatten)]
    Instrument(instruments::Command),
}

/// Interface of the program: all sub-commands with their options and texts.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Does what the arguments of this process ask for, and gives its exit status.
pub fn main() -> ExitCode {
    failure::main(PROGRAM, features::elsewhere, |cli: Cli| match cli.command {
        Command::Serve(args) => failure::status(PROGRAM, serve::run(args)),
        Command::Tickets(args) => failure::status(PROGRAM, tickets::run(&args)),
        Command::Load(args) => failure::status(PROGRAM, load::run(args)),
        #[cfg(feature = "instruments")]
        Command::Instrument(command) => command.run(),
    })
}

fn examples() -> String {
    #[cfg(feature = "instruments")]
    let instruments = instruments::EXAMPLES;
    #[cfg(not(feature = "instruments"))]
    let instruments = "";
    format!("{EXAMPLES}{instruments}\n\n{NOTES}")
}

/// The name of this program, before what it says.
const PROGRAM: &str = "widelane";

const EXAMPLES: &str = "\
Examples:
  widelane serve --demo
  widelane tickets new /etc/widelane/tickets
  widelane load 127.0.0.1:8443 --insecure --concurrency 32 --duration 10";

const NOTES: &str = "\
What is measured is printed as a table for people, or as JSON for programs with --json.
Exit status: 0 it worked, 1 it failed, 2 it was called wrongly; of `run`, that of its
program.";
