//! Poly1305 in 64-bit arithmetic, and numbers modulo 2^130 - 5 between it and the lanes.
//!
//! RFC 8439, section 2.5. Nothing here branches on a number or addresses by one.

use widelane_lanes::Multiplier;
use zeroize::Zeroize;

/// A message authentication code under way.
pub(super) struct Poly1305 {
    sum: Number,
    r: Number,
    /// `5 r1 / 4` for the upper limb `r1` of `r`, whose two lowest bits are zero: what leaves 2^128
    /// by multiplication with `r1` is a multiple of 2^130.
    folded: u64,
    /// `r^HALF` once it was wanted.
    far: Option<Number>,
    s: [u64; 2],
}

/// A number modulo `p := 2^130 - 5` in 64-bit limbs, below 2^131 if not said otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Number(pub(super) [u64; 3]);

impl Poly1305 {
    /// Begins with a one-time key, `r` and `s` (section 2.5).
    pub(super) fn new(key: &[u8; 32]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| key[8 * at + i]));
        // Section 2.5: clamp(r).
        let r = [
            word(0) & 0x0fff_fffc_0fff_ffff,
            word(1) & 0x0fff_fffc_0fff_fffc,
        ];
        Self {
            sum: Number::default(),
            r: Number([r[0], r[1], 0]),
            folded: r[1] + (r[1] >> 2),
            far: None,
            s: [word(2), word(3)],
        }
    }

    /// The key's `r`.
    pub(super) fn r(&self) -> Number {
        self.r
    }

    /// Takes whole blocks.
    pub(super) fn blocks(&mut self, text: &[u8]) {
        let mut pairs = text.chunks_exact(2 * HALF * BLOCK);
        for pair in &mut pairs {
            self.pair(pair);
        }
        let (blocks, rest) = pairs.remainder().as_chunks();
        assert!(rest.is_empty(), "blocks are whole");
        for block in blocks {
            self.sum = self.step(self.sum, block);
        }
    }

    /// Takes a text and zeros up to the end of its last block (section 2.8: `pad16`).
    pub(super) fn padded(&mut self, text: &[u8]) {
        let whole = text.len() / BLOCK * BLOCK;
        self.blocks(&text[..whole]);
        let rest = &text[whole..];
        if !rest.is_empty() {
            let mut block = [0; BLOCK];
            block[..rest.len()].copy_from_slice(rest);
            self.sum = self.step(self.sum, &block);
        }
    }

    /// Takes a text that begins the message, and zeros up to the end of its last block, except for
    /// the multiplication that takes the last block: gives the number to be multiplied by `r`. Zero
    /// if there is no text.
    pub(super) fn beginning(&mut self, text: &[u8]) -> Number {
        let before = text.len().saturating_sub(1) / BLOCK * BLOCK;
        let (before, last) = text.split_at(before);
        self.blocks(before);
        if last.is_empty() {
            return self.sum;
        }
        let mut block = [0; BLOCK];
        block[..last.len()].copy_from_slice(last);
        self.sum.plus(Number::of_block(&block))
    }

    /// Goes on from another sum.
    pub(super) fn set(&mut self, sum: Number) {
        self.sum = sum;
    }

    /// Takes the lengths (section 2.8) and gives the tag.
    pub(super) fn finish(mut self, aad: usize, text: usize) -> [u8; 16] {
        let mut lengths = [0; BLOCK];
        lengths[..8].copy_from_slice(&(aad as u64).to_le_bytes());
        lengths[8..].copy_from_slice(&(text as u64).to_le_bytes());
        self.sum = self.step(self.sum, &lengths);
        let low = self.sum.reduced();
        let (a, carry) = low[0].overflowing_add(self.s[0]);
        let b = low[1].wrapping_add(self.s[1]).wrapping_add(carry.into());
        let mut tag = [0; 16];
        tag[..8].copy_from_slice(&a.to_le_bytes());
        tag[8..].copy_from_slice(&b.to_le_bytes());
        tag
    }

    /// Two halves side by side, as one chain of multiplications leaves the multiplier idle.
    fn pair(&mut self, text: &[u8]) {
        let far = *self.far.get_or_insert_with(|| {
            let squarings = HALF.ilog2();
            (0..squarings).fold(self.r, |power, _| power.times(power))
        });
        let (first, second) = text.split_at(HALF * BLOCK);
        let (mut a, mut b) = (self.sum, Number::default());
        let (first, second) = (first.as_chunks().0, second.as_chunks().0);
        for (x, y) in first.iter().zip(second) {
            a = self.step(a, x);
            b = self.step(b, y);
        }
        self.sum = a.times(far).plus(b);
    }

    /// `(sum + block + 2^128) r`.
    #[inline(always)]
    fn step(&self, Number(h): Number, block: &[u8; BLOCK]) -> Number {
        let Number([b0, b1, b2]) = Number::of_block(block);
        let (h0, carry) = h[0].overflowing_add(b0);
        let sum = u128::from(h[1]) + u128::from(b1) + u128::from(carry);
        let (h1, h2) = (sum as u64, h[2] + b2 + (sum >> 64) as u64);
        let [r0, r1, _] = self.r.0;
        // h2 is at most 6 here; r0, r1 and `folded` are below 2^60, 2^60 and 2^61.
        let low = product(h0, r0) + product(h1, self.folded);
        let middle = product(h0, r1) + product(h1, r0) + u128::from(h2 * self.folded);
        let middle = middle + (low >> 64);
        let high = h2 * r0 + (middle >> 64) as u64;
        // What is beyond 2^130 comes back times 5: (high / 4) 5 = high / 4 + high - high mod 4.
        let carry = (high >> 2) + (high & !3);
        let (h0, carry) = (low as u64).overflowing_add(carry);
        let (h1, carry) = (middle as u64).overflowing_add(carry.into());
        Number([h0, h1, (high & 3) + u64::from(carry)])
    }
}

impl Zeroize for Poly1305 {
    fn zeroize(&mut self) {
        self.sum.0.zeroize();
        self.r.0.zeroize();
        self.folded.zeroize();
        if let Some(far) = &mut self.far {
            far.0.zeroize();
        }
        self.s.zeroize();
    }
}

impl Drop for Poly1305 {
    fn drop(&mut self) {
        self.zeroize();
    }
}

impl Number {
    /// A block and 2^128.
    pub(super) fn of_block(block: &[u8; BLOCK]) -> Self {
        let number = u128::from_le_bytes(*block);
        Self([number as u64, (number >> 64) as u64, 1])
    }

    /// A number from limbs of `bits` bits, least significant first, whose carries may be late; the
    /// carries of the highest limb come back.
    pub(super) fn of_limbs(limbs: impl IntoIterator<Item = u64>, bits: u32) -> Self {
        let mut number = [0u64; 3];
        for (i, limb) in limbs.into_iter().enumerate() {
            let at = bits as usize * i;
            let shifted = u128::from(limb) << (at % 64);
            let parts = [shifted as u64, (shifted >> 64) as u64, 0];
            let mut carry = 0;
            for (word, part) in number[at / 64..].iter_mut().zip(parts) {
                let sum = u128::from(*word) + u128::from(part) + carry;
                *word = sum as u64;
                carry = sum >> 64;
            }
        }
        Self(number).folded()
    }

    /// Limbs of `bits` bits, the highest with what is left.
    pub(super) fn limb(self, index: usize, bits: u32) -> u64 {
        let at = bits as usize * index;
        let (place, offset) = (at / 64, at % 64);
        let low = self.0[place] >> offset;
        let high = match self.0.get(place + 1) {
            // In two steps, as a shift by 64 is none.
            Some(high) => high << 1 << (63 - offset),
            None => 0,
        };
        let limb = low | high;
        // The highest limb keeps what there is.
        if at + bits as usize >= 130 {
            limb
        } else {
            limb & ((1 << bits) - 1)
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        let (a, carry) = self.0[0].overflowing_add(other.0[0]);
        let sum = u128::from(self.0[1]) + u128::from(other.0[1]) + u128::from(carry);
        Self([a, sum as u64, self.0[2] + other.0[2] + (sum >> 64) as u64]).folded()
    }

    pub(super) fn times(self, other: Self) -> Self {
        const BITS: u32 = Multiplier::Madd52.limb_bits();
        const ONES: u64 = (1 << BITS) - 1;
        const FOLD: u64 = Multiplier::Madd52.fold();
        // The highest limbs are below 2^43, the others below 2^44; folded ones below 2^49.
        let a: [u64; 3] = std::array::from_fn(|i| self.limb(i, BITS));
        let b: [u64; 3] = std::array::from_fn(|i| other.limb(i, BITS));
        let (c1, c2) = (FOLD * b[1], FOLD * b[2]);
        let p = [
            product(a[0], b[0]) + product(a[1], c2) + product(a[2], c1),
            product(a[0], b[1]) + product(a[1], b[0]) + product(a[2], c2),
            product(a[0], b[2]) + product(a[1], b[1]) + product(a[2], b[0]),
        ];
        // Columns are below 2^95.
        let p1 = p[1] + (p[0] >> BITS);
        let p2 = p[2] + (p1 >> BITS);
        // Below 2^52 each, so that their sum in place is below 2^141 and the fold makes it fit.
        let (low, middle) = (p[0] as u64 & ONES, p1 as u64 & ONES);
        let high = p2;
        let carry = (high >> 42) as u64 * 5;
        let high = high as u64 & ((1 << 42) - 1);
        let low = u128::from(low) + u128::from(middle) * (1 << BITS) + u128::from(carry);
        // high 2^88: its lower 40 bits end at 2^128.
        let (sum, overflow) = low.overflowing_add(u128::from(high) << 88);
        Self([
            sum as u64,
            (sum >> 64) as u64,
            (high >> 40) + u64::from(overflow),
        ])
    }

    /// The same number modulo `p`, below 2^130 + 2^66, for any limbs.
    fn folded(self) -> Self {
        let [a, b, c] = self.0;
        let back = u128::from(c >> 2) * 5;
        let low = u128::from(b) << 64 | u128::from(a);
        let (sum, overflow) = low.overflowing_add(back);
        Self([
            sum as u64,
            (sum >> 64) as u64,
            (c & 3) + u64::from(overflow),
        ])
    }

    /// The lower 128 bits of the number in `[0, p)`.
    fn reduced(self) -> [u64; 2] {
        // Twice: a number below 2^130 + 2^66 may leave a carry again.
        let [a, b, c] = self.folded().folded().0;
        // h + 5 reaches 2^130 exactly where h is at least p; then h - p is its lower 130 bits.
        let (a5, carry) = a.overflowing_add(5);
        let (b5, carry) = b.overflowing_add(carry.into());
        let over = (c + u64::from(carry)) >> 2;
        let mask = over.wrapping_neg();
        [a & !mask | a5 & mask, b & !mask | b5 & mask]
    }
}

#[inline(always)]
fn product(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}

/// Bytes of a block.
pub(super) const BLOCK: usize = 16;
/// Blocks of one chain, where two are worth it. A power of two.
const HALF: usize = 32;
