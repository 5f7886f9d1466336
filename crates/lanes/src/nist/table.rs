//! Entries of tables of points, each lane with an index of its own.

use super::curve::Curve;
use super::field::Number;
use super::point::Entry;
use crate::machine::{Array, Machine};

/// Bits of a signed digit for which a lane has a table of its own.
pub(super) const WINDOW_BITS: usize = 5;
/// Entries of that table: magnitudes of a signed digit, zero apart.
pub(super) const ENTRIES: usize = 1 << (WINDOW_BITS - 1);

/// The entry that each lane's index names, read from all of them.
pub(super) fn own_entry<M: Machine>(m: &mut M, curve: Curve, table: Array, index: Array) -> Entry<M::V> {
    let index = m.load(index, 0);
    let d = curve.digits();
    let mask = m.splat(ENTRIES as u64 - 1);
    let place = m.and(index, mask);
    let mut found: Vec<_> = (0..2 * d).map(|i| m.load(table, i)).collect();
    for e in 1..ENTRIES {
        let number = m.splat(e as u64);
        let hit = m.eq(place, number);
        for (i, found) in found.iter_mut().enumerate() {
            let digit = m.load(table, e * 4 * d + i);
            *found = m.select(hit, digit, *found);
        }
    }
    let [x, y, _] = curve.below();
    let number = |i: usize, below| Number {
        digits: found[i * d..(i + 1) * d].to_vec(),
        below,
    };
    Entry {
        x: number(0, x),
        y: number(1, y),
        z: None,
        index,
    }
}

/// Reads an entry of a table that all lanes share.
pub(super) fn fixed_entry<M: Machine>(m: &mut M, curve: Curve, table: Array, index: Array) -> Entry<M::V> {
    let index = m.load(index, 0);
    let (d, entries, lanes) = (curve.digits(), curve.fixed_entries(), m.lanes());
    // A pick chooses from two vectors by the lowest bits of the index; the higher bits choose
    // from the picks.
    let span = 2 * lanes;
    let mut masks = Vec::new();
    let mut bit = span;
    while bit < entries {
        let bits = m.splat(bit as u64);
        masks.push(m.test(index, bits));
        bit *= 2;
    }
    let digit = |m: &mut M, i: usize| {
        let mut picks: Vec<_> = (0..entries / span)
            .map(|k| {
                let at = (i * entries + k * span) / lanes;
                let (low, high) = (m.load(table, at), m.load(table, at + 1));
                m.pick2(low, high, index)
            })
            .collect();
        for &mask in &masks {
            picks = picks.chunks(2).map(|pair| m.select(mask, pair[1], pair[0])).collect();
        }
        picks[0]
    };
    let mut number = |i: usize| Number {
        digits: (i * d..(i + 1) * d).map(|i| digit(m, i)).collect(),
        below: curve.below()[i],
    };
    Entry {
        x: number(0),
        y: number(1),
        z: None,
        index,
    }
}
