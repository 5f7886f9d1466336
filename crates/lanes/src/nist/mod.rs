//! Kernels of the curves P-256 and P-384: what ECDH and ECDSA are made of.
//!
//! Numbers are arrays of `d` vectors in radix 2^52, least significant digit first; `field.rs` has
//! their arithmetic, `point.rs` the formulas for points.

mod field;
mod point;
#[cfg(test)]
mod tests;

use crate::bounds::Holds;
use crate::kernel::{ArraySpec, Source};
use crate::machine::{Array, DIGIT_BITS, Machine};
use field::{Columns, Modulus, Number, UNIT, constant, from_hex, leave, products, subtract_once};
use point::{Entry, Point};

/// A curve `y^2 = x^3 - 3 x + b` modulo `p`, of order `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Curve {
    /// P-256: `d` is 5, `R := 2^260`.
    P256,
    /// P-384: `d` is 8, `R := 2^416`.
    P384,
}

/// Kernels of one curve each.
///
/// Points are `X[d] Y[d] Z[d]` in Jacobian coordinates and Montgomery form, as other kernels here
/// have left them; "plain" is out of Montgomery form and canonical. Residues in Montgomery form
/// are below twice their modulus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nist {
    /// `point := 2 point`. Arrays `point[3 d]`.
    Double(Curve),
    /// `point := point + index table`, for a table of the first [`Nist::ENTRIES`] multiples of
    /// some point, entry `e` at `e mod ENTRIES`. Arrays `point[3 d] table[ENTRIES 3 d] index[1]`.
    ///
    /// An index is the magnitude of a signed digit, plus [`Nist::NEGATIVE`] if it is negative. The
    /// two points must not be the same or opposite ones.
    Add(Curve),
    /// The same with a table of [`Nist::fixed_entries`] affine points that all lanes share.
    /// Arrays `point[3 d] table[entries 2 d / lanes] index[1]`: in the table stand, for each digit
    /// of both coordinates, those of all entries.
    AddFixed(Curve),
    /// `out := a b / R mod p`. Arrays `out[d] a[d] b[d]`.
    Multiply(Curve),
    /// `x := x^(2^times) / R^(2^times - 1) mod p`. Arrays `x[d]`.
    Square(Curve, usize),
    /// `out := a b / R` modulo `p` and modulo `n`. Arrays `out[2 d] a[2 d] b[2 d]`.
    MultiplyBoth(Curve),
    /// `x := x^16 y` modulo `p` and modulo `n`, in Montgomery form. Arrays `x[2 d] y[d] z[d]`, the
    /// two halves of the factor apart.
    PowerBoth(Curve),
    /// Plain affine coordinates to a point, and `defect := y^2 - x^3 + 3 x - b`, plain. Arrays
    /// `out[4 d] affine[2 d]`, `out` being point and defect.
    Enter(Curve),
    /// A point and `1/Z` to plain affine coordinates, and their `defect`. Arrays
    /// `out[3 d] point[3 d] inverse[d]`, `out` being `x`, `y` and defect.
    Leave(Curve),
    /// `out := a R mod n`. Arrays `out[d] a[d]`.
    EnterOrder(Curve),
    /// ECDSA's `r := x mod n` and `s := (e + r d) / k`, and `defect := s k - e - r d`, plain.
    /// Arrays `out[3 d] x[d] nonce[2 d] digest[d] key[2 d]`: `out` is `r`, `s` and defect, `nonce`
    /// is `R/k` and `k`, `key` is `R d` and `d`; the defect is computed from the latter of each.
    Respond(Curve),
    /// `out := (e w / R, r w / R) mod n`, plain. Arrays `out[2 d] numbers[3 d]`, these being `e`,
    /// `r` and `w`.
    Split(Curve),
    /// `out := (X - c Z^2, X - c' Z^2, Z) / R^2`, plain, for plain `c` and `c'`: multiples of what
    /// has to be zero or not. Arrays `out[3 d] point[3 d] candidates[2 d]`.
    Match(Curve),
}

impl Curve {
    /// Every curve.
    pub const ALL: [Self; 2] = [Self::P256, Self::P384];

    /// Digits of a number: `d`.
    pub fn digits(self) -> usize {
        self.prime().len()
    }

    /// The digits of `p - 2` (or `n - 2`, if `order`) as a number, least significant first: the
    /// exponent of inversion.
    pub fn inversion_exponent(self, order: bool) -> Vec<u64> {
        let modulus = if order { self.order() } else { self.prime() };
        let mut digits = modulus.digits();
        digits[0] -= 2;
        digits
    }

    /// The digits of `R mod p`, or `R mod n`: the number one in Montgomery form.
    pub fn one(self, order: bool) -> Vec<u64> {
        let modulus = if order { self.order() } else { self.prime() };
        modulus.power_of_r(1)
    }

    /// The digits of the base point's plain coordinates, `x` and `y`.
    pub fn generator(self) -> Vec<u64> {
        // SP 800-186, sections 3.2.1.3 and 3.2.1.4.
        let (x, y) = match self {
            Curve::P256 => (
                "6b17d1f2_e12c4247_f8bce6e5_63a440f2_77037d81_2deb33a0_f4a13945_d898c296",
                "4fe342e2_fe1a7f9b_8ee7eb4a_7c0f9e16_2bce3357_6b315ece_cbb64068_37bf51f5",
            ),
            Curve::P384 => (
                "aa87ca22_be8b0537_8eb1c71e_f320ad74_6e1d3b62_8ba79b98_59f741e0_82542a38_\
                 5502f25d_bf55296c_3a545e38_72760ab7",
                "3617de4a_96262c6f_5d9e98bf_9292dc29_f8f41dbd_289a147c_e9da3113_b5f0b8c0_\
                 0a60b1ce_1d7e819d_7a431d7c_90ea0e5f",
            ),
        };
        let d = self.digits();
        [from_hex(x, d), from_hex(y, d)].concat()
    }

    fn prime(self) -> Modulus {
        match self {
            Curve::P256 => Modulus::P256,
            Curve::P384 => Modulus::P384,
        }
    }

    fn order(self) -> Modulus {
        match self {
            Curve::P256 => Modulus::N256,
            Curve::P384 => Modulus::N384,
        }
    }

    fn b(self) -> Vec<u64> {
        // SP 800-186, sections 3.2.1.3 and 3.2.1.4.
        let text = match self {
            Curve::P256 => {
                "5ac635d8_aa3a93e7_b3ebbd55_769886bc_651d06b0_cc53b0f6_3bce3c3e_27d2604b"
            }
            Curve::P384 => {
                "b3312fa7_e23ee7e4_988e056b_e3f82d19_181d9c6e_fe814112_0314088f_5013875a_\
                 c656398d_8a2ed19d_2a85c8ed_d3ec2aef"
            }
        };
        from_hex(text, self.digits())
    }

    fn name(self) -> &'static str {
        match self {
            Curve::P256 => "p256",
            Curve::P384 => "p384",
        }
    }
}

impl Nist {
    /// Bits of a signed digit for which [`Nist::Add`] has a table.
    pub const WINDOW_BITS: usize = 5;
    /// Entries of that table: magnitudes of a signed digit, zero apart.
    pub const ENTRIES: usize = 1 << (Self::WINDOW_BITS - 1);
    /// The bit of an index that says that its digit is negative.
    pub const NEGATIVE: u64 = 1 << 8;
    /// Squarings of a long run that one kernel does.
    pub const RUN: usize = 4;

    /// Bits of a signed digit for which [`Nist::AddFixed`] has a table.
    pub fn fixed_bits(curve: Curve) -> usize {
        match curve {
            Curve::P256 => 7,
            Curve::P384 => 6,
        }
    }

    /// Entries of that table.
    pub fn fixed_entries(curve: Curve) -> usize {
        1 << (Self::fixed_bits(curve) - 1)
    }

    /// Every kernel of the family. Those that run by turns are neighbours.
    pub(crate) fn all() -> Vec<Nist> {
        let of = |curve| {
            [
                Nist::Double(curve),
                Nist::Add(curve),
                Nist::AddFixed(curve),
                Nist::PowerBoth(curve),
                Nist::Square(curve, Self::RUN),
                Nist::Square(curve, 1),
                Nist::Multiply(curve),
                Nist::MultiplyBoth(curve),
                Nist::Enter(curve),
                Nist::Leave(curve),
                Nist::EnterOrder(curve),
                Nist::Respond(curve),
                Nist::Split(curve),
                Nist::Match(curve),
            ]
        };
        Curve::ALL.into_iter().flat_map(of).collect()
    }

    /// The curve that the kernel is of.
    pub fn curve(self) -> Curve {
        match self {
            Nist::Double(curve)
            | Nist::Add(curve)
            | Nist::AddFixed(curve)
            | Nist::Multiply(curve)
            | Nist::Square(curve, _)
            | Nist::MultiplyBoth(curve)
            | Nist::PowerBoth(curve)
            | Nist::Enter(curve)
            | Nist::Leave(curve)
            | Nist::EnterOrder(curve)
            | Nist::Respond(curve)
            | Nist::Split(curve)
            | Nist::Match(curve) => curve,
        }
    }
}

impl Source for Nist {
    fn name(self) -> String {
        let operation = match self {
            Nist::Double(_) => "double",
            Nist::Add(_) => "add",
            Nist::AddFixed(_) => "addfixed",
            Nist::Multiply(_) => "mul",
            Nist::Square(_, times) => return format!("{}_square{times}", self.curve().name()),
            Nist::MultiplyBoth(_) => "mulboth",
            Nist::PowerBoth(_) => "powerboth",
            Nist::Enter(_) => "enter",
            Nist::Leave(_) => "leave",
            Nist::EnterOrder(_) => "enterorder",
            Nist::Respond(_) => "respond",
            Nist::Split(_) => "split",
            Nist::Match(_) => "match",
        };
        format!("{}_{operation}", self.curve().name())
    }

    fn formula(self) -> &'static str {
        match self {
            Nist::Double(_) => "point := 2 point",
            Nist::Add(_) => "point := point + index table, every entry read",
            Nist::AddFixed(_) => "point := point + index table, every entry read",
            Nist::Multiply(_) => "out := a b / R mod p",
            Nist::Square(..) => "x := x^(2^times) mod p, in Montgomery form",
            Nist::MultiplyBoth(_) => "out := a b / R mod p and mod n",
            Nist::PowerBoth(_) => "x := x^16 y mod p and mod n, in Montgomery form",
            Nist::Enter(_) => "out := point and defect of affine coordinates",
            Nist::Leave(_) => "out := affine coordinates and defect of a point",
            Nist::EnterOrder(_) => "out := a R mod n",
            Nist::Respond(_) => "out := r, s and s k - e - r d",
            Nist::Split(_) => "out := (e w / R, r w / R) mod n",
            Nist::Match(_) => "out := (X - c Z^2, X - c' Z^2, Z) / R^2 mod p",
        }
    }

    fn arrays(self, lanes: usize) -> Vec<ArraySpec> {
        let d = self.curve().digits();
        let read = |name, numbers| ArraySpec::read(name, numbers * d, DIGITS);
        let written = |name, numbers| ArraySpec::written(name, numbers * d, DIGITS);
        // A magnitude and a sign.
        let index = ArraySpec::read("index", 1, Holds::Bits(9));
        match self {
            Nist::Double(_) => vec![written("point", 3)],
            Nist::Add(_) => vec![written("point", 3), read("table", 3 * Self::ENTRIES), index],
            Nist::AddFixed(curve) => vec![
                written("point", 3),
                read("table", 2 * Self::fixed_entries(curve) / lanes),
                index,
            ],
            Nist::Multiply(_) => vec![written("out", 1), read("a", 1), read("b", 1)],
            Nist::Square(..) => vec![written("x", 1)],
            Nist::MultiplyBoth(_) => vec![written("out", 2), read("a", 2), read("b", 2)],
            Nist::PowerBoth(_) => vec![written("x", 2), read("y", 1), read("z", 1)],
            Nist::Enter(_) => vec![written("out", 4), read("affine", 2)],
            Nist::Leave(_) => vec![written("out", 3), read("point", 3), read("inverse", 1)],
            Nist::EnterOrder(_) => vec![written("out", 1), read("a", 1)],
            Nist::Respond(_) => vec![
                written("out", 3),
                read("x", 1),
                read("nonce", 2),
                read("digest", 1),
                read("key", 2),
            ],
            Nist::Split(_) => vec![written("out", 2), read("numbers", 3)],
            Nist::Match(_) => vec![written("out", 3), read("point", 3), read("candidates", 2)],
        }
    }

    fn run<M: Machine>(self, m: &mut M) {
        match self {
            Nist::Double(curve) => {
                let point = Point::load(m, curve, OUT, 0);
                point.double(m, curve).store(m, curve, OUT);
            }
            Nist::Add(curve) => {
                let point = Point::load(m, curve, OUT, 0);
                let entry = entry(m, curve);
                point.add(m, curve, &entry).store(m, curve, OUT);
            }
            Nist::AddFixed(curve) => {
                let point = Point::load(m, curve, OUT, 0);
                let entry = fixed_entry(m, curve);
                point.add(m, curve, &entry).store(m, curve, OUT);
            }
            Nist::Multiply(curve) => {
                let [a, b] = [1, 2].map(|array| residue(m, curve.prime(), Array(array), 0));
                product(m, curve.prime(), &a, &b).store(m, OUT, 0);
            }
            Nist::Square(curve, times) => {
                let mut x = residue(m, curve.prime(), OUT, 0);
                for _ in 0..times {
                    x = product(m, curve.prime(), &x, &x);
                }
                x.store(m, OUT, 0);
            }
            Nist::MultiplyBoth(curve) => {
                let [a, b] = [1, 2].map(|array| both(m, curve, Array(array)));
                let out = products_both(m, curve, [&a, &b]);
                store_both(m, curve, &out);
            }
            Nist::PowerBoth(curve) => {
                let mut x = both(m, curve, OUT);
                let y = [
                    residue(m, curve.prime(), Array(1), 0),
                    residue(m, curve.order(), Array(2), 0),
                ];
                for _ in 0..4 {
                    x = products_both(m, curve, [&x, &x]);
                }
                let x = products_both(m, curve, [&x, &y]);
                store_both(m, curve, &x);
            }
            Nist::Enter(curve) => enter(m, curve),
            Nist::Leave(curve) => {
                let p = curve.prime();
                let point = Point::load(m, curve, Array(1), 0);
                let inverse = residue(m, p, Array(2), 0);
                let square = product(m, p, &inverse, &inverse);
                let cube = product(m, p, &square, &inverse);
                let x = product(m, p, &point.x, &square);
                let y = product(m, p, &point.y, &cube);
                let defect = defect(m, curve, &x, &y);
                for (i, number) in [x, y, defect].iter().enumerate() {
                    store_plain(m, p, number, i);
                }
            }
            Nist::EnterOrder(curve) => {
                let n = curve.order();
                let a = plain(m, n, Array(1), 0);
                let r2 = constant(m, &n.power_of_r(2));
                product(m, n, &a, &r2).store(m, OUT, 0);
            }
            Nist::Respond(curve) => respond(m, curve),
            Nist::Split(curve) => {
                let n = curve.order();
                let e = plain(m, n, Array(1), 0);
                let r = plain(m, n, Array(1), n.len());
                let w = residue(m, n, Array(1), 2 * n.len());
                let out = products(m, &[(n, &e, &w), (n, &r, &w)]);
                for (i, columns) in out.iter().enumerate() {
                    let canonical = canonical(m, n, columns);
                    canonical.store(m, OUT, i * n.len());
                }
            }
            Nist::Match(curve) => {
                let p = curve.prime();
                let point = Point::load(m, curve, Array(1), 0);
                let square = product(m, p, &point.z, &point.z);
                // X / R, as the candidates are plain.
                let one = one_plain(m, p);
                let x = products(m, &[(p, &point.x, &one)]).remove(0);
                for i in 0..2 {
                    let candidate = plain(m, p, Array(2), i * p.len());
                    let product = products(m, &[(p, &candidate, &square)]).remove(0);
                    let difference = x.sub(m, &product).carry(m, p);
                    store_plain(m, p, &difference, i);
                }
                store_plain(m, p, &point.z, 2);
            }
        }
    }
}

/// The entry that each lane's index names, read from all of them.
fn entry<M: Machine>(m: &mut M, curve: Curve) -> Entry<M::V> {
    let index = m.load(Array(2), 0);
    let d = curve.digits();
    let mask = m.splat(Nist::ENTRIES as u64 - 1);
    let place = m.and(index, mask);
    let mut found: Vec<_> = (0..3 * d).map(|i| m.load(Array(1), i)).collect();
    for e in 1..Nist::ENTRIES {
        let number = m.splat(e as u64);
        let hit = m.eq(place, number);
        for (i, found) in found.iter_mut().enumerate() {
            let digit = m.load(Array(1), e * 3 * d + i);
            *found = m.select(hit, digit, *found);
        }
    }
    let [x, y, z] = curve.below();
    let number = |i: usize, below| Number {
        digits: found[i * d..(i + 1) * d].to_vec(),
        below,
    };
    Entry {
        x: number(0, x),
        y: number(1, y),
        z: Some(number(2, z)),
        index,
    }
}

/// The same from a table that all lanes share.
fn fixed_entry<M: Machine>(m: &mut M, curve: Curve) -> Entry<M::V> {
    let index = m.load(Array(2), 0);
    let (d, entries, lanes) = (curve.digits(), Nist::fixed_entries(curve), m.lanes());
    // A pick chooses from two vectors by the lowest bits of the index; the higher bits choose
    // from the picks.
    let span = 2 * lanes;
    let mut masks = Vec::new();
    let mut bit = span;
    while bit < entries {
        let bits = m.splat(bit as u64);
        masks.push(m.test(index, bits));
        bit *= 2;
    }
    let digit = |m: &mut M, i: usize| {
        let mut picks: Vec<_> = (0..entries / span)
            .map(|k| {
                let at = (i * entries + k * span) / lanes;
                let (low, high) = (m.load(Array(1), at), m.load(Array(1), at + 1));
                m.pick2(low, high, index)
            })
            .collect();
        for &mask in &masks {
            picks = picks
                .chunks(2)
                .map(|pair| m.select(mask, pair[1], pair[0]))
                .collect();
        }
        picks[0]
    };
    let mut number = |i: usize| Number {
        digits: (i * d..(i + 1) * d).map(|i| digit(m, i)).collect(),
        below: curve.below()[i],
    };
    Entry {
        x: number(0),
        y: number(1),
        z: None,
        index,
    }
}

fn enter<M: Machine>(m: &mut M, curve: Curve) {
    let p = curve.prime();
    let r2 = constant(m, &p.power_of_r(2));
    let [x, y] = [0, 1].map(|i| plain(m, p, Array(1), i * p.len()));
    let x = product(m, p, &x, &r2);
    let y = product(m, p, &y, &r2);
    let defect = defect(m, curve, &x, &y);
    // A factor of one brings the coordinates below what points are kept below.
    let one = constant(m, &p.power_of_r(1));
    let x = x.columns().settle(m, p);
    Point { x, y, z: one }.store(m, curve, OUT);
    store_plain(m, p, &defect, 3);
}

fn respond<M: Machine>(m: &mut M, curve: Curve) {
    let n = curve.order();
    let d = n.len();
    // r := x mod n, as x < p < 2 n.
    let x: Vec<_> = (0..d).map(|i| m.load(Array(1), i)).collect();
    let r = Number {
        digits: subtract_once(m, n, &x),
        below: UNIT,
    };
    let inverse = residue(m, n, Array(2), 0);
    let e = plain(m, n, Array(3), 0);
    let key = residue(m, n, Array(4), 0);
    // s := (e + r d) / k
    let sum = products(m, &[(n, &r, &key)]).remove(0);
    let sum = sum.add(m, &e.columns()).carry(m, n);
    let s = products(m, &[(n, &sum, &inverse)]).remove(0);
    let s = canonical(m, n, &s);
    // The same equation with the other forms of k and d.
    let r2 = constant(m, &n.power_of_r(2));
    let [k, key] = [2, 4].map(|array| plain(m, n, Array(array), d));
    let (k, key) = (product(m, n, &k, &r2), product(m, n, &key, &r2));
    let both = products(m, &[(n, &s, &k), (n, &r, &key)]);
    let defect = both[0].sub(m, &both[1]).sub(m, &e.columns()).carry(m, n);
    r.store(m, OUT, 0);
    s.store(m, OUT, d);
    store_plain(m, n, &defect, 2);
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

/// A residue in Montgomery form, below twice the modulus.
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

fn product<M: Machine>(
    m: &mut M,
    modulus: Modulus,
    a: &Number<M::V>,
    b: &Number<M::V>,
) -> Number<M::V> {
    let product = products(m, &[(modulus, a, b)]).remove(0).carry(m, modulus);
    assert!(product.below <= 2 * UNIT);
    product
}

/// Residues modulo `p` and modulo `n`.
fn both<M: Machine>(m: &mut M, curve: Curve, array: Array) -> [Number<M::V>; 2] {
    let d = curve.digits();
    [
        residue(m, curve.prime(), array, 0),
        residue(m, curve.order(), array, d),
    ]
}

fn products_both<M: Machine>(
    m: &mut M,
    curve: Curve,
    [a, b]: [&[Number<M::V>; 2]; 2],
) -> [Number<M::V>; 2] {
    let (p, n) = (curve.prime(), curve.order());
    let out = products(m, &[(p, &a[0], &b[0]), (n, &a[1], &b[1])]);
    let out = [(p, 0), (n, 1)].map(|(modulus, i)| out[i].carry(m, modulus));
    assert!(out.iter().all(|number| number.below <= 2 * UNIT));
    out
}

fn store_both<M: Machine>(m: &mut M, curve: Curve, numbers: &[Number<M::V>; 2]) {
    for (i, number) in numbers.iter().enumerate() {
        number.store(m, OUT, i * curve.digits());
    }
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

/// Writes number `i` of the output array, plain.
fn store_plain<M: Machine>(m: &mut M, modulus: Modulus, number: &Number<M::V>, i: usize) {
    let digits = leave(m, modulus, number);
    for (j, digit) in digits.into_iter().enumerate() {
        m.store(OUT, i * modulus.len() + j, digit);
    }
}

/// The array that every kernel writes.
const OUT: Array = Array(0);

const DIGITS: Holds = Holds::Bits(DIGIT_BITS);
