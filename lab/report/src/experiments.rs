//! Published experiments: what was published, what a simulator says, what was measured.

use crate::block::{Block, Piece, Section, Table, cell, figure_or};
use crate::chart::{Point, Points, Tone, points};
use crate::figure::{Figure, Interval, Origin, Source, Statistic, Unit};
use crate::order::Shelf;
use std::rc::Rc;
use widelane_samples::Line;
use widelane_sim::Comparison;

/// The section. `simulator` is the source of the predictions.
pub(crate) fn section(
    shelf: &Shelf<'_>,
    predictions: &[Comparison],
    simulator: &Rc<Source>,
) -> Section {
    let mut blocks = vec![Block::Text(cell(
        "What was published, what the simulator says of it, and what was measured here. Held out: \
         the simulator was not calibrated with this number.",
    ))];
    let rows = rows(shelf, predictions, simulator);
    let mut scenarios: Vec<&str> = Vec::new();
    for row in &rows {
        if !scenarios.contains(&row.scenario) {
            scenarios.push(row.scenario);
        }
    }
    for scenario in scenarios {
        let of: Vec<_> = rows.iter().filter(|row| row.scenario == scenario).collect();
        blocks.push(Block::Heading(scenario.to_owned()));
        blocks.extend(chart(&of));
        blocks.push(table(&of));
    }
    if shelf.with(KIND).next().is_none() {
        blocks.push(Block::Text(vec![
            "No record is of an experiment. ".into(),
            Piece::Code("widelane experiment cloudflare --record DIR".to_owned()),
            " makes one.".into(),
        ]));
    }
    Section {
        id: "experiments",
        title: "Experiments",
        blocks,
    }
}

/// A published number, from all who say something about it.
struct Row<'a> {
    scenario: &'a str,
    what: &'a str,
    prediction: Option<&'a Comparison>,
    published: Option<Figure>,
    simulated: Option<Figure>,
    measured: Vec<Figure>,
}

fn rows<'a>(
    shelf: &Shelf<'a>,
    predictions: &'a [Comparison],
    simulator: &Rc<Source>,
) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = Vec::new();
    for prediction in predictions {
        let title = |name: &str| format!("{}, {}: {name}", prediction.scenario, prediction.what);
        let figure = |name: &str, value, field: &str| {
            let origin = Origin {
                statistic: Statistic::Simulated,
                ..Origin::of_profile(field.to_owned())
            };
            let interval = Interval::NotMeasured;
            Figure::new(
                &title(name),
                value,
                Unit::Plain,
                interval,
                origin,
                simulator,
            )
        };
        rows.push(Row {
            scenario: &prediction.scenario,
            what: &prediction.what,
            prediction: Some(prediction),
            published: figure("published", prediction.published, "/published"),
            simulated: figure("simulated", prediction.simulated, "/simulated"),
            measured: Vec::new(),
        });
    }
    for (record, source) in shelf.with(KIND) {
        let mut found: Vec<(&str, &str, Vec<&Line>)> = Vec::new();
        for line in record.of(KIND) {
            let word = |key: &str| line.value[key].as_str().unwrap_or("unknown");
            let (scenario, what) = (word("scenario"), word("what"));
            let known = found
                .iter_mut()
                .find(|(one, other, _)| *one == scenario && *other == what);
            match known {
                Some((_, _, lines)) => lines.push(line),
                None => found.push((scenario, what, vec![line])),
            }
        }
        for (scenario, what, lines) in found {
            let of = |name: &str, lines: &[&Line], field: &str| {
                let title = format!("{scenario}, {what}: {name}");
                Figure::median(&title, Unit::Plain, lines, field, source)
            };
            // Every line has what was known before the run.
            let before = |name: &str, field: &str| {
                of(name, &lines[..1], field).map(|figure| Figure {
                    interval: Interval::NotMeasured,
                    ..figure
                })
            };
            let known = rows
                .iter()
                .position(|row| row.scenario == scenario && row.what == what);
            let index = known.unwrap_or_else(|| {
                rows.push(Row {
                    scenario,
                    what,
                    prediction: None,
                    published: None,
                    simulated: None,
                    measured: Vec::new(),
                });
                rows.len() - 1
            });
            let row = &mut rows[index];
            row.measured.extend(of("measured", &lines, "/value"));
            row.published = row
                .published
                .take()
                .or_else(|| before("published", "/published"));
            row.simulated = row
                .simulated
                .take()
                .or_else(|| before("simulated", "/simulated"));
        }
    }
    rows
}

fn table(rows: &[&Row<'_>]) -> Block {
    let titles = [
        "",
        "published",
        "simulated",
        "measured",
        "error",
        "tolerance",
        "held out",
        "record",
    ];
    let cells = rows.iter().map(|row| {
        let number = |of: fn(&Comparison) -> f64| match row.prediction {
            Some(prediction) => cell(Unit::Plain.shown(of(prediction))),
            None => cell("–"),
        };
        let error = match row.prediction {
            Some(prediction) if !prediction.is_met() => {
                let mut pieces = vec![
                    Unit::Plain.shown(prediction.error).into(),
                    Piece::Strong(" misses its tolerance".to_owned()),
                ];
                let explained = prediction.explanation.as_deref().unwrap_or("not explained");
                pieces.push(format!(": {explained}").into());
                pieces
            }
            _ => number(|prediction| prediction.error),
        };
        let held_out = row.prediction.map(|prediction| prediction.held_out);
        let held_out = held_out.map_or("–", |held_out| if held_out { "yes" } else { "no" });
        let spaced = |pieces: Vec<Vec<Piece>>| pieces.join(&Piece::from(" "));
        let measured = row
            .measured
            .iter()
            .map(|figure| cell(figure.clone()))
            .collect();
        let records = row.measured.iter().map(|figure| {
            let source = &figure.source;
            let lines = crate::figure::ranges(figure.origin.lines.iter());
            vec![
                Piece::Record(Rc::clone(source)),
                format!(
                    " lines {lines} ({}, {}, commit {})",
                    source.machine,
                    source.date,
                    source.short_commit()
                )
                .into(),
            ]
        });
        let records = records.collect();
        vec![
            cell(row.what),
            figure_or(row.published.clone(), "–"),
            figure_or(row.simulated.clone(), "–"),
            if row.measured.is_empty() {
                cell("–")
            } else {
                spaced(measured)
            },
            error,
            number(|prediction| prediction.tolerance),
            cell(held_out),
            if row.measured.is_empty() {
                cell("–")
            } else {
                spaced(records)
            },
        ]
    });
    Table::new(&titles, None).with(cells)
}

/// All numbers as multiples of what was published.
fn chart(rows: &[&Row<'_>]) -> Option<Block> {
    let drawn: Vec<Points> = rows
        .iter()
        .filter_map(|row| {
            let published = row.published.as_ref()?.value;
            if published == 0.0 {
                return None;
            }
            let by = |value: f64| value / published;
            let simulated = row.simulated.iter().map(|figure| (figure, Tone::Middle));
            let measured = row.measured.iter().map(|figure| (figure, Tone::Ours));
            let points = simulated.chain(measured).map(|(figure, tone)| {
                let interval = match figure.interval {
                    Interval::Confidence(low, high) => {
                        let (low, high) = (by(low), by(high));
                        Some((low.min(high), low.max(high)))
                    }
                    Interval::Spread(..) | Interval::None(_) | Interval::NotMeasured => None,
                };
                Point {
                    at: by(figure.value),
                    interval,
                    tone,
                }
            });
            let points: Vec<_> = points.collect();
            (!points.is_empty()).then(|| Points {
                label: row.what.to_owned(),
                points,
            })
        })
        .collect();
    points(&drawn, 1.0).map(|svg| Block::Chart {
        svg,
        caption:
            "As multiples of the published number (line): simulated (yellow), measured (green)."
                .to_owned(),
    })
}

/// The kind of a record's lines with a measured number.
const KIND: &str = "experiment";
