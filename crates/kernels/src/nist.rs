//! Arithmetic on the curves P-256 and P-384, one problem in each lane.

use widelane_lanes::nist::{Curve, Nist, NistKernels};

use crate::arena::{Arena, PageAligned};
use crate::assembled::{Callable, most_slots};
use crate::machine::Machine;

/// The kernels of one curve, in one width, and the multiples of its base point.
///
/// Numbers are arrays of [`digits`](Self::digits) vectors in radix 2^52, least significant digit
/// first; lane `l` of every array belongs to problem `l`. A point is three numbers that only
/// methods here make and read. Scalars are arrays of [`limbs`](Self::limbs) vectors in radix 2^64.
///
/// Every method is constant time in all lanes' values, and panics when an array has another length
/// than it says.
#[derive(Debug)]
pub struct NistCurve<const L: usize> {
    curve: Curve,
    kernels: NistKernels<Callable<L>>,
    /// Multiples of the base point for each window of a scalar, as `Nist::AddFixed` reads them.
    table: &'static [[u64; L]],
}

/// Memory for intermediate values of [`NistCurve`], which are secret and wiped when dropped.
#[derive(Debug)]
pub struct NistSpace<const L: usize> {
    arena: Arena<L>,
}

/// The parts of a space.
struct Parts<'a, const L: usize> {
    /// Multiples of a point.
    table: &'a mut [[u64; L]],
    /// State of two inversions.
    state: &'a mut [[u64; L]],
    /// Signed digits of a scalar.
    indices: &'a mut [[u64; L]],
    scratch: &'a mut [[u64; L]],
}

/// Methods that call a kernel with the scratch of a space.
macro_rules! in_space {
    ($($(#[$meta:meta])* $method:ident: [$written:ident], [$($read:ident),*];)*) => { $(
        $(#[$meta])*
        pub fn $method(
            &self,
            $written: &mut [[u64; L]],
            $($read: &[[u64; L]],)*
            space: &mut NistSpace<L>,
        ) {
            let scratch = self.parts(space).scratch;
            self.kernels.$method.call([$written], [$($read),*], scratch);
        }
    )* };
}

impl<const L: usize> NistCurve<L> {
    /// The kernels of a curve on a machine.
    pub fn new(machine: impl Into<Machine<L>>, curve: Curve) -> Self {
        let machine = machine.into();
        Self {
            curve,
            kernels: NistKernels::new(curve, |kernel| Callable::new(machine, kernel)),
            table: base_table(curve),
        }
    }

    /// Digits of a number.
    pub fn digits(&self) -> usize {
        self.curve.digits()
    }

    /// 64-bit limbs of a scalar.
    pub fn limbs(&self) -> usize {
        self.curve.limbs()
    }

    /// Memory for every method.
    pub fn space(&self) -> NistSpace<L> {
        NistSpace {
            arena: Arena::new(self.table_len() + self.state_len() + self.max_windows() + self.scratch_len()),
        }
    }

    /// `point := scalar base`, for scalars below the order of the curve and a base as
    /// [`enter`](Self::enter) leaves it; where the scalar is zero the point is infinity.
    ///
    /// Windows of five bits from the left with signed digits (Booth, "A signed binary
    /// multiplication technique", 1951, as Koyama and Tsuruoka, CRYPTO 1992, use it). The sum
    /// before a digit `d` is `32 s base` with `32 s + d` the scalar's prefix. It is infinity, or
    /// neither `d base` nor `-d base`: that would need `32 s = n - |d|` in the last step, but `|d|`
    /// is at most 16, and `n mod 32` is 17 for P-256 and 19 for P-384.
    pub fn multiply(&self, point: &mut [[u64; L]], base: &[[u64; L]], scalar: &[[u64; L]], space: &mut NistSpace<L>) {
        let Parts {
            table,
            state,
            indices,
            scratch,
        } = self.parts(space);
        let indices = &mut indices[..self.windows(Nist::WINDOW_BITS)];
        signed_digits(indices, scalar, Nist::WINDOW_BITS);
        self.multiples(table, base, point, state, scratch);
        point.fill([0; L]);
        for (i, index) in indices.iter().enumerate().rev() {
            if i + 1 < indices.len() {
                for _ in 0..Nist::WINDOW_BITS {
                    self.kernels.double.call([&mut *point], [], scratch);
                }
            }
            let index = std::slice::from_ref(index);
            self.kernels.add_own.call([&mut *point], [table, index], scratch);
        }
    }

    /// The multiples of an affine base, affine. A base off the curve may have one at infinity, which
    /// makes all of its lane's entries wrong.
    fn multiples(
        &self,
        table: &mut [[u64; L]],
        base: &[[u64; L]],
        point: &mut [[u64; L]],
        state: &mut [[u64; L]],
        scratch: &mut [[u64; L]],
    ) {
        let d = self.digits();
        // Entry e at e mod ENTRIES: the largest at 0. Each is X, Y, Z and the product of the Z of
        // those before it.
        let at = |e: usize| e % Nist::ENTRIES * 4 * d;
        table[at(1)..][..3 * d].copy_from_slice(base);
        let one = [[1; L]];
        for e in 2..=Nist::ENTRIES {
            let from = if e % 2 == 0 { e / 2 } else { e - 1 };
            point.copy_from_slice(&table[at(from)..][..3 * d]);
            if e % 2 == 0 {
                self.kernels.double.call([&mut *point], [], scratch);
            } else {
                let arrays = [&*table, &one];
                self.kernels.add_own.call([&mut *point], arrays, scratch);
            }
            table[at(e)..][..3 * d].copy_from_slice(point);
        }
        // The Z of the base is 1.
        let (product, inverse) = point[..2 * d].split_at_mut(d);
        product.copy_from_slice(&base[2 * d..]);
        for e in 2..=Nist::ENTRIES {
            let entry = &mut table[at(e)..][..4 * d];
            entry[3 * d..].copy_from_slice(product);
            let factors = [&entry[2 * d..3 * d], &entry[3 * d..]];
            self.kernels.multiply.call([&mut *product], factors, scratch);
        }
        self.inverted(self.inversion(), inverse, product, state, scratch);
        for e in (2..=Nist::ENTRIES).rev() {
            let entry = &mut table[at(e)..][..4 * d];
            self.kernels.normalise.call([entry, &mut *inverse], [], scratch);
        }
    }

    /// `point := scalar G`, for scalars below the order of the curve; where the scalar is zero the
    /// point is infinity. Returns for each lane whether the digits that were used are those of
    /// `scalar`.
    ///
    /// One table for each window, from the right (Brickell, Gordon, McCurley and Wilson, "Fast
    /// exponentiation with precomputation", EUROCRYPT 1992), with signed digits. The sum before
    /// the window at bit `t` is less than `2^t` in magnitude, so that it is infinity, or neither
    /// `2^t d G` nor its negative: that would need a scalar of `n` or more in the last step, as
    /// the highest multiple of `2^t` below `n` is farther from it than half of `2^t`.
    pub fn multiply_base(&self, point: &mut [[u64; L]], scalar: &[[u64; L]], space: &mut NistSpace<L>) -> [bool; L] {
        let Parts { indices, scratch, .. } = self.parts(space);
        let bits = self.curve.fixed_bits();
        let indices = &mut indices[..self.windows(bits)];
        signed_digits(indices, scalar, bits);
        point.fill([0; L]);
        let tables = self.table.chunks(self.fixed_len());
        for (index, table) in indices.iter().zip(tables) {
            let index = std::slice::from_ref(index);
            self.kernels.add_fixed.call([&mut *point], [table, index], scratch);
        }
        is_sum(indices, scalar, bits)
    }

    /// `out := 1/z mod p`, a multiple of `p` for zero.
    pub fn invert(&self, out: &mut [[u64; L]], z: &[[u64; L]], space: &mut NistSpace<L>) {
        let Parts { state, scratch, .. } = self.parts(space);
        self.inverted(self.inversion(), out, z, state, scratch);
    }

    /// `out := 1/x`, a multiple of the modulus for zero, of one number modulo `p` in Montgomery form
    /// and of one modulo `n`, plain (so below `n`). The results are in Montgomery form. The CPU works on one
    /// inversion while it waits for the other.
    pub fn invert_both(&self, out: &mut [[u64; L]], x: &[[u64; L]], space: &mut NistSpace<L>) {
        let NistKernels {
            invert_both_begin,
            invert_both_turn,
            invert_both_end,
            ..
        } = &self.kernels;
        let kernels = [invert_both_begin, invert_both_turn, invert_both_end];
        let Parts { state, scratch, .. } = self.parts(space);
        self.inverted(kernels, out, x, state, scratch);
    }

    /// ECDSA's `r := x mod n`, `s := (e + r d) / k mod n` and `s k - e - r d`: three numbers. The
    /// nonce is `1/k` in Montgomery form and `k`, the key `d` in Montgomery form and `d`.
    pub fn respond(&self, out: &mut [[u64; L]], [x, nonce, digest, key]: [&[[u64; L]]; 4], space: &mut NistSpace<L>) {
        let scratch = self.parts(space).scratch;
        self.kernels.respond.call([out], [x, nonce, digest, key], scratch);
    }

    in_space! {
        /// Plain affine coordinates, two numbers, to a point, and their defect, one number: zero where
        /// they fulfil the equation of the curve.
        enter: [out], [affine];
        /// A point and `1/Z` to plain affine coordinates `x` and `y` and their defect: three numbers.
        leave: [out], [point, inverse];
        /// `out := a R mod n`: a scalar, in digits, to Montgomery form.
        enter_order: [out], [a];
        /// `out := (e w, r w) mod n` for the three numbers `e`, `r` and, in Montgomery form, `w`.
        split: [out], [numbers];
        /// `point := point + other`, except where they are the same point or opposite ones: the sum's
        /// `Z` is zero there.
        add: [point], [other];
        /// Three numbers: zero where `x(point)` is the first candidate; zero where it is the second;
        /// zero where the point is infinity, which the first two are then too.
        matches: [out], [point, candidates];
    }

    /// The kernels of one inversion modulo `p`.
    fn inversion(&self) -> [&Callable<L>; 3] {
        let kernels = &self.kernels;
        [&kernels.invert_begin, &kernels.invert_turn, &kernels.invert_end]
    }

    fn inverted(
        &self,
        [begin, turn, end]: [&Callable<L>; 3],
        out: &mut [[u64; L]],
        x: &[[u64; L]],
        state: &mut [[u64; L]],
        scratch: &mut [[u64; L]],
    ) {
        let count = x.len() / self.digits();
        let state = &mut state[..count * Nist::inversion_len(self.curve)];
        begin.call([&mut *state], [x], scratch);
        for _ in 0..self.curve.inversion_turns() {
            turn.call([&mut *state], [], scratch);
        }
        end.call([out], [state], scratch);
    }

    /// Vectors of one window's table.
    fn fixed_len(&self) -> usize {
        2 * self.digits() * self.curve.fixed_entries() / L
    }

    fn windows(&self, bits: usize) -> usize {
        self.curve.windows(bits)
    }

    fn max_windows(&self) -> usize {
        self.windows(Nist::WINDOW_BITS.min(self.curve.fixed_bits()))
    }

    fn table_len(&self) -> usize {
        4 * Nist::ENTRIES * self.digits()
    }

    fn state_len(&self) -> usize {
        2 * Nist::inversion_len(self.curve)
    }

    fn scratch_len(&self) -> usize {
        most_slots(self.kernels.each())
    }

    fn parts<'a>(&self, space: &'a mut NistSpace<L>) -> Parts<'a, L> {
        let (table, rest) = space.arena.vectors().split_at_mut(self.table_len());
        let (state, rest) = rest.split_at_mut(self.state_len());
        let (indices, scratch) = rest.split_at_mut(self.max_windows());
        Parts {
            table,
            state,
            indices,
            scratch,
        }
    }
}

impl<const L: usize> NistSpace<L> {
    /// Zeroises all intermediate values.
    pub fn wipe(&mut self) {
        self.arena.wipe();
    }
}

/// `Nist::base_table`, computed when this crate was built, in vectors.
fn base_table<const L: usize>(curve: Curve) -> &'static [[u64; L]] {
    let words: &[u64] = match curve {
        Curve::P256 => &P256_TABLE.0,
        Curve::P384 => &P384_TABLE.0,
    };
    words.as_chunks().0
}

static P256_TABLE: PageAligned<[u64; P256_WORDS]> = PageAligned(include!(concat!(env!("OUT_DIR"), "/base_p256.rs")));
static P384_TABLE: PageAligned<[u64; P384_WORDS]> = PageAligned(include!(concat!(env!("OUT_DIR"), "/base_p384.rs")));

include!(concat!(env!("OUT_DIR"), "/base_words.rs"));

/// Each lane's scalar as signed digits of `w` bits, from `-2^(w - 1)` to `2^(w - 1)`, as indices of
/// `Nist::Add`: digit `i` is bits `w i` to `w i + w - 2`, and bit `w i - 1` once more, less bit
/// `w i + w - 1` times `2^(w - 1)`.
fn signed_digits<const L: usize>(indices: &mut [[u64; L]], scalar: &[[u64; L]], w: usize) {
    for (i, index) in indices.iter_mut().enumerate() {
        let window: [u64; L] = if i == 0 {
            window(scalar, 0, w).map(|bits| bits << 1)
        } else {
            window(scalar, i * w - 1, w + 1)
        };
        *index = window.map(|bits| {
            let rounded = (bits + 1) >> 1;
            // All ones where the digit is negative.
            let sign = (bits >> w).wrapping_neg();
            let magnitude = (rounded ^ sign).wrapping_sub(sign).wrapping_add(sign & 1 << w);
            magnitude | sign & Nist::NEGATIVE
        });
    }
}

/// Returns for each lane whether the indices are those of the scalar: computes their sum again.
fn is_sum<const L: usize>(indices: &[[u64; L]], scalar: &[[u64; L]], w: usize) -> [bool; L] {
    let mut difference = [0u64; L];
    // The digits below a limb's end, from the right, leave a carry for the next limb.
    let mut carry = [0i128; L];
    let mut place = 0;
    let mut indices = indices.iter().peekable();
    for limb in scalar {
        let mut sum = carry;
        while let Some(index) = indices.next_if(|_| place < 64) {
            for (sum, &index) in sum.iter_mut().zip(index) {
                let magnitude = i128::from(index & (Nist::NEGATIVE - 1));
                let sign = -i128::from(index / Nist::NEGATIVE);
                *sum += ((magnitude ^ sign) - sign) << place;
            }
            place += w;
        }
        place -= 64;
        for l in 0..L {
            difference[l] |= sum[l] as u64 ^ limb[l];
            carry[l] = sum[l] >> 64;
        }
    }
    // The rest has the weight of the first bit above the scalar.
    for index in indices {
        for (carry, &index) in carry.iter_mut().zip(index) {
            let magnitude = i128::from(index & (Nist::NEGATIVE - 1));
            let sign = -i128::from(index / Nist::NEGATIVE);
            *carry += ((magnitude ^ sign) - sign) << place;
        }
        place += w;
    }
    // One comparison: which of them differs is secret.
    std::array::from_fn(|l| i128::from(difference[l]) | carry[l] == 0)
}

/// Each lane's `bits` bits of a scalar, from bit `at`; beyond its end they are zero.
fn window<const L: usize>(scalar: &[[u64; L]], at: usize, bits: usize) -> [u64; L] {
    let (limb, offset) = (at / 64, at % 64);
    let mask = (1 << bits) - 1;
    std::array::from_fn(|l| {
        let low = scalar.get(limb).map_or(0, |limb| limb[l] >> offset);
        // In two steps, as a shift by 64 is none.
        let high = scalar.get(limb + 1).map_or(0, |limb| limb[l] << 1 << (63 - offset));
        (low | high) & mask
    })
}
