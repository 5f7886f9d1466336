//! The parts and the commit of this program, and how to get what it leaves out.

use std::sync::LazyLock;
use widelane_cli::failure::{Failure, unknown_command, unknown_option};

/// Says how to get a program with `feature`, for the end of a message.
pub(crate) fn build_in(feature: &str) -> String {
    format!("build it in with: cargo build --release -p widelane --features {feature}")
}

/// Says where a command or an option is that clap did not find, if another build or program has it.
pub(crate) fn elsewhere(error: &clap::Error) -> Option<Failure> {
    if let Some(option) = unknown_option(error) {
        let (_, there) = OPTIONS.iter().find(|(name, _)| *name == option)?;
        return Some(Failure::Usage(format!(
            "`{option}` is an option of widelane-lab, which `make lab` builds from Widelane's \
             sources: {there}"
        )));
    }
    let name = unknown_command(error)?;
    if LABORATORY.contains(&name) {
        return Some(Failure::Usage(format!(
            "`{name}` is a command of widelane-lab, which `make lab` builds from Widelane's sources: \
             widelane-lab {name}"
        )));
    }
    INSTRUMENTS
        .contains(&name)
        .then(|| Failure::Usage(format!("`{name}` is not in this build; {}", build_in("instruments"))))
}

/// Text of `--version`: the version, the commit, and the optional parts that are in this
/// program.
pub(crate) fn long_version() -> &'static str {
    // A program has one set of features; clap wants the text for as long as it runs.
    static TEXT: LazyLock<String> = LazyLock::new(|| widelane_cli::version::long_version(COMMIT, FEATURES));
    &TEXT
}

/// The commit of this program, or `unknown`.
pub(crate) const COMMIT: &str = env!("WIDELANE_COMMIT");

/// The Cargo features of this program, and whether they are on.
const FEATURES: &[(&str, bool)] = &[
    ("instruments", cfg!(feature = "instruments")),
    ("terminal", cfg!(feature = "terminal")),
];

/// The commands of the feature `instruments`.
const INSTRUMENTS: &[&str] = &[
    "setup", "speed", "kernels", "probe", "advise", "scan", "steer", "run", "status", "usage", "top", "trace",
];

/// The commands of `widelane-lab` that this program has none of its own for.
const LABORATORY: &[&str] = &["simulate", "emulate", "experiment", "report", "handshakes", "timing"];

/// Options that `widelane-lab` has, because they take its simulator or its pictures.
const OPTIONS: &[(&str, &str)] = &[
    ("--picture", "widelane-lab report --clocks FILE"),
    ("--workload", "widelane-lab advise --workload NAME"),
    ("--cores", "widelane-lab advise --workload NAME --cores NUMBER"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_version_names_every_feature_of_the_manifest() {
        let manifest = include_str!("../Cargo.toml");
        let table = manifest.split("[features]").nth(1).expect("features");
        let table = table.split("\n[").next().expect("a table");
        let names = table.lines().filter_map(|line| line.split_once(" = "));
        let names: Vec<_> = names
            .map(|(name, _)| name)
            .filter(|name| *name != "default" && !name.starts_with('#'))
            .collect();
        assert!(!names.is_empty());
        for name in names {
            let found = long_version().split([' ', '+', '-']).any(|word| word == name);
            assert!(found, "{name}: {}", long_version());
        }
    }

    #[test]
    fn every_command_is_an_instrument_or_one_that_every_build_has() {
        let program = crate::command();
        let names = program.get_subcommands().map(clap::Command::get_name);
        let (always, mut optional): (Vec<_>, Vec<_>) =
            names.partition(|name| ["serve", "tickets", "load"].contains(name));
        assert_eq!(always.len(), 3);
        optional.sort_unstable();
        let mut expected = match cfg!(feature = "instruments") {
            true => INSTRUMENTS.to_vec(),
            false => Vec::new(),
        };
        expected.sort_unstable();
        assert_eq!(optional, expected);
    }
}
