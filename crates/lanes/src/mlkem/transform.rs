//! The number-theoretic transform of ML-KEM, and products in its domain.
//!
//! Vector `i` of a polynomial holds coefficients `4 i` to `4 i + 3`: layers with distances of at
//! least 4 act between vectors, and the last one inside lanes.

use super::words::*;
use crate::definition::load;
use crate::machine::{Array, Machine};

/// Algorithm 9: three layers between vectors 8 apart, then four between neighbours.
pub(super) fn ntt<M: Machine>(m: &mut M, poly: Array) {
    let mut f = load(m, poly, POLYNOMIAL);
    let layer = |m: &mut M, f: &mut [M::V], places: &[usize], distance: usize| {
        // zeta number `at` belongs to block `at` of the layer (algorithm 9, line 1, counts on).
        let blocks = POLYNOMIAL / (2 * distance);
        for &i in places {
            if i & distance == 0 {
                let zeta = power(ROOT, reversed(blocks + i / (2 * distance)));
                let t = multiply(m, f[i + distance], Factor::new([zeta << 16; 4]));
                f[i + distance] = m.sub16(f[i], t);
                f[i] = m.add16(f[i], t);
            }
        }
    };
    for column in 0..8 {
        let places: Vec<_> = (0..8).map(|k| column + 8 * k).collect();
        for distance in [32, 16, 8] {
            layer(m, &mut f, &places, distance);
        }
    }
    for group in 0..8 {
        let places: Vec<_> = (0..8).map(|k| 8 * group + k).collect();
        for distance in [4, 2, 1] {
            layer(m, &mut f, &places, distance);
        }
        for &i in &places {
            // Distance 2: (c0, c1, c2, c3) to (c0 + z c2, c1 + z c3, c0 - z c2, c1 - z c3).
            let zeta = power(ROOT, reversed(64 + i));
            let minus = Q - zeta;
            let factor = Factor::new([1 << 16, 1 << 16, minus << 16, minus << 16]);
            let f = multiply(m, f[i], factor);
            let swapped = m.rol(f, 32);
            let signed = negate(m, swapped, LOW_HALF);
            let sum = m.add16(f, signed);
            m.store(poly, i, sum);
        }
    }
}

/// Algorithm 10: four layers between neighbours, then three between vectors 8 apart.
pub(super) fn inverse_ntt<M: Machine>(m: &mut M, poly: Array) {
    let mut f = load(m, poly, POLYNOMIAL);
    let layer = |m: &mut M, f: &mut [M::V], places: &[usize], distance: usize| {
        let blocks = POLYNOMIAL / (2 * distance);
        for &i in places {
            if i & distance == 0 {
                let zeta = power(ROOT, reversed(2 * blocks - 1 - i / (2 * distance)));
                let difference = m.sub16(f[i + distance], f[i]);
                f[i] = m.add16(f[i], f[i + distance]);
                f[i + distance] = multiply(m, difference, Factor::new([zeta << 16; 4]));
            }
        }
    };
    for group in 0..8 {
        let places: Vec<_> = (0..8).map(|k| 8 * group + k).collect();
        for &i in &places {
            // Distance 2, and line 14's multiplication by 128^-1 = 3303 for all that follows:
            // (c0, c1, c2, c3) to (c0 + c2, c1 + c3, z (c2 - c0), z (c3 - c1)).
            let zeta = power(ROOT, reversed(127 - i));
            let (low, high) = (3303 << 16, (3303 * zeta) << 16);
            let swapped = m.rol(f[i], 32);
            let signed = negate(m, swapped, !LOW_HALF);
            let sum = m.add16(f[i], signed);
            f[i] = multiply(m, sum, Factor::new([low, low, high, high]));
        }
        for distance in [1, 2, 4] {
            layer(m, &mut f, &places, distance);
        }
        // The sums have grown. Three more layers of sums have room only for the size of products.
        for &i in &places[..4] {
            f[i] = multiply(m, f[i], Factor::new([1 << 16; 4]));
        }
    }
    for column in 0..8 {
        let places: Vec<_> = (0..8).map(|k| column + 8 * k).collect();
        for distance in [8, 16, 32] {
            layer(m, &mut f, &places, distance);
        }
        for &i in &places {
            m.store(poly, i, f[i]);
        }
    }
}

/// Algorithms 11 and 12, and a sum over them: `(a0 + a1 X) (b0 + b1 X)` is
/// `(a0 b0 + gamma a1 b1) + (a0 b1 + a1 b0) X` modulo `X^2 - gamma`.
pub(super) fn product<M: Machine>(m: &mut M, rank: usize, out: Array, [a, b, plain, quotient]: [Array; 4]) {
    for i in 0..QUARTER {
        // Over all products: (a0 b0, a1 b1) and (a0 b1, a1 b0).
        let mut sums = None;
        for j in 0..rank {
            let at = j * POLYNOMIAL + i;
            let (a, b) = (m.load(a, at), m.load(b, at));
            let swapped = m.rol32(b, 16);
            let straight = multiply_variables(m, a, b);
            let crossed = multiply_variables(m, a, swapped);
            sums = Some(match sums {
                None => (straight, crossed),
                Some((s, c)) => (m.add16(s, straight), m.add16(c, crossed)),
            });
        }
        let (straight, crossed) = sums.expect("a vector has polynomials");
        let (plain, quotient) = (m.load(plain, i), m.load(quotient, i));
        let straight = multiply_by(m, straight, plain, quotient);
        let swapped = m.rol32(straight, 16);
        let straight = m.add16(straight, swapped);
        let swapped = m.rol32(crossed, 16);
        let crossed = m.add16(crossed, swapped);
        // Back from Montgomery's form.
        let crossed = multiply(m, crossed, Factor::new([power(2, 32); 4]));
        let even = m.splat(EVEN_WORDS);
        let sum = m.ternary(even, straight, crossed, CHOOSE);
        m.store(out, i, sum);
    }
}

/// The factors of vector `i` in a quarter of [`product`]: one word with the factors, one with the
/// factors over q.
pub(super) fn product_factors(part: usize, i: usize) -> (u64, u64) {
    // Pairs of coefficients are multiplied modulo X^2 - gamma, gamma = 17^(2 BitRev7(pair) + 1)
    // (algorithm 11); 2^32 compensates for two Montgomery multiplications.
    let vector = QUARTER * part + i;
    let square = power(2, 32);
    let gamma = |pair| square * power(ROOT, 2 * reversed(pair) + 1);
    let factor = Factor::new([square, gamma(2 * vector), square, gamma(2 * vector + 1)]);
    (factor.plain, factor.quotient)
}
