//! The kernels of Curve25519, of which X25519 and Ed25519 consist, and the Montgomery ladder.
//!
//! Numbers are modulo p := 2^255 - 19 in five digits below 2^52, radix 2^51 (`field25519.rs`).
//! Limbs are 64 bits of a number or a scalar, four of them, least significant first. Points of the
//! Edwards curve are four numbers (`edwards.rs`), scalars are modulo the order l of the base point
//! (`scalar25519.rs`).

use crate::bounds::Holds;
use crate::definition::{kernels, store};
use crate::edwards;
use crate::field25519::{
    DIGITS, Number, Product, add, carry, constant, freeze, from_limbs, load, load_limbs, mul, products, save, select,
    square, sub, sub_digits, to_limbs,
};
use crate::machine::{Array, DIGIT_BITS, Machine};
use crate::scalar25519 as scalar;

kernels! {
    /// X25519 and Ed25519.
    pub enum Curve25519 {
        /// A step of the Montgomery ladder.
        LadderStep {
            name: "ladder51x5",
            formula: "state := double of one point, sum of both",
            reference: "Montgomery, Math. Comp. 48 (1987), section 10.3.1",
            arrays: { state: writes(20, NUMBER), swaps: writes(1, LIMBS), x: reads(5, NUMBER) },
            body: |m| ladder_step(m, state, swaps, x),
        }
        /// Squares a number `n` times.
        Square(n: usize) {
            name: "sqr51x5by{n}",
            formula: "out := a^(2^n) mod p",
            reference: "RFC 7748, section 5",
            arrays: { out: writes(5, NUMBER), a: reads(5, NUMBER) },
            body: |m| {
                let a = load(m, a, 0);
                let power = (0..n).fold(a, |a, _| square(m, a));
                save(m, out, 0, power);
            },
        }
        /// A product.
        Mul {
            name: "mul51x5",
            formula: "out := a b mod p",
            reference: "RFC 7748, section 5",
            arrays: { out: writes(5, NUMBER), a: reads(5, NUMBER), b: reads(5, NUMBER) },
            body: |m| {
                let (a, b) = (load(m, a, 0), load(m, b, 0));
                let product = mul(m, a, b);
                save(m, out, 0, product);
            },
        }
        /// Adds or subtracts an entry of a table of the base point's multiples, with Z = 1.
        BaseAdd {
            name: "base25519add",
            formula: "point := point + (2 digit - 31) table[0]",
            reference: "Hisil and others, ASIACRYPT 2008, section 3.1",
            arrays: {
                point: writes(20, NUMBER),
                table: reads(240, NUMBER).shared().public(),
                digit: reads(1, Holds::Bits(5)),
            },
            body: |m| edwards::base_add(m, point, table, digit),
        }
        /// Begins the Montgomery ladder.
        LadderStart {
            name: "ladder51x5start",
            formula: "state := (1, 0), (u, 1); x := u; swaps := changes of the scalar's bits",
            reference: "RFC 7748, section 5",
            arrays: {
                state: writes(20, NUMBER),
                x: writes(5, NUMBER),
                swaps: writes(4, LIMBS),
                scalar: reads(4, LIMBS),
                u: reads(4, LIMBS),
            },
            body: |m| ladder_start(m, [state, x, swaps], scalar, u),
        }
        /// Ends the ladder with the fraction that is its result.
        LadderEnd {
            name: "ladder51x5end",
            formula: "fraction := X, Z of the first point",
            reference: "RFC 7748, section 5",
            arrays: { fraction: writes(10, NUMBER), state: reads(20, NUMBER) },
            body: |m| ladder_end(m, fraction, state),
        }
        /// Converts a number to limbs.
        Freeze {
            name: "freeze51x5",
            formula: "out := a mod p, in [0, p)",
            reference: "RFC 7748, section 5",
            arrays: { out: writes(4, LIMBS), a: reads(5, NUMBER) },
            body: |m| {
                let a = load(m, a, 0);
                let frozen = freeze(m, a);
                let limbs = to_limbs(m, frozen);
                store(m, out, &limbs);
            },
        }
        /// Digits for `BaseAdd`.
        BaseDigits {
            name: "base25519digits",
            formula: "scalar = sum of (2 digits[i] - 31) 32^i mod l",
            reference: "RFC 8032, section 5.1",
            arrays: {
                digits: writes(Curve25519::BASE_WINDOWS, Holds::Bits(5)),
                scalar: reads(4, LIMBS),
            },
            body: |m| scalar::base_digits(m, digits, scalar, false),
        }
        /// Digits of a scalar of X25519, which is clamped first.
        BaseDigitsClamped {
            name: "base25519clamped",
            formula: "clamp(scalar) = sum of (2 digits[i] - 31) 32^i mod l",
            reference: "RFC 7748, section 5",
            arrays: {
                digits: writes(Curve25519::BASE_WINDOWS, Holds::Bits(5)),
                scalar: reads(4, LIMBS),
            },
            body: |m| scalar::base_digits(m, digits, scalar, true),
        }
        /// The fraction that is u of a point.
        ToMontgomery {
            name: "edwards25519to_u",
            formula: "fraction := Z + Y, Z - Y",
            reference: "RFC 7748, section 4.1",
            arrays: { fraction: writes(10, NUMBER), point: reads(20, NUMBER) },
            body: |m| edwards::to_montgomery(m, fraction, point),
        }
        /// A point as 32 bytes, and its x in `[0, p)`.
        Encode {
            name: "edwards25519encode",
            formula: "out := encoded point, inverse = 1 / 2 Z",
            reference: "RFC 8032, section 5.1.2",
            arrays: {
                out: writes(4, LIMBS),
                x: writes(5, NUMBER),
                inverse: reads(5, NUMBER),
                point: reads(20, NUMBER),
            },
            body: |m| edwards::encode(m, [out, x], inverse, point),
        }
        /// Zero where a point is what those bytes encode, with this x.
        Compare {
            name: "edwards25519compare",
            formula: "out := 0 if point = (x, y), encoded = y and the lowest bit of x",
            reference: "RFC 8032, section 5.1.2",
            arrays: {
                out: writes(1, LIMBS),
                encoded: reads(4, LIMBS),
                x: reads(5, NUMBER),
                point: reads(20, NUMBER),
            },
            body: |m| edwards::compare(m, out, [encoded, x, point]),
        }
        /// Reduces a number of 512 bits.
        ScalarReduce {
            name: "scalar25519reduce",
            formula: "out := wide mod l",
            reference: "RFC 8032, section 5.1.6, step 2",
            arrays: { out: writes(4, LIMBS), wide: reads(8, LIMBS) },
            body: |m| scalar::reduce(m, out, wide),
        }
        /// For `a`, `b` and `c` below 2^256.
        ScalarMulAdd {
            name: "scalar25519muladd",
            formula: "out := (a b + c) mod l",
            reference: "RFC 8032, section 5.1.6, step 5",
            arrays: {
                out: writes(4, LIMBS),
                a: reads(4, LIMBS),
                b: reads(4, LIMBS),
                c: reads(4, LIMBS),
            },
            body: |m| scalar::mul_add(m, out, [a, b, c]),
        }
        /// Begins to decode a point.
        DecodeStart {
            name: "edwards25519decode_start",
            formula: "parts := y, u := y^2 - 1, v := d y^2 + 1, u v^3, u v^7",
            reference: "RFC 8032, section 5.1.3, steps 1 and 2",
            arrays: { parts: writes(25, NUMBER), encoded: reads(4, LIMBS) },
            body: |m| edwards::decode_start(m, parts, encoded),
        }
        /// Ends it, from `power := (u v^7)^((p - 5) / 8)`, with the negative of the point, and 1
        /// where the bytes encode one.
        DecodeEnd {
            name: "edwards25519decode_end",
            formula: "point := -(x, y), x := sqrt(u / v); valid := whether there is one",
            reference: "RFC 8032, section 5.1.3, steps 2 to 4",
            arrays: {
                point: writes(20, NUMBER),
                valid: writes(1, Holds::Bits(1)),
                encoded: reads(4, LIMBS),
                parts: reads(25, NUMBER),
                power: reads(5, NUMBER),
            },
            body: |m| edwards::decode_end(m, [point, valid], [encoded, parts, power]),
        }
        /// Digits for `Add`, of a scalar below 2^253.
        Digits {
            name: "scalar25519digits",
            formula: "scalar = sum of (digits[i] - 8) 16^i",
            reference: "RFC 8032, section 5.1",
            arrays: {
                digits: writes(Curve25519::WINDOWS, Holds::Bits(4)),
                scalar: reads(4, LIMBS),
            },
            body: |m| scalar::digits(m, digits, scalar),
        }
        /// Doubles a point without T, which only additions need.
        Double {
            name: "edwards25519double",
            formula: "point := 2 point",
            reference: "Hisil and others, ASIACRYPT 2008, section 3.3",
            arrays: { point: writes(20, NUMBER) },
            body: |m| edwards::double(m, point, false),
        }
        /// Doubles a point, and computes T.
        DoubleT {
            name: "edwards25519double_t",
            formula: "point := 2 point",
            reference: "Hisil and others, ASIACRYPT 2008, section 3.3",
            arrays: { point: writes(20, NUMBER) },
            body: |m| edwards::double(m, point, true),
        }
        /// An entry from 1 to 8, or its negative, or nothing.
        Add {
            name: "edwards25519add",
            formula: "point := point + (digit - 8) table[0]",
            reference: "Hisil and others, ASIACRYPT 2008, section 3.1",
            arrays: {
                point: writes(20, NUMBER),
                table: reads(160, NUMBER),
                digit: reads(1, Holds::Bits(4)),
            },
            body: |m| edwards::add(m, point, table, digit),
        }
        /// A point in the form of a table's entries.
        ToEntry {
            name: "edwards25519to_entry",
            formula: "entry := 2 (Y + X), 2 (Y - X), 2 Z, 4 d T",
            reference: "Hisil and others, ASIACRYPT 2008, section 3.1",
            arrays: { entry: writes(20, NUMBER), point: reads(20, NUMBER) },
            body: |m| edwards::to_entry(m, entry, point),
        }
        /// A point that has the form of an entry.
        AddEntry {
            name: "edwards25519add_entry",
            formula: "sum := point + entry",
            reference: "Hisil and others, ASIACRYPT 2008, section 3.1",
            arrays: {
                sum: writes(20, NUMBER),
                point: reads(20, NUMBER),
                entry: reads(20, NUMBER),
            },
            body: |m| edwards::add_entry(m, sum, point, entry),
        }
    }

    /// The kernels of X25519 and Ed25519.
    pub struct Curve25519Kernels {
        ladder_step: LadderStep,
        square: Square(1),
        square5: Square(5),
        square10: Square(10),
        mul: Mul,
        base_add: BaseAdd,
        ladder_start: LadderStart,
        ladder_end: LadderEnd,
        freeze: Freeze,
        base_digits: BaseDigits,
        base_digits_clamped: BaseDigitsClamped,
        to_montgomery: ToMontgomery,
        encode: Encode,
        compare: Compare,
        scalar_reduce: ScalarReduce,
        scalar_mul_add: ScalarMulAdd,
        decode_start: DecodeStart,
        decode_end: DecodeEnd,
        digits: Digits,
        double: Double,
        double_t: DoubleT,
        add: Add,
        to_entry: ToEntry,
        add_entry: AddEntry,
    }
}

impl Curve25519 {
    /// Digits of [`BaseDigits`](Self::BaseDigits), and tables of the base point.
    pub const BASE_WINDOWS: usize = scalar::BASE_WINDOWS;
    /// Digits of [`Digits`](Self::Digits).
    pub const WINDOWS: usize = scalar::WINDOWS;

    /// The tables for [`BaseAdd`](Self::BaseAdd), one for each digit: of entry e of table w, the
    /// multiple (2 e + 1) 32^w of the base point, the 15 digits of y + x, y - x and 2 d x y; of
    /// each digit those of entries 0 to 15 side by side.
    pub fn base_tables() -> Vec<[u64; 240]> {
        edwards::base_tables()
    }
}

/// RFC 7748, section 5: the scalar is clamped, the highest bit of u ignored.
///
/// The ladder's two points are R0 := (1, 0), the point at infinity, and R1 := (u, 1). For a bit 0 of
/// the scalar a step doubles R0, for a bit 1 it doubles R1, and it writes the double first. So the
/// next step doubles the second point exactly where its bit differs from the bit before. `swaps`
/// holds these differences: the scalar XOR the scalar moved down by one bit.
fn ladder_start<M: Machine>(m: &mut M, [state, x, swaps]: [Array; 3], scalar: Array, u: Array) {
    let clamped = load_limbs(m, scalar);
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
        let mut changes = m.xor(clamped[i], next);
        if i == 3 {
            changes = m.shl(changes, 1);
        }
        m.store(swaps, i, changes);
    }
    let u = load_limbs(m, u);
    let u = from_limbs(m, u);
    save(m, x, 0, u);
    let one = constant(m, [1, 0, 0, 0, 0]);
    save(m, state, 0, one);
    save(m, state, 1, one);
    let sum = add(m, u, one);
    let sum = carry(m, sum);
    save(m, state, 2, sum);
    let difference = sub_digits(m, u, one);
    let difference = carry(m, difference);
    save(m, state, 3, difference);
}

/// A step of the ladder (Montgomery, "Speeding the Pollard and elliptic curve methods of
/// factorization", Math. Comp. 48 (1987), section 10.3.1), with the names of RFC 7748, section 5.
///
/// Between steps the two points are X + Z and X - Z each, so that sums are carried once. The
/// points need not be exchanged: an exchange changes only the sign of the difference of DA and CB,
/// which is squared. Only the point to double is selected.
fn ladder_step<M: Machine>(m: &mut M, state: Array, swaps: Array, x: Array) {
    let bits = m.load(swaps, 0);
    let highest = m.splat(1 << 63);
    let swap = m.test(bits, highest);
    let bits = m.shl(bits, 1);
    m.store(swaps, 0, bits);

    let [a, b, c, d]: [Number<M::V>; 4] = std::array::from_fn(|i| load(m, state, i));
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
    let [square, x3] = products(m, [Product::square(difference), Product::square(sum).biased(1)]);
    let square = carry(m, square);
    for (i, point) in [add(m, x2, z2), sub(m, x2, z2)].into_iter().enumerate() {
        let point = carry(m, point);
        save(m, state, i, point);
    }
    let x1 = load(m, x, 0);
    let [z3] = products(m, [Product::of(x1, square)]);
    for (i, point) in [add(m, x3, z3), sub(m, x3, z3)].into_iter().enumerate() {
        let point = carry(m, point);
        save(m, state, 2 + i, point);
    }
}

/// Ends the ladder from X + Z and X - Z of the first point: the lowest bits of a clamped scalar are 0, so that no
/// exchange is needed at the end. Both parts are doubled.
fn ladder_end<M: Machine>(m: &mut M, fraction: Array, state: Array) {
    let (a, b) = (load(m, state, 0), load(m, state, 1));
    let x = add(m, a, b);
    let x = carry(m, x);
    save(m, fraction, 0, x);
    let z = sub_digits(m, a, b);
    let z = carry(m, z);
    save(m, fraction, 1, z);
}

/// `a + factor b`, as columns, for digits and a factor below 2^20.
fn add_small_product<M: Machine>(m: &mut M, a: Number<M::V>, b: Number<M::V>, factor: u64) -> Number<M::V> {
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
