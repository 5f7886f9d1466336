//! Arithmetic modulo the primes of P-256 and P-384 and modulo the orders of these curves.
//!
//! A number is 5 or 8 digits in radix 2^52, in Montgomery form with `R := 2^260` or `2^416`. It is
//! redundant: below some multiple of the modulus. That multiple is computed here beside the
//! operations, exactly, when the kernel is built. Sums and
//! differences are taken on columns, 64-bit lanes that may be negative and have not been carried;
//! carrying makes digits of them again, which only factors need to be.
//!
//! Montgomery's reduction ("Modular multiplication without trial division", Math. Comp. 44 (1985))
//! is done in the form that each modulus allows. Those of the fields are sums of few powers of two
//! (SP 800-186, appendix G.1), so that a quotient digit needs no multiplication, and its product
//! with the modulus few.

use crate::machine::{Array, DIGIT_BITS, DIGIT_MASK, Machine};

/// A modulus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Modulus {
    /// `2^256 - 2^224 + 2^192 + 2^96 - 1`, the prime of P-256.
    P256,
    /// The order of P-256.
    N256,
    /// `2^384 - 2^128 - 2^96 + 2^32 - 1`, the prime of P-384.
    P384,
    /// The order of P-384.
    N384,
}

impl Modulus {
    /// Digits of a number.
    pub(super) fn len(self) -> usize {
        match self {
            Modulus::P256 | Modulus::N256 => 5,
            Modulus::P384 | Modulus::N384 => 8,
        }
    }

    /// The modulus itself, least significant digit first.
    pub(super) fn digits(self) -> Vec<u64> {
        from_hex(
            match self {
                Modulus::P256 => P256,
                Modulus::N256 => N256,
                Modulus::P384 => P384,
                Modulus::N384 => N384,
            },
            self.len(),
        )
    }

    /// `factor` times the modulus; its highest digit may be wider than the others.
    fn multiple(self, factor: u64) -> Vec<u64> {
        let mut carry = 0;
        let mut digits: Vec<u64> = Vec::new();
        for digit in self.digits() {
            let product = u128::from(digit) * u128::from(factor) + carry;
            digits.push(product as u64 & DIGIT_MASK);
            carry = product >> DIGIT_BITS;
        }
        let top = digits.len() - 1;
        digits[top] += (carry as u64) << DIGIT_BITS;
        digits
    }

    /// `value 2^bits` modulo this.
    pub(super) fn shifted(self, value: &[u64], bits: usize) -> Vec<u64> {
        let modulus = self.digits();
        let mut x = value.to_vec();
        for _ in 0..bits {
            let mut carry = 0;
            for digit in &mut x {
                let twice = *digit << 1 | carry;
                *digit = twice & DIGIT_MASK;
                carry = twice >> DIGIT_BITS;
            }
            if !less(&x, &modulus) {
                let mut borrow = 0;
                for (digit, &m) in x.iter_mut().zip(&modulus) {
                    let difference = digit.wrapping_sub(m).wrapping_sub(borrow);
                    *digit = difference & DIGIT_MASK;
                    borrow = difference >> 63;
                }
            }
        }
        x
    }

    /// `R^power` modulo this, for a power of 1 or 2.
    pub(super) fn power_of_r(self, power: usize) -> Vec<u64> {
        let mut one = vec![0; self.len()];
        one[0] = 1;
        self.shifted(&one, DIGIT_BITS as usize * self.len() * power)
    }

    /// The largest power of two that `R` exceeds this modulus by, as a number of bits.
    fn room(self) -> u32 {
        match self {
            Modulus::P256 | Modulus::N256 => 4,
            Modulus::P384 | Modulus::N384 => 32,
        }
    }

    /// `-1/modulus mod 2^52`.
    fn k0(self) -> u64 {
        let n = self.digits()[0];
        let newton = |x: u64, _| x.wrapping_mul(2u64.wrapping_sub(n.wrapping_mul(x)));
        (0..5).fold(n, newton).wrapping_neg() & DIGIT_MASK
    }
}

/// Digits below 2^52 of a number below `below / UNIT` times the modulus.
#[derive(Clone, Debug)]
pub(super) struct Number<V> {
    pub(super) digits: Vec<V>,
    pub(super) below: i64,
}

/// Columns, one a digit, of a number between `low / UNIT` and `high / UNIT` times the modulus.
#[derive(Clone, Debug)]
pub(super) struct Columns<V> {
    columns: Vec<V>,
    low: i64,
    high: i64,
}

/// Columns of a product, two a digit, of a number between `low / UNIT` and `high / UNIT` times the
/// modulus times `R`.
#[derive(Clone, Debug)]
pub(super) struct Wide<V> {
    columns: Vec<V>,
    low: i64,
    high: i64,
}

/// The unit of a number's bounds: a 2^16th of the modulus.
pub(super) const UNIT: i64 = 1 << 16;

/// A modulus and two factors; the same factor twice is a square.
pub(super) type Factors<'a, V> = (Modulus, &'a Number<V>, &'a Number<V>);

impl<V: Copy> Number<V> {
    /// The number whose `digits` digits begin at vector `at` of an array.
    pub(super) fn load<M: Machine<V = V>>(m: &mut M, array: Array, at: usize, digits: usize, below: i64) -> Self {
        Self {
            digits: (at..at + digits).map(|i| m.load(array, i)).collect(),
            below,
        }
    }

    pub(super) fn store<M: Machine<V = V>>(&self, m: &mut M, array: Array, at: usize) {
        for (i, &digit) in self.digits.iter().enumerate() {
            m.store(array, at + i, digit);
        }
    }

    /// The number, or its negative in the lanes of the mask.
    pub(super) fn negate<M: Machine<V = V>>(&self, m: &mut M, modulus: Modulus, mask: M::M) -> Self {
        let factor = multiples(self.below);
        let multiple = modulus.multiple(u64::try_from(factor).expect("it is positive"));
        let columns = self.digits.iter().zip(multiple).map(|(&digit, multiple)| {
            let multiple = m.splat(multiple);
            let negative = m.sub(multiple, digit);
            m.select(mask, negative, digit)
        });
        let columns: Vec<_> = columns.collect();
        Self {
            digits: carry(m, &columns),
            below: factor * UNIT,
        }
    }

    /// Columns of the number's digits.
    pub(super) fn columns(&self) -> Columns<V> {
        Columns {
            columns: self.digits.clone(),
            low: 0,
            high: self.below,
        }
    }
}

impl<V: Copy> Columns<V> {
    pub(super) fn add<M: Machine<V = V>>(&self, m: &mut M, other: &Self) -> Self {
        Self {
            columns: each(&self.columns, &other.columns, |a, b| m.add(a, b)),
            low: self.low + other.low,
            high: self.high + other.high,
        }
    }

    pub(super) fn sub<M: Machine<V = V>>(&self, m: &mut M, other: &Self) -> Self {
        Self {
            columns: each(&self.columns, &other.columns, |a, b| m.sub(a, b)),
            low: self.low - other.high,
            high: self.high - other.low,
        }
    }

    /// Twice the number.
    pub(super) fn double<M: Machine<V = V>>(&self, m: &mut M) -> Self {
        self.add(m, self)
    }

    /// The number, or its negative in the lanes of the mask.
    pub(super) fn negate<M: Machine<V = V>>(&self, m: &mut M, mask: M::M) -> Self {
        let zero = m.splat(0);
        let columns = self.columns.iter().map(|&column| {
            let negative = m.sub(zero, column);
            m.select(mask, negative, column)
        });
        Self {
            columns: columns.collect(),
            low: self.low.min(-self.high),
            high: self.high.max(-self.low),
        }
    }

    /// Digits of the same number, or of one that differs by a multiple of the modulus if this may
    /// be negative.
    pub(super) fn carry<M: Machine<V = V>>(&self, m: &mut M, modulus: Modulus) -> Number<V> {
        let factor = multiples(-self.low);
        let columns = self.plus(m, modulus, factor);
        let below = self.high + factor * UNIT;
        assert!(
            below <= UNIT << modulus.room(),
            "a number of {modulus:?} does not fit its digits"
        );
        Number {
            digits: carry(m, &columns),
            below,
        }
    }

    /// Reduces the digits partly: the number differs by a multiple of the modulus and is below [`Modulus::settled`].
    ///
    /// For P-256 `R` is only 16 times the modulus: the bits above 2^256 say how many multiples to
    /// subtract. P-384 needs nothing.
    pub(super) fn settle<M: Machine<V = V>>(&self, m: &mut M, modulus: Modulus) -> Number<V> {
        if modulus != Modulus::P256 {
            return self.carry(m, modulus);
        }
        // One multiple more than needed, so that the highest column is positive even without the
        // carries from the others.
        let factor = multiples(-self.low) + 1;
        assert!(self.high + factor * UNIT < 250 * UNIT);
        let mut c = self.plus(m, modulus, factor);
        let excess = m.sra(c[4], 48);
        let why = "the number is between p and 250 p, and all but its highest column below 2^222";
        let excess = m.claim(excess, 8, why);
        // Less `excess` times the prime.
        let shifted = |m: &mut M, bits| m.shl(excess, bits);
        let (s16, s36, s44, s48) = (shifted(m, 16), shifted(m, 36), shifted(m, 44), shifted(m, 48));
        c[0] = m.add(c[0], excess);
        c[1] = m.sub(c[1], s44);
        c[3] = m.sub(c[3], s36);
        c[4] = m.add(c[4], s16);
        c[4] = m.sub(c[4], s48);
        Number {
            digits: carry(m, &c),
            // Below 2^256 + 250 (2^256 - p) and a little.
            below: UNIT + UNIT / 64,
        }
    }

    fn plus<M: Machine<V = V>>(&self, m: &mut M, modulus: Modulus, factor: i64) -> Vec<V> {
        let factor = u64::try_from(factor).expect("a multiple is not negative");
        let multiple = modulus.multiple(factor);
        let mut columns = self.columns.clone();
        for (column, digit) in columns.iter_mut().zip(multiple) {
            if digit != 0 {
                let digit = m.splat(digit);
                *column = m.add(*column, digit);
            }
        }
        columns
    }
}

impl<V: Copy> Wide<V> {
    /// `self - 2^bits other`.
    pub(super) fn sub_shifted<M: Machine<V = V>>(&self, m: &mut M, other: &Self, bits: u32) -> Self {
        Self {
            columns: each(&self.columns, &other.columns, |a, b| {
                let b = if bits == 0 { b } else { m.shl(b, bits) };
                m.sub(a, b)
            }),
            low: self.low - (other.high << bits),
            high: self.high - (other.low << bits),
        }
    }

    /// The number itself, as if it were a product.
    pub(super) fn from_number<M: Machine<V = V>>(m: &mut M, number: &Number<V>) -> Self {
        let zero = m.splat(0);
        let mut columns = number.digits.clone();
        columns.resize(2 * number.digits.len(), zero);
        Self {
            columns,
            low: 0,
            high: 1 + (number.below >> 4),
        }
    }
}

/// Products, reduced. The products are independent and their rows alternate, so that no row waits
/// for the one before it. Few registers hold the columns of one product at a time.
pub(super) fn products<M: Machine>(m: &mut M, factors: &[Factors<'_, M::V>]) -> Vec<Columns<M::V>> {
    if m.has_few_registers() && factors.len() > 1 {
        let each = factors.chunks(1).flat_map(|factors| products(m, factors));
        return each.collect();
    }
    let wide = wides(m, factors);
    let moduli: Vec<_> = factors.iter().map(|&(modulus, ..)| modulus).collect();
    reduce(m, &moduli, wide)
}

/// Products, not reduced.
pub(super) fn wides<M: Machine>(m: &mut M, factors: &[Factors<'_, M::V>]) -> Vec<Wide<M::V>> {
    let mut products: Vec<_> = factors.iter().map(|f| Product::new(m, f)).collect();
    if m.has_few_registers() {
        for product in &mut products {
            product.columns(m);
        }
        return products.into_iter().map(|p| p.finish(m)).collect();
    }
    let rows = factors.iter().map(|f| f.0.len()).max().unwrap_or(0);
    for row in 0..rows {
        for product in &mut products {
            product.row(m, row);
        }
    }
    products.into_iter().map(|p| p.finish(m)).collect()
}

/// Montgomery's reduction, `wide / R` modulo each its own modulus: between `low` and `high + 1`
/// times it.
pub(super) fn reduce<M: Machine>(m: &mut M, moduli: &[Modulus], mut wide: Vec<Wide<M::V>>) -> Vec<Columns<M::V>> {
    // For P-384, the terms to subtract.
    let mut less: Vec<_> = wide.iter().map(|w| vec![None; w.columns.len() + 3]).collect();
    let rows = moduli.iter().map(|modulus| modulus.len()).max();
    for row in 0..rows.unwrap_or(0) {
        for ((&modulus, wide), less) in moduli.iter().zip(&mut wide).zip(&mut less) {
            if row < modulus.len() {
                reduce_row(m, modulus, &mut wide.columns, less, row);
            }
        }
    }
    let finish = |(wide, less): (Wide<M::V>, Vec<Option<M::V>>)| {
        let d = wide.columns.len() / 2;
        Columns {
            columns: taken(m, &wide.columns[d..], &less[d..]),
            low: wide.low,
            high: wide.high + UNIT,
        }
    };
    wide.into_iter().zip(less).map(finish).collect()
}

/// One digit of that reduction: columns, one more than the modulus has digits, divided by 2^52
/// modulo it. Less than the modulus is added.
pub(super) fn reduce_digit<M: Machine>(m: &mut M, modulus: Modulus, mut columns: Vec<M::V>) -> Vec<M::V> {
    let mut less = vec![None; columns.len()];
    reduce_row(m, modulus, &mut columns, &mut less, 0);
    taken(m, &columns[1..], &less[1..])
}

/// The number itself, canonical and out of Montgomery form: in `[0, modulus)`.
pub(super) fn leave<M: Machine>(m: &mut M, modulus: Modulus, a: &Number<M::V>) -> Vec<M::V> {
    let wide = Wide::from_number(m, a);
    // Below the modulus and a fraction: at most the modulus, as its only multiple above 0.
    let reduced = reduce(m, &[modulus], vec![wide]).remove(0);
    assert!(reduced.low >= 0 && reduced.high < 2 * UNIT);
    let digits = reduced.carry(m, modulus).digits;
    subtract_once(m, modulus, &digits)
}

/// `digits` less the modulus where they are not below it.
pub(super) fn subtract_once<M: Machine>(m: &mut M, modulus: Modulus, digits: &[M::V]) -> Vec<M::V> {
    let ones = m.splat(DIGIT_MASK);
    let mut borrow = None;
    let mut less = Vec::with_capacity(digits.len());
    for (&digit, n) in digits.iter().zip(modulus.digits()) {
        let n = m.splat(n);
        let mut column = m.sub(digit, n);
        if let Some(borrow) = borrow {
            column = m.add(column, borrow);
        }
        borrow = Some(m.sra(column, DIGIT_BITS));
        less.push(m.and(column, ones));
    }
    // The sign is 0 where the digits were large enough.
    let sign = borrow.expect("a modulus has digits");
    let zero = m.splat(0);
    let large = m.eq(sign, zero);
    each(&less, digits, |less, same| m.select(large, less, same))
}

/// A public constant.
pub(super) fn constant<M: Machine>(m: &mut M, digits: &[u64]) -> Number<M::V> {
    Number {
        digits: digits.iter().map(|&digit| m.splat(digit)).collect(),
        below: UNIT,
    }
}

/// A product under construction, by rows.
enum Product<'a, V> {
    /// Low and high halves apart, so that no column waits long for itself.
    Of {
        a: &'a Number<V>,
        b: &'a Number<V>,
        low: Vec<V>,
        high: Vec<V>,
        bound: i64,
    },
    /// Products of unlike digits, which count twice, and squares.
    Square {
        a: &'a Number<V>,
        unlike: Vec<V>,
        squares: Vec<V>,
        bound: i64,
    },
}

impl<'a, V: Copy> Product<'a, V> {
    fn new<M: Machine<V = V>>(m: &mut M, &(modulus, a, b): &Factors<'a, V>) -> Self {
        let zero = m.splat(0);
        let none = vec![zero; 2 * modulus.len()];
        let product = i128::from(a.below) * i128::from(b.below);
        let bound = (product >> (UNIT.trailing_zeros() + modulus.room())) + 1;
        let bound = i64::try_from(bound).expect("factors are small multiples of the modulus");
        if std::ptr::eq(a, b) {
            Product::Square {
                a,
                unlike: none.clone(),
                squares: none,
                bound,
            }
        } else {
            Product::Of {
                a,
                b,
                low: none.clone(),
                high: none,
                bound,
            }
        }
    }

    fn row<M: Machine<V = V>>(&mut self, m: &mut M, i: usize) {
        match self {
            Product::Of { a, b, low, high, .. } => {
                let Some(&x) = a.digits.get(i) else { return };
                for (j, &y) in b.digits.iter().enumerate() {
                    low[i + j] = m.madd_lo(low[i + j], x, y);
                    high[i + j + 1] = m.madd_hi(high[i + j + 1], x, y);
                }
            }
            Product::Square { a, unlike, squares, .. } => {
                let Some(&x) = a.digits.get(i) else { return };
                squares[2 * i] = m.madd_lo(squares[2 * i], x, x);
                squares[2 * i + 1] = m.madd_hi(squares[2 * i + 1], x, x);
                for (j, &y) in a.digits.iter().enumerate().skip(i + 1) {
                    unlike[i + j] = m.madd_lo(unlike[i + j], x, y);
                    unlike[i + j + 1] = m.madd_hi(unlike[i + j + 1], x, y);
                }
            }
        }
    }

    /// All rows, column by column: two columns are under construction at a time.
    fn columns<M: Machine<V = V>>(&mut self, m: &mut M) {
        let last = match self {
            Product::Of { low, .. } => low.len() - 1,
            Product::Square { unlike, .. } => unlike.len() - 1,
        };
        for k in 0..last {
            match self {
                Product::Of { a, b, low, high, .. } => {
                    let digits = a.digits.iter().enumerate().take(k + 1);
                    for (x, y) in digits.filter_map(|(i, &x)| Some((x, *b.digits.get(k - i)?))) {
                        let next = if k + 1 == last { &mut *high } else { &mut *low };
                        next[k + 1] = m.madd_hi(next[k + 1], x, y);
                        low[k] = m.madd_lo(low[k], x, y);
                    }
                }
                Product::Square { a, unlike, squares, .. } => {
                    let digits = a.digits.iter().enumerate().take(k.div_ceil(2));
                    for (x, y) in digits.filter_map(|(i, &x)| Some((x, *a.digits.get(k - i)?))) {
                        unlike[k] = m.madd_lo(unlike[k], x, y);
                        unlike[k + 1] = m.madd_hi(unlike[k + 1], x, y);
                    }
                    if k % 2 == 0 {
                        let x = a.digits[k / 2];
                        squares[k] = m.madd_lo(squares[k], x, x);
                        squares[k + 1] = m.madd_hi(squares[k + 1], x, x);
                    }
                }
            }
        }
    }

    fn finish<M: Machine<V = V>>(self, m: &mut M) -> Wide<V> {
        let (columns, high) = match self {
            Product::Of { low, high, bound, .. } => {
                let last = low.len() - 1;
                let column = |(k, (&low, &high)): (usize, (&V, &V))| match k {
                    0 => low,
                    k if k == last => high,
                    _ => m.add(low, high),
                };
                let columns = low.iter().zip(&high).enumerate().map(column);
                (columns.collect(), bound)
            }
            Product::Square {
                unlike, squares, bound, ..
            } => {
                let last = unlike.len() - 1;
                let column = |(k, (&unlike, &square)): (usize, (&V, &V))| {
                    if k == 0 || k == last {
                        return square;
                    }
                    let twice = m.add(unlike, unlike);
                    m.add(twice, square)
                };
                let columns = unlike.iter().zip(&squares).enumerate().map(column);
                (columns.collect(), bound)
            }
        };
        Wide { columns, low: 0, high }
    }
}

/// One row of the reduction: makes column `i` zero.
fn reduce_row<M: Machine>(m: &mut M, modulus: Modulus, t: &mut [M::V], less: &mut [Option<M::V>], i: usize) {
    match modulus {
        Modulus::P256 => row_p256(m, t, i),
        Modulus::P384 => row_p384(m, t, less, i),
        Modulus::N256 | Modulus::N384 => row_any(m, t, &modulus, i),
    }
}

/// Columns less the terms that a reduction has collected.
fn taken<M: Machine>(m: &mut M, columns: &[M::V], less: &[Option<M::V>]) -> Vec<M::V> {
    let pairs = columns.iter().zip(less);
    pairs.map(|(&t, &less)| less.map_or(t, |less| m.sub(t, less))).collect()
}

/// One row of the reduction modulo `2^256 - 2^224 + 2^192 + 2^96 - 1`, which is -1 modulo 2^52:
/// the column itself is the quotient digit `q`, and the term `-q` makes it zero.
fn row_p256<M: Machine>(m: &mut M, t: &mut [M::V], i: usize) {
    let ones = m.splat(DIGIT_MASK);
    let q = m.and(t[i], ones);
    let carry = m.sra(t[i], DIGIT_BITS);
    // q 2^96: the low half by shifts, as the next row waits for it.
    let low = m.shl(q, 44);
    let low = m.and(low, ones);
    t[i + 1] = m.add(t[i + 1], carry);
    t[i + 1] = m.add(t[i + 1], low);
    let c = m.splat(1 << 44);
    t[i + 2] = m.madd_hi(t[i + 2], q, c);
    // q 2^192
    let c = m.splat(1 << 36);
    t[i + 3] = m.madd_lo(t[i + 3], q, c);
    t[i + 4] = m.madd_hi(t[i + 4], q, c);
    // q (2^256 - 2^224)
    let c = m.splat((1 << 48) - (1 << 16));
    t[i + 4] = m.madd_lo(t[i + 4], q, c);
    t[i + 5] = m.madd_hi(t[i + 5], q, c);
}

/// One row of the reduction modulo `2^384 - 2^128 - 2^96 + 2^32 - 1`, which is `2^32 - 1` modulo
/// 2^52: the quotient digit is the column times `2^32 + 1`. `less` collects the terms to subtract.
fn row_p384<M: Machine>(m: &mut M, t: &mut [M::V], less: &mut [Option<M::V>], i: usize) {
    let ones = m.splat(DIGIT_MASK);
    let zero = m.splat(0);
    if let Some(less) = less[i] {
        t[i] = m.sub(t[i], less);
    }
    let shifted = m.shl(t[i], 32);
    let sum = m.add64(t[i], shifted);
    let q = m.and(sum, ones);
    // t[i] + lo((2^32 - 1) q) is a multiple of 2^52, so its carry is t[i] / 2^52 rounded up.
    let up = m.add(t[i], ones);
    let carry = m.sra(up, DIGIT_BITS);
    t[i + 1] = m.add(t[i + 1], carry);
    let c = m.splat((1 << 32) - 1);
    t[i + 1] = m.madd_hi(t[i + 1], q, c);
    let mut take = |m: &mut M, k: usize, high: bool, c: u64| {
        let c = m.splat(c);
        let sum = less[k].unwrap_or(zero);
        less[k] = Some(if high {
            m.madd_hi(sum, q, c)
        } else {
            m.madd_lo(sum, q, c)
        });
    };
    // q 2^96 and q 2^128
    take(m, i + 1, false, 1 << 44);
    take(m, i + 2, true, 1 << 44);
    take(m, i + 2, false, 1 << 24);
    take(m, i + 3, true, 1 << 24);
    // q 2^384
    let c = m.splat(1 << 20);
    t[i + 7] = m.madd_lo(t[i + 7], q, c);
    t[i + 8] = m.madd_hi(t[i + 8], q, c);
}

/// One row of the reduction modulo any odd number.
fn row_any<M: Machine>(m: &mut M, t: &mut [M::V], modulus: &Modulus, i: usize) {
    let ones = m.splat(DIGIT_MASK);
    let k0 = m.splat(modulus.k0());
    let q = m.mul_lo(t[i], k0);
    let up = m.add(t[i], ones);
    let carry = m.sra(up, DIGIT_BITS);
    t[i + 1] = m.add(t[i + 1], carry);
    for (j, digit) in modulus.digits().into_iter().enumerate() {
        let digit = m.splat(digit);
        if j > 0 {
            t[i + j] = m.madd_lo(t[i + j], q, digit);
        }
        t[i + j + 1] = m.madd_hi(t[i + j + 1], q, digit);
    }
}

/// Columns of a number in `[0, R)` to its digits.
pub(super) fn carry<M: Machine>(m: &mut M, columns: &[M::V]) -> Vec<M::V> {
    let ones = m.splat(DIGIT_MASK);
    let mut carry = None;
    let mut digits = Vec::with_capacity(columns.len());
    for (i, &column) in columns.iter().enumerate() {
        let column = match carry {
            Some(carry) => m.add(column, carry),
            None => column,
        };
        if i + 1 == columns.len() {
            let why = "the multiple of the modulus that it is below is counted, and fits R";
            digits.push(m.claim(column, DIGIT_BITS, why));
        } else {
            carry = Some(m.sra(column, DIGIT_BITS));
            digits.push(m.and(column, ones));
        }
    }
    digits
}

/// Multiples of the modulus that lift a number by `units` below zero to a positive one.
fn multiples(units: i64) -> i64 {
    if units > 0 { (units + UNIT - 1) / UNIT } else { 0 }
}

fn each<V: Copy>(a: &[V], b: &[V], mut f: impl FnMut(V, V) -> V) -> Vec<V> {
    a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect()
}

fn less(a: &[u64], b: &[u64]) -> bool {
    a.iter().rev().lt(b.iter().rev())
}

/// Hexadecimal digits to digits in radix 2^52.
pub(super) fn from_hex(text: &str, len: usize) -> Vec<u64> {
    // 52 bits are 13 hexadecimal digits.
    let text: Vec<char> = text.chars().filter(|c| *c != '_').collect();
    let parse = |digits: &[char]| {
        let digits: String = digits.iter().collect();
        u64::from_str_radix(&digits, 16).expect("constants are hexadecimal")
    };
    let mut digits: Vec<u64> = text.rchunks(13).map(parse).collect();
    assert!(digits.len() <= len);
    digits.resize(len, 0);
    digits
}

// SP 800-186, sections 3.2.1.3 and 3.2.1.4.
const P256: &str = "ffffffff_00000001_00000000_00000000_00000000_ffffffff_ffffffff_ffffffff";
const N256: &str = "ffffffff_00000000_ffffffff_ffffffff_bce6faad_a7179e84_f3b9cac2_fc632551";
const P384: &str = "ffffffff_ffffffff_ffffffff_ffffffff_ffffffff_ffffffff_ffffffff_fffffffe_\
                    ffffffff_00000000_00000000_ffffffff";
const N384: &str = "ffffffff_ffffffff_ffffffff_ffffffff_ffffffff_ffffffff_c7634d81_f4372ddf_\
                    581a0db2_48b0a77a_ecec196a_ccc52973";
