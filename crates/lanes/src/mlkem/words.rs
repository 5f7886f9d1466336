//! Arithmetic modulo q = 3329 on the four signed 16-bit words of a lane.
//!
//! Products are Montgomery's with the radix 2^16 (Seiler, "Faster AVX2 optimized NTT multiplication
//! for Ring-LWE lattice cryptography", IACR ePrint 2018/039, section 2). Nothing is corrected after
//! additions, as `Bounds` proves that no word wraps.

use crate::machine::Machine;

/// The residues in `[0, q)`.
pub(super) fn canonical<M: Machine>(m: &mut M, x: M::V) -> M::V {
    let nearest = nearest(m, x);
    let sign = m.sra16(nearest, 15);
    let q = m.splat(EVERY_WORD * Q);
    let correction = m.and(sign, q);
    let residue = m.add16(nearest, correction);
    let mask = m.splat(EVERY_WORD * 0xfff);
    m.and(residue, mask)
}

/// The residues nearest to zero, by Barrett's quotient: `x 20159 / 2^26` is so near to `x / q`
/// that rounding gives the same, for every word `x`.
pub(super) fn nearest<M: Machine>(m: &mut M, x: M::V) -> M::V {
    let factor = m.splat(EVERY_WORD * ((1 << 26) / Q + 1));
    let half = m.splat(EVERY_WORD * (1 << 9));
    let high = m.mul_hi16(x, factor);
    let rounded = m.add16(high, half);
    let quotient = m.sra16(rounded, 10);
    let q = m.splat(EVERY_WORD * Q);
    let multiple = m.mul_lo16(quotient, q);
    m.sub16(x, multiple)
}

/// Four public factors, with their quotients for Montgomery's multiplication.
#[derive(Clone, Copy)]
pub(super) struct Factor {
    /// The factors modulo q, nearest to zero.
    pub(super) plain: u64,
    /// Factors times `1 / q`, modulo 2^16.
    pub(super) quotient: u64,
}

impl Factor {
    pub(super) fn new(values: [u64; 4]) -> Self {
        let pack = |word: &dyn Fn(u64) -> u16| {
            values
                .iter()
                .rev()
                .fold(0, |lane, &value| lane << 16 | u64::from(word(value)))
        };
        let nearest = |value: u64| {
            let residue = (value % Q) as u16;
            residue.wrapping_sub(if residue > Q as u16 / 2 { Q as u16 } else { 0 })
        };
        Self {
            plain: pack(&nearest),
            quotient: pack(&|value| nearest(value).wrapping_mul(Q_INVERSE)),
        }
    }
}

/// `x factor / 2^16` modulo q.
pub(super) fn multiply<M: Machine>(m: &mut M, x: M::V, factor: Factor) -> M::V {
    let (plain, quotient) = (m.splat(factor.plain), m.splat(factor.quotient));
    multiply_by(m, x, plain, quotient)
}

/// `x plain / 2^16` modulo q, `quotient = plain / q mod 2^16`.
pub(super) fn multiply_by<M: Machine>(m: &mut M, x: M::V, plain: M::V, quotient: M::V) -> M::V {
    let quotient = m.mul_lo16(x, quotient);
    let high = m.mul_hi16(x, plain);
    difference(m, high, quotient)
}

/// `a b / 2^16` modulo q.
pub(super) fn multiply_variables<M: Machine>(m: &mut M, a: M::V, b: M::V) -> M::V {
    let inverse = m.splat(EVERY_WORD * u64::from(Q_INVERSE));
    let low = m.mul_lo16(a, b);
    let quotient = m.mul_lo16(low, inverse);
    let high = m.mul_hi16(a, b);
    difference(m, high, quotient)
}

/// `high - floor(quotient q / 2^16)`: both products have the same low halves, which cancel.
pub(super) fn difference<M: Machine>(m: &mut M, high: M::V, quotient: M::V) -> M::V {
    let q = m.splat(EVERY_WORD * Q);
    let multiple = m.mul_hi16(quotient, q);
    m.sub16(high, multiple)
}

/// `-x` in the words of `mask`, `x` in the others.
pub(super) fn negate<M: Machine>(m: &mut M, x: M::V, mask: u64) -> M::V {
    let mask = m.splat(mask);
    let flipped = m.xor(x, mask);
    m.sub16(flipped, mask)
}

/// `base^exponent mod q`.
pub(super) fn power(base: u64, exponent: usize) -> u64 {
    let bits = (0..usize::BITS - exponent.leading_zeros()).rev();
    bits.fold(1, |power, bit| {
        let square = power * power % Q;
        match exponent >> bit & 1 {
            1 => square * base % Q,
            _ => square,
        }
    })
}

/// BitRev7 (section 4.3).
pub(super) fn reversed(index: usize) -> usize {
    (0..7).fold(0, |reversed, bit| reversed | (index >> bit & 1) << (6 - bit))
}

/// The modulus.
pub(super) const Q: u64 = 3329;
/// `1 / q mod 2^16`.
pub(super) const Q_INVERSE: u16 = 62209;
/// A primitive 256th root of unity modulo q.
pub(super) const ROOT: u64 = 17;

/// Vectors of a polynomial.
pub(super) const POLYNOMIAL: usize = 64;
/// Parts in which polynomials are multiplied.
pub(super) const PARTS: usize = 4;
/// Vectors of a part.
pub(super) const QUARTER: usize = POLYNOMIAL / PARTS;

pub(super) const EVERY_WORD: u64 = 0x0001_0001_0001_0001;
pub(super) const EVEN_WORDS: u64 = 0x0000_ffff_0000_ffff;
pub(super) const LOW_HALF: u64 = 0xffff_ffff;

// Functions of three bits.
/// `a ? b : c`.
pub(super) const CHOOSE: u8 = 0xca;
/// `a | (b & c)`.
pub(super) const OR_AND: u8 = 0xf8;
/// `a | (!b & c)`.
pub(super) const OR_AND_NOT: u8 = 0xf2;
/// `a | (b ^ c)`.
pub(super) const OR_XOR: u8 = 0xf6;
