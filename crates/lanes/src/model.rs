//! The oracle: plain Rust arithmetic on arrays of lanes.

use crate::machine::{Array, DIGIT_BITS, DIGIT_MASK, Machine};

/// Runs a kernel on `L` lanes in portable Rust. What it computes is what every other machine must.
pub struct Model<'a, 'b, const L: usize> {
    written: &'a mut [&'b mut [[u64; L]]],
    read: &'a [&'a [[u64; L]]],
}

impl<'a, 'b, const L: usize> Model<'a, 'b, L> {
    /// A machine over the kernel's arrays, first those that it writes.
    pub fn new(written: &'a mut [&'b mut [[u64; L]]], read: &'a [&'a [[u64; L]]]) -> Self {
        Self { written, read }
    }
}

impl<const L: usize> Machine for Model<'_, '_, L> {
    type V = [u64; L];
    type M = [bool; L];

    fn splat(&mut self, value: u64) -> [u64; L] {
        [value; L]
    }

    fn load(&mut self, array: Array, index: usize) -> [u64; L] {
        match self.written.get(array.0) {
            Some(written) => written[index],
            None => self.read[array.0 - self.written.len()][index],
        }
    }

    fn store(&mut self, array: Array, index: usize, value: [u64; L]) {
        let written = self
            .written
            .get_mut(array.0)
            .expect("the kernel writes this array");
        written[index] = value;
    }

    fn add(&mut self, a: [u64; L], b: [u64; L]) -> [u64; L] {
        lanes(|i| a[i].wrapping_add(b[i]))
    }

    fn sub(&mut self, a: [u64; L], b: [u64; L]) -> [u64; L] {
        lanes(|i| a[i].wrapping_sub(b[i]))
    }

    fn and(&mut self, a: [u64; L], b: [u64; L]) -> [u64; L] {
        lanes(|i| a[i] & b[i])
    }

    fn or(&mut self, a: [u64; L], b: [u64; L]) -> [u64; L] {
        lanes(|i| a[i] | b[i])
    }

    fn shl(&mut self, a: [u64; L], bits: u32) -> [u64; L] {
        lanes(|i| a[i] << bits)
    }

    fn shr(&mut self, a: [u64; L], bits: u32) -> [u64; L] {
        lanes(|i| a[i] >> bits)
    }

    fn sra(&mut self, a: [u64; L], bits: u32) -> [u64; L] {
        lanes(|i| ((a[i] as i64) >> bits) as u64)
    }

    fn madd_lo(&mut self, acc: [u64; L], a: [u64; L], b: [u64; L]) -> [u64; L] {
        lanes(|i| acc[i].wrapping_add(product(a[i], b[i]) as u64 & DIGIT_MASK))
    }

    fn madd_hi(&mut self, acc: [u64; L], a: [u64; L], b: [u64; L]) -> [u64; L] {
        lanes(|i| acc[i].wrapping_add((product(a[i], b[i]) >> DIGIT_BITS) as u64))
    }

    fn mul_lo(&mut self, a: [u64; L], b: [u64; L]) -> [u64; L] {
        lanes(|i| product(a[i], b[i]) as u64 & DIGIT_MASK)
    }

    fn eq(&mut self, a: [u64; L], b: [u64; L]) -> [bool; L] {
        std::array::from_fn(|i| a[i] == b[i])
    }

    fn select(&mut self, mask: [bool; L], yes: [u64; L], no: [u64; L]) -> [u64; L] {
        lanes(|i| if mask[i] { yes[i] } else { no[i] })
    }

    fn claim(&mut self, value: [u64; L], bits: u32, why: &'static str) -> [u64; L] {
        for lane in value {
            assert!(
                lane >> bits == 0,
                "{lane:#x} is not below 2^{bits}, although {why}"
            );
        }
        value
    }
}

/// Builds a vector lane by lane.
fn lanes<const L: usize>(lane: impl FnMut(usize) -> u64) -> [u64; L] {
    std::array::from_fn(lane)
}

/// The product of two digits as the hardware forms it: of the low 52 bits of each.
fn product(a: u64, b: u64) -> u128 {
    u128::from(a & DIGIT_MASK) * u128::from(b & DIGIT_MASK)
}
