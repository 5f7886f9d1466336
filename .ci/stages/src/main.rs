//! Runs the stages of a tier: `make test`, `make check` and `make check-all`.
//!
//! The stages are rows of `.ci/stages.toml` ([`table`]). A stage is a command, or a set of test
//! programs that run side by side ([`programs`]). [`results`] counts tests in what they print.
//! [`passes`] decides which long stages a change needs, and remembers when they passed.

#![forbid(unsafe_code)]

mod passes;
mod programs;
mod report;
mod results;
mod run;
mod table;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().unwrap_or(root);
    match asked(&root, &words) {
        Ok(passed) if passed => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("stages: {message}");
            ExitCode::from(2)
        }
    }
}

fn asked(root: &Path, words: &[String]) -> Result<bool, String> {
    let table = table::read(root)?;
    if words.is_empty() || words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return Ok(true);
    }
    if words == ["--list"] {
        report::list(&table);
        return Ok(true);
    }
    let selection = table.select(words)?;
    run::run(root, &table, &selection)
}

const HELP: &str = "\
Runs stages of .ci/stages.toml.

Usage: widelane-stages TIER | STAGE… | --list

  test        the tests of the product: crates, rustls adapter, terminator, OpenSSL provider
  check       test, then all that a change needs before it lands, with the long stages whose
              rooms have changed since they passed
  check-all   every stage
  STAGE…      only these stages
  --list      the stages, with the tier of each

Examples:
  make check STAGES=documentation
  make check STAGES='lints loom'

Logs are in target/stages, with the time of every test in target/stages/times.tsv.
Exit status: 0 all passed, 1 something failed, 2 it was called wrongly.
";
