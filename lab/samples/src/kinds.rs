//! Tables of the kinds of lines that comparisons of servers write.

use crate::figure::{Figure, Source, Unit};
use crate::names;
use crate::record::Record;
use crate::rows::{Group, Kind, NOT_THERE, Of, groups, pairs};
use crate::table::{Column, Table, cell, figure_or, number, plain, text};
use std::rc::Rc;

/// Closed loops: each server under each condition.
pub const CLOSED: Kind = Kind {
    kind: "closed",
    keys: &[HANDSHAKE, IN_FLIGHT, SERVER],
    columns: &[
        ("handshakes/s", per_second(RATE)),
        ("× nginx", Of::Times("nginx", RATE)),
        ("× batching off", Of::Times("widelane-off", RATE)),
        ("server's CPU time each", us(CPU_TIME)),
        ("CPU time × nginx", Of::Times("nginx", CPU_TIME)),
        ("p50", us(P50)),
        ("p99", us(P99)),
        ("errors", Of::Sum(ERRORS)),
        ("load's CPU", Of::Median(Unit::Share, LOAD_CPU)),
    ],
};

/// Open loops: latency at a given rate.
pub const OPEN: Kind = Kind {
    kind: "open",
    keys: &[HANDSHAKE, SERVER, ("/knee_of", "share")],
    columns: LATENCY,
};

/// Latency against load, at shares of each server's knee.
pub const CURVE: Kind = Kind {
    kind: "curve",
    keys: &[HANDSHAKE, SERVER, ("/share_of_knee", "of its knee")],
    columns: LATENCY,
};

/// Unmodified servers with and without Widelane beside each other.
pub const WAYS_IN: Kind = Kind {
    kind: "ways-in",
    keys: &[SOFTWARE, ("/condition", ""), IN_FLIGHT],
    columns: &[
        ("handshakes/s", Of::MedianOf("plain", Unit::PerSecond, RATE)),
        ("with Widelane", Of::MedianOf("widelane", Unit::PerSecond, RATE)),
        ("quotient", Of::Quotient(WITH_AND_WITHOUT, RATE)),
        ("CPU time each", Of::MedianOf("plain", Unit::Microseconds, CPU_TIME)),
        ("with Widelane", Of::MedianOf("widelane", Unit::Microseconds, CPU_TIME)),
        ("quotient", Of::Quotient(WITH_AND_WITHOUT, CPU_TIME)),
        ("errors", Of::Sum(ERRORS)),
    ],
};

/// Unmodified servers with more figures, in a row for each side.
pub const WAYS_IN_SIDES: Kind = Kind {
    kind: WAYS_IN.kind,
    keys: &[SOFTWARE, ("/condition", ""), IN_FLIGHT, ("/side", "OpenSSL")],
    columns: &[
        ("handshakes/s", per_second(RATE)),
        ("× alone", Of::SureTimes("plain", RATE)),
        ("server's CPU time each", us(CPU_TIME)),
        ("× alone", Of::SureTimes("plain", CPU_TIME)),
        ("p50", us(P50)),
        ("p99", us(P99)),
        ("errors", Of::Sum(ERRORS)),
    ],
};

/// SET of established clients of a data store while others connect.
pub const BESIDE: Kind = Kind {
    kind: "beside",
    keys: &[SOFTWARE, ("/storm", "storm"), ("/side", "OpenSSL")],
    columns: &[
        ("requests/s", per_second("/report/requests_per_s")),
        ("p50 of SET", us(P50)),
        ("p99 of SET", us(P99)),
        ("× alone", Of::SureTimes("plain", P99)),
        ("p99.9", us("/report/p999_us")),
        ("connects/s", per_second("/report/others/handshakes_per_s")),
        ("errors", Of::Sum("/report/others/errors")),
    ],
};

/// Memory of idle connections.
pub const MEMORY: Kind = Kind {
    kind: "memory",
    keys: &[("/result/side", "server")],
    columns: &[
        ("idle connections", count("/result/connections")),
        ("PSS before", kib("/result/before/pss_kib")),
        ("PSS with", kib("/result/with/pss_kib")),
        ("memory of each", Of::Median(Unit::Bytes, "/result/pss_bytes_each")),
    ],
};

/// Relayed bytes.
pub const RELAY_BULK: Kind = Kind {
    kind: "relay",
    keys: &[("/traffic", "traffic"), SERVER],
    columns: &[
        ("rate", Of::Median(Unit::GibibytesPerSecond, "/report/gib_per_s")),
        ("server's CPU time for a GiB", Of::Range(Unit::Seconds, CPU_OF_GIB)),
        ("× best peer", Of::TimesBestPeer(CPU_OF_GIB)),
    ],
};

/// Small requests on kept connections.
pub const RELAY_SMALL: Kind = Kind {
    kind: RELAY_BULK.kind,
    keys: RELAY_BULK.keys,
    columns: &[
        ("requests/s", per_second("/report/requests_per_s")),
        (
            "server's CPU time each",
            Of::Range(Unit::FineMicroseconds, CPU_OF_REQUEST),
        ),
        ("× best peer", Of::TimesBestPeer(CPU_OF_REQUEST)),
        ("p50", us(P50)),
        ("p99", us(P99)),
    ],
};

/// The server side in memory, on one CPU and on all.
pub const SCALING: Kind = Kind {
    kind: "scaling",
    keys: &[("/certificate", "key"), ("/arrangement", "arrangement")],
    columns: &[
        ("threads", count("/report/threads")),
        ("handshakes/s", Of::Range(Unit::PerSecond, RATE)),
        ("× one thread", Of::Times("one", RATE)),
    ],
};

/// Tests whether times depend on secrets.
pub const TIMING: Kind = Kind {
    kind: "timing",
    keys: &[("/finding/operation", "operation")],
    columns: &[
        ("classes", Of::Words("/finding/classes")),
        ("measurements", count("/finding/measurements")),
        ("max |t|", Of::Median(Unit::Tenths, "/finding/t")),
        ("in", Of::Words("/finding/test")),
        ("verdict", Of::Words("/finding/verdict")),
    ],
};

/// Single operations, each measured condition in a row.
pub const SPEED: Kind = Kind {
    kind: "speed",
    keys: &[
        ("/result/operation", "operation"),
        ("/result/backend", "backend"),
        ("/result/in_flight", "in flight"),
    ],
    columns: &[
        ("ops/s", per_second("/result/ops_per_s")),
        ("latency", us("/result/latency_us")),
    ],
};

/// Pairs of turns of two servers.
pub const PAIR: &str = "pair";

/// A figure of a pair that a row can have: its place in lines, its name, and its unit.
pub type Field = (&'static str, &'static str, Unit);

/// All figures of a pair.
pub const FIELDS: [Field; 5] = [
    (RATE, "handshakes/s", Unit::PerSecond),
    (CPU_TIME, "server's CPU time each", Unit::Microseconds),
    (P50, "median latency", Unit::Microseconds),
    (P99, "99th percentile of latency", Unit::Microseconds),
    (ERRORS, "errors", Unit::Count),
];

/// Turns of two servers under one condition.
#[derive(Clone, Debug)]
pub struct Pair<'a> {
    /// Both sides, in the order in which the command names them.
    pub sides: [&'a str; 2],
    /// Condition and number in flight, with their lines.
    pub turns: Vec<Group<'a>>,
}

impl<'a> Pair<'a> {
    /// The pair of a record; `None` if it has not two sides.
    pub fn of(record: &'a Record) -> Option<Self> {
        let turns = groups(record, PAIR, &[HANDSHAKE.0, IN_FLIGHT.0]);
        let command = record.run["command"].as_str().unwrap_or_default();
        let mut sides = groups(record, PAIR, &[]).first()?.sides();
        sides.sort_by_key(|side| command.split(' ').position(|word| word == *side));
        let sides = <[&str; 2]>::try_from(sides).ok()?;
        Some(Self { sides, turns })
    }

    /// The quotient of both sides in these turns.
    pub fn quotient(&self, what: &str, turns: &Group<'_>, field: &str, source: &Rc<Source>) -> Option<Figure> {
        let [ours, theirs] = self.sides.map(|side| turns.of_side(side));
        Figure::quotient(what, &pairs(&ours, &theirs), field, source)
    }

    /// A row for each of `fields` in all turns.
    pub fn table(&self, record: &Record, source: &Rc<Source>, fields: &[Field]) -> Table {
        let servers = self.sides.map(|side| names::side(record, side));
        let titles = servers.clone().map(|server| Column {
            title: server,
            ..number("")
        });
        let mut head = vec![text("measured"), number("in flight")];
        head.extend(titles);
        head.push(Column {
            interval: Some("95 % interval"),
            ..number("quotient")
        });
        let mut table = Table::new(head, Some(source));
        for turns in &self.turns {
            let condition = names::condition(turns.word(0));
            for (field, title, unit) in fields {
                let name = format!("{condition}: {title}");
                let mut row = vec![cell(&name[..]), cell(turns.key[1].to_string())];
                row.extend([0, 1].map(|side| {
                    let what = format!("{name}, {}", plain(&servers[side]));
                    let lines = turns.of_side(self.sides[side]);
                    let figure = match *field {
                        ERRORS => Figure::sum(&what, &lines, field, source),
                        field => Figure::median(&what, *unit, &lines, field, source),
                    };
                    figure_or(figure, NOT_THERE)
                }));
                row.push(match *field {
                    ERRORS => Vec::new(),
                    field => {
                        let what = format!("{name}, quotient");
                        figure_or(self.quotient(&what, turns, field, source), NOT_THERE)
                    }
                });
                table.rows.push(row);
            }
        }
        table
    }
}

const fn us(place: &'static str) -> Of {
    Of::Median(Unit::Microseconds, place)
}

const fn per_second(place: &'static str) -> Of {
    Of::Median(Unit::PerSecond, place)
}

const fn count(place: &'static str) -> Of {
    Of::Median(Unit::Count, place)
}

const fn kib(place: &'static str) -> Of {
    Of::Median(Unit::Kibibytes, place)
}

const HANDSHAKE: (&str, &str) = ("/condition", "handshake");
const IN_FLIGHT: (&str, &str) = ("/in_flight", "in flight");
const SERVER: (&str, &str) = ("/side", "server");
const SOFTWARE: (&str, &str) = ("/server", "server");
const WITH_AND_WITHOUT: [&str; 2] = ["widelane", "plain"];
const LATENCY: &[(&str, Of)] = &[
    ("starts/s", per_second("/rate")),
    ("p50", us(P50)),
    ("p99", us(P99)),
    ("p99.9", us("/report/p999_us")),
    ("errors", Of::Sum(ERRORS)),
];
/// Places of figures in lines with a report.
pub const RATE: &str = "/report/handshakes_per_s";
/// CPU time of the server for each handshake.
pub const CPU_TIME: &str = "/report/server_cpu_us_per_handshake";
/// Share of its CPU that the busiest thread of the load generator takes.
pub const LOAD_CPU: &str = "/report/busiest_thread";
/// Handshakes that failed.
pub const ERRORS: &str = "/report/errors";
/// Median latency.
pub const P50: &str = "/report/p50_us";
/// The 99th percentile.
pub const P99: &str = "/report/p99_us";
const CPU_OF_GIB: &str = "/report/server_cpu_s_per_gib";
const CPU_OF_REQUEST: &str = "/report/server_cpu_us_per_request";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn record(lines: impl IntoIterator<Item = Value>) -> (Record, Rc<Source>) {
        let mut record = Record::default();
        lines.into_iter().for_each(|line| record.push(line));
        let source = Source::of(&record, None);
        (record, source)
    }

    #[test]
    fn a_curve_has_a_row_for_each_share_of_its_knee() {
        let line = |share: f64, p99: u64| {
            json!({
                "kind": CURVE.kind, "condition": "rsa-x25519", "side": "nginx", "share_of_knee": share, "rate": 2000.0 * share,
                "report": {"p50_us": 20, "p99_us": p99, "errors": 1},
            })
        };
        let (record, source) = record([line(0.7, 50), line(0.5, 20), line(0.5, 30), line(0.5, 40)]);
        let table = CURVE.table(&record, &source);
        let rows = table
            .rows
            .iter()
            .map(|row| row.iter().map(|cell| plain(cell)).collect::<Vec<_>>().join("|"));
        assert_eq!(
            rows.collect::<Vec<_>>(),
            [
                "RSA-2048, X25519|nginx|50 %|1,000|20 µs|30 µs|n/a: not in the record|3",
                "RSA-2048, X25519|nginx|70 %|1,400|20 µs|50 µs|n/a: not in the record|1",
            ]
        );
    }

    #[test]
    fn a_table_names_both_sides_and_what_they_differ_by() {
        let mut lines = Vec::new();
        for round in 0..8 {
            for (side, rate) in [("widelane-on", 1000.0), ("widelane-off", 500.0)] {
                lines.push(json!({
                    "kind": PAIR, "condition": "rsa-x25519", "in_flight": 64, "side": side, "round": round,
                    "report": {"handshakes_per_s": rate, "p50_us": 20.0, "errors": 1},
                }));
            }
        }
        let (record, source) = record(lines);
        let pair = Pair::of(&record).expect("two sides");
        let text = pair.table(&record, &source, &FIELDS).text();
        assert!(text.contains("widelane serve, batching off"), "{text}");
        assert!(text.contains("2.00   2.00 to 2.00"), "{text}");
        assert!(text.contains("n/a"), "{text}");
        let errors = text.lines().last().expect("errors");
        let errors: Vec<_> = errors.split_whitespace().rev().take(3).collect();
        assert_eq!(errors, ["8", "8", "64"]);
    }

    #[test]
    fn a_column_of_quotients_by_a_server_that_is_not_there_is_left_out() {
        let line = |side: &str| {
            json!({"kind": CLOSED.kind, "condition": "rsa-x25519", "in_flight": 64, "side": side,
                "report": {"handshakes_per_s": 1}})
        };
        let (record, source) = record([line("widelane-on"), line("nginx")]);
        let table = CLOSED.table(&record, &source);
        let titles: Vec<_> = table.head.iter().map(|column| plain(&column.title)).collect();
        assert!(titles.contains(&"× nginx".to_owned()), "{titles:?}");
        assert!(!titles.contains(&"× batching off".to_owned()), "{titles:?}");
    }
}
