//! `widelane-lab`, the program for comparisons, simulations and experiments. It parses arguments and
//! prints; everything else lives in libraries.
//!
//! Each sub-command is one file here, as in `widelane`. It starts `widelane`, which it looks for in its
//! own folder.
//!
//! Exit status: 0 it worked, 1 it failed, 2 it was called wrongly; of `emulate`, that of its program;
//! of `handshakes`, 130 if it was interrupted.

#![forbid(unsafe_code)]

#[cfg(feature = "workshop")]
mod advise;
#[cfg(feature = "workshop")]
mod emulate;
#[cfg(feature = "workshop")]
mod experiment;
mod features;
#[cfg(feature = "handshakes")]
mod handshakes;
#[cfg(feature = "workshop")]
mod peers;
#[cfg(feature = "workshop")]
mod report;
#[cfg(feature = "workshop")]
mod simulate;
#[cfg(feature = "workshop")]
mod speed;
#[cfg(feature = "workshop")]
mod timing;
#[cfg(feature = "workshop")]
mod workshop;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use widelane_cli::failure;

/// Comparisons of Widelane with its peers, simulations, and published experiments done again
#[derive(Parser)]
#[command(
    name = PROGRAM,
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
    #[cfg(feature = "handshakes")]
    Handshakes(handshakes::Args),
    #[cfg(feature = "workshop")]
    #[command(flatten)]
    Workshop(workshop::Command),
}

fn main() -> ExitCode {
    failure::main(PROGRAM, features::elsewhere, |cli: Cli| match cli.command {
        #[cfg(feature = "handshakes")]
        Command::Handshakes(args) => handshakes::run(args),
        #[cfg(feature = "workshop")]
        Command::Workshop(command) => command.run(),
    })
}

/// The name of this program, before what it says.
const PROGRAM: &str = "widelane-lab";

const EXAMPLES: &str = "\
Examples:
  widelane-lab handshakes demo
  widelane-lab handshakes pair widelane-on nginx --condition rsa-x25519
  widelane-lab speed mlkem768
  widelane-lab timing mlkem768-decaps
  widelane-lab simulate cloudflare-2017
  widelane-lab advise \"Gold 6130\" --workload cloudflare-2017
  sudo widelane-lab emulate --as \"Silver 4116\" -- widelane probe
  sudo widelane-lab experiment cloudflare --quick
  widelane-lab report

What is measured is printed as a table for people; --json prints it for programs.
Exit status: 0 it worked, 1 it failed, 2 it was called wrongly; of `emulate`, that of its
program; of `handshakes`, 130 if it was interrupted.";
