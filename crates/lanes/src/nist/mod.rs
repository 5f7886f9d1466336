//! The kernels of the curves P-256 and P-384, of which ECDH and ECDSA consist.
//!
//! Numbers are arrays of `d` vectors in radix 2^52, least significant digit first. `field.rs` has
//! their arithmetic, `invert.rs` inversions, `curve.rs` the constants, `point.rs` the formulas for
//! points, `table.rs` reads tables of points, and `base.rs` makes those of the base point.

mod base;
mod curve;
mod field;
mod invert;
mod point;
mod table;
#[cfg(test)]
mod tests;

use crate::bounds::Holds;
use crate::definition::{ArraySpec, kernels};
use crate::machine::{Array, DIGIT_BITS, Machine};
pub use curve::Curve;
use field::{Columns, Modulus, Number, UNIT, constant, leave, products, subtract_once};
use point::{Entry, Point};

kernels! {
    /// Kernels of one curve each.
    ///
    /// Points are `X[d] Y[d] Z[d]` in Jacobian coordinates and Montgomery form, as other kernels
    /// of the family leave them. "Plain" is out of Montgomery form and canonical. Residues in
    /// Montgomery form are below three times their modulus.
    pub enum Nist {
        /// Doubles a point in Jacobian coordinates.
        Double(curve: Curve) {
            name: "{curve}_double",
            formula: "point := 2 point",
            reference: "Cohen, Miyaji and Ono, ASIACRYPT 1998, section 2.1",
            arrays: { point: numbers_written(curve, 3) },
            body: |m| {
                let before = Point::load(m, curve, point, 0);
                before.double(m, curve).store(m, curve, point);
            },
        }
        /// The two points must not be the same or opposite ones.
        Add(curve: Curve) {
            name: "{curve}_add",
            formula: "point := point + other",
            reference: "Cohen, Miyaji and Ono, ASIACRYPT 1998, section 2.1",
            arrays: { point: numbers_written(curve, 3), other: numbers(curve, 3) },
            body: |m| {
                let before = Point::load(m, curve, point, 0);
                let Point { x, y, z } = Point::load(m, curve, other, 0);
                let entry = Entry { x, y, z: Some(z), index: m.splat(1) };
                before.add(m, curve, &entry).store(m, curve, point);
            },
        }
        /// The table has the first [`Nist::ENTRIES`] multiples of some point, entry `e` at
        /// `e mod ENTRIES`, each as [`Nist::Normalise`] leaves it. An index is the magnitude of a
        /// signed digit, plus [`Nist::NEGATIVE`] if it is negative. The two points must not be the
        /// same or opposite ones.
        AddOwn(curve: Curve) {
            name: "{curve}_addown",
            formula: "point := point + index table, every entry read",
            reference: "Cohen, Miyaji and Ono, ASIACRYPT 1998, section 2.1",
            arrays: {
                point: numbers_written(curve, 3),
                table: numbers(curve, 4 * Nist::ENTRIES),
                index: reads(1, INDEX),
            },
            body: |m| {
                let before = Point::load(m, curve, point, 0);
                let entry = table::own_entry(m, curve, table, index);
                before.add(m, curve, &entry).store(m, curve, point);
            },
        }
        /// Adds from a table of [`Curve::fixed_entries`] points that all lanes share. The table holds each digit of
        /// both affine coordinates for all entries together.
        AddFixed(curve: Curve) {
            name: "{curve}_addfixed",
            formula: "point := point + index table, every entry read",
            reference: "Cohen, Miyaji and Ono, ASIACRYPT 1998, section 2.1",
            arrays: {
                point: numbers_written(curve, 3),
                table: numbers(curve, 2 * curve.fixed_entries()).shared().public(),
                index: reads(1, INDEX),
            },
            body: |m| {
                let before = Point::load(m, curve, point, 0);
                let entry = table::fixed_entry(m, curve, table, index);
                before.add(m, curve, &entry).store(m, curve, point);
            },
        }
        /// Montgomery's product.
        Multiply(curve: Curve) {
            name: "{curve}_mul",
            formula: "out := a b / R mod p",
            reference: "Montgomery, Math. Comp. 44 (1985)",
            arrays: { out: numbers_written(curve, 1), a: numbers(curve, 1), b: numbers(curve, 1) },
            body: |m| {
                let [a, b] = [a, b].map(|array| residue(m, curve.prime(), array, 0));
                product(m, curve.prime(), &a, &b).store(m, out, 0);
            },
        }
        /// An entry is a point `X Y Z` and the product of the `Z` of all entries before it;
        /// `inverse` is the inverse of that product and `Z`. Of the point its affine coordinates
        /// remain, and the inverse for the entry before.
        Normalise(curve: Curve) {
            name: "{curve}_normalise",
            formula: "entry, inverse := (X / Z^2, Y / Z^3), inverse Z",
            reference: "Montgomery, Math. Comp. 48 (1987), section 10.3.1",
            arrays: { entry: numbers_written(curve, 4), inverse: numbers_written(curve, 1) },
            body: |m| {
                let (p, d) = (curve.prime(), curve.digits());
                let point = Point::load(m, curve, entry, 0);
                let before = residue(m, p, entry, 3 * d);
                let all = residue(m, p, inverse, 0);
                let parts = products(m, &[(p, &all, &before), (p, &all, &point.z)]);
                let own = parts[0].carry(m, p);
                parts[1].carry(m, p).store(m, inverse, 0);
                let square = product(m, p, &own, &own);
                let parts = products(m, &[(p, &own, &square), (p, &point.x, &square)]);
                let cube = parts[0].carry(m, p);
                parts[1].settle(m, p).store(m, entry, 0);
                product(m, p, &point.y, &cube).store(m, entry, d);
            },
        }
        /// Begins to invert `x` modulo `p`, in Montgomery form, and with a `count` of 2 also a number modulo `n`,
        /// plain.
        InvertBegin(curve: Curve, count: usize) {
            name: "{curve}_invertbegin{count}",
            formula: "state := what an inversion of x begins with",
            reference: "Bernstein and Yang, TCHES 2019(3), figure 10.1",
            arrays: {
                state: writes(count * invert::state_len(curve), DIGITS),
                x: numbers(curve, count),
            },
            body: |m| invert::begin(m, curve, count, state, x),
        }
        /// To be done [`Curve::inversion_turns`] times.
        InvertTurn(curve: Curve, count: usize) {
            name: "{curve}_invertturn{count}",
            formula: "state := state after 50 division steps",
            reference: "Bernstein and Yang, TCHES 2019(3), figure 10.2",
            arrays: { state: writes(count * invert::state_len(curve), DIGITS) },
            body: |m| {
                let moduli = invert::moduli(curve, count).into_iter().enumerate();
                let len = invert::state_len(curve);
                let load = |(i, modulus)| invert::State::load(m, modulus, state, i * len);
                let mut states: Vec<_> = moduli.map(load).collect();
                invert::turn(m, &mut states);
                for (i, after) in states.iter().enumerate() {
                    after.store(m, state, i * len);
                }
            },
        }
        /// Modulo `p`, and with a `count` of 2 also modulo `n`.
        InvertEnd(curve: Curve, count: usize) {
            name: "{curve}_invertend{count}",
            formula: "out := R / x",
            reference: "Bernstein and Yang, TCHES 2019(3), figure 10.1",
            arrays: {
                out: numbers_written(curve, count),
                state: reads(count * invert::state_len(curve), DIGITS),
            },
            body: |m| {
                for (i, modulus) in invert::moduli(curve, count).into_iter().enumerate() {
                    let at = i * invert::state_len(curve);
                    let last = invert::State::load(m, modulus, state, at);
                    last.result(m).store(m, out, i * curve.digits());
                }
            },
        }
        /// `out` is the point, then `defect := y^2 - x^3 + 3 x - b`, plain.
        Enter(curve: Curve) {
            name: "{curve}_enter",
            formula: "out := point and defect of affine coordinates",
            reference: "SP 800-186, section 3.2.1",
            arrays: { out: numbers_written(curve, 4), affine: numbers(curve, 2) },
            body: |m| enter(m, curve, out, affine),
        }
        /// `out` is `x`, `y` and their defect, all plain; `inverse` is `1/Z`.
        Leave(curve: Curve) {
            name: "{curve}_leave",
            formula: "out := affine coordinates and defect of a point",
            reference: "SP 800-186, section 3.2.1",
            arrays: {
                out: numbers_written(curve, 3),
                point: numbers(curve, 3),
                inverse: numbers(curve, 1),
            },
            body: |m| {
                let p = curve.prime();
                let point = Point::load(m, curve, point, 0);
                let inverse = residue(m, p, inverse, 0);
                let square = product(m, p, &inverse, &inverse);
                let cube = product(m, p, &square, &inverse);
                let x = product(m, p, &point.x, &square);
                let y = product(m, p, &point.y, &cube);
                let defect = defect(m, curve, &x, &y);
                for (i, number) in [x, y, defect].iter().enumerate() {
                    store_plain(m, p, number, out, i);
                }
            },
        }
        /// Into Montgomery form.
        EnterOrder(curve: Curve) {
            name: "{curve}_enterorder",
            formula: "out := a R mod n",
            reference: "Montgomery, Math. Comp. 44 (1985)",
            arrays: { out: numbers_written(curve, 1), a: numbers(curve, 1) },
            body: |m| {
                let n = curve.order();
                let a = plain(m, n, a, 0);
                let r2 = constant(m, &n.power_of_r(2));
                product(m, n, &a, &r2).store(m, out, 0);
            },
        }
        /// `r := x mod n`, `s := (e + r d) / k` and the defect, plain. `nonce` is `R/k` and `k`,
        /// `key` is `R d` and `d`; the defect is computed from the latter of each.
        Respond(curve: Curve) {
            name: "{curve}_respond",
            formula: "out := r, s and s k - e - r d",
            reference: "FIPS 186-5, section 6.4.1",
            arrays: {
                out: numbers_written(curve, 3),
                x: numbers(curve, 1),
                nonce: numbers(curve, 2),
                digest: numbers(curve, 1),
                key: numbers(curve, 2),
            },
            body: |m| respond(m, curve, out, [x, nonce, digest, key]),
        }
        /// Plain; `numbers` is `e`, `r` and `w`.
        Split(curve: Curve) {
            name: "{curve}_split",
            formula: "out := (e w / R, r w / R) mod n",
            reference: "FIPS 186-5, section 6.4.2",
            arrays: { out: numbers_written(curve, 2), numbers: numbers(curve, 3) },
            body: |m| {
                let n = curve.order();
                let e = plain(m, n, numbers, 0);
                let r = plain(m, n, numbers, n.len());
                let w = residue(m, n, numbers, 2 * n.len());
                let products = products(m, &[(n, &e, &w), (n, &r, &w)]);
                for (i, columns) in products.iter().enumerate() {
                    let canonical = canonical(m, n, columns);
                    canonical.store(m, out, i * n.len());
                }
            },
        }
        /// Plain, for the plain candidates `c` and `c'`: multiples of what must be zero or must not
        /// be.
        Match(curve: Curve) {
            name: "{curve}_match",
            formula: "out := (X - c Z^2, X - c' Z^2, Z) / R^2 mod p",
            reference: "FIPS 186-5, section 6.4.2",
            arrays: {
                out: numbers_written(curve, 3),
                point: numbers(curve, 3),
                candidates: numbers(curve, 2),
            },
            body: |m| {
                let p = curve.prime();
                let point = Point::load(m, curve, point, 0);
                let square = product(m, p, &point.z, &point.z);
                // X / R, as the candidates are plain.
                let one = one_plain(m, p);
                let x = products(m, &[(p, &point.x, &one)]).remove(0);
                for i in 0..2 {
                    let candidate = plain(m, p, candidates, i * p.len());
                    let product = products(m, &[(p, &candidate, &square)]).remove(0);
                    let difference = x.sub(m, &product).carry(m, p);
                    store_plain(m, p, &difference, out, i);
                }
                store_plain(m, p, &point.z, out, 2);
            },
        }
    }

    /// The kernels of one curve. Kernels that run alternately are neighbours.
    pub struct NistKernels for curve: Curve in CURVES {
        double: Double(curve),
        add_own: AddOwn(curve),
        add: Add(curve),
        add_fixed: AddFixed(curve),
        multiply: Multiply(curve),
        normalise: Normalise(curve),
        invert_begin: InvertBegin(curve, 1),
        invert_turn: InvertTurn(curve, 1),
        invert_end: InvertEnd(curve, 1),
        invert_both_begin: InvertBegin(curve, 2),
        invert_both_turn: InvertTurn(curve, 2),
        invert_both_end: InvertEnd(curve, 2),
        enter: Enter(curve),
        leave: Leave(curve),
        enter_order: EnterOrder(curve),
        respond: Respond(curve),
        split: Split(curve),
        matches: Match(curve),
    }
}

impl Nist {
    /// Bits of a signed digit for which [`Nist::AddOwn`] has a table.
    pub const WINDOW_BITS: usize = table::WINDOW_BITS;
    /// Entries of that table: magnitudes of a signed digit, zero apart.
    pub const ENTRIES: usize = table::ENTRIES;
    /// The bit of an index that says that its digit is negative.
    pub const NEGATIVE: u64 = point::NEGATIVE;
    /// Vectors of what a kernel of inversions keeps for one of them.
    pub fn inversion_len(curve: Curve) -> usize {
        invert::state_len(curve)
    }

    /// Multiples of the base point for each window of a scalar, as [`Nist::AddFixed`] reads them. Slow to compute: for
    /// build programs.
    pub fn base_table(curve: Curve) -> Vec<u64> {
        base::table(curve)
    }
}

/// An array of numbers that a kernel only reads.
fn numbers(curve: Curve, count: usize) -> ArraySpec {
    crate::definition::reads(count * curve.digits(), DIGITS)
}

/// An array of numbers that a kernel writes.
fn numbers_written(curve: Curve, count: usize) -> ArraySpec {
    crate::definition::writes(count * curve.digits(), DIGITS)
}

fn enter<M: Machine>(m: &mut M, curve: Curve, out: Array, affine: Array) {
    let p = curve.prime();
    let r2 = constant(m, &p.power_of_r(2));
    let [x, y] = [0, 1].map(|i| plain(m, p, affine, i * p.len()));
    let x = product(m, p, &x, &r2);
    let y = product(m, p, &y, &r2);
    let defect = defect(m, curve, &x, &y);
    // A factor of one brings the coordinates below what points are kept below.
    let one = constant(m, &p.power_of_r(1));
    let x = x.columns().settle(m, p);
    Point { x, y, z: one }.store(m, curve, out);
    store_plain(m, p, &defect, out, 3);
}

fn respond<M: Machine>(m: &mut M, curve: Curve, out: Array, [x, nonce, digest, key]: [Array; 4]) {
    let n = curve.order();
    let d = n.len();
    // r := x mod n, as x < p < 2 n.
    let x: Vec<_> = (0..d).map(|i| m.load(x, i)).collect();
    let r = Number {
        digits: subtract_once(m, n, &x),
        below: UNIT,
    };
    let inverse = residue(m, n, nonce, 0);
    let e = plain(m, n, digest, 0);
    let factor = residue(m, n, key, 0);
    // s := (e + r d) / k
    let sum = products(m, &[(n, &r, &factor)]).remove(0);
    let sum = sum.add(m, &e.columns()).carry(m, n);
    let s = products(m, &[(n, &sum, &inverse)]).remove(0);
    let s = canonical(m, n, &s);
    // Computes the equation again with the other forms of k and d.
    let r2 = constant(m, &n.power_of_r(2));
    let [k, key] = [nonce, key].map(|array| plain(m, n, array, d));
    let (k, key) = (product(m, n, &k, &r2), product(m, n, &key, &r2));
    let both = products(m, &[(n, &s, &k), (n, &r, &key)]);
    let defect = both[0].sub(m, &both[1]).sub(m, &e.columns()).carry(m, n);
    r.store(m, out, 0);
    s.store(m, out, d);
    store_plain(m, n, &defect, out, 2);
}

/// `y^2 - x (x^2 - 3) - b`, in Montgomery form.
fn defect<M: Machine>(m: &mut M, curve: Curve, x: &Number<M::V>, y: &Number<M::V>) -> Number<M::V> {
    let p = curve.prime();
    let three = {
        let mut three = vec![0; p.len()];
        three[0] = 3;
        p.shifted(&three, DIGIT_BITS as usize * p.len())
    };
    let three = constant(m, &three);
    let b = constant(m, &p.shifted(&curve.b(), DIGIT_BITS as usize * p.len()));
    let squares = products(m, &[(p, x, x), (p, y, y)]);
    let factor = squares[0].sub(m, &three.columns()).carry(m, p);
    let rest = products(m, &[(p, x, &factor)]).remove(0);
    let defect = squares[1].sub(m, &rest).sub(m, &b.columns());
    defect.carry(m, p)
}

/// A residue in Montgomery form, below three times the modulus.
fn residue<M: Machine>(m: &mut M, modulus: Modulus, array: Array, at: usize) -> Number<M::V> {
    Number::load(m, array, at, modulus.len(), 3 * UNIT)
}

/// A plain number below 2^256 or 2^384, and so below twice any modulus.
fn plain<M: Machine>(m: &mut M, modulus: Modulus, array: Array, at: usize) -> Number<M::V> {
    Number::load(m, array, at, modulus.len(), 2 * UNIT)
}

fn one_plain<M: Machine>(m: &mut M, modulus: Modulus) -> Number<M::V> {
    let mut one = vec![0; modulus.len()];
    one[0] = 1;
    constant(m, &one)
}

fn product<M: Machine>(m: &mut M, modulus: Modulus, a: &Number<M::V>, b: &Number<M::V>) -> Number<M::V> {
    let product = products(m, &[(modulus, a, b)]).remove(0).carry(m, modulus);
    assert!(product.below <= 2 * UNIT);
    product
}

/// Columns of a number below twice the modulus to canonical digits.
fn canonical<M: Machine>(m: &mut M, modulus: Modulus, columns: &Columns<M::V>) -> Number<M::V> {
    let number = columns.carry(m, modulus);
    assert!(number.below <= 2 * UNIT);
    Number {
        digits: subtract_once(m, modulus, &number.digits),
        below: UNIT,
    }
}

/// Writes number `i` of an array, plain.
fn store_plain<M: Machine>(m: &mut M, modulus: Modulus, number: &Number<M::V>, out: Array, i: usize) {
    let digits = leave(m, modulus, number);
    for (j, digit) in digits.into_iter().enumerate() {
        m.store(out, i * modulus.len() + j, digit);
    }
}

const DIGITS: Holds = Holds::Bits(DIGIT_BITS);
/// A magnitude and a sign.
const INDEX: Holds = Holds::Bits(9);
const CURVES: [Curve; 2] = Curve::ALL;
