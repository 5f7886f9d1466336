//! Points of the Edwards curve -x^2 + y^2 = 1 + d x^2 y^2 of Ed25519 (RFC 8032,
//! section 5.1), one point in each lane.
//!
//! Coordinates are extended (Hisil, Wong, Carter, Dawson, "Twisted Edwards curves revisited",
//! ASIACRYPT 2008): x = X/Z, y = Y/Z, x y = T/Z. A point is kept as Y + X, Y - X, 2 Z and T, with
//! which both addition and doubling begin. As d is not a square, addition is complete: it is right
//! for every pair of points, doubles and the neutral point included.

use crate::definition::store;
use crate::field25519::{
    Number, Product, add as sum, carry, constant, double as twice, freeze, from_limbs, load, load_limbs, modulus, mul,
    products, save, select, square, sub, sub_digits, to_limbs,
};
use crate::machine::{Array, Machine};
use crate::model::Model;
use crate::scalar25519::BASE_WINDOWS;
use std::sync::LazyLock;

/// Y + X, Y - X, 2 Z, T.
type Point<V> = [Number<V>; 4];

/// `point := point + (2 digit - 31) P`, for a table of the odd multiples of P with Z = 1.
pub(crate) fn base_add<M: Machine>(m: &mut M, point: Array, table: Array, digit: Array) {
    let digit = m.load(digit, 0);
    // From 16 on the digit says 2 (digit - 16) + 1: entry digit - 16. Below, it says the negative
    // of 2 (15 - digit) + 1.
    let sixteen = m.splat(16);
    let positive = m.test(digit, sixteen);
    let fifteen = m.splat(15);
    let mirrored = m.xor(digit, fifteen);
    let index = m.select(positive, digit, mirrored);
    // Registers of four lanes look up in two halves.
    let upper = (m.lanes() == 4).then(|| {
        let eight = m.splat(8);
        m.test(index, eight)
    });
    let entry: [Number<M::V>; 3] = std::array::from_fn(|coordinate| {
        std::array::from_fn(|i| {
            let per_row = 16 / m.lanes();
            let first = (5 * coordinate + i) * per_row;
            let row: Vec<_> = (0..per_row).map(|i| m.load(table, first + i)).collect();
            let low = m.pick2(row[0], row[1], index);
            match upper {
                Some(upper) => {
                    let high = m.pick2(row[2], row[3], index);
                    m.select(upper, high, low)
                }
                None => low,
            }
        })
    });
    let [plus, minus, t] = entry;
    let before = load_point(m, point);

    let [yes, no] = [plus, minus];
    let (plus, minus) = (select(m, positive, yes, no), select(m, positive, no, yes));
    let [b, a] = products(
        m,
        [Product::of(plus, before[0]).biased(1), Product::of(minus, before[1])],
    );
    let [c] = products(m, [Product::of(t, before[3])]);
    // 2 Z of the entry's Z = 1. Plus 608 p, as in a biased product.
    let bias = constant(m, std::array::from_fn(|i| 608 * modulus(i)));
    let d = sum(m, before[2], bias);
    let out = finish_add(m, [a, b, c, d], positive);
    save_point(m, point, out);
}

/// `fraction := Z + Y, Z - Y`, both doubled: the u of the Montgomery curve (RFC 7748, section 4.1).
pub(crate) fn to_montgomery<M: Machine>(m: &mut M, fraction: Array, point: Array) {
    let [plus, minus, z, _] = load_point(m, point);
    let y = sum(m, plus, minus);
    let y = carry(m, y);
    let numerator = sum(m, z, y);
    let numerator = carry(m, numerator);
    save(m, fraction, 0, numerator);
    let denominator = sub_digits(m, z, y);
    let denominator = carry(m, denominator);
    save(m, fraction, 1, denominator);
}

/// The encoding of a point (RFC 8032, section 5.1.2), and its x.
pub(crate) fn encode<M: Machine>(m: &mut M, [out, out_x]: [Array; 2], inverse: Array, point: Array) {
    let inverse = load(m, inverse, 0);
    let point = load_point(m, point);
    let [x, y] = doubled_xy(m, point);
    let [x, y] = products(m, [Product::of(x, inverse), Product::of(y, inverse)]);
    let (x, y) = (carry(m, x), carry(m, y));
    let (x, y) = (freeze(m, x), freeze(m, y));
    save(m, out_x, 0, x);
    let mut limbs = to_limbs(m, y);
    let sign = m.shl(x[0], 63);
    limbs[3] = m.or(limbs[3], sign);
    store(m, out, &limbs);
}

/// Zero where `2 X = x 2 Z`, `2 Y = y 2 Z`, and the sign of the encoding is that of x.
pub(crate) fn compare<M: Machine>(m: &mut M, out: Array, [encoded, x, point]: [Array; 3]) {
    let encoded = load_limbs(m, encoded);
    let y = from_limbs(m, encoded);
    let x = load(m, x, 0);
    let point = load_point(m, point);
    let found = doubled_xy(m, point);
    let expected = products(m, [Product::of(x, point[2]), Product::of(y, point[2])]);
    let sign = m.shr(encoded[3], 63);
    let sign = m.xor(sign, x[0]);
    let one = m.splat(1);
    let mut all = m.and(sign, one);
    for (found, expected) in found.into_iter().zip(expected) {
        let expected = carry(m, expected);
        let difference = sub_digits(m, found, expected);
        let difference = carry(m, difference);
        for digit in freeze(m, difference) {
            all = m.or(all, digit);
        }
    }
    m.store(out, 0, all);
}

/// RFC 8032, section 5.1.3, steps 1 and 2 up to the power: y, u = y^2 - 1, v = d y^2 + 1, u v^3 and
/// u v^7.
pub(crate) fn decode_start<M: Machine>(m: &mut M, parts: Array, encoded: Array) {
    let encoded = load_limbs(m, encoded);
    let y = from_limbs(m, encoded);
    let y2 = square(m, y);
    let one = constant(m, ONE);
    let u = sub_digits(m, y2, one);
    let u = carry(m, u);
    let d = constant(m, curve_constant());
    let dy2 = mul(m, d, y2);
    let v = sum(m, dy2, one);
    let v = carry(m, v);
    let v2 = square(m, v);
    let [v3, v4] = products(m, [Product::of(v2, v), Product::square(v2)]);
    let (v3, v4) = (carry(m, v3), carry(m, v4));
    let uv3 = mul(m, u, v3);
    let uv7 = mul(m, uv3, v4);
    for (i, part) in [y, u, v, uv3, uv7].into_iter().enumerate() {
        save(m, parts, i, part);
    }
}

/// The rest of RFC 8032, section 5.1.3; the point that comes out is the negative.
pub(crate) fn decode_end<M: Machine>(m: &mut M, [out, out_valid]: [Array; 2], [encoded, parts, power]: [Array; 3]) {
    let encoded = load_limbs(m, encoded);
    let [y, u, v, uv3] = std::array::from_fn(|i| load(m, parts, i));
    let power = load(m, power, 0);
    let (zero, one) = (m.splat(0), m.splat(1));
    // 2. A candidate root.
    let x = mul(m, uv3, power);
    // 3. It is one if v x^2 = u; the root of -1 times it is if v x^2 = -u.
    let x2 = square(m, x);
    let vx2 = mul(m, v, x2);
    let minus = sub_digits(m, vx2, u);
    let minus = carry(m, minus);
    let plus = sum(m, vx2, u);
    let plus = carry(m, plus);
    let [minus, plus] = [minus, plus].map(|number| {
        let number = freeze(m, number);
        any(m, number)
    });
    let direct = m.eq(minus, zero);
    let root = constant(m, root_of_minus_one());
    let other = mul(m, x, root);
    let x = select(m, direct, x, other);
    let indirect = m.eq(plus, zero);
    let no = m.select(indirect, one, zero);
    let mut valid = m.select(direct, one, no);
    // 4. The sign; x = 0 has none.
    let x = freeze(m, x);
    let sign = m.shr(encoded[3], 63);
    let bits = any(m, x);
    let x_is_zero = m.eq(bits, zero);
    let unsigned = m.xor(sign, one);
    let signed = m.select(x_is_zero, unsigned, one);
    valid = m.and(valid, signed);
    // 1. A y from p on is invalid.
    let frozen = freeze(m, y);
    let mut differences = zero;
    for (y, frozen) in y.into_iter().zip(frozen) {
        let difference = m.xor(y, frozen);
        differences = m.or(differences, difference);
    }
    let canonical = m.eq(differences, zero);
    valid = m.select(canonical, valid, zero);
    m.store(out_valid, 0, valid);

    // The negative of the point has the other x.
    let parity = m.and(x[0], one);
    let same = m.eq(parity, sign);
    let none = constant(m, [0; 5]);
    let negative = sub_digits(m, none, x);
    let negative = carry(m, negative);
    let x = select(m, same, negative, x);
    let plus = sum(m, y, x);
    let plus = carry(m, plus);
    let minus = sub_digits(m, y, x);
    let minus = carry(m, minus);
    let t = mul(m, x, y);
    let z = constant(m, [2, 0, 0, 0, 0]);
    save_point(m, out, [plus, minus, z, t]);
}

/// `point := 2 point`, with T or without.
pub(crate) fn double<M: Machine>(m: &mut M, point: Array, with_t: bool) {
    let before = load_point(m, point);
    let twice = double_point(m, before, with_t);
    for (i, number) in twice.into_iter().enumerate() {
        if let Some(number) = number {
            save(m, point, i, number);
        }
    }
}

/// `entry := point` in the form of entries.
pub(crate) fn to_entry<M: Machine>(m: &mut M, out: Array, point: Array) {
    let point = load_point(m, point);
    let entry = entry(m, point);
    save_point(m, out, entry);
}

/// `sum := point + entry`.
pub(crate) fn add_entry<M: Machine>(m: &mut M, out: Array, point: Array, entry: Array) {
    let (point, entry) = (load_point(m, point), load_point(m, entry));
    let positive = everywhere(m);
    let sum = add_any(m, point, entry, positive);
    save_point(m, out, sum);
}

/// `point := point + (digit - 8) P`, for a table of 1 to 8 times P.
pub(crate) fn add<M: Machine>(m: &mut M, point: Array, table: Array, digit: Array) {
    let digit = m.load(digit, 0);
    let (eight, zero) = (m.splat(8), m.splat(0));
    let positive = m.test(digit, eight);
    let above = m.and(digit, eight);
    // |digit - 8|
    let above = m.xor(above, digit);
    let below = m.sub(eight, above);
    let size = m.select(positive, above, below);
    // The bits of |digit - 8| - 1 choose among entries, pairs of them, and fours.
    let seven = m.splat(7);
    let index = m.add(size, seven);
    let bits = [1, 2, 4].map(|bit| {
        let bit = m.splat(bit);
        m.test(index, bit)
    });
    let nothing = m.eq(size, zero);
    let neutral = [2, 2, 2, 0].map(|low| constant(m, [low, 0, 0, 0, 0]));
    let entry = std::array::from_fn(|coordinate| {
        std::array::from_fn(|i| {
            let mut digits: Vec<_> = (0..8)
                .map(|entry| m.load(table, 20 * entry + 5 * coordinate + i))
                .collect();
            for bit in bits {
                let pairs = digits.chunks_exact(2);
                digits = pairs.map(|pair| m.select(bit, pair[1], pair[0])).collect();
            }
            m.select(nothing, neutral[coordinate][i], digits[0])
        })
    });
    let before = load_point(m, point);
    let after = add_any(m, before, entry, positive);
    save_point(m, point, after);
}

/// `2 point`, with T only where an addition follows.
///
/// With S := Y + X and D := Y - X, doubling (section 3.3 of the paper) is, doubled and negated
/// where that saves something: E := S^2 - D^2, H := S^2 + D^2, G := 2 S D, F := (2 Z)^2 - G;
/// X := E F, Y := G H, Z := F G, T := E H.
fn double_point<M: Machine>(m: &mut M, [plus, minus, z, _]: Point<M::V>, with_t: bool) -> [Option<Number<M::V>>; 4] {
    let [s, d] = products(m, [Product::square(plus).biased(1), Product::square(minus)]);
    let [z, g] = products(m, [Product::square(z).biased(2), Product::of(plus, minus)]);
    let g = twice(m, g);
    let [e, f, g, h] = [sub(m, s, d), sub(m, z, g), g, sum(m, s, d)];
    let [e, f, g, h] = [e, f, g, h].map(|columns| carry(m, columns));
    let [x, y] = products(m, [Product::of(e, f), Product::of(g, h).biased(1)]);
    let (z, t) = if with_t {
        let [z, t] = products(m, [Product::of(f, g), Product::of(e, h)]);
        (z, Some(t))
    } else {
        let [z] = products(m, [Product::of(f, g)]);
        (z, None)
    };
    let point = [Some(sum(m, y, x)), Some(sub(m, y, x)), Some(twice(m, z)), t];
    point.map(|columns| columns.map(|columns| carry(m, columns)))
}

/// 2 (Y + X), 2 (Y - X), 2 Z, 4 d T: with all doubled, the product of both 2 Z is the D of
/// addition.
fn entry<M: Machine>(m: &mut M, [plus, minus, z, t]: Point<M::V>) -> Point<M::V> {
    let d = constant(m, curve_constant());
    let dt = mul(m, d, t);
    let dt = twice(m, dt);
    let entry = [twice(m, plus), twice(m, minus), z, twice(m, dt)];
    entry.map(|columns| carry(m, columns))
}

/// `point + entry`, or `point - entry` in the lanes that are not `positive`.
fn add_any<M: Machine>(m: &mut M, point: Point<M::V>, entry: Point<M::V>, positive: M::M) -> Point<M::V> {
    let [yes, no, z, t] = entry;
    let (plus, minus) = (select(m, positive, yes, no), select(m, positive, no, yes));
    let [b, a] = products(m, [Product::of(plus, point[0]).biased(1), Product::of(minus, point[1])]);
    let [d, c] = products(m, [Product::of(z, point[2]).biased(1), Product::of(t, point[3])]);
    finish_add(m, [a, b, c, d], positive)
}

/// Addition (section 3.1 of the paper) from A, B, C and D on; B and D are biased.
fn finish_add<M: Machine>(m: &mut M, parts: [Number<M::V>; 4], positive: M::M) -> Point<M::V> {
    let [a, b, c, d] = parts;
    let e = sub(m, b, a);
    let h = sum(m, b, a);
    let f = sub(m, d, c);
    let g = sum(m, d, c);
    let [e, f, g, h] = [e, f, g, h].map(|columns| carry(m, columns));
    // The negative of a point has the negative T, and so C.
    let (f, g) = (select(m, positive, f, g), select(m, positive, g, f));
    let [x, y] = products(m, [Product::of(e, f), Product::of(g, h).biased(1)]);
    let [z, t] = products(m, [Product::of(f, g), Product::of(e, h)]);
    let point = [sum(m, y, x), sub(m, y, x), twice(m, z), t];
    point.map(|columns| carry(m, columns))
}

/// 2 X and 2 Y.
fn doubled_xy<M: Machine>(m: &mut M, [plus, minus, ..]: Point<M::V>) -> [Number<M::V>; 2] {
    let x = sub_digits(m, plus, minus);
    let y = sum(m, plus, minus);
    [carry(m, x), carry(m, y)]
}

/// Zero where the number is, if it is in `[0, p)`.
fn any<M: Machine>(m: &mut M, number: Number<M::V>) -> M::V {
    let [first, rest @ ..] = number;
    rest.into_iter().fold(first, |all, digit| m.or(all, digit))
}

/// Every lane.
fn everywhere<M: Machine>(m: &mut M) -> M::M {
    let zero = m.splat(0);
    m.eq(zero, zero)
}

fn load_point<M: Machine>(m: &mut M, array: Array) -> Point<M::V> {
    std::array::from_fn(|i| load(m, array, i))
}

fn save_point<M: Machine>(m: &mut M, array: Array, point: Point<M::V>) {
    for (i, number) in point.into_iter().enumerate() {
        save(m, array, i, number);
    }
}

/// The tables of [`Curve25519::base_tables`](crate::Curve25519::base_tables), from RFC 8032's base
/// point, on one lane of the model.
pub(crate) fn base_tables() -> Vec<[u64; 240]> {
    let m = &mut host();
    let positive = everywhere(m);
    let mut points = Vec::new();
    let mut base = base_point(m);
    for _ in 0..BASE_WINDOWS {
        let twice = double_point(m, base, true).map(|number| number.expect("T was asked for"));
        let twice = entry(m, twice);
        let mut odd = base;
        for _ in 0..15 {
            points.push(odd);
            odd = add_any(m, odd, twice, positive);
        }
        points.push(odd);
        // 31 + 1 times the base point of this table.
        let one = entry(m, base);
        base = add_any(m, odd, one, positive);
    }
    // All inverses of 2 Z from that of their product (Montgomery 1987, section 10.3.1).
    let mut product = constant(m, ONE);
    let mut before = Vec::new();
    for point in &points {
        before.push(product);
        product = mul(m, product, point[2]);
    }
    let mut inverse = power(m, product, 255, 21);
    let mut tables = vec![[0; 240]; BASE_WINDOWS];
    for (at, (point, before)) in points.into_iter().zip(before).enumerate().rev() {
        let own = mul(m, inverse, before);
        inverse = mul(m, inverse, point[2]);
        let [x, y] = doubled_xy(m, point).map(|number| mul(m, number, own));
        let d = constant(m, curve_constant());
        let xy = mul(m, x, y);
        let dxy = mul(m, d, xy);
        let coordinates = [sum(m, y, x), sub_digits(m, y, x), twice(m, dxy)];
        for (i, columns) in coordinates.into_iter().enumerate() {
            let number = carry(m, columns);
            for (j, [digit]) in freeze(m, number).into_iter().enumerate() {
                tables[at / 16][16 * (5 * i + j) + at % 16] = digit;
            }
        }
    }
    tables
}

/// B: y = 4/5, x even (RFC 8032, section 5.1).
fn base_point(m: &mut Host) -> Point<[u64; 1]> {
    let five = constant(m, [5, 0, 0, 0, 0]);
    let fifth = power(m, five, 255, 21);
    let four = constant(m, [4, 0, 0, 0, 0]);
    let y = mul(m, four, fifth);
    let (one, d) = (constant(m, ONE), constant(m, curve_constant()));
    let y2 = square(m, y);
    let u = sub_digits(m, y2, one);
    let u = carry(m, u);
    let dy2 = mul(m, d, y2);
    let v = sum(m, dy2, one);
    let v = carry(m, v);
    let v = power(m, v, 255, 21);
    let x2 = mul(m, u, v);
    // A square to the power (p + 3) / 8 is a root of it or of its negative.
    let mut x = power(m, x2, 252, 2);
    let square = square(m, x);
    if freeze(m, square) != freeze(m, x2) {
        let root = constant(m, root_of_minus_one());
        x = mul(m, x, root);
    }
    x = freeze(m, x);
    if x[0][0] & 1 == 1 {
        let zero = constant(m, [0; 5]);
        x = sub_digits(m, zero, x);
        x = carry(m, x);
    }
    let plus = sum(m, y, x);
    let minus = sub_digits(m, y, x);
    let two = constant(m, [2, 0, 0, 0, 0]);
    [carry(m, plus), carry(m, minus), two, mul(m, x, y)]
}

/// d = -121665/121666.
fn curve_constant() -> [u64; 5] {
    static D: LazyLock<[u64; 5]> = LazyLock::new(|| {
        let m = &mut host();
        let [above, below, zero] = [121_665, 121_666, 0].map(|n| constant(m, [n, 0, 0, 0, 0]));
        let inverse = power(m, below, 255, 21);
        let d = mul(m, above, inverse);
        let d = sub_digits(m, zero, d);
        freeze_public(m, d)
    });
    *D
}

/// 2^((p - 1) / 4), as 2 is no square modulo p.
fn root_of_minus_one() -> [u64; 5] {
    static ROOT: LazyLock<[u64; 5]> = LazyLock::new(|| {
        let m = &mut host();
        let two = constant(m, [2, 0, 0, 0, 0]);
        let root = power(m, two, 253, 5);
        freeze_public(m, root)
    });
    *ROOT
}

/// A machine for public constants.
type Host = Model<'static, 'static, 1>;

fn host() -> Host {
    Model::new(&mut [], &[])
}

/// `a^(2^bits - less)`, for `less` below 2^64.
fn power(m: &mut Host, a: Number<[u64; 1]>, bits: usize, less: u64) -> Number<[u64; 1]> {
    let mut power = a;
    // The highest bit is 1, as are all but the lowest few.
    for bit in (0..bits - 1).rev() {
        power = square(m, power);
        if bit >= 64 || less.wrapping_neg() >> bit & 1 == 1 {
            power = mul(m, power, a);
        }
    }
    power
}

fn freeze_public(m: &mut Host, columns: Number<[u64; 1]>) -> [u64; 5] {
    let number = carry(m, columns);
    freeze(m, number).map(|[digit]| digit)
}

const ONE: [u64; 5] = [1, 0, 0, 0, 0];
