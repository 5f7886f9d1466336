//! Blocks of proofs on living servers: CPU time of a handshake with lanes and without, beside two servers in turns.

use crate::chart::{Colour, Point, Points, points};
use serde_json::Value;
use widelane_samples::{Record, names};

/// Kind of the lines.
const KIND: &str = "proof";

/// Picture of the proofs of the last of `records` that has any, as SVG: a row for each server and load. Points without
/// an interval are blocks, those with one the medians of two servers in turns.
pub fn proof(records: &[Record]) -> Option<String> {
    let mut newest_first = records.iter().rev();
    let record = newest_first.find(|record| record.of(KIND).next().is_some())?;
    let rows: Vec<_> = record.of(KIND).filter_map(|line| row(&line.value)).collect();
    // The scale begins at nought, so that lengths can be compared.
    points(&rows, 0.0).into_iter().next()
}

/// Row of one proof; the first run of several stands for all.
fn row(line: &Value) -> Option<Points> {
    if line["run"].as_u64().is_some_and(|run| run > 1) {
        return None;
    }
    let blocks = line["proof"]["pairs_us"].as_array()?.iter();
    let sides = [
        (Colour::Ours, "cpu_us_with_lanes"),
        (Colour::Peer, "cpu_us_without_lanes"),
    ];
    let mut all = Vec::new();
    for pair in blocks {
        for (side, (colour, _)) in sides.iter().enumerate() {
            all.push(Point {
                at: pair[side].as_f64()?,
                interval: None,
                colour: *colour,
            });
        }
    }
    for (_, name) in sides {
        let ends = &line["alternation"][name];
        all.extend(ends[0].as_f64().map(|at| Point {
            at,
            interval: ends[1].as_f64().zip(ends[2].as_f64()),
            colour: Colour::Mark,
        }));
    }
    let server = names::software(line["server"].as_str()?);
    let share = line["load"].as_f64()? * 100.0;
    Some(Points {
        label: format!("{server}, {share:.0} % of its knee: us of CPU"),
        points: all,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(lines: &[Value]) -> Record {
        let mut text = json!({"kind": "run", "machine": {}}).to_string();
        for line in lines {
            text.push_str(&format!("\n{line}"));
        }
        let (record, faults) = Record::parse("r.jsonl", text.as_bytes());
        assert!(faults.is_empty(), "{faults:?}");
        record.expect("a record")
    }

    #[test]
    fn a_proof_has_a_point_for_each_block_and_for_each_server() {
        let line = |run: u64, server: &str| {
            json!({"kind": KIND, "server": server, "load": 0.3, "run": run,
                "proof": {"pairs_us": [[171.0, 379.0], [168.0, 381.0]]},
                "alternation": {"cpu_us_with_lanes": [170.0, 168.0, 172.0],
                    "cpu_us_without_lanes": [380.0, null, null]}})
        };
        let one = record(&[line(1, "nginx"), line(2, "nginx"), line(1, "<b>")]);
        let svg = proof(&[one, record(&[])]).expect("a picture");
        assert_eq!(svg.matches("<circle").count(), 2 * 6, "{svg}");
        assert!(
            svg.contains("nginx, 30 % of its knee") && svg.contains("&lt;b&gt;"),
            "{svg}"
        );
        assert_eq!(proof(&[record(&[])]), None);
        let empty = json!({"kind": KIND, "server": "nginx", "proof": null});
        assert_eq!(proof(&[record(&[empty])]), None);
    }
}
