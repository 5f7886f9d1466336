//! Kernels of Curve25519: what X25519 and Ed25519 are made of.
//!
//! Numbers are modulo p := 2^255 - 19 in five digits below 2^52, radix 2^51 (`field25519.rs`).
//! Limbs are 64 bits of a number or a scalar, four of them, least significant first.
//!
//! Points of the Edwards curve are four numbers (`edwards.rs`), scalars are modulo the order l of
//! the base point (`scalar25519.rs`). Here are the kernels by name, and the Montgomery ladder.

use crate::bounds::Holds;
use crate::edwards;
use crate::field25519::{
    DIGITS, Number, Product, add, carry, constant, freeze, from_limbs, load, load_limbs, mul,
    products, save, select, square, sub, sub_digits, to_limbs,
};
use crate::kernel::{ArraySpec, Source, store};
use crate::machine::{Array, DIGIT_BITS, Machine};
use crate::scalar25519 as scalar;

/// X25519 and Ed25519.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Curve25519 {
    /// A step of the Montgomery ladder. Arrays `state[20] swaps[1] x[5]`.
    LadderStep,
    /// `out := a^(2^n)`. Arrays `out[5] a[5]`.
    Square(usize),
    /// `out := a b`. Arrays `out[5] a[5] b[5]`.
    Mul,
    /// Adds or subtracts an entry of a table of the base point's multiples, with Z = 1. Arrays
    /// `point[20] table[240 / lanes] digit[1]`.
    BaseAdd,
    /// Begins the Montgomery ladder. Arrays `state[20] x[5] swaps[4] scalar[4] u[4]`.
    LadderStart,
    /// Ends the ladder with the fraction that is its result. Arrays `fraction[10] state[20]`.
    LadderEnd,
    /// `out := a` in `[0, p)`, as limbs. Arrays `out[4] a[5]`.
    Freeze,
    /// A scalar as digits for [`BaseAdd`](Self::BaseAdd). Arrays `digits[51] scalar[4]`.
    BaseDigits {
        /// Whether to clamp the scalar first, as X25519 does.
        clamp: bool,
    },
    /// The fraction that is u of a point. Arrays `fraction[10] point[20]`.
    ToMontgomery,
    /// A point as 32 bytes, and its x in `[0, p)`, from 1 / 2 Z. Arrays
    /// `out[4] x[5] inverse[5] point[20]`.
    Encode,
    /// Zero where a point is what those bytes encode, with this x. Arrays
    /// `out[1] encoded[4] x[5] point[20]`.
    Compare,
    /// `out := wide mod l`. Arrays `out[4] wide[8]`.
    ScalarReduce,
    /// `out := (a b + c) mod l`, for `a`, `b` and `c` below 2^256. Arrays
    /// `out[4] a[4] b[4] c[4]`.
    ScalarMulAdd,
    /// Begins to decode a point: y, u, v, u v^3, u v^7. Arrays `parts[25] encoded[4]`.
    DecodeStart,
    /// Ends it, from `power := (u v^7)^((p - 5) / 8)`, with the negative of the point, and 1 where
    /// the bytes encode one. Arrays `point[20] valid[1] encoded[4] parts[25] power[5]`.
    DecodeEnd,
    /// A scalar below 2^253 as digits for [`Add`](Self::Add). Arrays `digits[64] scalar[4]`.
    Digits,
    /// Doubles a point. Arrays `point[20]`.
    Double {
        /// Whether to compute T, which only additions need.
        t: bool,
    },
    /// A point in the form of a table's entries. Arrays `entry[20] point[20]`.
    ToEntry,
    /// Adds a point that has the form of an entry. Arrays `sum[20] point[20] entry[20]`.
    AddEntry,
    /// Adds or subtracts an entry, from 1 to 8, or nothing. Arrays
    /// `point[20] table[160] digit[1]`.
    Add,
}

impl Curve25519 {
    /// Digits of [`BaseDigits`](Self::BaseDigits), and tables of the base point.
    pub const BASE_WINDOWS: usize = 51;
    /// Digits of [`Digits`](Self::Digits).
    pub const WINDOWS: usize = 64;

    /// Every kernel of the family.
    pub(crate) fn all() -> Vec<Curve25519> {
        use Curve25519::*;
        vec![
            LadderStep,
            Square(1),
            Square(5),
            Square(10),
            Mul,
            BaseAdd,
            LadderStart,
            LadderEnd,
            Freeze,
            BaseDigits { clamp: false },
            BaseDigits { clamp: true },
            ToMontgomery,
            Encode,
            Compare,
            ScalarReduce,
            ScalarMulAdd,
            DecodeStart,
            DecodeEnd,
            Digits,
            Double { t: false },
            Double { t: true },
            Add,
            ToEntry,
            AddEntry,
        ]
    }

    /// The tables for [`BaseAdd`](Self::BaseAdd), one for each digit: of entry e of table w, the
    /// multiple (2 e + 1) 32^w of the base point, the 15 digits of y + x, y - x and 2 d x y; of
    /// each digit those of entries 0 to 15 side by side.
    pub fn base_tables() -> Vec<[u64; 240]> {
        crate::edwards::base_tables()
    }
}

impl Source for Curve25519 {
    fn name(self) -> String {
        use Curve25519::*;
        match self {
            LadderStep => "ladder51x5".to_owned(),
            Square(n) => format!("sqr51x5by{n}"),
            Mul => "mul51x5".to_owned(),
            BaseAdd => "base25519add".to_owned(),
            LadderStart => "ladder51x5start".to_owned(),
            LadderEnd => "ladder51x5end".to_owned(),
            Freeze => "freeze51x5".to_owned(),
            BaseDigits { clamp: false } => "base25519digits".to_owned(),
            BaseDigits { clamp: true } => "base25519clamped".to_owned(),
            ToMontgomery => "edwards25519to_u".to_owned(),
            Encode => "edwards25519encode".to_owned(),
            Compare => "edwards25519compare".to_owned(),
            ScalarReduce => "scalar25519reduce".to_owned(),
            ScalarMulAdd => "scalar25519muladd".to_owned(),
            DecodeStart => "edwards25519decode_start".to_owned(),
            DecodeEnd => "edwards25519decode_end".to_owned(),
            Digits => "scalar25519digits".to_owned(),
            Double { t: false } => "edwards25519double".to_owned(),
            Double { t: true } => "edwards25519double_t".to_owned(),
            ToEntry => "edwards25519to_entry".to_owned(),
            AddEntry => "edwards25519add_entry".to_owned(),
            Add => "edwards25519add".to_owned(),
        }
    }

    fn formula(self) -> &'static str {
        use Curve25519::*;
        match self {
            LadderStep => "state := double of one point, sum of both",
            Square(_) => "out := a^(2^n) mod p",
            Mul => "out := a b mod p",
            BaseAdd => "point := point + (2 digit - 31) table[0]",
            LadderStart => "state := (1, 0), (u, 1); x := u; swaps := changes of the scalar's bits",
            LadderEnd => "fraction := X, Z of the first point",
            Freeze => "out := a mod p, in [0, p)",
            BaseDigits { clamp: false } => "scalar = sum of (2 digits[i] - 31) 32^i mod l",
            BaseDigits { clamp: true } => "clamp(scalar) = sum of (2 digits[i] - 31) 32^i mod l",
            ToMontgomery => "fraction := Z + Y, Z - Y",
            Encode => "out := encoded point, inverse = 1 / 2 Z",
            Compare => "out := 0 if point = (x, y), encoded = y and the lowest bit of x",
            ScalarReduce => "out := wide mod l",
            ScalarMulAdd => "out := (a b + c) mod l",
            DecodeStart => "parts := y, u := y^2 - 1, v := d y^2 + 1, u v^3, u v^7",
            DecodeEnd => "point := -(x, y), x := sqrt(u / v); valid := whether there is one",
            Digits => "scalar = sum of (digits[i] - 8) 16^i",
            Double { .. } => "point := 2 point",
            ToEntry => "entry := 2 (Y + X), 2 (Y - X), 2 Z, 4 d T",
            AddEntry => "sum := point + entry",
            Add => "point := point + (digit - 8) table[0]",
        }
    }

    fn arrays(self, lanes: usize) -> Vec<ArraySpec> {
        use Curve25519::*;
        let read = |name, len| ArraySpec::read(name, len, NUMBER);
        let written = |name, len| ArraySpec::written(name, len, NUMBER);
        let limbs = |name| ArraySpec::read(name, 4, LIMBS);
        let limbs_written = |name| ArraySpec::written(name, 4, LIMBS);
        let bits = Holds::Bits;
        match self {
            LadderStep => vec![
                written("state", 20),
                ArraySpec::written("swaps", 1, LIMBS),
                read("x", 5),
            ],
            Square(_) => vec![written("out", 5), read("a", 5)],
            Mul => vec![written("out", 5), read("a", 5), read("b", 5)],
            BaseAdd => vec![
                written("point", 20),
                read("table", 240 / lanes),
                ArraySpec::read("digit", 1, bits(5)),
            ],
            LadderStart => vec![
                written("state", 20),
                written("x", 5),
                limbs_written("swaps"),
                limbs("scalar"),
                limbs("u"),
            ],
            LadderEnd => vec![written("fraction", 10), read("state", 20)],
            Freeze => vec![limbs_written("out"), read("a", 5)],
            BaseDigits { .. } => vec![
                ArraySpec::written("digits", Self::BASE_WINDOWS, bits(5)),
                limbs("scalar"),
            ],
            ToMontgomery => vec![written("fraction", 10), read("point", 20)],
            Encode => vec![
                limbs_written("out"),
                written("x", 5),
                read("inverse", 5),
                read("point", 20),
            ],
            Compare => vec![
                ArraySpec::written("out", 1, LIMBS),
                limbs("encoded"),
                read("x", 5),
                read("point", 20),
            ],
            ScalarReduce => vec![limbs_written("out"), ArraySpec::read("wide", 8, LIMBS)],
            ScalarMulAdd => vec![limbs_written("out"), limbs("a"), limbs("b"), limbs("c")],
            DecodeStart => vec![written("parts", 25), limbs("encoded")],
            DecodeEnd => vec![
                written("point", 20),
                ArraySpec::written("valid", 1, bits(1)),
                limbs("encoded"),
                read("parts", 25),
                read("power", 5),
            ],
            Digits => vec![
                ArraySpec::written("digits", Self::WINDOWS, bits(4)),
                limbs("scalar"),
            ],
            Double { .. } => vec![written("point", 20)],
            ToEntry => vec![written("entry", 20), read("point", 20)],
            AddEntry => vec![written("sum", 20), read("point", 20), read("entry", 20)],
            Add => vec![
                written("point", 20),
                read("table", 160),
                ArraySpec::read("digit", 1, bits(4)),
            ],
        }
    }

    fn run<M: Machine>(self, m: &mut M) {
        use Curve25519::*;
        match self {
            LadderStep => ladder_step(m),
            Square(n) => {
                let mut a = load(m, 1, 0);
                for _ in 0..n {
                    a = square(m, a);
                }
                save(m, 0, 0, a);
            }
            Mul => {
                let (a, b) = (load(m, 1, 0), load(m, 2, 0));
                let out = mul(m, a, b);
                save(m, 0, 0, out);
            }
            BaseAdd => edwards::base_add(m),
            LadderStart => ladder_start(m),
            LadderEnd => ladder_end(m),
            Freeze => {
                let a = load(m, 1, 0);
                let out = freeze(m, a);
                let out = to_limbs(m, out);
                store(m, 0, &out);
            }
            BaseDigits { clamp } => scalar::base_digits(m, clamp),
            ToMontgomery => edwards::to_montgomery(m),
            Encode => edwards::encode(m),
            Compare => edwards::compare(m),
            ScalarReduce => scalar::reduce(m),
            ScalarMulAdd => scalar::mul_add(m),
            DecodeStart => edwards::decode_start(m),
            DecodeEnd => edwards::decode_end(m),
            Digits => scalar::digits(m),
            Double { t } => edwards::double(m, t),
            ToEntry => edwards::to_entry(m),
            AddEntry => edwards::add_entry(m),
            Add => edwards::add(m),
        }
    }
}

/// RFC 7748, section 5: the scalar is clamped, the highest bit of u ignored.
///
/// The ladder's two points are R0 := (1, 0), the point at infinity, and R1 := (u, 1). A step for a
/// bit of the scalar doubles R0 or, for a 1, R1; what it puts first is the double. So which of the
/// two is doubled follows from whether the bit is the one before, `swaps`: bit t of it is bit t of
/// the scalar times two against the bit above.
fn ladder_start<M: Machine>(m: &mut M) {
    let clamped = load_limbs(m, 3);
    let clamped = scalar::clamp(m, clamped);
    // Limb by limb from the highest bit down, so the highest limb moves up by the bit that is 0.
    for i in 0..4 {
        let above = match i {
            3 => m.splat(0),
            _ => clamped[i + 1],
        };
        // Bit t + 1 in the place of bit t.
        let low = m.shr(clamped[i], 1);
        let high = m.shl(above, 63);
        let next = m.or(low, high);
        let mut swaps = m.xor(clamped[i], next);
        if i == 3 {
            swaps = m.shl(swaps, 1);
        }
        m.store(Array(2), i, swaps);
    }
    let u = load_limbs(m, 4);
    let u = from_limbs(m, u);
    save(m, 1, 0, u);
    let one = constant(m, [1, 0, 0, 0, 0]);
    save(m, 0, 0, one);
    save(m, 0, 1, one);
    let sum = add(m, u, one);
    let sum = carry(m, sum);
    save(m, 0, 2, sum);
    let difference = sub_digits(m, u, one);
    let difference = carry(m, difference);
    save(m, 0, 3, difference);
}

/// A step of the ladder (Montgomery, "Speeding the Pollard and elliptic curve methods of
/// factorization", Math. Comp. 48 (1987), section 10.3.1), with the names of RFC 7748, section 5.
///
/// Between steps the two points are X + Z and X - Z each, so that sums are carried once. The
/// points need not be exchanged: sum and difference of DA and CB look the same either way once
/// they are squared, and only the point to be doubled is to be chosen.
fn ladder_step<M: Machine>(m: &mut M) {
    let swaps = m.load(Array(1), 0);
    let highest = m.splat(1 << 63);
    let swap = m.test(swaps, highest);
    let swaps = m.shl(swaps, 1);
    m.store(Array(1), 0, swaps);

    let [a, b, c, d]: [Number<M::V>; 4] = std::array::from_fn(|i| load(m, 0, i));
    let s = select(m, swap, c, a);
    let t = select(m, swap, d, b);
    let [aa, bb] = products(m, [Product::square(s).biased(1), Product::square(t)]);
    let e = sub(m, aa, bb);
    let e = carry(m, e);
    let [da, cb] = products(m, [Product::of(d, a).biased(1), Product::of(c, b)]);
    let (aa, bb) = (carry(m, aa), carry(m, bb));
    // E = AA - BB, so AA + a24 E = BB + (a24 + 1) E.
    let g = add_small_product(m, bb, e, A24 + 1);
    let g = carry(m, g);
    let sum = add(m, da, cb);
    let sum = carry(m, sum);
    let difference = sub(m, da, cb);
    let difference = carry(m, difference);
    let [x2, z2] = products(m, [Product::of(aa, bb).biased(1), Product::of(e, g)]);
    let [square, x3] = products(
        m,
        [Product::square(difference), Product::square(sum).biased(1)],
    );
    let square = carry(m, square);
    for (i, point) in [add(m, x2, z2), sub(m, x2, z2)].into_iter().enumerate() {
        let point = carry(m, point);
        save(m, 0, i, point);
    }
    let x1 = load(m, 2, 0);
    let [z3] = products(m, [Product::of(x1, square)]);
    for (i, point) in [add(m, x3, z3), sub(m, x3, z3)].into_iter().enumerate() {
        let point = carry(m, point);
        save(m, 0, 2 + i, point);
    }
}

/// From X + Z and X - Z of the first point: the lowest bits of a clamped scalar are 0, so that
/// nothing is to be exchanged at the end. Both parts are doubled.
fn ladder_end<M: Machine>(m: &mut M) {
    let (a, b) = (load(m, 1, 0), load(m, 1, 1));
    let x = add(m, a, b);
    let x = carry(m, x);
    save(m, 0, 0, x);
    let z = sub_digits(m, a, b);
    let z = carry(m, z);
    save(m, 0, 1, z);
}

/// `a + factor b`, as columns, for digits and a factor below 2^20.
fn add_small_product<M: Machine>(
    m: &mut M,
    a: Number<M::V>,
    b: Number<M::V>,
    factor: u64,
) -> Number<M::V> {
    let zero = m.splat(0);
    let factor = m.splat(factor);
    let high = b.map(|digit| m.madd_hi(zero, digit, factor));
    std::array::from_fn(|i| {
        let sum = match i {
            0 => {
                let wrap = m.splat(2 * 19);
                m.madd_lo(a[0], high[DIGITS - 1], wrap)
            }
            _ => {
                let twice = m.add(high[i - 1], high[i - 1]);
                m.add(a[i], twice)
            }
        };
        m.madd_lo(sum, b[i], factor)
    })
}

/// (A - 2) / 4 of the Montgomery curve (RFC 7748, section 5).
const A24: u64 = 121_665;

const NUMBER: Holds = Holds::Bits(DIGIT_BITS);
const LIMBS: Holds = Holds::Bits(u64::BITS);
