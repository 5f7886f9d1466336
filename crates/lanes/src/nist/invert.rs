//! Inversion by division steps: Bernstein and Yang, "Fast constant-time gcd computation and modular
//! inversion", TCHES 2019(3), in the variant that begins with `delta = 1/2`. One step takes
//! `(delta, f, g)` to `(1 - delta, g, (g - f) / 2)` where `delta > 0` and `g` is odd, and otherwise to
//! `(1 + delta, f, (g + f) / 2)` or `(1 + delta, f, g / 2)`, whichever is an integer. From `f`, the
//! modulus, and `g`, the number, it comes to `f = 1` or `-1` and `g = 0`.
//!
//! Which steps are taken depends on the lowest bits only. So [`STEPS`] of them are found from one
//! digit, as a matrix of small numbers, and then done at once to `f` and `g`, and to `a` and `b`,
//! which are `f / x` and `g / x` modulo the modulus, but for a power of two.

use super::curve::Curve;
use super::field::{Modulus, Number, UNIT, carry, constant, leave, reduce_digit};
use crate::machine::{Array, DIGIT_BITS, DIGIT_MASK, Machine};

/// Steps between two changes of the whole numbers: the entries of their matrix fit a digit.
const STEPS: u32 = BATCHES[0] + BATCHES[1] + BATCHES[2];
/// Steps on one word, which also holds a row of their matrix. Together they need no more than the 52
/// bits of a digit.
const BATCHES: [u32; 3] = [17, 17, 16];

impl Curve {
    /// Times that the matrix of some steps is found and used, so that `g` is zero in the end.
    ///
    /// Numbers of `b` bits need at most `(45907 b + 26313) / 19929` steps (Hvass, Aranha and
    /// Spitters, "High-assurance field inversion for curve-based cryptography", CSF 2023): 591 for
    /// 256 bits, 885 for 384.
    pub fn inversion_turns(self) -> usize {
        let steps = (45907 * 64 * self.limbs() + 26313) / 19929;
        steps.div_ceil(STEPS as usize)
    }
}

/// Vectors of a [`State`].
pub(super) fn state_len(curve: Curve) -> usize {
    4 * curve.digits() + 1
}

/// Variables that the steps change.
pub(super) struct State<V> {
    modulus: Modulus,
    /// Two's complement, with as many digits as the modulus.
    f: Vec<V>,
    g: Vec<V>,
    a: Number<V>,
    b: Number<V>,
    /// `-(delta + 1/2)`.
    zeta: V,
}

impl<V: Copy> State<V> {
    /// Makes the state before the first step, for a plain number below the modulus.
    pub(super) fn new<M: Machine<V = V>>(m: &mut M, curve: Curve, modulus: Modulus, x: Vec<V>) -> Self {
        // Each turn divides `f` and `g` by 2^50, but `a` and `b` by 2^52. The result is in
        // Montgomery form.
        let mut one = vec![0; modulus.len()];
        one[0] = 1;
        let factor = curve.inversion_turns() * (DIGIT_BITS - STEPS) as usize;
        let b = modulus.shifted(&one, DIGIT_BITS as usize * modulus.len() + factor);
        let zero = vec![0; modulus.len()];
        let (f, a, b) = (modulus.digits(), constant(m, &zero), constant(m, &b));
        let (zero, one) = (m.splat(0), m.splat(1));
        Self {
            modulus,
            f: constant(m, &f).digits,
            g: x,
            a,
            b,
            zeta: m.sub(zero, one),
        }
    }

    pub(super) fn load<M: Machine<V = V>>(m: &mut M, modulus: Modulus, array: Array, at: usize) -> Self {
        let d = modulus.len();
        let mut number = |i: usize| Number::load(m, array, at + i * d, d, BELOW);
        let [f, g, a, b] = [0, 1, 2, 3].map(&mut number);
        let zeta = m.load(array, at + 4 * d);
        let (zeta, lift) = (m.claim(zeta, ZETA_BITS, FEW_STEPS), m.splat(ZETA));
        Self {
            modulus,
            f: f.digits,
            g: g.digits,
            a,
            b,
            zeta: m.sub(zeta, lift),
        }
    }

    pub(super) fn store<M: Machine<V = V>>(&self, m: &mut M, array: Array, at: usize) {
        let digits = [&self.f, &self.g, &self.a.digits, &self.b.digits];
        for (i, &digit) in digits.into_iter().flatten().enumerate() {
            m.store(array, at + i, digit);
        }
        let lift = m.splat(ZETA);
        let zeta = m.add(self.zeta, lift);
        let zeta = m.claim(zeta, ZETA_BITS, FEW_STEPS);
        m.store(array, at + 4 * self.modulus.len(), zeta);
    }

    /// After the last step: `1/x` in Montgomery form, as `f` is 1 or -1; a multiple of the modulus
    /// if `x` is zero.
    pub(super) fn result<M: Machine<V = V>>(&self, m: &mut M) -> Number<V> {
        let sign = m.splat(1 << (DIGIT_BITS - 1));
        let negative = m.test(self.f[self.f.len() - 1], sign);
        self.a.negate(m, self.modulus, negative)
    }
}

/// [`STEPS`] steps of several inversions, which are independent and alternate.
pub(super) fn turn<M: Machine>(m: &mut M, states: &mut [State<M::V>]) {
    let mut lows: Vec<_> = states.iter().map(|s| [s.f[0], s.g[0]]).collect();
    let mut matrices: Vec<Option<Matrix<M::V>>> = vec![None; states.len()];
    let mut bits = DIGIT_BITS;
    for (batch, steps) in BATCHES.into_iter().enumerate() {
        let last = batch + 1 == BATCHES.len();
        let mut words: Vec<_> = lows.iter().map(|low| Words::new(m, low, steps)).collect();
        for _ in 0..steps {
            for (words, state) in words.iter_mut().zip(&mut *states) {
                words.step(m, &mut state.zeta);
            }
        }
        bits -= steps;
        for ((words, low), all) in words.iter().zip(&mut lows).zip(&mut matrices) {
            let matrix = words.matrix(m);
            if !last {
                *low = matrix.advance(m, low, steps, bits);
            }
            *all = Some(match all {
                None => matrix,
                Some(all) => matrix.after(m, all, if last { OFFSET } else { 0 }),
            });
        }
    }
    for (state, matrix) in states.iter_mut().zip(&matrices) {
        let matrix = matrix.as_ref().expect("there are several batches");
        state.exact(m, matrix);
        state.modular(m, matrix);
    }
}

/// Lowest bits of `f` and of `g`, and beside them the rows of the matrix of the steps done: `f + 2^20 u + 2^40 v` at
/// the end. The rows begin with one zero bit on their right for each step, so that they can be halved together with
/// `g`.
struct Words<V> {
    f: V,
    g: V,
}

impl<V: Copy> Words<V> {
    fn new<M: Machine<V = V>>(m: &mut M, &[f, g]: &[V; 2], steps: u32) -> Self {
        let low = m.splat((1 << steps) - 1);
        let mut word = |number, one: u32| {
            let low = m.and(number, low);
            let one = m.splat(1 << (one + steps));
            m.add(low, one)
        };
        Self {
            f: word(f, FIELD),
            g: word(g, 2 * FIELD),
        }
    }

    fn step<M: Machine<V = V>>(&mut self, m: &mut M, zeta: &mut V) {
        let Self { f, g } = *self;
        let (zero, one) = (m.splat(0), m.splat(1));
        // Masks of ones: where delta > 0, where g is odd, and where both.
        let positive = m.sra(*zeta, 63);
        let odd = m.and(g, one);
        let odd = m.sub(zero, odd);
        let swap = m.and(positive, odd);
        // f, or -f - 1, where g is odd: (f ^ positive) & odd
        let term = m.ternary(f, positive, odd, 0x28);
        let sum = m.add(g, term);
        let sum = m.sub(sum, swap);
        self.f = m.ternary(swap, g, f, 0xca);
        self.g = m.sra(sum, 1);
        // zeta - 1, or -zeta - 2
        let turned = m.xor(*zeta, swap);
        *zeta = m.sub(turned, one);
    }

    fn matrix<M: Machine<V = V>>(&self, m: &mut M) -> Matrix<V> {
        let mut row = |word| {
            let half = 1 << (FIELD - 1);
            let (lift, half) = (m.splat(half | half << FIELD), m.splat(half));
            let (field, digit) = (m.splat((1 << FIELD) - 1), m.splat(DIGIT_MASK));
            let lifted = m.add(word, lift);
            let left = m.sra(lifted, FIELD);
            let left = m.and(left, field);
            let left = m.sub(left, half);
            let right = m.sra(lifted, 2 * FIELD);
            [m.and(left, digit), m.and(right, digit)]
        };
        Matrix([row(self.f), row(self.g)])
    }
}

/// `(f, g)` after some steps is this times `(f, g)` before, divided by a power of two. The entries
/// are digits, of numbers modulo 2^52. The magnitudes in a row add up to that power at most.
#[derive(Clone, Copy)]
struct Matrix<V>([[V; 2]; 2]);

impl<V: Copy> Matrix<V> {
    /// The product with the matrix of earlier steps, `offset` added to each entry.
    fn after<M: Machine<V = V>>(&self, m: &mut M, earlier: &Self, offset: u64) -> Self {
        let (mask, offset) = (m.splat(DIGIT_MASK), m.splat(offset));
        Self(self.0.map(|[u, v]| {
            [0, 1].map(|column| {
                let sum = m.madd_lo(offset, u, earlier.0[0][column]);
                let sum = m.madd_lo(sum, v, earlier.0[1][column]);
                m.and(sum, mask)
            })
        }))
    }

    /// The lowest `bits` bits of `f` and `g` after `steps` steps.
    fn advance<M: Machine<V = V>>(&self, m: &mut M, low: &[V; 2], steps: u32, bits: u32) -> [V; 2] {
        let (zero, mask) = (m.splat(0), m.splat((1 << bits) - 1));
        self.0.map(|[u, v]| {
            let sum = m.madd_lo(zero, u, low[0]);
            let sum = m.madd_lo(sum, v, low[1]);
            let sum = m.shr(sum, steps);
            m.and(sum, mask)
        })
    }
}

/// Both take the matrix of [`STEPS`] steps with [`OFFSET`], by which its entries become digits:
/// `u f + v g` is `(u + 2^50) f + (v + 2^50) g - 2^50 (f + g)`.
impl<V: Copy> State<V> {
    /// `(f, g)` times the matrix, divided by 2^50 without a rest.
    fn exact<M: Machine<V = V>>(&mut self, m: &mut M, matrix: &Matrix<V>) {
        let d = self.f.len();
        let (zero, ones) = (m.splat(0), m.splat(DIGIT_MASK));
        // One digit more of each: its sign.
        let mut extended = |digits: &[V]| {
            let sign = m.shr(digits[d - 1], DIGIT_BITS - 1);
            let sign = m.sub(zero, sign);
            let sign = m.and(sign, ones);
            [digits, &[sign]].concat()
        };
        let (f, g) = (extended(&self.f), extended(&self.g));
        let sums: Vec<_> = (0..d).map(|i| m.add(f[i], g[i])).collect();
        let [f, g] = matrix.0.map(|[u, v]| {
            let mut columns = vec![zero; d + 2];
            for i in 0..=d {
                for (factor, digit) in [(u, f[i]), (v, g[i])] {
                    columns[i] = m.madd_lo(columns[i], factor, digit);
                    columns[i + 1] = m.madd_hi(columns[i + 1], factor, digit);
                }
            }
            // The lowest 50 bits of the lowest column are zero.
            let low = m.splat((1 << STEPS) - 1);
            let mut carry = None;
            let digits = (0..d).map(|i| {
                let own = m.shr(columns[i], STEPS);
                let next = m.and(columns[i + 1], low);
                let next = m.shl(next, DIGIT_BITS - STEPS);
                let column = m.add(own, next);
                let column = m.sub(column, sums[i]);
                let column = carry.map_or(column, |carry| m.add(column, carry));
                carry = Some(m.sra(column, DIGIT_BITS));
                m.and(column, ones)
            });
            digits.collect()
        });
        (self.f, self.g) = (f, g);
    }

    /// `(a, b)` times the matrix, divided by 2^52 modulo the modulus.
    ///
    /// Between 1/3 and 8/3 of the modulus, where `a` and `b` were below 8/3 of it: their multiples
    /// add up to 2/3 of it at most, the reduction adds less than one, and one is added here.
    fn modular<M: Machine<V = V>>(&mut self, m: &mut M, matrix: &Matrix<V>) {
        let d = self.modulus.len();
        let zero = m.splat(0);
        // 2^50 (a + b), less the modulus times 2^52
        let low = m.splat((1 << (DIGIT_BITS - STEPS)) - 1);
        let modulus = constant(m, &self.modulus.digits()).digits;
        let mut less = vec![zero; d + 1];
        for i in 0..d {
            let sum = m.add(self.a.digits[i], self.b.digits[i]);
            let own = m.and(sum, low);
            let own = m.shl(own, STEPS);
            less[i] = m.add(less[i], own);
            let next = m.shr(sum, DIGIT_BITS - STEPS);
            less[i + 1] = m.sub(next, modulus[i]);
        }
        let [a, b] = matrix.0.map(|[u, v]| {
            let mut columns = vec![zero; d + 1];
            for i in 0..d {
                for (factor, number) in [(u, &self.a), (v, &self.b)] {
                    let digit = number.digits[i];
                    columns[i] = m.madd_lo(columns[i], factor, digit);
                    columns[i + 1] = m.madd_hi(columns[i + 1], factor, digit);
                }
            }
            for (column, &less) in columns.iter_mut().zip(&less) {
                *column = m.sub(*column, less);
            }
            let columns = reduce_digit(m, self.modulus, columns);
            Number {
                digits: carry(m, &columns),
                below: BELOW,
            }
        });
        (self.a, self.b) = (a, b);
    }
}

/// The first bit of a field of [`Words`] in the end; the other begins at twice as many.
const FIELD: u32 = 20;
/// Makes the entries of a matrix of [`STEPS`] steps positive.
const OFFSET: u64 = 1 << STEPS;
/// Bound below which `a` and `b` are kept: a little more than 8/3.
const BELOW: i64 = 3 * UNIT - UNIT / 4;
/// Added to `zeta` in memory.
const ZETA: u64 = 1 << (ZETA_BITS - 1);
const ZETA_BITS: u32 = 11;
const FEW_STEPS: &str = "delta changes by one in a step, and there are fewer than 2^10 of them";

/// Starts an inversion: `x` modulo the prime, in Montgomery form, and modulo the order, plain.
pub(super) fn begin<M: Machine>(m: &mut M, curve: Curve, count: usize, state: Array, x: Array) {
    for (i, modulus) in moduli(curve, count).into_iter().enumerate() {
        let number = Number::load(m, x, i * curve.digits(), curve.digits(), 3 * UNIT);
        let plain = match i {
            0 => leave(m, modulus, &number),
            _ => number.digits,
        };
        State::new(m, curve, modulus, plain).store(m, state, i * state_len(curve));
    }
}

/// The moduli of an inversion that does several beside each other.
pub(super) fn moduli(curve: Curve, count: usize) -> Vec<Modulus> {
    [curve.prime(), curve.order()][..count].to_vec()
}
