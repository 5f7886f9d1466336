//! Handshakes beside peers: pairs, unmodified servers with and without Widelane, and the long
//! comparison with nginx.

use crate::block::Block;
use crate::chart::{Bar, Colour, Group, panels};
use crate::latency;
use crate::order::{RecordList, folded};
use std::rc::Rc;
use widelane_samples::kinds::{CLOSED, FIELDS, PAIR, Pair, RATE, WAYS_IN};
use widelane_samples::{Cell, Figure, Piece, Record, Source, Table, cell, groups, names, pairs, plain};

/// The section's blocks.
pub(crate) fn blocks(list: &RecordList<'_>) -> Vec<Block> {
    let mut blocks = vec![Block::Text(cell(
        "Full TLS 1.3 handshakes where a row says nothing else, with the servers on one CPU. In \
         flight: how many handshakes are under way at the same time. A quotient is the median of the \
         quotients of rounds, with its interval of 95\u{a0}%; of CPU time, less is better.",
    ))];
    let beside_nginx = |record: &Record| {
        Pair::of(record).is_some_and(|pair| [OURS, "nginx"].iter().all(|side| pair.sides.contains(side)))
    };
    let topics: [(&str, &str, Shown); 5] = [
        ("Widelane's terminator beside nginx", PAIR, pair),
        ("Unmodified servers, with and without Widelane", WAYS_IN.kind, ways_in),
        ("What batching changes", CLOSED.kind, closed),
        ("Latency against load", latency::KIND, latency::curves),
        ("Other pairs of servers", PAIR, pair),
    ];
    for (index, (title, kind, shown)) in topics.into_iter().enumerate() {
        let wanted = |record: &Record| kind != PAIR || beside_nginx(record) == (index == 0);
        let found = list.with(kind).filter(|(record, _)| wanted(record));
        let entries = found.map(|(record, source)| {
            let pair = (kind == PAIR).then(|| Pair::of(record)).flatten();
            let servers = pair.map(|pair| pair.sides.map(|side| plain(&names::side(record, side))));
            let subject = servers.map_or_else(String::new, |servers| servers.join(" beside "));
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
    blocks
}

/// The quotient of `widelane serve` by nginx in a pair with many connections in flight, of the rate
/// under a condition.
pub(crate) fn gain(record: &Record, source: &Rc<Source>, condition: &str) -> Option<Figure> {
    let what = format!("{}: × nginx", names::condition(condition));
    busiest(
        record,
        source,
        PAIR,
        &[("/condition", condition)],
        [OURS, "nginx"],
        &what,
    )
}

/// Quotient of unmodified nginx with Widelane by nginx alone.
pub(crate) fn gain_of_nginx(record: &Record, source: &Rc<Source>) -> Option<Figure> {
    let (what, wanted) = (
        "nginx with Widelane: × nginx alone",
        [("/server", "nginx"), ("/condition", RSA)],
    );
    busiest(record, source, WAYS_IN.kind, &wanted, ["widelane", "plain"], what)
}

/// Quotient of the rates of two sides where most connections are in flight, and enough.
fn busiest(
    record: &Record,
    source: &Rc<Source>,
    kind: &str,
    wanted: &[(&str, &str)],
    [ours, theirs]: [&str; 2],
    what: &str,
) -> Option<Figure> {
    let keys: Vec<&str> = ["/in_flight"]
        .into_iter()
        .chain(wanted.iter().map(|(key, _)| *key))
        .collect();
    let mut all = groups(record, kind, &keys);
    all.retain(|one| {
        let mut words = wanted.iter().enumerate();
        one.key[0].as_u64() >= Some(BUSY) && words.all(|(place, (_, word))| one.word(place + 1) == *word)
    });
    let most = all.into_iter().max_by_key(|one| one.key[0].as_u64())?;
    Figure::quotient(what, &pairs(&most.of_side(ours), &most.of_side(theirs)), RATE, source)
}

type Shown = fn(&Record, &Rc<Source>) -> Vec<Block>;

fn pair(record: &Record, source: &Rc<Source>) -> Vec<Block> {
    let Some(pair) = Pair::of(record) else {
        return vec![Block::Text(cell("This record has not two sides: nothing is compared."))];
    };
    let table = pair.table(record, source, &FIELDS[..2]);
    let servers: Vec<_> = table.head[2..4].iter().map(|column| plain(&column.title)).collect();
    let drawn = table.rows.iter().flat_map(|row| {
        let measured = plain(&row[0]);
        let condition = measured.strip_suffix(": handshakes/s").map(str::to_owned);
        let sides = servers.iter().zip(&row[2..4]);
        sides.filter_map(move |(server, cell)| {
            let group = format!("{}, {} in flight", condition.as_ref()?, plain(&row[1]));
            Some((group, server.clone(), cell, colour(server)))
        })
    });
    with_chart(drawn.collect(), "Handshakes a second.", None, &table)
}

fn ways_in(record: &Record, source: &Rc<Source>) -> Vec<Block> {
    let table = WAYS_IN.table(record, source);
    let quotient = column(&table, "quotient");
    let drawn = table.rows.iter().map(|row| {
        let label = format!("{} in flight", plain(&row[1]));
        (plain(&row[0]), label, &row[quotient], Colour::Ours)
    });
    let caption = "Handshakes a second with Widelane, as a multiple of the server alone (red line).";
    with_chart(drawn.collect(), caption, Some(1.0), &table)
}

fn closed(record: &Record, source: &Rc<Source>) -> Vec<Block> {
    let table = CLOSED.table(record, source);
    let table = table.without(&["CPU time × nginx", "p50", "p99", "load's CPU"]);
    let rate = column(&table, "handshakes/s");
    let busy = table.rows.iter().filter(|row| plain(&row[1]) != "1");
    let drawn = busy.map(|row| {
        let server = plain(&row[2]);
        let group = format!("{}, {} in flight", plain(&row[0]), plain(&row[1]));
        (group, server.clone(), &row[rate], colour(&server))
    });
    let caption = "Handshakes a second with many connections in flight.";
    with_chart(drawn.collect(), caption, None, &table)
}

/// Place of a column.
pub(crate) fn column(table: &Table, title: &str) -> usize {
    let mut titles = table.head.iter().map(|column| plain(&column.title));
    titles.position(|one| one == title).unwrap_or(0)
}

/// A bar before it is drawn: its group, its label, the cell with its figure, its colour.
type Drawn<'a> = (String, String, &'a Cell, Colour);

fn with_chart(drawn: Vec<Drawn<'_>>, caption: &str, mark: Option<f64>, table: &Table) -> Vec<Block> {
    let groups = drawn.chunk_by(|one, next| one.0 == next.0).map(|group| Group {
        title: Some(group[0].0.clone()),
        bars: group
            .iter()
            .filter_map(|(_, label, cell, colour)| {
                Some(Bar {
                    label: label.clone(),
                    figure: cell.iter().find_map(Piece::figure)?,
                    colour: *colour,
                })
            })
            .collect(),
    });
    let chart = Block::chart(panels(&groups.collect::<Vec<_>>(), mark), caption);
    chart.into_iter().chain([Block::Table(table.clone())]).collect()
}

/// Colour of a server, by its name.
pub(crate) fn colour(server: &str) -> Colour {
    match server {
        "widelane serve, batching off" => Colour::Middle,
        server if server.starts_with("widelane") => Colour::Ours,
        _ => Colour::Peer,
    }
}

/// Conditions, as records spell them.
pub(crate) const RSA: &str = "rsa-x25519";
pub(crate) const ECDSA: &str = "ecdsa-x25519";
/// Connections in flight from which on passes are full: fewer say nothing about a busy server.
const BUSY: u64 = 16;
/// Our side of a pair.
const OURS: &str = "widelane-on";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::Path;

    /// Pair of six rounds with `in_flight` requests in flight.
    fn pair_of(in_flight: u64) -> Record {
        let mut text = r#"{"kind":"run","command":"pair widelane-on nginx","machine":{}}"#.to_owned();
        for round in 0..6 {
            for (side, rate) in [("nginx", 100 + round), ("widelane-on", 400 + 4 * round)] {
                let line = json!({"kind": "pair", "condition": RSA, "side": side, "round": round,
                    "in_flight": in_flight, "report": {"handshakes_per_s": rate}});
                text.push_str(&format!("\n{line}"));
            }
        }
        Record::parse("r.jsonl", text.as_bytes()).0.expect("a record")
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
        let turns = groups(&record, PAIR, &["/condition"]);
        let pairs = pairs(&turns[0].of_side(OURS), &turns[0].of_side("nginx"));
        let numbers: Vec<_> = pairs.iter().map(|(our, their)| (our.number, their.number)).collect();
        assert_eq!(numbers, [(5, 4), (7, 6), (9, 8), (11, 10), (13, 12)]);
    }
}
