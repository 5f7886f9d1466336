//! Single operations a second, beside other libraries and beside what the ports can do.

use crate::block::{Block, Section, Table, cell, figure_or, number, text};
use crate::chart::{Bar, Tone, columns};
use crate::figure::{Figure, Source, Unit, ranges};
use crate::order::{Shelf, folded};
use std::rc::Rc;
use widelane_cpu::Target;
use widelane_samples::{Line, Record};

/// The section.
pub(crate) fn section(shelf: &Shelf<'_>) -> Section {
    let mut blocks = vec![Block::Text(cell(
        "One core. The other libraries do one operation at a time; Widelane has eight in flight, in \
         the preferred lanes of those that were measured. For ChaCha20-Poly1305 all do one record at a time. Intervals are of the \
         time slices in which a condition was measured.",
    ))];
    let entries = shelf.with(KIND).map(|(record, source)| {
        let mut blocks = beside_peers(record, source);
        blocks.extend(beside_the_ports(record, source));
        (source, String::new(), blocks)
    });
    folded(
        &mut blocks,
        "Beside other libraries and the ports",
        entries.collect(),
    );
    if blocks.len() == 1 {
        blocks.push(Block::Text(cell(
            "No record has any. `widelane-lab handshakes speed` writes them (docs/bench.md).",
        )));
    }
    Section {
        id: "operations",
        title: "Operations a second",
        blocks,
    }
}

fn beside_peers(record: &Record, source: &Rc<Source>) -> Vec<Block> {
    let mut table = Table::new(
        [
            text("operation"),
            text("lanes"),
            number("Widelane"),
            number("× AWS-LC"),
            number("AWS-LC"),
            number("OpenSSL"),
            number("libcrux"),
            number("lines"),
        ],
        Some(source),
    );
    let mut quotients = Vec::new();
    for operation in operations(record) {
        let find = |backend, in_flight| find(record, operation, backend, in_flight);
        let aws = find("aws-lc", 1);
        let targets = Target::ALL.into_iter().rev();
        let lanes =
            targets.filter_map(|target| Some((target.with_caveat(), find(target.name(), 8)?)));
        let lanes: Vec<_> = lanes.collect();
        let is_measured =
            |(_, line): &&(String, &Line)| line.value["result"]["ops_per_s"].is_number();
        let ours = lanes.iter().find(is_measured).or(lanes.first()).cloned();
        let form = || Some(("512-ifma".to_owned(), find("512-ifma", 1)?));
        // The parts that explain others have no peer.
        let (Some(aws), Some((lanes, ours))) = (aws, ours.or_else(form)) else {
            continue;
        };
        let what = format!("{operation}: × AWS-LC");
        let quotient = Figure::quotient(&what, &[(ours, aws)], SAMPLES, source);
        quotients.extend(quotient.clone().map(|figure| (operation, figure)));
        let peers = [
            ("Widelane", Some(ours)),
            ("AWS-LC", Some(aws)),
            ("OpenSSL", find("openssl", 1)),
            ("libcrux", find("libcrux", 1)),
        ];
        let mut row = vec![cell(operation), cell(lanes)];
        row.extend(peers.map(|(name, line)| {
            let what = format!("{operation}, {name}");
            let figure = line.and_then(|line| rate(&what, line, source));
            figure_or(figure, &reason(line))
        }));
        row.insert(3, figure_or(quotient, "–"));
        let lines = peers
            .iter()
            .filter_map(|(_, line)| Some(line.as_ref()?.number));
        let lines: Vec<usize> = lines.collect();
        row.push(cell(ranges(lines.iter())));
        table.rows.push(row);
    }
    if table.rows.is_empty() {
        return Vec::new();
    }
    let rows: Vec<Bar<'_>> = quotients
        .iter()
        .map(|(operation, figure)| Bar {
            label: (*operation).to_owned(),
            figure,
            tone: Tone::Ours,
        })
        .collect();
    let caption = "Widelane's operations a second as a multiple of AWS-LC's (red line).";
    let chart = Block::chart(columns(rows, Some(1.0)), caption);
    chart.into_iter().chain([Block::Table(table)]).collect()
}

/// Share that the kernels reach of the most multiply-adds that the core's ports can do.
fn beside_the_ports(record: &Record, source: &Rc<Source>) -> Vec<Block> {
    let mut table = Table::new(
        [
            text("kernel"),
            text("lanes"),
            number("multiply-adds/ns"),
            number("of the port limit"),
            number("lines"),
        ],
        Some(source),
    );
    for line in record.of(KIND) {
        let result = &line.value["result"];
        let operation = result["operation"].as_str().unwrap_or_default();
        let backend = result["backend"].as_str().unwrap_or_default();
        let (Some(done), Some(rate)) = (
            result["multiply_adds_per_ns"].as_f64(),
            result["ops_per_s"].as_f64(),
        ) else {
            continue;
        };
        let lanes = match Target::named(backend) {
            Some(target) => target.with_caveat(),
            None => backend.to_owned(),
        };
        let name = format!("{operation} in {lanes}");
        let each = done / rate;
        let figure = Figure::median(&name, Unit::PerNanosecond, &[line], SAMPLES, source)
            .map(|figure| figure.scaled(each, Unit::PerNanosecond));
        let limit =
            find(record, PORT_LIMIT, backend, 1).filter(|limit| limit.number != line.number);
        let limit = limit.and_then(|limit| {
            let most = &limit.value["result"];
            let of_one = most["multiply_adds_per_ns"].as_f64()? / most["ops_per_s"].as_f64()?;
            let what = format!("{name}, of the port limit");
            let quotient = Figure::quotient(&what, &[(line, limit)], SAMPLES, source)?;
            Some((quotient.scaled(each / of_one, Unit::Share), limit.number))
        });
        let mut lines = vec![line.number];
        let share = limit.map(|(figure, number)| {
            lines.push(number);
            figure
        });
        table.rows.push(vec![
            cell(operation),
            cell(lanes),
            figure_or(figure, NOT_THERE),
            figure_or(share, "–"),
            cell(ranges(lines.iter())),
        ]);
    }
    match table.rows.is_empty() {
        true => Vec::new(),
        false => vec![
            Block::Text(cell(
                "Kernels of multiply-adds beside a loop that does nothing else: the most that the \
                 ports of the core can do at the clock of that moment.",
            )),
            Block::Table(table),
        ],
    }
}

/// Operations in the order of the record.
fn operations(record: &Record) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for line in record.of(KIND) {
        if let Some(name) = line.value["result"]["operation"].as_str()
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    names
}

fn find<'a>(
    record: &'a Record,
    operation: &str,
    backend: &str,
    in_flight: u64,
) -> Option<&'a Line> {
    let mut lines = record.of(KIND).filter(|line| {
        let result = &line.value["result"];
        result["operation"] == operation
            && result["backend"] == backend
            && result["in_flight"] == in_flight
    });
    lines.next()
}

/// The rate of a line: of encryption in bytes, else in operations.
fn rate(what: &str, line: &Line, source: &Rc<Source>) -> Option<Figure> {
    let figure = Figure::median(what, Unit::PerSecond, &[line], SAMPLES, source)?;
    let result = &line.value["result"];
    match (
        result["gigabytes_per_s"].as_f64(),
        result["ops_per_s"].as_f64(),
    ) {
        (Some(gigabytes), Some(rate)) if rate > 0.0 => {
            Some(figure.scaled(gigabytes / rate, Unit::GigabytesPerSecond))
        }
        _ => Some(figure),
    }
}

/// Reason why a line has no rate.
fn reason(line: Option<&Line>) -> String {
    let said = line.and_then(|line| line.value["result"]["reason"].as_str());
    said.map_or("–".to_owned(), |said| format!("n/a: {said}"))
}

const KIND: &str = "speed";
/// Operations a second in each slice of time.
const SAMPLES: &str = "/result/samples";
const PORT_LIMIT: &str = "port-limit";
const NOT_THERE: &str = "n/a: not in the record";
