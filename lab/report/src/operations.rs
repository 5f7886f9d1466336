//! Single operations a second, beside other libraries and beside what the ports can do.

use crate::block::Block;
use crate::chart::{Bar, Colour, columns};
use crate::order::{RecordList, folded};
use std::rc::Rc;
use widelane_samples::{Piece, Record, Source, TIMES, beside_peers, beside_the_ports, cell, kinds, plain};

/// The section's blocks.
pub(crate) fn blocks(list: &RecordList<'_>) -> Vec<Block> {
    let mut blocks = vec![Block::Text(cell(
        "One core. The other libraries do one operation at a time; Widelane has eight in flight, in \
         the preferred lanes of those that were measured. For ChaCha20-Poly1305 all do one record at a time. Intervals are of the \
         time slices in which a condition was measured.",
    ))];
    let entries = list
        .with(kinds::SPEED.kind)
        .map(|(record, source)| (source, String::new(), tables(record, source)));
    folded(&mut blocks, "Beside other libraries and the ports", entries.collect());
    if blocks.len() == 1 {
        blocks.push(Block::Text(cell(
            "No record has any. `widelane-lab handshakes speed` writes them (docs/bench.md).",
        )));
    }
    blocks
}

fn tables(record: &Record, source: &Rc<Source>) -> Vec<Block> {
    let mut blocks = Vec::new();
    let peers = beside_peers(record, source);
    let rows = peers.rows.iter().map(|row| (plain(&row[0]), row[TIMES].first()));
    let bars = rows.filter_map(|(label, piece)| {
        Some(Bar {
            label,
            figure: piece.and_then(Piece::figure)?,
            colour: Colour::Ours,
        })
    });
    let caption = "Widelane's operations a second as a multiple of AWS-LC's (red line).";
    blocks.extend(Block::chart(columns(bars.collect(), Some(1.0)), caption));
    if !peers.rows.is_empty() {
        blocks.push(Block::Table(peers));
    }
    let ports = beside_the_ports(record, source);
    if !ports.rows.is_empty() {
        blocks.push(Block::Text(cell(
            "Kernels of multiply-adds beside a loop that does nothing else: the most that the ports of the core can do \
             at the clock of that moment.",
        )));
        blocks.push(Block::Table(ports));
    }
    blocks
}
