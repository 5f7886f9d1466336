//! The kernels by name: their arrays, their bounds, and what can be done with them.

use crate::allocate::{Allocated, allocate};
use crate::analysis::Report;
use crate::bounds::{Bounds, BoundsError, Proof};
use crate::convert::{to_digits, to_limbs};
use crate::machine::{Array, DIGIT_BITS, Machine};
use crate::model::Model;
use crate::montgomery::{BLOCK, Lookup, product, propagate, reduce, square, subtract};
use crate::print::{Width, print};
use crate::schedule::schedule;
use crate::trace::Trace;

/// A kernel: straight code for one operation on numbers of one size.
///
/// `d` is the number of 52-bit digits. `R := 2^(52 d)`, `n` is odd and `4 n < R`,
/// `k0 := -1/n mod 2^52`, which follows `n` as its last vector where the array has `d + 1`. Arrays
/// do not overlap, and are listed with those first that the kernel writes. All values are secret,
/// in every lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
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

/// One of a kernel's arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArraySpec {
    /// Its name in the kernel's formula.
    pub name: &'static str,
    /// Vectors.
    pub len: usize,
    /// Every lane is below 2^`bits`: promised by the caller where the kernel reads, kept by the
    /// kernel where it writes.
    pub bits: u32,
    /// Whether the kernel writes it.
    pub written: bool,
}

impl Kernel {
    /// Bits of the windows in which exponents are read. With four, a table has 16 entries; 32 would
    /// save a thirtieth of the multiplications, and take up twice the cache.
    pub const WINDOW_BITS: usize = 4;

    /// Every kernel of the library. Those that an exponentiation runs all the time are neighbours.
    pub fn all() -> Vec<Kernel> {
        let mut all = Vec::new();
        // RSA-2048, 3072 and 4096: primes of 1024, 1536 and 2048 bits.
        for digits in [20, 30, 40] {
            let limbs = digits / 10 * 8;
            all.extend([
                Kernel::Amm(digits),
                Kernel::Ams(digits),
                Kernel::Select {
                    digits,
                    entries: 1 << Self::WINDOW_BITS,
                },
                Kernel::Redc(digits),
                Kernel::Subtract(digits),
                Kernel::MulAdd(digits),
                Kernel::ToDigits {
                    digits: 2 * digits,
                    limbs: 2 * limbs,
                },
                Kernel::ToLimbs {
                    digits: 2 * digits,
                    limbs: 2 * limbs,
                },
            ]);
        }
        all
    }

    /// Operation and shape, for example `amm52x20`.
    pub fn name(self) -> String {
        match self {
            Kernel::Amm(d) => format!("amm52x{d}"),
            Kernel::Ams(d) => format!("ams52x{d}"),
            Kernel::Redc(d) => format!("redc52x{d}"),
            Kernel::Subtract(d) => format!("sub52x{d}"),
            Kernel::MulAdd(d) => format!("muladd52x{d}"),
            Kernel::Select { digits, entries } => format!("select52x{digits}of{entries}"),
            Kernel::ToDigits { digits, limbs } => format!("digits52x{digits}from64x{limbs}"),
            Kernel::ToLimbs { digits, limbs } => format!("limbs64x{limbs}from52x{digits}"),
        }
    }

    /// The symbol of the assembled kernel: its name and the number of its lanes.
    pub fn symbol(self, width: Width) -> String {
        format!("widelane_{}_mb{}", self.name(), width.lanes())
    }

    /// What the kernel computes, in one line.
    pub fn formula(self) -> &'static str {
        match self {
            Kernel::Amm(_) => "out := a b / 2^(52 d) mod n, in [0, 2 n)",
            Kernel::Ams(_) => "out := a^2 / 2^(52 d) mod n, in [0, 2 n)",
            Kernel::Redc(_) => "out := t / 2^(52 d) mod n, in [0, 2 n)",
            Kernel::Subtract(_) => "out := (a - b) mod n, in [0, n)",
            Kernel::MulAdd(_) => "out := a b + c",
            Kernel::Select { .. } => "out := table[index], every entry read",
            Kernel::ToDigits { .. } => "out := limbs, radix 2^64 to radix 2^52",
            Kernel::ToLimbs { .. } => "out := digits, radix 2^52 to radix 2^64",
        }
    }

    /// The kernel's arrays in the order of its argument list.
    pub fn arrays(self) -> Vec<ArraySpec> {
        let array = |name, len, bits| ArraySpec {
            name,
            len,
            bits,
            written: false,
        };
        let read = |name, len| array(name, len, DIGIT_BITS);
        let written = |name, len, bits| ArraySpec {
            written: true,
            ..array(name, len, bits)
        };
        let out = |len| written("out", len, DIGIT_BITS);
        match self {
            Kernel::Amm(d) => vec![out(d), read("a", d), read("b", d), read("n", d + 1)],
            Kernel::Ams(d) => vec![out(d), read("a", d), read("n", d + 1)],
            Kernel::Redc(d) => vec![out(d), read("t", 2 * d), read("n", d + 1)],
            Kernel::Subtract(d) => vec![out(d), read("a", d), read("b", d), read("n", d + 1)],
            Kernel::MulAdd(d) => vec![out(2 * d), read("a", d), read("b", d), read("c", d)],
            Kernel::Select { digits, entries } => {
                vec![
                    out(digits),
                    read("table", entries * digits),
                    array("index", 1, u64::BITS),
                ]
            }
            Kernel::ToDigits { digits, limbs } => {
                vec![out(digits), array("limbs", limbs, u64::BITS)]
            }
            Kernel::ToLimbs { digits, limbs } => {
                vec![written("out", limbs, u64::BITS), read("digits", digits)]
            }
        }
    }

    /// The kernel's source, for any machine.
    fn run<M: Machine>(self, m: &mut M) {
        match self {
            Kernel::Amm(d) => {
                let (a, b) = (load(m, 1, d), load(m, 2, d));
                let t = product(m, &a, &b);
                let (n, k0) = load_modulus(m, 3, d);
                let out = reduce(m, t, &n, k0);
                store(m, 0, &out);
            }
            Kernel::Ams(d) => {
                let a = load(m, 1, d);
                let t = square(m, &a);
                let (n, k0) = load_modulus(m, 2, d);
                let out = reduce(m, t, &n, k0);
                store(m, 0, &out);
            }
            Kernel::Redc(d) => {
                let t = load(m, 1, 2 * d);
                let (n, k0) = load_modulus(m, 2, d);
                let out = reduce(m, t, &n, k0);
                store(m, 0, &out);
            }
            Kernel::Subtract(d) => {
                let (a, b) = (load(m, 1, d), load(m, 2, d));
                let (n, _) = load_modulus(m, 3, d);
                let out = subtract(m, &a, &b, &n);
                store(m, 0, &out);
            }
            Kernel::MulAdd(d) => {
                let (a, b, c) = (load(m, 1, d), load(m, 2, d), load(m, 3, d));
                let mut t = product(m, &a, &b);
                for (t, &c) in t.iter_mut().zip(&c) {
                    *t = m.add(*t, c);
                }
                let out = propagate(m, &t, "a b + c is below 2^(104 d)");
                store(m, 0, &out);
            }
            Kernel::Select { digits, entries } => {
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
            Kernel::ToDigits { digits, limbs } => {
                let limbs = load(m, 1, limbs);
                let out = to_digits(m, &limbs, digits);
                store(m, 0, &out);
            }
            Kernel::ToLimbs { digits, limbs } => {
                let digits = load(m, 1, digits);
                let out = to_limbs(m, &digits, limbs);
                store(m, 0, &out);
            }
        }
    }

    /// Runs the kernel in portable Rust on `L` lanes: on the arrays that it writes and those that
    /// it only reads.
    ///
    /// # Panics
    ///
    /// If the arrays are not as [`arrays`](Self::arrays) says, or a claim of the source fails.
    pub fn model<const L: usize>(self, written: &mut [&mut [[u64; L]]], read: &[&[[u64; L]]]) {
        let arrays = self.arrays();
        let lens = written
            .iter()
            .map(|array| array.len())
            .chain(read.iter().map(|array| array.len()));
        assert!(
            lens.eq(arrays.iter().map(|spec| spec.len)),
            "{} has other arrays",
            self.name()
        );
        self.run(&mut Model::new(written, read));
    }

    /// Proves that no lane overflows and that every array keeps its bound.
    pub fn prove(self) -> Result<Proof, BoundsError> {
        let arrays = self.arrays();
        let lens: Vec<_> = arrays.iter().map(|spec| spec.len).collect();
        let bits: Vec<_> = arrays.iter().map(|spec| spec.bits).collect();
        let mut machine = Bounds::new(&lens, &bits);
        self.run(&mut machine);
        machine.finish()
    }

    /// GNU assembly of the kernel (Intel syntax) for registers of `width`.
    ///
    /// The function has the System V calling convention and takes one pointer an array, in order,
    /// and last a pointer to as many vectors as [`Report::slots`] says, for intermediate values.
    pub fn assembly(self, width: Width) -> String {
        print(self, width, &self.allocated())
    }

    /// Instruction mix, licence level and port bound of the kernel.
    pub fn report(self, width: Width) -> Report {
        Report::new(width, &self.allocated())
    }

    fn allocated(self) -> Allocated {
        let mut trace = Trace::default();
        self.run(&mut trace);
        allocate(&schedule(&trace.ops))
    }
}

fn load<M: Machine>(m: &mut M, array: usize, len: usize) -> Vec<M::V> {
    (0..len).map(|i| m.load(Array(array), i)).collect()
}

/// `n` and `k0`.
fn load_modulus<M: Machine>(m: &mut M, array: usize, digits: usize) -> (Vec<M::V>, M::V) {
    (load(m, array, digits), m.load(Array(array), digits))
}

fn store<M: Machine>(m: &mut M, array: usize, values: &[M::V]) {
    for (i, &value) in values.iter().enumerate() {
        m.store(Array(array), i, value);
    }
}
