//! Rows of tables: lines of a record with the same keys, and figures of their rounds.

use crate::figure::{Figure, Source, Unit};
use crate::names;
use crate::record::{Line, Record};
use crate::table::{Cell, Column, Piece, Table, cell, figure_or, number, plain, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::rc::Rc;
use widelane_statistics::median;

/// Lines of one kind whose keys have the same values: the rounds of one row.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Values of the keys.
    pub key: Vec<&'a Value>,
    /// The lines, in the order in which they were written.
    pub lines: Vec<&'a Line>,
}

/// Groups the lines of a kind by the values at `keys`, which are JSON pointers. Values come in the order in which they
/// first ran, shares in their own.
pub fn groups<'a>(record: &'a Record, kind: &'a str, keys: &[&str]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    let mut seen: Vec<Vec<&Value>> = vec![Vec::new(); keys.len()];
    for line in record.of(kind) {
        let value = |key: &&str| line.value.pointer(key).unwrap_or(&Value::Null);
        let key: Vec<&Value> = keys.iter().map(value).collect();
        for (seen, value) in seen.iter_mut().zip(&key) {
            if !seen.contains(value) {
                seen.push(value);
            }
        }
        match groups.iter_mut().find(|group| group.key == key) {
            Some(group) => group.lines.push(line),
            None => groups.push(Group { key, lines: vec![line] }),
        }
    }
    for seen in &mut seen {
        if seen.iter().all(|value| value.is_number()) && seen.iter().any(|value| value.is_f64()) {
            let number = |value: &Value| value.as_f64().unwrap_or_default();
            seen.sort_by(|one, other| number(one).total_cmp(&number(other)));
        }
    }
    groups.sort_by_cached_key(|group| {
        let values = group.key.iter().zip(&seen);
        let places = values.map(|(value, seen)| seen.iter().position(|known| known == value));
        places.collect::<Vec<_>>()
    });
    groups
}

/// Pairs lines of the same round.
pub fn pairs<'a>(ours: &[&'a Line], theirs: &[&'a Line]) -> Vec<(&'a Line, &'a Line)> {
    let by_round = |lines: &[&'a Line]| {
        let mut rounds: BTreeMap<u64, &'a Line> = BTreeMap::new();
        for line in lines {
            let round = line.value["round"].as_u64();
            rounds.entry(round.unwrap_or(rounds.len() as u64)).or_insert(line);
        }
        rounds
    };
    let theirs = by_round(theirs);
    let ours = by_round(ours).into_iter();
    ours.filter_map(|(round, our)| Some((our, *theirs.get(&round)?)))
        .collect()
}

impl<'a> Group<'a> {
    /// Value of a key that is a text.
    pub fn word(&self, key: usize) -> &'a str {
        self.key.get(key).and_then(|value| value.as_str()).unwrap_or_default()
    }

    /// Lines of one side.
    pub fn of_side(&self, side: &str) -> Vec<&'a Line> {
        let lines = self.lines.iter().copied();
        lines.filter(|line| line.value["side"] == side).collect()
    }

    /// Sides of the lines, in the order in which they first ran.
    pub fn sides(&self) -> Vec<&'a str> {
        let mut sides = Vec::new();
        for side in self.lines.iter().filter_map(|line| line.value["side"].as_str()) {
            if !sides.contains(&side) {
                sides.push(side);
            }
        }
        sides
    }

    /// Median of what stands at `field`.
    pub fn median(&self, field: &str) -> Option<f64> {
        let numbers = self.lines.iter().filter_map(|line| line.value.pointer(field)?.as_f64());
        median(numbers.collect())
    }
}

/// A kind of lines, and the table that is made of them.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The kind.
    pub kind: &'static str,
    /// Keys that make a row, as JSON pointers, with the headings of their columns. One without a heading stands in
    /// the column before it.
    pub keys: &'static [(&'static str, &'static str)],
    /// Columns with figures, with their headings.
    pub columns: &'static [(&'static str, Of)],
}

/// Content of a column, from the lines of a row.
#[derive(Clone, Copy, Debug)]
pub enum Of {
    /// The text at a place of the first line, or the texts of a list.
    Words(&'static str),
    /// The median of what stands at a place.
    Median(Unit, &'static str),
    /// The median of one side.
    MedianOf(&'static str, Unit, &'static str),
    /// The median with the smallest and the largest value.
    Range(Unit, &'static str),
    /// The sum.
    Sum(&'static str),
    /// The quotient by the row whose last key is this one instead.
    Times(&'static str, &'static str),
    /// The quotient by that row, with its interval.
    SureTimes(&'static str, &'static str),
    /// The quotient by the row of the peer that has least.
    TimesBestPeer(&'static str),
    /// The quotient of two sides of the row, with its interval.
    Quotient([&'static str; 2], &'static str),
}

impl Kind {
    /// The rows.
    pub fn groups<'a>(&self, record: &'a Record) -> Vec<Group<'a>> {
        let keys: Vec<&str> = self.keys.iter().map(|(key, _)| *key).collect();
        groups(record, self.kind, &keys)
    }

    /// The table of all rows. A column with quotients by a row that is not there is left out.
    pub fn table(&self, record: &Record, source: &Rc<Source>) -> Table {
        self.table_of(record, source, |_| true)
    }

    /// The table of rows for which `wanted` holds.
    pub fn table_of(&self, record: &Record, source: &Rc<Source>, wanted: impl Fn(&Group<'_>) -> bool) -> Table {
        let mut groups = self.groups(record);
        groups.retain(wanted);
        let has = |base: &str| groups.iter().any(|group| group.word(self.keys.len() - 1) == base);
        let columns = self.columns.iter().filter(|(_, of)| match of {
            Of::Times(base, _) | Of::SureTimes(base, _) => has(base),
            _ => true,
        });
        let columns: Vec<_> = columns.collect();
        let is_number = |key: usize| groups.iter().all(|group| group.key[key].is_number());
        let keys = self.keys.iter().enumerate();
        let keys = keys.filter(|(_, (_, title))| !title.is_empty());
        let keys = keys.map(|(key, (_, title))| Column {
            is_text: !is_number(key),
            ..text(*title)
        });
        let head = keys.chain(columns.iter().map(|(title, of)| of.column(title)));
        let rows = groups.iter().map(|group| {
            let mut row = self.keys_of(record, group);
            let title = self.title(record, group);
            row.extend(columns.iter().map(|(column, of)| {
                let what = format!("{title}: {column}");
                of.cell(&what, group, &groups, source)
            }));
            row
        });
        Table::new(head, Some(source)).with(rows.collect::<Vec<_>>())
    }

    /// Values of a row's keys in one line.
    pub fn title(&self, record: &Record, group: &Group<'_>) -> String {
        let keys = self.keys.iter().filter(|(_, heading)| !heading.is_empty());
        let cells = keys.zip(self.keys_of(record, group));
        let words = cells.map(|((key, heading), cell)| match *key {
            "/in_flight" | "/share_of_knee" => format!("{} {heading}", plain(&cell)),
            _ => plain(&cell),
        });
        words.collect::<Vec<_>>().join(", ")
    }

    /// Cells with the values of a row's keys.
    pub(crate) fn keys_of(&self, record: &Record, group: &Group<'_>) -> Vec<Cell> {
        let mut cells: Vec<Cell> = Vec::new();
        for ((key, heading), value) in self.keys.iter().zip(&group.key) {
            let word = value.as_str().unwrap_or_default();
            let own = match *key {
                "/condition" => cell(names::condition(word)),
                "/server" => cell(names::software(word)),
                "/side" | "/result/side" => names::side(record, word),
                "/finding/operation" | "/result/operation" => cell(Piece::Code(word.to_owned())),
                "/arrangement" => cell(names::arrangement(word)),
                "/share_of_knee" => cell(percent(value)),
                "/knee_of" => cell(format!("{} of {word}", percent(&group.lines[0].value["share_of_knee"]))),
                _ if value.is_string() => cell(word),
                _ => cell(value.to_string()),
            };
            match cells.last_mut().filter(|_| heading.is_empty()) {
                Some(before) => before.extend([cell(", "), own].concat()),
                None => cells.push(own),
            }
        }
        cells
    }
}

impl Of {
    fn column(&self, title: &str) -> Column {
        let interval = match self {
            Self::Words(_) => return text(title),
            Self::Range(..) => Some("lowest to highest"),
            Self::SureTimes(..) | Self::Quotient(..) => Some("95 % interval"),
            _ => None,
        };
        Column {
            interval,
            ..number(title)
        }
    }

    fn cell(&self, what: &str, group: &Group<'_>, all: &[Group<'_>], source: &Rc<Source>) -> Cell {
        let lines = &group.lines;
        let times = |base: &Group<'_>, field: &str| Figure::quotient(what, &pairs(lines, &base.lines), field, source);
        let last = group.key.len() - 1;
        let siblings = || all.iter().filter(|one| one.key[..last] == group.key[..last]);
        let figure = match *self {
            Self::Words(field) => {
                let found = lines[0].value.pointer(field);
                let words = found.and_then(Value::as_array).into_iter().flatten().chain(found);
                let words: Vec<_> = words.filter_map(Value::as_str).collect();
                return cell(if words.is_empty() {
                    NOT_THERE.to_owned()
                } else {
                    words.join("; ")
                });
            }
            // With its interval, a row's quotient by itself says nothing.
            Self::SureTimes(base, _) if group.word(last) == base => return Vec::new(),
            Self::Times(base, field) | Self::SureTimes(base, field) => {
                let base = siblings().find(|one| one.word(last) == base);
                return figure_or(base.and_then(|base| times(base, field)), "–");
            }
            Self::TimesBestPeer(field) => {
                let peers = siblings().filter(|one| !one.word(last).starts_with("widelane"));
                let spent = |one: &&Group<'_>| one.median(field).unwrap_or(f64::INFINITY);
                let best = peers.min_by(|one, other| spent(one).total_cmp(&spent(other)));
                return figure_or(best.and_then(|best| times(best, field)), "–");
            }
            Self::Median(unit, field) => Figure::median(what, unit, lines, field, source),
            Self::MedianOf(side, unit, field) => Figure::median(what, unit, &group.of_side(side), field, source),
            Self::Range(unit, field) => Figure::range(what, unit, lines, field, source),
            Self::Sum(field) => Figure::sum(what, lines, field, source),
            Self::Quotient([ours, theirs], field) => {
                let pairs = pairs(&group.of_side(ours), &group.of_side(theirs));
                Figure::quotient(what, &pairs, field, source)
            }
        };
        figure_or(figure, NOT_THERE)
    }
}

fn percent(share: &Value) -> String {
    share
        .as_f64()
        .map_or_else(|| NOT_THERE.to_owned(), |share| format!("{:.0} %", share * 100.0))
}

/// Text of a cell without a figure.
pub const NOT_THERE: &str = "n/a: not in the record";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_stand_in_the_order_of_their_keys_whatever_these_are() {
        let mut record = Record::default();
        for value in [json!(2), json!("a"), json!(1), json!(1.5), json!(null), json!([1])] {
            record.push(json!({"kind": "x", "key": value}));
        }
        let keys = |record: &Record| -> Vec<Value> {
            let groups = groups(record, "x", &["/key"]);
            groups.iter().map(|group| group.key[0].clone()).collect()
        };
        assert_eq!(
            keys(&record),
            [json!(2), json!("a"), json!(1), json!(1.5), json!(null), json!([1])]
        );
        record.lines.retain(|line| line.value["key"].is_number());
        assert_eq!(keys(&record), [json!(1), json!(1.5), json!(2)]);
        record.lines.pop();
        assert_eq!(keys(&record), [json!(2), json!(1)]);
    }
}
