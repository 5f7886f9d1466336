//! Handshakes beside peers: pairs, unmodified servers with and without Widelane, and the long
//! comparison with nginx.

use crate::block::{Block, Section, Table, cell, figure_or, number, text};
use crate::chart::{Bar, Group, Tone, panels};
use crate::figure::{Figure, Source, Unit, ranges};
use crate::latency;
use crate::order::{Shelf, folded};
use serde_json::Value;
use std::collections::BTreeMap;
use std::rc::Rc;
use widelane_samples::{Line, Record};

/// The section.
pub(crate) fn section(shelf: &Shelf<'_>) -> Section {
    let mut blocks = vec![Block::Text(cell(
        "Full TLS 1.3 handshakes where a row says nothing else, with the servers on one CPU. In \
         flight: how many handshakes are under way at the same time. A quotient is the median of the \
         quotients of rounds, with its interval of 95\u{a0}%; of CPU time, less is better.",
    ))];
    let beside_nginx = |record: &Record| sides(record, PAIR).iter().any(|side| side == "nginx");
    let topics: [(&str, &str, Shown); 5] = [
        ("Widelane's terminator beside nginx", PAIR, pair),
        (
            "Unmodified servers, with and without Widelane",
            WAYS_IN,
            ways_in,
        ),
        ("What batching changes", CLOSED, closed),
        ("Latency against load", latency::KIND, latency::curves),
        ("Other pairs of servers", PAIR, pair),
    ];
    for (index, (title, kind, shown)) in topics.into_iter().enumerate() {
        let wanted = |record: &Record| match (kind, index) {
            (PAIR, 0) => beside_nginx(record) && sides(record, PAIR).contains(&OURS.to_owned()),
            (PAIR, _) => !(beside_nginx(record) && sides(record, PAIR).contains(&OURS.to_owned())),
            _ => true,
        };
        let found = shelf.with(kind).filter(|(record, _)| wanted(record));
        let entries = found.map(|(record, source)| {
            let subject = match kind {
                PAIR => names(record),
                _ => String::new(),
            };
            (source, subject, shown(record, source))
        });
        folded(&mut blocks, title, entries.collect());
    }
    if blocks.len() == 1 {
        blocks.push(Block::Text(cell(
            "No record has any. `widelane-lab handshakes pair`, `bench` and `ways-in` write them \
             (docs/bench.md).",
        )));
    }
    Section {
        id: "handshakes",
        title: "Handshakes beside peers",
        blocks,
    }
}

/// The quotient of `widelane serve` by nginx in a pair with many connections in flight, of the rate
/// under a condition.
pub(crate) fn gain(record: &Record, source: &Rc<Source>, condition: &str) -> Option<Figure> {
    let turns = turns(record, PAIR);
    let turn = busiest(&turns, |turn| turn.condition == condition)?;
    let what = format!("{}: × nginx", name_of(condition));
    turn.quotient(&what, OURS, "nginx", RATE, source)
}

/// Quotient of unmodified nginx with Widelane by nginx alone.
pub(crate) fn gain_of_nginx(record: &Record, source: &Rc<Source>) -> Option<Figure> {
    let turns = turns(record, WAYS_IN);
    let turn = busiest(&turns, |turn| {
        turn.server == "nginx" && turn.condition == RSA
    })?;
    let what = "nginx with Widelane: × nginx alone";
    turn.quotient(what, "widelane", "plain", RATE, source)
}

fn busiest<'a, 'b>(
    turns: &'b [Turn<'a>],
    wanted: impl Fn(&Turn<'a>) -> bool,
) -> Option<&'b Turn<'a>> {
    let busy = turns
        .iter()
        .filter(|turn| turn.in_flight >= BUSY && wanted(turn));
    busy.max_by_key(|turn| turn.in_flight)
}

type Shown = fn(&Record, &Rc<Source>) -> Vec<Block>;

/// Turns under one condition, by side and round.
struct Turn<'a> {
    server: String,
    condition: String,
    in_flight: u64,
    sides: BTreeMap<String, BTreeMap<u64, &'a Line>>,
}

impl<'a> Turn<'a> {
    fn of(&self, side: &str) -> Vec<&'a Line> {
        let rounds = self.sides.get(side);
        rounds.map_or(Vec::new(), |rounds| rounds.values().copied().collect())
    }

    /// Rounds in which both sides ran.
    fn pairs(&self, ours: &str, theirs: &str) -> Vec<(&'a Line, &'a Line)> {
        let (Some(ours), Some(theirs)) = (self.sides.get(ours), self.sides.get(theirs)) else {
            return Vec::new();
        };
        let both = ours
            .iter()
            .filter_map(|(round, &our)| Some((our, *theirs.get(round)?)));
        both.collect()
    }

    fn quotient(
        &self,
        what: &str,
        ours: &str,
        theirs: &str,
        field: &str,
        source: &Rc<Source>,
    ) -> Option<Figure> {
        Figure::quotient(what, &self.pairs(ours, theirs), field, source)
    }

    fn all(&self) -> Vec<&'a Line> {
        self.sides
            .values()
            .flat_map(|rounds| rounds.values().copied())
            .collect()
    }

    /// The numbers of its lines.
    fn place(&self) -> String {
        let lines: Vec<usize> = self.all().iter().map(|line| line.number).collect();
        ranges(lines.iter())
    }

    fn title(&self) -> String {
        let condition = name_of(&self.condition);
        match self.server.is_empty() {
            true => condition,
            false => format!("{}, {condition}", software(&self.server)),
        }
    }
}

/// The turns of a kind in a record, in the order in which they first ran.
fn turns<'a>(record: &'a Record, kind: &'a str) -> Vec<Turn<'a>> {
    let mut turns: Vec<Turn<'a>> = Vec::new();
    for line in record.of(kind) {
        let word = |key: &str| line.value[key].as_str().unwrap_or_default().to_owned();
        let condition = word("condition");
        let (server, in_flight) = (
            word("server"),
            line.value["in_flight"].as_u64().unwrap_or(0),
        );
        let known = turns.iter().position(|turn| {
            turn.server == server && turn.condition == condition && turn.in_flight == in_flight
        });
        let index = known.unwrap_or_else(|| {
            turns.push(Turn {
                server,
                condition,
                in_flight,
                sides: BTreeMap::new(),
            });
            turns.len() - 1
        });
        let rounds = turns[index].sides.entry(word("side")).or_default();
        let round = line.value["round"].as_u64().unwrap_or(rounds.len() as u64);
        rounds.entry(round).or_insert(line);
    }
    turns
}

fn pair(record: &Record, source: &Rc<Source>) -> Vec<Block> {
    let (sides, titles) = (sides(record, PAIR), server_names(record, PAIR));
    let [one, other, ..] = &sides[..] else {
        return vec![Block::Text(cell(
            "This record has one side only: nothing is compared.",
        ))];
    };
    let mut table = Table::new(
        [
            text("measured"),
            number("in flight"),
            number(&titles[0]),
            number(&titles[1]),
            number("quotient"),
            number("lines"),
        ],
        Some(source),
    );
    let mut drawn = Vec::new();
    for turn in turns(record, PAIR) {
        for (title, unit, field) in FIELDS {
            let name = format!("{}: {title}", turn.title());
            let median = |side: &str, server: &str| {
                let what = format!("{name}, {server}");
                Figure::median(&what, unit, &turn.of(side), field, source)
            };
            let figures = [median(one, &titles[0]), median(other, &titles[1])];
            let quotient = turn.quotient(&format!("{name}, quotient"), one, other, field, source);
            if field == RATE {
                for (figure, side, server) in [
                    (&figures[0], one, &titles[0]),
                    (&figures[1], other, &titles[1]),
                ] {
                    drawn.extend(figure.clone().map(|figure| Drawn {
                        group: format!("{}, {} in flight", turn.title(), turn.in_flight),
                        label: server.clone(),
                        figure,
                        tone: tone(side),
                    }));
                }
            }
            let [ours, theirs] = figures;
            table.rows.push(vec![
                cell(name),
                cell(turn.in_flight.to_string()),
                figure_or(ours, NOT_THERE),
                figure_or(theirs, NOT_THERE),
                figure_or(quotient, NOT_THERE),
                cell(turn.place()),
            ]);
        }
    }
    with_chart(&drawn, "Handshakes a second.", None, table)
}

fn ways_in(record: &Record, source: &Rc<Source>) -> Vec<Block> {
    let titles = [
        text("server"),
        number("in flight"),
        number("handshakes/s"),
        number("with Widelane"),
        number("quotient"),
        number("CPU time each"),
        number("with Widelane"),
        number("quotient"),
        number("errors"),
        number("lines"),
    ];
    let mut table = Table::new(titles, Some(source));
    let mut drawn = Vec::new();
    for turn in turns(record, WAYS_IN) {
        let mut row = vec![cell(turn.title()), cell(turn.in_flight.to_string())];
        for (title, unit, field) in FIELDS {
            let name = format!("{}, {} in flight: {title}", turn.title(), turn.in_flight);
            for (side, beside) in [("plain", ""), ("widelane", " with Widelane")] {
                let what = format!("{name}{beside}");
                let figure = Figure::median(&what, unit, &turn.of(side), field, source);
                row.push(figure_or(figure, NOT_THERE));
            }
            let what = format!("{name}, quotient");
            let quotient = turn.quotient(&what, "widelane", "plain", field, source);
            if let (RATE, Some(figure)) = (field, &quotient) {
                drawn.push(Drawn {
                    group: turn.title(),
                    label: format!("{} in flight", turn.in_flight),
                    figure: figure.clone(),
                    tone: Tone::Ours,
                });
            }
            row.push(figure_or(quotient, NOT_THERE));
        }
        let errors = Figure::sum(
            &format!("{}, {} in flight: errors", turn.title(), turn.in_flight),
            &turn.all(),
            "/report/errors",
            source,
        );
        row.push(figure_or(errors, NOT_THERE));
        row.push(cell(turn.place()));
        table.rows.push(row);
    }
    let caption =
        "Handshakes a second with Widelane, as a multiple of the server alone (red line).";
    with_chart(&drawn, caption, Some(1.0), table)
}

fn closed(record: &Record, source: &Rc<Source>) -> Vec<Block> {
    let titles = [
        text("handshake"),
        number("in flight"),
        text("server"),
        number("handshakes/s"),
        number("× nginx"),
        number("× batching off"),
        number("server's CPU time each"),
        number("errors"),
        number("lines"),
    ];
    let mut table = Table::new(titles, Some(source));
    let mut drawn = Vec::new();
    let names: Vec<_> = sides(record, CLOSED)
        .into_iter()
        .zip(server_names(record, CLOSED))
        .collect();
    for turn in turns(record, CLOSED) {
        for (side, server) in &names {
            let lines = turn.of(side);
            if lines.is_empty() {
                continue;
            }
            let name = format!("{}, {} in flight, {server}", turn.title(), turn.in_flight);
            let mut row = vec![
                cell(turn.title()),
                cell(turn.in_flight.to_string()),
                cell(&server[..]),
            ];
            let rate = Figure::median(&name, Unit::PerSecond, &lines, RATE, source);
            if let (true, Some(rate)) = (turn.in_flight > 1, &rate) {
                drawn.push(Drawn {
                    group: format!("{}, {} in flight", turn.title(), turn.in_flight),
                    label: server.clone(),
                    figure: rate.clone(),
                    tone: tone(side),
                });
            }
            row.push(figure_or(rate, NOT_THERE));
            for other in ["nginx", "widelane-off"] {
                let what = format!("{name}: × {other}");
                let quotient = match side == other {
                    true => None,
                    false => turn.quotient(&what, side, other, RATE, source),
                };
                row.push(figure_or(quotient, "–"));
            }
            let what = format!("{name}: server's CPU time each");
            let time = Figure::median(&what, Unit::Microseconds, &lines, CPU_TIME, source);
            row.push(figure_or(time, NOT_THERE));
            let errors = Figure::sum(&format!("{name}: errors"), &lines, "/report/errors", source);
            row.push(figure_or(errors, NOT_THERE));
            let lines: Vec<usize> = lines.iter().map(|line| line.number).collect();
            row.push(cell(ranges(lines.iter())));
            table.rows.push(row);
        }
    }
    with_chart(
        &drawn,
        "Handshakes a second with many connections in flight.",
        None,
        table,
    )
}

/// A bar before it is drawn, with what stands above its group.
struct Drawn {
    group: String,
    label: String,
    figure: Figure,
    tone: Tone,
}

fn with_chart(drawn: &[Drawn], caption: &str, mark: Option<f64>, table: Table) -> Vec<Block> {
    let groups = drawn.chunk_by(|one, next| one.group == next.group);
    let groups = groups.map(|group| Group {
        title: Some(group[0].group.clone()),
        bars: group
            .iter()
            .map(|one| Bar {
                label: one.label.clone(),
                figure: &one.figure,
                tone: one.tone,
            })
            .collect(),
    });
    let pictures = panels(&groups.collect::<Vec<_>>(), mark);
    let chart = Block::chart(pictures, caption);
    chart.into_iter().chain([Block::Table(table)]).collect()
}

/// The sides of a record: of a pair in the order in which its command names them, else in that in
/// which they first ran.
pub(crate) fn sides(record: &Record, kind: &str) -> Vec<String> {
    let mut sides: Vec<String> = Vec::new();
    for line in record.of(kind) {
        if let Some(side) = line.value["side"].as_str()
            && !sides.iter().any(|known| known == side)
        {
            sides.push(side.to_owned());
        }
    }
    if kind == PAIR {
        let command = record.run["command"].as_str().unwrap_or_default();
        sides.sort_by_key(|side| command.split(' ').position(|word| word == side));
    }
    sides
}

/// The servers of these sides, as people name them.
pub(crate) fn server_names(record: &Record, kind: &str) -> Vec<String> {
    let nginx = nginx(record);
    let name = |side: &String| match side.as_str() {
        "widelane-on" => "widelane serve".to_owned(),
        "widelane-off" => "widelane serve, batching off".to_owned(),
        "widelane-inline" => "widelane serve, inline".to_owned(),
        "widelane-old" => "widelane serve, old".to_owned(),
        "nginx-stream" => "nginx stream".to_owned(),
        "nginx" => nginx.clone(),
        other => match other.strip_prefix("nginx-trace-") {
            Some(view) => format!("nginx, traced (trace {view})"),
            None => software(other).to_owned(),
        },
    };
    sides(record, kind).iter().map(name).collect()
}

/// A pair for a title.
fn names(record: &Record) -> String {
    server_names(record, PAIR).join(" beside ")
}

/// nginx and its library, like `nginx 1.22.1 (OpenSSL 3.0.22)`.
fn nginx(record: &Record) -> String {
    let said = record.run["machine"]["nginx"].as_array();
    let lines = || said.into_iter().flatten().filter_map(Value::as_str);
    let after = |start: &str| {
        let rest = lines().find_map(|line| line.trim().strip_prefix(start))?;
        Some(rest.split_whitespace().next()?.to_owned())
    };
    match (after("nginx version: nginx/"), after("built with OpenSSL ")) {
        (Some(version), Some(library)) => format!("nginx {version} (OpenSSL {library})"),
        (Some(version), None) => format!("nginx {version}"),
        _ => "nginx".to_owned(),
    }
}

/// A server as people name it.
fn software(server: &str) -> &str {
    match server {
        "haproxy" => "HAProxy",
        "apache2" => "Apache",
        other => other,
    }
}

/// A condition as people name it.
pub(crate) fn name_of(condition: &str) -> String {
    match condition {
        RSA => "RSA-2048, X25519",
        ECDSA => "ECDSA P-256, X25519",
        "ecdsa-x25519mlkem768" => "ECDSA P-256, X25519MLKEM768",
        "rsa-x25519mlkem768" => "RSA-2048, X25519MLKEM768",
        "rsa-usual" => "RSA-2048, as most clients make it",
        "ecdsa-usual" => "ECDSA P-256, as most clients make it",
        "resumed-tls13" => "TLS 1.3, resumed",
        "resumed-tls12" => "TLS 1.2, resumed",
        "rsa-client-certificate" => "RSA-2048, with a client's certificate",
        "ecdsa-client-certificate" => "ECDSA P-256, with a client's certificate",
        other => other,
    }
    .to_owned()
}

pub(crate) fn tone(side: &str) -> Tone {
    match side {
        "widelane-off" => Tone::Middle,
        side if side.starts_with("widelane") => Tone::Ours,
        _ => Tone::Peer,
    }
}

/// A note for a cell without a figure.
const NOT_THERE: &str = "n/a: not in the record";
/// Conditions, as records spell them.
pub(crate) const RSA: &str = "rsa-x25519";
pub(crate) const ECDSA: &str = "ecdsa-x25519";
/// Fields of reports for the rate and the server's CPU time.
const RATE: &str = "/report/handshakes_per_s";
const CPU_TIME: &str = "/report/server_cpu_us_per_handshake";
const FIELDS: [(&str, Unit, &str); 2] = [
    ("handshakes/s", Unit::PerSecond, RATE),
    ("server's CPU time each", Unit::Microseconds, CPU_TIME),
];
/// Kinds of lines, and our side of a pair.
const PAIR: &str = "pair";
const WAYS_IN: &str = "ways-in";
const CLOSED: &str = "closed";
/// Connections in flight from which on passes are full: fewer say nothing about a busy server.
const BUSY: u64 = 16;
const OURS: &str = "widelane-on";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::Path;

    /// Pair of six rounds with `in_flight` requests in flight.
    fn pair_of(in_flight: u64) -> Record {
        let mut text =
            r#"{"kind":"run","command":"pair widelane-on nginx","machine":{}}"#.to_owned();
        for round in 0..6 {
            for (side, rate) in [("nginx", 100 + round), ("widelane-on", 400 + 4 * round)] {
                let line = json!({"kind": "pair", "condition": RSA, "side": side, "round": round,
                    "in_flight": in_flight, "report": {"handshakes_per_s": rate}});
                text.push_str(&format!("\n{line}"));
            }
        }
        Record::parse("r.jsonl", text.as_bytes())
            .0
            .expect("a record")
    }

    #[test]
    fn a_gain_is_of_many_connections_in_flight() {
        let gain = |in_flight| {
            let record = pair_of(in_flight);
            let source = crate::source::of_record(&record, Path::new("page.html"));
            gain(&record, &source, RSA).map(|figure| figure.value)
        };
        assert_eq!(gain(1), None);
        assert_eq!(gain(64), Some(4.0));
    }

    #[test]
    fn a_round_that_one_side_misses_is_no_pair() {
        let mut record = pair_of(64);
        // nginx of the first round: the turn of Widelane that is left belongs to no other round.
        record.lines.remove(0);
        let turns = turns(&record, PAIR);
        let pairs = turns[0].pairs(OURS, "nginx");
        let numbers: Vec<_> = pairs
            .iter()
            .map(|(our, their)| (our.number, their.number))
            .collect();
        assert_eq!(numbers, [(5, 4), (7, 6), (9, 8), (11, 10), (13, 12)]);
    }
}
