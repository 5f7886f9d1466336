//! The files behind the page, and what is wrong with them.

use crate::block::Block;
use crate::order::RecordList;
use std::collections::BTreeMap;
use std::rc::Rc;
use widelane_samples::{Fault, Piece, Table, cell, text};

/// The section's blocks.
pub(crate) fn blocks(list: &RecordList<'_>, faults: &[Fault]) -> Vec<Block> {
    let mut blocks = Vec::new();
    if !faults.is_empty() {
        blocks.push(Block::Text(cell("These files or lines were left out:")));
        let items = faults.iter().map(|fault| cell(fault.to_string()));
        blocks.push(Block::List(items.collect()));
    }
    let rows: Vec<_> = list
        .all()
        .map(|(record, source)| {
            let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
            for line in &record.lines {
                // The line that says that a run was not interrupted is no measurement.
                if let Some(kind) = line.value["kind"].as_str()
                    && kind != "end"
                {
                    *kinds.entry(kind).or_default() += 1;
                }
            }
            let lines = kinds.iter().map(|(kind, count)| format!("{kind}: {count}"));
            vec![
                cell(Piece::Record(Rc::clone(source))),
                cell(&source.machine[..]),
                cell(Piece::Date(source.date.clone())),
                cell(source.short_commit()),
                cell(lines.collect::<Vec<_>>().join(", ")),
                cell(source.notes.join("; ")),
            ]
        })
        .collect();
    blocks.push(match rows.is_empty() {
        true => Block::Text(vec![
            "No record was read. Run this command in Widelane's sources, or name a folder: ".into(),
            Piece::Code("widelane-lab report --records DIR".to_owned()),
        ]),
        false => {
            let head = ["record", "CPU", "date", "commit", "lines by kind", "notes"].map(text);
            Block::Table(Table::new(head, None).with(rows))
        }
    });
    blocks
}
