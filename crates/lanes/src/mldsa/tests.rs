//! The kernels on the model, against the text of FIPS 204.

use super::matrix::strided;
use super::numbers::*;
use super::rounding::{gamma2, high_bits};
use super::transform::BLOCK;
use super::{Half, MlDsa};
use crate::definition::Definition;

/// The transform as FIPS 204 has it, algorithm 41, on one polynomial.
fn ntt(w: &[u64]) -> Vec<u64> {
    let mut w: Vec<u64> = w.iter().map(|w| w % MlDsa::Q).collect();
    let (mut i, mut len) = (0, 128);
    while len >= 1 {
        for start in (0..256).step_by(2 * len) {
            i += 1;
            for j in start..start + len {
                let t = zeta(i) * w[j + len] % MlDsa::Q;
                w[j + len] = (w[j] + MlDsa::Q - t) % MlDsa::Q;
                w[j] = (w[j] + t) % MlDsa::Q;
            }
        }
        len /= 2;
    }
    w
}

fn spread(words: &[u64]) -> Vec<[u64; 1]> {
    words.iter().map(|&word| [word]).collect()
}

fn model(kernel: MlDsa, written: &mut [&mut [[u64; 1]]], read: &[&[[u64; 1]]]) {
    kernel.model(written, read);
}

fn forward(x: &[[u64; 1]]) -> Vec<[u64; 1]> {
    let (mut far, mut out) = (vec![[0]; 256], vec![[0]; 256]);
    for at in (0..BLOCK).step_by(MlDsa::COLUMNS) {
        let range = at..at + MlDsa::FAR;
        model(MlDsa::NttFar, &mut [&mut far[range.clone()]], &[&x[range]]);
    }
    let zetas = spread(&MlDsa::zetas());
    for (i, zetas) in zetas.chunks(MlDsa::ZETAS).enumerate() {
        let range = i * CHUNK..(i + 1) * CHUNK;
        let out = &mut out[range.clone()];
        model(MlDsa::NttNear, &mut [out], &[&far[range], zetas]);
    }
    out
}

fn backward(x: &[[u64; 1]]) -> Vec<[u64; 1]> {
    let (mut near, mut out) = (vec![[0]; 256], vec![[0]; 256]);
    let zetas = spread(&MlDsa::inverse_zetas());
    for (i, zetas) in zetas.chunks(MlDsa::ZETAS).enumerate() {
        let range = i * CHUNK..(i + 1) * CHUNK;
        let near = &mut near[range.clone()];
        model(MlDsa::InverseNear, &mut [near], &[&x[range], zetas]);
    }
    for at in (0..BLOCK).step_by(MlDsa::COLUMNS) {
        let range = at..at + MlDsa::FAR;
        let out = &mut out[range.clone()];
        model(MlDsa::InverseFar, &mut [out], &[&near[range]]);
    }
    out
}

fn polynomial(seed: u64, below: u64) -> Vec<u64> {
    let next = |x: &mut u64| {
        *x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Some((*x >> 33) % below)
    };
    let mut x = seed;
    std::iter::from_fn(|| next(&mut x)).take(256).collect()
}

/// Random polynomials, and those whose lanes grow the most.
fn polynomials(below: u64) -> Vec<Vec<u64>> {
    let mut all: Vec<_> = (1..9).map(|seed| polynomial(seed, below)).collect();
    all.extend([vec![below - 1; 256], vec![0; 256], vec![MlDsa::Q; 256]]);
    all
}

#[test]
fn the_transform_is_the_standards() {
    for x in polynomials(1 << PLAIN_BITS) {
        let found = forward(&spread(&x));
        let found: Vec<u64> = found.iter().map(|w| w[0] % MlDsa::Q).collect();
        assert_eq!(found, ntt(&x));
    }
}

#[test]
fn the_inverse_transform_undoes_it() {
    for x in polynomials(MlDsa::Q) {
        let transformed: Vec<_> = ntt(&x).iter().map(|&w| [w + MlDsa::Q]).collect();
        let found: Vec<u64> = backward(&transformed).iter().map(|w| w[0]).collect();
        assert!(found.iter().all(|&w| w <= MlDsa::Q));
        let reduce = |x: &[u64]| x.iter().map(|x| x % MlDsa::Q).collect::<Vec<_>>();
        assert_eq!(reduce(&found), reduce(&x));
    }
}

/// Algorithm 36 with signed numbers, and division as in the text.
fn plain_decompose(r: i64, m: i64) -> (i64, i64) {
    let (q, r) = (MlDsa::Q as i64, r % MlDsa::Q as i64);
    let alpha = (q - 1) / m;
    let mut r0 = r.rem_euclid(alpha);
    if r0 > alpha / 2 {
        r0 -= alpha;
    }
    match r - r0 == q - 1 {
        true => (0, r0 - 1),
        false => ((r - r0) / alpha, r0),
    }
}

/// Every boundary between two high parts, with its neighbours.
fn boundaries(m: u64) -> Vec<u64> {
    let around = (0..=2 * m).map(|i| i * gamma2(m));
    let near = around.flat_map(|at| (0..5).map(move |d| (at + d).saturating_sub(2)));
    let mut all: Vec<u64> = near.filter(|&r| r <= MlDsa::Q).collect();
    all.extend([MlDsa::Q - 1, MlDsa::Q]);
    all.resize(all.len().next_multiple_of(CHUNK), 1);
    all
}

#[test]
fn high_and_low_parts_are_the_standards() {
    for m in [44, 16] {
        let bits = high_bits(m);
        for r in boundaries(m).chunks(CHUNK) {
            let mut words = vec![[0]; CHUNK * bits as usize / 64];
            let mut low = vec![[0]; CHUNK];
            model(MlDsa::Decompose(m), &mut [&mut words, &mut low], &[&spread(r)]);
            for (j, &r) in r.iter().enumerate() {
                let (r1, r0) = plain_decompose(r as i64, m as i64);
                assert_eq!(low[j][0] as i64 - gamma2(m) as i64, r0, "{r}");
                assert_eq!(field(&words, j, bits) as i64, r1, "{r}");
            }
        }
    }
}

#[test]
fn hints_lead_to_the_high_part() {
    for m in [44u64, 16] {
        let bits = high_bits(m);
        for r in boundaries(m).chunks(CHUNK) {
            for away in [0, 1, m - 1, 2] {
                let fields: Vec<u64> = r
                    .iter()
                    .map(|&r| (plain_decompose(r as i64, m as i64).0 as u64 + away) % m)
                    .collect();
                let wanted = packed(&fields, bits);
                let (mut bad, mut hints) = ([[0]], [[0]]);
                let read: [&[_]; 2] = [&spread(r), &wanted];
                model(MlDsa::MakeHint(m), &mut [&mut bad, &mut hints], &read);
                let expected = if away == 0 { 0 } else { u64::MAX };
                assert_eq!(hints[0][0], expected);
                let mut led = vec![[0]; wanted.len()];
                model(MlDsa::UseHint(m), &mut [&mut led], &[&hints, &spread(r)]);
                assert_eq!(led == wanted, bad[0][0] == 0);
                for (j, &r) in r.iter().enumerate() {
                    let (r1, r0) = plain_decompose(r as i64, m as i64);
                    let step = if r0 > 0 { 1 } else { -1 };
                    let led_to = match away {
                        0 => r1,
                        _ => (r1 + step).rem_euclid(m as i64),
                    };
                    assert_eq!(field(&led, j, bits) as i64, led_to);
                }
            }
        }
    }
}

#[test]
fn norms_are_checked_on_both_sides() {
    let check = |kernel, bad: &mut [[u64; 1]], read: &[&[[u64; 1]]]| {
        let mut out = vec![[0]; CHUNK];
        match kernel {
            MlDsa::Norm(..) | MlDsa::Low(..) => model(kernel, &mut [bad], read),
            _ => model(kernel, &mut [bad, &mut out], read),
        }
    };
    for at in [0, 1, 31, 63] {
        // A value in one place, and nothing wrong in all others.
        let bad_with = |kernel, fine: u64, value: u64, bits: Option<u32>, rest: &[[u64; 1]]| {
            let mut values = vec![fine; CHUNK];
            values[at] = value;
            let values = match bits {
                Some(bits) => packed(&values, bits),
                None => spread(&values),
            };
            let mut bad = [[0]];
            let mut read: Vec<&[_]> = vec![&values];
            if !rest.is_empty() {
                read.push(rest);
            }
            check(kernel, &mut bad, &read);
            bad[0][0] != 0
        };
        for (bits, beta) in [(18, 78), (20, 196), (20, 120)] {
            let kernel = MlDsa::Response(bits, beta);
            for (value, bad) in [
                (beta, true),
                (beta + 1, false),
                ((1 << bits) - beta - 1, false),
                ((1 << bits) - beta, true),
            ] {
                let found = bad_with(kernel, 1 << (bits - 1), value, Some(bits), &[]);
                assert_eq!(found, bad, "{value}");
            }
        }
        for (value, bad) in [
            (gamma2(44) - 1, false),
            (gamma2(44), true),
            (MlDsa::Q - gamma2(44), true),
            (MlDsa::Q - gamma2(44) + 1, false),
        ] {
            let found = bad_with(MlDsa::Norm(44), 0, value, None, &[]);
            assert_eq!(found, bad, "{value}");
        }
        for (value, bad) in [(MlDsa::Q - 1, false), (MlDsa::Q, true)] {
            let found = bad_with(MlDsa::Uniform, 0, value, Some(24), &[]);
            assert_eq!(found, bad, "{value}");
        }
        let (m, beta) = (16, 196);
        let rim = gamma2(m) - beta;
        for half in [Half::Low, Half::High] {
            // c s = 3 in one half, -5 in the other.
            let pair = match half {
                Half::Low => (512 + 3) | (512 - 5) << 10,
                Half::High => (512 - 5) | (512 + 3) << 10,
            };
            let pair = spread(&[pair; CHUNK]);
            for (low, bad) in [
                (gamma2(m) + rim - 4, false),
                (gamma2(m) + rim - 3, true),
                (gamma2(m) - rim - 2, false),
                (gamma2(m) - rim - 3, true),
            ] {
                let kernel = MlDsa::Low(m, beta, half);
                assert_eq!(bad_with(kernel, gamma2(m), low, None, &pair), bad, "{low}");
            }
        }
    }
}

#[test]
fn products_are_those_of_matrices() {
    let (rows, columns) = (6, 5);
    let matrix = polynomial(3, MlDsa::Q);
    let matrix = &matrix[..rows * columns * MlDsa::SLICE];
    let vector: Vec<u64> = (0..5).flat_map(|i| polynomial(i, 1 << NTT_BITS)).collect();
    let mut out = vec![[0]; strided(rows)];
    let input = spread(&vector[..strided(columns)]);
    let kernel = MlDsa::Product(rows, columns);
    model(kernel, &mut [&mut out], &[&spread(matrix), &input]);
    for (row, j) in (0..rows).flat_map(|row| (0..MlDsa::SLICE).map(move |j| (row, j))) {
        let factor = |column: usize| matrix[(column * rows + row) * MlDsa::SLICE + j];
        let sum = (0..columns)
            .map(|column| u128::from(factor(column)) * u128::from(vector[column * 256 + j]))
            .sum::<u128>();
        let found = u128::from(out[row * 256 + j][0]);
        assert_eq!(found % u128::from(MlDsa::Q), sum % u128::from(MlDsa::Q));
    }
}

fn packed(fields: &[u64], bits: u32) -> Vec<[u64; 1]> {
    let mut words = vec![[0]; fields.len() * bits as usize / 64];
    for (i, field) in fields.iter().enumerate() {
        for bit in 0..bits as usize {
            let at = i * bits as usize + bit;
            words[at / 64][0] |= (field >> bit & 1) << (at % 64);
        }
    }
    words
}

fn field(words: &[[u64; 1]], i: usize, bits: u32) -> u64 {
    (0..bits as usize).fold(0, |field, bit| {
        let at = i * bits as usize + bit;
        field | (words[at / 64][0] >> (at % 64) & 1) << bit
    })
}
