//! Orders records: those of this machine, then those of its maker, the newest first.

use crate::block::Block;
use crate::source;
use std::path::Path;
use std::rc::Rc;
use widelane_samples::{Record, Source};

/// The records with their sources, the nearest first.
pub(crate) struct RecordList<'a> {
    all: Vec<(&'a Record, Rc<Source>, Proximity)>,
}

/// Nearness of the machine of a record to the one that the report is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Proximity {
    /// A CPU of the same name.
    Same,
    /// A machine of the same maker.
    Maker,
    Other,
}

impl<'a> RecordList<'a> {
    /// The list of `records` for a page at `page`, seen from `machine`.
    pub(crate) fn new(records: &'a [Record], machine: &str, page: &Path) -> Self {
        let mut all: Vec<_> = records
            .iter()
            .map(|record| {
                let source = source::of_record(record, page);
                let near = Proximity::of(&source.machine, machine);
                (record, source, near)
            })
            .collect();
        all.sort_by(|(_, one, near_one), (_, other, near_other)| {
            let newest = || other.date.cmp(&one.date).then(other.name.cmp(&one.name));
            // A record with a reservation is not one to look at first.
            let sound = || one.notes.len().cmp(&other.notes.len());
            near_one.cmp(near_other).then_with(sound).then_with(newest)
        });
        Self { all }
    }

    /// All records.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'a Record, &Rc<Source>)> {
        self.all.iter().map(|(record, source, _)| (*record, source))
    }

    /// Records with lines of a kind.
    pub(crate) fn with(&self, kind: &str) -> impl Iterator<Item = (&'a Record, &Rc<Source>)> {
        let all = self
            .all
            .iter()
            .filter(move |(record, _, _)| record.of(kind).next().is_some());
        all.map(|(record, source, _)| (*record, source))
    }

    /// The nearest record of which `wanted` makes something, and how near it is.
    pub(crate) fn nearest<T>(&self, wanted: impl Fn(&Record, &Rc<Source>) -> Option<T>) -> Option<(T, Proximity)> {
        let mut found = self
            .all
            .iter()
            .filter_map(|(record, source, near)| Some((wanted(record, source)?, *near)));
        found.next()
    }
}

impl Proximity {
    fn of(one: &str, other: &str) -> Self {
        let maker = |name: &str| MAKERS.iter().position(|maker| name.contains(maker));
        if one == other {
            Self::Same
        } else if maker(one).is_some() && maker(one) == maker(other) {
            Self::Maker
        } else {
            Self::Other
        }
    }
}

/// Adds what was made of records below a heading, each to be opened: the first of a machine and a
/// subject is open.
pub(crate) fn folded(blocks: &mut Vec<Block>, heading: &str, entries: Vec<(&Rc<Source>, String, Vec<Block>)>) {
    if entries.is_empty() {
        return;
    }
    let mut inner = Vec::new();
    let mut seen: Vec<(String, String)> = Vec::new();
    for (source, subject, blocks) in entries {
        let key = (source.machine.clone(), subject.clone());
        let open = !seen.contains(&key);
        seen.push(key);
        let virtual_machine = if source.virtual_machine {
            ", virtual machine"
        } else {
            ""
        };
        let about = if subject.is_empty() {
            String::new()
        } else {
            format!("{subject}: ")
        };
        inner.push(Block::Fold {
            title: format!("{about}{}{virtual_machine}, {}", source.machine, source.date),
            open,
            blocks,
        });
    }
    blocks.push(Block::Heading(heading.to_owned()));
    blocks.append(&mut inner);
}

const MAKERS: [&str; 2] = ["Intel", "AMD"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_machine_comes_first_and_then_the_newest_record() {
        let record = |name: &str, cpu: &str, day: &str, modified: bool| {
            let text = format!(
                r#"{{"kind":"run","schema":5,"started":"{day}T0","machine":{{"cpu":"{cpu}","modified":{modified}}}}}
{{"kind":"end"}}"#
            );
            Record::parse(name, text.as_bytes()).0.expect("a record")
        };
        let records = [
            record("other", "AMD EPYC", "2026-03-01", false),
            record("maker", "Intel B", "2026-02-01", false),
            record("modified", "Intel A", "2026-02-09", true),
            record("old", "Intel A", "2026-01-01", false),
            record("new", "Intel A", "2026-01-02", false),
        ];
        let list = RecordList::new(&records, "Intel A", Path::new("page.html"));
        let names: Vec<_> = list.all().map(|(record, _)| &record.name[..]).collect();
        assert_eq!(names, ["new", "old", "modified", "maker", "other"]);
        let of_maker = |record: &Record, _: &Rc<Source>| (record.name == "maker").then_some(1);
        assert_eq!(list.nearest(of_maker), Some((1, Proximity::Maker)));
    }
}
