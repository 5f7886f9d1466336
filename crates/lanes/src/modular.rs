//! The kernels of Montgomery arithmetic, of which exponentiations and RSA consist.

use crate::bounds::Holds;
use crate::convert::{to_digits, to_limbs};
use crate::definition::{kernels, load, store};
use crate::machine::{Array, DIGIT_BITS, Machine};
use crate::montgomery::{
    BLOCK, add_and_reduce_block, block_product, block_square, choose, look_up, product, propagate, reduce,
    reduce_beside, reduce_by_rows, square, subtract,
};
use crate::schedule::Multipliers;

kernels! {
    /// Montgomery arithmetic on numbers of one size.
    ///
    /// `d` is the number of 52-bit digits. `R := 2^(52 d)`, `n` is odd and `4 n < R`. The array `n`
    /// holds the digits of `n`, then `-1/n mod 2^52`.
    pub enum Modular {
        /// Almost-Montgomery multiplication, for `a` and `b` in `[0, 2 n)`.
        Amm(d: usize) {
            name: "amm52x{d}",
            formula: "out := a b / 2^(52 d) mod n, in [0, 2 n)",
            reference: "Gueron, J. Cryptogr. Eng. 2 (2012), section 3",
            arrays: {
                out: writes(d, DIGITS),
                a: reads(d, DIGITS),
                b: reads(d, DIGITS),
                n: reads(d + 1, DIGITS),
            },
            body: |m| {
                let (a, b) = (load(m, a, d), load(m, b, d));
                if m.has_few_registers() {
                    let (n, k0) = (load(m, n, d), m.load(n, d));
                    let none = vec![m.splat(0); 2 * d];
                    let reduced = reduce_by_rows(m, none, Some([&a, &b]), &n, k0);
                    store(m, out, &reduced);
                } else {
                    let t = product(m, &a, &b);
                    store_reduced(m, out, t, n, d);
                }
            },
        }
        /// Multiplies a number by itself, with fewer multiplications than [`Amm`](Self::Amm).
        Ams(d: usize) {
            name: "ams52x{d}",
            formula: "out := a^2 / 2^(52 d) mod n, in [0, 2 n)",
            reference: "Gueron, J. Cryptogr. Eng. 2 (2012), section 3",
            arrays: { out: writes(d, DIGITS), a: reads(d, DIGITS), n: reads(d + 1, DIGITS) },
            body: |m| {
                let a = load(m, a, d);
                let t = square(m, &a);
                store_reduced(m, out, t, n, d);
            },
        }
        /// Multiplies as [`Amm`](Self::Amm) does, for CPUs with one multiplier.
        AmmOne(d: usize) {
            name: "amm52x{d}one",
            formula: "out := a b / 2^(52 d) mod n, in [0, 2 n)",
            reference: "Gueron, J. Cryptogr. Eng. 2 (2012), section 3",
            multipliers: Multipliers::One,
            arrays: {
                out: writes(d, DIGITS),
                a: reads(d, DIGITS),
                b: reads(d, DIGITS),
                n: reads(d + 1, DIGITS),
            },
            body: |m| Self::Amm(d).run(m),
        }
        /// A squaring that reads a part of an entry of a table besides, with what multiplications
        /// leave idle. `table` has that part of all entries.
        AmsSelect(d: usize, window: usize) {
            name: "ams52x{d}select{window}",
            formula: "x := x^2 / 2^(52 d) mod n, in [0, 2 n); out := table[index], every entry read",
            reference: "Gueron, J. Cryptogr. Eng. 2 (2012), section 3",
            multipliers: Multipliers::One,
            arrays: {
                x: writes(d, DIGITS),
                out: writes(d.div_ceil(window), DIGITS),
                n: reads(d + 1, DIGITS),
                table: reads(d.div_ceil(window) << window, DIGITS),
                index: reads(1, LIMBS),
            },
            body: |m| square_and_select(m, x, out, n, table, index, (d, window)),
        }
        /// Multiplies by rows, in code that is small.
        BlockProduct {
            name: "mul52x10",
            formula: "columns := a b",
            reference: "Handbook of Applied Cryptography, algorithm 14.12",
            arrays: {
                columns: writes(2 * BLOCK, COLUMNS),
                a: reads(BLOCK, DIGITS),
                b: reads(BLOCK, DIGITS),
            },
            body: |m| {
                let (a, b) = (load(m, a, BLOCK), load(m, b, BLOCK));
                let product = block_product(m, &a, &b);
                store(m, columns, &product);
            },
        }
        /// Squares a block.
        BlockSquare {
            name: "sqr52x10",
            formula: "columns := a^2",
            reference: "Handbook of Applied Cryptography, algorithm 14.16",
            arrays: { columns: writes(2 * BLOCK, COLUMNS), a: reads(BLOCK, DIGITS) },
            body: |m| {
                let a = load(m, a, BLOCK);
                let square = block_square(m, &a);
                store(m, columns, &square);
            },
        }
        /// At most eight products are added up: four of the factors' blocks, four of the modulus's
        /// in its reduction.
        BlockAdd {
            name: "muladd52x10",
            formula: "columns := columns + a b",
            reference: "Handbook of Applied Cryptography, algorithm 14.12",
            arrays: {
                columns: writes(2 * BLOCK, COLUMNS),
                a: reads(BLOCK, DIGITS),
                b: reads(BLOCK, DIGITS),
            },
            body: |m| add_product(m, columns, a, b, 1),
        }
        /// Adds the product of two blocks of one square, which occurs twice.
        BlockAddTwice {
            name: "muladd52x10twice",
            formula: "columns := columns + 2 a b",
            reference: "Handbook of Applied Cryptography, algorithm 14.16",
            arrays: {
                columns: writes(2 * BLOCK, COLUMNS),
                a: reads(BLOCK, DIGITS),
                b: reads(BLOCK, DIGITS),
            },
            body: |m| add_product(m, columns, a, b, 2),
        }
        /// Reduces by a modulus of any size: `low` holds its first block, then `k0 = -1/n mod 2^52`. The first block of
        /// the columns is left as it is.
        BlockAddReduce {
            name: "muladdredc52x10",
            formula: "columns := columns + a b; q := -columns / low mod 2^520; \
                columns := columns + q low, the second block",
            reference: "Montgomery, Math. Comp. 44 (1985)",
            arrays: {
                columns: writes(2 * BLOCK, COLUMNS),
                q: writes(BLOCK, DIGITS),
                a: reads(BLOCK, DIGITS),
                b: reads(BLOCK, DIGITS),
                low: reads(BLOCK + 1, DIGITS),
            },
            body: |m| {
                let (t, k0) = (load(m, columns, 2 * BLOCK), m.load(low, BLOCK));
                let [a, b, low] = [a, b, low].map(|array| load(m, array, BLOCK));
                let (sum, factors) = add_and_reduce_block(m, t, [&a, &b], &low, k0);
                for (i, (sum, factor)) in sum.into_iter().zip(factors).enumerate() {
                    let sum = m.claim(sum, COLUMN_BITS, FEW_PRODUCTS);
                    m.store(columns, BLOCK + i, sum);
                    // VPMADD52 reads the lowest 52 bits of a factor only.
                    m.store(q, i, factor);
                }
            },
        }
        /// Propagates the carries of a number below `2^(52 d)`.
        Carry(d: usize) {
            name: "carry52x{d}",
            formula: "out := sum, in digits",
            reference: "Handbook of Applied Cryptography, algorithm 14.12",
            arrays: { out: writes(d, DIGITS), sum: reads(d, COLUMNS) },
            body: |m| {
                let sum = load(m, sum, d);
                let digits = propagate(m, &sum, "the number is below 2^(52 d)");
                store(m, out, &digits);
            },
        }
        /// Each lane has an index of its own, below the number of entries.
        Select(digits: usize, entries: usize) {
            name: "select52x{digits}of{entries}",
            formula: "out := table[index], every entry read",
            reference: "Handbook of Applied Cryptography, algorithm 14.82",
            arrays: {
                out: writes(digits, DIGITS),
                table: reads(entries * digits, DIGITS),
                index: reads(1, LIMBS),
            },
            body: |m| select(m, out, table, index, digits, entries),
        }
        /// Reduces `t < 2^(52 d) n`.
        Redc(d: usize) {
            name: "redc52x{d}",
            formula: "out := t / 2^(52 d) mod n, in [0, 2 n)",
            reference: "Montgomery, Math. Comp. 44 (1985)",
            arrays: { out: writes(d, DIGITS), t: reads(2 * d, DIGITS), n: reads(d + 1, DIGITS) },
            body: |m| {
                let t = load(m, t, 2 * d);
                store_reduced(m, out, t, n, d);
            },
        }
        /// Subtracts, for `a` and `b` in `[0, 2 n)`.
        Subtract(d: usize) {
            name: "sub52x{d}",
            formula: "out := (a - b) mod n, in [0, n)",
            reference: "RFC 8017, section 5.1.2, step 2.b.iii",
            arrays: {
                out: writes(d, DIGITS),
                a: reads(d, DIGITS),
                b: reads(d, DIGITS),
                n: reads(d + 1, DIGITS),
            },
            body: |m| {
                let (a, b) = (load(m, a, d), load(m, b, d));
                let n = load(m, n, d);
                let difference = subtract(m, &a, &b, &n);
                store(m, out, &difference);
            },
        }
        /// Multiplies and adds, for a sum below `2^(104 d)`.
        MulAdd(d: usize) {
            name: "muladd52x{d}",
            formula: "out := a b + c",
            reference: "RFC 8017, section 5.1.2, step 2.b.iv",
            arrays: {
                out: writes(2 * d, DIGITS),
                a: reads(d, DIGITS),
                b: reads(d, DIGITS),
                c: reads(d, DIGITS),
            },
            body: |m| {
                let (a, b, c) = (load(m, a, d), load(m, b, d), load(m, c, d));
                let mut t = product(m, &a, &b);
                for (t, &c) in t.iter_mut().zip(&c) {
                    *t = m.add(*t, c);
                }
                let sum = propagate(m, &t, "a b + c is below 2^(104 d)");
                store(m, out, &sum);
            },
        }
        /// Converts numbers to digits.
        ToDigits(digits: usize, from: usize) {
            name: "digits52x{digits}from64x{from}",
            formula: "out := limbs, radix 2^64 to radix 2^52",
            reference: "RFC 8017, section 4.2",
            arrays: { out: writes(digits, DIGITS), limbs: reads(from, LIMBS) },
            body: |m| {
                let limbs = load(m, limbs, from);
                let digits = to_digits(m, &limbs, digits);
                store(m, out, &digits);
            },
        }
        /// Converts numbers to limbs.
        ToLimbs(from: usize, limbs: usize) {
            name: "limbs64x{limbs}from52x{from}",
            formula: "out := digits, radix 2^52 to radix 2^64",
            reference: "RFC 8017, section 4.1",
            arrays: { out: writes(limbs, LIMBS), digits: reads(from, DIGITS) },
            body: |m| {
                let digits = load(m, digits, from);
                let limbs = to_limbs(m, &digits, limbs);
                store(m, out, &limbs);
            },
        }
    }

    /// The kernels for numbers of `digits` digits. RSA-2048, 3072 and 4096 have primes of 1024,
    /// 1536 and 2048 bits. Neighbours are those that an exponentiation runs all the time.
    pub struct ModularKernels for digits: usize in [20, 30, 40] {
        amm: Amm(digits),
        ams: Ams(digits),
        select: Select(digits, 1 << Modular::WINDOW_BITS),
        redc: Redc(digits),
        subtract: Subtract(digits),
        mul_add: MulAdd(digits),
        to_digits: ToDigits(2 * digits, 2 * limbs(digits)),
        to_limbs: ToLimbs(2 * digits, 2 * limbs(digits));
        ams_select: AmsSelect(digits, Modular::WIDE_WINDOW_BITS),
        amm_one: AmmOne(digits);
        block_product: BlockProduct,
        block_square: BlockSquare,
        block_add: BlockAdd,
        block_add_twice: BlockAddTwice,
        block_add_reduce: BlockAddReduce,
        block_select: Select(BLOCK, 1 << Modular::WINDOW_BITS),
        carry: Carry(digits),
    }
}

impl Modular {
    /// Bits of the windows in which exponents are read. With four, a table has 16 entries; 32 would
    /// save a thirtieth of the multiplications, and take up twice the cache.
    pub const WINDOW_BITS: usize = 4;
    /// Bits of the windows where squarings read the table besides.
    pub const WIDE_WINDOW_BITS: usize = 5;
    /// Digits of a block.
    pub const BLOCK: usize = BLOCK;
}

/// `columns := columns + times a b`, for blocks.
fn add_product<M: Machine>(m: &mut M, columns: Array, a: Array, b: Array, times: usize) {
    let (a, b) = (load(m, a, BLOCK), load(m, b, BLOCK));
    let product = block_product(m, &a, &b);
    for (i, term) in product.into_iter().enumerate() {
        let mut sum = m.load(columns, i);
        for _ in 0..times {
            sum = m.add(sum, term);
        }
        let sum = m.claim(sum, COLUMN_BITS, FEW_PRODUCTS);
        m.store(columns, i, sum);
    }
}

/// 64-bit limbs of a modulus of `digits` digits.
const fn limbs(digits: usize) -> usize {
    digits / 10 * 8
}

/// `out := t / R mod n`, for columns or digits `t`.
fn store_reduced<M: Machine>(m: &mut M, out: Array, t: Vec<M::V>, n: Array, d: usize) {
    let (digits, k0) = (load(m, n, d), m.load(n, d));
    let reduced = match m.has_few_registers() {
        true => reduce_by_rows(m, t, None, &digits, k0),
        false => reduce(m, t, &digits, k0),
    };
    store(m, out, &reduced);
}

fn square_and_select<M: Machine>(
    m: &mut M,
    x: Array,
    out: Array,
    n: Array,
    table: Array,
    index: Array,
    (d, window): (usize, usize),
) {
    let index = m.load(index, 0);
    let masks: Vec<_> = (0..window)
        .map(|bit| {
            let bit = m.splat(1 << bit);
            m.test(index, bit)
        })
        .collect();
    let a = load(m, x, d);
    let t = square(m, &a);
    let (digits, k0) = (load(m, n, d), m.load(n, d));
    let len = d.div_ceil(window);
    let mut chosen = 0;
    let reduced = reduce_beside(m, t, &digits, k0, |m, pair| {
        // Evenly, and done with the last pair.
        while chosen * d < len * 2 * (pair + 1) {
            let mut digit = |m: &mut M, entry: usize| m.load(table, entry * len + chosen);
            let value = choose(m, &masks, &mut digit);
            m.store(out, chosen, value);
            chosen += 1;
        }
    });
    store(m, x, &reduced);
}

fn select<M: Machine>(m: &mut M, out: Array, table: Array, index: Array, digits: usize, entries: usize) {
    let index = m.load(index, 0);
    let mut selected = Vec::with_capacity(digits);
    // Uses as many accumulators at a time as leave registers for the rest.
    let together = if m.has_few_registers() { 1 } else { 2 } * BLOCK;
    for from in (0..digits).step_by(together) {
        let to = (from + together).min(digits);
        selected.extend(look_up(m, index, entries, |m, entry| {
            let at = entry * digits;
            (from..to).map(|i| m.load(table, at + i)).collect()
        }));
    }
    store(m, out, &selected);
}

const DIGITS: Holds = Holds::Bits(DIGIT_BITS);
/// A column takes at most 160 terms below 2^52, two of each digit of both factors, and a carry.
const COLUMNS: Holds = Holds::Bits(COLUMN_BITS);
const COLUMN_BITS: u32 = 60;
const FEW_PRODUCTS: &str = "at most eight products of blocks are added up";
const LIMBS: Holds = Holds::Bits(u64::BITS);
