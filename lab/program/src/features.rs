//! The parts and the commit of this program, and how to get what it leaves out.

use std::sync::LazyLock;
use widelane_cli::failure::{Failure, unknown_command};

/// Explains how to get a command that clap did not find, if it is one of a part that was left out.
pub(crate) fn elsewhere(error: &clap::Error) -> Option<Failure> {
    let name = unknown_command(error)?;
    let feature = match name {
        "handshakes" => name,
        _ if WORKSHOP.contains(&name) => "workshop",
        _ => return None,
    };
    Some(Failure::Usage(format!(
        "`{name}` is not in this build; build it in with: cargo build --release -p widelane-lab \
         --features {feature}"
    )))
}

/// Text of `--version`: the version, the commit, and the optional parts that are in this program.
pub(crate) fn long_version() -> &'static str {
    // A program has one set of features; clap wants the text for as long as it runs.
    static TEXT: LazyLock<String> = LazyLock::new(|| widelane_cli::version::long_version(COMMIT, FEATURES));
    &TEXT
}

/// The commit of this program, or `unknown`.
pub(crate) const COMMIT: &str = env!("WIDELANE_COMMIT");

/// The Cargo features of this program, and whether they are on.
const FEATURES: &[(&str, bool)] = &[
    ("handshakes", cfg!(feature = "handshakes")),
    ("workshop", cfg!(feature = "workshop")),
];

/// The commands of the feature `workshop`.
const WORKSHOP: &[&str] = &[
    "speed",
    "timing",
    "simulate",
    "advise",
    "emulate",
    "experiment",
    "report",
];

#[cfg(all(test, feature = "handshakes", feature = "workshop"))]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_command_belongs_to_a_feature() {
        let program = crate::Cli::command();
        let names = program.get_subcommands().map(clap::Command::get_name);
        let names: Vec<_> = names.filter(|name| *name != "handshakes").collect();
        assert_eq!(names, WORKSHOP);
    }
}
