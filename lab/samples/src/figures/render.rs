//! Renders the request of a mark as Markdown.
//!
//! | mark | table |
//! | --- | --- |
//! | `gains LANES=RECORD…` | the quotients of pairs, a row for each record |
//! | `pairs FIELDS LABEL=RECORD…` | both servers of pairs and their quotients, a row for each record and handshake |
//! | `ways-in NUMBERS LABEL=RECORD…` | quotients of unmodified servers with and without Widelane, a column for each record; rows by these numbers of connections in flight |
//! | `servers KIND FIELD RECORD` | one field of a closed or an open loop or a curve, a column for each server |
//! | `memory RECORD` | bytes of an idle connection |
//! | `speed RECORD` | single operations beside other libraries |
//! | `timing RECORD` | tests whether times depend on secrets |
//!
//! Names of fields and numbers are separated by commas; `_` stands for a space in a label. Each record is linked.

use crate::figure::{Figure, Source, Unit};
use crate::kinds::{CLOSED, CPU_TIME, CURVE, ERRORS, FIELDS, Field, MEMORY, OPEN, Pair, RATE, TIMING, WAYS_IN};
use crate::names;
use crate::operations::{TIMES, beside_peers, find};
use crate::record::Record;
use crate::rows::{Kind, pairs};
use crate::table::{Cell, Table, cell, number, plain, text};
use serde_json::Value;
use std::path::Path;
use std::rc::Rc;

/// Renders the request in `mark`, with the line breaks that set the table apart.
pub(super) fn render(root: &Path, up: &str, mark: &str) -> Result<String, String> {
    let words: Vec<_> = mark.split_whitespace().collect();
    let labelled = |records| labelled(root, up, records);
    let read = |name| read(root, up, name);
    match words[..] {
        ["gains", ref records @ ..] => block(gains(&labelled(records)?)?, None),
        ["pairs", fields, ref records @ ..] => {
            let fields: Vec<Field> = fields.split(',').map(field).collect::<Result<_, _>>()?;
            block(both(&labelled(records)?, &fields)?, None)
        }
        ["ways-in", numbers, ref records @ ..] => block(ways_in(&labelled(records)?, numbers), None),
        ["servers", kind, name, record] => {
            let (record, source) = read(record)?;
            let kinds = [CLOSED, OPEN, CURVE];
            let kind = kinds.into_iter().find(|known| known.kind == kind);
            let kind = kind.ok_or("a table of servers is closed, open or curve")?;
            block(servers(&kind, field(name)?, &record, &source)?, Some(&source))
        }
        ["memory", record] => {
            let (record, source) = read(record)?;
            let table = MEMORY.table(&record, &source);
            block(table.without(&["PSS before", "PSS with"]), Some(&source))
        }
        ["speed", record] => {
            let (record, source) = read(record)?;
            block(speed(&record, &source).without(&["lanes"]), Some(&source))
        }
        ["timing", record] => {
            let (record, source) = read(record)?;
            let table = TIMING.table(&record, &source);
            block(table.without(&["in", "verdict"]), Some(&source))
        }
        _ => Err("there is no such mark, or it has other words".into()),
    }
}

/// A record with its source and the label of a mark.
struct Labelled {
    record: Record,
    source: Rc<Source>,
    label: String,
}

fn labelled(root: &Path, up: &str, records: &[&str]) -> Result<Vec<Labelled>, String> {
    let one = |word: &&str| {
        let (label, name) = word
            .split_once('=')
            .ok_or_else(|| format!("{word} is not LABEL=RECORD"))?;
        let (record, source) = read(root, up, name)?;
        Ok(Labelled {
            record,
            source,
            label: label.replace('_', " "),
        })
    };
    records.iter().map(one).collect()
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

/// A table in Markdown, and below it the source of all of its figures if no cell links it.
fn block(table: Table, source: Option<&Source>) -> Result<String, String> {
    if table.rows.is_empty() {
        return Err("the record has no such lines".into());
    }
    let mut block = format!("\n{}\n", table.markdown());
    if let Some(source) = source {
        block.push_str(&format!("Record: {}, {}.\n\n", link(source), source.date));
    }
    Ok(block)
}

/// The machine of a record, with a link to it and what its readers must know.
fn link(source: &Source) -> String {
    let link = source.link.as_deref().unwrap_or_default();
    let notes = source.notes.iter().map(|note| format!(", **{note}**"));
    format!("[{}]({link}){}", source.machine, notes.collect::<String>())
}

fn gains(records: &[Labelled]) -> Result<Table, String> {
    let head = [
        "CPU",
        "lanes",
        "RSA-2048: handshakes/s",
        "CPU time each",
        "ECDSA P-256: handshakes/s",
        "CPU time each",
    ];
    let mut table = Table::new(head.map(text), None);
    for one in records {
        let pair = pair(one)?;
        let mut row = vec![cell(link(&one.source)), cell(&one.label[..])];
        for condition in ["rsa-x25519", "ecdsa-x25519"] {
            let turns = pair.turns.iter().find(|turns| turns.word(0) == condition);
            for place in [RATE, CPU_TIME] {
                let figure = turns.and_then(|turns| pair.quotient("", turns, place, &one.source));
                let figure = figure.ok_or_else(|| format!("no pairs of {condition}"))?;
                row.push(cell(format!("{} ×", figure.shown())));
            }
        }
        table.rows.push(row);
    }
    Ok(table)
}

/// Both servers of each pair, beside each other, with their quotients.
fn both(records: &[Labelled], fields: &[Field]) -> Result<Table, String> {
    let mut head = vec![text("measured on"), text("handshake")];
    for (_, title, _) in fields {
        head.extend([number(*title), number("quotient")]);
    }
    let mut table = Table::new(head, None);
    for one in records {
        let pair = pair(one)?;
        for turns in &pair.turns {
            let mut row = vec![
                cell(format!("{}, {}", link(&one.source), one.label)),
                cell(names::condition(turns.word(0))),
            ];
            for &(place, _, unit) in fields {
                let median = |side: &str| {
                    Figure::median("", unit, &turns.of_side(side), place, &one.source)
                        .map_or_else(|| "–".to_owned(), |figure| figure.shown())
                };
                row.push(cell(pair.sides.map(median).join(" : ")));
                row.push(certain(pair.quotient("", turns, place, &one.source)));
            }
            table.rows.push(row);
        }
    }
    Ok(table)
}

fn ways_in(records: &[Labelled], numbers: &str) -> Table {
    let mut head = vec![text("server"), number("in flight")];
    let column = |one: &Labelled| number(format!("{}, {}", link(&one.source), one.label));
    head.extend(records.iter().map(column));
    head.push(number("errors"));
    let mut table = Table::new(head, None);
    let groups: Vec<_> = records.iter().map(|one| WAYS_IN.groups(&one.record)).collect();
    let mut keys: Vec<&[&Value]> = Vec::new();
    for group in groups.iter().flatten() {
        let in_flight = group.key[2].to_string();
        if numbers.split(',').any(|wanted| wanted == in_flight) && !keys.contains(&&group.key[..]) {
            keys.push(&group.key);
        }
    }
    for key in keys {
        let name = |index: usize| key[index].as_str().unwrap_or_default();
        let title = format!("{}, {}", names::software(name(0)), names::condition(name(1)));
        let mut row = vec![cell(title), cell(key[2].to_string())];
        let mut errors = 0.0;
        for (one, groups) in records.iter().zip(&groups) {
            let group = groups.iter().find(|group| group.key == key);
            row.push(certain(group.and_then(|group| {
                let sum = Figure::sum("", &group.lines, ERRORS, &one.source);
                errors += sum.map_or(0.0, |sum| sum.value);
                let [with, without] = ["widelane", "plain"].map(|side| group.of_side(side));
                Figure::quotient("", &pairs(&with, &without), RATE, &one.source)
            })));
        }
        row.push(cell(Unit::Count.shown(errors)));
        table.rows.push(row);
    }
    table
}

/// Medians of one field: a row for each handshake, and a column for each server.
fn servers(kind: &Kind, (place, _, unit): Field, record: &Record, source: &Rc<Source>) -> Result<Table, String> {
    let server = kind.keys.iter().position(|(key, _)| *key == "/side");
    let server = server.ok_or("its lines have no servers")?;
    let mut columns: Vec<Cell> = Vec::new();
    let mut rows: Vec<(Vec<Cell>, Vec<Option<Cell>>)> = Vec::new();
    let is_same = |one: &[Cell], other: &[Cell]| one.iter().zip(other).all(|(one, other)| plain(one) == plain(other));
    for group in kind.groups(record) {
        // Passes have one job where one connection is in flight.
        if kind.kind == CLOSED.kind && *group.key[1] == 1 {
            continue;
        }
        let mut keys = kind.keys_of(record, &group);
        let name = keys.remove(server);
        let column = columns.iter().position(|known| plain(known) == plain(&name));
        let column = column.unwrap_or_else(|| {
            columns.push(name);
            columns.len() - 1
        });
        let row = rows.iter().position(|(known, _)| is_same(known, &keys));
        let row = row.unwrap_or_else(|| {
            rows.push((keys, Vec::new()));
            rows.len() - 1
        });
        let cells = &mut rows[row].1;
        cells.resize(cells.len().max(column + 1), None);
        cells[column] = Figure::median("", unit, &group.lines, place, source).map(cell);
    }
    let titles = kind.keys.iter().filter(|(key, _)| *key != "/side");
    let head = titles.map(|(_, title)| text(*title));
    let named = columns.iter().map(|name| {
        let mut column = number("");
        column.title.clone_from(name);
        column
    });
    let width = columns.len();
    let rows = rows.into_iter().map(|(mut row, mut cells)| {
        cells.resize(width, None);
        row.extend(cells.into_iter().map(|one| one.unwrap_or_else(|| cell("–"))));
        row
    });
    let rows: Vec<_> = rows.collect();
    Ok(Table::new(head.chain(named), Some(source))
        .with(rows)
        .without(&["in flight"]))
}

fn pair(one: &Labelled) -> Result<Pair<'_>, String> {
    Pair::of(&one.record).ok_or_else(|| format!("{} is no record of a pair", one.record.name))
}

/// A figure with its interval.
fn certain(figure: Option<Figure>) -> Cell {
    cell(figure.map_or_else(
        || "–".to_owned(),
        |figure| format!("{} ({})", figure.shown(), figure.shown_interval()),
    ))
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

/// Multiple of AWS-LC's rate: of our operation with eight in flight in 512-bit registers, or of the widest form where
/// one message fills the lanes.
fn times(record: &Record, operation: &str) -> Option<String> {
    let of = |backend, in_flight| find(record, operation, backend, in_flight);
    let ours = &of("avx512ifma", 8).or_else(|| of("512-ifma", 1))?.value["result"];
    let times = ours["times_aws_lc"]
        .as_f64()
        .filter(|_| ours["ops_per_s"].is_number())?;
    Some(Unit::Tenths.shown(times))
}

/// A field of a report.
fn field(name: &str) -> Result<Field, String> {
    let mut known = FIELDS.into_iter();
    let found = known.find(|(place, ..)| place.rsplit('/').next() == Some(name));
    found.ok_or_else(|| format!("there is no field {name:?} in tables"))
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
            for (side, rate) in [("nginx", 1000.4 + f64::from(round)), ("widelane-on", 3001.2)] {
                let report = json!({"handshakes_per_s": rate, "server_cpu_us_per_handshake": 1e6 / rate});
                let line = json!({"kind": "pair", "condition": "rsa-x25519", "side": side,
                    "round": round, "in_flight": 64, "report": report});
                text.push_str(&format!("{line}\n"));
            }
        }
        for (side, rate) in [("nginx", 1000.0), ("widelane-on", 4000.0)] {
            let report = json!({"handshakes_per_s": rate, "server_cpu_us_per_handshake": 1e6 / rate});
            let line = json!({"kind": "pair", "condition": "ecdsa-x25519", "side": side,
                "round": 0, "in_flight": 64, "report": report});
            text.push_str(&format!("{line}\n"));
        }
        for round in 0..8 {
            for (side, rate) in [("plain", 500.0), ("widelane", 1500.0)] {
                let report = json!({"handshakes_per_s": rate, "server_cpu_us_per_handshake": 1e6 / rate, "errors": 1});
                let line = json!({"kind": "ways-in", "server": "haproxy", "side": side,
                    "condition": "rsa-x25519", "in_flight": 16, "round": round, "report": report});
                text.push_str(&format!("{line}\n"));
            }
        }
        for (condition, side, rate) in [
            ("rsa-x25519", "widelane-on", 4000.0),
            ("rsa-x25519", "nginx", 1000.0),
            ("resumed-tls13", "haproxy", 700.0),
        ] {
            let report = json!({"handshakes_per_s": rate});
            let line = json!({"kind": "closed", "condition": condition, "side": side, "in_flight": 64,
                "round": 0, "report": report});
            text.push_str(&format!("{line}\n"));
        }
        let line = json!({"operation": "x", "backend": "aws-lc", "in_flight": 1, "ops_per_s": 990.0,
            "samples": [990.0]});
        text.push_str(&format!("{}\n", json!({"kind": "speed", "result": line})));
        let result = json!({"operation": "x", "backend": "avx512ifma", "in_flight": 8,
            "ops_per_s": 4000.0, "times_aws_lc": 4.04, "samples": [4000.0]});
        text.push_str(&format!("{}\n", json!({"kind": "speed", "result": result})));
        let finding = json!({"operation": "y", "classes": ["one", "two"], "measurements": 5000,
            "t": 2.345});
        text.push_str(&format!("{}\n", json!({"kind": "timing", "finding": finding})));
        text.push_str("{\"kind\": \"end\"}\n");
        std::fs::write(folder.path().join("r.jsonl"), text).expect("written");
        folder
    }

    #[test]
    fn figures_are_those_of_the_record() {
        let folder = record();
        for (mark, expected) in [
            (
                "pairs handshakes_per_s,server_cpu_us_per_handshake A_label=r.jsonl",
                "| [A CPU](r.jsonl), A label | RSA-2048, X25519 | 3,001 : 1,004 | 2.99 (2.98 to 3.00) \
                 | 333 µs : 996 µs | 0.33 (0.33 to 0.34) |",
            ),
            (
                "ways-in 1,16 one=r.jsonl two=r.jsonl",
                "| server | in flight | [A CPU](r.jsonl), one | [A CPU](r.jsonl), two | errors |\n\
                 | --- | --- | --- | --- | --- |\n\
                 | HAProxy, RSA-2048, X25519 | 16 | 3.00 (3.00 to 3.00) | 3.00 (3.00 to 3.00) | 32 |",
            ),
            (
                "gains AVX-512_IFMA=r.jsonl",
                "| [A CPU](r.jsonl) | AVX-512 IFMA | 2.99 × | 0.33 × | 4.00 × | 0.25 × |",
            ),
            (
                "servers closed handshakes_per_s r.jsonl",
                "| handshake | `widelane serve` | nginx 1.2.3 (OpenSSL 3.0.1) | HAProxy |\n\
                 | --- | --- | --- | --- |\n\
                 | RSA-2048, X25519 | 4,000 | 1,000 | – |\n\
                 | TLS 1.3, resumed | – | – | 700 |\n\n\
                 Record: [A CPU](r.jsonl), 2026-01-02.",
            ),
            ("speed r.jsonl", "| `x` | 4,000 | 4.0 | 990 |"),
            ("timing r.jsonl", "| `y` | one; two | 5,000 | 2.3 |"),
        ] {
            let table = render(folder.path(), "", mark).expect("a table");
            assert!(table.contains(expected), "{mark}: {table}");
        }
    }

    #[test]
    fn a_record_of_a_modified_tree_is_cited_as_such() {
        let folder = record();
        let file = folder.path().join("r.jsonl");
        let text = std::fs::read_to_string(&file).expect("a record");
        let text = text.replace("\"modified\":false", "\"modified\":true");
        std::fs::write(&file, text).expect("written");
        for mark in ["gains AVX2=r.jsonl", "timing r.jsonl"] {
            let table = render(folder.path(), "", mark).expect("a table");
            let said = table.contains("**with changes that the commit does not have**");
            assert!(said, "{table}");
        }
    }

    #[test]
    fn marks_that_ask_for_nothing_there_are_refused() {
        let folder = record();
        for mark in [
            "",
            "gains r.jsonl",
            "gains AVX2=none.jsonl",
            "pairs handshakes_per_s",
            "pairs colour a=r.jsonl",
            "ways-in 7 a=r.jsonl",
            "servers closed colour r.jsonl",
            "servers open p50_us r.jsonl",
            "servers pair p50_us r.jsonl",
            "memory r.jsonl",
            "dance r.jsonl",
            "speed r.jsonl more",
        ] {
            assert!(render(folder.path(), "", mark).is_err(), "{mark}");
        }
    }
}
