//! `widelane-lab speed` with a record: machine and commit beside the raw samples.

use crate::error::TrialError;
use crate::record::Record;
use crate::stage::Stage;
use serde_json::{Value, json};
use std::os::unix::process::CommandExt;
use std::process::Command;
use widelane_samples::kinds::SPEED;

/// Plan of a measurement of operations, with its duration.
#[derive(Clone, Debug)]
pub struct SpeedPlan {
    /// Operations, or groups of them; none means all.
    pub operations: Vec<String>,
    /// Seconds of each condition.
    pub seconds: f64,
}

/// Measures the operations of `plan` on the stage's CPU for servers by `widelane-lab speed`, for a record, and gives a
/// table.
///
/// # Errors
///
/// Whatever keeps `widelane-lab speed` from running, such as an operation that it does not know.
pub fn speed(
    stage: &Stage,
    plan: &SpeedPlan,
    record: &mut Record,
    mut progress: impl FnMut(&str),
) -> Result<String, TrialError> {
    progress("operations a second, batched and single");
    let mut command = Command::new(&stage.options.lab);
    // The program's lines contain its command line: the record needs no folder.
    command.arg0("widelane-lab");
    command.args(["speed", "--json", "--seconds", &plan.seconds.to_string()]);
    command.args(["--cpu", &stage.options.server_cpu.to_string(), "--"]);
    command.args(&plan.operations);
    let printed = stage.printed(&mut command)?;
    for line in String::from_utf8_lossy(&printed).lines() {
        let result: Value = serde_json::from_str(line).map_err(|source| TrialError::Figures {
            command: "widelane-lab speed".into(),
            source,
        })?;
        record.line(&json!({"kind": SPEED.kind, "result": result}))?;
    }
    Ok(record.table(&SPEED, |_| true).text())
}
