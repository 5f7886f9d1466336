//! Packed fields of ML-DSA's coefficients, and checks of their size.
//!
//! Products of the challenge `c` with the short secret vectors have coefficients below 2^9 in
//! magnitude (`beta <= 196`). Two of them fit one polynomial modulo `q`: from `c (a + 2^10 b) + 2^9
//! (1 + 2^10)`, which is positive and below 2^20, both are read off, after one inverse transform
//! instead of two.

use super::numbers::*;
use crate::machine::{Array, Machine};

/// The distance in a polynomial with two products.
pub(super) const PAIR_BITS: u32 = 10;
/// The offset that is added to each of the two products.
pub(super) const PAIR_OFFSET: u64 = 1 << (PAIR_BITS - 1);

/// A half of a polynomial with two products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// The lower bits.
    Low,
    /// The higher bits.
    High,
}

/// Formats the half as in the names of kernels.
impl std::fmt::Display for Half {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Half::Low => "low",
            Half::High => "high",
        })
    }
}

/// Vectors of the packed fields of a chunk.
pub(super) const fn packed(bits: u32) -> usize {
    CHUNK * bits as usize / 64
}

/// One of the two products that vector `j` of an array holds, raised by 2^9.
pub(super) fn half_of<M: Machine>(m: &mut M, pair: Array, j: usize, half: Half) -> M::V {
    let pair = m.load(pair, j);
    match half {
        Half::Low => {
            let mask = m.splat((1 << PAIR_BITS) - 1);
            m.and(pair, mask)
        }
        Half::High => m.shr(pair, PAIR_BITS),
    }
}

/// `gamma1 - field + q`.
pub(super) fn from_gamma1<M: Machine>(m: &mut M, bits: u32, field: M::V) -> M::V {
    let top = m.splat((1 << (bits - 1)) + Q);
    m.sub(top, field)
}

/// `bad`, made negative if `x` is below `least` or above `most`.
pub(super) fn outside<M: Machine>(m: &mut M, bad: M::V, x: M::V, least: u64, most: u64) -> M::V {
    let most = m.splat(most);
    let above = m.sub(most, x);
    if least == 0 {
        return m.or(bad, above);
    }
    let least = m.splat(least);
    let below = m.sub(x, least);
    m.ternary(bad, below, above, OR3)
}

/// Stores the sign of `bad`.
pub(super) fn store_bad<M: Machine>(m: &mut M, to: Array, bad: M::V) {
    let sign = m.splat(SIGN);
    let bad = m.and(bad, sign);
    m.store(to, 0, bad);
}

/// The lowest `keep` bits of each field of `bits` bits in packed words.
pub(super) fn unpack<M: Machine>(m: &mut M, words: &[M::V], bits: u32, keep: u32) -> Vec<M::V> {
    let mask = m.splat((1 << keep) - 1);
    (0..64 * words.len() as u32 / bits)
        .map(|i| {
            let (word, at) = ((i * bits / 64) as usize, i * bits % 64);
            let mut field = m.shr(words[word], at);
            if at + keep > 64 {
                let rest = m.shl(words[word + 1], 64 - at);
                field = m.or(field, rest);
            }
            m.and(field, mask)
        })
        .collect()
}

/// Packs fields of `bits` bits into words.
pub(super) fn pack<M: Machine>(m: &mut M, fields: &[M::V], bits: u32) -> Vec<M::V> {
    let zero = m.splat(0);
    let mut words = vec![zero; fields.len() * bits as usize / 64];
    for (i, &field) in (0..).zip(fields) {
        let (word, at) = ((i * bits / 64) as usize, i * bits % 64);
        let low = m.shl(field, at);
        words[word] = if at == 0 { low } else { m.or(words[word], low) };
        if at + bits > 64 {
            words[word + 1] = m.shr(field, 64 - at);
        }
    }
    words
}

pub(super) const SIGN: u64 = 1 << 63;
/// The table of `a | b | c`.
const OR3: u8 = 0xfe;
