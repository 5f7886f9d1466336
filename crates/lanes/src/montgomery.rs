//! Montgomery arithmetic on big numbers, one number in each lane.
//!
//! A number of `d` digits in radix 2^52 is an array of `d` vectors, least significant digit
//! first; lane `l` of the array is the number of problem `l`. With `R := 2^(52 d)` and `n` odd,
//! `4 n < R`, the kernels compute in the redundant range `[0, 2 n)`: "almost" Montgomery, because
//! the final subtraction of `n` is left out (Gueron, "Efficient software implementations of
//! modular exponentiation", J. Cryptogr. Eng. 2 (2012), section 3).
//!
//! Products are formed by columns: column `k` sums the terms of weight 2^(52 k), unreduced, as a
//! signed 64-bit lane. Blocks of ten digits are multiplied digit by digit; larger numbers by
//! Karatsuba's identity in its subtractive form, on their halves or, of three blocks, on each pair,
//! `x0 y1 + x1 y0 = x0 y0 + x1 y1 - (x0 - x1)(y0 - y1)`, which saves one product of blocks in
//! four and costs additions. These run on separate execution ports on some CPUs; on the others the
//! gain and the cost are equal.

use std::ops::Range;

use crate::machine::{DIGIT_BITS, DIGIT_MASK, Machine};

/// Rows that few registers hold beside their columns, constants and a product.
const ROWS: usize = 3;
/// Digits in a block: 20 columns of accumulators and 10 digits fit 32 registers.
pub(crate) const BLOCK: usize = 10;

/// `a b`, by columns.
///
/// In: digits below 2^52. Out: `a.len() + b.len()` columns, signed.
pub(crate) fn product<M: Machine>(m: &mut M, a: &[M::V], b: &[M::V]) -> Vec<M::V> {
    if a.len() <= BLOCK {
        return block_product(m, a, b);
    }
    let size = part(a.len());
    let (x, y): (Vec<_>, Vec<_>) = (a.chunks(size).collect(), b.chunks(size).collect());
    let mut columns = Columns::new(a.len() + b.len());
    let mut squares = Vec::new();
    for i in 0..x.len() {
        let p = product(m, x[i], y[i]);
        columns.add(m, 2 * i * size, &p);
        squares.push(p);
    }
    for (i, j) in pairs(x.len()) {
        let at = (i + j) * size;
        columns.add(m, at, &squares[i]);
        columns.add(m, at, &squares[j]);
        let d = difference(m, x[i], x[j]);
        let e = difference(m, y[i], y[j]);
        let p = product(m, &d.digits, &e.digits);
        columns.sub(m, at, &p);
        // -(d + s B)(e + u B) = -d e - (s e + u d) B - s u B^2 for signs s, u in {0, -1},
        // B := 2^(52 size).
        let masked = |m: &mut M, digits: &[M::V], sign| -> Vec<M::V> {
            digits.iter().map(|&digit| m.and(digit, sign)).collect()
        };
        let cross = masked(m, &e.digits, d.sign);
        columns.add(m, at + size, &cross);
        let cross = masked(m, &d.digits, e.sign);
        columns.add(m, at + size, &cross);
        let both = m.and(d.sign, e.sign);
        columns.add(m, at + 2 * size, &[both]);
    }
    columns.finish(m)
}

/// `a^2`, by columns.
///
/// In: digits below 2^52. Out: `2 a.len()` columns, signed.
pub(crate) fn square<M: Machine>(m: &mut M, a: &[M::V]) -> Vec<M::V> {
    if a.len() <= BLOCK {
        return block_square(m, a);
    }
    let size = part(a.len());
    let x: Vec<_> = a.chunks(size).collect();
    let mut columns = Columns::new(2 * a.len());
    let mut squares = Vec::new();
    for (i, block) in x.iter().enumerate() {
        let p = square(m, block);
        columns.add(m, 2 * i * size, &p);
        squares.push(p);
    }
    for (i, j) in pairs(x.len()) {
        let at = (i + j) * size;
        columns.add(m, at, &squares[i]);
        columns.add(m, at, &squares[j]);
        let d = difference(m, x[i], x[j]);
        let p = square(m, &d.digits);
        columns.sub(m, at, &p);
        // -(d + s B)^2 = -d^2 - 2 s d B - s^2 B^2 for the sign s in {0, -1}.
        let cross: Vec<_> = d.digits.iter().map(|&digit| m.and(digit, d.sign)).collect();
        columns.add(m, at + size, &cross);
        columns.add(m, at + size, &cross);
        columns.add(m, at + 2 * size, &[d.sign]);
    }
    columns.finish(m)
}
/// Montgomery's reduction: `t / R mod n`, as digits of a number below `t / R + n`.
///
/// In: `2 d` columns `t` of a non-negative number, `d` digits of the odd modulus `n`,
/// `k0 = -1/n mod 2^52`. Out: `d` digits.
pub(crate) fn reduce<M: Machine>(m: &mut M, t: Vec<M::V>, n: &[M::V], k0: M::V) -> Vec<M::V> {
    reduce_beside(m, t, n, k0, |_, _| ())
}

/// Does what [`reduce`] does, with other work `beside` each pair of rows: work that uses what multiplications leave
/// idle, such as loads. `beside` gets the index of the pair.
pub(crate) fn reduce_beside<M: Machine>(
    m: &mut M,
    mut t: Vec<M::V>,
    n: &[M::V],
    k0: M::V,
    mut beside: impl FnMut(&mut M, usize),
) -> Vec<M::V> {
    let d = n.len();
    let mut next = quotient(m, t[0], k0);
    for block in (0..d).step_by(BLOCK) {
        let ends = block + BLOCK == d;
        // At the end of a block the next column still lacks what the far digits of n bring.
        let goes_on = near(d) == d && !ends;
        let factors;
        (factors, next) = rows(
            m,
            &mut t[block..],
            &n[..near(d)],
            k0,
            (next, goes_on),
            |m, _, place, pair| {
                if place == Place::AfterRows {
                    beside(m, block / 2 + pair);
                }
            },
        );
        for far in (near(d)..d).step_by(BLOCK) {
            for (i, &q) in (block..).zip(&factors) {
                for (j, &digit) in n.iter().enumerate().skip(far).take(BLOCK) {
                    t[i + j] = m.madd_lo(t[i + j], digit, q);
                    t[i + j + 1] = m.madd_hi(t[i + j + 1], digit, q);
                }
            }
        }
        if near(d) < d && !ends {
            next = quotient(m, t[block + BLOCK], k0);
        }
    }
    propagate(m, &t[d..], "the reduced number is below 2 n < 2^(52 d)")
}

/// Does what [`reduce`] does, in a loop over pairs of rows: its code fits the cache of decoded instructions, and few
/// registers are enough. With `factors` it adds their product, whose rows stand beside those of the reduction: no
/// quotient waits for them.
///
/// In: `2 d` columns `t`; those of zero if there are `factors`.
pub(crate) fn reduce_by_rows<M: Machine>(
    m: &mut M,
    mut t: Vec<M::V>,
    factors: Option<[&[M::V]; 2]>,
    n: &[M::V],
    k0: M::V,
) -> Vec<M::V> {
    let d = n.len();
    let far = if factors.is_some() { d + 4 } else { d + 2 };
    if let Some([a, b]) = factors {
        row(m, &mut t, b, a[0]);
        row(m, &mut t[1..], b, a[1]);
    }
    let (q0, carry) = quotient(m, t[0], k0);
    t[1] = first_of(m, t[1], n, q0, carry);
    let (q1, carry) = quotient(m, t[1], k0);
    // Columns, then the first factor.
    let memory = m.scratch(if factors.is_some() { 3 * d } else { 2 * d });
    for (i, &column) in t.iter().enumerate().skip(2) {
        m.store(memory, i, column);
    }
    for (i, &digit) in factors.iter().flat_map(|[a, _]| a.iter().enumerate().skip(2)) {
        m.store(memory, 2 * d + i, digit);
    }
    let last = m.walk(d / 2 - 1, 2, vec![q0, q1, carry], |m, at, carried| {
        let mut t: Vec<_> = (2..far).map(|i| m.load(memory, at + i)).collect();
        let rows = factors.map(|[_, b]| {
            let x = [2, 3].map(|i| m.load(memory, 2 * d + at + i));
            (b, x)
        });
        let next = pair_of_rows(m, &mut t, [carried[0], carried[1]], carried[2], n, k0, rows);
        for (i, &column) in t.iter().enumerate().skip(2) {
            m.store(memory, at + 2 + i, column);
        }
        next.to_vec()
    });
    let mut t: Vec<_> = (d..2 * d).map(|i| m.load(memory, i)).collect();
    t[0] = m.madd_hi(t[0], n[1], last[0]);
    t[0] = m.madd_lo(t[0], n[2], last[0]);
    t[0] = first_of(m, t[0], n, last[1], last[2]);
    t[1] = m.madd_hi(t[1], n[1], last[1]);
    sweep(m, &mut t, n, [last[0], last[1]], 2..d);
    propagate(m, &t, "the reduced number is below 2 n < 2^(52 d)")
}

/// A factor, and two digits of the other one.
type ProductRows<'a, V> = (&'a [V], [V; 2]);

/// A pair of rows of [`reduce_by_rows`], on columns from the third one of its rows on: adds the multiples
/// `q` of `n`, and two rows of a product. Out: the quotients of the next pair of rows and their carry.
///
/// CPUs start the oldest instruction that is ready, so each next quotient begins as early as it can.
fn pair_of_rows<M: Machine>(
    m: &mut M,
    t: &mut [M::V],
    q: [M::V; 2],
    carry: M::V,
    n: &[M::V],
    k0: M::V,
    rows: Option<ProductRows<'_, M::V>>,
) -> [M::V; 3] {
    let (d, half) = (n.len(), n.len() / 2);
    if let Some((b, x)) = rows {
        row(m, t, &b[..2], x[0]);
        row(m, &mut t[1..], &b[..1], x[1]);
    }
    t[0] = m.madd_hi(t[0], n[1], q[0]);
    t[0] = m.madd_lo(t[0], n[2], q[0]);
    t[0] = first_of(m, t[0], n, q[1], carry);
    let (next, carry) = quotient(m, t[0], k0);
    t[1] = m.madd_hi(t[1], n[1], q[1]);
    let both = |m: &mut M, t: &mut [M::V], digits: Range<usize>| {
        for j in digits {
            sweep(m, t, n, q, j..j + 1);
            if let Some((b, x)) = rows {
                if let Some(&digit) = b.get(j) {
                    row(m, &mut t[j..], &[digit], x[0]);
                }
                row(m, &mut t[j..], &[b[j - 1]], x[1]);
            }
        }
    };
    both(m, t, 2..half);
    t[1] = first_of(m, t[1], n, next, carry);
    let (after, carry) = quotient(m, t[1], k0);
    both(m, t, half..d);
    if let Some((b, x)) = rows {
        row(m, &mut t[d..], &b[d - 1..], x[1]);
    }
    [next, after, carry]
}

/// Completes the column of the next row with what the latest quotient adds there.
fn first_of<M: Machine>(m: &mut M, column: M::V, n: &[M::V], q: M::V, carry: M::V) -> M::V {
    let carry = m.madd_hi(carry, n[0], q);
    let column = m.add(column, carry);
    m.madd_lo(column, n[1], q)
}

/// Adds the products of some digits of `n` and two quotients to columns, which begin with the third one of
/// their rows. Where the first quotient adds the low half of the digit 2, its column is complete.
fn sweep<M: Machine>(m: &mut M, t: &mut [M::V], n: &[M::V], q: [M::V; 2], digits: Range<usize>) {
    for j in digits {
        if j > 2 {
            t[j - 2] = m.madd_lo(t[j - 2], n[j], q[0]);
        }
        t[j - 1] = m.madd_hi(t[j - 1], n[j], q[0]);
        t[j - 1] = m.madd_lo(t[j - 1], n[j], q[1]);
        t[j] = m.madd_hi(t[j], n[j], q[1]);
    }
}

/// `columns := columns + digits x`.
fn row<M: Machine>(m: &mut M, columns: &mut [M::V], digits: &[M::V], x: M::V) {
    for (i, &digit) in digits.iter().enumerate() {
        columns[i] = m.madd_lo(columns[i], digit, x);
        columns[i + 1] = m.madd_hi(columns[i + 1], digit, x);
    }
}

/// Adds multiples of the first digits `n` of a modulus to columns `t` that make the first [`BLOCK`]
/// of them multiples of 2^52, and their carries to the column after them. Out: the multiples, and
/// the quotient of the column after them if it `goes_on`.
///
/// Rows in pairs, so that a digit of n is read once for four products.
fn rows<M: Machine>(
    m: &mut M,
    t: &mut [M::V],
    n: &[M::V],
    k0: M::V,
    (mut next, goes_on): (Quotient<M::V>, bool),
    mut beside: impl FnMut(&mut M, &mut [M::V], Place, usize),
) -> (Vec<M::V>, Quotient<M::V>) {
    let mut factors = Vec::with_capacity(BLOCK);
    for i in (0..BLOCK).step_by(2) {
        // The column of each next row is completed first. Its quotient digit takes several cycles,
        // and CPUs start the oldest instruction that is ready: so it must be older than the rest of
        // this row, or the next row would wait for it.
        let (q0, carry) = next;
        let carry = m.madd_hi(carry, n[0], q0);
        t[i + 1] = m.madd_lo(t[i + 1], n[1], q0);
        t[i + 1] = m.add(t[i + 1], carry);
        let (q1, carry) = quotient(m, t[i + 1], k0);
        t[i + 2] = m.madd_hi(t[i + 2], n[1], q0);
        t[i + 2] = m.madd_lo(t[i + 2], n[2], q0);
        let carry = m.madd_hi(carry, n[0], q1);
        t[i + 2] = m.madd_lo(t[i + 2], n[1], q1);
        t[i + 2] = m.add(t[i + 2], carry);
        if i + 2 < BLOCK || goes_on {
            next = quotient(m, t[i + 2], k0);
        }
        beside(m, t, Place::AfterQuotients, i / 2);
        t[i + 3] = m.madd_hi(t[i + 3], n[1], q1);
        for (j, &digit) in n.iter().enumerate().skip(2) {
            if j > 2 {
                t[i + j] = m.madd_lo(t[i + j], digit, q0);
            }
            t[i + j + 1] = m.madd_hi(t[i + j + 1], digit, q0);
            t[i + j + 1] = m.madd_lo(t[i + j + 1], digit, q1);
            t[i + j + 2] = m.madd_hi(t[i + j + 2], digit, q1);
        }
        factors.extend([q0, q1]);
        beside(m, t, Place::AfterRows, i / 2);
    }
    (factors, next)
}

/// Place of other work in a pair of rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Behind the operations for which the next quotient digits wait.
    AfterQuotients,
    AfterRows,
}

/// The quotient digit of a row, and the carry of its column.
type Quotient<V> = (V, V);

fn quotient<M: Machine>(m: &mut M, column: M::V, k0: M::V) -> Quotient<M::V> {
    let ones = m.splat(DIGIT_MASK);
    // t[i] + lo(n[0] q) is a multiple of 2^52, so its carry is t[i] / 2^52 rounded up. It is known
    // before q, and needs no multiplication.
    let up = m.add(column, ones);
    (m.mul_lo(column, k0), m.sra(up, DIGIT_BITS))
}

/// One block of the reduction with the first block of the modulus, after the addition of `a b`, of two
/// blocks, to columns `t`, of two blocks: the second of them with the carries of the first; and the
/// multiples of `n`. The product, which depends on no quotient, hides the latency from one quotient digit
/// to the next.
pub(crate) fn add_and_reduce_block<M: Machine>(
    m: &mut M,
    mut t: Vec<M::V>,
    [a, b]: [&[M::V]; 2],
    n: &[M::V],
    k0: M::V,
) -> (Vec<M::V>, Vec<M::V>) {
    // The first quotient of a pair of rows needs the product's row after the pair before.
    add_rows(m, &mut t, a, b, 0..3);
    let first = quotient(m, t[0], k0);
    let (factors, _) = rows(m, &mut t, n, k0, (first, false), |m, t, place, pair| {
        if place == Place::AfterQuotients {
            add_rows(m, t, a, b, 2 * pair + 3..BLOCK.min(2 * pair + 5));
        }
    });
    (t.split_off(BLOCK), factors)
}

/// Adds some rows of the product of two blocks to columns.
fn add_rows<M: Machine>(m: &mut M, t: &mut [M::V], a: &[M::V], b: &[M::V], rows: Range<usize>) {
    for (j, &b) in b.iter().enumerate() {
        for i in rows.clone() {
            t[i + j] = m.madd_lo(t[i + j], a[i], b);
            t[i + j + 1] = m.madd_hi(t[i + j + 1], a[i], b);
        }
    }
}

/// Columns of a non-negative number to digits below 2^52.
///
/// `why` is the reason that the number has no more digits than columns.
pub(crate) fn propagate<M: Machine>(m: &mut M, t: &[M::V], why: &'static str) -> Vec<M::V> {
    let ones = m.splat(DIGIT_MASK);
    let mut digits = Vec::with_capacity(t.len());
    let mut carry = None;
    for (i, &column) in t.iter().enumerate() {
        let column = match carry {
            Some(carry) => m.add(column, carry),
            None => column,
        };
        if i + 1 == t.len() {
            digits.push(m.claim(column, DIGIT_BITS, why));
        } else {
            carry = Some(m.sra(column, DIGIT_BITS));
            digits.push(m.and(column, ones));
        }
    }
    digits
}

/// `(a - b) mod n` in `[0, n)`, for `a` and `b` in `[0, 2 n)`.
pub(crate) fn subtract<M: Machine>(m: &mut M, a: &[M::V], b: &[M::V], n: &[M::V]) -> Vec<M::V> {
    let ones = m.splat(DIGIT_MASK);
    let columns: Vec<_> = (0..n.len())
        .map(|i| {
            let twice = m.add(n[i], n[i]);
            let sum = m.add(a[i], twice);
            m.sub(sum, b[i])
        })
        .collect();
    let mut x = propagate(m, &columns, "a - b + 2 n is below 4 n < 2^(52 d)");
    // From [0, 4 n) by subtracting 2 n, then n, each where it leaves no borrow.
    for doubled in [true, false] {
        let mut borrow = None;
        let mut y = Vec::with_capacity(x.len());
        for (&digit, &modulus) in x.iter().zip(n) {
            let modulus = if doubled { m.add(modulus, modulus) } else { modulus };
            let mut column = m.sub(digit, modulus);
            if let Some(borrow) = borrow {
                column = m.add(column, borrow);
            }
            borrow = Some(m.sra(column, DIGIT_BITS));
            y.push(m.and(column, ones));
        }
        // The sign is 0 where x was large enough and all ones where it was not.
        let sign = borrow.expect("a modulus has digits");
        let zero = m.splat(0);
        let keep = m.eq(sign, zero);
        x = x.iter().zip(&y).map(|(&x, &y)| m.select(keep, y, x)).collect();
    }
    x
}

/// Some digits of entry `index` of a table of `entries`, read from all of them: `digits` reads those of an
/// entry.
pub(crate) fn look_up<M: Machine>(
    m: &mut M,
    index: M::V,
    entries: usize,
    digits: impl Fn(&mut M, usize) -> Vec<M::V>,
) -> Vec<M::V> {
    let mut found = digits(m, 0);
    if m.has_few_registers() {
        // There, a choice between two vectors costs more than the bits of one.
        let zero = m.splat(0);
        found.fill(zero);
        for entry in 0..entries {
            let number = m.splat(entry as u64);
            let hit = m.eq(index, number);
            for (found, digit) in found.iter_mut().zip(digits(m, entry)) {
                let digit = m.select(hit, digit, zero);
                *found = m.or(*found, digit);
            }
        }
        return found;
    }
    for entry in 1..entries {
        let number = m.splat(entry as u64);
        let hit = m.eq(index, number);
        for (found, digit) in found.iter_mut().zip(digits(m, entry)) {
            *found = m.select(hit, digit, *found);
        }
    }
    found
}

/// One vector of an entry of a table of `2^masks.len()` entries: `digit` reads the vector of an
/// entry, mask `b` has the lanes in which bit `b` of the index is set.
pub(crate) fn choose<M: Machine>(m: &mut M, masks: &[M::M], digit: &mut impl FnMut(&mut M, usize) -> M::V) -> M::V {
    fn range<M: Machine>(
        m: &mut M,
        masks: &[M::M],
        from: usize,
        digit: &mut impl FnMut(&mut M, usize) -> M::V,
    ) -> M::V {
        let Some((&highest, lower)) = masks.split_last() else {
            return digit(m, from);
        };
        let no = range(m, lower, from, digit);
        let yes = range(m, lower, from + (1 << lower.len()), digit);
        m.select(highest, yes, no)
    }
    range(m, masks, 0, digit)
}

/// The first digits of `n` that a row of the reduction multiplies at once. With two blocks it takes
/// all digits, which hides the latency from one quotient digit to the next. With more blocks it
/// takes one, as more columns do not fit the registers.
fn near(d: usize) -> usize {
    if d <= 2 * BLOCK { d } else { BLOCK }
}

/// `x y` of two blocks by rows.
pub(crate) fn block_product<M: Machine>(m: &mut M, x: &[M::V], y: &[M::V]) -> Vec<M::V> {
    let zero = m.splat(0);
    let mut c = vec![zero; x.len() + y.len()];
    // Few registers hold a few rows and the columns in which they are.
    let together = if m.has_few_registers() { ROWS } else { 1 };
    for rows in (0..x.len()).step_by(together) {
        for (j, &y) in y.iter().enumerate() {
            for (i, &x) in x.iter().enumerate().skip(rows).take(together) {
                c[i + j] = m.madd_lo(c[i + j], x, y);
                c[i + j + 1] = m.madd_hi(c[i + j + 1], x, y);
            }
        }
    }
    c
}

/// `x^2` of a block, in the order in which its digits become known: products of unlike digits
/// first, doubled when their column is complete, then the squares. With few registers, a few rows at
/// a time.
pub(crate) fn block_square<M: Machine>(m: &mut M, x: &[M::V]) -> Vec<M::V> {
    let zero = m.splat(0);
    let mut c = vec![zero; 2 * x.len()];
    let few = m.has_few_registers();
    if few {
        for first in (0..x.len()).step_by(ROWS) {
            let last = x.len().min(first + ROWS);
            for i in 0..last {
                for j in first.max(i + 1)..last {
                    c[i + j] = m.madd_lo(c[i + j], x[i], x[j]);
                    c[i + j + 1] = m.madd_hi(c[i + j + 1], x[i], x[j]);
                }
            }
        }
    }
    for j in 0..=x.len() {
        if j < x.len() && !few {
            for i in 0..j {
                c[i + j] = m.madd_lo(c[i + j], x[i], x[j]);
                c[i + j + 1] = m.madd_hi(c[i + j + 1], x[i], x[j]);
            }
        }
        // After step j column j is complete; after the last one all are.
        let complete = if j < x.len() { j..j + 1 } else { x.len()..2 * x.len() };
        for k in complete {
            // Columns 0 and 2 d - 1 have no product of unlike digits.
            if k != 0 && k != 2 * x.len() - 1 {
                c[k] = m.add(c[k], c[k]);
            }
            let digit = x[k / 2];
            c[k] = if k % 2 == 0 {
                m.madd_lo(c[k], digit, digit)
            } else {
                m.madd_hi(c[k], digit, digit)
            };
        }
    }
    c
}

/// `x - y = digits + sign 2^(52 len)`: digits below 2^52, the sign 0 or -1.
struct Difference<V> {
    digits: Vec<V>,
    sign: V,
}

fn difference<M: Machine>(m: &mut M, x: &[M::V], y: &[M::V]) -> Difference<M::V> {
    let ones = m.splat(DIGIT_MASK);
    let mut sign = None;
    let mut digits = Vec::with_capacity(x.len());
    for (&x, &y) in x.iter().zip(y) {
        let mut column = m.sub(x, y);
        if let Some(borrow) = sign {
            column = m.add(column, borrow);
        }
        sign = Some(m.sra(column, DIGIT_BITS));
        digits.push(m.and(column, ones));
    }
    Difference {
        digits,
        sign: sign.expect("a block has digits"),
    }
}

/// Columns under construction. A column without a term costs nothing.
struct Columns<V> {
    columns: Vec<Option<V>>,
}

impl<V: Copy> Columns<V> {
    fn new(len: usize) -> Self {
        Self {
            columns: vec![None; len],
        }
    }

    fn add<M: Machine<V = V>>(&mut self, m: &mut M, at: usize, values: &[V]) {
        for (column, &value) in self.columns[at..].iter_mut().zip(values) {
            *column = Some(match *column {
                Some(sum) => m.add(sum, value),
                None => value,
            });
        }
    }

    fn sub<M: Machine<V = V>>(&mut self, m: &mut M, at: usize, values: &[V]) {
        for (column, &value) in self.columns[at..].iter_mut().zip(values) {
            let sum = column.unwrap_or_else(|| m.splat(0));
            *column = Some(m.sub(sum, value));
        }
    }

    fn finish<M: Machine<V = V>>(self, m: &mut M) -> Vec<V> {
        self.columns
            .into_iter()
            .map(|column| column.unwrap_or_else(|| m.splat(0)))
            .collect()
    }
}

/// Digits of the parts into which a number is divided: three blocks one by one, others in halves.
fn part(digits: usize) -> usize {
    match digits / BLOCK {
        3 => BLOCK,
        _ => digits / 2,
    }
}

/// All `i < j < count`.
fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).flat_map(move |i| (i + 1..count).map(move |j| (i, j)))
}
