//! Latency against load: what a server answers in when connections start at a given rate.

use crate::block::Block;
use crate::chart::{Axis, Curve, lines, tick};
use crate::handshakes::{colour, column};
use plotters::prelude::IntoLogRange;
use std::rc::Rc;
use widelane_samples::kinds::CURVE;
use widelane_samples::{Cell, Piece, Record, Source, Table, groups, names, plain};

/// The kind of the lines.
pub(crate) const KIND: &str = CURVE.kind;

/// A picture and a table for each condition of a record.
pub(crate) fn curves(record: &Record, source: &Rc<Source>) -> Vec<Block> {
    let mut blocks = Vec::new();
    for condition in groups(record, KIND, &["/condition"]) {
        let condition = condition.word(0);
        let title = names::condition(condition);
        let table = of_condition(record, condition, source);
        blocks.push(Block::Heading(title.to_owned()));
        let caption = format!(
            "{title}: from a handshake's intended start to its end, by starts a second. Thick: 99 % \
             are shorter; thin: half are. Knee: a server's rate with 64 handshakes in flight."
        );
        let picture = picture(&table, None);
        blocks.extend(Block::chart(picture.into_iter().collect(), &caption));
        blocks.push(Block::Table(table));
    }
    blocks
}

fn of_condition(record: &Record, condition: &str, source: &Rc<Source>) -> Table {
    let table = CURVE.table_of(record, source, |group| group.word(0) == condition);
    table.without(&["handshake"])
}

/// The picture of one condition, as SVG: of the last of `records` that has at least three loads.
pub fn latency(records: &[Record], condition: &str) -> Option<String> {
    records.iter().rev().find_map(|record| {
        let source = Source::of(record, None);
        let title = format!("{}; {}, {}", names::condition(condition), source.machine, source.date);
        picture(&of_condition(record, condition, &source), Some(&title))
    })
}

/// Lines over the rate, on a logarithmic scale; `None` of curves with fewer than three loads.
fn picture(table: &Table, title: Option<&str>) -> Option<String> {
    let curves = curves_in(table);
    let all = || curves.iter().flat_map(|one| one.thin.iter().chain(&one.thick));
    let fastest = all().map(|point| point.0).fold(1.0, f64::max);
    let least = all().map(|point| point.1).fold(f64::MAX, f64::min);
    let most = all().map(|point| point.1).fold(1.0, f64::max);
    let rates = Axis {
        scale: 0.0..fastest * 1.03,
        text: &|rate| tick(*rate, fastest / 6.0),
    };
    let times = Axis {
        scale: (least * 0.8..most * 1.25).log_scale(),
        text: &|us| time(*us),
    };
    lines(title, &curves, 10, rates, times)
}

/// Each server's latency by its rate.
fn curves_in(table: &Table) -> Vec<Curve> {
    let [server, rate, p50, p99] = ["server", "starts/s", "p50", "p99"].map(|title| column(table, title));
    let value = |row: &[Cell], at: usize| row[at].iter().find_map(Piece::figure).map(|figure| figure.value);
    let servers = table
        .rows
        .chunk_by(|one, next| plain(&one[server]) == plain(&next[server]));
    let curves = servers.map(|rows| {
        let line = |at: usize| {
            let points = rows.iter().filter_map(|row| Some((value(row, rate)?, value(row, at)?)));
            points
                .filter(|(rate, us)| DRAWN.contains(rate) && DRAWN.contains(us))
                .collect()
        };
        let name = plain(&rows[0][server]);
        Curve {
            colour: colour(&name),
            name,
            thick: line(p99),
            thin: line(p50),
        }
    });
    curves.filter(|curve| curve.thick.len() >= 3).collect()
}

/// Microseconds, short.
fn time(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{} s", us / 1e6),
        us if us >= 1e3 => format!("{} ms", us / 1e3),
        us => format!("{us} us"),
    }
}

/// Times that a picture can show.
const DRAWN: std::ops::Range<f64> = 1e-3..1e12;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(loads: &[f64]) -> Record {
        let run = json!({"kind": "run", "started": "2026-01-02T03", "machine": {"cpu": "a & <b>"}});
        let mut text = run.to_string();
        for (side, slow) in [("widelane-on", 1.0), ("nginx", 9.0)] {
            for &share in loads {
                for round in 1..4 {
                    let us = slow * share * 1000.0 * f64::from(round);
                    let line = json!({"kind": KIND, "condition": "rsa-x25519", "side": side,
                        "share_of_knee": share, "rate": share * 5000.0, "round": round,
                        "report": {"p50_us": us / 10.0, "p99_us": us, "errors": 0}});
                    text.push_str(&format!("\n{line}"));
                }
            }
        }
        Record::parse("r.jsonl", text.as_bytes()).0.expect("a record")
    }

    #[test]
    fn a_curve_has_the_medians_of_its_rounds_in_the_order_of_loads() {
        let record = record(&[0.7, 0.1, 0.5]);
        let source = Source::of(&record, None);
        let of_condition = |condition| curves_in(&of_condition(&record, condition, &source));
        let curves = of_condition("rsa-x25519");
        assert_eq!(curves.len(), 2);
        let drawn = &curves[0];
        assert_eq!(drawn.thick, [(500.0, 200.0), (2500.0, 1000.0), (3500.0, 1400.0)]);
        assert_eq!(drawn.thin[1], (2500.0, 100.0));
        assert!(of_condition("ecdsa-x25519").is_empty());
    }

    #[test]
    fn a_picture_has_a_line_for_each_server_and_its_title_cannot_break_it() {
        let svg = latency(&[record(&[0.7, 0.1, 0.5])], "rsa-x25519").expect("a picture");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(svg.contains("RSA-2048, X25519; a &amp; &lt;b&gt;, 2026-01-02"), "{svg}");
        assert_eq!(svg.matches("stroke-width=\"3\"").count(), 2, "{svg}");
        // One load is a point and no curve.
        assert_eq!(latency(&[record(&[0.7])], "rsa-x25519"), None);
    }
}
