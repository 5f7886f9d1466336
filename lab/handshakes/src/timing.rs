//! `widelane-lab timing` with a record: machine and commit beside its findings.

use crate::error::TrialError;
use crate::record::Record;
use crate::stage::Stage;
use serde_json::{Value, json};
use std::os::unix::process::CommandExt;
use std::process::Command;
use widelane_samples::kinds::TIMING;

/// Measures for some seconds each whether times of operations depend on secrets, on the stage's CPU for servers by
/// `widelane-lab timing`, for a record, and gives a table.
///
/// # Errors
///
/// Whatever keeps `widelane-lab timing` from running, and that it did not find its planted leak.
pub fn timing(
    stage: &Stage,
    seconds: f64,
    record: &mut Record,
    mut progress: impl FnMut(&str),
) -> Result<String, TrialError> {
    progress("whether times depend on secrets");
    let mut command = Command::new(&stage.options.lab);
    command.arg0("widelane-lab");
    command.args(["timing", "--json", "--seconds", &seconds.to_string()]);
    command.args(["--cpu", &stage.options.server_cpu.to_string()]);
    let printed = stage.printed(&mut command)?;
    for line in String::from_utf8_lossy(&printed).lines() {
        let finding: Value = serde_json::from_str(line).map_err(|source| TrialError::Figures {
            command: "widelane-lab timing".into(),
            source,
        })?;
        record.line(&json!({"kind": TIMING.kind, "finding": finding}))?;
    }
    Ok(record.table(&TIMING, |_| true).without(&["classes"]).text())
}
