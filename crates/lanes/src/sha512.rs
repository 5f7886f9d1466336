//! The kernel of SHA-512, one message in each lane (FIPS 180-4).

use crate::bounds::Holds;
use crate::definition::{kernels, store};
use crate::machine::{Array, Machine};
use std::array::from_fn;

kernels! {
    /// SHA-512.
    pub enum Sha512 {
        /// A block of sixteen words. Lanes that are not active keep their state.
        Compress {
            name: "sha512",
            formula: "state := state + rounds(state, block) where active is not 0",
            reference: "FIPS 180-4, section 6.4.2",
            arrays: {
                state: writes(8, WORD),
                block: reads(16, WORD),
                active: reads(1, WORD).public(),
            },
            body: |m| compress(m, state, block, active),
        }
    }

    /// The kernels of SHA-512.
    pub struct Sha512Kernels {
        compress: Compress,
    }
}

impl Sha512 {
    /// The first state (FIPS 180-4, section 5.3.5): of the square roots of the first eight primes
    /// the first 64 bits after the point.
    pub const INITIAL: [u64; 8] = {
        let mut words = [0; 8];
        let mut i = 0;
        while i < 8 {
            words[i] = root(PRIMES[i], 2);
            i += 1;
        }
        words
    };
}

fn compress<M: Machine>(m: &mut M, state: Array, block: Array, active: Array) {
    let before: [M::V; 8] = from_fn(|i| m.load(state, i));
    let mut words: [M::V; 16] = from_fn(|i| m.load(block, i));
    // Section 6.4.2, steps 1 to 3. Word t of the schedule is computed just before its round.
    let mut variables = before;
    for (t, &constant) in CONSTANTS.iter().enumerate() {
        if t >= 16 {
            words[t % 16] = next_word(m, &words, t);
        }
        variables = round(m, variables, constant, words[t % 16]);
    }
    // Step 4, in the lanes whose message is not over.
    let active = m.load(active, 0);
    let active = m.test(active, active);
    let next: Vec<_> = before
        .iter()
        .zip(variables)
        .map(|(&before, variable)| {
            let sum = m.add64(before, variable);
            m.select(active, sum, before)
        })
        .collect();
    store(m, state, &next);
}

/// Step 1 for a `t` from 16 on; the last sixteen words are in place `t mod 16`.
fn next_word<M: Machine>(m: &mut M, words: &[M::V; 16], t: usize) -> M::V {
    let back = |n: usize| words[(t - n) % 16];
    let small0 = small_sigma(m, back(15), [1, 8], 7);
    let small1 = small_sigma(m, back(2), [19, 61], 6);
    let sum = m.add64(back(7), back(16));
    let sum = m.add64(sum, small0);
    m.add64(sum, small1)
}

/// A round of step 3, on a to h.
fn round<M: Machine>(m: &mut M, variables: [M::V; 8], constant: u64, word: M::V) -> [M::V; 8] {
    let [a, b, c, d, e, f, g, h] = variables;
    let constant = m.splat(constant);
    // The terms that are known first are added first.
    let t1 = m.add64(word, constant);
    let t1 = m.add64(t1, h);
    let choice = m.ternary(e, f, g, CHOICE);
    let t1 = m.add64(t1, choice);
    let big1 = big_sigma(m, e, [14, 18, 41]);
    let t1 = m.add64(t1, big1);
    let big0 = big_sigma(m, a, [28, 34, 39]);
    let majority = m.ternary(a, b, c, MAJORITY);
    let t2 = m.add64(big0, majority);
    [m.add64(t1, t2), a, b, c, m.add64(d, t1), e, f, g]
}

/// The sigmas of section 4.1.3: rotations to the right, and a shift in the small ones.
fn big_sigma<M: Machine>(m: &mut M, x: M::V, rotations: [u32; 3]) -> M::V {
    let [a, b, c] = rotations.map(|bits| m.rol(x, 64 - bits));
    m.ternary(a, b, c, PARITY)
}

fn small_sigma<M: Machine>(m: &mut M, x: M::V, rotations: [u32; 2], shift: u32) -> M::V {
    let [a, b] = rotations.map(|bits| m.rol(x, 64 - bits));
    let c = m.shr(x, shift);
    m.ternary(a, b, c, PARITY)
}

/// The constants of the rounds (section 4.2.3): of the cube roots of the first eighty primes the
/// first 64 bits after the point.
const CONSTANTS: [u64; 80] = {
    let mut words = [0; 80];
    let mut i = 0;
    while i < 80 {
        words[i] = root(PRIMES[i], 3);
        i += 1;
    }
    words
};

const PRIMES: [u64; 80] = {
    let mut primes = [0; 80];
    let mut count = 0;
    let mut candidate = 2;
    while count < 80 {
        let mut i = 0;
        while i < count && candidate % primes[i] != 0 {
            i += 1;
        }
        if i == count {
            primes[count] = candidate;
            count += 1;
        }
        candidate += 1;
    }
    primes
};

/// The first 64 bits after the point of a prime's root, square or cube.
const fn root(prime: u64, degree: usize) -> u64 {
    // 2^64 times the root, from its highest bit on: that of 409 is below 2^5.
    let (mut root, mut bit) = (0u128, 1u128 << 68);
    while bit > 0 {
        // Keep the bit if the power stays below the prime times 2^(64 degree). The root of a prime
        // is never an integer, so the power is never equal.
        let candidate = root | bit;
        let mut power = [1, 0, 0, 0];
        let mut i = 0;
        while i < degree {
            power = times(power, candidate);
            i += 1;
        }
        let above = if degree == 3 { 0 } else { power[3] };
        if above == 0 && power[degree] < prime {
            root = candidate;
        }
        bit >>= 1;
    }
    root as u64
}

/// A product that fits four limbs.
const fn times(a: [u64; 4], b: u128) -> [u64; 4] {
    let mut product = [0; 4];
    let halves = [b as u64, (b >> 64) as u64];
    let mut j = 0;
    while j < 2 {
        let (mut i, mut carry) = (0, 0);
        while i + j < 4 {
            let sum = a[i] as u128 * halves[j] as u128 + product[i + j] as u128 + carry;
            product[i + j] = sum as u64;
            carry = sum >> 64;
            i += 1;
        }
        j += 1;
    }
    product
}

const WORD: Holds = Holds::Bits(64);

// Functions of three bits: bit 4 x + 2 y + z of the number is the value for x, y and z.
const CHOICE: u8 = 0b1100_1010;
const MAJORITY: u8 = 0b1110_1000;
const PARITY: u8 = 0b1001_0110;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Definition;

    /// FIPS 180-4, sections 4.2.3 and 5.3.5: the first and the last.
    #[test]
    fn constants_are_those_of_the_standard() {
        assert_eq!(CONSTANTS[0], 0x428a_2f98_d728_ae22);
        assert_eq!(CONSTANTS[79], 0x6c44_198c_4a47_5817);
        assert_eq!(Sha512::INITIAL[0], 0x6a09_e667_f3bc_c908);
        assert_eq!(Sha512::INITIAL[7], 0x5be0_cd19_137e_2179);
    }

    /// The digest of "abc", and a lane that is not active.
    #[test]
    fn the_model_hashes_a_block() {
        let mut block = [[0; 2]; 16];
        block[0] = [0x6162_6380_0000_0000; 2];
        block[15] = [24; 2];
        let mut state = Sha512::INITIAL.map(|word| [word; 2]);
        Sha512::Compress.model(&mut [&mut state], &[&block, &[[1, 0]]]);
        assert_eq!(state[0], [0xddaf_35a1_9361_7aba, Sha512::INITIAL[0]]);
        assert_eq!(state[7], [0x2a9a_c94f_a54c_a49f, Sha512::INITIAL[7]]);
    }
}
