//! `widelane-lab timing` with a record: machine and commit beside its findings.

use crate::error::TrialError;
use crate::record::Record;
use crate::stage::Stage;
use crate::summary::{table, whole};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// Plan of the measurement of each operation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TimingPlan {
    /// Seconds for each operation.
    pub seconds: f64,
    /// Folder of the record.
    pub records: PathBuf,
    /// Command line of this call, for the record.
    pub command: String,
}

impl TimingPlan {
    /// Twenty seconds each.
    pub fn new(records: PathBuf, command: String) -> Self {
        Self {
            seconds: 20.0,
            records,
            command,
        }
    }
}

/// Measures whether times depend on secrets, on the stage's CPU for servers; gives the record's path
/// and a table.
///
/// # Errors
///
/// Whatever keeps `widelane-lab timing` from running, and that it did not find its planted leak.
pub fn timing(
    stage: &Stage,
    plan: &TimingPlan,
    mut progress: impl FnMut(&str),
) -> Result<(PathBuf, String), TrialError> {
    let (mut record, _) = Record::begin(stage, &plan.records, "timing", &plan.command)?;
    progress("whether times depend on secrets");
    let mut command = Command::new(&stage.options.lab);
    command.arg0("widelane-lab");
    command.args(["timing", "--json", "--seconds", &plan.seconds.to_string()]);
    command.args(["--cpu", &stage.options.server_cpu.to_string()]);
    let printed = stage.printed(&mut command)?;
    let titles = ["operation", "measurements", "max |t|", "in", "verdict"];
    let mut rows = vec![titles.map(String::from).to_vec()];
    for line in String::from_utf8_lossy(&printed).lines() {
        let finding: Value = serde_json::from_str(line).map_err(|source| TrialError::Figures {
            command: "widelane-lab timing".into(),
            source,
        })?;
        let word = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        rows.push(vec![
            word("operation"),
            whole(finding["measurements"].as_f64()),
            largest_t(&finding),
            word("test"),
            word("verdict"),
        ]);
        record.line(&json!({"kind": TIMING, "finding": finding}))?;
    }
    let table = table(&rows);
    Ok((record.end(&table)?, table))
}

/// The largest |t| of a finding.
pub(crate) fn largest_t(finding: &Value) -> String {
    let t = finding["t"].as_f64();
    t.map_or("n/a".into(), |t| format!("{t:.1}"))
}

/// The kind of line with a finding.
pub(crate) const TIMING: &str = "timing";
