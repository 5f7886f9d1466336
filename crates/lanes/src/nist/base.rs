//! The multiples of the base points, computed when a program is built.

use super::curve::Curve;
use super::field::{Number, constant, leave};
use super::point::{Entry, Point};
use super::product;
use crate::machine::Machine;
use crate::model::Model;

/// A machine for public constants.
type Host = Model<'static, 'static, 1>;
type Lane = [u64; 1];

/// The table of the base point `G` that [`AddFixed`](super::Nist::AddFixed) reads: for each window
/// `i` of `w` bits, from the right, the multiples `e 2^(w i) G` for `e` from 1 to `2^(w - 1)`,
/// affine. Of each digit of both coordinates those of all entries, entry `e` at `e mod entries`.
pub(super) fn table(curve: Curve) -> Vec<u64> {
    let m = &mut Host::new(&mut [], &[]);
    let (p, d) = (curve.prime(), curve.digits());
    let r2 = constant(m, &p.power_of_r(2));
    let entered = |m: &mut Host, plain: &[u64]| {
        let plain = constant(m, plain);
        product(m, p, &plain, &r2)
    };
    let generator = curve.generator();
    let mut base = Point {
        x: entered(m, &generator[..d]),
        y: entered(m, &generator[d..]),
        z: constant(m, &p.power_of_r(1)),
    };
    base.x = base.x.columns().settle(m, p);
    let mut points = Vec::new();
    for _ in 0..curve.fixed_windows() {
        let one = Entry {
            x: base.x.clone(),
            y: base.y.clone(),
            z: Some(base.z.clone()),
            index: m.splat(1),
        };
        let mut multiple = base;
        for e in 1..=curve.fixed_entries() {
            multiple = kept(
                match e {
                    1 => multiple,
                    2 => multiple.double(m, curve),
                    _ => multiple.add(m, curve, &one),
                },
                curve,
            );
            points.push(multiple.clone());
        }
        base = kept(multiple.double(m, curve), curve);
    }

    // All inverses of Z from that of their product (Montgomery, Math. Comp. 48 (1987), section
    // 10.3.1).
    let mut all = constant(m, &p.power_of_r(1));
    let mut before = Vec::new();
    for point in &points {
        before.push(all.clone());
        all = product(m, p, &all, &point.z);
    }
    let mut inverse = inverted(m, curve, &all);
    let entries = curve.fixed_entries();
    let mut table = vec![0; points.len() * 2 * d];
    for (at, (point, before)) in points.iter().zip(before).enumerate().rev() {
        let own = product(m, p, &inverse, &before);
        inverse = product(m, p, &inverse, &point.z);
        let square = product(m, p, &own, &own);
        let cube = product(m, p, &square, &own);
        // Canonical, as each product may differ by a multiple of the prime.
        let [x, y] = [(&point.x, &square), (&point.y, &cube)].map(|(coordinate, factor)| {
            let coordinate = product(m, p, coordinate, factor);
            let plain: Vec<u64> = leave(m, p, &coordinate).into_iter().flatten().collect();
            entered(m, &plain)
        });
        let x = x.columns().settle(m, p);
        let (window, e) = (at / entries, at % entries + 1);
        let digits = x.digits.iter().chain(&y.digits);
        for (i, [digit]) in digits.enumerate() {
            table[(window * 2 * d + i) * entries + e % entries] = *digit;
        }
    }
    table
}

/// A point as kernels keep it between two calls.
fn kept(point: Point<Lane>, curve: Curve) -> Point<Lane> {
    let [x, y, z] = curve.below();
    let number = |number: Number<Lane>, below| {
        assert!(number.below <= below, "a coordinate is too large");
        Number { below, ..number }
    };
    Point {
        x: number(point.x, x),
        y: number(point.y, y),
        z: number(point.z, z),
    }
}

/// `1/x`: `x^(p - 2)`.
fn inverted(m: &mut Host, curve: Curve, x: &Number<Lane>) -> Number<Lane> {
    let p = curve.prime();
    let mut power = constant(m, &p.power_of_r(1));
    let mut exponent = p.digits();
    exponent[0] -= 2;
    for digit in exponent.iter().rev() {
        for bit in (0..52).rev() {
            power = product(m, p, &power, &power);
            if digit >> bit & 1 == 1 {
                power = product(m, p, &power, x);
            }
        }
    }
    power
}
