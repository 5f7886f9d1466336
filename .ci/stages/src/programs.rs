//! Test programs: cargo builds them, and they run side by side.

use crate::results::{self, Results};
use crate::table::Tests;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// A test program.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Program {
    /// The package and, if it is not the library's unit tests, the target.
    pub(crate) name: String,
    file: PathBuf,
    /// Where cargo would start it.
    folder: PathBuf,
}

/// A program that has run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) seconds: f64,
    pub(crate) results: Results,
    /// Names of tests and their seconds.
    pub(crate) times: Vec<(String, f64)>,
    /// For people, if something failed.
    pub(crate) failure: Option<String>,
}

/// Builds the programs of a stage. The compiler's messages go to `log`.
///
/// # Errors
///
/// What a person reads first of the compiler's messages, if something does not compile.
pub(crate) fn build(
    root: &Path,
    tests: &Tests,
    environment: &BTreeMap<String, String>,
    log: &Path,
) -> Result<Vec<Program>, String> {
    let stderr = File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
    let mut cargo = Command::new("cargo")
        .args([
            "test",
            "--locked",
            "--no-run",
            "--message-format=json-render-diagnostics",
        ])
        .args(&tests.arguments)
        .envs(environment)
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .map_err(|error| format!("cargo cannot be started: {error}"))?;
    let mut programs = BTreeSet::new();
    let lines = cargo.stdout.take().map(BufReader::new);
    for line in lines.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
        programs.extend(serde_json::from_str(&line).ok().as_ref().and_then(program));
    }
    match cargo.wait() {
        Ok(status) if status.success() => Ok(programs.into_iter().collect()),
        _ => Err(fs::read_to_string(log).unwrap_or_default()),
    }
}

/// Runs programs, one for each CPU at a time; those that `tests` wants alone after all others.
/// Calls `done` as each of them ends, and writes what they print to files in `logs`.
pub(crate) fn run(
    programs: Vec<Program>,
    tests: &Tests,
    environment: &BTreeMap<String, String>,
    logs: &Path,
    done: impl Fn(&Outcome) + Sync,
) -> Vec<Outcome> {
    let wants_company = |program: &Program| !tests.alone.contains(&program.name);
    let (many, alone): (Vec<_>, Vec<_>) = programs.into_iter().partition(wants_company);
    let outcomes = Mutex::new(Vec::new());
    for (queue, workers) in [(many, cpus()), (alone, 1)] {
        let queue = Mutex::new(VecDeque::from(queue));
        let next = || queue.lock().ok()?.pop_front();
        thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while let Some(program) = next() {
                        let outcome = run_one(&program, tests, environment, logs);
                        done(&outcome);
                        if let Ok(mut outcomes) = outcomes.lock() {
                            outcomes.push(outcome);
                        }
                    }
                });
            }
        });
    }
    outcomes.into_inner().unwrap_or_default()
}

fn run_one(program: &Program, tests: &Tests, environment: &BTreeMap<String, String>, logs: &Path) -> Outcome {
    let started = Instant::now();
    let log = logs.join(format!("{}.log", program.name.replace('/', "-")));
    let ended = start(program, tests, environment, &log);
    let seconds = started.elapsed().as_secs_f64();
    let output = fs::read(&log).unwrap_or_default();
    let output = String::from_utf8_lossy(&output);
    let mut results = Results::read(&output);
    let mut failure = None;
    if let Err(reason) = ended {
        // A program that died has no line with its results.
        results.failed = results.failed.max(1);
        let shown = results::failures(&output);
        let shown = if shown.is_empty() { tail(&output, 60) } else { shown };
        failure = Some(format!("{}: {reason}\n{shown}", program.name));
    }
    Outcome {
        name: program.name.clone(),
        seconds,
        results,
        times: results::times(&output),
        failure,
    }
}

/// Runs a program to its end. An error says how it failed.
fn start(program: &Program, tests: &Tests, environment: &BTreeMap<String, String>, log: &Path) -> Result<(), String> {
    let output = File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
    let errors = output.try_clone().map_err(|error| error.to_string())?;
    let mut command = Command::new(&program.file);
    command
        .args(["--show-output", "-Zunstable-options", "--report-time"])
        .args(&tests.only)
        .args(tests.skip.iter().flat_map(|name| ["--skip", name]))
        .envs(environment)
        // The stable test library reports times only with it.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .current_dir(&program.folder)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors);
    let mut child = command.spawn().map_err(|error| format!("cannot be started: {error}"))?;
    let until = Instant::now() + LONGEST;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(status.to_string()),
            Ok(None) if Instant::now() > until => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("did not end within {} s and was killed", LONGEST.as_secs()));
            }
            Ok(None) => thread::sleep(Duration::from_millis(20)),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// The test program that a message of cargo is about.
fn program(message: &Value) -> Option<Program> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let package = package(message["package_id"].as_str()?)?;
    let target = message["target"]["name"].as_str()?;
    let kind = message["target"]["kind"][0].as_str()?;
    let name = match kind {
        "test" | "bench" | "example" => format!("{package}/{target}"),
        "bin" => format!("{package}/bin-{target}"),
        _ => package.to_owned(),
    };
    Some(Program {
        name,
        file: message["executable"].as_str()?.into(),
        folder: folder.to_owned(),
    })
}

/// The name in a package identifier: `path+file:///folder#name@version`, or `…/name#version`.
fn package(id: &str) -> Option<&str> {
    let (url, version) = id.rsplit_once('#')?;
    match version.split_once('@') {
        Some((name, _)) => Some(name),
        None => url.rsplit('/').next(),
    }
}

/// The last lines of a text.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// A program that takes longer is stuck.
const LONGEST: Duration = Duration::from_secs(20 * 60);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn programs_are_found_in_messages_of_cargo() {
        let message = |kind: &str, name: &str, test: bool| {
            serde_json::json!({
                "reason": "compiler-artifact",
                "package_id": "path+file:///tree/crates/lanes#widelane-lanes@0.1.0",
                "manifest_path": "/tree/crates/lanes/Cargo.toml",
                "target": { "kind": [kind], "name": name },
                "profile": { "test": test },
                "executable": "/tree/target/debug/deps/a-1",
            })
        };
        let name = |value| program(&value).map(|program| program.name);
        let unit = message("lib", "widelane_lanes", true);
        assert_eq!(name(unit).as_deref(), Some("widelane-lanes"));
        let of = message("test", "keys", true);
        assert_eq!(name(of).as_deref(), Some("widelane-lanes/keys"));
        assert_eq!(name(message("bin", "x", false)), None);
        assert_eq!(package("path+file:///tree/apps/widelane#0.1.0"), Some("widelane"));
    }

    /// A script stands for a test program.
    fn script(folder: &Path, name: &str, text: &str) -> Program {
        let file = folder.join(name);
        fs::write(&file, format!("#!/bin/sh\n{text}\n")).expect("writable");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("ours");
        Program {
            name: name.into(),
            file,
            folder: folder.to_owned(),
        }
    }

    #[test]
    fn every_program_runs_and_a_dead_one_counts_as_failed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let good = "echo 'test a ... ok <0.5s>'; echo \
                    'test result: ok. 1 passed; 0 failed; 0 ignored'";
        let programs = vec![
            script(folder.path(), "good", good),
            script(folder.path(), "alone", good),
            script(folder.path(), "dead", "echo something; kill -9 $$"),
        ];
        let tests = Tests {
            alone: vec!["alone".into()],
            ..Tests::default()
        };
        let outcomes = run(programs, &tests, &BTreeMap::new(), folder.path(), |_| {});
        let of = |name: &str| outcomes.iter().find(|one| one.name == name).expect(name);
        assert_eq!(outcomes.last().map(|one| &*one.name), Some("alone"));
        assert_eq!(of("good").results.passed, 1);
        assert_eq!(of("good").times, [("a".to_owned(), 0.5)]);
        assert_eq!(of("dead").results.failed, 1);
        let failure = of("dead").failure.as_deref().expect("it failed");
        assert!(
            failure.contains("signal: 9") && failure.contains("something"),
            "{failure}"
        );
    }

    #[test]
    fn choices_of_tests_reach_the_programs() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let program = script(folder.path(), "says", "echo \"$@\" $COLOUR");
        let tests = Tests {
            only: vec!["one".into()],
            skip: vec!["two".into()],
            ..Tests::default()
        };
        let environment = BTreeMap::from([("COLOUR".to_owned(), "red".to_owned())]);
        run(vec![program], &tests, &environment, folder.path(), |_| {});
        let said = fs::read_to_string(folder.path().join("says.log")).expect("its output");
        assert!(said.trim_end().ends_with("one --skip two red"), "{said}");
    }
}
