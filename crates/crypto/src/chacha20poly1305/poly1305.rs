//! Poly1305 in 64-bit arithmetic, and numbers modulo 2^130 - 5 between it and the lanes.
//!
//! RFC 8439, section 2.5. Nothing here branches on a number or addresses by one.

use widelane_lanes::Multiplier;
use zeroize::Zeroize;

/// A message authentication code under way.
#[derive(Clone)]
pub(super) struct Poly1305 {
    sum: Sum,
    r: [u64; 2],
    /// `5 r1 / 4` for the upper limb `r1` of `r`, whose two lowest bits are zero: what leaves 2^128
    /// by multiplication with `r1` is a multiple of 2^130.
    folded: u64,
    s: [u64; 2],
    /// `r` to the powers in [`HALVES`], once they were wanted.
    far: Option<[Number; HALVES.len()]>,
}

/// A number modulo `p := 2^130 - 5`, in limbs of 64 bits: the highest is at most 4.
type Sum = [u64; 3];

/// A number modulo `p` in limbs of [`BITS`] bits, each below 2^45.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Number([u64; 3]);

/// A sum of products of numbers, before its carries.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Columns([u128; 3]);

impl Poly1305 {
    /// Begins with a one-time key, `r` and `s` (section 2.5).
    pub(super) fn new(key: &[u8; 32]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| key[8 * at + i]));
        // Section 2.5: clamp(r).
        let r = [word(0) & 0x0fff_fffc_0fff_ffff, word(1) & 0x0fff_fffc_0fff_fffc];
        Self {
            sum: [0; 3],
            r,
            folded: r[1] + (r[1] >> 2),
            s: [word(2), word(3)],
            far: None,
        }
    }

    /// The key's `r`.
    pub(super) fn r(&self) -> Number {
        Number::of_sum([self.r[0], self.r[1], 0])
    }

    /// Takes a text and zeros up to the end of its last block (section 2.8: `pad16`).
    pub(super) fn padded(&mut self, text: &[u8]) {
        let (blocks, rest) = text.as_chunks();
        self.blocks(blocks);
        if !rest.is_empty() {
            self.blocks(&[block_of(rest)]);
        }
    }

    /// Sum of the text so far: the first of the next blocks is added to it.
    pub(super) fn sum(&self) -> Number {
        Number::of_sum(self.sum)
    }

    /// Goes on from another sum.
    pub(super) fn set(&mut self, sum: Number) {
        self.sum = sum.to_sum();
    }

    /// Takes the lengths (section 2.8) and gives the tag.
    pub(super) fn finish(mut self, aad: usize, text: usize) -> [u8; BLOCK] {
        let lengths = u128::from(text as u64) << 64 | u128::from(aad as u64);
        self.blocks(&[lengths.to_le_bytes()]);
        let low = reduced(self.sum);
        let s = u128::from(self.s[1]) << 64 | u128::from(self.s[0]);
        low.wrapping_add(s).to_le_bytes()
    }

    fn blocks(&mut self, mut blocks: &[[u8; BLOCK]]) {
        if blocks.len() >= IN_HALVES_FROM {
            let r = self.r();
            let far = *self.far.get_or_insert_with(|| far(r));
            for (half, far) in HALVES.into_iter().zip(far) {
                let mut pairs = blocks.chunks_exact(2 * half);
                for pair in &mut pairs {
                    self.sum = self.halves(self.sum, pair, far);
                }
                blocks = pairs.remainder();
            }
        }
        for block in blocks {
            self.sum = self.step(self.sum, block);
        }
    }

    /// Two halves of a text side by side, as one chain of multiplications leaves the multiplier
    /// idle; `far` is `r` to the power of the blocks of a half.
    fn halves(&self, sum: Sum, blocks: &[[u8; BLOCK]], far: Number) -> Sum {
        let (first, second) = blocks.split_at(blocks.len() / 2);
        let (mut a, mut b) = (sum, [0; 3]);
        for (x, y) in first.iter().zip(second) {
            a = self.step(a, x);
            b = self.step(b, y);
        }
        plus(Number::of_sum(a).times(far).to_sum(), b)
    }

    /// `(sum + block + 2^128) r`.
    #[inline(always)]
    fn step(&self, sum: Sum, block: &[u8; BLOCK]) -> Sum {
        let b = number(block);
        let [r0, r1] = self.r;
        let (h0, carry) = sum[0].overflowing_add(b[0]);
        let h1 = u128::from(sum[1]) + u128::from(b[1]) + u128::from(carry);
        let (h1, h2) = (h1 as u64, sum[2] + b[2] + (h1 >> 64) as u64);
        // h2 is at most 6 here; r0, r1 and `folded` are below 2^60, 2^60 and 2^61.
        let low = product(h0, r0) + product(h1, self.folded);
        let middle = product(h0, r1) + product(h1, r0) + u128::from(h2 * self.folded);
        let middle = middle + (low >> 64);
        let high = h2 * r0 + (middle >> 64) as u64;
        // Folds the bits from 2^130 on back in, times 5: (high / 4) 5 = high / 4 + high - high mod 4.
        let carry = (high >> 2) + (high & !3);
        let (h0, carry) = (low as u64).overflowing_add(carry);
        let (h1, carry) = (middle as u64).overflowing_add(carry.into());
        [h0, h1, (high & 3) + u64::from(carry)]
    }
}

impl Drop for Poly1305 {
    fn drop(&mut self) {
        self.sum.zeroize();
        self.r.zeroize();
        self.folded.zeroize();
        self.s.zeroize();
        for Number(limbs) in self.far.iter_mut().flatten() {
            limbs.zeroize();
        }
    }
}

impl Number {
    pub(super) const ZERO: Self = Self([0; 3]);
    /// 2^128: the bit beyond a block (section 2.5).
    pub(super) const BEYOND: Self = Self([0, 0, 1 << 40]);

    /// A number in limbs as a kernel has them.
    #[inline(always)]
    pub(super) fn of_limbs(limb: impl Fn(usize) -> u64, multiplier: Multiplier) -> Self {
        match multiplier {
            Multiplier::Madd52 => Self([limb(0), limb(1), limb(2)]),
            Multiplier::Mul32 => {
                // Limbs of 26 bits, below 2^27.
                let low = limb(0) + (limb(1) << 26);
                let middle = (low >> BITS) + (limb(2) << 8) + (limb(3) << 34);
                let high = (middle >> BITS) + (limb(4) << 16);
                Self([low & ONES, middle & ONES, high])
            }
        }
    }

    /// Limbs of the number in the form that a kernel reads; the highest possible ones are zero.
    #[inline(always)]
    pub(super) fn to_limbs(self, multiplier: Multiplier) -> [u64; 5] {
        match multiplier {
            Multiplier::Madd52 => [self.0[0], self.0[1], self.0[2], 0, 0],
            Multiplier::Mul32 => {
                const ONES: u64 = (1 << 26) - 1;
                let [a, b, c] = self.to_sum();
                [
                    a & ONES,
                    a >> 26 & ONES,
                    (a >> 52 | b << 12) & ONES,
                    b >> 14 & ONES,
                    b >> 40 | c << 24,
                ]
            }
        }
    }

    #[inline(always)]
    pub(super) fn times(self, other: Self) -> Self {
        let mut columns = Columns::default();
        columns.add(self, other);
        columns.carried()
    }

    fn of_sum([a, b, c]: Sum) -> Self {
        Self([a & ONES, (a >> 44 | b << 20) & ONES, b >> 24 | c << 40])
    }

    fn to_sum(self) -> Sum {
        let [a, b, c] = self.0;
        let low = u128::from(a) + (u128::from(b) << 44);
        // c 2^88: its lower 40 bits end at 2^128.
        let (low, carry) = low.overflowing_add(u128::from(c) << 88);
        let high = (c >> 40) + u64::from(carry);
        plus([low as u64, (low >> 64) as u64, 0], [0, 0, high])
    }
}

impl Columns {
    /// `+= a b`; there is room for 32 products.
    #[inline(always)]
    pub(super) fn add(&mut self, Number(a): Number, Number(b): Number) {
        const FOLD: u64 = Multiplier::Madd52.fold();
        let (c1, c2) = (FOLD * b[1], FOLD * b[2]);
        self.0[0] += product(a[0], b[0]) + product(a[1], c2) + product(a[2], c1);
        self.0[1] += product(a[0], b[1]) + product(a[1], b[0]) + product(a[2], c2);
        self.0[2] += product(a[0], b[2]) + product(a[1], b[1]) + product(a[2], b[0]);
    }

    #[inline(always)]
    pub(super) fn carried(self) -> Number {
        // Products are below 2^95, so columns below 2^102.
        let [low, middle, high] = self.0;
        let middle = middle + (low >> BITS);
        let high = high + (middle >> BITS);
        let back = (high >> HIGHEST_BITS) as u64 * 5 + (low as u64 & ONES);
        Number([
            back & ONES,
            (middle as u64 & ONES) + (back >> BITS),
            high as u64 & ((1 << HIGHEST_BITS) - 1),
        ])
    }
}

/// `r` to the powers in [`HALVES`].
fn far(r: Number) -> [Number; HALVES.len()] {
    HALVES.map(|power| (0..power.ilog2()).fold(r, |power, _| power.times(power)))
}

/// A block and 2^128.
#[inline(always)]
fn number(block: &[u8; BLOCK]) -> Sum {
    let number = u128::from_le_bytes(*block);
    [number as u64, (number >> 64) as u64, 1]
}

/// A text of at most a block, and zeros.
fn block_of(text: &[u8]) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..text.len()].copy_from_slice(text);
    block
}

/// `a + b` for any limbs, whose highest are small.
fn plus(a: Sum, b: Sum) -> Sum {
    let (low, carry) = a[0].overflowing_add(b[0]);
    let middle = u128::from(a[1]) + u128::from(b[1]) + u128::from(carry);
    folded([low, middle as u64, a[2] + b[2] + (middle >> 64) as u64])
}

/// Folds the bits from 2^130 on back in, times 5.
fn folded([a, b, c]: Sum) -> Sum {
    let low = u128::from(b) << 64 | u128::from(a);
    let (low, carry) = low.overflowing_add(u128::from(c >> 2) * 5);
    [low as u64, (low >> 64) as u64, (c & 3) + u64::from(carry)]
}

/// The lower 128 bits of the number in `[0, p)`.
fn reduced(sum: Sum) -> u128 {
    // Twice, as the first time may carry beyond 2^130 again.
    let [a, b, c] = folded(folded(sum));
    let low = u128::from(b) << 64 | u128::from(a);
    // h + 5 reaches 2^130 exactly where h is at least p; then h - p is its lower 130 bits.
    let (beyond, carry) = low.overflowing_add(5);
    let over = (c + u64::from(carry)) >> 2;
    let mask = u128::from(over).wrapping_neg();
    low & !mask | beyond & mask
}

#[inline(always)]
fn product(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}

/// Bytes of a block.
pub(super) const BLOCK: usize = 16;
/// Blocks of a half, where two halves are worth it: powers of two, the largest first.
const HALVES: [usize; 2] = [32, 8];
/// Blocks from which on they are, as measured on Zen 5.
const IN_HALVES_FROM: usize = 40;
/// Bits of a [`Number`]'s limbs, and of its highest one.
const BITS: u32 = Multiplier::Madd52.limb_bits();
const HIGHEST_BITS: u32 = 130 - 2 * BITS;
const ONES: u64 = (1 << BITS) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    /// The tag of a text by a key that valgrind follows.
    #[test]
    fn poison_poly1305_branches_on_no_secret() {
        crate::secrecy::assert_no_secret_branch(|| {
            let key: [u8; 32] = std::array::from_fn(|i| 3 * i as u8);
            let text = [0xff; 3 * BLOCK * IN_HALVES_FROM + 5];
            widelane_poison::secret(&key);
            widelane_poison::secret(&text);
            let mut mac = Poly1305::new(&key);
            mac.padded(&text[..20]);
            mac.padded(&text);
            let sum = mac.sum();
            mac.set(sum);
            let tag = mac.finish(20, text.len());
            widelane_poison::public(&tag);
            assert_ne!(tag, [0; BLOCK]);
        });
    }
}
