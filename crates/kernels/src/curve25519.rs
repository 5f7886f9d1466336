//! Arithmetic on Curve25519 for `L` requests at once, one in each lane.

use widelane_lanes::{Curve25519 as Family, Curve25519Kernels};

use crate::arena::PageAligned;
use crate::assembled::{Callable, most_slots};
use crate::machine::Machine;

/// The kernels of X25519 and Ed25519 in one width.
///
/// Arrays are the bytes of keys, scalars and points as vectors of 64-bit limbs, least significant
/// first: 32 bytes are four vectors. Lane `l` of every array belongs to request `l`. Every method
/// needs working memory, `space` of [`space_len`](Self::space_len) vectors, in which it leaves
/// secrets behind. Every method is constant time in all lanes' values, and panics when an array has
/// another length than it says.
#[derive(Clone, Copy, Debug)]
pub struct Curve25519<const L: usize> {
    kernels: Curve25519Kernels<Callable<L>>,
}

impl<const L: usize> Curve25519<L> {
    /// Vectors of the table of [`base_multiple_less`](Self::base_multiple_less).
    pub const TABLE_LEN: usize = 8 * 4 * DIGITS;

    /// Kernels on a machine; `L` is 4 or 8.
    pub fn new(machine: impl Into<Machine<L>>) -> Self {
        let machine = machine.into();
        let kernels = Curve25519Kernels::new(|kernel| Callable::new(machine, kernel));
        Self { kernels }
    }

    /// `out := X25519(scalar, u)` of RFC 7748, section 5: four vectors each. The caller must refuse
    /// a result of zero.
    pub fn x25519(&self, out: &mut [[u64; L]], scalar: &[[u64; L]], u: &[[u64; L]], space: &mut [[u64; L]]) {
        let space = &mut Space::new(self, space);
        let swaps = &mut space.digits[..4];
        let (state, x) = space.numbers[..5].split_at_mut(4);
        let (state, x) = (state.as_flattened_mut(), x.as_flattened_mut());
        self.kernels
            .ladder_start
            .call([&mut *state, &mut *x, &mut *swaps], [scalar, u], space.scratch);
        for bit in (0..255).rev() {
            let swaps = &mut swaps[bit / 64..][..1];
            self.kernels
                .ladder_step
                .call([&mut *state, swaps], [&*x], space.scratch);
        }
        let fraction = space.parts[..10].as_mut();
        self.kernels.ladder_end.call([fraction], [&*state], space.scratch);
        space.divide(out);
    }

    /// `out := X25519(scalar, 9)`, the public share of a secret.
    pub fn x25519_base(&self, out: &mut [[u64; L]], scalar: &[[u64; L]], space: &mut [[u64; L]]) {
        let space = &mut Space::new(self, space);
        let digits = &mut space.digits[..Family::BASE_WINDOWS];
        self.kernels.base_digits_clamped.call([digits], [scalar], space.scratch);
        space.set_neutral();
        space.add_base();
        let point = space.numbers[..4].as_flattened();
        let fraction = space.parts[..10].as_mut();
        self.kernels.to_montgomery.call([fraction], [point], space.scratch);
        space.divide(out);
    }

    /// `out := [scalar]B` encoded, for a scalar below 2^255, and `x`, five vectors, for
    /// [`is_base_multiple`](Self::is_base_multiple).
    pub fn base_multiple(&self, out: &mut [[u64; L]], x: &mut [[u64; L]], scalar: &[[u64; L]], space: &mut [[u64; L]]) {
        let space = &mut Space::new(self, space);
        space.base_multiple(scalar);
        space.encode(out, x);
    }

    /// `out`, one vector, is 0 where `encoded` is `[scalar]B` and `x` its x.
    pub fn is_base_multiple(
        &self,
        out: &mut [[u64; L]],
        encoded: &[[u64; L]],
        x: &[[u64; L]],
        scalar: &[[u64; L]],
        space: &mut [[u64; L]],
    ) {
        let space = &mut Space::new(self, space);
        space.base_multiple(scalar);
        let point = space.numbers[..4].as_flattened();
        self.kernels.compare.call([out], [encoded, x, point], space.scratch);
    }

    /// `out := wide mod l`, from eight vectors to four; l is the order of B.
    pub fn scalar_reduce(&self, out: &mut [[u64; L]], wide: &[[u64; L]], space: &mut [[u64; L]]) {
        let space = Space::new(self, space);
        self.kernels.scalar_reduce.call([out], [wide], space.scratch);
    }

    /// `out := (a b + c) mod l`, for any four vectors each.
    pub fn scalar_mul_add(&self, out: &mut [[u64; L]], [a, b, c]: [&[[u64; L]]; 3], space: &mut [[u64; L]]) {
        let space = Space::new(self, space);
        self.kernels.scalar_mul_add.call([out], [a, b, c], space.scratch);
    }

    /// `out := [s]B - [k]A` encoded, for the point A that `key` encodes and scalars below 2^253;
    /// `valid`, one vector, is 1 where `key` encodes a point in canonical form, else 0. `table` is
    /// more working memory, [`TABLE_LEN`](Self::TABLE_LEN) vectors.
    pub fn base_multiple_less(
        &self,
        out: &mut [[u64; L]],
        valid: &mut [[u64; L]],
        [s, k, key]: [&[[u64; L]]; 3],
        table: &mut [[u64; L]],
        space: &mut [[u64; L]],
    ) {
        let space = &mut Space::new(self, space);
        space.decode_negative(valid, key);
        space.set_table(table);
        self.kernels.digits.call([&mut *space.digits], [k], space.scratch);
        space.set_neutral();
        for window in (0..Family::WINDOWS).rev() {
            let point = space.numbers[..4].as_flattened_mut();
            if window + 1 < Family::WINDOWS {
                for _ in 0..3 {
                    self.kernels.double.call([&mut *point], [], space.scratch);
                }
                self.kernels.double_t.call([&mut *point], [], space.scratch);
            }
            let digit = &space.digits[window..][..1];
            self.kernels.add.call([point], [&*table, digit], space.scratch);
        }
        let digits = &mut space.digits[..Family::BASE_WINDOWS];
        self.kernels.base_digits.call([digits], [s], space.scratch);
        space.add_base();
        let mut x = [[0; L]; DIGITS];
        space.encode(out, &mut x);
    }

    /// Vectors of working memory that every method needs.
    pub fn space_len(&self) -> usize {
        Family::WINDOWS + PARTS + NUMBERS * DIGITS + most_slots(self.kernels.each())
    }
}

/// Working memory, divided.
struct Space<'a, const L: usize> {
    kernels: &'a Curve25519Kernels<Callable<L>>,
    /// A scalar's digits, or another form of a scalar.
    digits: &'a mut [[u64; L]],
    /// Several numbers that one kernel writes and another one reads.
    parts: &'a mut [[u64; L]],
    /// Numbers, named by their places. The first four are a point.
    numbers: &'a mut [[[u64; L]; DIGITS]],
    scratch: &'a mut [[u64; L]],
}

impl<'a, const L: usize> Space<'a, L> {
    fn new(family: &'a Curve25519<L>, space: &'a mut [[u64; L]]) -> Self {
        let (digits, rest) = space.split_at_mut(Family::WINDOWS);
        let (parts, rest) = rest.split_at_mut(PARTS);
        let (numbers, scratch) = rest.split_at_mut(NUMBERS * DIGITS);
        Self {
            kernels: &family.kernels,
            digits,
            parts,
            numbers: numbers.as_chunks_mut().0,
            scratch,
        }
    }

    /// The point := the neutral one, (0, 1).
    fn set_neutral(&mut self) {
        let point = self.numbers[..4].as_flattened_mut();
        point.fill([0; L]);
        // Y + X, Y - X, 2 Z.
        for (number, value) in [1, 1, 2].into_iter().enumerate() {
            point[number * DIGITS] = [value; L];
        }
    }

    /// The point := `[scalar]B`.
    fn base_multiple(&mut self, scalar: &[[u64; L]]) {
        let digits = &mut self.digits[..Family::BASE_WINDOWS];
        self.kernels.base_digits.call([digits], [scalar], self.scratch);
        self.set_neutral();
        self.add_base();
    }

    /// Adds to the point the multiple of B that the digits say.
    fn add_base(&mut self) {
        let point = self.numbers[..4].as_flattened_mut();
        for (table, digit) in base_tables().zip(self.digits.chunks_exact(1)) {
            self.kernels.base_add.call([&mut *point], [table, digit], self.scratch);
        }
    }

    /// `out := ` the first of the parts by the second, both numbers.
    fn divide(&mut self, out: &mut [[u64; L]]) {
        let (fraction, _) = self.parts.as_chunks::<DIGITS>();
        [self.numbers[X], self.numbers[Y]] = [fraction[0], fraction[1]];
        self.power_250(Y);
        // p - 2 = 2^255 - 21 (Fermat); 0 stays 0.
        self.square(A, LONG, 5);
        self.mul(B, A, ELEVEN);
        self.mul(A, X, B);
        self.kernels.freeze.call([out], [&self.numbers[A]], self.scratch);
    }

    /// `out := ` the point encoded, and its x.
    fn encode(&mut self, out: &mut [[u64; L]], x: &mut [[u64; L]]) {
        self.power_250(Z);
        self.square(A, LONG, 5);
        self.mul(B, A, ELEVEN);
        let point = self.numbers[..4].as_flattened();
        self.kernels
            .encode
            .call([out, x], [&self.numbers[B], point], self.scratch);
    }

    /// The point := the negative of the one that is encoded.
    fn decode_negative(&mut self, valid: &mut [[u64; L]], encoded: &[[u64; L]]) {
        let parts = &mut self.parts[..25];
        self.kernels.decode_start.call([&mut *parts], [encoded], self.scratch);
        // (p - 5) / 8 = 2^252 - 3.
        self.numbers[X] = parts.as_chunks().0[4];
        self.power_250(X);
        self.square(A, LONG, 2);
        self.mul(B, A, X);
        let (point, rest) = self.numbers.split_at_mut(4);
        let point = point.as_flattened_mut();
        let read = [encoded, &self.parts[..25], &rest[B - 4]];
        self.kernels.decode_end.call([point, valid], read, self.scratch);
    }

    /// `table := ` 1 to 8 times the point.
    fn set_table(&mut self, table: &mut [[u64; L]]) {
        let k = self.kernels;
        let (point, rest) = self.numbers.split_at_mut(4);
        let point = point.as_flattened_mut();
        let sum = rest[..4].as_flattened_mut();
        let entries = table.as_chunks_mut::<{ 4 * DIGITS }>().0;
        k.to_entry.call([&mut entries[0]], [&*point], self.scratch);
        for number in 1..8 {
            k.add_entry.call([&mut *sum], [&*point, &entries[0]], self.scratch);
            point.copy_from_slice(sum);
            k.to_entry.call([&mut entries[number]], [&*point], self.scratch);
        }
    }

    fn mul(&mut self, out: usize, a: usize, b: usize) {
        let places = self.numbers.get_disjoint_mut([out, a, b]);
        let [out, a, b] = places.expect(DIFFERENT);
        self.kernels.mul.call([out], [a, b], self.scratch);
    }

    /// `out := a^(2^n)`.
    fn square(&mut self, out: usize, a: usize, n: usize) {
        let kernels = [
            (10, &self.kernels.square10),
            (5, &self.kernels.square5),
            (1, &self.kernels.square),
        ];
        // A kernel must not write where it reads: results alternate between two places, so that
        // the last one is in `out`.
        let mut calls = n / 10 + n % 10 / 5 + n % 5;
        let (mut from, mut left) = (a, n);
        while let Some((step, kernel)) = kernels.iter().find(|(step, _)| *step <= left) {
            calls -= 1;
            let to = if calls.is_multiple_of(2) { out } else { TURN };
            let places = self.numbers.get_disjoint_mut([to, from]);
            let [write, read] = places.expect(DIFFERENT);
            kernel.call([write], [read], self.scratch);
            (from, left) = (to, left - step);
        }
    }

    /// `LONG := a^(2^250 - 1)`, `ELEVEN := a^11`, and leaves all numbers before `A` as they are.
    fn power_250(&mut self, a: usize) {
        self.square(A, a, 1);
        self.square(B, A, 2);
        self.mul(NINE, B, a);
        self.mul(ELEVEN, NINE, A);
        self.square(A, ELEVEN, 1);
        // From here on the power is 2^n - 1.
        self.mul(B, A, NINE); // 5
        self.square(A, B, 5);
        self.mul(TEN, A, B); // 10
        self.square(A, TEN, 10);
        self.mul(B, A, TEN); // 20
        self.square(A, B, 20);
        self.mul(LONG, A, B); // 40
        self.square(A, LONG, 10);
        self.mul(B, A, TEN); // 50
        self.square(A, B, 50);
        self.mul(LONG, A, B); // 100
        self.square(A, LONG, 100);
        self.mul(TEN, A, LONG); // 200
        self.square(A, TEN, 50);
        self.mul(LONG, A, B); // 250
    }
}

/// The tables of the base point, in vectors.
fn base_tables<const L: usize>() -> impl Iterator<Item = &'static [[u64; L]]> {
    let (vectors, _) = BASE_TABLES.0.as_flattened().as_chunks::<L>();
    vectors.chunks_exact(240 / L)
}

/// `Family::base_tables`, computed when this crate was built.
static BASE_TABLES: PageAligned<[[u64; 240]; Family::BASE_WINDOWS]> =
    PageAligned(include!(concat!(env!("OUT_DIR"), "/base25519.rs")));

/// Digits of a number.
const DIGITS: usize = 5;
/// Vectors of the parts of a point under decoding.
const PARTS: usize = 5 * DIGITS;
const NUMBERS: usize = 13;

// Places of numbers: 2 Z of the point, two more, and what powers take.
const Z: usize = 2;
const X: usize = 4;
const Y: usize = 5;
const A: usize = 6;
const B: usize = 7;
const NINE: usize = 8;
const ELEVEN: usize = 9;
const TEN: usize = 10;
const LONG: usize = 11;
const TURN: usize = 12;

const DIFFERENT: &str = "the places are different";

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7748, section 5.2, the first vector, and section 6.1.
    #[test]
    fn the_model_computes_published_x25519() {
        let scalar = "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4";
        let u = "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c";
        let expected = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552";
        let (kernels, mut space, mut out) = model();
        kernels.x25519(&mut out, &hex(scalar), &hex(u), &mut space);
        assert_eq!(out, hex(expected));

        let secret = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a";
        let share = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a";
        kernels.x25519_base(&mut out, &hex(secret), &mut space);
        assert_eq!(out, hex(share));
    }

    /// y of the base point is 4/5 (RFC 8032, section 5.1), which is 0x66...6658.
    #[test]
    fn the_model_knows_multiples_of_the_base_point() {
        let (kernels, mut space, mut out) = model();
        let mut base = [[0x6666_6666_6666_6666; 4]; 4];
        base[0] = [0x6666_6666_6666_6658; 4];
        let mut x = [[0; 4]; DIGITS];
        kernels.base_multiple(&mut out, &mut x, &small(1), &mut space);
        assert_eq!(out, base);

        // Equal scalars give equal points, another scalar another point.
        let mut different = [[0; 4]];
        let scalar = small(1);
        kernels.is_base_multiple(&mut different, &out, &x, &scalar, &mut space);
        assert_eq!(different, [[0; 4]]);
        let mut scalar = small(1);
        scalar[0][2] = 3;
        kernels.is_base_multiple(&mut different, &out, &x, &scalar, &mut space);
        assert!(different[0][2] != 0);
        different[0][2] = 0;
        assert_eq!(different, [[0; 4]]);

        // [1001]B - [1000]B
        let (mut less, mut valid) = ([[0; 4]; 4], [[0; 4]]);
        let mut table = vec![[0; 4]; Curve25519::<4>::TABLE_LEN];
        let read: [&[_]; 3] = [&small(1001), &small(1000), &base];
        kernels.base_multiple_less(&mut less, &mut valid, read, &mut table, &mut space);
        assert_eq!((less, valid), (base, [[1; 4]]));
    }

    /// l - 1 is -1: its square is 1, and so is (l - 1)^2 + l.
    #[test]
    fn the_model_computes_modulo_l() {
        let (kernels, mut space, mut out) = model();
        let order = hex("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");
        let mut minus_one = order;
        minus_one[0] = [minus_one[0][0] - 1; 4];
        let read: [&[_]; 3] = [&minus_one, &minus_one, &order];
        kernels.scalar_mul_add(&mut out, read, &mut space);
        assert_eq!(out, small(1));

        // 2^512 - 1 modulo l.
        kernels.scalar_reduce(&mut out, &[[u64::MAX; 4]; 8], &mut space);
        let all: [&[_]; 3] = [&[[u64::MAX; 4]; 4], &small(1), &small(0)];
        let mut low = [[0; 4]; 4];
        kernels.scalar_mul_add(&mut low, all, &mut space);
        // (2^256 - 1)(2^256 + 1) = (2^256 - 1)(2^256 - 1) + 2 (2^256 - 1)
        let mut other = [[0; 4]; 4];
        kernels.scalar_mul_add(&mut other, [&low, &low, &low], &mut space);
        let sum = other;
        kernels.scalar_mul_add(&mut other, [&small(1), &low, &sum], &mut space);
        assert_eq!(out, other);
    }

    /// The kernels, working memory, and a result.
    fn model() -> (Curve25519<4>, Vec<[u64; 4]>, [[u64; 4]; 4]) {
        let kernels = Curve25519::new(Machine::model());
        let space = vec![[0; 4]; kernels.space_len()];
        (kernels, space, [[0; 4]; 4])
    }

    fn small(value: u64) -> [[u64; 4]; 4] {
        [[value; 4], [0; 4], [0; 4], [0; 4]]
    }

    /// 32 bytes in every lane.
    fn hex(text: &str) -> [[u64; 4]; 4] {
        std::array::from_fn(|i| {
            let limb = u64::from_str_radix(&text[16 * i..16 * (i + 1)], 16).unwrap();
            [limb.swap_bytes(); 4]
        })
    }
}
