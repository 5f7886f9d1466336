//! The number-theoretic transform of ML-DSA (FIPS 204, section 7.5), four layers at a time.

use super::numbers::*;
use crate::machine::{Array, Machine};

/// Neighbouring coefficients on which the far layers of a transform work.
pub(super) const COLUMNS: usize = 4;
/// Coefficients that stay in registers for four layers of a transform.
pub(super) const BLOCK: usize = 16;
pub(super) const LAYERS: u32 = 4;
/// Constants of the near layers of a block, each with its quotient.
pub(super) const ZETAS_OF_BLOCK: usize = 2 * (BLOCK - 1);

/// The first four layers of the transform on each 16th coefficient.
pub(super) fn ntt_far<M: Machine>(m: &mut M, out: Array, x: Array) {
    for column in 0..COLUMNS {
        let mut x = far(m, x, column);
        forward(m, &mut x, |m, i| constant(m, zeta(i)));
        store_far(m, out, column, &x);
    }
}

/// The last four layers on blocks of neighbours.
pub(super) fn ntt_near<M: Machine>(m: &mut M, out: Array, x: Array, zetas: Array) {
    for block in 0..CHUNK / BLOCK {
        let mut x = near(m, x, block);
        forward(m, &mut x, |m, i| near_constant(m, zetas, block, i));
        store_near(m, out, block, &x);
    }
}

/// The first four layers of the inverse transform.
pub(super) fn inverse_near<M: Machine>(m: &mut M, out: Array, x: Array, zetas: Array) {
    for block in 0..CHUNK / BLOCK {
        let x = near(m, x, block);
        let mut x = x.map(|v| Lazy::new(v, 1 << REDUCED_BITS));
        backward(m, &mut x, |m, i| near_constant(m, zetas, block, i));
        let x = x.map(|x| match x.most >= 1 << 25 {
            true => x.reduce(m).v,
            false => x.v,
        });
        store_near(m, out, block, &x);
    }
}

/// Computes the last four layers of the inverse transform, with the factor 1/256.
pub(super) fn inverse_far<M: Machine>(m: &mut M, out: Array, x: Array) {
    let scale = inverse(N as u64);
    for column in 0..COLUMNS {
        let x = far(m, x, column);
        let mut x = x.map(|v| Lazy::new(v, 1 << 25));
        backward(m, &mut x, |m, i| {
            // The last layer brings the factor to one half of the coefficients.
            let scale = if i == 1 { scale } else { 1 };
            constant(m, inverse(zeta(i)) * scale % Q)
        });
        let by = constant(m, scale);
        let mut scaled = x.map(|x| x.v);
        for (scaled, x) in scaled.iter_mut().zip(&x).take(BLOCK / 2) {
            *scaled = x.for_product(m).times(m, by).v;
        }
        store_far(m, out, column, &scaled);
    }
}

/// Four layers of the transform on a block: those of the far layers on each 16th coefficient, those
/// of the near ones on neighbours. `zeta(i)` is the constant of part `i - 2^t` in layer `t`, of
/// which there are `2^t`, and `i` counts from `2^t`.
fn forward<M: Machine>(m: &mut M, x: &mut [M::V; BLOCK], mut zeta: impl FnMut(&mut M, usize) -> Constant<M::V>) {
    let mut len = BLOCK / 2;
    for layer in 0..LAYERS {
        for part in 0..1 << layer {
            let zeta = zeta(m, (1 << layer) + part);
            for j in 2 * len * part..2 * len * part + len {
                // Step 8 to 10: t := zeta w[j + len], then w[j] - t and w[j] + t.
                let t = Lazy::new(x[j + len], 1 << NTT_BITS).times(m, zeta);
                let raised = m.splat(Q);
                let raised = m.add(x[j], raised);
                let difference = m.sub(raised, t.v);
                x[j + len] = m.claim(difference, 63, AT_MOST_Q);
                x[j] = m.add(x[j], t.v);
            }
        }
        len /= 2;
    }
}

/// Four layers of the inverse transform on a block; `zeta(i)` is the inverse of that in `forward`.
fn backward<M: Machine>(m: &mut M, x: &mut [Lazy<M::V>; BLOCK], mut zeta: impl FnMut(&mut M, usize) -> Constant<M::V>) {
    let mut len = 1;
    for layer in (0..LAYERS).rev() {
        for part in 0..1 << layer {
            let zeta = zeta(m, (1 << layer) + part);
            for j in 2 * len * part..2 * len * part + len {
                // Steps 8 to 11: w[j] + w[j + len], and zeta (w[j] - w[j + len]).
                let (mut a, mut b) = (x[j], x[j + len]);
                if a.most + b.most.next_multiple_of(Q) > WHOLE {
                    (a, b) = (a.reduce(m), b.reduce(m));
                }
                let raise = b.most.next_multiple_of(Q);
                let raised = m.splat(raise);
                let raised = m.add(a.v, raised);
                let difference = m.sub(raised, b.v);
                let difference = m.claim(difference, 63, AT_MOST_Q);
                x[j] = Lazy::new(m.add(a.v, b.v), a.most + b.most);
                x[j + len] = Lazy::new(difference, a.most + raise).times(m, zeta);
            }
        }
        len *= 2;
    }
}

fn far<M: Machine>(m: &mut M, array: Array, column: usize) -> [M::V; BLOCK] {
    std::array::from_fn(|i| m.load(array, i * BLOCK + column))
}

fn store_far<M: Machine>(m: &mut M, array: Array, column: usize, x: &[M::V; BLOCK]) {
    for (i, &x) in x.iter().enumerate() {
        m.store(array, i * BLOCK + column, x);
    }
}

fn near<M: Machine>(m: &mut M, array: Array, block: usize) -> [M::V; BLOCK] {
    std::array::from_fn(|i| m.load(array, block * BLOCK + i))
}

fn store_near<M: Machine>(m: &mut M, array: Array, block: usize, x: &[M::V; BLOCK]) {
    for (i, &x) in x.iter().enumerate() {
        m.store(array, block * BLOCK + i, x);
    }
}

/// Constant `i` of a block.
fn near_constant<M: Machine>(m: &mut M, zetas: Array, block: usize, i: usize) -> Constant<M::V> {
    let at = block * ZETAS_OF_BLOCK + 2 * (i - 1);
    Constant {
        w: m.broadcast(zetas, at),
        quotient: m.broadcast(zetas, at + 1),
    }
}

/// For each block of 16 coefficients the constants of its last four layers and their quotients.
pub(super) fn near_constants(of: impl Fn(u64) -> u64) -> Vec<u64> {
    let mut all = Vec::new();
    for block in 0..N / BLOCK {
        for layer in 0..LAYERS {
            for part in 0..1 << layer {
                let w = of(zeta(((BLOCK + block) << layer) + part));
                all.extend([w, quotient(w)]);
            }
        }
    }
    all
}
