//! The file that a comparison leaves: raw samples, and all that is needed to judge them.

use crate::error::TrialError;
use crate::machine::{self, Tree, said};
use crate::stage::Stage;
use crate::state::Watch;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use widelane_samples::{Group, Kind, Source, Table};

/// A file of JSON objects, one a line, written as they come.
pub struct Record {
    path: PathBuf,
    file: File,
    /// The measured CPUs, whose state the last line has.
    watch: Option<Watch>,
    /// All that was written, for tables.
    written: widelane_samples::Record,
}

impl Record {
    /// A record whose first line says what was called, when, and on which machine. `what` distinguishes
    /// the file from others of the day.
    ///
    /// # Errors
    ///
    /// [`TrialError::Modified`] if the figures would belong to no commit, and
    /// [`TrialError::OtherProgram`] if they would belong to another one.
    pub fn begin(stage: &Stage, folder: &Path, what: &str, command: &str) -> Result<Self, TrialError> {
        if !stage.options.allow_modified {
            let tree = Tree::here();
            if let Some(reason) = tree.objection() {
                return Err(TrialError::Modified { reason });
            }
            for program in [&stage.options.widelane, &stage.options.lab] {
                if let Some(reason) = tree.objection_to(&said(program, &["--version"])) {
                    return Err(TrialError::OtherProgram {
                        program: program.clone(),
                        reason,
                    });
                }
            }
        }
        let started = machine::now(MOMENT);
        let machine = machine::describe(&stage.options)?;
        let watch = Watch::new(stage.options.server_cpu, stage.options.load_cpu);
        let before = watch.state()?;
        let mut record = Self::create(folder, &started, what)?;
        let conditions = stage.options.conditions.iter().map(|one| one.name());
        record.line(&json!({
            "kind": "run",
            "schema": SCHEMA,
            "command": command,
            "started": started,
            "machine": machine,
            "state": before,
            "conditions": conditions.collect::<Vec<_>>(),
            "notes": stage.options.notes,
        }))?;
        record.watch = Some(watch);
        Ok(record)
    }

    /// Adds a line, after a sample: looks at the measured CPUs, which compute nothing of ours now.
    ///
    /// # Errors
    ///
    /// When the file cannot be written, or this thread may not run on a measured CPU.
    pub fn line(&mut self, value: &Value) -> Result<(), TrialError> {
        if let Some(watch) = &mut self.watch {
            watch.look()?;
        }
        self.written.push(value.clone());
        writeln!(self.file, "{value}").map_err(record_failed)
    }

    /// The lines that were written so far, as they can be read again.
    pub(crate) fn written(&self) -> &widelane_samples::Record {
        &self.written
    }

    /// The table of the rows of a kind for which `wanted` holds.
    pub(crate) fn table(&self, kind: &Kind, wanted: impl Fn(&Group<'_>) -> bool) -> Table {
        kind.table_of(&self.written, &Source::of(&self.written, None), wanted)
    }

    /// The last line: what people were shown. Gives the file's path.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn end(mut self, summary: &str) -> Result<PathBuf, TrialError> {
        let ended = machine::now(MOMENT);
        let watch = self.watch.take();
        let during = watch.as_ref().map(Watch::during);
        let after = watch.as_ref().map(Watch::state).transpose()?;
        self.line(&json!({
            "kind": "end",
            "ended": ended,
            "during": during,
            "state": after,
            "summary": summary.lines().collect::<Vec<_>>(),
        }))?;
        Ok(self.path)
    }

    /// The name has the day, the CPU, `what` is compared, and from the second record of a name on a
    /// number: no run overwrites the record of another.
    fn create(folder: &Path, started: &str, what: &str) -> Result<Self, TrialError> {
        let date = started.split('T').next().unwrap_or(started);
        let name = slug(&format!("{date} {} {what}", machine::cpu_model()));
        fs::create_dir_all(folder).map_err(record_failed)?;
        let mut number = 1u32;
        loop {
            let ending = match number {
                1 => String::new(),
                _ => format!("-{number}"),
            };
            let path = folder.join(format!("{name}{ending}.jsonl"));
            match File::create_new(&path) {
                Ok(file) => {
                    return Ok(Self {
                        path,
                        file,
                        watch: None,
                        written: widelane_samples::Record::default(),
                    });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(record_failed(error)),
            }
        }
    }
}

fn record_failed(source: std::io::Error) -> TrialError {
    TrialError::machine("cannot write the record")(source)
}

/// A name as part of a file's name.
fn slug(name: &str) -> String {
    let parts = name.split(|c: char| !c.is_ascii_alphanumeric());
    let parts = parts.filter(|part| !part.is_empty()).map(str::to_ascii_lowercase);
    parts.collect::<Vec<_>>().join("-")
}

/// Format in which `date` writes a moment.
const MOMENT: &str = "+%Y-%m-%dT%H:%M:%SZ";
/// Raised when the meaning of a record's fields changes.
const SCHEMA: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_run_on_a_day_leaves_the_record_of_the_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let started = "2026-01-02T03:04:05Z";
        let mut paths = Vec::new();
        for text in ["one", "two", "three"] {
            let mut record = Record::create(folder.path(), started, "x").expect("a record");
            record.line(&json!(text)).expect("a line");
            paths.push(record.path);
        }
        let texts = paths.iter().map(|path| fs::read_to_string(path).expect("the record"));
        assert_eq!(texts.collect::<String>(), "\"one\"\n\"two\"\n\"three\"\n");
        assert!(paths[0].to_string_lossy().ends_with("-x.jsonl"));
        assert!(paths[2].to_string_lossy().ends_with("-x-3.jsonl"));
    }

    #[test]
    fn file_names_are_plain() {
        assert_eq!(slug("AMD EPYC 9B45 (x)"), "amd-epyc-9b45-x");
    }
}
