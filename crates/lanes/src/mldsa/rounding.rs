//! High and low parts of ML-DSA's coefficients, and hints (FIPS 204, section 7.4).

use super::numbers::*;
use crate::machine::{DIGIT_BITS, Machine};

/// The high part of a number of at most `q`, and its low part raised by one (algorithm 36).
pub(super) fn decompose<M: Machine>(m: &mut M, r: M::V, parts: u64) -> (M::V, M::V) {
    let (zero, alpha) = (m.splat(0), 2 * gamma2(parts));
    // The nearest multiple of 2 gamma2: the quotient is exact, as 2^24 / 2^52 < 1 / alpha.
    let round = m.splat(gamma2(parts) - 1);
    let rounded = m.add(r, round);
    let inverse = m.splat((1 << DIGIT_BITS) / alpha + 1);
    let r1 = m.madd_hi(zero, rounded, inverse);
    let r1 = m.claim(r1, high_bits(parts) + 1, "the quotient of q by 2 gamma2 is m");
    let alpha = m.splat(alpha);
    let multiple = m.madd_lo(zero, r1, alpha);
    let r0 = m.sub(r, multiple);
    // Step 3: near q the high part is 0, and the low part is one less, so it is not raised. For q
    // itself, which is 0 modulo q, both results are 0.
    let last = m.splat(parts);
    let before = m.sub(r1, last);
    let before = m.sra(before, 63);
    let r1 = m.and(r1, before);
    let raised = m.sub(r0, before);
    (r1, raised)
}

/// The high part that a hint, 0 or 1, leads to, from what [`decompose`] gives (algorithm 40).
pub(super) fn use_hint<M: Machine>(m: &mut M, hint: M::V, r1: M::V, raised: M::V, parts: u64) -> M::V {
    // Plus one where r0 > 0, else minus one.
    let two = m.splat(2);
    let less = m.sub(raised, two);
    let down = m.sra(less, 63);
    let step = m.xor(hint, down);
    let step = m.sub(step, down);
    let moved = m.add(r1, step);
    if parts.is_power_of_two() {
        let mask = m.splat(parts - 1);
        return m.and(moved, mask);
    }
    // From -1 to m: modulo m.
    let (all, highest) = (m.splat(parts), m.splat(parts - 1));
    let under = m.sra(moved, 63);
    let under = m.and(under, all);
    let over = m.sub(highest, moved);
    let over = m.sra(over, 63);
    let over = m.and(over, all);
    let moved = m.add(moved, under);
    let moved = m.sub(moved, over);
    m.claim(moved, high_bits(parts), "it is modulo m")
}

pub(super) fn gamma2(parts: u64) -> u64 {
    (Q - 1) / parts / 2
}

/// Bits of a high part, of which there are `parts`.
pub(super) const fn high_bits(parts: u64) -> u32 {
    (parts - 1).ilog2() + 1
}

/// Bits of a low part, raised by `gamma2`.
pub(super) const LOW_BITS: u32 = 19;
