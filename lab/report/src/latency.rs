//! Latency against load: what a server answers in when connections start at a given rate.

use crate::block::{Block, Column, Table, cell, figure_or, number, text};
use crate::chart::{Tone, letters, tick};
use crate::figure::{Figure, Source, Unit, ranges};
use crate::handshakes::{name_of, server_names, sides, tone};
use plotters::prelude::*;
use std::rc::Rc;
use widelane_samples::{Line, Record, median};

/// The kind of the lines.
pub(crate) const KIND: &str = "curve";

/// For each condition of a record a picture and a table.
pub(crate) fn curves(record: &Record, source: &Rc<Source>) -> Vec<Block> {
    let mut blocks = Vec::new();
    for condition in conditions(record) {
        let title = name_of(&condition);
        let mut table = Table::new(head(), Some(source));
        let curves = of_condition(record, &condition);
        for curve in &curves {
            for point in &curve.points {
                table.rows.push(row(&title, curve, point, source));
            }
        }
        blocks.push(Block::Heading(title.clone()));
        let caption = format!(
            "{title}: from a handshake's intended start to its end, by starts a second. Thick: 99 % \
             are shorter; thin: half are. Knee: a server's rate with 64 handshakes in flight."
        );
        let picture = picture(&curves, None);
        blocks.extend(Block::chart(picture.into_iter().collect(), &caption));
        blocks.push(Block::Table(table));
    }
    blocks
}

fn head() -> [Column; 8] {
    [
        text("server"),
        number("of its knee"),
        number("starts/s"),
        number("p50"),
        number("p99"),
        number("p99.9"),
        number("errors"),
        number("lines"),
    ]
}

/// The picture of one condition, as SVG: of the last of `records` that has at least three loads.
pub fn latency(records: &[Record], condition: &str) -> Option<String> {
    records.iter().rev().find_map(|record| {
        let curves = of_condition(record, condition);
        let machine = record.run["machine"]["cpu"].as_str().unwrap_or("a CPU");
        let day = record.run["started"].as_str().unwrap_or_default();
        let day = day.split('T').next().unwrap_or_default();
        picture(
            &curves,
            Some(&format!("{}; {machine}, {day}", name_of(condition))),
        )
    })
}

/// One server under one condition.
struct Curve<'a> {
    server: String,
    tone: Tone,
    points: Vec<Point<'a>>,
}

/// One load: the rounds with it.
struct Point<'a> {
    share: f64,
    lines: Vec<&'a Line>,
}

impl Point<'_> {
    fn median(&self, field: &str) -> Option<f64> {
        let numbers = self
            .lines
            .iter()
            .filter_map(|line| line.value.pointer(field)?.as_f64());
        median(numbers.collect())
    }
}

fn conditions(record: &Record) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in record.of(KIND) {
        let condition = line.value["condition"].as_str().unwrap_or_default();
        if !all.iter().any(|known| known == condition) {
            all.push(condition.to_owned());
        }
    }
    all
}

fn of_condition<'a>(record: &'a Record, condition: &str) -> Vec<Curve<'a>> {
    let names = sides(record, KIND)
        .into_iter()
        .zip(server_names(record, KIND));
    let curve = |(side, server): (String, String)| {
        let of_side = |line: &&Line| {
            line.value["condition"] == condition && line.value["side"] == side.as_str()
        };
        let mut points: Vec<Point<'_>> = Vec::new();
        for line in record.of(KIND).filter(of_side) {
            let Some(share) = line.value["share_of_knee"].as_f64() else {
                continue;
            };
            match points.iter_mut().find(|point| point.share == share) {
                Some(point) => point.lines.push(line),
                None => points.push(Point {
                    share,
                    lines: vec![line],
                }),
            }
        }
        points.sort_by(|a, b| a.share.total_cmp(&b.share));
        let tone = tone(&side);
        (!points.is_empty()).then_some(Curve {
            server,
            tone,
            points,
        })
    };
    names.filter_map(curve).collect()
}

fn row(
    title: &str,
    curve: &Curve<'_>,
    point: &Point<'_>,
    source: &Rc<Source>,
) -> Vec<Vec<crate::block::Piece>> {
    let share = format!("{:.0} %", point.share * 100.0);
    let name = format!("{title}, {}, {share} of its knee", curve.server);
    let median = |what: &str, unit, field| {
        let figure = Figure::median(
            &format!("{name}: {what}"),
            unit,
            &point.lines,
            field,
            source,
        );
        figure_or(figure, "n/a: not in the record")
    };
    let errors = Figure::sum(
        &format!("{name}: errors"),
        &point.lines,
        "/report/errors",
        source,
    );
    let numbers: Vec<usize> = point.lines.iter().map(|line| line.number).collect();
    vec![
        cell(&curve.server[..]),
        cell(share),
        median("starts a second", Unit::PerSecond, RATE),
        median("p50", Unit::Microseconds, P50),
        median("p99", Unit::Microseconds, P99),
        median("p99.9", Unit::Microseconds, "/report/p999_us"),
        figure_or(errors, "n/a: not in the record"),
        cell(ranges(numbers.iter())),
    ]
}

/// Lines over the rate, on a logarithmic scale; `None` of curves with fewer than three loads.
fn picture(curves: &[Curve<'_>], title: Option<&str>) -> Option<String> {
    let drawn: Vec<Drawn<'_>> = curves.iter().filter_map(Drawn::of).collect();
    let mut svg = String::new();
    let ended = draw(&mut svg, &drawn, title);
    (!drawn.is_empty() && ended.is_ok()).then_some(svg)
}

/// A curve as points of the picture.
struct Drawn<'a> {
    curve: &'a Curve<'a>,
    half: Vec<(f64, f64)>,
    most: Vec<(f64, f64)>,
}

impl<'a> Drawn<'a> {
    fn of(curve: &'a Curve<'a>) -> Option<Self> {
        let line = |field: &str| -> Vec<(f64, f64)> {
            let at = |point: &Point<'_>| Some((point.median(RATE)?, point.median(field)?));
            let points = curve.points.iter().filter_map(at);
            points
                .filter(|&(rate, us)| DRAWN.contains(&rate) && DRAWN.contains(&us))
                .collect()
        };
        let (half, most) = (line(P50), line(P99));
        (most.len() >= 3).then_some(Self { curve, half, most })
    }
}

fn draw(
    svg: &mut String,
    curves: &[Drawn<'_>],
    title: Option<&str>,
) -> Result<(), Box<dyn std::error::Error>> {
    let all = || {
        curves
            .iter()
            .flat_map(|one| one.half.iter().chain(&one.most))
    };
    let fastest = all().map(|point| point.0).fold(1.0, f64::max);
    let least = all().map(|point| point.1).fold(f64::MAX, f64::min);
    let most = all().map(|point| point.1).fold(1.0, f64::max);
    let head = title.map_or(0, |_| HEAD);
    let legend = (curves.len() as u32 + 1) * KEY;
    let root = SVGBackend::with_string(svg, (WIDTH, head + HEIGHT + legend)).into_drawing_area();
    root.fill(&Tone::Paper.rgb())?;
    if let Some(title) = title {
        root.draw(&Text::new(title.to_owned(), (2, 4), letters()))?;
    }
    let mut chart = ChartBuilder::on(&root)
        .margin_top(head + 6)
        .margin_bottom(legend)
        .margin_right(10)
        .x_label_area_size(22)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..fastest * 1.03, (least * 0.8..most * 1.25).log_scale())?;
    chart
        .configure_mesh()
        .x_labels(6)
        .x_label_formatter(&|rate| tick(*rate, fastest / 6.0))
        .y_labels(6)
        .y_label_formatter(&|us| time(*us))
        .light_line_style(TRANSPARENT)
        .bold_line_style(Tone::Grid.rgb())
        .axis_style(Tone::Grid.rgb())
        .label_style(letters())
        .draw()?;
    for one in curves {
        let tone = one.curve.tone.rgb();
        let line = |points: &[(f64, f64)], width| {
            PathElement::new(points.to_vec(), tone.stroke_width(width))
        };
        chart.draw_series([line(&one.half, 1), line(&one.most, 3)])?;
        let dot = |&at: &(f64, f64)| Circle::new(at, 3, tone.filled());
        chart.draw_series(one.most.iter().map(dot))?;
    }
    for (index, one) in curves.iter().enumerate() {
        let y = (head + HEIGHT + KEY / 2 + index as u32 * KEY) as i32;
        let corners = [(56, y), (68, y + 12)];
        root.draw(&Rectangle::new(corners, one.curve.tone.rgb().filled()))?;
        root.draw(&Text::new(one.curve.server.clone(), (74, y), letters()))?;
    }
    drop(chart);
    root.present()?;
    Ok(())
}

/// Microseconds, short.
fn time(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{} s", us / 1e6),
        us if us >= 1e3 => format!("{} ms", us / 1e3),
        us => format!("{us} us"),
    }
}

const RATE: &str = "/rate";
const P50: &str = "/report/p50_us";
const P99: &str = "/report/p99_us";
/// Times that a picture can show.
const DRAWN: std::ops::Range<f64> = 1e-3..1e12;
/// Pixels of a phone.
const WIDTH: u32 = 360;
const HEIGHT: u32 = 240;
const HEAD: u32 = 24;
const KEY: u32 = 20;

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
        Record::parse("r.jsonl", text.as_bytes())
            .0
            .expect("a record")
    }

    #[test]
    fn a_curve_has_the_medians_of_its_rounds_in_the_order_of_loads() {
        let record = record(&[0.7, 0.1, 0.5]);
        let curves = of_condition(&record, "rsa-x25519");
        assert_eq!(curves.len(), 2);
        let drawn = Drawn::of(&curves[0]).expect("three loads");
        assert_eq!(
            drawn.most,
            [(500.0, 200.0), (2500.0, 1000.0), (3500.0, 1400.0)]
        );
        assert_eq!(drawn.half[1], (2500.0, 100.0));
        assert!(of_condition(&record, "ecdsa-x25519").is_empty());
    }

    #[test]
    fn a_picture_has_a_line_for_each_server_and_its_title_cannot_break_it() {
        let svg = latency(&[record(&[0.7, 0.1, 0.5])], "rsa-x25519").expect("a picture");
        assert!(
            svg.starts_with("<svg ") && svg.ends_with("</svg>\n"),
            "{svg}"
        );
        assert!(
            svg.contains("RSA-2048, X25519; a &amp; &lt;b&gt;, 2026-01-02"),
            "{svg}"
        );
        assert_eq!(svg.matches("stroke-width=\"3\"").count(), 2, "{svg}");
        // One load is a point and no curve.
        assert_eq!(latency(&[record(&[0.7])], "rsa-x25519"), None);
    }
}
