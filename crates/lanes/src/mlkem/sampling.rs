//! Sampling of ML-KEM's polynomials: noise, and candidates for uniform coefficients.

use super::coding::Stream;
use super::words::*;
use crate::machine::{Array, Machine};

/// Words that a block of SHAKE128 gives to [`candidates`].
pub(super) const CANDIDATES: usize = 28;

/// Algorithm 8 on fields of `2 eta` bits: the ones in the low half less those in the high half.
pub(super) fn noise<M: Machine>(m: &mut M, bits: M::V, eta: u32) -> M::V {
    let lowest = m.splat(EVERY_WORD * (1 << eta | 1));
    let mut sum = m.and(bits, lowest);
    for shift in 1..eta {
        let shifted = m.shr16(bits, shift);
        let bit = m.and(shifted, lowest);
        sum = m.add16(sum, bit);
    }
    let three = m.splat(EVERY_WORD * 3);
    let (x, y) = (m.and(sum, three), m.shr16(sum, eta));
    m.sub16(x, y)
}

/// The coefficients below q in a block of SHAKE128 (algorithm 7).
pub(super) fn candidates<M: Machine>(m: &mut M, out: Array, state: Array) {
    let words = Stream::new(m, state, 21);
    let q = m.splat(EVERY_WORD * Q);
    let seven = m.splat(7);
    let (one, minus_one) = (m.splat(1), m.splat(u64::MAX));
    let mut count = m.splat(0);
    for i in 0..CANDIDATES {
        let x = words.fields(m, i, 12);
        // Negative where a coefficient is good.
        let difference = m.sub16(x, q);
        let good = m.sra16(difference, 15);
        let x = m.and(x, good);
        // From the highest word down: a good word goes below those above it; for a bad word the
        // words above move down.
        let word = |at: u32| 0xffff << (16 * at);
        let highest = m.splat(word(3));
        let mut packed = m.and(x, highest);
        let ones = m.shr16(difference, 15);
        let upper = m.shr(ones, 32);
        for at in (0..3).rev() {
            let bit = match at {
                0 => ones,
                1 => m.shr(ones, 16),
                _ => upper,
            };
            let bit = m.and(bit, one);
            // All ones where it is not good.
            let is_bad = m.add64(bit, minus_one);
            let here = m.splat(word(at));
            let joined = m.ternary(packed, x, here, OR_AND);
            let closed = m.shr(packed, 16);
            packed = m.ternary(is_bad, closed, joined, CHOOSE);
        }
        m.store(out, i, packed);
        m.store(out, CANDIDATES + i, count);
        let pairs = m.add(ones, upper);
        let upper = m.shr(pairs, 16);
        let all = m.add(pairs, upper);
        let all = m.and(all, seven);
        count = m.add(count, all);
    }
    m.store(out, 2 * CANDIDATES, count);
}

/// Exchanges rows and columns of a square: one vector per lane.
pub(super) fn transpose<M: Machine>(m: &mut M, mut rows: Vec<M::V>) -> Vec<M::V> {
    let lanes = rows.len();
    for i in (0..lanes).step_by(2) {
        let (a, b) = (rows[i], rows[i + 1]);
        rows[i] = m.unpack_low64(a, b);
        rows[i + 1] = m.unpack_high64(a, b);
    }
    let mut step = 2;
    while step < lanes {
        // Takes the first or the second block of each pair of blocks of `step` lanes, alternately of a and b.
        let index = |m: &mut M, second: usize| {
            m.vector(std::array::from_fn(|lane| {
                let from_b = lane / step % 2;
                let block = lane / (2 * step) * 2 + second;
                (from_b * lanes + block * step + lane % step) as u64
            }))
        };
        let (first, second) = (index(m, 0), index(m, 1));
        for i in (0..lanes).filter(|i| i & step == 0) {
            let (a, b) = (rows[i], rows[i + step]);
            rows[i] = m.pick2(a, b, first);
            rows[i + step] = m.pick2(a, b, second);
        }
        step *= 2;
    }
    rows
}
