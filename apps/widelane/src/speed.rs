//! `widelane speed`: single operations, beside the openssl program.

use crate::PROGRAM;
use widelane_cli::failure::Failure;
pub(crate) use widelane_cli::speed::Args;

/// Runs it.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    widelane_cli::speed::run(PROGRAM, args, Vec::new())
}

/// The text behind the options.
pub(crate) fn examples() -> String {
    widelane_cli::speed::examples(PROGRAM)
        + "\n\nOther libraries stand beside ours in `widelane-lab speed`, which `make lab` builds."
}
