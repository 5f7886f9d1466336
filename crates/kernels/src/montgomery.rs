//! Arithmetic modulo `L` numbers at once, one modulus in each lane.

use widelane_cpu::{Target, Token};
use widelane_lanes::{Kernel, Modular, ModularKernels};

use crate::assembled::{Callable, most_slots};
use crate::machine::{Machine, wrappers};

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
    /// Target of the kernels; `None` in portable Rust.
    target: Option<Target>,
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

/// Memory for intermediate values of [`Montgomery::power`].
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

/// A way to compute powers. All give the same results and take times of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// Squarings, then a read of the table, then a multiplication, in code for CPUs with two
    /// multipliers.
    Apart,
    /// The table is read beside the squarings, in code for CPUs with one multiplier.
    Beside,
    /// Kernels for blocks of numbers, in little code: for instruction caches that others use too.
    Blocks,
}

impl Method {
    /// Every method, in the order of preference among equally fast ones.
    pub const ALL: [Self; 3] = [Self::Apart, Self::Beside, Self::Blocks];

    /// Name of the method for users.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Apart => "two-multipliers",
            Method::Beside => "one-multiplier",
            Method::Blocks => "small-code",
        }
    }

    /// The method of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    /// Returns whether the code of a target has the method.
    pub fn is_for(self, target: Target) -> bool {
        match self {
            Method::Apart | Method::Blocks => true,
            Method::Beside => Kernel::from(Modular::AmmOne(20)).is_for(target),
        }
    }

    /// The methods that the code of a target has, in the order of [`ALL`](Self::ALL).
    pub fn all_for(target: Target) -> Vec<Self> {
        let mut all = Self::ALL.to_vec();
        all.retain(|method| method.is_for(target));
        all
    }

    /// Bits of the windows in which it reads exponents.
    const fn window_bits(self) -> usize {
        match self {
            Method::Apart | Method::Blocks => Modular::WINDOW_BITS,
            Method::Beside => Modular::WIDE_WINDOW_BITS,
        }
    }
}

/// Sizes of modulus that there are kernels for, in bits.
pub const MODULUS_BITS: [usize; 3] = [1024, 1536, 2048];

/// Methods that call a kernel with the moduli.
macro_rules! modular {
    ($($(#[$meta:meta])* $method:ident = $kernel:ident: $($read:ident),+;)*) => { $(
        $(#[$meta])*
        #[inline]
        pub fn $method(
            &self,
            out: &mut [[u64; L]],
            $($read: &[[u64; L]],)+
            moduli: Moduli<'_, L>,
            scratch: &mut [[u64; L]],
        ) {
            self.kernels.$kernel.call([out], [$($read,)+ moduli.n], scratch);
        }
    )* };
}

impl<const L: usize> Montgomery<L> {
    /// Kernels on a machine, for moduli of `bits` bits, one of [`MODULUS_BITS`].
    pub fn new(machine: impl Into<Machine<L>>, bits: usize) -> Self {
        let machine = machine.into();
        assert!(
            MODULUS_BITS.contains(&bits),
            "there are no kernels for {bits}-bit moduli; there are for {MODULUS_BITS:?}"
        );
        let digits = bits * 10 / 512;
        let target = machine.token().map(Token::target);
        let kernel = |kernel: Modular| match target {
            // Stands in for a kernel of a method that the target lacks, and is never called as such.
            Some(target) if !Kernel::from(kernel).is_for(target) => Modular::Amm(digits),
            _ => kernel,
        };
        Self {
            digits,
            target,
            kernels: ModularKernels::new(digits, |of| Callable::new(machine, kernel(of))),
        }
    }

    /// Target whose code it runs; `None` for the model.
    pub fn target(&self) -> Option<Target> {
        self.target
    }

    /// The methods of [`power`](Self::power) that there are.
    pub fn methods(&self) -> Vec<Method> {
        self.target.map_or_else(|| Method::ALL.to_vec(), Method::all_for)
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
        self.digits << Modular::WIDE_WINDOW_BITS
    }

    /// Vectors of scratch space that every method needs.
    pub fn scratch_len(&self) -> usize {
        most_slots(self.kernels.each()) + 2 * self.digits + 3 * Modular::BLOCK + 1
    }

    modular! {
        /// `out := a b / R mod n`.
        mul = amm: a, b;
        /// `out := a^2 / R mod n`.
        square = ams: a;
        /// `out := t / R mod n` for `t` of twice as many digits, `t < R n`.
        reduce = redc: t;
        /// `out := (a - b) mod n`, in `[0, n)`.
        subtract = subtract: a, b;
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
    /// vectors and is secret. The result is the same by every method.
    ///
    /// Fixed windows from the left: as many squarings as a window has bits, then one
    /// multiplication by an entry of the table of powers, also if that is one (Menezes, van
    /// Oorschot, Vanstone, Handbook of Applied Cryptography, algorithm 14.82).
    ///
    /// # Panics
    ///
    /// If `method` is none of [`methods`](Self::methods), or an array has another length.
    #[allow(clippy::too_many_arguments)]
    pub fn power(
        &self,
        method: Method,
        out: &mut [[u64; L]],
        base: &[[u64; L]],
        exponent: &[[u64; L]],
        moduli: Moduli<'_, L>,
        space: PowerSpace<'_, L>,
        scratch: &mut [[u64; L]],
    ) {
        let has = self.target.is_none_or(|target| method.is_for(target));
        assert!(has, "no code of this target for {}", method.name());
        let bits = method.window_bits();
        let table = Table {
            digits: self.digits,
            part: self.part(method),
            bits,
        };
        assert_eq!(exponent.len(), self.limbs());
        assert_eq!(space.table.len(), self.table_len());
        let (first, [mut from, mut to]) = (&mut *space.entry, [space.power, &mut *out]);

        // Table: base^0, base^1, ...
        table.set(space.table, 0, moduli.one);
        table.set(space.table, 1, base);
        for i in 2..1 << bits {
            if i % 2 == 0 {
                table.get(space.table, i / 2, first);
                self.step(method, to, first, first, moduli, scratch);
            } else {
                table.get(space.table, i - 1, first);
                self.step(method, to, first, base, moduli, scratch);
            }
            table.set(space.table, i, to);
        }
        // All windows beforehand: a load of a vector that was just written lane by lane waits until
        // all lanes have reached the cache.
        assert_eq!(space.indices.len(), self.windows());
        let indices = &mut space.indices[..self.bits().div_ceil(bits)];
        for (window, index) in indices.iter_mut().enumerate() {
            *index = digit(exponent, window * bits, bits);
        }

        // For the same reason the power is never copied: it alternates between two places.
        let entry = first;
        let (first, rest) = indices.split_last().expect("an exponent has windows");
        let first = std::slice::from_ref(first);
        let kernel = match method {
            Method::Blocks => &self.kernels.block_select,
            Method::Apart | Method::Beside => &self.kernels.select,
        };
        match method {
            Method::Blocks | Method::Apart => {
                table.select(kernel, from, space.table, first, scratch);
            }
            // A squaring of anything, for what it reads besides.
            Method::Beside => {
                to.copy_from_slice(base);
                self.square_beside(to, from, &table, space.table, first, moduli, scratch);
            }
        }
        for index in rest.iter().rev() {
            let index = std::slice::from_ref(index);
            match method {
                Method::Beside => {
                    self.square_beside(from, entry, &table, space.table, index, moduli, scratch);
                }
                Method::Apart | Method::Blocks => {
                    for _ in 0..bits {
                        self.step(method, to, from, from, moduli, scratch);
                        std::mem::swap(&mut from, &mut to);
                    }
                    table.select(kernel, entry, space.table, index, scratch);
                }
            }
            self.step(method, to, from, entry, moduli, scratch);
            std::mem::swap(&mut from, &mut to);
        }
        let swaps = match method {
            Method::Beside => rest.len(),
            Method::Apart | Method::Blocks => rest.len() * (bits + 1),
        };
        if swaps % 2 == 0 {
            // The last result lies in the space, and `to` is the caller's array.
            to.copy_from_slice(from);
        }
    }

    /// Squares `x` in place once per part of the table, which is once per bit of a window, and reads a part of `entry`
    /// from the table beside each squaring.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    fn square_beside(
        &self,
        x: &mut [[u64; L]],
        entry: &mut [[u64; L]],
        table: &Table,
        vectors: &[[u64; L]],
        index: &[[u64; L]],
        moduli: Moduli<'_, L>,
        scratch: &mut [[u64; L]],
    ) {
        for (entry, part) in entry.chunks_exact_mut(table.part).zip(table.parts(vectors)) {
            self.kernels
                .ams_select
                .call([&mut *x, entry], [moduli.n, part, index], scratch);
        }
    }

    /// `out := a b / R mod n` with the code of a method. The same factor twice is a square.
    #[inline(always)]
    fn step(
        &self,
        method: Method,
        out: &mut [[u64; L]],
        a: &[[u64; L]],
        b: &[[u64; L]],
        moduli: Moduli<'_, L>,
        scratch: &mut [[u64; L]],
    ) {
        let is_square = std::ptr::eq(a, b);
        match method {
            Method::Apart if is_square => self.square(out, a, moduli, scratch),
            Method::Apart => self.mul(out, a, b, moduli, scratch),
            Method::Beside => self.kernels.amm_one.call([out], [a, b, moduli.n], scratch),
            Method::Blocks => self.mul_blocks(out, a, b, moduli, scratch),
        }
    }

    /// `out := a b / R mod n` block by block: the kernels are a few kilobytes for all sizes.
    fn mul_blocks(
        &self,
        out: &mut [[u64; L]],
        a: &[[u64; L]],
        b: &[[u64; L]],
        moduli: Moduli<'_, L>,
        scratch: &mut [[u64; L]],
    ) {
        const BLOCK: usize = Modular::BLOCK;
        let k = &self.kernels;
        let is_square = std::ptr::eq(a, b);
        let (columns, scratch) = scratch.split_at_mut(2 * self.digits);
        let (low, scratch) = scratch.split_at_mut(BLOCK + 1);
        let (mut q, scratch) = scratch.split_at_mut(BLOCK);
        let (mut before, slots) = scratch.split_at_mut(BLOCK);
        let (n, k0) = moduli.n.split_at(self.digits);
        let (a, _) = a.as_chunks::<BLOCK>();
        let (b, _) = b.as_chunks::<BLOCK>();
        let (n, _) = n.as_chunks::<BLOCK>();
        low[..BLOCK].copy_from_slice(&n[0]);
        low[BLOCK] = k0[0];
        let at = |columns: usize| columns * BLOCK..(columns + 2) * BLOCK;
        // The products of blocks in the same place fill all columns but the first, whose product the
        // reduction adds.
        columns[at(0)].fill([0; L]);
        for (i, (a, b)) in a.iter().zip(b).enumerate().skip(1) {
            let columns = &mut columns[at(2 * i)];
            match is_square {
                true => k.block_square.call([columns], [a], slots),
                false => k.block_product.call([columns], [a, b], slots),
            }
        }
        for (i, x) in a.iter().enumerate() {
            for (j, y) in b.iter().enumerate() {
                let columns = &mut columns[at(i + j)];
                match is_square {
                    true if i < j => k.block_add_twice.call([columns], [x, y], slots),
                    false if i != j => k.block_add.call([columns], [x, y], slots),
                    _ => {}
                }
            }
        }
        for i in 0..n.len() {
            let factors: [&[[u64; L]]; 2] = match i {
                0 => [&a[0], &b[0]],
                _ => [before, &n[1]],
            };
            k.block_add_reduce
                .call([&mut columns[at(i)], &mut *q], [factors[0], factors[1], &*low], slots);
            // The reduction of the next block adds the multiples of the second block.
            let further = if i + 1 == n.len() { 1 } else { 2 };
            for (j, n) in n.iter().enumerate().skip(further) {
                k.block_add.call([&mut columns[at(i + j)]], [&*q, n], slots);
            }
            std::mem::swap(&mut q, &mut before);
        }
        k.carry.call([out], [&columns[self.digits..]], slots);
    }

    /// Room for the windows of an exponent.
    pub fn windows(&self) -> usize {
        self.bits().div_ceil(Modular::WINDOW_BITS)
    }

    /// Bits of an exponent.
    fn bits(&self) -> usize {
        64 * self.limbs()
    }

    /// Digits of an entry that lie together in the table of a method.
    fn part(&self, method: Method) -> usize {
        match method {
            Method::Apart => self.digits,
            Method::Beside => self.digits / Modular::WIDE_WINDOW_BITS,
            Method::Blocks => Modular::BLOCK,
        }
    }

    /// Vector multiply-adds of one [`power`](Self::power), each on all lanes.
    pub fn power_multiply_adds(&self, method: Method) -> usize {
        let count = Callable::multiply_adds;
        let k = &self.kernels;
        let blocks = self.digits / Modular::BLOCK;
        let rest = blocks - 1;
        let reduction = blocks * count(&k.block_add_reduce) + rest * rest * count(&k.block_add);
        let (product, square) = match method {
            Method::Apart => (count(&k.amm), count(&k.ams)),
            Method::Beside => (count(&k.amm_one), count(&k.ams_select)),
            Method::Blocks => (
                rest * (count(&k.block_product) + blocks * count(&k.block_add)) + reduction,
                rest * count(&k.block_square) + blocks * rest / 2 * count(&k.block_add_twice) + reduction,
            ),
        };
        let bits = method.window_bits();
        let windows = self.bits().div_ceil(bits);
        let table = (1 << bits) / 2 - 1;
        let (table, first) = match method {
            Method::Beside => (2 * table * product, bits * square),
            Method::Apart | Method::Blocks => (table * (square + product), 0),
        };
        table + first + (windows - 1) * (bits * square + product)
    }
}

/// Layout of a table of powers in memory: the first [`part`](Self::part) digits of all entries, then the next ones.
struct Table {
    digits: usize,
    part: usize,
    bits: usize,
}

impl Table {
    fn parts<'a, const L: usize>(&self, vectors: &'a [[u64; L]]) -> impl Iterator<Item = &'a [[u64; L]]> + use<'a, L> {
        vectors.chunks_exact(self.part << self.bits)
    }

    fn set<const L: usize>(&self, vectors: &mut [[u64; L]], entry: usize, value: &[[u64; L]]) {
        let parts = vectors.chunks_exact_mut(self.part << self.bits);
        for (part, digits) in parts.zip(value.chunks_exact(self.part)) {
            part[entry * self.part..][..self.part].copy_from_slice(digits);
        }
    }

    fn get<const L: usize>(&self, vectors: &[[u64; L]], entry: usize, value: &mut [[u64; L]]) {
        for (part, digits) in self.parts(vectors).zip(value.chunks_exact_mut(self.part)) {
            digits.copy_from_slice(&part[entry * self.part..][..self.part]);
        }
    }

    /// An entry whose number is secret, with a kernel that reads a part.
    #[inline(always)]
    fn select<const L: usize>(
        &self,
        kernel: &Callable<L>,
        entry: &mut [[u64; L]],
        vectors: &[[u64; L]],
        index: &[[u64; L]],
        scratch: &mut [[u64; L]],
    ) {
        let entry = &mut entry[..self.digits];
        for (entry, part) in entry.chunks_exact_mut(self.part).zip(self.parts(vectors)) {
            kernel.call([entry], [part, index], scratch);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use widelane_lanes::{DIGIT_MASK, Definition};

    /// Moduli, bases and exponents, other ones in each lane; the last lanes' exponents are zero, one
    /// and all ones.
    struct Problem<const L: usize> {
        n: Vec<[u64; L]>,
        one: Vec<[u64; L]>,
        base: Vec<[u64; L]>,
        exponent: Vec<[u64; L]>,
    }

    impl<const L: usize> Problem<L> {
        fn new(digits: usize, limbs: usize) -> Self {
            let mut state = 0x5eed_u64;
            let mut random = || -> [u64; L] {
                std::array::from_fn(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 7).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                })
            };
            let mut number = |bits: u32| -> Vec<[u64; L]> {
                let mut number: Vec<_> = (0..digits).map(|_| random().map(|word| word & DIGIT_MASK)).collect();
                let top = number.last_mut().expect("a number has digits");
                *top = top.map(|word| word >> (52 - bits) | 1 << (bits - 1));
                number
            };
            let mut n = number(35);
            n[0] = n[0].map(|digit| digit | 1);
            n.push(n[0].map(|n| {
                let newton = |x: u64, _| x.wrapping_mul(2u64.wrapping_sub(n.wrapping_mul(x)));
                (0..5).fold(n, newton).wrapping_neg() & DIGIT_MASK
            }));
            // Any numbers serve: the table's first entry need not be one for equal results.
            let (one, base) = (number(34), number(34));
            let mut exponent: Vec<[u64; L]> = (0..limbs).map(|_| random()).collect();
            for (i, limb) in exponent.iter_mut().enumerate() {
                limb[L - 1] = 0;
                limb[L - 2] = u64::from(i == 0);
                limb[L - 3] = u64::MAX;
            }
            Self { n, one, base, exponent }
        }

        /// The power modulo `n`, canonical.
        fn power(&self, k: &Montgomery<L>, method: Method, one: &[[u64; L]]) -> Vec<[u64; L]> {
            let (d, moduli) = (k.digits(), Moduli { n: &self.n, one });
            let zeros = |len: usize| vec![[0; L]; len];
            let [mut out, mut entry, mut power] = [(); 3].map(|()| zeros(d));
            let (mut table, mut indices) = (zeros(k.table_len()), zeros(k.windows()));
            let mut scratch = zeros(k.scratch_len());
            let space = PowerSpace {
                table: &mut table,
                indices: &mut indices,
                entry: &mut entry,
                power: &mut power,
            };
            k.power(
                method,
                &mut out,
                &self.base,
                &self.exponent,
                moduli,
                space,
                &mut scratch,
            );
            let mut canonical = zeros(d);
            k.subtract(&mut canonical, &out, &zeros(d), moduli, &mut scratch);
            canonical
        }

        /// `R mod n`: `R^2 mod n` by doublings, and reduced.
        fn one(&self, k: &Montgomery<L>) -> Vec<[u64; L]> {
            let d = k.digits();
            let mut scratch = vec![[0; L]; k.scratch_len()];
            // 2 x = x - (0 - x), from x = 1.
            let zero = vec![[0; L]; d];
            let moduli = Moduli {
                n: &self.n,
                one: &self.one,
            };
            let mut x = zero.clone();
            x[0] = [1; L];
            for _ in 0..52 * d {
                let (mut minus, mut twice) = (zero.clone(), zero.clone());
                k.subtract(&mut minus, &zero, &x, moduli, &mut scratch);
                k.subtract(&mut twice, &x, &minus, moduli, &mut scratch);
                x = twice;
            }
            x
        }
    }

    fn compare<const L: usize>(of: impl Fn(usize) -> Montgomery<L>) {
        for bits in MODULUS_BITS {
            let (k, model) = (of(bits), Montgomery::<L>::new(Machine::model(), bits));
            let problem = Problem::<L>::new(k.digits(), k.limbs());
            let one = problem.one(&k);
            let expected = problem.power(&k, Method::Apart, &one);
            let mut canonical = vec![[0; L]; k.digits()];
            let moduli = Moduli {
                n: &problem.n,
                one: &one,
            };
            let mut scratch = vec![[0; L]; k.scratch_len()];
            let zero = canonical.clone();
            k.subtract(&mut canonical, &one, &zero, moduli, &mut scratch);
            for (power, one) in expected.iter().zip(&canonical) {
                assert_eq!(power[L - 1], one[L - 1], "anything to the power of zero");
            }
            k.subtract(&mut canonical, &problem.base, &zero, moduli, &mut scratch);
            for (power, base) in expected.iter().zip(&canonical) {
                assert_eq!(power[L - 2], base[L - 2], "anything to the power of one");
            }
            for method in k.methods() {
                let found = problem.power(&k, method, &one);
                assert!(found == expected, "{bits} bits, {}", method.name());
            }
            if bits == 1024 {
                for method in Method::ALL {
                    let found = problem.power(&model, method, &one);
                    assert!(found == expected, "the model, {}", method.name());
                }
            }
        }
    }

    #[test]
    fn every_method_computes_the_same_powers() {
        widelane_cpu::on_every_target!(token => compare(|bits| Montgomery::new(token, bits)));
    }

    /// CPUs with AVX2 alone have two multipliers for such registers, and no masks to read a table with.
    #[test]
    fn lanes_of_avx2_alone_lack_the_method_for_one_multiplier() {
        let narrow = Method::all_for(Target::Avx2);
        assert_eq!(narrow, [Method::Apart, Method::Blocks]);
        for target in [Target::AvxIfma, Target::Avx512F, Target::Avx512Ifma] {
            assert_eq!(Method::all_for(target), Method::ALL, "{target}");
        }
    }

    #[test]
    fn methods_have_names() {
        for method in Method::ALL {
            assert_eq!(Method::named(method.name()), Some(method));
        }
        assert_eq!(Method::named("three-multipliers"), None);
    }

    /// Not a claim about speed: less code than the larger kernels alone.
    #[test]
    fn the_code_of_blocks_is_small() {
        let k = Montgomery::<8>::new(Machine::model(), 2048).kernels;
        let instructions = |callables: &[&Callable<8>]| -> usize {
            let count = |callable: &&Callable<8>| callable.kernel().report(Target::Avx512Ifma).instructions;
            callables.iter().map(count).sum()
        };
        let small = instructions(&[
            &k.block_product,
            &k.block_square,
            &k.block_add,
            &k.block_add_twice,
            &k.block_add_reduce,
            &k.block_select,
            &k.carry,
        ]);
        assert!(small < 2000, "{small}");
        assert!(instructions(&[&k.ams, &k.amm]) > 7 * small);
    }
}
