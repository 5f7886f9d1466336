//! Published experiments: what was published, what a simulator says, what was measured.

use crate::block::Block;
use crate::chart::{Colour, Point, Points, points};
use crate::order::RecordList;
use std::rc::Rc;
use widelane_samples::{
    Cell, Figure, Interval, Line, Origin, Piece, Source, Statistic, Table, Unit, cell, figure_or, groups, number,
    ranges, text,
};
use widelane_sim::{BUILTIN, Comparison, Scenario};

/// The section. `simulator` is the source of the predictions.
pub(crate) fn blocks(list: &RecordList<'_>, predictions: &[Comparison], simulator: &Rc<Source>) -> Vec<Block> {
    let mut blocks = vec![Block::Text(cell(
        "What was published, what the simulator says of it, and what was measured here. Published and \
         simulated numbers have no interval. Error: simulated less published. Held out: no parameter of \
         the simulator was chosen with this number in view.",
    ))];
    let rows = rows(list, predictions, simulator);
    let mut scenarios: Vec<&str> = Vec::new();
    for row in &rows {
        if !scenarios.contains(&row.scenario) {
            scenarios.push(row.scenario);
        }
    }
    for scenario in scenarios {
        let of: Vec<_> = rows.iter().filter(|row| row.scenario == scenario).collect();
        blocks.extend(about(scenario));
        blocks.extend(chart(&of));
        blocks.extend(table(&of));
    }
    if predictions.is_empty() {
        blocks.push(Block::Text(vec![
            "The simulator was left out: ".into(),
            Piece::Code("widelane-lab report".to_owned()),
            " without ".into(),
            Piece::Code("--no-simulation".to_owned()),
            " shows all published numbers and what it says of them.".into(),
        ]));
    }
    if list.with(KIND).next().is_none() {
        blocks.push(Block::Text(vec![
            "No record is of an experiment. ".into(),
            Piece::Code("widelane-lab experiment cloudflare --record DIR".to_owned()),
            " makes one.".into(),
        ]));
    }
    blocks
}

/// Description of a scenario, and its publisher.
fn about(name: &str) -> Vec<Block> {
    let known = BUILTIN.iter().find(|(known, _)| *known == name);
    let known = known.and_then(|(_, text)| Scenario::parse(text).ok());
    match known {
        Some(scenario) => vec![
            Block::Heading(scenario.title),
            Block::Text(vec![
                Piece::Code(name.to_owned()),
                format!(": {}", scenario.source).into(),
            ]),
        ],
        None => vec![Block::Heading(name.to_owned())],
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

fn rows<'a>(list: &RecordList<'a>, predictions: &'a [Comparison], simulator: &Rc<Source>) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = Vec::new();
    for prediction in predictions {
        let title = |name: &str| format!("{}, {}: {name}", prediction.scenario, prediction.what);
        let figure = |name: &str, value, field: &str| {
            let origin = Origin {
                statistic: Statistic::Simulated,
                ..Origin::of_profile(field)
            };
            let interval = Interval::NotMeasured;
            Figure::new(&title(name), value, Unit::Plain, interval, origin, simulator)
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
    for (record, source) in list.with(KIND) {
        for group in groups(record, KIND, &["/scenario", "/what"]) {
            let [scenario, what] = [0, 1].map(|key| group.key[key].as_str().unwrap_or("unknown"));
            let lines = group.lines;
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
            let known = rows.iter().position(|row| row.scenario == scenario && row.what == what);
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
            row.published = row.published.take().or_else(|| before("published", "/published"));
            row.simulated = row.simulated.take().or_else(|| before("simulated", "/simulated"));
        }
    }
    rows
}

/// The numbers, and below them why some miss their tolerance.
fn table(rows: &[&Row<'_>]) -> Vec<Block> {
    let measured = rows.iter().any(|row| !row.measured.is_empty());
    let mut head = vec![text("number"), number("published"), number("simulated")];
    head.extend(measured.then(|| number("measured")));
    head.extend([number("error"), number("tolerance"), text("held out")]);
    head.extend(measured.then(|| text("record")));
    let cells = rows.iter().map(|row| {
        let of = |number: fn(&Comparison) -> f64| match row.prediction {
            Some(prediction) => Unit::Plain.shown(number(prediction)),
            None => "–".to_owned(),
        };
        let mut error = cell(of(|prediction| prediction.error));
        if row.prediction.is_some_and(|one| !one.is_met()) {
            error.push(Piece::Strong(" misses".to_owned()));
        }
        let held_out = row.prediction.map(|prediction| prediction.held_out);
        let held_out = held_out.map_or("–", |held_out| if held_out { "yes" } else { "no" });
        let mut cells = vec![
            cell(row.what),
            figure_or(row.published.clone(), "–"),
            figure_or(row.simulated.clone(), "–"),
        ];
        if measured {
            cells.push(listed(row, |figure| cell(figure.clone())));
        }
        cells.push(error);
        cells.push(cell(of(|prediction| prediction.tolerance)));
        cells.push(cell(held_out));
        if measured {
            cells.push(listed(row, record));
        }
        cells
    });
    let table = Block::Table(Table::new(head, None).with(cells));
    let misses: Vec<_> = rows.iter().filter_map(|row| missed(row)).collect();
    let misses = (!misses.is_empty()).then_some(Block::List(misses));
    std::iter::once(table).chain(misses).collect()
}

/// Reason why the simulator's number is not the published one.
fn missed(row: &Row<'_>) -> Option<Cell> {
    let prediction = row.prediction.filter(|one| !one.is_met())?;
    let why = prediction.explanation.as_deref().unwrap_or("not explained");
    Some(vec![
        row.what.into(),
        Piece::Strong(" misses its tolerance".to_owned()),
        format!(": {why}.").into(),
    ])
}

/// Pieces that `of` gives for each measured number of a row.
fn listed(row: &Row<'_>, of: impl Fn(&Figure) -> Cell) -> Cell {
    match row.measured.is_empty() {
        true => cell("–"),
        false => {
            let each: Vec<_> = row.measured.iter().map(of).collect();
            each.join(&Piece::from(" "))
        }
    }
}

/// Record of a measured number.
fn record(figure: &Figure) -> Cell {
    let source = &figure.source;
    let lines = ranges(figure.origin.lines.iter());
    let place = format!(
        " lines {lines} ({}, {}, commit {})",
        source.machine,
        source.date,
        source.short_commit()
    );
    vec![Piece::Record(Rc::clone(source)), place.into()]
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
            let simulated = row.simulated.iter().map(|figure| (figure, Colour::Middle));
            let measured = row.measured.iter().map(|figure| (figure, Colour::Ours));
            let points = simulated.chain(measured).map(|(figure, colour)| {
                let interval = figure.interval.confidence().map(|(low, high)| (by(low), by(high)));
                Point {
                    at: by(figure.value),
                    interval: interval.map(|(low, high)| (low.min(high), low.max(high))),
                    colour,
                }
            });
            let points: Vec<_> = points.collect();
            (!points.is_empty()).then(|| Points {
                label: row.what.to_owned(),
                points,
            })
        })
        .collect();
    let measured = rows.iter().any(|row| !row.measured.is_empty());
    let caption = match measured {
        true => "As multiples of the published number (red line): simulated (yellow), measured (green).",
        false => "As multiples of the published number (red line): simulated (yellow).",
    };
    Block::chart(points(&drawn, 1.0), caption)
}

/// The kind of a record's lines with a measured number.
const KIND: &str = "experiment";
