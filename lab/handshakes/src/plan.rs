//! Plans of comparisons, as the command line gives them.

use clap::builder::RangedU64ValueParser;
use clap::{Args, Command};

/// The plan of a command without any options.
pub(crate) fn usual<Plan: Args>() -> Plan {
    let command = Plan::augment_args(Command::new("plan").no_binary_name(true));
    let plan = Plan::from_arg_matches(&command.get_matches_from([""; 0]));
    plan.expect("every option has a default")
}

/// Reads a number of turns, or of connections.
pub(crate) fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=u16::MAX.into())
}

/// The values that were asked for, or else the usual ones.
pub(crate) fn or<T: Clone>(asked: &[T], usual: impl FnOnce() -> Vec<T>) -> Vec<T> {
    if asked.is_empty() { usual() } else { asked.to_vec() }
}

/// The turns of so many servers, round by round, as round and server. Each goes first once: none always follows the
/// same other one.
pub(crate) fn turns(rounds: usize, servers: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rounds).flat_map(move |round| (0..servers).map(move |turn| (round, (turn + round) % servers)))
}
