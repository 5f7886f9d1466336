//! Renders the request of a mark as Markdown.
//!
//! | mark | gives |
//! | --- | --- |
//! | `pair RECORD [FIELD…]` | a table: both servers, quotient and interval |
//! | `gains LANES=RECORD…` | a table: the quotients of a pair by CPU and kind of lanes, `_` for a space |
//! | `ways-in RECORD` | a table: unmodified servers with and without Widelane |
//! | `closed RECORD` | a table: every server with many connections in flight |
//! | `open RECORD` | a table: latency at a given rate |
//! | `curve RECORD` | a table: latency against load |
//! | `memory RECORD` | a table: bytes of an idle connection |
//! | `speed RECORD` | a table: single operations beside other libraries |
//! | `timing RECORD` | a table: whether times depend on secrets |
//! | `source RECORD` | machine, commit and command, in a line |
//! | `quotient RECORD CONDITION FIELD` | one number: the quotient of a pair |
//! | `median RECORD CONDITION SERVER FIELD` | one number, of a pair or a closed loop |
//! | `times RECORD OPERATION` | one number: our rate by AWS-LC's |

use crate::drive::SERVER_CPU;
use serde_json::Value;
use std::path::Path;
use std::rc::Rc;
use widelane_samples::kinds::{
    CLOSED, CURVE, FIELDS, Field, MEMORY, OPEN, PAIR, Pair, TIMING, WAYS_IN,
};
use widelane_samples::{
    Figure, Record, Source, TIMES, Table, Unit, beside_peers, cell, groups, plain, text,
};

/// Renders the request in `mark`. Tables come with the line breaks that set them apart.
pub(super) fn render(root: &Path, up: &str, mark: &str) -> Result<String, String> {
    let words: Vec<_> = mark.split_whitespace().collect();
    let [kind, name, rest @ ..] = words.as_slice() else {
        return Err("a mark has a kind and a record".into());
    };
    if *kind == "gains" {
        return block(gains(root, up, &words[1..])?);
    }
    let (record, source) = read(root, up, name)?;
    match (*kind, rest) {
        ("pair", fields) => {
            let fields: Result<Vec<_>, _> = fields.iter().map(|name| field(name)).collect();
            let fields = Some(fields?).filter(|fields| !fields.is_empty());
            let fields = fields.unwrap_or_else(|| FIELDS[..2].to_vec());
            let table = pair(&record)?.table(&record, &source, &fields);
            block(table.without(&["in flight"]))
        }
        ("ways-in", []) => block(WAYS_IN.table(&record, &source)),
        ("closed", []) => {
            let many = CLOSED.table_of(&record, &source, |row| row.key[1] != 1);
            block(many.without(&["in flight", "CPU time × nginx", "load's CPU"]))
        }
        ("open", []) => block(OPEN.table(&record, &source)),
        ("curve", []) => block(CURVE.table(&record, &source)),
        ("memory", []) => block(
            MEMORY
                .table(&record, &source)
                .without(&["PSS before", "PSS with"]),
        ),
        ("speed", []) => block(speed(&record, &source)),
        ("timing", []) => block(TIMING.table(&record, &source).without(&["in", "verdict"])),
        ("source", []) => Ok(sentence(&record, &source)),
        ("quotient", [condition, name]) => {
            let quotient = quotient(&record, &source, condition, field(name)?);
            quotient.map(|figure| figure.shown())
        }
        ("median", [condition, side, name]) => {
            let (place, _, _) = field(name)?;
            let of = |kind| {
                let mut groups = groups(&record, kind, &["/condition", "/side", "/in_flight"]);
                // A closed loop is shown with many in flight; a pair has one number of them.
                groups.retain(|one| (one.word(0), one.word(1)) == (condition, side));
                let most = groups.into_iter().max_by_key(|one| one.key[2].as_u64())?;
                Figure::median("", Unit::Count, &most.lines, place, &source)
            };
            one(of(PAIR)
                .or_else(|| of(CLOSED.kind))
                .map(|figure| figure.shown()))
        }
        ("times", [operation]) => one(times(&record, operation)),
        _ => Err(format!(
            "{kind:?} with {} more words is no mark",
            rest.len()
        )),
    }
}

/// The record at `name` below `root`, without a fault: no figure of a document stands on a record with a hole.
fn read(root: &Path, up: &str, name: &str) -> Result<(Record, Rc<Source>), String> {
    let bytes = std::fs::read(root.join(name)).map_err(|error| format!("{name}: {error}"))?;
    let (record, faults) = Record::parse(name, &bytes);
    if let Some(fault) = faults.first() {
        return Err(fault.to_string());
    }
    let record = record.ok_or_else(|| format!("{name} is not a record"))?;
    let source = Source::of(&record, Some(format!("{up}{name}")));
    Ok((record, source))
}

fn block(table: Table) -> Result<String, String> {
    match table.rows.is_empty() {
        true => Err("the record has no such lines".into()),
        false => Ok(format!("\n{}\n", table.markdown())),
    }
}

/// A row for each record of a pair, `LANES=RECORD`.
fn gains(root: &Path, up: &str, records: &[&str]) -> Result<Table, String> {
    let head = [
        "CPU",
        "lanes",
        "RSA-2048: handshakes/s",
        "CPU time each",
        "ECDSA P-256: handshakes/s",
        "CPU time each",
    ];
    let mut table = Table::new(head.map(text), None);
    for word in records {
        let (lanes, name) = word
            .split_once('=')
            .ok_or_else(|| format!("{word} is not LANES=RECORD"))?;
        let (record, source) = read(root, up, name)?;
        let mut row = vec![
            cell(format!("[{}]({up}{name})", source.machine)),
            cell(lanes.replace('_', " ")),
        ];
        for condition in ["rsa-x25519", "ecdsa-x25519"] {
            for name in ["handshakes_per_s", SERVER_CPU] {
                let figure = quotient(&record, &source, condition, field(name)?)?;
                row.push(cell(format!("{} ×", figure.shown())));
            }
        }
        table.rows.push(row);
    }
    Ok(table)
}

/// Source of the figures, in one sentence or a few.
fn sentence(record: &Record, source: &Source) -> String {
    let load = record.run["machine"]["load_average_at_start"].as_str();
    let load = load.and_then(|load| load.split(' ').next());
    let modified = record.run["machine"]["modified"] != false;
    let kinds = [PAIR, CLOSED.kind, WAYS_IN.kind];
    let lines = kinds.iter().flat_map(|kind| record.of(kind));
    let last = lines.filter_map(|line| line.value["round"].as_u64()).max();
    let rounds = last.map(|last| format!(" Medians of {} rounds.", last + 1));
    format!(
        "{}{}, {}, commit {}{}; load average at the start {}. Record: [{}]({}) of `{}`.{}",
        source.machine,
        if source.virtual_machine {
            ", virtual machine"
        } else {
            ""
        },
        source.date,
        source.short_commit(),
        if modified {
            ", **with changes that the commit does not have**"
        } else {
            ""
        },
        load.unwrap_or("unknown"),
        source.name,
        source.link.as_deref().unwrap_or_default(),
        source.command,
        rounds.unwrap_or_default(),
    )
}

fn pair(record: &Record) -> Result<Pair<'_>, String> {
    Pair::of(record).ok_or_else(|| "it is no record of a pair".to_owned())
}

/// Quotient of a pair under one condition.
fn quotient(
    record: &Record,
    source: &Rc<Source>,
    condition: &str,
    (place, ..): Field,
) -> Result<Figure, String> {
    let pair = pair(record)?;
    let turns = pair.turns.iter().find(|turns| turns.word(0) == condition);
    let figure = turns.and_then(|turns| pair.quotient("", turns, place, source));
    figure.ok_or_else(|| format!("{} has no pairs of {condition}", record.name))
}

/// Operations that were measured in lanes, with the multiples that the record has.
fn speed(record: &Record, source: &Rc<Source>) -> Table {
    let mut table = beside_peers(record, source);
    table.rows.retain_mut(|row| {
        let multiple = times(record, &plain(&row[0]));
        row[TIMES] = cell(multiple.clone().unwrap_or_default());
        multiple.is_some()
    });
    table
}

/// Multiple of AWS-LC's rate.
fn times(record: &Record, operation: &str) -> Option<String> {
    let times = ours(record, operation)?["times_aws_lc"].as_f64()?;
    Some(Unit::Tenths.shown(times))
}

/// Our figure for an operation: with eight in flight in 512-bit registers; the widest form where one
/// message fills the lanes.
fn ours<'a>(record: &'a Record, operation: &str) -> Option<&'a Value> {
    let of = |backend: &str, in_flight: u64| {
        let results = record.of("speed").map(|line| &line.value["result"]);
        let mut wanted = results.filter(|result| {
            result["operation"] == operation
                && result["backend"] == backend
                && result["in_flight"] == in_flight
        });
        wanted.next()
    };
    of("avx512ifma", 8)
        .or_else(|| of("512-ifma", 1))
        .filter(|row| row["ops_per_s"].is_number())
}

/// A field of a report.
fn field(name: &str) -> Result<Field, String> {
    let known = FIELDS
        .into_iter()
        .find(|(place, ..)| place.rsplit('/').next() == Some(name));
    known.ok_or_else(|| format!("there is no field {name:?} in tables"))
}

fn one(figure: Option<String>) -> Result<String, String> {
    figure.ok_or_else(|| "the record has no such figure".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A pair of eight rounds in which one server is three times as fast.
    fn record() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let run = json!({"kind": "run", "schema": 4, "started": "2026-01-02T03:04:05Z",
            "command": "handshakes pair widelane-on nginx",
            "machine": {"cpu": "A CPU", "commit": "0123456789", "modified": false,
                "load_average_at_start": "0.10 0.2 0.3 1/2 3",
                "nginx": ["nginx version: nginx/1.2.3", "built with OpenSSL 3.0.1 1 Jan 2026"]}});
        let mut text = format!("{run}\n");
        for round in 0..8 {
            for (side, rate) in [
                ("nginx", 1000.4 + f64::from(round)),
                ("widelane-on", 3001.2),
            ] {
                let report = json!({"handshakes_per_s": rate, SERVER_CPU: 1e6 / rate});
                let line = json!({"kind": "pair", "condition": "rsa-x25519", "side": side,
                    "round": round, "in_flight": 64, "report": report});
                text.push_str(&format!("{line}\n"));
            }
        }
        for (side, rate) in [("nginx", 1000.0), ("widelane-on", 4000.0)] {
            let report = json!({"handshakes_per_s": rate, SERVER_CPU: 1e6 / rate});
            let line = json!({"kind": "pair", "condition": "ecdsa-x25519", "side": side,
                "round": 0, "in_flight": 64, "report": report});
            text.push_str(&format!("{line}\n"));
        }
        for round in 0..8 {
            for (side, rate) in [("plain", 500.0), ("widelane", 1500.0)] {
                let report = json!({"handshakes_per_s": rate, SERVER_CPU: 1e6 / rate, "errors": 1});
                let line = json!({"kind": "ways-in", "server": "haproxy", "side": side,
                    "condition": "rsa-x25519", "in_flight": 16, "round": round, "report": report});
                text.push_str(&format!("{line}\n"));
            }
        }
        let result = json!({"operation": "x", "backend": "avx512ifma", "in_flight": 8,
            "ops_per_s": 4000.0, "times_aws_lc": 4.04});
        text.push_str(&format!("{}\n", json!({"kind": "speed", "result": result})));
        let finding = json!({"operation": "y", "classes": ["one", "two"], "measurements": 5000,
            "t": 2.345});
        text.push_str(&format!(
            "{}\n",
            json!({"kind": "timing", "finding": finding})
        ));
        std::fs::write(folder.path().join("r.jsonl"), text).expect("written");
        folder
    }

    #[test]
    fn figures_are_those_of_the_record() {
        let folder = record();
        let of = |mark: &str| render(folder.path(), "", mark);
        let table = of("pair r.jsonl").expect("a table");
        let expected = "| RSA-2048, X25519: handshakes/s | 3,001 | 1,004 | 2.99 | 2.98 to 3.00 |";
        assert!(table.contains(expected), "{table}");
        assert!(table.contains("nginx 1.2.3 (OpenSSL 3.0.1)"), "{table}");
        assert!(table.contains("| 333 µs | 996 µs | 0.33 |"), "{table}");
        let table = of("ways-in r.jsonl").expect("a table");
        let expected = "| HAProxy, RSA-2048, X25519 | 16 | 500 | 1,500 | 3.00 | 3.00 to 3.00 \
                        | 2,000 µs | 667 µs | 0.33 | 0.33 to 0.33 | 16 |";
        assert!(table.contains(expected), "{table}");
        let table = of("gains AVX-512_IFMA=r.jsonl").expect("a table");
        let expected = "| [A CPU](r.jsonl) | AVX-512 IFMA | 2.99 × | 0.33 × | 4.00 × | 0.25 × |";
        assert!(table.contains(expected), "{table}");
        let quotient = of("quotient r.jsonl rsa-x25519 handshakes_per_s");
        assert_eq!(quotient.as_deref(), Ok("2.99"));
        let median = of("median r.jsonl rsa-x25519 nginx handshakes_per_s");
        assert_eq!(median.as_deref(), Ok("1,004"));
        assert_eq!(of("times r.jsonl x").as_deref(), Ok("4.0"));
        let table = of("timing r.jsonl").expect("a table");
        assert!(
            table.contains("| `y` | one; two | 5,000 | 2.3 |"),
            "{table}"
        );
        let source = of("source r.jsonl").expect("a source");
        assert!(source.contains("commit 0123456;"), "{source}");
        assert!(source.contains("[r.jsonl](r.jsonl)"), "{source}");
    }

    #[test]
    fn a_record_of_a_modified_tree_says_so() {
        let folder = record();
        let file = folder.path().join("r.jsonl");
        let text = std::fs::read_to_string(&file).expect("a record");
        std::fs::write(
            &file,
            text.replace("\"modified\":false", "\"modified\":true"),
        )
        .expect("written");
        let source = render(folder.path(), "", "source r.jsonl").expect("a source");
        assert!(
            source.contains("**with changes that the commit does not have**"),
            "{source}"
        );
    }

    #[test]
    fn marks_that_ask_for_nothing_there_are_refused() {
        let folder = record();
        for mark in [
            "pair",
            "pair none.jsonl",
            "closed r.jsonl",
            "dance r.jsonl",
            "pair r.jsonl colour",
            "gains r.jsonl",
            "gains AVX2=none.jsonl",
            "median r.jsonl rsa-x25519 widelane-off handshakes_per_s",
            "times r.jsonl y",
            "quotient r.jsonl dsa handshakes_per_s",
        ] {
            assert!(render(folder.path(), "", mark).is_err(), "{mark}");
        }
    }
}
