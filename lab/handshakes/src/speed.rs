//! `widelane-lab speed` with a record: machine and commit beside the raw samples.

use crate::error::TrialError;
use crate::record::Record;
use crate::stage::Stage;
use crate::summary::{table, whole};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// Plan of a measurement of operations, with its duration.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SpeedPlan {
    /// Operations, or groups of them; none means all.
    pub operations: Vec<String>,
    /// Seconds of each condition.
    pub seconds: f64,
    /// Folder of the record.
    pub records: PathBuf,
    /// Command line of this call, for the record.
    pub command: String,
}

impl SpeedPlan {
    /// All operations: six minutes.
    pub fn new(records: PathBuf, command: String) -> Self {
        Self {
            operations: Vec::new(),
            seconds: 0.4,
            records,
            command,
        }
    }
}

/// Measures the operations of `plan` on the stage's CPU for servers; gives the record's path and a
/// table.
///
/// # Errors
///
/// Whatever keeps `widelane-lab speed` from running, such as an operation that it does not know.
pub fn speed(
    stage: &Stage,
    plan: &SpeedPlan,
    mut progress: impl FnMut(&str),
) -> Result<(PathBuf, String), TrialError> {
    let (mut record, _) = Record::begin(stage, &plan.records, "speed", &plan.command)?;
    progress("operations a second, batched and single");
    let table = measure(stage, &plan.operations, plan.seconds, &mut record)?;
    Ok((record.end(&table)?, table))
}

/// Runs `widelane-lab speed`; its lines go into `record`, the most important of them into a table.
pub(crate) fn measure(
    stage: &Stage,
    operations: &[String],
    seconds: f64,
    record: &mut Record,
) -> Result<String, TrialError> {
    let mut command = Command::new(&stage.options.lab);
    // The program's lines contain its command line: the record needs no folder.
    command.arg0("widelane-lab");
    command.args(["speed", "--json", "--seconds", &seconds.to_string()]);
    command.args(["--cpu", &stage.options.server_cpu.to_string(), "--"]);
    command.args(operations);
    let printed = stage.printed(&mut command)?;
    let titles = ["operation", "backend", "in flight", "ops/s", "latency us"];
    let mut rows = vec![titles.map(String::from).to_vec()];
    for line in String::from_utf8_lossy(&printed).lines() {
        let result: Value = serde_json::from_str(line).map_err(|source| TrialError::Figures {
            command: "widelane-lab speed".into(),
            source,
        })?;
        if let (Some(operation), Some(backend)) =
            (result["operation"].as_str(), result["backend"].as_str())
        {
            rows.push(vec![
                operation.into(),
                backend.into(),
                result["in_flight"].to_string(),
                whole(result["ops_per_s"].as_f64()),
                whole(result["latency_us"].as_f64()),
            ]);
        }
        record.line(&json!({"kind": "speed", "result": result}))?;
    }
    Ok(table(&rows))
}
