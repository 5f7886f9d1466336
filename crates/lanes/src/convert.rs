//! Conversions between 64-bit limbs and 52-bit digits.

use crate::machine::{DIGIT_BITS, DIGIT_MASK, Machine};

/// Limbs (64 bits, least significant first) to `digits` digits; missing limbs count as zero.
pub(crate) fn to_digits<M: Machine>(m: &mut M, limbs: &[M::V], digits: usize) -> Vec<M::V> {
    let ones = m.splat(DIGIT_MASK);
    (0..digits)
        .map(|i| {
            let (limb, offset) = place(i, DIGIT_BITS, LIMB_BITS);
            let Some(&low) = limbs.get(limb) else {
                return m.splat(0);
            };
            let mut value = m.shr(low, offset);
            if offset + DIGIT_BITS > LIMB_BITS
                && let Some(&high) = limbs.get(limb + 1)
            {
                let high = m.shl(high, LIMB_BITS - offset);
                value = m.or(value, high);
            }
            m.and(value, ones)
        })
        .collect()
}

/// Digits below 2^52 to `limbs` limbs; the number must fit.
pub(crate) fn to_limbs<M: Machine>(m: &mut M, digits: &[M::V], limbs: usize) -> Vec<M::V> {
    (0..limbs)
        .map(|i| {
            let (digit, offset) = place(i, LIMB_BITS, DIGIT_BITS);
            let mut value = m.shr(digits[digit], offset);
            let mut have = DIGIT_BITS - offset;
            for &digit in &digits[digit + 1..] {
                if have >= LIMB_BITS {
                    break;
                }
                let part = m.shl(digit, have);
                value = m.or(value, part);
                have += DIGIT_BITS;
            }
            value
        })
        .collect()
}

/// The unit of `width` bits, and the offset in it, at which unit `index` of `step` bits begins.
fn place(index: usize, step: u32, width: u32) -> (usize, u32) {
    let bit = index * step as usize;
    (bit / width as usize, (bit % width as usize) as u32)
}

const LIMB_BITS: u32 = 64;
