//! The kernels of Keccak-f[1600], one state in each lane (FIPS 202, section 3).
//!
//! Vector `x + 5 y` of a state holds the lane `A[x, y]` of the standard; bit `z` is its bit `z`.

use std::array::from_fn;

use crate::bounds::Holds;
use crate::definition::{kernels, store};
use crate::machine::Machine;

kernels! {
    /// The permutation under SHA-3 and SHAKE, and what feeds it.
    pub enum Keccak {
        /// A state of 25 words.
        Permute {
            name: "keccak1600",
            formula: "state := Keccak-f[1600](state)",
            reference: "FIPS 202, section 3.3",
            arrays: { state: writes(Keccak::STATE, Holds::Bits(64)) },
            body: |m| {
                let mut a: [M::V; Keccak::STATE] = from_fn(|i| m.load(state, i));
                for constant in round_constants() {
                    a = round(m, &a, constant);
                }
                store(m, state, &a);
            },
        }
        /// The block has as many 64-bit words as the rate of the sponge.
        Absorb(rate: usize) {
            name: "absorb{rate}",
            formula: "state := state ^ block",
            reference: "FIPS 202, algorithm 8, step 6",
            arrays: {
                state: writes(Keccak::STATE, Holds::Bits(64)),
                block: reads(rate, Holds::Bits(64)),
            },
            body: |m| {
                for i in 0..rate {
                    let (a, word) = (m.load(state, i), m.load(block, i));
                    let sum = m.xor(a, word);
                    m.store(state, i, sum);
                }
            },
        }
    }

    /// The kernels of SHA-3 and SHAKE. Messages of more than one block of SHA3-512 have no lanes.
    pub struct KeccakKernels {
        permute: Permute,
        absorb_shake128: Absorb(21),
        absorb_256: Absorb(17),
    }
}

impl Keccak {
    /// Vectors of a state.
    pub const STATE: usize = 25;
}

/// One round (FIPS 202, section 3.3).
fn round<M: Machine>(m: &mut M, a: &[M::V; 25], constant: u64) -> [M::V; 25] {
    // Theta (3.2.1): the parities of the columns, and what they change.
    let c: [M::V; 5] = from_fn(|x| {
        let three = m.ternary(a[x], a[x + 5], a[x + 10], XOR3);
        m.ternary(three, a[x + 15], a[x + 20], XOR3)
    });
    let d: [M::V; 5] = from_fn(|x| {
        let right = m.rol(c[(x + 1) % 5], 1);
        m.xor(c[(x + 4) % 5], right)
    });
    let mut next = *a;
    let offsets = offsets();
    // Row by row, so that few lanes are old and new at a time.
    for y in 0..5 {
        // Rho (3.2.2) and pi (3.2.3): lane (x, y) comes from (x + 3 y, x).
        let b: [M::V; 5] = from_fn(|x| {
            let from = (x + 3 * y) % 5;
            let changed = m.xor(a[from + 5 * x], d[from]);
            m.rol(changed, offsets[from + 5 * x])
        });
        // Chi (3.2.4).
        for x in 0..5 {
            next[x + 5 * y] = m.ternary(b[x], b[(x + 1) % 5], b[(x + 2) % 5], CHI);
        }
        if y == 0 {
            // Iota (3.2.5).
            let constant = m.splat(constant);
            next[0] = m.xor(next[0], constant);
        }
    }
    next
}

/// The rotations of rho (FIPS 202, algorithm 2).
fn offsets() -> [u32; 25] {
    let mut offsets = [0; 25];
    let (mut x, mut y) = (1, 0);
    for t in 0..24 {
        offsets[x + 5 * y] = (t + 1) * (t + 2) / 2 % 64;
        (x, y) = (y, (2 * x + 3 * y) % 5);
    }
    offsets
}

/// The constants of iota (FIPS 202, algorithms 5 and 6): bit `2^j - 1` of constant `i` is what the
/// shift register gives at step `j + 7 i`.
fn round_constants() -> [u64; 24] {
    let mut register = 1u8;
    from_fn(|_| {
        let mut constant = 0;
        for j in 0..7 {
            constant |= u64::from(register & 1) << ((1 << j) - 1);
            // x^8 + x^6 + x^5 + x^4 + 1.
            let out = register >> 7;
            register = (register << 1) ^ (out * 0b0111_0001);
        }
        constant
    })
}

/// `a ^ b ^ c`.
const XOR3: u8 = 0x96;
/// `a ^ (!b & c)`.
const CHI: u8 = 0xd2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Definition;

    #[test]
    fn constants_are_those_of_the_standard() {
        let constants = round_constants();
        assert_eq!(constants[..3], [0x1, 0x8082, 0x8000_0000_0000_808a]);
        assert_eq!(constants[23], 0x8000_0000_8000_8008);
        // Table 2 of FIPS 202, modulo 64.
        assert_eq!(offsets()[..5], [0, 1, 190 % 64, 28, 91 % 64]);
        assert_eq!(offsets()[20..], [210 % 64, 66 % 64, 253 % 64, 120 % 64, 78 % 64]);
    }

    /// The empty message under SHA3-256, SHA3-512 and SHAKE128 (NIST's example values).
    #[test]
    fn empty_messages_have_their_digests() {
        for (rate, suffix, digest) in [
            (
                17,
                0x06,
                "a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a",
            ),
            (
                9,
                0x06,
                "a69f73cca23a9ac5c8b567dc185a756e97c982164fe25859e0d1dcc1475c80a6",
            ),
            (
                21,
                0x1f,
                "7f9c2ba4e88f827d616045507605853ed73b8093f6efbc88eb1a6eacfa66ef26",
            ),
        ] {
            let mut state = [[0u64; 4]; 25];
            state[0][2] ^= suffix;
            state[rate - 1][2] ^= 1 << 63;
            Keccak::Permute.model(&mut [&mut state], &[]);
            let bytes = state.iter().take(4).flat_map(|word| word[2].to_le_bytes());
            let hex: String = bytes.map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, digest);
            assert_eq!(state[0][1], 0xf125_8f79_40e1_dde7, "a state of zeros");
        }
    }
}
