//! The lines of a run, and the file with the time of every test.

use crate::programs::Outcome;
use crate::results::Results;
use crate::table::{Stage, Table};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How a stage ended.
#[derive(Debug)]
pub(crate) enum Verdict {
    Passed,
    /// With what a person reads first.
    Failed(String),
    /// It cannot run on this machine, with the reason.
    NotHere(String),
}

/// Prints a run as it goes on, and adds up its results.
#[derive(Debug)]
pub(crate) struct Report {
    started: Instant,
    /// For the file of times.
    folder: PathBuf,
    sum: Results,
    /// Seconds, stage, program and test.
    times: Vec<(f64, String)>,
    last_line: String,
}

impl Report {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self {
            started: Instant::now(),
            folder,
            sum: Results::default(),
            times: Vec::new(),
            last_line: String::new(),
        }
    }

    pub(crate) fn begin(&self, stage: &Stage, reason: &str) {
        eprintln!("{}: {}{reason}", stage.name, stage.does);
    }

    pub(crate) fn built(&self, stage: &Stage, programs: usize, took: Duration) {
        let (name, seconds) = (&stage.name, took.as_secs());
        eprintln!("{name}: {programs} test programs, built in {seconds} s");
    }

    pub(crate) fn program(&self, stage: &Stage, outcome: &Outcome) {
        let Results {
            passed,
            failed,
            skipped,
            ..
        } = outcome.results;
        let (stage, name, seconds) = (&stage.name, &outcome.name, outcome.seconds);
        eprintln!(
            "{stage}: {seconds:6.1} s  {name}: {passed} passed, {failed} failed, \
                   {skipped} skipped"
        );
    }

    pub(crate) fn times(&mut self, stage: &Stage, outcome: &Outcome) {
        for (test, seconds) in &outcome.times {
            self.times
                .push((*seconds, format!("{}\t{}\t{test}", stage.name, outcome.name)));
        }
    }

    /// Prints the line of a stage, and what failed.
    pub(crate) fn finish(&mut self, stage: &Stage, verdict: Verdict, results: &Results, took: Duration) {
        let mut reasons = BTreeMap::new();
        for (reason, times) in &results.reasons {
            reasons.insert(format!("{}: {reason}", stage.name), *times);
        }
        let counted = results.tests() > 0;
        let mut sum = Results {
            reasons,
            ..results.clone()
        };
        let counts = format!(
            "{} passed, {} failed, {} skipped",
            results.passed, results.failed, results.skipped
        );
        let says = match &verdict {
            _ if counted => counts,
            Verdict::Passed => "ok".into(),
            Verdict::Failed(_) => "FAILED".into(),
            Verdict::NotHere(reason) => format!("SKIP: {reason}"),
        };
        // A stage that is not made of tests counts as one.
        if !counted {
            match &verdict {
                Verdict::Passed => sum.passed += 1,
                Verdict::Failed(_) => sum.failed += 1,
                Verdict::NotHere(reason) => {
                    sum.skipped += 1;
                    sum.reasons.insert(format!("{}: {reason}", stage.name), 1);
                }
            }
        }
        self.sum.add(&sum);
        self.last_line = format!("{:<22} {:4} s  {says}", stage.name, took.as_secs());
        // What tests of this print would count as results of their own.
        if cfg!(test) {
            return;
        }
        println!("{}", self.last_line);
        if let Verdict::Failed(shown) = verdict {
            println!("---- {}\n{}\n----", stage.name, shown.trim_end());
        }
    }

    /// Reports a stage for which the run has no time left.
    pub(crate) fn no_time(&mut self, stage: &Stage) {
        let reason = "no time is left; run it by itself, or `make check-all`".to_owned();
        let nothing = Results::default();
        self.finish(stage, Verdict::NotHere(reason), &nothing, Duration::ZERO);
    }

    /// Prints the sum and the slowest tests. True if nothing failed.
    pub(crate) fn end(mut self) -> Result<bool, String> {
        self.times.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let mut text = String::from("seconds\tstage\tprogram\ttest\n");
        for (seconds, test) in &self.times {
            let _ = writeln!(text, "{seconds:.3}\t{test}");
        }
        let file = self.folder.join("times.tsv");
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        if !self.times.is_empty() {
            println!("\nThe slowest tests; all of them are in {}:", file.display());
            for (seconds, test) in self.times.iter().take(SLOWEST) {
                println!("  {seconds:6.1} s  {}", test.replace('\t', "  "));
            }
        }
        if !self.sum.reasons.is_empty() {
            println!("\nSkipped, with how often, because this machine lacks something:");
            for (reason, times) in &self.sum.reasons {
                println!("  {times:4}  {reason}");
            }
        }
        let Results {
            passed,
            failed,
            skipped,
            ..
        } = self.sum;
        println!("\n{} s in all", self.started.elapsed().as_secs());
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        Ok(failed == 0)
    }

    #[cfg(test)]
    pub(crate) fn last_line(&self) -> &str {
        &self.last_line
    }
}

/// Prints the stages with the tier of each.
pub(crate) fn list(table: &Table) {
    for stage in &table.stages {
        println!("{:<10} {:<22} {}", stage.tier.name(), stage.name, stage.does);
    }
}

const SLOWEST: usize = 30;
