//! The file that a comparison leaves: raw samples, and all that is needed to judge them.

use crate::machine;
use crate::stage::{Stage, TrialError};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A file of JSON objects, one a line, written as they come.
pub(crate) struct Record {
    path: PathBuf,
    file: File,
}

impl Record {
    /// Named after the day, the CPU and `what` is compared.
    pub(crate) fn create(folder: &Path, started: &str, what: &str) -> Result<Self, TrialError> {
        let date = started.split('T').next().unwrap_or(started);
        let name = slug(&format!("{date} {} {what}", machine::cpu_model()));
        let path = folder.join(format!("{name}.jsonl"));
        let file = fs::create_dir_all(folder).and_then(|()| File::create(&path));
        let file = file.map_err(record_failed)?;
        Ok(Self { path, file })
    }

    /// The first line: what was called, when, and on which machine.
    pub(crate) fn begin(
        &mut self,
        stage: &Stage,
        command: &str,
        started: &str,
        machine: &Value,
    ) -> Result<(), TrialError> {
        let conditions = stage.options.conditions.iter().map(|one| one.id());
        self.line(&json!({
            "kind": "run",
            "schema": SCHEMA,
            "command": command,
            "started": started,
            "machine": machine,
            "conditions": conditions.collect::<Vec<_>>(),
            "notes": stage.options.notes,
        }))
    }

    pub(crate) fn line(&mut self, value: &Value) -> Result<(), TrialError> {
        writeln!(self.file, "{value}").map_err(record_failed)
    }

    /// The last line: what people were shown. Gives the file's path.
    pub(crate) fn end(mut self, summary: &str) -> Result<PathBuf, TrialError> {
        self.line(&json!({
            "kind": "end",
            "ended": machine::now(MOMENT),
            "load_average": fs::read_to_string("/proc/loadavg").ok(),
            "summary": summary.lines().collect::<Vec<_>>(),
        }))?;
        Ok(self.path)
    }
}

fn record_failed(source: std::io::Error) -> TrialError {
    TrialError::Machine {
        what: "cannot write the record",
        source,
    }
}

/// A name as part of a file's name.
fn slug(name: &str) -> String {
    let mut slug = String::new();
    for part in name.split(|c: char| !c.is_ascii_alphanumeric()) {
        if !part.is_empty() {
            if !slug.is_empty() {
                slug.push('-');
            }
            slug.push_str(&part.to_ascii_lowercase());
        }
    }
    slug
}

/// How `date` is to write a moment.
pub(crate) const MOMENT: &str = "+%Y-%m-%dT%H:%M:%SZ";
/// Raised when the meaning of a record's fields changes.
const SCHEMA: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_plain() {
        assert_eq!(slug("AMD EPYC 9B45 (x)"), "amd-epyc-9b45-x");
    }
}
