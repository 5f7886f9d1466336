//! Points of P-256 and P-384 in Jacobian coordinates: `(X, Y, Z)` stands for `(X/Z^2, Y/Z^3)`, and
//! `Z = 0` for the point at infinity, whose `Z` here is a zero in every digit.
//!
//! The formulas are those of Cohen, Miyaji and Ono, "Efficient elliptic curve exponentiation using
//! mixed coordinates", ASIACRYPT 1998, section 2.1, with `a = -3` in the doubling. The sum is wrong
//! where both points are the same. Where one is the other's negative, only its `Z`, a multiple of
//! the modulus, is right. Callers must rule both out, and say why.

use super::curve::Curve;
use super::field::{Columns, Modulus, Number, Wide, constant, products, reduce, wides};
use crate::machine::{Array, Machine};

/// A point in Montgomery form.
#[derive(Clone, Debug)]
pub(super) struct Point<V> {
    pub(super) x: Number<V>,
    pub(super) y: Number<V>,
    pub(super) z: Number<V>,
}

/// The bit of an index that says that its digit is negative.
pub(super) const NEGATIVE: u64 = 1 << 8;

/// An entry of a table of points, positive or negative.
pub(super) struct Entry<V> {
    pub(super) x: Number<V>,
    pub(super) y: Number<V>,
    /// `None` for an affine point.
    pub(super) z: Option<Number<V>>,
    /// The index that chose it: a magnitude, plus [`NEGATIVE`] for a negative digit.
    pub(super) index: V,
}

impl<V: Copy> Entry<V> {
    /// The lanes whose digit is negative.
    fn negative<M: Machine<V = V>>(&self, m: &mut M) -> M::M {
        let sign = m.splat(NEGATIVE);
        m.test(self.index, sign)
    }

    /// The lanes whose digit is zero, which add no point.
    fn none<M: Machine<V = V>>(&self, m: &mut M) -> M::M {
        let magnitude = m.splat(NEGATIVE - 1);
        let magnitude = m.and(self.index, magnitude);
        let zero = m.splat(0);
        m.eq(magnitude, zero)
    }
}

impl<V: Copy> Point<V> {
    /// The point whose coordinates begin at vector `at` of an array.
    pub(super) fn load<M: Machine<V = V>>(m: &mut M, curve: Curve, array: Array, at: usize) -> Self {
        let d = curve.digits();
        let [x, y, z] = curve.below();
        Self {
            x: Number::load(m, array, at, d, x),
            y: Number::load(m, array, at + d, d, y),
            z: Number::load(m, array, at + 2 * d, d, z),
        }
    }

    pub(super) fn store<M: Machine<V = V>>(&self, m: &mut M, curve: Curve, array: Array) {
        let coordinates = [&self.x, &self.y, &self.z];
        for ((i, number), below) in coordinates.into_iter().enumerate().zip(curve.below()) {
            assert!(number.below <= below, "coordinate {i} of a point is too large");
            number.store(m, array, i * curve.digits());
        }
    }

    /// `2 self`. Points have odd order, so that there is no exception; infinity stays what it is.
    pub(super) fn double<M: Machine<V = V>>(&self, m: &mut M, curve: Curve) -> Self {
        let p = curve.prime();
        let Self { x, y, z } = self;
        let [delta, gamma, yz] = reduced(m, p, [(z, z), (y, y), (y, z)]);
        let gamma = gamma.carry(m, p);
        // alpha := 3 (X - delta) (X + delta)
        let minus = x.columns().sub(m, &delta).carry(m, p);
        let plus = x.columns().add(m, &delta);
        let plus = plus.double(m).add(m, &plus).carry(m, p);
        let [alpha, beta] = reduced(m, p, [(&minus, &plus), (x, &gamma)]);
        let alpha = alpha.carry(m, p);
        let beta4 = beta.double(m).double(m);
        // X3 := alpha^2 - 8 beta, Z3 := 2 Y Z
        let [square] = reduced(m, p, [(&alpha, &alpha)]);
        let z3 = yz.double(m).carry(m, p);
        let beta8 = beta4.double(m);
        let x3 = square.sub(m, &beta8).settle(m, p);
        // Y3 := alpha (4 beta - X3) - 8 gamma^2
        let rest = beta4.sub(m, &x3.columns()).carry(m, p);
        let [square, product] = wide(m, p, [(&gamma, &gamma), (&alpha, &rest)]);
        let y3 = product.sub_shifted(m, &square, 3);
        let y3 = reduce(m, &[p], vec![y3]).remove(0).settle(m, p);
        Self { x: x3, y: y3, z: z3 }
    }

    /// `self` plus or minus an entry of a table, where they are neither the same point nor
    /// opposite ones; either may be infinity.
    pub(super) fn add<M: Machine<V = V>>(&self, m: &mut M, curve: Curve, entry: &Entry<V>) -> Self {
        let p = curve.prime();
        let Self { x, y, z } = self;
        // U1 := X1 Z2^2, S1 := Y1 Z2^3, U2 := X2 Z1^2, S2 := Y2 Z1^3
        let (u1, s1, u2, s2, zz);
        match &entry.z {
            None => {
                let [z1z1] = reduced(m, p, [(z, z)]);
                let z1z1 = z1z1.carry(m, p);
                let [product, cube] = reduced(m, p, [(&entry.x, &z1z1), (z, &z1z1)]);
                u2 = product;
                let cube = cube.carry(m, p);
                [s2] = reduced(m, p, [(&entry.y, &cube)]);
                (u1, s1, zz) = (x.clone(), y.clone(), z.clone());
            }
            Some(z2) => {
                let [z1z1, z2z2, product] = reduced(m, p, [(z, z), (z2, z2), (z, z2)]);
                let (z1z1, z2z2) = (z1z1.carry(m, p), z2z2.carry(m, p));
                zz = product.carry(m, p);
                let [one, other] = reduced(m, p, [(x, &z2z2), (z2, &z2z2)]);
                u1 = one.carry(m, p);
                let cube2 = other.carry(m, p);
                let [one, other] = reduced(m, p, [(&entry.x, &z1z1), (z, &z1z1)]);
                u2 = one;
                let cube1 = other.carry(m, p);
                let [one, other] = reduced(m, p, [(y, &cube2), (&entry.y, &cube1)]);
                s1 = one.carry(m, p);
                s2 = other;
            }
        }
        let h = u2.sub(m, &u1.columns()).carry(m, p);
        let negative = entry.negative(m);
        let s2 = s2.negate(m, negative);
        let r = s2.sub(m, &s1.columns()).carry(m, p);
        // X3 := r^2 - H^3 - 2 U1 H^2, Z3 := Z1 Z2 H
        let [hh, rr, z3] = reduced(m, p, [(&h, &h), (&r, &r), (&zz, &h)]);
        let hh = hh.carry(m, p);
        let [hhh, v] = reduced(m, p, [(&h, &hh), (&u1, &hh)]);
        let x3 = rr.sub(m, &hhh);
        let twice = v.double(m);
        let x3 = x3.sub(m, &twice).settle(m, p);
        let z3 = z3.carry(m, p);
        // Y3 := r (U1 H^2 - X3) - S1 H^3
        let hhh = hhh.carry(m, p);
        let rest = v.sub(m, &x3.columns()).carry(m, p);
        let [one, other] = wide(m, p, [(&r, &rest), (&s1, &hhh)]);
        let y3 = one.sub_shifted(m, &other, 0);
        let y3 = reduce(m, &[p], vec![y3]).remove(0).settle(m, p);

        // The computed sum is right where neither is infinity.
        let zero = m.splat(0);
        let any = z.digits[1..].iter().fold(z.digits[0], |any, &digit| m.or(any, digit));
        let infinity = m.eq(any, zero);
        let negative = entry.negative(m);
        let entry_y = entry.y.negate(m, p, negative);
        let entry_z = match &entry.z {
            Some(z) => z.clone(),
            None => constant(m, &p.power_of_r(1)),
        };
        let none = entry.none(m);
        let mut choose = |sum: &Number<V>, entry_is: &Number<V>, own: &Number<V>| Number {
            digits: (0..curve.digits())
                .map(|i| {
                    let digit = m.select(infinity, entry_is.digits[i], sum.digits[i]);
                    m.select(none, own.digits[i], digit)
                })
                .collect(),
            below: sum.below.max(entry_is.below).max(own.below),
        };
        Self {
            x: choose(&x3, &entry.x, x),
            y: choose(&y3, &entry_y, y),
            z: choose(&z3, &entry_z, z),
        }
    }
}

/// Two factors.
type Pair<'a, V> = (&'a Number<V>, &'a Number<V>);

fn reduced<M: Machine, const N: usize>(m: &mut M, p: Modulus, factors: [Pair<'_, M::V>; N]) -> [Columns<M::V>; N] {
    let factors = factors.map(|(a, b)| (p, a, b));
    let reduced = products(m, &factors);
    reduced.try_into().unwrap_or_else(|_| unreachable!())
}

fn wide<M: Machine, const N: usize>(m: &mut M, p: Modulus, factors: [Pair<'_, M::V>; N]) -> [Wide<M::V>; N] {
    let factors = factors.map(|(a, b)| (p, a, b));
    let wide = wides(m, &factors);
    wide.try_into().unwrap_or_else(|_| unreachable!())
}
