//! The kernels on the model, against the text of FIPS 203.

use super::MlKem;
use crate::definition::Definition;
use std::array::from_fn;

/// Runs a kernel on one array that it writes and those that it reads.
fn run(kernel: MlKem, out: &mut [[u64; 4]], read: &[&[[u64; 4]]]) {
    kernel.model(&mut [out], read);
}

/// A polynomial with the same coefficients in every lane, but rotated by lanes.
fn pack(coefficients: &[i32; 256]) -> Vec<[u64; 4]> {
    let word = |lane: usize, at: usize| coefficients[(at + lane) % 256] as u16;
    let vector = |i: usize| {
        let words = |lane| (0..4).map(move |k| u64::from(word(lane, 4 * i + k)) << (16 * k));
        from_fn(|lane| words(lane).sum())
    };
    (0..64).map(vector).collect()
}

/// Coefficients of one lane, in `[0, q)`.
fn unpack(poly: &[[u64; 4]], lane: usize) -> [i32; 256] {
    from_fn(|at| i32::from((poly[at / 4][lane] >> (16 * (at % 4))) as i16).rem_euclid(3329))
}

fn sample(seed: u64, below: i32) -> [i32; 256] {
    let mut state = seed;
    from_fn(|_| {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 40) as i32 % below
    })
}

/// Products through the transform are products modulo X^256 + 1.
#[test]
fn transforms_and_products_are_those_of_the_ring() {
    for rank in [2, 3, 4] {
        let a: Vec<_> = (0..rank).map(|i| sample(i as u64, 3329)).collect();
        let b: Vec<_> = (0..rank).map(|i| sample(i as u64 + 9, 3329)).collect();
        let transformed = |polys: &[[i32; 256]]| {
            let transform = |poly| {
                let mut poly = pack(poly);
                run(MlKem::Ntt, &mut poly, &[]);
                poly
            };
            polys.iter().flat_map(transform).collect::<Vec<_>>()
        };
        // The left operand is as decoded: reduced.
        let mut left = transformed(&a);
        for poly in left.chunks_mut(64) {
            for vector in poly {
                for lane in vector {
                    *lane = (0..4).fold(0, |v, k| {
                        let word = i32::from((*lane >> (16 * k)) as i16).rem_euclid(3329);
                        v | (word as u64) << (16 * k)
                    });
                }
            }
        }
        let right = transformed(&b);
        let mut product = vec![[0; 4]; 64];
        for part in 0..4 {
            let quarter = 16 * part..16 * part + (rank - 1) * 64 + 16;
            let factors: Vec<_> = (0..16).map(|i| MlKem::product_factors(part, i)).collect();
            let plain: Vec<_> = factors.iter().map(|&(plain, _)| [plain; 4]).collect();
            let quotient: Vec<_> = factors.iter().map(|&(_, quotient)| [quotient; 4]).collect();
            run(
                MlKem::Product(rank),
                &mut product[16 * part..][..16],
                &[&left[quarter.clone()], &right[quarter], &plain, &quotient],
            );
        }
        run(MlKem::InverseNtt, &mut product, &[]);
        for lane in 0..4 {
            let mut expected = [0i64; 256];
            for (a, b) in a.iter().zip(&b) {
                for i in 0..256 {
                    for j in 0..256 {
                        let term = i64::from(a[(i + lane) % 256] * b[(j + lane) % 256]);
                        expected[(i + j) % 256] += if i + j < 256 { term } else { -term };
                    }
                }
            }
            let expected = expected.map(|c| c.rem_euclid(3329) as i32);
            assert_eq!(unpack(&product, lane), expected, "rank {rank} lane {lane}");
        }
    }
}

/// Every coefficient, and what rounding in exact integers gives (section 4.2.1).
#[test]
fn compression_rounds() {
    for bits in [4, 5, 10, 11] {
        for from in (0..3329).step_by(256) {
            let coefficients: [i32; 256] = from_fn(|i| (from + i as i32) % 3329);
            let poly = pack(&coefficients);
            let zero = vec![[0; 4]; 64];
            let mut words = vec![[0; 4]; 4 * bits as usize];
            let mut read: Vec<&[[u64; 4]]> = vec![&poly, &zero];
            if bits <= 5 {
                read.push(&zero);
            }
            run(MlKem::Compress(bits), &mut words, &read);
            let mut back = zero.clone();
            run(MlKem::Decompress(bits), &mut back, &[&words]);
            for lane in 0..4 {
                let field = |at: usize| {
                    let bit = at * bits as usize;
                    let word = |i: usize| words.get(i).map_or(0, |w| u128::from(w[lane]));
                    let both = word(bit / 64) | word(bit / 64 + 1) << 64;
                    (both >> (bit % 64)) as i32 & ((1 << bits) - 1)
                };
                let back = unpack(&back, lane);
                for at in 0..256 {
                    let x = coefficients[(at + lane) % 256];
                    let y = ((x << (bits + 1)) + 3329) / (2 * 3329) % (1 << bits);
                    assert_eq!(field(at), y, "{x} to {bits} bits");
                    assert_eq!(back[at], (2 * 3329 * y + (1 << bits)) >> (bits + 1));
                }
            }
        }
    }
}

/// Encoding makes unreduced sums canonical; decoding reports what is not canonical.
#[test]
fn encoding_is_canonical_and_decoding_tells() {
    let coefficients = sample(5, 6001).map(|c| c - 3000);
    let poly = pack(&coefficients);
    let mut words = vec![[0; 4]; 48];
    run(MlKem::Encode(1), &mut words, &[&poly]);
    let decode = |words: &[[u64; 4]]| {
        let (mut poly, mut bad) = (vec![[0; 4]; 64], vec![[0; 4]]);
        MlKem::Decode.model(&mut [&mut poly, &mut bad], &[words]);
        (poly, bad[0])
    };
    let (back, bad) = decode(&words);
    assert_eq!(bad, [0; 4]);
    for lane in 0..4 {
        let expected: [i32; 256] = from_fn(|at| coefficients[(at + lane) % 256].rem_euclid(3329));
        assert_eq!(unpack(&back, lane), expected);
        for (i, vector) in back.iter().enumerate() {
            let word = (vector[lane] & 0xffff) as i32;
            assert_eq!(word, expected[4 * i], "canonical as it is");
        }
    }
    // The first coefficient of lane 1 is q, the last of lane 3 is 4095.
    words[0][1] = words[0][1] & !0xfff | 3329;
    words[47][3] |= 0xfff << 52;
    let (_, bad) = decode(&words);
    assert_eq!(bad.map(|lane| lane != 0), [false, true, false, true]);
    words[0][1] -= 1;
    assert_eq!(decode(&words).1[1], 0);
}

/// Bit by bit as algorithm 8 has it.
#[test]
fn noise_is_the_difference_of_ones() {
    for eta in [2, 3] {
        let words: Vec<[u64; 4]> = (0..8 * u64::from(eta))
            .map(|i| from_fn(|lane| (i + 77 * lane as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
            .collect();
        let mut poly = vec![[0; 4]; 64];
        run(MlKem::Noise(eta), &mut poly, &[&words]);
        for lane in 0..4 {
            let stream: Vec<u64> = words.iter().map(|vector| vector[lane]).collect();
            let bit = |at: usize| (stream[at / 64] >> (at % 64) & 1) as i32;
            let ones = |at: usize| (at..at + eta as usize).map(bit).sum::<i32>();
            for (i, c) in unpack(&poly, lane).into_iter().enumerate() {
                let at = 2 * i * eta as usize;
                assert_eq!(c, (ones(at) - ones(at + eta as usize)).rem_euclid(3329));
            }
        }
    }
}

/// Candidates are the coefficients below q of a block, in order, at the places that the kernel returns.
#[test]
fn candidates_are_those_below_q() {
    let mut state = vec![[0; 4]; 25];
    for (i, vector) in state.iter_mut().enumerate() {
        *vector = from_fn(|lane| (i as u64 + 31 * lane as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
    // All bad and all good.
    state[..3].iter_mut().for_each(|vector| vector[2] = u64::MAX);
    state[..9].iter_mut().for_each(|vector| vector[3] = 0);
    let mut out = vec![[0; 4]; 57];
    run(MlKem::Candidates, &mut out, &[&state]);
    for lane in 0..4 {
        let bytes: Vec<u8> = state[..21].iter().flat_map(|w| w[lane].to_le_bytes()).collect();
        let pairs = bytes.chunks(3).flat_map(|b| {
            let (b0, b1, b2) = (u16::from(b[0]), u16::from(b[1]), u16::from(b[2]));
            // Algorithm 7, lines 6 and 7.
            [b0 + 256 * (b1 % 16), b1 / 16 + 16 * b2]
        });
        let expected: Vec<u16> = pairs.filter(|&d| d < 3329).collect();
        let mut found = vec![0; 120];
        for i in 0..28 {
            let at = out[28 + i][lane] as usize;
            for k in 0..4 {
                found[at + k] = (out[i][lane] >> (16 * k)) as u16;
            }
        }
        assert_eq!(out[56][lane] as usize, expected.len());
        assert_eq!(found[..expected.len()], expected);
    }
}

#[test]
fn rows_become_lanes() {
    fn check<const L: usize>() {
        let word = |lane: usize, i: usize| (i | lane << 8) as u64;
        let rows: Vec<[u64; L]> = (0..64).map(|v| from_fn(|k| word(v * L / 64, v * L % 64 + k))).collect();
        let mut poly = vec![[0; L]; 64];
        MlKem::Transpose.model(&mut [&mut poly], &[&rows]);
        for (i, vector) in poly.iter().enumerate() {
            assert_eq!(*vector, from_fn(|lane| word(lane, i)));
        }
    }
    check::<4>();
    check::<8>();
}

#[test]
fn choices_are_lane_by_lane() {
    let ours: Vec<[u64; 4]> = (0..96).map(|i| [i; 4]).collect();
    let mut theirs = ours.clone();
    theirs[0][1] ^= 1 << 63;
    theirs[95][3] ^= 1;
    let mut out = vec![[0; 4]; 4];
    run(
        MlKem::Choose(96),
        &mut out,
        &[&ours, &theirs, &[[1; 4]; 4], &[[2; 4]; 4]],
    );
    assert_eq!(out, [[1, 2, 1, 2]; 4]);
}
