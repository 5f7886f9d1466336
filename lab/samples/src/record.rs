//! A record as it is read again.

use serde_json::Value;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// A file of JSON objects, one a line, whose first line says what ran, when, and on which machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The name it was read by.
    pub name: String,
    /// The first line.
    pub run: Value,
    /// Other lines that could be read.
    pub lines: Vec<Line>,
}

/// A line of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Number of the line in the file; the first line has 1.
    pub number: usize,
    /// Content of the line: a JSON object.
    pub value: Value,
}

/// Fault of a record, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The name of the record.
    pub record: String,
    /// The number of the line; `None` where the whole file is meant.
    pub line: Option<usize>,
    /// Description of the fault, and its effect on the reading of the record.
    pub what: String,
}

impl Record {
    /// Reads the file at `path`, which also is the record's name.
    ///
    /// There is no record where the file cannot be read, is longer than 64 MiB, or does not begin
    /// with the line of a run. Other faults leave out their line.
    pub fn read(path: &Path) -> (Option<Self>, Vec<Fault>) {
        let name = path.display().to_string();
        match bytes(path) {
            Ok(bytes) => Self::parse(&name, &bytes),
            Err(error) => (
                None,
                vec![Fault {
                    record: name,
                    line: None,
                    what: format!("cannot be read: {error}"),
                }],
            ),
        }
    }

    /// Parses a record from the bytes of its file.
    pub fn parse(name: &str, bytes: &[u8]) -> (Option<Self>, Vec<Fault>) {
        let mut faults = Faults::new(name);
        let mut run = None;
        let mut lines = Vec::new();
        for (index, text) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let number = index + 1;
            let text = text.trim_ascii();
            if text.is_empty() && number > 1 {
                continue;
            }
            match line(text) {
                Err(what) if number > 1 => faults.add(number, what),
                Ok(value) if number > 1 => lines.push(Line { number, value }),
                Ok(value) if value["kind"] == RUN => run = Some(value),
                Ok(_) | Err(_) => {
                    faults.add(number, NO_RUN.to_owned());
                    break;
                }
            }
        }
        let record = run.map(|run| Self {
            name: name.to_owned(),
            run,
            lines,
        });
        (record, faults.found())
    }

    /// Adds a line behind the others; one that says what ran becomes the first.
    pub fn push(&mut self, value: Value) {
        match value["kind"] == RUN {
            true => self.run = value,
            false => self.lines.push(Line {
                number: self.lines.len() + 2,
                value,
            }),
        }
    }

    /// The lines of a kind.
    pub fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Line> {
        self.lines.iter().filter(move |line| line.value["kind"] == kind)
    }

    /// Lines of none of `kinds`, each kind once, as faults.
    pub fn unknown(&self, kinds: &[&str]) -> Vec<Fault> {
        let mut seen: Vec<&Value> = Vec::new();
        let mut faults = Faults::new(&self.name);
        for line in &self.lines {
            let kind = &line.value["kind"];
            if kind.as_str().is_some_and(|kind| kinds.contains(&kind)) || seen.contains(&kind) {
                continue;
            }
            seen.push(kind);
            faults.add(
                line.number,
                match kind.as_str() {
                    Some(kind) => format!("the kind {kind:?} is not known; its lines are left out"),
                    None => "it has no kind; such lines are left out".to_owned(),
                },
            );
        }
        faults.found()
    }

    /// Returns whether the record has its last line: an interrupted run leaves a record without.
    pub fn is_complete(&self) -> bool {
        self.of(END).next().is_some()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.record)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// Faults of one record; those beyond a number that people read are counted.
struct Faults<'a> {
    record: &'a str,
    found: Vec<Fault>,
    more: usize,
}

impl<'a> Faults<'a> {
    fn new(record: &'a str) -> Self {
        Self {
            record,
            found: Vec::new(),
            more: 0,
        }
    }

    fn add(&mut self, line: usize, what: String) {
        if self.found.len() == MOST_FAULTS {
            self.more += 1;
            return;
        }
        self.found.push(Fault {
            record: self.record.to_owned(),
            line: Some(line),
            what,
        });
    }

    fn found(mut self) -> Vec<Fault> {
        if self.more > 0 {
            self.found.push(Fault {
                record: self.record.to_owned(),
                line: None,
                what: format!("{} more lines have faults", self.more),
            });
        }
        self.found
    }
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Whatever it is, it need not end.
    let file = File::open(path)?;
    file.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        let what = format!("it is longer than {} MiB", LONGEST >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(bytes)
}

fn line(text: &[u8]) -> Result<Value, String> {
    match serde_json::from_slice::<Value>(text) {
        Ok(value) if value.is_object() => Ok(value),
        Ok(_) => Err("it is not a JSON object; the line is left out".to_owned()),
        // The number of the line is that of the text that was given, always 1.
        Err(error) => Err(format!(
            "it is not JSON (column {}); the line is left out",
            error.column()
        )),
    }
}

const RUN: &str = "run";
const END: &str = "end";
const NO_RUN: &str = "it does not begin with a line of the kind \"run\", which says on which machine \
                      and of which commit it is; the record is left out";
const LONGEST: u64 = 64 << 20;
const MOST_FAULTS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    const RUN_LINE: &str = r#"{"kind":"run","machine":{}}"#;

    fn parse(text: &str) -> (Option<Record>, Vec<String>) {
        let (record, faults) = Record::parse("a.jsonl", text.as_bytes());
        (record, faults.iter().map(Fault::to_string).collect())
    }

    #[test]
    fn lines_keep_their_numbers_whatever_stands_between_them() {
        let text = format!("{RUN_LINE}\n{{\"kind\":\"x\"}}\n\n{{\"kind\n{{\"kind\":\"end\"}}\n");
        let (record, faults) = parse(&text);
        let record = record.expect("a record");
        let numbers: Vec<_> = record.lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers, [2, 5]);
        assert!(record.is_complete());
        assert_eq!(record.of("x").count(), 1);
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert!(fault.starts_with("a.jsonl:4: it is not JSON"), "{fault}");
    }

    #[test]
    fn without_its_first_line_there_is_no_record() {
        for text in ["", "\n", "{\"kind\":\"pair\"}\n", "[1]\n", "{", "7"] {
            let (record, faults) = parse(text);
            assert_eq!(record, None, "{text:?}");
            assert!(faults[0].starts_with("a.jsonl:1: "), "{faults:?}");
        }
    }

    #[test]
    fn unknown_kinds_are_reported_once_with_their_line() {
        let text = format!("{RUN_LINE}\n{{\"kind\":\"dance\"}}\n{{\"kind\":\"dance\"}}\n{{}}\n{{\"kind\":\"end\"}}");
        let (record, faults) = parse(&text);
        assert!(faults.is_empty(), "{faults:?}");
        let unknown = record.expect("a record").unknown(&["end"]);
        let shown: Vec<_> = unknown.iter().map(Fault::to_string).collect();
        assert_eq!(shown.len(), 2, "{shown:?}");
        assert!(shown[0].starts_with("a.jsonl:2: the kind \"dance\""));
        assert!(shown[1].starts_with("a.jsonl:4: it has no kind"));
    }

    #[test]
    fn many_faults_are_counted_and_not_all_reported() {
        let text = format!("{RUN_LINE}\n{}", "x\n".repeat(50));
        let (_, faults) = parse(&text);
        assert_eq!(faults.len(), MOST_FAULTS + 1);
        assert_eq!(faults[MOST_FAULTS], "a.jsonl: 30 more lines have faults");
    }

    #[test]
    fn files_that_cannot_be_read_are_faults() {
        let folder = tempfile::tempdir().expect("a folder");
        let missing = folder.path().join("missing.jsonl");
        for path in [missing.as_path(), folder.path()] {
            let (record, faults) = Record::read(path);
            assert_eq!(record, None);
            let fault = faults[0].to_string();
            assert!(fault.starts_with(&path.display().to_string()), "{fault}");
            assert!(fault.contains("cannot be read"), "{fault}");
        }
        let (record, faults) = Record::read(Path::new("/dev/zero"));
        assert_eq!(record, None);
        assert!(faults[0].what.contains("longer than 64 MiB"));
    }
}
