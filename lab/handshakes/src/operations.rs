//! `widelane-lab speed` and `widelane-lab timing` with a record: machine and commit beside their lines.

use crate::error::TrialError;
use crate::record::Record;
use crate::stage::Stage;
use serde_json::{Value, json};
use std::os::unix::process::CommandExt;
use std::process::Command;
use widelane_samples::kinds::{SPEED, TIMING};

/// Operations on the servers' CPU, by `widelane-lab speed`; writes a record
///
/// Example: widelane-lab handshakes speed x25519 mlkem768 --seconds 0.2
#[derive(Clone, Debug, clap::Args)]
pub struct SpeedPlan {
    /// Operations or groups of them, as `widelane-lab speed --list` names them [default: all]
    pub operations: Vec<String>,
    /// Seconds of each condition
    #[arg(long, default_value_t = 0.4)]
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
    for result in lines(stage, "speed", plan.seconds, &plan.operations)? {
        record.line(&json!({"kind": SPEED.kind, "result": result}))?;
    }
    Ok(record.table(&SPEED, |_| true).text())
}

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
    for finding in lines(stage, "timing", seconds, &[])? {
        record.line(&json!({"kind": TIMING.kind, "finding": finding}))?;
    }
    Ok(record.table(&TIMING, |_| true).without(&["classes"]).text())
}

/// Lines of JSON that a command of `widelane-lab` prints.
fn lines(stage: &Stage, name: &'static str, seconds: f64, operations: &[String]) -> Result<Vec<Value>, TrialError> {
    let mut command = Command::new(&stage.options.lab);
    // The program's lines contain its command line: the record needs no folder.
    command.arg0("widelane-lab");
    command.args([name, "--json", "--seconds", &seconds.to_string()]);
    command.args(["--cpu", &stage.options.server_cpu.to_string(), "--"]);
    let printed = stage.printed(command.args(operations))?;
    let lines = serde_json::Deserializer::from_slice(&printed).into_iter();
    lines.collect::<Result<_, _>>().map_err(|source| TrialError::Figures {
        command: format!("widelane-lab {name}"),
        source,
    })
}
