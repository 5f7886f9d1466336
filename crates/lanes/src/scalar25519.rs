//! Scalars of Curve25519, modulo the order l of its base point.
//!
//! l = 2^252 + 27742317777372353535851937790883648493 (RFC 8032, section 5.1). Scalars are five
//! digits in radix 2^52.

use crate::convert::{to_digits, to_limbs};
use crate::definition::{load, store};
use crate::field25519::load_limbs;
use crate::machine::{Array, DIGIT_BITS, DIGIT_MASK, Machine};
use crate::montgomery::{product, propagate};

/// decodeScalar25519 of RFC 7748, section 5.
pub(crate) fn clamp<M: Machine>(m: &mut M, scalar: [M::V; 4]) -> [M::V; 4] {
    let [low, a, b, high] = scalar;
    let mask = m.splat(!7);
    let low = m.and(low, mask);
    let mask = m.splat(u64::MAX >> 1);
    let high = m.and(high, mask);
    let bit = m.splat(1 << 62);
    [low, a, b, m.or(high, bit)]
}

/// `out := wide mod l`.
pub(crate) fn reduce<M: Machine>(m: &mut M, out: Array, wide: Array) {
    let wide = load(m, wide, 8);
    let wide = to_digits(m, &wide, 10);
    barrett(m, out, &wide);
}

/// `out := (a b + c) mod l`.
pub(crate) fn mul_add<M: Machine>(m: &mut M, out: Array, factors_and_addend: [Array; 3]) {
    let [a, b, c] = factors_and_addend.map(|array| {
        let limbs = load(m, array, 4);
        to_digits(m, &limbs, 5)
    });
    let mut columns = product(m, &a, &b);
    for (column, digit) in columns.iter_mut().zip(c) {
        *column = m.add(*column, digit);
    }
    let sum = propagate(m, &columns, "a b + c is below 2^513");
    barrett(m, out, &sum);
}

/// Digits such that the scalar is the sum of `(2 digits[i] - 31) 32^i` modulo l.
///
/// The sum of all `digits[i] 32^i` is (s + 2^255 - 1) / 2 for an s that is the scalar or, where
/// that is even, the scalar minus l: one of them is odd, and both have at most 255 bits.
pub(crate) fn base_digits<M: Machine>(m: &mut M, digits: Array, scalar: Array, clamped: bool) {
    let mut limbs = load_limbs(m, scalar);
    if clamped {
        limbs = clamp(m, limbs);
    }
    let one = m.splat(1);
    let odd = m.test(limbs[0], one);
    // Half of the scalar in digits of ten windows.
    let (mask, parts) = (m.splat(LONG_MASK), BASE_WINDOWS.div_ceil(LONG_WINDOWS));
    let half: Vec<_> = (0..parts)
        .map(|i| {
            let bit = 1 + LONG_BITS * i;
            let (limb, offset) = (bit / 64, bit as u32 % 64);
            let mut digit = m.shr(limbs[limb], offset);
            if offset as usize + LONG_BITS > 64 && limb < 3 {
                let high = m.shl(limbs[limb + 1], 64 - offset);
                digit = m.or(digit, high);
            }
            m.and(digit, mask)
        })
        .collect();
    // (2^255 - 1) / 2 and the half that was cut off an odd scalar, or (2^255 - 1 - l) / 2.
    let mut if_odd = [0; 5];
    if_odd[4] = 1 << (254 - 4 * DIGIT_BITS);
    let if_even = halve(subtract(subtract(double(if_odd), [1, 0, 0, 0, 0]), ORDER));
    let mut carry = m.splat(0);
    for (i, digit) in half.into_iter().enumerate() {
        let [yes, no] = [if_odd, if_even].map(|number| m.splat(long_digit(number, i)));
        let constant = m.select(odd, yes, no);
        let sum = m.add(digit, constant);
        let sum = m.add(sum, carry);
        carry = m.shr(sum, LONG_BITS as u32);
        for window in 0..LONG_WINDOWS {
            let at = i * LONG_WINDOWS + window;
            if at < BASE_WINDOWS {
                let digit = m.shr(sum, 5 * window as u32);
                let mask = m.splat(31);
                let digit = m.and(digit, mask);
                m.store(digits, at, digit);
            }
        }
    }
}

/// Digits such that the scalar is the sum of `(digits[i] - 8) 16^i`.
pub(crate) fn digits<M: Machine>(m: &mut M, digits: Array, scalar: Array) {
    let limbs = load(m, scalar, 4);
    let parts = to_digits(m, &limbs, 5);
    let (mask, eights) = (m.splat(15), m.splat(0x8_8888_8888_8888));
    let mut carry = m.splat(0);
    for (i, part) in parts.into_iter().enumerate() {
        let sum = m.add(part, eights);
        let sum = m.add(sum, carry);
        carry = m.shr(sum, DIGIT_BITS);
        for window in 0..13 {
            let at = 13 * i + window;
            if at < WINDOWS {
                let digit = m.shr(sum, 4 * window as u32);
                let digit = m.and(digit, mask);
                m.store(digits, at, digit);
            }
        }
    }
}

/// Writes `x mod l`, for ten digits `x`: Barrett's reduction (Menezes, van Oorschot, Vanstone,
/// Handbook of Applied Cryptography, algorithm 14.42), with b := 2^52, k := 5.
fn barrett<M: Machine>(m: &mut M, out: Array, x: &[M::V]) {
    let ones = m.splat(DIGIT_MASK);
    let order: Vec<_> = ORDER.iter().map(|&digit| m.splat(digit)).collect();
    let mu: Vec<_> = mu().iter().map(|&digit| m.splat(digit)).collect();
    // 1. q := floor(floor(x / b^(k - 1)) mu / b^(k + 1))
    let columns = product(m, &x[4..], &mu);
    let q = propagate(m, &columns, "a product of 12 digits");
    let q = &q[6..];
    // 2. and 3. r := x - q l mod b^(k + 1)
    let columns = product(m, q, &order);
    let mut r = Vec::new();
    let mut carry = m.splat(0);
    for (&x, &column) in x.iter().zip(&columns[..6]) {
        let column = m.sub(x, column);
        let column = m.add(column, carry);
        carry = m.sra(column, DIGIT_BITS);
        r.push(m.and(column, ones));
    }
    // 4. r is below 3 l, so that its sixth digit is 0.
    r.pop();
    for _ in 0..2 {
        let mut borrow = m.splat(0);
        let mut less = Vec::new();
        for (&r, &l) in r.iter().zip(&order) {
            let column = m.sub(r, l);
            let column = m.add(column, borrow);
            borrow = m.sra(column, DIGIT_BITS);
            less.push(m.and(column, ones));
        }
        let zero = m.splat(0);
        let fits = m.eq(borrow, zero);
        for (r, less) in r.iter_mut().zip(less) {
            *r = m.select(fits, less, *r);
        }
    }
    let limbs = to_limbs(m, &r, 4);
    store(m, out, &limbs);
}

/// A public scalar: five digits.
type Constant = [u64; 5];

/// l.
const ORDER: Constant = {
    // The part below 2^252, and bit 252 in the highest digit.
    let low: u128 = 27_742_317_777_372_353_535_851_937_790_883_648_493;
    let mask = DIGIT_MASK as u128;
    [
        (low & mask) as u64,
        (low >> DIGIT_BITS & mask) as u64,
        (low >> (2 * DIGIT_BITS)) as u64,
        0,
        1 << (252 - 4 * DIGIT_BITS),
    ]
};

/// floor(b^(2 k) / l), by long division in base 2.
fn mu() -> [u64; 6] {
    let mut quotient = [0; 6];
    // The remainder is below l before a bit is shifted in, and below 2 l after.
    let mut remainder = [0; 5];
    for bit in (0..=520).rev() {
        remainder = double(remainder);
        remainder[0] |= u64::from(bit == 520);
        if remainder.iter().rev().ge(ORDER.iter().rev()) {
            remainder = subtract(remainder, ORDER);
            quotient[bit / 52] |= 1 << (bit % 52);
        }
    }
    quotient
}

/// `2 a`, which must fit.
fn double(a: Constant) -> Constant {
    std::array::from_fn(|i| {
        let carry = if i > 0 { a[i - 1] >> (DIGIT_BITS - 1) } else { 0 };
        (a[i] << 1 | carry) & DIGIT_MASK
    })
}

/// `floor(a / 2)`.
fn halve(a: Constant) -> Constant {
    std::array::from_fn(|i| {
        let carry = if i < 4 { a[i + 1] & 1 } else { 0 };
        a[i] >> 1 | carry << (DIGIT_BITS - 1)
    })
}

/// `a - b`, which must not be negative.
fn subtract(a: Constant, b: Constant) -> Constant {
    let mut borrow = 0;
    std::array::from_fn(|i| {
        let column = a[i].wrapping_sub(b[i]).wrapping_sub(borrow);
        borrow = column >> 63;
        column & DIGIT_MASK
    })
}

/// Digit `i` of radix 2^50.
fn long_digit(a: Constant, i: usize) -> u64 {
    let bit = LONG_BITS * i;
    let (digit, offset) = (bit / 52, bit % 52);
    let high = a.get(digit + 1).map_or(0, |high| high << (52 - offset));
    (a[digit] >> offset | high) & LONG_MASK
}

/// Digits of [`base_digits`].
pub(crate) const BASE_WINDOWS: usize = 51;
/// Digits of [`digits`].
pub(crate) const WINDOWS: usize = 64;
/// Windows of five bits in a long digit, and the bits of one.
const LONG_WINDOWS: usize = 10;
const LONG_BITS: usize = 50;
const LONG_MASK: u64 = (1 << LONG_BITS) - 1;
