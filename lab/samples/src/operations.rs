//! Single operations a second, beside other libraries and beside what the ports can do.

use crate::figure::{Figure, Source, Unit};
use crate::kinds;
use crate::record::{Line, Record};
use crate::rows::{NOT_THERE, groups};
use crate::table::{Piece, Table, cell, figure_or, number, text};
use std::rc::Rc;
use widelane_cpu::Target;

/// Operations in lanes beside those of other libraries.
pub fn beside_peers(record: &Record, source: &Rc<Source>) -> Table {
    let said = record
        .of(KIND)
        .find_map(|line| line.value["result"]["version"].as_str());
    // Without the date of the version.
    let openssl = said
        .unwrap_or("OpenSSL")
        .split(' ')
        .take(2)
        .collect::<Vec<_>>()
        .join(" ");
    let mut table = Table::new(
        [
            text("operation"),
            text("lanes"),
            number("Widelane"),
            number("× AWS-LC"),
            number("AWS-LC"),
            number(openssl),
            number("libcrux"),
        ],
        Some(source),
    );
    for group in groups(record, KIND, &["/result/operation"]) {
        let operation = group.word(0);
        let find = |backend, in_flight| find(record, operation, backend, in_flight);
        let aws = find("aws-lc", 1);
        let targets = Target::ALL.into_iter().rev();
        let lanes = targets.filter_map(|target| Some((target.with_caveat(), find(target.name(), 8)?)));
        let lanes: Vec<_> = lanes.collect();
        let is_measured = |(_, line): &&(String, &Line)| line.value["result"]["ops_per_s"].is_number();
        let ours = lanes.iter().find(is_measured).or(lanes.first()).cloned();
        let form = || Some(("512-ifma".to_owned(), find("512-ifma", 1)?));
        // The parts that explain others have no peer.
        let (Some(aws), Some((lanes, ours))) = (aws, ours.or_else(form)) else {
            continue;
        };
        let what = format!("{operation}: × AWS-LC");
        let quotient = Figure::quotient(&what, &[(ours, aws)], SAMPLES, source);
        let peers = [
            ("Widelane", Some(ours)),
            ("AWS-LC", Some(aws)),
            ("OpenSSL", find("openssl", 1)),
            ("libcrux", find("libcrux", 1)),
        ];
        let mut row = vec![cell(Piece::Code(operation.to_owned())), cell(lanes)];
        row.extend(peers.map(|(name, line)| {
            let what = format!("{operation}, {name}");
            let figure = line.and_then(|line| rate(&what, line, source));
            figure_or(figure, &reason(line))
        }));
        row.insert(TIMES, figure_or(quotient, "–"));
        table.rows.push(row);
    }
    table
}

/// Share that the kernels reach of the most multiply-adds that the core's ports can do.
pub fn beside_the_ports(record: &Record, source: &Rc<Source>) -> Table {
    let mut table = Table::new(
        [
            text("kernel"),
            text("lanes"),
            number("multiply-adds/ns"),
            number("of the port limit"),
        ],
        Some(source),
    );
    for line in record.of(KIND) {
        let result = &line.value["result"];
        let operation = result["operation"].as_str().unwrap_or_default();
        let backend = result["backend"].as_str().unwrap_or_default();
        let (Some(done), Some(rate)) = (result["multiply_adds_per_ns"].as_f64(), result["ops_per_s"].as_f64()) else {
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
        let limit = find(record, PORT_LIMIT, backend, 1).filter(|limit| limit.number != line.number);
        let share = limit.and_then(|limit| {
            let most = &limit.value["result"];
            let of_one = most["multiply_adds_per_ns"].as_f64()? / most["ops_per_s"].as_f64()?;
            let what = format!("{name}, of the port limit");
            let quotient = Figure::quotient(&what, &[(line, limit)], SAMPLES, source)?;
            Some(quotient.scaled(each / of_one, Unit::Share))
        });
        table.rows.push(vec![
            cell(operation),
            cell(lanes),
            figure_or(figure, NOT_THERE),
            figure_or(share, "–"),
        ]);
    }
    table
}

/// The line of an operation with this backend and so many in flight.
pub(crate) fn find<'a>(record: &'a Record, operation: &str, backend: &str, in_flight: u64) -> Option<&'a Line> {
    let mut lines = record.of(KIND).filter(|line| {
        let result = &line.value["result"];
        result["operation"] == operation && result["backend"] == backend && result["in_flight"] == in_flight
    });
    lines.next()
}

/// The rate of a line: of encryption in bytes, else in operations.
fn rate(what: &str, line: &Line, source: &Rc<Source>) -> Option<Figure> {
    let figure = Figure::median(what, Unit::PerSecond, &[line], SAMPLES, source)?;
    let result = &line.value["result"];
    match (result["gigabytes_per_s"].as_f64(), result["ops_per_s"].as_f64()) {
        (Some(gigabytes), Some(rate)) if rate > 0.0 => Some(figure.scaled(gigabytes / rate, Unit::GigabytesPerSecond)),
        _ => Some(figure),
    }
}

/// Reason why a line has no rate.
fn reason(line: Option<&Line>) -> String {
    let said = line.and_then(|line| line.value["result"]["reason"].as_str());
    said.map_or("–".to_owned(), |said| format!("n/a: {said}"))
}

/// Column of operations with the quotients by AWS-LC.
pub const TIMES: usize = 3;
const KIND: &str = kinds::SPEED.kind;
/// Operations a second in each slice of time.
const SAMPLES: &str = "/result/samples";
const PORT_LIMIT: &str = "port-limit";
