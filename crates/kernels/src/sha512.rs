//! SHA-512 of `L` messages at once (FIPS 180-4), one in each lane.

use widelane_lanes::{Sha512 as Family, Sha512Kernels};
use zeroize::Zeroizing;

use crate::assembled::Callable;
use crate::machine::Machine;

/// SHA-512 over the lanes of a register.
///
/// Time depends on the lengths of the messages only.
#[derive(Clone, Copy, Debug)]
pub struct Sha512<const L: usize> {
    kernels: Sha512Kernels<Callable<L>>,
}

impl<const L: usize> Sha512<L> {
    /// The kernel on a machine.
    pub fn new(machine: impl Into<Machine<L>>) -> Self {
        let machine = machine.into();
        let kernels = Sha512Kernels::new(|kernel| Callable::new(machine, kernel));
        Self { kernels }
    }

    /// Vectors of working memory that [`hash`](Self::hash) needs.
    pub fn space_len(&self) -> usize {
        BLOCK + 1 + self.kernels.compress.slots()
    }

    /// `out := SHA-512(message)` for the message of each lane, which comes in parts: eight vectors
    /// of the digest's bytes as little-endian limbs. `space` has [`space_len`](Self::space_len)
    /// vectors, and keeps what it was given.
    ///
    /// # Panics
    ///
    /// If an array has another length.
    pub fn hash<const P: usize>(&self, out: &mut [[u64; L]], messages: [[&[u8]; P]; L], space: &mut [[u64; L]]) {
        let (block, rest) = space.split_at_mut(BLOCK);
        let (active, scratch) = rest.split_at_mut(1);
        for (word, initial) in out.iter_mut().zip(Family::INITIAL) {
            *word = [initial; L];
        }
        let mut padded = messages.map(Padded::new);
        let mut bytes = Zeroizing::new([0; 8 * BLOCK]);
        while padded.iter().any(|message| message.blocks > 0) {
            for (lane, message) in padded.iter_mut().enumerate() {
                active[0][lane] = u64::from(message.blocks > 0);
                if message.blocks > 0 {
                    message.next_block(&mut bytes);
                    for (word, bytes) in block.iter_mut().zip(bytes.as_chunks().0) {
                        word[lane] = u64::from_be_bytes(*bytes);
                    }
                }
            }
            self.kernels.compress.call([&mut *out], [&*block, &*active], scratch);
        }
        for word in out.as_flattened_mut() {
            *word = word.swap_bytes();
        }
    }
}

/// A message in parts that is split into blocks (FIPS 180-4, section 5.1.2).
struct Padded<'a, const P: usize> {
    /// Rest of each part.
    parts: [&'a [u8]; P],
    /// Bytes of the whole message.
    len: usize,
    /// Blocks that are left.
    blocks: usize,
    /// True after the bit that follows the message was written.
    ended: bool,
}

impl<'a, const P: usize> Padded<'a, P> {
    fn new(parts: [&'a [u8]; P]) -> Self {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        Self {
            parts,
            len,
            // One more bit, and the length in sixteen bytes.
            blocks: (len + 1 + 16).div_ceil(8 * BLOCK),
            ended: false,
        }
    }

    fn next_block(&mut self, block: &mut [u8; 8 * BLOCK]) {
        let mut rest = &mut block[..];
        for part in &mut self.parts {
            let (now, later) = part.split_at(part.len().min(rest.len()));
            let (to, after) = rest.split_at_mut(now.len());
            to.copy_from_slice(now);
            (*part, rest) = (later, after);
        }
        if !self.ended && !rest.is_empty() {
            rest[0] = 0x80;
            rest = &mut rest[1..];
            self.ended = true;
        }
        rest.fill(0);
        self.blocks -= 1;
        if self.blocks == 0 {
            let bits = 8 * self.len as u128;
            block[8 * BLOCK - 16..].copy_from_slice(&bits.to_be_bytes());
        }
    }
}

/// Words of a block.
const BLOCK: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-2, appendix C: one block, two blocks, and what is empty beside them.
    #[test]
    fn the_model_hashes_published_messages() {
        let hash = Sha512::<4>::new(Machine::model());
        let mut space = vec![[0; 4]; hash.space_len()];
        let long = b"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnop\
                     jklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu";
        let mut out = [[0; 4]; 8];
        hash.hash(
            &mut out,
            [[b"abc", b""], [b"a", b"bc"], [&long[..7], &long[7..]], [b""; 2]],
            &mut space,
        );
        let first = out[0].map(u64::swap_bytes);
        assert_eq!(first[0], 0xddaf_35a1_9361_7aba);
        assert_eq!(first[1], first[0]);
        assert_eq!(first[2], 0x8e95_9b75_dae3_13da);
        assert_eq!(first[3], 0xcf83_e135_7eef_b8bd);
    }

    /// The padding takes a block of its own from 112 bytes on.
    #[test]
    fn blocks_are_counted() {
        for (len, blocks) in [(0, 1), (111, 1), (112, 2), (239, 2), (240, 3)] {
            assert_eq!(Padded::new([&vec![0; len]]).blocks, blocks);
        }
    }
}
