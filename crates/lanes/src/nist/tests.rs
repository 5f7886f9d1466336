//! The kernels on the model, by what must hold on the curves themselves.

use super::field::{Modulus, Number, UNIT, constant, leave};
use super::{Curve, Nist, product};
use crate::definition::Definition;
use crate::machine::DIGIT_MASK;
use crate::model::Model;

/// One number a lane, of one lane.
type Vectors = Vec<[u64; 1]>;

fn run(kernel: Nist, written: &mut Vectors, read: &[&Vectors]) {
    let read: Vec<&[[u64; 1]]> = read.iter().map(|vectors| vectors.as_slice()).collect();
    kernel.model(&mut [written.as_mut_slice()], &read);
}

fn vectors(digits: &[u64]) -> Vectors {
    digits.iter().map(|&digit| [digit]).collect()
}

fn generator(curve: Curve) -> Vectors {
    vectors(&curve.generator())
}

/// A table of which every entry is this affine point.
fn table(curve: Curve, point: &Vectors) -> Vectors {
    let mut entry = point[..2 * curve.digits()].to_vec();
    entry.resize(4 * curve.digits(), [0]);
    entry.repeat(Nist::ENTRIES)
}

/// The inverses of numbers modulo `p`, in Montgomery form, and modulo `n`, plain.
fn inverted(curve: Curve, x: &Vectors) -> Vectors {
    let count = x.len() / curve.digits();
    let mut state = vectors(&vec![0; count * Nist::inversion_len(curve)]);
    run(Nist::InvertBegin(curve, count), &mut state, &[x]);
    for _ in 0..curve.inversion_turns() {
        run(Nist::InvertTurn(curve, count), &mut state, &[]);
    }
    let mut out = vectors(&vec![0; x.len()]);
    run(Nist::InvertEnd(curve, count), &mut out, &[&state]);
    out
}

/// Affine coordinates, after a look at the defect.
fn affine(curve: Curve, point: &Vectors) -> Vectors {
    let d = curve.digits();
    let inverse = inverted(curve, &point[2 * d..].to_vec());
    let mut out = vectors(&vec![0; 3 * d]);
    run(Nist::Leave(curve), &mut out, &[point, &inverse]);
    assert_eq!(out.split_off(2 * d), vectors(&vec![0; d]));
    out
}

fn entered(curve: Curve, affine: &Vectors) -> (Vectors, Vectors) {
    let d = curve.digits();
    let mut out = vectors(&vec![0; 4 * d]);
    run(Nist::Enter(curve), &mut out, &[affine]);
    let defect = out.split_off(3 * d);
    (out, defect)
}

#[test]
fn the_order_less_one_makes_the_negative_generator() {
    for curve in Curve::ALL {
        let d = curve.digits();
        let affine_g = generator(curve);
        let (g, defect) = entered(curve, &affine_g);
        assert_eq!(defect, vectors(&vec![0; d]), "{curve:?}: the generator");
        let table = table(curve, &g);
        let mut point = vectors(&vec![0; 3 * d]);
        let mut order = curve.order().digits();
        order[0] -= 1;
        for digit in order.iter().rev() {
            for bit in (0..52).rev() {
                run(Nist::Double(curve), &mut point, &[]);
                let index = vectors(&[digit >> bit & 1]);
                run(Nist::AddOwn(curve), &mut point, &[&table, &index]);
            }
        }
        let found = affine(curve, &point);
        assert_eq!(found[..d], affine_g[..d], "{curve:?}");
        assert_eq!(sum_is_prime(curve, &found[d..], &affine_g[d..]), Some(true));
        // And one more would be infinity: the negative makes it by subtraction from itself.
        let minus = vectors(&[1 | Nist::NEGATIVE]);
        let mut twice = g.clone();
        run(Nist::Double(curve), &mut twice, &[]);
        run(Nist::AddOwn(curve), &mut twice, &[&table, &minus]);
        assert_eq!(affine(curve, &twice), affine_g);
    }
}

/// Checks that `a + b = p`.
fn sum_is_prime(curve: Curve, a: &[[u64; 1]], b: &[[u64; 1]]) -> Option<bool> {
    let mut carry = 0;
    let sum: Vec<u64> = a
        .iter()
        .zip(b)
        .map(|(a, b)| {
            let sum = a[0] + b[0] + carry;
            carry = sum >> 52;
            sum & DIGIT_MASK
        })
        .collect();
    (carry == 0).then(|| sum == curve.prime().digits())
}

#[test]
fn both_tables_give_the_same_points() {
    for curve in Curve::ALL {
        let d = curve.digits();
        let entries = curve.fixed_entries();
        let (g, _) = entered(curve, &generator(curve));
        // Multiples of the generator, affine, in Montgomery form: entry e at e mod entries.
        let mut multiples = vec![g.clone()];
        for e in 1..entries {
            let mut next = multiples[e - 1].clone();
            if e == 1 {
                run(Nist::Double(curve), &mut next, &[]);
            } else {
                run(Nist::Add(curve), &mut next, &[&g]);
            }
            multiples.push(next);
        }
        let plain: Vec<_> = multiples.iter().map(|point| affine(curve, point)).collect();
        let mut fixed = vectors(&vec![0; 2 * d * entries]);
        for (e, plain) in plain.iter().enumerate() {
            let (point, _) = entered(curve, plain);
            for digit in 0..2 * d {
                fixed[digit * entries + (e + 1) % entries] = point[digit];
            }
        }
        let far = plain[entries - 1].clone();
        for e in [0, 1, 2, 7, entries as u64 - 1, entries as u64] {
            for sign in [0, Nist::NEGATIVE] {
                let index = vectors(&[e | sign]);
                // From infinity, and from a point that is not in the table.
                let mut point = vectors(&vec![0; 3 * d]);
                run(Nist::AddFixed(curve), &mut point, &[&fixed, &index]);
                if e == 0 {
                    assert_eq!(point, vectors(&vec![0; 3 * d]), "infinity stays");
                    continue;
                }
                let found = affine(curve, &point);
                let expected = &plain[e as usize - 1][..2 * d].to_vec();
                assert_eq!(found[..d], expected[..d], "{curve:?} {e}");
                if sign == 0 {
                    assert_eq!(found, *expected);
                } else {
                    let (a, b) = (&found[d..], &expected[d..]);
                    assert_eq!(sum_is_prime(curve, a, b), Some(true));
                }
                let (mut point, _) = entered(curve, &far);
                run(Nist::Double(curve), &mut point, &[]);
                let mut same = point.clone();
                run(Nist::AddFixed(curve), &mut point, &[&fixed, &index]);
                let (own, _) = entered(curve, expected);
                let one = vectors(&[1 | sign]);
                run(Nist::AddOwn(curve), &mut same, &[&table(curve, &own), &one]);
                assert_eq!(affine(curve, &point), affine(curve, &same));
            }
        }
    }
}

#[test]
fn points_off_the_curve_have_a_defect() {
    for curve in Curve::ALL {
        let d = curve.digits();
        for place in [0, d] {
            let mut affine = generator(curve);
            affine[place][0] ^= 1;
            let (_, defect) = entered(curve, &affine);
            assert_ne!(defect, vectors(&vec![0; d]), "{curve:?}");
        }
    }
}

#[test]
fn responses_fulfil_their_equation() {
    for curve in Curve::ALL {
        let d = curve.digits();
        let n = curve.order();
        let number = |seed: u64| -> Vec<u64> {
            let small: Vec<u64> = (0..d as u64).map(|i| ((seed << 20) + i + 3) & 0xffff).collect();
            // Any number that is as wide as the modulus and below it.
            n.shifted(&small, 200 + seed as usize)
        };
        let enter = |x: &Vectors| {
            let mut out = vectors(&vec![0; d]);
            run(Nist::EnterOrder(curve), &mut out, &[x]);
            out
        };
        let [x, k, e, key] = [1, 2, 3, 4].map(|seed| vectors(&number(seed)));
        let inverses = inverted(curve, &[x.clone(), k.clone()].concat());
        let nonce = [inverses[d..].to_vec(), k.clone()].concat();
        let keys = [enter(&key), key.clone()].concat();
        let respond = |nonce: &Vectors, keys: &Vectors| {
            let mut out = vectors(&vec![0; 3 * d]);
            run(Nist::Respond(curve), &mut out, &[&x, nonce, &e, keys]);
            out
        };
        let good = respond(&nonce, &keys);
        assert_eq!(good[2 * d..], vectors(&vec![0; d]), "{curve:?}");
        assert_eq!(good[..d], x[..], "x is below n");
        for i in [0, d] {
            let (mut nonce, mut key) = (nonce.clone(), keys.clone());
            nonce[i][0] ^= 1 << 17;
            assert_ne!(respond(&nonce, &keys)[2 * d..], vectors(&vec![0; d]));
            key[i][0] ^= 1 << 17;
            let nonce = [&nonce[..d], &k[..]].concat();
            if i > 0 {
                assert_ne!(respond(&nonce, &key)[2 * d..], vectors(&vec![0; d]));
            }
        }
    }
}

/// Bound of Bernstein and Yang for steps that begin with 1/2, (45907 b + 26313) / 19929 for numbers of b bits. Nearly
/// all numbers need fewer turns, so that no other test misses one.
#[test]
fn turns_are_as_many_as_the_bound_asks_for() {
    for (curve, steps) in [(Curve::P256, 591), (Curve::P384, 885)] {
        assert!(50 * curve.inversion_turns() >= steps, "{curve:?}");
    }
}

#[test]
fn an_inverse_times_its_number_is_one() {
    for curve in Curve::ALL {
        let d = curve.digits();
        let mut random = 1u64;
        let mut next = || {
            // Marsaglia, "Xorshift RNGs", 2003.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        for modulus in [curve.prime(), curve.order()] {
            let small = |value: u64| {
                let mut digits = vec![0; d];
                digits[0] = value;
                digits
            };
            let mut numbers = vec![small(0), small(1), small(2), small(3), small(DIGIT_MASK)];
            for less in [1, 2, 3] {
                let mut digits = modulus.digits();
                digits[0] -= less;
                numbers.push(digits);
            }
            // Powers of two, runs of ones, and numbers without any pattern.
            for bits in (0..52 * d).step_by(7) {
                numbers.push(modulus.shifted(&small(1), bits));
                numbers.push(modulus.shifted(&small(DIGIT_MASK), bits));
            }
            for _ in 0..300 {
                // Below the modulus: digits from the left, each below 2^52.
                let digits = (0..d).fold(small(0), |number, _| {
                    let mut number = modulus.shifted(&number, 52);
                    number[0] = next() & DIGIT_MASK;
                    number
                });
                numbers.push(modulus.shifted(&digits, 1));
            }
            for plain in numbers {
                let m = &mut Model::<1>::new(&mut [], &[]);
                let number = constant(m, &plain);
                let r2 = constant(m, &modulus.power_of_r(2));
                let entered = product(m, modulus, &number, &r2);
                let mut x = vectors(&vec![0; 2 * d]);
                let (at, from) = match modulus == curve.prime() {
                    true => (0, &entered.digits),
                    false => (d, &number.digits),
                };
                x[at..at + d].copy_from_slice(from);
                let inverse = Number {
                    digits: inverted(curve, &x)[at..at + d].to_vec(),
                    below: 3 * UNIT,
                };
                let one = product(m, modulus, &inverse, &entered);
                let one: Vec<u64> = leave(m, modulus, &one).into_iter().flatten().collect();
                let zero = plain.iter().all(|&digit| digit == 0);
                assert_eq!(one, small(u64::from(!zero)), "{modulus:?} {plain:x?}");
                if at == 0 {
                    let alone = inverted(curve, &x[..d].to_vec());
                    assert_eq!(alone, inverse.digits, "{modulus:?} {plain:x?}");
                }
            }
        }
    }
}

#[test]
fn the_table_has_multiples_of_the_base_point() {
    for curve in Curve::ALL {
        let (d, entries) = (curve.digits(), curve.fixed_entries());
        let table = Nist::base_table(curve);
        assert_eq!(table.len(), curve.fixed_windows() * 2 * d * entries);
        // The first multiples of each window, and the largest.
        let (mut base, _) = entered(curve, &generator(curve));
        for window in table.chunks(2 * d * entries) {
            let entry = |e: usize| -> Vectors { (0..2 * d).map(|i| [window[i * entries + e % entries]]).collect() };
            let expected = |point: &Vectors| {
                let (entered, _) = entered(curve, &affine(curve, point));
                entered[..2 * d].to_vec()
            };
            assert_eq!(entry(1), expected(&base), "{curve:?}");
            let mut twice = base.clone();
            run(Nist::Double(curve), &mut twice, &[]);
            assert_eq!(entry(2), expected(&twice), "{curve:?}");
            let mut thrice = twice.clone();
            run(Nist::Add(curve), &mut thrice, &[&base]);
            assert_eq!(entry(3), expected(&thrice), "{curve:?}");
            for _ in 1..curve.fixed_bits() {
                run(Nist::Double(curve), &mut base, &[]);
            }
            assert_eq!(entry(entries), expected(&base), "{curve:?}");
            run(Nist::Double(curve), &mut base, &[]);
        }
    }
}

#[test]
fn moduli_are_what_their_reduction_takes_them_for() {
    for (modulus, k0) in [(Modulus::P256, 1), (Modulus::P384, (1 << 32) + 1)] {
        let product = u128::from(modulus.digits()[0]) * k0;
        assert_eq!(product as u64 & DIGIT_MASK, DIGIT_MASK, "{modulus:?}");
    }
}

/// Tests the claims of `NistCurve::multiply` and `multiply_base` about sums of equal points.
#[test]
fn no_sum_of_a_multiplication_is_exceptional() {
    for curve in Curve::ALL {
        let order = curve.order().digits();
        assert!(order[0] % (2 * Nist::ENTRIES as u64) > Nist::ENTRIES as u64);
        // The bits of n below the highest window of a table exceed half their range, or n has no
        // bit in that window.
        let bits = 52 * (curve.digits() - 1) + 64 - order[curve.digits() - 1].leading_zeros() as usize;
        let windows = (bits + 1).div_ceil(curve.fixed_bits());
        let top = (windows - 1) * curve.fixed_bits();
        let below = (top - 8..top).map(|i| order[i / 52] >> (i % 52) & 1);
        assert!(top >= bits || below.min() == Some(1), "{curve:?}");
    }
}
