//! Arithmetic modulo p := 2^255 - 19, one number in each lane.
//!
//! A number is five digits in radix 2^51, least significant first. Digits are redundant: below
//! 2^52, which is what a multiplication takes, so that a carry need not run through.
//!
//! Sums and products are first columns: 64-bit lanes of the same weights, not carried yet. One
//! round of carries, all five at once, makes digits of columns: columns below 2^62 carry less than
//! 2^11, and 19 times that fits beside 2^51. So what is to be added or subtracted is added as
//! columns, and carried once.
//!
//! VPMADD52 splits products at bit 52, and a digit has 51: what it calls the high half has the
//! weight of the next digit twice. High halves are added up first, doubled, and low halves are
//! added to the same columns.

use crate::machine::{Array, Machine};
use std::ops::Range;

/// A number: digits below 2^52, or columns.
pub(crate) type Number<V> = [V; DIGITS];

/// Digits of a number.
pub(crate) const DIGITS: usize = 5;
/// Bits of a digit, the spare one not counted.
pub(crate) const BITS: u32 = 51;

/// A product that [`products`] computes beside others.
#[derive(Clone, Copy)]
pub(crate) struct Product<V> {
    a: Number<V>,
    /// Second factor; `None` for a square.
    b: Option<Number<V>>,
    bias: u64,
}

impl<V: Copy> Product<V> {
    /// `a b`.
    pub(crate) fn of(a: Number<V>, b: Number<V>) -> Self {
        Self { a, b: Some(b), bias: 0 }
    }

    /// `a^2`, with three fifths of the multiplications.
    pub(crate) fn square(a: Number<V>) -> Self {
        Self { a, b: None, bias: 0 }
    }

    /// Adds a multiple of p whose columns are as large as those of `products` products without one (one or two): these
    /// can be subtracted from it.
    pub(crate) fn biased(self, products: u64) -> Self {
        Self { bias: products, ..self }
    }
}

/// Several products as columns, those without a bias below 2^61, the others below 2^62.
///
/// They advance in step, because a CPU can start eight multiplications before an accumulator is
/// ready again.
pub(crate) fn products<M: Machine, const N: usize>(m: &mut M, products: [Product<M::V>; N]) -> [Number<M::V>; N] {
    if m.has_few_registers() {
        return products.map(|product| by_columns(m, product));
    }
    let mut sums = products.map(|product| Sum::new(m, product));
    // A square is twice the products of unlike digits, and the squares of digits.
    multiply(m, &mut sums, Half::High, all, unlike);
    for sum in sums.iter_mut().filter(|sum| sum.product.b.is_none()) {
        sum.double(m);
    }
    multiply(m, &mut sums, Half::High, none, like);
    multiply(m, &mut sums, Half::Low, none, unlike);
    for sum in &mut sums {
        sum.double(m);
    }
    multiply(m, &mut sums, Half::Low, all, like);
    sums.map(|sum| sum.fold(m))
}

/// A product column by column, for few registers: both halves of a product of two digits share work, and
/// two columns at a time are under construction. CPUs look ahead from one product to the next.
fn by_columns<M: Machine>(m: &mut M, product: Product<M::V>) -> Number<M::V> {
    let zero = m.splat(0);
    let mut sum = Sum::new(m, product);
    let unlike_digits: Terms = if product.b.is_some() { all } else { unlike };
    // Halves of squares of digits, of which there is one in a column.
    let mut like_high = None;
    for k in 0..2 * DIGITS {
        let mut column = sum.columns[k].unwrap_or(zero);
        if k > 0 {
            column = m.add(column, column);
        }
        if let Some(high) = like_high.take() {
            column = m.add(column, high);
        }
        sum.columns[k] = Some(column);
        for i in (0..DIGITS).filter(|&i| unlike_digits(i).contains(&(k.wrapping_sub(i)))) {
            sum.accumulate(m, Half::Low, i, k - i);
            sum.accumulate(m, Half::High, i, k - i);
        }
        if product.b.is_none() {
            let mut column = sum.columns[k].unwrap_or(zero);
            column = m.add(column, column);
            if k % 2 == 0 && k < 2 * DIGITS - 1 {
                let digit = product.a[k / 2];
                column = m.madd_lo(column, digit, digit);
                like_high = Some(m.madd_hi(zero, digit, digit));
            }
            sum.columns[k] = Some(column);
        }
    }
    sum.fold(m)
}

/// `a b`, as digits.
pub(crate) fn mul<M: Machine>(m: &mut M, a: Number<M::V>, b: Number<M::V>) -> Number<M::V> {
    let [product] = products(m, [Product::of(a, b)]);
    carry(m, product)
}

/// `a^2`, as digits.
pub(crate) fn square<M: Machine>(m: &mut M, a: Number<M::V>) -> Number<M::V> {
    let [product] = products(m, [Product::square(a)]);
    carry(m, product)
}

/// `a + b`, as columns.
pub(crate) fn add<M: Machine>(m: &mut M, a: Number<M::V>, b: Number<M::V>) -> Number<M::V> {
    std::array::from_fn(|i| m.add(a[i], b[i]))
}

/// `2 a`, as columns.
pub(crate) fn double<M: Machine>(m: &mut M, a: Number<M::V>) -> Number<M::V> {
    a.map(|column| m.add(column, column))
}

/// `a - b`, as columns, none of which may become negative.
pub(crate) fn sub<M: Machine>(m: &mut M, a: Number<M::V>, b: Number<M::V>) -> Number<M::V> {
    std::array::from_fn(|i| m.sub(a[i], b[i]))
}

/// `a - b` of digits, as columns.
pub(crate) fn sub_digits<M: Machine>(m: &mut M, a: Number<M::V>, b: Number<M::V>) -> Number<M::V> {
    // 4 p, whose columns are larger than digits.
    std::array::from_fn(|i| {
        let bias = m.splat(4 * modulus(i));
        let sum = m.add(a[i], bias);
        m.sub(sum, b[i])
    })
}

/// Digits of columns below 2^62, by one round of carries.
pub(crate) fn carry<M: Machine>(m: &mut M, columns: Number<M::V>) -> Number<M::V> {
    let mask = m.splat(MASK);
    let carries = columns.map(|column| m.shr(column, BITS));
    let rest = columns.map(|column| m.and(column, mask));
    std::array::from_fn(|i| match i {
        0 => {
            let nineteen = m.splat(19);
            m.madd_lo(rest[0], carries[DIGITS - 1], nineteen)
        }
        _ => m.add(rest[i], carries[i - 1]),
    })
}

/// The number in `[0, p)`, in digits below 2^51.
pub(crate) fn freeze<M: Machine>(m: &mut M, number: Number<M::V>) -> Number<M::V> {
    let (mask, nineteen) = (m.splat(MASK), m.splat(19));
    let digits = carry(m, number);
    // The number is below 2^255 + 2^207, so p is to be subtracted once or not at all: once if 19
    // more reach 2^255.
    let mut quotient = nineteen;
    for digit in digits {
        let sum = m.add(digit, quotient);
        quotient = m.shr(sum, BITS);
    }
    let mut carry = m.mul_lo(quotient, nineteen);
    digits.map(|digit| {
        let sum = m.add(digit, carry);
        carry = m.shr(sum, BITS);
        // The carry out of the highest digit is the quotient by 2^255: 19 times it goes back into the lowest digit.
        m.and(sum, mask)
    })
}

/// The number of 255 bits in four limbs of 64; the highest bit is ignored.
pub(crate) fn from_limbs<M: Machine>(m: &mut M, limbs: [M::V; 4]) -> Number<M::V> {
    let mask = m.splat(MASK);
    std::array::from_fn(|i| {
        let (limb, offset) = (i * BITS as usize / 64, i as u32 * BITS % 64);
        let mut digit = m.shr(limbs[limb], offset);
        if offset + BITS > 64 {
            let high = m.shl(limbs[limb + 1], 64 - offset);
            digit = m.or(digit, high);
        }
        m.and(digit, mask)
    })
}

/// Four limbs of 64 bits of a number whose digits are below 2^51.
pub(crate) fn to_limbs<M: Machine>(m: &mut M, digits: Number<M::V>) -> [M::V; 4] {
    std::array::from_fn(|i| {
        // Limb i begins 13 i bits into digit i.
        let low = m.shr(digits[i], 13 * i as u32);
        let high = m.shl(digits[i + 1], BITS - 13 * i as u32);
        m.or(low, high)
    })
}

/// An array of four limbs.
pub(crate) fn load_limbs<M: Machine>(m: &mut M, array: Array) -> [M::V; 4] {
    std::array::from_fn(|i| m.load(array, i))
}

/// Number `index` of an array of them.
pub(crate) fn load<M: Machine>(m: &mut M, array: Array, index: usize) -> Number<M::V> {
    std::array::from_fn(|i| m.load(array, index * DIGITS + i))
}

/// Writes number `index` of an array of them.
pub(crate) fn save<M: Machine>(m: &mut M, array: Array, index: usize, number: Number<M::V>) {
    for (i, digit) in number.into_iter().enumerate() {
        m.store(array, index * DIGITS + i, digit);
    }
}

/// A public number.
pub(crate) fn constant<M: Machine>(m: &mut M, digits: [u64; DIGITS]) -> Number<M::V> {
    digits.map(|digit| m.splat(digit))
}

/// `yes` in the lanes of the mask, `no` in the others.
pub(crate) fn select<M: Machine>(m: &mut M, mask: M::M, yes: Number<M::V>, no: Number<M::V>) -> Number<M::V> {
    std::array::from_fn(|i| m.select(mask, yes[i], no[i]))
}

/// Digit `i` of p.
pub(crate) fn modulus(i: usize) -> u64 {
    match i {
        0 => MASK - 18,
        _ => MASK,
    }
}

/// Half of a product of two digits.
#[derive(Clone, Copy)]
enum Half {
    /// The lower 52 bits.
    Low,
    /// The other bits, which have half the weight of the next digit.
    High,
}

/// A product under construction: columns of all weights, `None` where nothing was added.
struct Sum<V> {
    product: Product<V>,
    columns: [Option<V>; 2 * DIGITS],
}

impl<V: Copy> Sum<V> {
    fn new<M: Machine<V = V>>(m: &mut M, product: Product<V>) -> Self {
        let mut columns = [None; 2 * DIGITS];
        if product.bias != 0 {
            // A column has 1 + 19 * 14 halves below 2^52 at most. By the end this is doubled, in a
            // square twice, and times 19: 608 p, of which each digit is 304 * 2^52, less a little.
            let factor = product.bias * if product.b.is_some() { 16 } else { 8 };
            for (i, column) in columns[DIGITS..].iter_mut().enumerate() {
                *column = Some(m.splat(factor * modulus(i)));
            }
        }
        Self { product, columns }
    }

    fn accumulate<M: Machine<V = V>>(&mut self, m: &mut M, half: Half, i: usize, j: usize) {
        let (a, b) = (self.product.a[i], self.product.b.unwrap_or(self.product.a)[j]);
        let column = match half {
            Half::Low => &mut self.columns[i + j],
            Half::High => &mut self.columns[i + j + 1],
        };
        let sum = column.unwrap_or_else(|| m.splat(0));
        *column = Some(match half {
            Half::Low => m.madd_lo(sum, a, b),
            Half::High => m.madd_hi(sum, a, b),
        });
    }

    fn double<M: Machine<V = V>>(&mut self, m: &mut M) {
        for column in self.columns.iter_mut().flatten() {
            *column = m.add(*column, *column);
        }
    }

    /// The columns from 2^255 on, times 19, to those below.
    fn fold<M: Machine<V = V>>(self, m: &mut M) -> Number<V> {
        let (low, high) = self.columns.split_at(DIGITS);
        std::array::from_fn(|i| {
            let mut sum = low[i].expect("every product has terms in column i");
            if let Some(high) = high[i] {
                // 19 = 16 + 2 + 1.
                let twice = m.add(high, high);
                let thrice = m.add(twice, high);
                let sixteen = m.shl(high, 4);
                sum = m.add(sum, thrice);
                sum = m.add(sum, sixteen);
            }
            sum
        })
    }
}

/// Range of second digits that each first digit is multiplied with.
type Terms = fn(usize) -> Range<usize>;

fn all(_: usize) -> Range<usize> {
    0..DIGITS
}

fn unlike(i: usize) -> Range<usize> {
    i + 1..DIGITS
}

fn like(i: usize) -> Range<usize> {
    i..i + 1
}

fn none(_: usize) -> Range<usize> {
    0..0
}

/// Adds one half of those products of digits, digit by digit of all.
fn multiply<M: Machine, const N: usize>(
    m: &mut M,
    sums: &mut [Sum<M::V>; N],
    half: Half,
    of_products: Terms,
    of_squares: Terms,
) {
    for i in 0..DIGITS {
        for sum in sums.iter_mut() {
            let terms = match sum.product.b {
                Some(_) => of_products,
                None => of_squares,
            };
            for j in terms(i) {
                sum.accumulate(m, half, i, j);
            }
        }
    }
}

/// A digit without its spare bit.
const MASK: u64 = (1 << BITS) - 1;
