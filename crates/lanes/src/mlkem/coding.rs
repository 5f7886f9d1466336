//! Polynomials of ML-KEM as packed bits: encoding (FIPS 203, section 4.2.1) and compression.

use super::words::*;
use crate::definition::load;
use crate::machine::{Array, Machine};

/// Algorithm 6 with d = 12, and the check of section 7.2.
pub(super) fn decode<M: Machine>(m: &mut M, poly: Array, bad: Array, words: Array) {
    let words = Stream::new(m, words, 48);
    let q = m.splat(EVERY_WORD * Q);
    // A reduced coefficient minus q is negative: the AND of all differences keeps these signs.
    let mut signs = None;
    for i in 0..POLYNOMIAL {
        let coefficients = words.fields(m, i, 12);
        let difference = m.sub16(coefficients, q);
        signs = Some(match signs {
            None => difference,
            Some(signs) => m.and(signs, difference),
        });
        m.store(poly, i, coefficients);
    }
    let signs = signs.expect("a polynomial has vectors");
    let before = m.load(bad, 0);
    let sign = m.splat(EVERY_WORD << 15);
    let after = m.ternary(before, signs, sign, OR_AND_NOT);
    m.store(bad, 0, after);
}

/// Packs what `field` makes of each vector, words below 2^`bits`, and stores it.
pub(super) fn encode<M: Machine>(m: &mut M, words: Array, bits: u32, mut field: impl FnMut(&mut M, usize) -> M::V) {
    // Bits that are not stored yet, and their number.
    let mut pending: Option<(M::V, u32)> = None;
    let mut stored = 0;
    for i in 0..POLYNOMIAL {
        let fields = field(m, i);
        let chunk = compact(m, fields, bits);
        let (value, have) = match pending {
            None => (chunk, 0),
            Some((value, have)) => {
                let shifted = m.shl(chunk, have);
                (m.or(value, shifted), have)
            }
        };
        let total = have + 4 * bits;
        pending = if total < 64 {
            Some((value, total))
        } else {
            m.store(words, stored, value);
            stored += 1;
            (total > 64).then(|| (m.shr(chunk, 64 - have), total - 64))
        };
    }
}

/// A stream of bits in an array of words.
pub(super) struct Stream<V> {
    words: Vec<V>,
}

impl<V: Copy> Stream<V> {
    pub(super) fn new<M: Machine<V = V>>(m: &mut M, array: Array, len: usize) -> Self {
        Self {
            words: load(m, array, len),
        }
    }

    /// Fields `4 index` to `4 index + 3` of `bits` bits each, one in each word.
    pub(super) fn fields<M: Machine<V = V>>(&self, m: &mut M, index: usize, bits: u32) -> V {
        let width = 4 * bits;
        let (word, offset) = (index * width as usize / 64, (index * width as usize % 64) as u32);
        let mut chunk = self.words[word];
        if offset > 0 {
            chunk = m.shr(chunk, offset);
        }
        if offset + width > 64 {
            let high = m.shl(self.words[word + 1], 64 - offset);
            chunk = m.or(chunk, high);
        }
        expand(m, chunk, bits)
    }
}

/// The lowest four fields of `bits` bits, one in each word.
fn expand<M: Machine>(m: &mut M, chunk: M::V, bits: u32) -> M::V {
    // Two fields in each half, then one in each word; the last step clears the bits above them.
    let half = m.splat(LOW_HALF);
    let moved = m.shl(chunk, 32 - 2 * bits);
    let halves = m.ternary(half, chunk, moved, CHOOSE);
    let even = m.splat(EVEN_WORDS);
    let moved = m.shl(halves, 16 - bits);
    let words = m.ternary(even, halves, moved, CHOOSE);
    let mask = m.splat(EVERY_WORD * ((1 << bits) - 1));
    m.and(words, mask)
}

/// Four words below 2^`bits`, moved together to the low end.
fn compact<M: Machine>(m: &mut M, words: M::V, bits: u32) -> M::V {
    let low = (1u64 << bits) - 1;
    let mask = m.splat(low << 32 | low);
    let moved = m.shr(words, 16 - bits);
    let halves = m.ternary(mask, words, moved, CHOOSE);
    let mask = m.splat((1 << (2 * bits)) - 1);
    let moved = m.shr(halves, 32 - 2 * bits);
    m.ternary(mask, halves, moved, CHOOSE)
}

/// `Compress_d` of any words: `round(2^d x / q) mod 2^d`.
///
/// Let `s` be the residue of `2^d x` modulo q that is nearest to zero. `2^d x - s` is q times the
/// rounded quotient, so that modulo `2^d` the quotient is `-s / q`, and needs no division.
pub(super) fn compress<M: Machine>(m: &mut M, x: M::V, bits: u32) -> M::V {
    let scaled = multiply(m, x, Factor::new([(1 << bits) << 16; 4]));
    let nearest = nearest(m, scaled);
    let inverse = m.splat(EVERY_WORD * u64::from(Q_INVERSE.wrapping_neg()));
    let quotient = m.mul_lo16(nearest, inverse);
    let mask = m.splat(EVERY_WORD * ((1 << bits) - 1));
    m.and(quotient, mask)
}

/// `Decompress_d`: `round(q y / 2^d)`, as `(floor(q y / 2^(d - 1)) + 1) / 2`.
pub(super) fn decompress<M: Machine>(m: &mut M, y: M::V, bits: u32) -> M::V {
    let y = m.shl16(y, 15 - bits);
    let factor = m.splat(EVERY_WORD * (4 * Q));
    let twice = m.mul_hi16(y, factor);
    let one = m.splat(EVERY_WORD);
    let up = m.add16(twice, one);
    m.shr16(up, 1)
}
