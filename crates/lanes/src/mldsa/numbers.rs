//! Numbers modulo `q`, which are reduced only where a bound requires it.
//!
//! With 52 bits for a product of 23-bit numbers there is room to leave sums unreduced for several
//! layers of a transform. A multiplication by a constant `w` takes three multiply-adds: with
//! `w' := floor(2^52 w / q)` and `e := floor(b w' / 2^52)` the number `b w - e q` lies in `[0, q]`
//! for every `b` below 2^29 (Shoup's method; Harvey, "Faster arithmetic for number-theoretic
//! transforms", J. Symb. Comput. 60 (2014), section 3).

use crate::machine::{DIGIT_BITS, DIGIT_MASK, Machine};

/// The modulus.
pub(super) const Q: u64 = 8_380_417;
/// Coefficients of a polynomial.
pub(super) const N: usize = 256;
/// Coefficients on which most kernels work.
pub(super) const CHUNK: usize = 64;

/// A constant below `q`, and its quotient `floor(2^52 constant / q)`.
#[derive(Clone, Copy)]
pub(super) struct Constant<V> {
    pub(super) w: V,
    pub(super) quotient: V,
}

/// A number modulo `q` and its largest possible value.
#[derive(Clone, Copy)]
pub(super) struct Lazy<V> {
    pub(super) v: V,
    pub(super) most: u64,
}

impl<V: Copy> Lazy<V> {
    pub(super) fn new(v: V, most: u64) -> Self {
        Self { v, most }
    }

    /// The product with a constant, at most `q`.
    pub(super) fn times<M: Machine<V = V>>(self, m: &mut M, by: Constant<V>) -> Self {
        assert!(self.most <= WHOLE, "the product would not be whole");
        let (zero, q) = (m.splat(0), m.splat(Q));
        let quotient = m.madd_hi(zero, self.v, by.quotient);
        let product = m.madd_lo(zero, self.v, by.w);
        let multiple = m.madd_lo(zero, quotient, q);
        let rest = m.sub(product, multiple);
        let rest = m.claim(rest, Q_BITS, "the quotient is exact, or one too small for a rest of q");
        Self::new(rest, Q)
    }

    /// Reduces a number below 2^52 modulo `q`: the result is below `2 q`.
    pub(super) fn reduce<M: Machine<V = V>>(self, m: &mut M) -> Self {
        assert!(self.most <= DIGIT_MASK, "not a digit");
        let (zero, q) = (m.splat(0), m.splat(Q));
        let inverse = m.splat((1 << DIGIT_BITS) / Q);
        let quotient = m.madd_hi(zero, self.v, inverse);
        let multiple = m.madd_lo(zero, quotient, q);
        let rest = m.sub(self.v, multiple);
        let rest = m.claim(rest, REDUCED_BITS, "the quotient is exact or one too small");
        Self::new(rest, 2 * Q - 1)
    }

    /// Reduces the number if its product with a constant might not fit a digit.
    pub(super) fn for_product<M: Machine<V = V>>(self, m: &mut M) -> Self {
        match self.most > WHOLE {
            true => self.reduce(m),
            false => self,
        }
    }
}

pub(super) fn constant<M: Machine>(m: &mut M, w: u64) -> Constant<M::V> {
    Constant {
        w: m.splat(w),
        quotient: m.splat(quotient(w)),
    }
}

/// `zetas[i]`: 1753 to the power of `i` with its eight bits reversed (FIPS 204, appendix B).
pub(super) fn zeta(i: usize) -> u64 {
    power(1753, (i as u8).reverse_bits().into())
}

pub(super) fn inverse(x: u64) -> u64 {
    power(x, Q - 2)
}

pub(super) fn power(x: u64, exponent: u64) -> u64 {
    (0..64).rev().fold(1, |power, bit| {
        let square = power * power % Q;
        match exponent >> bit & 1 {
            1 => square * x % Q,
            _ => square,
        }
    })
}

/// `floor(2^52 w / q)` for `w` below `q`.
pub(super) fn quotient(w: u64) -> u64 {
    ((u128::from(w) << DIGIT_BITS) / u128::from(Q)) as u64
}

/// Bits of `q`.
pub(super) const Q_BITS: u32 = 23;
/// Bits of a number below `2 q`.
pub(super) const REDUCED_BITS: u32 = 24;
/// Bits of the input of a transform: a number below `q` in magnitude, plus `q`.
pub(super) const PLAIN_BITS: u32 = 24;
/// Bits of the output of a transform: each of its eight layers adds `q`.
pub(super) const NTT_BITS: u32 = 27;
// A product of a transformed and a reduced number fits a digit.
const _: () = assert!(NTT_BITS + REDUCED_BITS < DIGIT_BITS);
/// The product of `q` and a number up to here fits a digit.
pub(super) const WHOLE: u64 = DIGIT_MASK / Q;
pub(super) const AT_MOST_Q: &str = "a product with a constant is at most q";
