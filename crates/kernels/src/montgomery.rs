//! Arithmetic modulo `L` numbers at once, one modulus in each lane.

use widelane_lanes::{Definition, Modular, ModularKernels, Width};

use crate::assembled::{Callable, most_slots};
use crate::target::{Target, constructors, wrappers};

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
    kernels: ModularKernels<Callable<L>>,
}

/// The moduli of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Moduli<'a, const L: usize> {
    /// `n`, then `-1/n mod 2^52`: `digits + 1` vectors.
    pub n: &'a [[u64; L]],
    /// `R mod n`, the number one in Montgomery form, `digits` vectors.
    pub one: &'a [[u64; L]],
}

/// Where [`Montgomery::power`] keeps its intermediate values.
#[derive(Debug)]
pub struct PowerSpace<'a, const L: usize> {
    /// [`Montgomery::table_len`] vectors.
    pub table: &'a mut [[u64; L]],
    /// [`Montgomery::windows`] vectors.
    pub indices: &'a mut [[u64; L]],
    /// `digits` vectors.
    pub entry: &'a mut [[u64; L]],
    /// `digits` vectors.
    pub power: &'a mut [[u64; L]],
}

/// Sizes of modulus that there are kernels for, in bits.
pub const MODULUS_BITS: [usize; 3] = [1024, 1536, 2048];

constructors!(
    Montgomery,
    bits: usize,
    "`bits` is the size of the moduli, one of [`MODULUS_BITS`]."
);

impl<const L: usize> Montgomery<L> {
    /// Kernels on a target, for moduli of `bits` bits, one of [`MODULUS_BITS`].
    pub fn new(target: Target<L>, bits: usize) -> Self {
        assert!(
            MODULUS_BITS.contains(&bits),
            "there are no kernels for {bits}-bit moduli; there are for {MODULUS_BITS:?}"
        );
        let digits = bits * 10 / 512;
        Self {
            digits,
            kernels: ModularKernels::new(digits, |kernel| Callable::new(target, kernel)),
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
        self.digits << Modular::WINDOW_BITS
    }

    /// Vectors of scratch space that every method needs.
    pub fn scratch_len(&self) -> usize {
        most_slots(self.kernels.each())
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
        self.kernels.amm.call([out], [a, b, moduli.n], scratch);
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
        self.kernels.ams.call([out], [a, moduli.n], scratch);
    }

    /// `out := t / R mod n` for `t` of twice as many digits, `t < R n`.
    pub fn reduce(
        &self,
        out: &mut [[u64; L]],
        t: &[[u64; L]],
        moduli: Moduli<'_, L>,
        scratch: &mut [[u64; L]],
    ) {
        self.kernels.redc.call([out], [t, moduli.n], scratch);
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
        self.kernels.subtract.call([out], [a, b, moduli.n], scratch);
    }

    wrappers! {
        /// `out := a b + c`, of twice as many digits, for numbers below `R`.
        mul_add: [out], [a, b, c];
        /// `out := limbs`: numbers of `2 limbs` 64-bit limbs as `2 digits` digits.
        to_digits: [out], [limbs];
        /// `out := digits`: numbers of `2 digits` digits as `2 limbs` 64-bit limbs.
        to_limbs: [out], [digits];
    }

    /// `out := base^exponent`, both in Montgomery form; `exponent` has [`limbs`](Self::limbs)
    /// vectors and is secret.
    ///
    /// Fixed windows from the left: as many squarings as a window has bits, then one
    /// multiplication by an entry of the table of powers, also if that is one (Menezes, van
    /// Oorschot, Vanstone, Handbook of Applied Cryptography, algorithm 14.82).
    pub fn power(
        &self,
        out: &mut [[u64; L]],
        base: &[[u64; L]],
        exponent: &[[u64; L]],
        moduli: Moduli<'_, L>,
        space: PowerSpace<'_, L>,
        scratch: &mut [[u64; L]],
    ) {
        let (d, bits) = (self.digits, Modular::WINDOW_BITS);
        let PowerSpace {
            table,
            indices,
            entry,
            power,
        } = space;
        assert_eq!(exponent.len(), self.limbs());

        // Table: base^0, base^1, ...
        table[..d].copy_from_slice(moduli.one);
        table[d..2 * d].copy_from_slice(base);
        for i in 2..1 << bits {
            let (known, rest) = table.split_at_mut(i * d);
            if i % 2 == 0 {
                self.square(&mut rest[..d], &known[i / 2 * d..][..d], moduli, scratch);
            } else {
                self.mul(&mut rest[..d], &known[(i - 1) * d..], base, moduli, scratch);
            }
        }
        // All windows beforehand: a load of a vector that was just written lane by lane waits until
        // all lanes have reached the cache.
        assert_eq!(indices.len(), self.windows());
        for (window, index) in indices.iter_mut().enumerate() {
            *index = digit(exponent, window * bits, bits);
        }

        let (first, rest) = indices.split_last().expect("an exponent has windows");
        // For the same reason the power is never copied: it alternates between two places.
        let (mut from, mut to) = (power, &mut *out);
        self.kernels
            .select
            .call([&mut *from], [table, std::slice::from_ref(first)], scratch);
        for index in rest.iter().rev() {
            let index = std::slice::from_ref(index);
            for _ in 0..bits {
                self.square(to, from, moduli, scratch);
                std::mem::swap(&mut from, &mut to);
            }
            self.kernels
                .select
                .call([&mut *entry], [table, index], scratch);
            self.mul(to, from, entry, moduli, scratch);
            std::mem::swap(&mut from, &mut to);
        }
        if rest.len() * (bits + 1) % 2 == 0 {
            // The last result lies in the space, and `to` is the caller's array.
            to.copy_from_slice(from);
        }
    }

    /// Windows of an exponent.
    pub fn windows(&self) -> usize {
        (64 * self.limbs()).div_ceil(Modular::WINDOW_BITS)
    }

    /// Vector multiply-adds of one [`power`](Self::power), each on all lanes.
    pub fn power_multiply_adds(&self) -> usize {
        // Other than the code, their number does not depend on the width of registers.
        let count = |callable: &Callable<L>| callable.kernel().report(Width::Zmm).multiply_adds;
        let bits = Modular::WINDOW_BITS;
        let table = (1 << bits) / 2 - 1;
        table * (count(&self.kernels.ams) + count(&self.kernels.amm))
            + (self.windows() - 1) * (bits * count(&self.kernels.ams) + count(&self.kernels.amm))
    }
}

/// Each lane's window of `bits` bits of the exponent, from bit `at`.
fn digit<const L: usize>(exponent: &[[u64; L]], at: usize, bits: usize) -> [u64; L] {
    let (limb, offset) = (at / 64, at % 64);
    let mask = (1 << bits) - 1;
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
