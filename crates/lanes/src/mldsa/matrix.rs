//! Products of matrices and vectors of transformed polynomials.

use super::numbers::*;
use crate::machine::{Array, DIGIT_BITS, DIGIT_MASK, Machine};

/// Coefficients of each polynomial on which a product of matrices works.
pub(super) const SLICE: usize = 8;

/// Coefficient `j` of `rows` inner products of `factor(row, column)` with the vector.
pub(super) fn inner_products<M: Machine>(
    m: &mut M,
    [out, vector]: [Array; 2],
    [rows, columns]: [usize; 2],
    j: usize,
    mut factor: impl FnMut(&mut M, usize, usize) -> M::V,
) {
    let zero = m.splat(0);
    let mut sums = vec![zero; rows];
    for column in 0..columns {
        let x = m.load(vector, column * N + j);
        for (row, sum) in sums.iter_mut().enumerate() {
            let factor = factor(m, row, column);
            *sum = m.madd_lo(*sum, x, factor);
        }
    }
    // A sum of up to eight exact products has 54 bits. Without its two lowest bits it is a digit,
    // and the quotient from that is at most two too small. The difference wraps around 2^52.
    let (q, ones) = (m.splat(Q), m.splat(DIGIT_MASK));
    let inverse = m.splat((1 << (DIGIT_BITS + 2)) / Q);
    for (row, &sum) in sums.iter().enumerate() {
        let digit = m.shr(sum, 2);
        let digit = m.claim(digit, DIGIT_BITS, "eight products of 51 bits have 54");
        let quotient = m.madd_hi(zero, digit, inverse);
        let multiple = m.madd_lo(zero, quotient, q);
        let rest = m.sub(sum, multiple);
        let rest = m.and(rest, ones);
        let rest = m.claim(rest, REDUCED_BITS, "the quotient is at most two too small");
        m.store(out, row * N + j, rest);
    }
}

/// Vectors from the first coefficient of the first polynomial to the last one of the slice in the
/// last polynomial.
pub(super) fn strided(polynomials: usize) -> usize {
    (polynomials - 1) * N + SLICE
}
