//! Kernels of ChaCha20-Poly1305.

use crate::bounds::Holds;
use crate::chacha20::{Blocks, COUNTER, PARAMETERS, STATE};
use crate::definition::kernels;
use crate::machine::{Array, Machine};
use crate::poly1305::{Multiplier, Sums};

kernels! {
    /// The two halves of ChaCha20-Poly1305 (RFC 8439): ChaCha20 on chunks of 16 vectors, 1024 bytes
    /// with eight lanes, 512 with four, and Poly1305 on groups of one block for each lane.
    ///
    /// `data` and `text` are bytes in the order of memory. `parameters` has 64-bit words, each a
    /// word of 32 bits twice: the key's eight, the number of the first block, the nonce's three.
    /// `sums` has the limbs of one sum for each lane, then those of what is added to the call's
    /// first blocks, one for each lane, which is 2^128 after the call. `power` has the words of
    /// `r^L`, `r^(2 L)` and so on for `L` lanes, as many powers as the most of
    /// [`GROUPS`](Self::GROUPS). [`block_of`](Self::block_of) says which lane takes which block,
    /// [`Multiplier`] what limbs and words are. Lengths and numbers of blocks are public.
    pub enum ChaCha20Poly1305 {
        /// A number of chunks.
        Encrypt(chunks: usize) {
            name: "chacha20x{chunks}",
            formula: "data ^= ChaCha20(parameters)",
            reference: "RFC 8439, section 2.4",
            arrays: {
                data: writes(chunks * STATE, Holds::Bits(64)),
                parameters: reads(PARAMETERS, Holds::Bits(64)).shared(),
            },
            body: |m| {
                let mut states = states(m, chunks, parameters);
                Blocks::rounds(m, &mut states);
                for (i, state) in states.into_iter().enumerate() {
                    state.encrypt(m, data, i * STATE);
                }
            },
        }
        /// A number of groups of one block for each lane.
        Authenticate(multiplier: Multiplier, groups: usize) {
            name: "poly1305_{multiplier}x{groups}",
            formula: "sums := sums r^L + blocks of text",
            reference: "RFC 8439, section 2.5",
            arrays: {
                sums: writes(2 * multiplier.limbs(), Holds::Bits(multiplier.sum_bits())),
                text: reads(2 * groups, Holds::Bits(64)),
                power: reads(
                    ChaCha20Poly1305::GROUPS[0] * multiplier.power_len(),
                    Holds::Bits(multiplier.power_bits())
                ).shared(),
            },
            body: |m| {
                let mut sums = Sums::new(m, multiplier, sums, power);
                sums.add(m, text, groups);
                sums.finish(m);
            },
        }
    }

    /// The kernels for CPUs whose best multiplication is `multiplier`.
    pub struct ChaCha20Poly1305Kernels for multiplier: Multiplier in MULTIPLIERS {
        encrypt: Encrypt(1),
        encrypt_two: Encrypt(2),
        authenticate_most: Authenticate(multiplier, ChaCha20Poly1305::GROUPS[0]),
        authenticate: Authenticate(multiplier, ChaCha20Poly1305::GROUPS[1]),
    }
}

impl ChaCha20Poly1305 {
    /// Vectors of a chunk.
    pub const CHUNK: usize = STATE;
    /// Chunks that a kernel takes at most: side by side two chains of operations take little longer
    /// than one.
    pub const CHUNKS: usize = 2;
    /// Groups that a kernel takes, the most first.
    pub const GROUPS: [usize; 2] = [4, 1];
    /// Words of `parameters`.
    pub const PARAMETERS: usize = PARAMETERS;
    /// Index in the parameters of the number of the first block.
    pub const COUNTER: usize = COUNTER;

    /// The block that `lane` takes of each group of as many as there are `lanes`.
    pub const fn block_of(lane: usize, lanes: usize) -> usize {
        lane / 2 + lane % 2 * lanes / 2
    }
}

/// States of `chunks` chunks.
fn states<M: Machine>(m: &mut M, chunks: usize, parameters: Array) -> Vec<Blocks<M::V>> {
    (0..chunks).map(|before| Blocks::new(m, parameters, before)).collect()
}

const MULTIPLIERS: [Multiplier; 2] = [Multiplier::Madd52, Multiplier::Mul32];
