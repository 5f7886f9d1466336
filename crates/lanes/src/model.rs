//! The oracle: plain Rust arithmetic on arrays of lanes.
//!
//! It branches on no lane and addresses by none, as machines must, except to check claims.

use crate::machine::{Array, DIGIT_BITS, DIGIT_MASK, Machine};
use std::hint::black_box;

/// Runs a kernel on `L` lanes in portable Rust. Every other machine must compute the same.
pub struct Model<'a, 'b, const L: usize> {
    written: &'a mut [&'b mut [[u64; L]]],
    read: &'a [&'a [[u64; L]]],
    scratch: Vec<[u64; L]>,
    checks_claims: bool,
}

impl<'a, 'b, const L: usize> Model<'a, 'b, L> {
    /// A machine over the kernel's arrays, first those that it writes.
    pub fn new(written: &'a mut [&'b mut [[u64; L]]], read: &'a [&'a [[u64; L]]]) -> Self {
        Self {
            written,
            read,
            scratch: Vec::new(),
            checks_claims: true,
        }
    }

    /// Lets every value pass, as the machine code does. For operands that a fault has hit: the
    /// claims hold for operands within the kernel's bounds only. And for secrets under valgrind: a
    /// check is a branch.
    pub fn without_claims(self) -> Self {
        Self {
            checks_claims: false,
            ..self
        }
    }
}

/// The methods of a machine that compute each lane from the same lanes of the operands.
macro_rules! lanewise {
    ($($method:ident($($operand:ident),+ $(; $bits:ident)?) => $lane:expr;)*) => {
        $(fn $method(&mut self, $($operand: [u64; L]),+ $(, $bits: u32)?) -> [u64; L] {
            lanes(|i| {
                $(let $operand = $operand[i];)+
                $lane
            })
        })*
    };
}

impl<const L: usize> Machine for Model<'_, '_, L> {
    type V = [u64; L];
    /// All ones in the lanes of the mask, zero in the others: a `bool` invites a branch.
    type M = [u64; L];

    fn lanes(&self) -> usize {
        L
    }

    fn splat(&mut self, value: u64) -> [u64; L] {
        [value; L]
    }

    fn vector(&mut self, values: [u64; 8]) -> [u64; L] {
        lanes(|i| values[i])
    }

    fn scratch(&mut self, len: usize) -> Array {
        self.scratch = vec![[0; L]; len];
        Array::SCRATCH
    }

    fn load(&mut self, array: Array, index: usize) -> [u64; L] {
        if array == Array::SCRATCH {
            return self.scratch[index];
        }
        match self.written.get(array.0) {
            Some(written) => written[index],
            None => self.read[array.0 - self.written.len()][index],
        }
    }

    fn broadcast(&mut self, array: Array, index: usize) -> [u64; L] {
        let read = self.read[array.0 - self.written.len()];
        [read[index / L][index % L]; L]
    }

    fn store(&mut self, array: Array, index: usize, value: [u64; L]) {
        if array == Array::SCRATCH {
            self.scratch[index] = value;
            return;
        }
        let written = self.written.get_mut(array.0).expect("the kernel writes this array");
        written[index] = value;
    }

    lanewise! {
        add(a, b) => a.wrapping_add(b);
        sub(a, b) => a.wrapping_sub(b);
        and(a, b) => a & b;
        or(a, b) => a | b;
        xor(a, b) => a ^ b;
        shl(a; bits) => a << bits;
        shr(a; bits) => a >> bits;
        sra(a; bits) => ((a as i64) >> bits) as u64;
        rol(a; bits) => a.rotate_left(bits);
        add64(a, b) => a.wrapping_add(b);
        madd_lo(acc, a, b) => acc.wrapping_add(product(a, b) as u64 & DIGIT_MASK);
        madd_hi(acc, a, b) => acc.wrapping_add((product(a, b) >> DIGIT_BITS) as u64);
        mul_lo(a, b) => product(a, b) as u64 & DIGIT_MASK;
        mul32(a, b) => u64::from(a as u32) * u64::from(b as u32);
        add32(a, b) => words32(a, b, u32::wrapping_add);
        sub32(a, b) => words32(a, b, u32::wrapping_sub);
        rol32(a; bits) => words32(a, 0, |a, _| a.rotate_left(bits));
        shr32(a; bits) => words32(a, 0, |a, _| a >> bits);
        add16(a, b) => words16(a, b, i16::wrapping_add);
        sub16(a, b) => words16(a, b, i16::wrapping_sub);
        mul_lo16(a, b) => words16(a, b, i16::wrapping_mul);
        mul_hi16(a, b) => words16(a, b, |a, b| ((i32::from(a) * i32::from(b)) >> 16) as i16);
        shl16(a; bits) => words16(a, 0, |a, _| a << bits);
        shr16(a; bits) => words16(a, 0, |a, _| (a as u16 >> bits) as i16);
        sra16(a; bits) => words16(a, 0, |a, _| a >> bits);
    }

    fn ternary(&mut self, a: [u64; L], b: [u64; L], c: [u64; L], table: u8) -> [u64; L] {
        let flip = |bit: u8, word: u64| if bit == 1 { word } else { !word };
        lanes(|i| {
            (0..8)
                .filter(|row| table >> row & 1 == 1)
                .map(|row| flip(row >> 2, a[i]) & flip(row >> 1 & 1, b[i]) & flip(row & 1, c[i]))
                .fold(0, |sum, minterm| sum | minterm)
        })
    }

    fn pick2(&mut self, low: [u64; L], high: [u64; L], index: [u64; L]) -> [u64; L] {
        lanes(|i| picked(&[low, high], index[i]))
    }

    fn unpack_low32(&mut self, a: [u64; L], b: [u64; L]) -> [u64; L] {
        lanes(|i| interleaved(a[i & !1], b[i & !1], i))
    }

    fn unpack_high32(&mut self, a: [u64; L], b: [u64; L]) -> [u64; L] {
        lanes(|i| interleaved(a[i | 1], b[i | 1], i))
    }

    fn unpack_low64(&mut self, a: [u64; L], b: [u64; L]) -> [u64; L] {
        lanes(|i| if i % 2 == 0 { a[i] } else { b[i - 1] })
    }

    fn unpack_high64(&mut self, a: [u64; L], b: [u64; L]) -> [u64; L] {
        lanes(|i| if i % 2 == 0 { a[i + 1] } else { b[i] })
    }

    fn eq(&mut self, a: [u64; L], b: [u64; L]) -> [u64; L] {
        lanes(|i| !ones_unless_zero(a[i] ^ b[i]))
    }

    fn test(&mut self, a: [u64; L], b: [u64; L]) -> [u64; L] {
        lanes(|i| ones_unless_zero(a[i] & b[i]))
    }

    fn select(&mut self, mask: [u64; L], yes: [u64; L], no: [u64; L]) -> [u64; L] {
        lanes(|i| mask[i] & yes[i] | !mask[i] & no[i])
    }

    fn claim(&mut self, value: [u64; L], bits: u32, why: &'static str) -> [u64; L] {
        for lane in value {
            assert!(
                !self.checks_claims || lane >> bits == 0,
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

/// The lane that `index`, modulo the number of them, names among those of `tables`. Reads all of
/// them, as the index may be secret.
fn picked<const L: usize>(tables: &[[u64; L]], index: u64) -> u64 {
    let all = tables.as_flattened();
    let index = index % all.len() as u64;
    let pairs = (0..).zip(all);
    pairs.fold(0, |sum, (at, lane)| sum | lane & !ones_unless_zero(at ^ index))
}

/// All ones, or zero for zero. The barrier hides that there are only two values: compilers make
/// branches and addresses out of a choice by such a mask.
fn ones_unless_zero(word: u64) -> u64 {
    black_box(((word | word.wrapping_neg()) >> 63).wrapping_neg())
}

/// The product of two digits as the hardware forms it: of the low 52 bits of each.
fn product(a: u64, b: u64) -> u128 {
    u128::from(a & DIGIT_MASK) * u128::from(b & DIGIT_MASK)
}

/// A lane as two words of 32 bits.
fn words32(a: u64, b: u64, word: impl Fn(u32, u32) -> u32) -> u64 {
    let high = word((a >> 32) as u32, (b >> 32) as u32);
    u64::from(high) << 32 | u64::from(word(a as u32, b as u32))
}

/// A lane as four signed words of 16 bits.
fn words16(a: u64, b: u64, word: impl Fn(i16, i16) -> i16) -> u64 {
    (0..64).step_by(16).fold(0, |lane, at| {
        let word = word((a >> at) as i16, (b >> at) as i16);
        lane | u64::from(word as u16) << at
    })
}

/// Lane `i` of the 32-bit words of `a` and `b` in turn: the low words in even lanes.
fn interleaved(a: u64, b: u64, i: usize) -> u64 {
    let word = |lane: u64| lane >> (i % 2 * 32) & u64::from(u32::MAX);
    word(a) | word(b) << 32
}
