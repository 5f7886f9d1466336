//! `widelane-lab speed`: single operations as by `widelane speed`, with other libraries beside ours.

use crate::{PROGRAM, peers};
use widelane_cli::failure::Failure;
pub(crate) use widelane_cli::speed::Args;

/// Runs it.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    widelane_cli::speed::run(PROGRAM, args, peers::libraries())
}

/// The text behind the options.
pub(crate) fn examples() -> String {
    widelane_cli::speed::examples(PROGRAM)
}
