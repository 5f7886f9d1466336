//! Arithmetic modulo `L` numbers at once, each lane with a modulus of its own.

use widelane_cpu::{Avx512Ifma, Avx512IfmaVl};
use widelane_lanes::{Kernel, Width};

use crate::assembled::Callable;

/// The kernels for moduli of one size, in one width.
///
/// Numbers are arrays of [`digits`](Self::digits) vectors in radix 2^52, least significant digit
/// first; lane `l` of every array belongs to problem `l`. `R := 2^(52 digits)`; the number `a` in
/// Montgomery form is `a R mod n`. Unless said otherwise numbers are in `[0, 2 n)`, and every
/// modulus is odd and below `R / 4`.
///
/// Every method is constant time in all lanes' values, and panics when an array has another length
/// than it says.
#[derive(Clone, Copy, Debug)]
pub struct Montgomery<const L: usize> {
    digits: usize,
    window: usize,
    amm: Callable<L>,
    ams: Callable<L>,
    redc: Callable<L>,
    subtract: Callable<L>,
    mul_add: Callable<L>,
    select: Callable<L>,
    to_digits: Callable<L>,
    to_limbs: Callable<L>,
}

/// The moduli of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Moduli<'a, const L: usize> {
    /// `n`, `digits` vectors.
    pub n: &'a [[u64; L]],
    /// `-1/n mod 2^52`, one vector.
    pub k0: &'a [[u64; L]],
    /// `R mod n`, the number one in Montgomery form, `digits` vectors.
    pub one: &'a [[u64; L]],
}

/// Where [`Montgomery::power`] keeps its intermediate values.
#[derive(Debug)]
pub struct PowerSpace<'a, const L: usize> {
    /// [`Montgomery::table_len`] vectors.
    pub table: &'a mut [[u64; L]],
    /// `digits` vectors.
    pub entry: &'a mut [[u64; L]],
    /// `digits` vectors.
    pub other: &'a mut [[u64; L]],
}

/// Sizes of modulus that there are kernels for, in bits.
pub const MODULUS_BITS: [usize; 3] = [1024, 1536, 2048];

impl Montgomery<8> {
    /// Kernels for 512-bit registers and moduli of `bits` bits, one of [`MODULUS_BITS`].
    pub fn zmm(token: Avx512Ifma, bits: usize) -> Self {
        Self::new(bits, |kernel| Callable::zmm(token, kernel))
    }
}

impl Montgomery<4> {
    /// Kernels for 256-bit registers and moduli of `bits` bits, one of [`MODULUS_BITS`].
    pub fn ymm(token: Avx512IfmaVl, bits: usize) -> Self {
        Self::new(bits, |kernel| Callable::ymm(token, kernel))
    }
}

impl<const L: usize> Montgomery<L> {
    /// Kernels in portable Rust, for tests, and moduli of `bits` bits, one of [`MODULUS_BITS`].
    pub fn model(bits: usize) -> Self {
        Self::new(bits, Callable::model)
    }

    fn new(bits: usize, callable: impl Fn(Kernel) -> Callable<L>) -> Self {
        assert!(
            MODULUS_BITS.contains(&bits),
            "there are no kernels for {bits}-bit moduli"
        );
        let (digits, limbs) = (bits * 10 / 512, bits / 64);
        let entries = Kernel::table_entries(digits);
        Self {
            digits,
            window: entries.ilog2() as usize,
            amm: callable(Kernel::Amm(digits)),
            ams: callable(Kernel::Ams(digits)),
            redc: callable(Kernel::Redc(digits)),
            subtract: callable(Kernel::Subtract(digits)),
            mul_add: callable(Kernel::MulAdd(digits)),
            select: callable(Kernel::Select { digits, entries }),
            to_digits: callable(Kernel::ToDigits {
                digits: 2 * digits,
                limbs: 2 * limbs,
            }),
            to_limbs: callable(Kernel::ToLimbs {
                digits: 2 * digits,
                limbs: 2 * limbs,
            }),
        }
    }

    /// Digits of a number.
    pub fn digits(&self) -> usize {
        self.digits
    }

    /// 64-bit limbs of a modulus.
    pub fn limbs(&self) -> usize {
        self.digits / 10 * 8
    }

    /// Vectors of the table of [`power`](Self::power).
    pub fn table_len(&self) -> usize {
        self.digits << self.window
    }

    /// Vectors of scratch space that every method needs.
    pub fn scratch_len(&self) -> usize {
        let Self {
            amm,
            ams,
            redc,
            subtract,
            mul_add,
            select,
            to_digits,
            to_limbs,
            ..
        } = self;
        [
            amm, ams, redc, subtract, mul_add, select, to_digits, to_limbs,
        ]
        .map(Callable::slots)
        .into_iter()
        .max()
        .unwrap_or(0)
    }

    /// `out := a b / R mod n`.
    #[inline]
    pub fn mul(
        &self,
        out: &mut [[u64; L]],
        a: &[[u64; L]],
        b: &[[u64; L]],
        moduli: Moduli<'_, L>,
        scratch: &mut [[u64; L]],
    ) {
        self.amm.call(out, [a, b, moduli.n, moduli.k0], scratch);
    }

    /// `out := a^2 / R mod n`.
    #[inline]
    pub fn square(
        &self,
        out: &mut [[u64; L]],
        a: &[[u64; L]],
        moduli: Moduli<'_, L>,
        scratch: &mut [[u64; L]],
    ) {
        self.ams.call(out, [a, moduli.n, moduli.k0], scratch);
    }

    /// `out := t / R mod n` for `t` of twice as many digits, `t < R n`.
    pub fn reduce(
        &self,
        out: &mut [[u64; L]],
        t: &[[u64; L]],
        moduli: Moduli<'_, L>,
        scratch: &mut [[u64; L]],
    ) {
        self.redc.call(out, [t, moduli.n, moduli.k0], scratch);
    }

    /// `out := (a - b) mod n`, in `[0, n)`.
    pub fn subtract(
        &self,
        out: &mut [[u64; L]],
        a: &[[u64; L]],
        b: &[[u64; L]],
        moduli: Moduli<'_, L>,
        scratch: &mut [[u64; L]],
    ) {
        self.subtract.call(out, [a, b, moduli.n], scratch);
    }

    /// `out := a b + c`, of twice as many digits, for numbers below `R`.
    pub fn mul_add(
        &self,
        out: &mut [[u64; L]],
        a: &[[u64; L]],
        b: &[[u64; L]],
        c: &[[u64; L]],
        scratch: &mut [[u64; L]],
    ) {
        self.mul_add.call(out, [a, b, c], scratch);
    }

    /// `out := limbs`: numbers of `2 limbs` 64-bit limbs as `2 digits` digits.
    pub fn to_digits(&self, out: &mut [[u64; L]], limbs: &[[u64; L]], scratch: &mut [[u64; L]]) {
        self.to_digits.call(out, [limbs], scratch);
    }

    /// `out := digits`: numbers of `2 digits` digits as `2 limbs` 64-bit limbs.
    pub fn to_limbs(&self, out: &mut [[u64; L]], digits: &[[u64; L]], scratch: &mut [[u64; L]]) {
        self.to_limbs.call(out, [digits], scratch);
    }

    /// `out := base^exponent`, both in Montgomery form; `exponent` has [`limbs`](Self::limbs)
    /// vectors and is secret.
    ///
    /// Fixed windows from the left: as many squarings as the exponent's window has bits, then one
    /// multiplication by an entry of the table of powers, whichever it is (Menezes, van Oorschot,
    /// Vanstone, Handbook of Applied Cryptography, algorithm 14.109).
    pub fn power(
        &self,
        out: &mut [[u64; L]],
        base: &[[u64; L]],
        exponent: &[[u64; L]],
        moduli: Moduli<'_, L>,
        space: PowerSpace<'_, L>,
        scratch: &mut [[u64; L]],
    ) {
        let d = self.digits;
        let PowerSpace {
            table,
            entry,
            mut other,
        } = space;
        assert_eq!(exponent.len(), self.limbs());

        // Table: base^0, base^1, ...
        table[..d].copy_from_slice(moduli.one);
        table[d..2 * d].copy_from_slice(base);
        for i in 2..1 << self.window {
            let (known, rest) = table.split_at_mut(i * d);
            let half = &known[i / 2 * d..][..d];
            if i % 2 == 0 {
                self.square(&mut rest[..d], half, moduli, scratch);
            } else {
                self.mul(&mut rest[..d], &known[(i - 1) * d..], base, moduli, scratch);
            }
        }

        let bits = 64 * self.limbs();
        let mut at = (bits - 1) / self.window * self.window;
        let mut current = out;
        self.lookup(current, table, self.digit(exponent, at), scratch);
        let mut swapped = false;
        while at > 0 {
            at -= self.window;
            for _ in 0..self.window {
                self.square(other, current, moduli, scratch);
                std::mem::swap(&mut current, &mut other);
                swapped = !swapped;
            }
            self.lookup(entry, table, self.digit(exponent, at), scratch);
            self.mul(other, current, entry, moduli, scratch);
            std::mem::swap(&mut current, &mut other);
            swapped = !swapped;
        }
        if swapped {
            // The result lies in the space; `other` is the caller's array.
            other.copy_from_slice(current);
        }
    }

    /// Vector multiply-adds of one [`power`](Self::power), each on all lanes.
    pub fn power_multiply_adds(&self) -> usize {
        // Other than the code, their number does not depend on the width of registers.
        let of = |kernel: Kernel| kernel.report(Width::Zmm).multiply_adds;
        let windows = (64 * self.limbs() - 1) / self.window;
        let entries = (1 << self.window) - 2;
        let squares = windows * self.window + entries / 2;
        let products = windows + entries / 2;
        squares * of(Kernel::Ams(self.digits)) + products * of(Kernel::Amm(self.digits))
    }

    /// `out := table[index]` for each lane's own secret index; all entries are read.
    pub fn lookup(
        &self,
        out: &mut [[u64; L]],
        table: &[[u64; L]],
        index: [u64; L],
        scratch: &mut [[u64; L]],
    ) {
        self.select.call(out, [table, &[index]], scratch);
    }

    /// Each lane's window of the exponent at bit `at`.
    fn digit(&self, exponent: &[[u64; L]], at: usize) -> [u64; L] {
        let (limb, offset) = (at / 64, at % 64);
        let mask = (1 << self.window) - 1;
        std::array::from_fn(|l| {
            let low = exponent[limb][l] >> offset;
            let high = match exponent.get(limb + 1) {
                // In two steps, as a shift by 64 is none.
                Some(high) => high[l] << 1 << (63 - offset),
                None => 0,
            };
            (low | high) & mask
        })
    }
}
