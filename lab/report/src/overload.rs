//! Goodput against offered load: how many handshakes a second are finished for clients that are still there.

use crate::chart::{Axis, Colour, Curve, lines, tick};
use plotters::prelude::IntoLogRange;
use widelane_samples::{Record, Source};

/// The picture of the last of `records` that `lab/overload` has written, as SVG: each server's goodput by what is
/// offered to it, both as shares of its rate with 64 handshakes in flight. It has one kind of key, the record's first.
pub fn goodput(records: &[Record]) -> Option<String> {
    let record = records.iter().rfind(|one| one.of(KIND).next().is_some())?;
    let key = record.of(KIND).next()?.value["key"].as_str();
    let source = Source::of(record, None);
    let name = match key {
        Some("rsa") => "RSA-2048",
        Some("ecdsa") => "ECDSA P-256",
        other => other.unwrap_or("n/a"),
    };
    let title = format!("{name}; {}, {}", source.machine, source.date);
    let curves = curves(record, key);
    let all = || curves.iter().flat_map(|one| &one.thick);
    let least = all().map(|point| point.0).fold(1.0, f64::min);
    let most = all().map(|point| point.0).fold(1.0, f64::max);
    let highest = all().map(|point| point.1).fold(100.0, f64::max);
    let loads = Axis {
        scale: (least..most * 1.04).log_scale(),
        text: &|load| format!("{load} ×"),
    };
    let shares = Axis {
        scale: 0.0..highest * 1.04,
        text: &|share| format!("{} %", tick(*share, 10.0)),
    };
    lines(Some(&title), &curves, 14, loads, shares)
}

/// Each server's goodput by its load.
fn curves(record: &Record, key: Option<&str>) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for line in record.of(KIND).map(|line| &line.value) {
        let number = |pointer| line.pointer(pointer).and_then(serde_json::Value::as_f64);
        let point = || {
            let knee = number("/knee_per_s")?;
            let goodput = number("/report/goodput_per_s")?;
            Some((number("/rate")? / knee, 100.0 * goodput / knee))
        };
        let (Some(server), Some(point)) = (line["server"].as_str(), point()) else {
            continue;
        };
        if line["key"].as_str() != key || !LOADS.contains(&point.0) || !SHARES.contains(&point.1) {
            continue;
        }
        let (name, colour) = look(server);
        match curves.last_mut() {
            Some(last) if last.name == name => last.thick.push(point),
            _ => curves.push(Curve {
                name: name.to_owned(),
                colour,
                thick: vec![point],
                thin: Vec::new(),
            }),
        }
    }
    curves
}

/// The name of a server for people, and its colour.
fn look(server: &str) -> (&str, Colour) {
    match server {
        "serve" => ("widelane serve", Colour::Ours),
        "serve-unordered" => ("widelane serve, handshake_wait_seconds = 0", Colour::Middle),
        "nginx-widelane" => ("nginx with provider and shim", Colour::Wide),
        "haproxy" => ("HAProxy", Colour::Ink),
        other => (other, Colour::Peer),
    }
}

const KIND: &str = "overload";
/// Numbers that a picture can show.
const LOADS: std::ops::Range<f64> = 1e-3..1e3;
const SHARES: std::ops::Range<f64> = 0.0..1e4;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn record(cpu: &str, lines: &[Value]) -> Record {
        let run = json!({"kind": "run", "started": "2026-01-02T03", "machine": {"cpu": cpu}});
        let texts = [&run].into_iter().chain(lines).map(Value::to_string);
        let text = Vec::from_iter(texts).join("\n");
        let (record, faults) = Record::parse("r.jsonl", text.as_bytes());
        assert!(faults.is_empty(), "{faults:?}");
        record.expect("a record")
    }

    fn line(server: &str, key: &str, rate: f64, report: Value) -> Value {
        json!({"kind": "overload", "server": server, "key": key, "knee_per_s": 200.0, "rate": rate, "report": report})
    }

    #[test]
    fn each_server_has_a_line_of_shares_of_its_knee() {
        let served = |goodput: f64| json!({ "goodput_per_s": goodput });
        let one = record(
            "a & <b>",
            &[
                line("serve", "rsa", 200.0, served(190.0)),
                line("serve", "rsa", 2000.0, served(180.0)),
                line("nginx", "rsa", 200.0, served(150.0)),
                line("nginx", "rsa", 2000.0, served(0.0)),
                // The generator has ended without a report.
                line("haproxy", "rsa", 200.0, Value::Null),
                line("serve", "ecdsa", 200.0, served(1.0)),
            ],
        );
        let drawn: Vec<_> = curves(&one, Some("rsa"))
            .into_iter()
            .map(|one| (one.name, one.thick))
            .collect();
        assert_eq!(
            drawn,
            [
                ("widelane serve".to_owned(), vec![(1.0, 95.0), (10.0, 90.0)]),
                ("nginx".to_owned(), vec![(1.0, 75.0), (10.0, 0.0)])
            ]
        );
        let other = record("other", &[json!({"kind": "speed"})]);
        let svg = goodput(&[one.clone(), other.clone()]).expect("a picture");
        assert!(svg.contains("RSA-2048; a &amp; &lt;b&gt;, 2026-01-02"), "{svg}");
        assert!(svg.contains("widelane serve") && svg.contains("nginx"), "{svg}");
        assert_eq!(svg.matches("stroke-width=\"3\"").count(), 2, "{svg}");
        assert_eq!(goodput(&[other]), None);
        assert_eq!(goodput(&[record("a", &[json!({"kind": "overload"})])]), None);
    }
}
