//! The kernels by name: their arrays, their bounds, and what can be done with them.

use crate::allocate::allocate;
use crate::analysis::Report;
use crate::bounds::{Bounds, BoundsError, Proof};
use crate::convert::{to_digits, to_limbs};
use crate::machine::{Array, DIGIT_BITS, Machine};
use crate::model::Model;
use crate::montgomery::{lookup, product, propagate, reduce, square, subtract};
use crate::print::{Width, print};
use crate::trace::Trace;

/// A kernel: one straight line of code for one operation on numbers of one size.
///
/// `d` is the number of 52-bit digits. `R := 2^(52 d)`, `n` is odd and `4 n < R`,
/// `k0 := -1/n mod 2^52`. The first array is written and never read, the others are read and never
/// written. All values are secret, in every lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// `out := a b / R mod n`, all in `[0, 2 n)`. Almost-Montgomery multiplication. Arrays
    /// `out[d] a[d] b[d] n[d] k0[1]`.
    Amm(usize),
    /// `out := a^2 / R mod n`, in `[0, 2 n)`. Arrays `out[d] a[d] n[d] k0[1]`.
    Ams(usize),
    /// `out := t / R mod n`, in `[0, 2 n)`, for `t < R n`. Arrays `out[d] t[2 d] n[d] k0[1]`.
    Redc(usize),
    /// `out := (a - b) mod n`, in `[0, n)`, for `a` and `b` in `[0, 2 n)`. Arrays
    /// `out[d] a[d] b[d] n[d]`.
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
    /// `out[d] := limbs[l]`, the same number in another radix, `l = ceil(d 52 / 64)` or what the
    /// number needs. Arrays `out[d] limbs[l]`.
    ToDigits {
        /// Digits written.
        digits: usize,
        /// 64-bit limbs read.
        limbs: usize,
    },
    /// The way back. Arrays `out[l] digits[d]`.
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
}

impl Kernel {
    /// Every kernel of the library.
    pub fn all() -> Vec<Kernel> {
        let mut all = Vec::new();
        // RSA-2048, 3072 and 4096: primes of 1024, 1536 and 2048 bits.
        for digits in [20, 30, 40] {
            let limbs = digits / 10 * 8;
            let entries = Self::table_entries(digits);
            all.extend([
                Kernel::Amm(digits),
                Kernel::Ams(digits),
                Kernel::Redc(digits),
                Kernel::Subtract(digits),
                Kernel::MulAdd(digits),
                Kernel::Select { digits, entries },
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

    /// Entries of the table from which an exponentiation of numbers of `digits` digits selects.
    ///
    /// 32 save a twentieth of the multiplications over 16, and cost more than that to read when
    /// the table no longer fits the first-level cache.
    pub fn table_entries(digits: usize) -> usize {
        if digits <= 20 { 32 } else { 16 }
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
        let out = |len, bits| ArraySpec {
            name: "out",
            len,
            bits,
        };
        let read = |name, len, bits| ArraySpec { name, len, bits };
        let digit = DIGIT_BITS;
        match self {
            Kernel::Amm(d) => vec![
                out(d, digit),
                read("a", d, digit),
                read("b", d, digit),
                read("n", d, digit),
                read("k0", 1, digit),
            ],
            Kernel::Ams(d) => vec![
                out(d, digit),
                read("a", d, digit),
                read("n", d, digit),
                read("k0", 1, digit),
            ],
            Kernel::Redc(d) => vec![
                out(d, digit),
                read("t", 2 * d, digit),
                read("n", d, digit),
                read("k0", 1, digit),
            ],
            Kernel::Subtract(d) => vec![
                out(d, digit),
                read("a", d, digit),
                read("b", d, digit),
                read("n", d, digit),
            ],
            Kernel::MulAdd(d) => vec![
                out(2 * d, digit),
                read("a", d, digit),
                read("b", d, digit),
                read("c", d, digit),
            ],
            Kernel::Select { digits, entries } => vec![
                out(digits, digit),
                read("table", entries * digits, digit),
                read("index", 1, 64),
            ],
            Kernel::ToDigits { digits, limbs } => {
                vec![out(digits, digit), read("limbs", limbs, 64)]
            }
            Kernel::ToLimbs { digits, limbs } => {
                vec![out(limbs, 64), read("digits", digits, digit)]
            }
        }
    }

    /// The kernel's source, for any machine.
    fn run<M: Machine>(self, m: &mut M) {
        let array = |m: &mut M, at: usize, len: usize| -> Vec<M::V> {
            (0..len).map(|i| m.load(Array(at), i)).collect()
        };
        let result = match self {
            Kernel::Amm(d) => {
                let (a, b, n) = (array(m, 1, d), array(m, 2, d), array(m, 3, d));
                let k0 = m.load(Array(4), 0);
                let t = product(m, &a, &b);
                reduce(m, t, &n, k0)
            }
            Kernel::Ams(d) => {
                let (a, n) = (array(m, 1, d), array(m, 2, d));
                let k0 = m.load(Array(3), 0);
                let t = square(m, &a);
                reduce(m, t, &n, k0)
            }
            Kernel::Redc(d) => {
                let (t, n) = (array(m, 1, 2 * d), array(m, 2, d));
                let k0 = m.load(Array(3), 0);
                reduce(m, t, &n, k0)
            }
            Kernel::Subtract(d) => {
                let (a, b, n) = (array(m, 1, d), array(m, 2, d), array(m, 3, d));
                subtract(m, &a, &b, &n)
            }
            Kernel::MulAdd(d) => {
                let (a, b, c) = (array(m, 1, d), array(m, 2, d), array(m, 3, d));
                let mut t = product(m, &a, &b);
                for (t, &c) in t.iter_mut().zip(&c) {
                    *t = m.add(*t, c);
                }
                propagate(m, &t, "a b + c is below 2^(104 d)")
            }
            Kernel::Select { digits, entries } => {
                let index = m.load(Array(2), 0);
                lookup(m, entries, digits, index, |m, e, i| {
                    m.load(Array(1), e * digits + i)
                })
            }
            Kernel::ToDigits { digits, limbs } => {
                let limbs = array(m, 1, limbs);
                to_digits(m, &limbs, digits)
            }
            Kernel::ToLimbs { digits, limbs } => {
                let digits = array(m, 1, digits);
                to_limbs(m, &digits, limbs)
            }
        };
        for (i, &value) in result.iter().enumerate() {
            m.store(Array(0), i, value);
        }
    }

    /// Runs the kernel in portable Rust on `L` lanes.
    ///
    /// # Panics
    ///
    /// If the arrays are not as [`arrays`](Self::arrays) says, or a claim of the source fails.
    pub fn model<const L: usize>(self, out: &mut [[u64; L]], inputs: &[&[[u64; L]]]) {
        let lens = std::iter::once(out.len()).chain(inputs.iter().map(|array| array.len()));
        let wanted = self.arrays().into_iter().map(|spec| spec.len);
        assert!(lens.eq(wanted), "{} has other arrays", self.name());
        self.run(&mut Model::new(out, inputs));
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

    fn allocated(self) -> crate::allocate::Allocated {
        let mut trace = Trace::default();
        self.run(&mut trace);
        allocate(&trace.ops)
    }
}
