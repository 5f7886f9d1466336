//! Kernels of Montgomery arithmetic: what exponentiations and RSA are made of.

use crate::bounds::Holds;
use crate::convert::{to_digits, to_limbs};
use crate::kernel::{ArraySpec, Source, load, store};
use crate::machine::{Array, DIGIT_BITS, Machine};
use crate::montgomery::{BLOCK, Lookup, product, propagate, reduce, square, subtract};

/// Montgomery arithmetic on numbers of one size.
///
/// `d` is the number of 52-bit digits. `R := 2^(52 d)`, `n` is odd and `4 n < R`,
/// `k0 := -1/n mod 2^52`, which follows `n` as its last vector where the array has `d + 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Modular {
    /// `out := a b / R mod n`, all in `[0, 2 n)`: almost-Montgomery multiplication. Arrays
    /// `out[d] a[d] b[d] n[d + 1]`.
    Amm(usize),
    /// `out := a^2 / R mod n`, in `[0, 2 n)`. Arrays `out[d] a[d] n[d + 1]`.
    Ams(usize),
    /// `out := t / R mod n`, in `[0, 2 n)`, for `t < R n`. Arrays `out[d] t[2 d] n[d + 1]`.
    Redc(usize),
    /// `out := (a - b) mod n`, in `[0, n)`, for `a` and `b` in `[0, 2 n)`. Arrays
    /// `out[d] a[d] b[d] n[d + 1]`.
    Subtract(usize),
    /// `out := a b + c`, for a sum below `R^2`. Arrays `out[2 d] a[d] b[d] c[d]`.
    MulAdd(usize),
    /// `out := table[index]` for each lane's own index, reading every entry. Arrays
    /// `out[d] table[entries d] index[1]`.
    Select {
        /// Digits of an entry.
        digits: usize,
        /// Entries of the table.
        entries: usize,
    },
    /// `out := limbs`, the same number in radix 2^52. Arrays `out[d] limbs[l]`.
    ToDigits {
        /// Digits written.
        digits: usize,
        /// 64-bit limbs read.
        limbs: usize,
    },
    /// `out := digits`, the same number in radix 2^64. Arrays `out[l] digits[d]`.
    ToLimbs {
        /// Digits read.
        digits: usize,
        /// 64-bit limbs written.
        limbs: usize,
    },
}

impl Modular {
    /// Bits of the windows in which exponents are read. With four, a table has 16 entries; 32 would
    /// save a thirtieth of the multiplications, and take up twice the cache.
    pub const WINDOW_BITS: usize = 4;

    /// Every kernel of the family. Those that an exponentiation runs all the time are neighbours.
    pub(crate) fn all() -> Vec<Modular> {
        let mut all = Vec::new();
        // RSA-2048, 3072 and 4096: primes of 1024, 1536 and 2048 bits.
        for digits in [20, 30, 40] {
            let limbs = digits / 10 * 8;
            all.extend([
                Modular::Amm(digits),
                Modular::Ams(digits),
                Modular::Select {
                    digits,
                    entries: 1 << Self::WINDOW_BITS,
                },
                Modular::Redc(digits),
                Modular::Subtract(digits),
                Modular::MulAdd(digits),
                Modular::ToDigits {
                    digits: 2 * digits,
                    limbs: 2 * limbs,
                },
                Modular::ToLimbs {
                    digits: 2 * digits,
                    limbs: 2 * limbs,
                },
            ]);
        }
        all
    }
}

impl Source for Modular {
    fn name(self) -> String {
        match self {
            Modular::Amm(d) => format!("amm52x{d}"),
            Modular::Ams(d) => format!("ams52x{d}"),
            Modular::Redc(d) => format!("redc52x{d}"),
            Modular::Subtract(d) => format!("sub52x{d}"),
            Modular::MulAdd(d) => format!("muladd52x{d}"),
            Modular::Select { digits, entries } => format!("select52x{digits}of{entries}"),
            Modular::ToDigits { digits, limbs } => format!("digits52x{digits}from64x{limbs}"),
            Modular::ToLimbs { digits, limbs } => format!("limbs64x{limbs}from52x{digits}"),
        }
    }

    fn formula(self) -> &'static str {
        match self {
            Modular::Amm(_) => "out := a b / 2^(52 d) mod n, in [0, 2 n)",
            Modular::Ams(_) => "out := a^2 / 2^(52 d) mod n, in [0, 2 n)",
            Modular::Redc(_) => "out := t / 2^(52 d) mod n, in [0, 2 n)",
            Modular::Subtract(_) => "out := (a - b) mod n, in [0, n)",
            Modular::MulAdd(_) => "out := a b + c",
            Modular::Select { .. } => "out := table[index], every entry read",
            Modular::ToDigits { .. } => "out := limbs, radix 2^64 to radix 2^52",
            Modular::ToLimbs { .. } => "out := digits, radix 2^52 to radix 2^64",
        }
    }

    fn arrays(self, _: usize) -> Vec<ArraySpec> {
        let read = |name, len| ArraySpec::read(name, len, DIGITS);
        let out = |len| ArraySpec::written("out", len, DIGITS);
        match self {
            Modular::Amm(d) => vec![out(d), read("a", d), read("b", d), read("n", d + 1)],
            Modular::Ams(d) => vec![out(d), read("a", d), read("n", d + 1)],
            Modular::Redc(d) => vec![out(d), read("t", 2 * d), read("n", d + 1)],
            Modular::Subtract(d) => vec![out(d), read("a", d), read("b", d), read("n", d + 1)],
            Modular::MulAdd(d) => vec![out(2 * d), read("a", d), read("b", d), read("c", d)],
            Modular::Select { digits, entries } => {
                vec![
                    out(digits),
                    read("table", entries * digits),
                    ArraySpec::read("index", 1, LIMBS),
                ]
            }
            Modular::ToDigits { digits, limbs } => {
                vec![out(digits), ArraySpec::read("limbs", limbs, LIMBS)]
            }
            Modular::ToLimbs { digits, limbs } => {
                vec![
                    ArraySpec::written("out", limbs, LIMBS),
                    read("digits", digits),
                ]
            }
        }
    }

    fn run<M: Machine>(self, m: &mut M) {
        match self {
            Modular::Amm(d) => {
                let (a, b) = (load(m, 1, d), load(m, 2, d));
                let t = product(m, &a, &b);
                let (n, k0) = load_modulus(m, 3, d);
                let out = reduce(m, t, &n, k0);
                store(m, 0, &out);
            }
            Modular::Ams(d) => {
                let a = load(m, 1, d);
                let t = square(m, &a);
                let (n, k0) = load_modulus(m, 2, d);
                let out = reduce(m, t, &n, k0);
                store(m, 0, &out);
            }
            Modular::Redc(d) => {
                let t = load(m, 1, 2 * d);
                let (n, k0) = load_modulus(m, 2, d);
                let out = reduce(m, t, &n, k0);
                store(m, 0, &out);
            }
            Modular::Subtract(d) => {
                let (a, b) = (load(m, 1, d), load(m, 2, d));
                let (n, _) = load_modulus(m, 3, d);
                let out = subtract(m, &a, &b, &n);
                store(m, 0, &out);
            }
            Modular::MulAdd(d) => {
                let (a, b, c) = (load(m, 1, d), load(m, 2, d), load(m, 3, d));
                let mut t = product(m, &a, &b);
                for (t, &c) in t.iter_mut().zip(&c) {
                    *t = m.add(*t, c);
                }
                let out = propagate(m, &t, "a b + c is below 2^(104 d)");
                store(m, 0, &out);
            }
            Modular::Select { digits, entries } => {
                let index = m.load(Array(2), 0);
                let mut out = Vec::with_capacity(digits);
                // As many accumulators at a time as leave registers for the rest.
                for from in (0..digits).step_by(2 * BLOCK) {
                    let to = (from + 2 * BLOCK).min(digits);
                    let entry = |m: &mut M, e: usize| -> Vec<M::V> {
                        (from..to)
                            .map(|i| m.load(Array(1), e * digits + i))
                            .collect()
                    };
                    let first = entry(m, 0);
                    let mut lookup = Lookup::new(index, first);
                    while lookup.next() < entries {
                        let digits = entry(m, lookup.next());
                        lookup.step(m, &digits);
                    }
                    out.extend(lookup.finish());
                }
                store(m, 0, &out);
            }
            Modular::ToDigits { digits, limbs } => {
                let limbs = load(m, 1, limbs);
                let out = to_digits(m, &limbs, digits);
                store(m, 0, &out);
            }
            Modular::ToLimbs { digits, limbs } => {
                let digits = load(m, 1, digits);
                let out = to_limbs(m, &digits, limbs);
                store(m, 0, &out);
            }
        }
    }
}

/// `n` and `k0`.
fn load_modulus<M: Machine>(m: &mut M, array: usize, digits: usize) -> (Vec<M::V>, M::V) {
    (load(m, array, digits), m.load(Array(array), digits))
}

const DIGITS: Holds = Holds::Bits(DIGIT_BITS);
const LIMBS: Holds = Holds::Bits(u64::BITS);
