//! A run: its stages in order, and the sum of their results.

use crate::passes::Passes;
use crate::programs::{self, Outcome};
use crate::report::{Report, Verdict};
use crate::results::Results;
use crate::table::{Selection, Stage, Table, Tests, Tier, Work};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs what is selected. True if nothing failed.
///
/// Every stage runs even if an earlier one failed.
pub(crate) fn run(root: &Path, table: &Table, selection: &Selection) -> Result<bool, String> {
    let folder = target(root).join("stages");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut passes = Passes::read(root)?;
    let mut run = Run {
        root,
        folder: folder.clone(),
        report: Report::new(folder),
        programs: BTreeSet::new(),
    };
    let mut entered = None;
    let started = Instant::now();
    for tier in Tier::ALL {
        for stage in table.stages.iter().filter(|stage| stage.tier == tier) {
            let Some(reason) = wanted(root, &passes, selection, stage) else {
                continue;
            };
            if out_of_time(selection, tier, started.elapsed()) {
                run.report.no_time(stage);
                continue;
            }
            if entered != Some(tier) {
                set_up(root, tier)?;
                entered = Some(tier);
            }
            if run.stage(stage, &reason) && !stage.rooms.is_empty() {
                passes.record(root, stage);
                passes.write(root, table)?;
            }
        }
    }
    run.report.end()
}

/// Why a stage runs, or nothing if it does not run.
fn wanted(root: &Path, passes: &Passes, selection: &Selection, stage: &Stage) -> Option<String> {
    match selection {
        Selection::Stages(names) => names.contains(&stage.name).then(String::new),
        Selection::Tier(tier) if stage.tier <= *tier => Some(String::new()),
        Selection::Tier(Tier::Check) => {
            let changed = passes.changed(root, stage);
            (!changed.is_empty()).then(|| format!(", for {}", changed.join(" ")))
        }
        Selection::Tier(_) => None,
    }
}

/// Whether it is too late for a stage that only a changed room brings.
fn out_of_time(selection: &Selection, tier: Tier, elapsed: Duration) -> bool {
    matches!(selection, Selection::Tier(selected) if *selected < tier) && elapsed > BUDGET
}

struct Run<'a> {
    root: &'a Path,
    folder: PathBuf,
    report: Report,
    /// Names of test programs that stages have run with all their tests.
    programs: BTreeSet<String>,
}

impl Run<'_> {
    /// Runs a stage and reports it. True if it passed in full.
    fn stage(&mut self, stage: &Stage, reason: &str) -> bool {
        let started = Instant::now();
        self.report.begin(stage, reason);
        let missing = stage.needs.iter().find(|program| !is_here(program));
        let (verdict, results) = match (missing, &stage.work) {
            (Some(program), _) => {
                let reason = format!("{program} is not installed");
                (Verdict::NotHere(reason), Results::default())
            }
            (None, Work::Command(command)) => self.command(stage, command),
            (None, Work::Tests(tests)) => self.tests(stage, tests),
        };
        let allowed = |reason: &String| stage.may_skip.iter().any(|part| reason.contains(part));
        let full = matches!(verdict, Verdict::Passed)
            && (results.tests() == 0 || results.passed > 0)
            && results.reasons.keys().all(allowed);
        self.report.finish(stage, verdict, &results, started.elapsed());
        full
    }

    fn command(&self, stage: &Stage, command: &str) -> (Verdict, Results) {
        let log = self.folder.join(format!("{}.log", stage.name));
        let status = File::create(&log).and_then(|output| {
            let errors = output.try_clone()?;
            Command::new("bash")
                .args(["-euo", "pipefail", "-c", command])
                .envs(&stage.environment)
                .current_dir(self.root)
                .stdin(Stdio::null())
                .stdout(output)
                .stderr(errors)
                .status()
        });
        let output = fs::read(&log).unwrap_or_default();
        let output = String::from_utf8_lossy(&output);
        let mut results = Results::read(&output);
        let last = output.lines().last().unwrap_or_default().to_owned();
        let verdict = match status.map(|status| status.code()) {
            Ok(Some(0)) if results.failed == 0 => Verdict::Passed,
            Ok(Some(NOT_HERE)) => Verdict::NotHere(last),
            Ok(_) if results.tests() > 0 => {
                results.failed = results.failed.max(1);
                Verdict::Failed(crate::results::failures(&output))
            }
            Ok(_) => Verdict::Failed(programs::tail(&without_progress(&output), 200)),
            Err(error) => Verdict::Failed(format!("bash cannot be started: {error}")),
        };
        (verdict, results)
    }

    fn tests(&mut self, stage: &Stage, tests: &Tests) -> (Verdict, Results) {
        let log = self.folder.join(format!("{}.log", stage.name));
        let started = Instant::now();
        let mut programs = match programs::build(self.root, tests, &stage.environment, &log) {
            Ok(programs) => programs,
            Err(output) => {
                let shown = programs::tail(&without_progress(&output), 200);
                return (Verdict::Failed(shown), Results::default());
            }
        };
        let built: BTreeSet<&String> = programs.iter().map(|program| &program.name).collect();
        let named = tests.programs.iter().chain(&tests.later).chain(&tests.alone);
        if let Some(name) = named.into_iter().find(|name| !built.contains(name)) {
            let reason = format!("{name}, which the row names, is no program that it builds");
            return (Verdict::Failed(reason), Results::default());
        }
        programs.retain(|program| {
            let name = &program.name;
            (tests.programs.is_empty() || tests.programs.contains(name))
                && !tests.later.contains(name)
                && !(tests.rest && self.programs.contains(name))
        });
        self.report.built(stage, programs.len(), started.elapsed());
        let logs = self.folder.join(&stage.name);
        if let Err(error) = fs::create_dir_all(&logs) {
            return (
                Verdict::Failed(format!("{}: {error}", logs.display())),
                Results::default(),
            );
        }
        if tests.only.is_empty() {
            self.programs
                .extend(programs.iter().map(|program| program.name.clone()));
        }
        let report = &self.report;
        let done = |outcome: &Outcome| report.program(stage, outcome);
        let outcomes = programs::run(programs, tests, &stage.environment, &logs, done);
        let mut results = Results::default();
        let mut failures = String::new();
        for outcome in &outcomes {
            results.add(&outcome.results);
            failures.extend(outcome.failure.iter().map(|text| format!("{text}\n")));
            self.report.times(stage, outcome);
        }
        let verdict = if results.tests() == 0 {
            Verdict::Failed("no test ran: the row names no test of these programs".into())
        } else if failures.is_empty() {
            Verdict::Passed
        } else {
            Verdict::Failed(failures)
        };
        (verdict, results)
    }
}

/// Installs what a tier needs, or says what to install.
fn set_up(root: &Path, tier: Tier) -> Result<(), String> {
    let status = Command::new(root.join(".ci/setup")).arg(tier.name()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("what the stages of {} need is not here", tier.name())),
        Err(error) => Err(format!(".ci/setup cannot be started: {error}")),
    }
}

fn is_here(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.any(|folder| folder.join(program).is_file())
}

/// The output of cargo without its lines of progress.
fn without_progress(output: &str) -> String {
    let progress = ["Compiling ", "Checking ", "Downloaded ", "Downloading "];
    let kept = |line: &&str| !progress.iter().any(|word| line.trim_start().starts_with(word));
    output.lines().filter(kept).map(|line| format!("{line}\n")).collect()
}

fn target(root: &Path) -> PathBuf {
    root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// After so much time, `make check` begins no long stage that a changed room brings, so that it ends
/// within three quarters of an hour on two cores. Such a stage is counted as skipped, and stays one
/// that has not passed.
const BUDGET: Duration = Duration::from_secs(30 * 60);

/// The status with which a command says that it cannot run on this machine.
const NOT_HERE: i32 = 77;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn run(&self, stage: &Stage) -> (bool, String) {
            let mut run = Run {
                root: self.0.path(),
                folder: self.0.path().to_owned(),
                report: Report::new(self.0.path().to_owned()),
                programs: BTreeSet::new(),
            };
            let full = run.stage(stage, "");
            (full, run.report.last_line().to_owned())
        }
    }

    fn stage(command: &str) -> Stage {
        Stage {
            name: "one".into(),
            tier: Tier::CheckAll,
            does: String::new(),
            work: Work::Command(command.into()),
            environment: BTreeMap::new(),
            needs: Vec::new(),
            rooms: vec!["room".into()],
            may_skip: Vec::new(),
        }
    }

    #[test]
    fn a_stage_that_cannot_run_here_has_not_passed() {
        let tree = Tree(tempfile::tempdir().expect("a temporary folder"));
        let (full, line) = tree.run(&stage("echo no kernel; exit 77"));
        assert!(!full && line.contains("SKIP: no kernel"), "{line}");
        let (full, line) = tree.run(&Stage {
            needs: vec!["no-such-program".into()],
            ..stage("true")
        });
        assert!(
            !full && line.contains("SKIP: no-such-program is not installed"),
            "{line}"
        );
    }

    #[test]
    fn skipped_tests_keep_a_pass_from_being_full_unless_the_row_says_so() {
        let tree = Tree(tempfile::tempdir().expect("a temporary folder"));
        let output = "echo '---- a stdout ----'; echo 'SKIP: no valgrind'; \
                      echo 'test result: ok. 2 passed; 0 failed; 0 ignored'";
        let (full, line) = tree.run(&stage(output));
        assert!(!full && line.contains("1 passed, 0 failed, 1 skipped"), "{line}");
        let (full, _) = tree.run(&Stage {
            may_skip: vec!["valgrind".into()],
            ..stage(output)
        });
        assert!(full);
    }

    #[test]
    fn a_command_that_fails_is_reported_with_what_it_printed() {
        let tree = Tree(tempfile::tempdir().expect("a temporary folder"));
        let (full, line) = tree.run(&stage("echo '  Compiling x'; echo the reason; exit 1"));
        assert!(!full && line.contains("FAILED"), "{line}");
        let (full, _) = tree.run(&stage("exit 0"));
        assert!(full);
    }

    #[test]
    fn a_tier_has_the_tiers_before_it_and_check_has_stages_of_changed_rooms() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let passes = Passes::default();
        let of = |tier, rooms: &[&str]| Stage {
            tier,
            rooms: rooms.iter().map(|&room| room.to_owned()).collect(),
            ..stage("true")
        };
        let runs =
            |selected, stage: &Stage| wanted(folder.path(), &passes, &Selection::Tier(selected), stage).is_some();
        assert!(runs(Tier::Check, &of(Tier::Test, &[])));
        assert!(!runs(Tier::Test, &of(Tier::Check, &[])));
        assert!(!runs(Tier::Check, &of(Tier::CheckAll, &[])));
        assert!(!runs(Tier::Test, &of(Tier::CheckAll, &["room"])));
        assert!(runs(Tier::Check, &of(Tier::CheckAll, &["room"])), "it has never passed");
        assert!(runs(Tier::CheckAll, &of(Tier::CheckAll, &[])));
    }

    #[test]
    fn only_stages_of_changed_rooms_have_a_limit_of_time() {
        let late = |selection, tier| out_of_time(&selection, tier, 2 * BUDGET);
        assert!(late(Selection::Tier(Tier::Check), Tier::CheckAll));
        assert!(!out_of_time(&Selection::Tier(Tier::Check), Tier::CheckAll, BUDGET / 2));
        assert!(!late(Selection::Tier(Tier::Check), Tier::Check));
        assert!(!late(Selection::Tier(Tier::CheckAll), Tier::CheckAll));
        assert!(!late(Selection::Stages(vec!["one".into()]), Tier::CheckAll));
    }
}
