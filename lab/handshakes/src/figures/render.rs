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

use super::record::Record;
use crate::condition::Condition;
use crate::drive::SERVER_CPU;
use crate::summary::{interval_of_median, median, median_ratio, ratio, ratios, sum_of, whole};
use crate::timing::{TIMING, largest_t};
use crate::ways_in::{self, Row};
use serde_json::Value;
use std::path::Path;

/// Renders the request in `mark`. Tables come with the line breaks that set them apart.
pub(super) fn render(root: &Path, up: &str, mark: &str) -> Result<String, String> {
    let words: Vec<_> = mark.split_whitespace().collect();
    let [kind, name, rest @ ..] = words.as_slice() else {
        return Err("a mark has a kind and a record".into());
    };
    if *kind == "gains" {
        return Ok(format!("\n{}\n", markdown(&gains(root, up, &words[1..])?)));
    }
    let record = Record::read(&root.join(name), name)?;
    let block = |rows: Vec<Vec<String>>| Ok(format!("\n{}\n", markdown(&rows)));
    match (*kind, rest) {
        ("pair", fields) => block(pair(&record, fields)?),
        ("ways-in", []) => block(unmodified(&record)?),
        ("closed", []) => block(closed(&record)?),
        ("open", []) => block(open(&record)?),
        ("curve", []) => block(curve(&record)?),
        ("memory", []) => block(memory(&record)?),
        ("speed", []) => block(speed(&record)?),
        ("timing", []) => block(timing(&record)?),
        ("source", []) => Ok(record.source(name, up)),
        ("quotient", [condition, field]) => {
            let quotients = quotients(&record, condition.parse()?, field)?;
            one(median(quotients).map(|value| format!("{value:.2}")))
        }
        ("median", [condition, side, field]) => {
            let condition: Condition = condition.parse()?;
            let of = |kind| Record::median(&record.reports(kind, condition, side), field);
            one(of("pair")
                .or_else(|| of("closed"))
                .map(|value| whole(Some(value))))
        }
        ("times", [operation]) => {
            let row = ours(&record, operation);
            let times = row.and_then(|row| row["times_aws_lc"].as_f64());
            one(times.map(|times| format!("{times:.1}")))
        }
        _ => Err(format!(
            "{kind:?} with {} more words is no mark",
            rest.len()
        )),
    }
}

fn pair(record: &Record, fields: &[&str]) -> Result<Vec<Vec<String>>, String> {
    let [one, other] = record.pair()?;
    let mut rows = vec![cells(&[
        "",
        &record.name(&one),
        &record.name(&other),
        "quotient",
        "95 % interval",
    ])];
    let fields = match fields {
        [] => &["handshakes_per_s", SERVER_CPU][..],
        fields => fields,
    };
    for condition in record.conditions("pair") {
        for field in fields {
            let (title, unit) = title(field)?;
            let quotients = quotients(record, condition, field)?;
            let interval = interval_of_median(&quotients);
            let value = |side: &str| {
                let middle = Record::median(&record.reports("pair", condition, side), field);
                format!("{}{unit}", whole(middle))
            };
            rows.push(vec![
                format!("{condition}: {title}"),
                value(&one),
                value(&other),
                ratio(median(quotients)),
                interval.map_or("too few pairs".into(), |(low, high)| {
                    format!("{low:.2} to {high:.2}")
                }),
            ]);
        }
    }
    Ok(rows)
}

/// A row for each record of a pair, `LANES=RECORD`.
fn gains(root: &Path, up: &str, records: &[&str]) -> Result<Vec<Vec<String>>, String> {
    let conditions = [Condition::RsaX25519, Condition::EcdsaX25519];
    let mut rows = vec![cells(&[
        "CPU",
        "lanes",
        "RSA-2048: handshakes/s",
        "CPU time each",
        "ECDSA P-256: handshakes/s",
        "CPU time each",
    ])];
    for word in records {
        let (lanes, name) = word
            .split_once('=')
            .ok_or_else(|| format!("{word} is not LANES=RECORD"))?;
        let record = Record::read(&root.join(name), name)?;
        let cpu = record.run["machine"]["cpu"].as_str().unwrap_or("unknown");
        let mut row = vec![format!("[{cpu}]({up}{name})"), lanes.replace('_', " ")];
        for condition in conditions {
            for field in ["handshakes_per_s", SERVER_CPU] {
                let middle = median(quotients(&record, condition, field)?);
                let middle = middle.ok_or_else(|| format!("{name} has no pairs of {condition}"))?;
                row.push(format!("{middle:.2} ×"));
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

fn quotients(record: &Record, condition: Condition, field: &str) -> Result<Vec<f64>, String> {
    let [one, other] = record.pair()?;
    let reports = |side: &str| {
        let mut lines: Vec<_> = record
            .of("pair")
            .filter(|line| line["condition"] == condition.id() && line["side"] == side)
            .collect();
        lines.sort_by_key(|line| line["round"].as_u64());
        lines
            .into_iter()
            .map(|line| line["report"].clone())
            .collect::<Vec<_>>()
    };
    Ok(ratios(&reports(&one), &reports(&other), field))
}

fn unmodified(record: &Record) -> Result<Vec<Vec<String>>, String> {
    let mut rows = vec![cells(&[
        "server",
        "in flight",
        "handshakes/s",
        "with Widelane",
        "quotient",
        "95 % interval",
        "CPU time each",
        "with Widelane",
        "quotient",
        "95 % interval",
        "errors",
    ])];
    for row in Row::of(record.of(ways_in::KIND))? {
        let [plain, with] = &row.reports;
        let mut cells = vec![row.way.to_string(), row.in_flight.to_string()];
        for field in ["handshakes_per_s", SERVER_CPU] {
            let (_, unit) = title(field)?;
            for side in [plain, with] {
                cells.push(format!("{}{unit}", whole(Record::median(side, field))));
            }
            let (middle, interval) = row.quotient(field);
            cells.push(ratio(middle));
            cells.push(interval.map_or("too few rounds".into(), |(low, high)| {
                format!("{low:.2} to {high:.2}")
            }));
        }
        let errors = sum_of(plain, "errors") + sum_of(with, "errors");
        cells.push(errors.to_string());
        rows.push(cells);
    }
    filled(rows)
}

fn closed(record: &Record) -> Result<Vec<Vec<String>>, String> {
    let mut rows = vec![cells(&[
        "",
        "server",
        "handshakes/s",
        "× nginx",
        "× batching off",
        "server's CPU each",
        "p50",
        "p99",
        "errors",
    ])];
    for condition in record.conditions("closed") {
        let of = |side: &str| record.reports("closed", condition, side);
        for side in record.sides("closed") {
            let own = of(&side);
            if own.is_empty() {
                continue;
            }
            let against = |other: &str| {
                let quotient = median_ratio(&own, &of(other), "handshakes_per_s");
                quotient.map_or("–".into(), |quotient| ratio(Some(quotient)))
            };
            rows.push(vec![
                condition.to_string(),
                record.name(&side),
                whole(Record::median(&own, "handshakes_per_s")),
                against("nginx"),
                against("widelane-off"),
                us(Record::median(&own, SERVER_CPU)),
                us(Record::median(&own, "p50_us")),
                us(Record::median(&own, "p99_us")),
                sum_of(&own, "errors").to_string(),
            ]);
        }
    }
    filled(rows)
}

fn open(record: &Record) -> Result<Vec<Vec<String>>, String> {
    let mut rows = vec![cells(&[
        "", "server", "starts/s", "share", "p50", "p99", "p99.9", "errors",
    ])];
    for condition in record.conditions("open") {
        for side in record.sides("open") {
            for knee in ["its own knee", "the knee with batching off"] {
                let lines = record.of("open").filter(|line| {
                    line["condition"] == condition.id()
                        && line["side"] == side.as_str()
                        && line["knee_of"] == knee
                });
                let lines: Vec<_> = lines.collect();
                let Some(first) = lines.first() else { continue };
                let reports: Vec<Value> = lines.iter().map(|line| line["report"].clone()).collect();
                let share = first["share_of_knee"].as_f64().unwrap_or_default();
                rows.push(vec![
                    condition.to_string(),
                    record.name(&side),
                    whole(first["rate"].as_f64()),
                    format!("{:.0} % of {knee}", share * 100.0),
                    us(Record::median(&reports, "p50_us")),
                    us(Record::median(&reports, "p99_us")),
                    us(Record::median(&reports, "p999_us")),
                    sum_of(&reports, "errors").to_string(),
                ]);
            }
        }
    }
    filled(rows)
}

fn curve(record: &Record) -> Result<Vec<Vec<String>>, String> {
    let mut rows = vec![cells(&[
        "",
        "server",
        "of its knee",
        "starts/s",
        "p50",
        "p99",
        "p99.9",
        "errors",
    ])];
    for condition in record.conditions("curve") {
        for side in record.sides("curve") {
            let lines = record.of("curve").filter(|line| {
                line["condition"] == condition.id() && line["side"] == side.as_str()
            });
            let lines: Vec<_> = lines.collect();
            let mut shares: Vec<f64> = lines
                .iter()
                .filter_map(|line| line["share_of_knee"].as_f64())
                .collect();
            shares.sort_unstable_by(f64::total_cmp);
            shares.dedup();
            for share in shares {
                let rounds = lines.iter().filter(|line| line["share_of_knee"] == share);
                let reports: Vec<Value> =
                    rounds.clone().map(|line| line["report"].clone()).collect();
                let rate = rounds.clone().next().and_then(|line| line["rate"].as_f64());
                rows.push(vec![
                    condition.to_string(),
                    record.name(&side),
                    format!("{:.0} %", share * 100.0),
                    whole(rate),
                    us(Record::median(&reports, "p50_us")),
                    us(Record::median(&reports, "p99_us")),
                    us(Record::median(&reports, "p999_us")),
                    sum_of(&reports, "errors").to_string(),
                ]);
            }
        }
    }
    filled(rows)
}

fn memory(record: &Record) -> Result<Vec<Vec<String>>, String> {
    let mut rows = vec![cells(&["server", "idle connections", "memory of each"])];
    for line in record.of("memory") {
        let result = &line["result"];
        rows.push(vec![
            record.name(result["side"].as_str().unwrap_or_default()),
            whole(result["connections"].as_f64()),
            format!("{} bytes", whole(result["pss_bytes_each"].as_f64())),
        ]);
    }
    filled(rows)
}

fn timing(record: &Record) -> Result<Vec<Vec<String>>, String> {
    let mut rows = vec![cells(&[
        "operation",
        "classes",
        "measurements",
        "max \\|t\\|",
    ])];
    for line in record.of(TIMING) {
        let finding = &line["finding"];
        let class = |at: usize| finding["classes"][at].as_str().unwrap_or("?").to_owned();
        rows.push(vec![
            format!("`{}`", finding["operation"].as_str().unwrap_or("?")),
            format!("{}; {}", class(0), class(1)),
            whole(finding["measurements"].as_f64()),
            largest_t(finding),
        ]);
    }
    filled(rows)
}

fn speed(record: &Record) -> Result<Vec<Vec<String>>, String> {
    let openssl = record
        .of("speed")
        .find_map(|line| line["result"]["version"].as_str());
    // Without the date of the version.
    let openssl = openssl.unwrap_or("OpenSSL").split(' ').take(2);
    let openssl = openssl.collect::<Vec<_>>().join(" ");
    let mut rows = vec![cells(&[
        "operation",
        &openssl,
        "libcrux",
        "AWS-LC",
        "Widelane",
        "× AWS-LC",
    ])];
    let mut seen: Vec<&str> = Vec::new();
    for line in record.of("speed") {
        let Some(operation) = line["result"]["operation"].as_str() else {
            continue;
        };
        // The parts that explain others have no peer.
        let (Some(own), Some(aws)) = (
            ours(record, operation),
            record.speed(operation, "aws-lc", 1),
        ) else {
            continue;
        };
        if seen.contains(&operation) {
            continue;
        }
        seen.push(operation);
        let peer = |name: &str| record.speed(operation, name, 1).map_or("–".into(), rate);
        rows.push(vec![
            format!("`{operation}`"),
            peer("openssl"),
            peer("libcrux"),
            rate(aws),
            rate(own),
            own["times_aws_lc"]
                .as_f64()
                .map_or("–".into(), |times| format!("{times:.1}")),
        ]);
    }
    filled(rows)
}

/// Our figure for an operation: with eight in flight in 512-bit registers; the widest form where one
/// message fills the lanes.
fn ours<'a>(record: &'a Record, operation: &str) -> Option<&'a Value> {
    let lanes = record.speed(operation, "avx512ifma", 8);
    let form = || record.speed(operation, "512-ifma", 1);
    lanes
        .or_else(form)
        .filter(|row| row["ops_per_s"].is_number())
}

fn rate(row: &Value) -> String {
    match row["gigabytes_per_s"].as_f64() {
        Some(gigabytes) => format!("{gigabytes:.1} GB/s"),
        None => row["ops_per_s"]
            .as_f64()
            .map_or("–".into(), |rate| whole(Some(rate))),
    }
}

/// A field of a report in words, with the unit of its values.
fn title(field: &str) -> Result<(&'static str, &'static str), String> {
    Ok(match field {
        "handshakes_per_s" => ("handshakes/s", ""),
        SERVER_CPU => ("server's CPU time each", " µs"),
        "p50_us" => ("median latency", " µs"),
        "p99_us" => ("99th percentile of latency", " µs"),
        _ => return Err(format!("there is no field {field:?} in tables")),
    })
}

fn us(value: Option<f64>) -> String {
    value.map_or("–".into(), |value| format!("{} µs", whole(Some(value))))
}

fn cells(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn one(figure: Option<String>) -> Result<String, String> {
    figure.ok_or_else(|| "the record has no such figure".to_owned())
}

fn filled(rows: Vec<Vec<String>>) -> Result<Vec<Vec<String>>, String> {
    if rows.len() < 2 {
        return Err("the record has no such lines".into());
    }
    Ok(rows)
}

fn markdown(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        text.push_str(&format!("| {} |\n", row.join(" | ")));
        if index == 0 {
            text.push_str(&format!("|{}\n", " --- |".repeat(row.len())));
        }
    }
    text
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
