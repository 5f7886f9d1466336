//! ChaCha20 on as many blocks at a time as a vector has 32-bit words.
//!
//! The state of a block is sixteen words (RFC 8439, section 2.3). Here it is sixteen vectors, the
//! same word of all blocks in each: place `p` of a vector, counted in words, belongs to block `p`.
//! So a round needs no permutations. Only at the end the words of vectors become words of blocks,
//! by transposing 4 by 4 matrices in two steps.

use crate::machine::{Array, Machine};

/// Vectors of a state, and of the data that it encrypts.
pub(crate) const STATE: usize = 16;
/// 64-bit words of the array with the parts of a state that are not constant: eight words of the
/// key, the counter of the first block, three words of the nonce, each word of 32 bits twice.
pub(crate) const PARAMETERS: usize = 12;
/// The place of the counter in that array.
pub(crate) const COUNTER: usize = 8;
/// Rounds, alternately on columns and on diagonals (section 2.3.1).
const ROUNDS: usize = 20;

/// The states of one chunk of blocks.
pub(crate) struct Blocks<V> {
    initial: [V; STATE],
    words: [V; STATE],
}

impl<V: Copy> Blocks<V> {
    /// The initial states (section 2.3) with the parameters in `array`, of the chunk number
    /// `before`, counted from zero.
    pub(crate) fn new<M: Machine<V = V>>(m: &mut M, array: Array, before: usize) -> Self {
        let first = m.broadcast(array, COUNTER);
        let lanes = m.lanes();
        let offsets = m.vector(std::array::from_fn(|lane| {
            let place = 2 * (before * lanes + lane) as u64;
            (place + 1) << 32 | place
        }));
        let counters = m.add32(first, offsets);
        let initial = std::array::from_fn(|word| match word {
            0..4 => m.splat(u64::from(CONSTANTS[word]) << 32 | u64::from(CONSTANTS[word])),
            12 => counters,
            _ => m.broadcast(array, word - 4),
        });
        Self {
            initial,
            words: initial,
        }
    }

    /// All rounds, of several states side by side.
    pub(crate) fn rounds<M: Machine<V = V>>(m: &mut M, states: &mut [Self]) {
        let words = states.iter().flat_map(|state| state.words).collect();
        let words = m.repeat(ROUNDS / 2, words, |m, mut words| {
            let (states, _) = words.as_chunks_mut();
            for index in [0, 1] {
                for words in &mut *states {
                    round(m, words, index);
                }
            }
            words
        });
        let (words, _) = words.as_chunks();
        for (state, &words) in states.iter_mut().zip(words) {
            state.words = words;
        }
    }

    /// `data ^= key stream`, after all rounds, from vector `at` of it.
    pub(crate) fn encrypt<M: Machine<V = V>>(mut self, m: &mut M, data: Array, at: usize) {
        for (word, &initial) in self.words.iter_mut().zip(&self.initial) {
            *word = m.add32(*word, initial);
        }
        // Four words of a block side by side, in pairs of lanes: `quarters[g][i]` has words 4 g to
        // 4 g + 3 of block 4 j + i in its pair j.
        let quarters: [[V; 4]; 4] = std::array::from_fn(|g| {
            let [a, b, c, d] = std::array::from_fn(|i| self.words[4 * g + i]);
            let (ab, cd) = (m.unpack_low32(a, b), m.unpack_low32(c, d));
            let (ef, gh) = (m.unpack_high32(a, b), m.unpack_high32(c, d));
            [
                m.unpack_low64(ab, cd),
                m.unpack_high64(ab, cd),
                m.unpack_low64(ef, gh),
                m.unpack_high64(ef, gh),
            ]
        });
        let pairs = m.lanes() / 2;
        let rows: [[V; 4]; 4] = std::array::from_fn(|i| quarters.map(|of| of[i]));
        for (i, row) in rows.into_iter().enumerate() {
            let halves: [[V; 2]; 2] = std::array::from_fn(|half| {
                let (a, b) = (row[2 * half], row[2 * half + 1]);
                [even_pairs(m, a, b), odd_pairs(m, a, b)]
            });
            for j in 0..pairs {
                let block = 4 * j + i;
                match pairs {
                    // A block is two vectors.
                    2 => {
                        for (half, of) in halves.iter().enumerate() {
                            xor_into(m, data, at + 2 * block + half, of[j]);
                        }
                    }
                    // A block is one vector, still in four places.
                    _ => {
                        let [a, b] = halves.map(|of| of[j % 2]);
                        let vector = match j / 2 {
                            0 => even_pairs(m, a, b),
                            _ => odd_pairs(m, a, b),
                        };
                        xor_into(m, data, at + block, vector);
                    }
                }
            }
        }
    }
}

/// Round `index` of [`ROUNDS`]: four quarter rounds, step by step side by side.
fn round<M: Machine>(m: &mut M, x: &mut [M::V; STATE], index: usize) {
    // Even rounds take columns, odd ones diagonals.
    let slant = index % 2;
    let place = |row: usize, i: usize| 4 * row + (i + slant * row) % 4;
    // (a, b, d, bits): a += b; d ^= a; d <<<= bits (section 2.1).
    for (a, b, d, bits) in [(0, 1, 3, 16), (2, 3, 1, 12), (0, 1, 3, 8), (2, 3, 1, 7)] {
        for i in 0..4 {
            x[place(a, i)] = m.add32(x[place(a, i)], x[place(b, i)]);
        }
        for i in 0..4 {
            x[place(d, i)] = m.xor(x[place(d, i)], x[place(a, i)]);
        }
        for i in 0..4 {
            x[place(d, i)] = m.rol32(x[place(d, i)], bits);
        }
    }
}

fn xor_into<M: Machine>(m: &mut M, array: Array, index: usize, stream: M::V) {
    let data = m.load(array, index);
    let data = m.xor(stream, data);
    m.store(array, index, data);
}

/// Pairs of lanes 0, 2, ... of `a`, then those of `b`.
fn even_pairs<M: Machine>(m: &mut M, a: M::V, b: M::V) -> M::V {
    let index = m.vector([0, 1, 4, 5, 8, 9, 12, 13]);
    m.pick2(a, b, index)
}

/// Pairs of lanes 1, 3, ... of `a`, then those of `b`.
fn odd_pairs<M: Machine>(m: &mut M, a: M::V, b: M::V) -> M::V {
    let index = m.vector([2, 3, 6, 7, 10, 11, 14, 15]);
    m.pick2(a, b, index)
}

/// "expand 32-byte k" (section 2.3).
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];
