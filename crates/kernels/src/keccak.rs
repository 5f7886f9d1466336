//! SHA-3 and SHAKE of `L` messages at once (FIPS 202), one in each lane.

use widelane_lanes::{Keccak as Family, KeccakKernels};
use zeroize::Zeroizing;

use crate::assembled::{Callable, most_slots};
use crate::machine::Machine;

/// A function of FIPS 202: how many words a block has, and how messages are padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sponge {
    /// SHAKE128.
    Shake128,
    /// SHAKE256.
    Shake256,
    /// SHA3-256.
    Sha3_256,
    /// SHA3-512.
    Sha3_512,
}

impl Sponge {
    /// 64-bit words of a block: the input and the output of one permutation.
    pub const fn rate(self) -> usize {
        match self {
            Self::Shake128 => 21,
            Self::Shake256 | Self::Sha3_256 => 17,
            Self::Sha3_512 => 9,
        }
    }

    /// Bits that follow the message (FIPS 202, sections 6.1 and 6.2), with the first bit of the padding.
    const fn suffix(self) -> u8 {
        match self {
            Self::Shake128 | Self::Shake256 => 0x1f,
            Self::Sha3_256 | Self::Sha3_512 => 0x06,
        }
    }

    /// Makes `lane` of `state` the first state of a message of one block, not yet permuted. The
    /// message comes in parts.
    ///
    /// # Panics
    ///
    /// If the message and its padding are longer than a block, or `state` has not
    /// [`Keccak::STATE`] vectors.
    pub fn start<const L: usize>(self, state: &mut [[u64; L]], lane: usize, message: &[&[u8]]) {
        assert_eq!(state.len(), Keccak::<L>::STATE);
        let mut reader = Reader::new(message);
        assert!(reader.blocks(self) == 1, "a message of more than a block");
        let (block, rest) = state.split_at_mut(self.rate());
        reader.next_block(self, block, lane);
        for vector in rest {
            vector[lane] = 0;
        }
    }

    /// Pads a message of one block, of `len` bytes in every lane, that has been put into a state or
    /// a block as words; what comes after it must be zero.
    ///
    /// # Panics
    ///
    /// If the message and its padding are longer than a block, or `block` is shorter than one.
    pub fn pad<const L: usize>(self, block: &mut [[u64; L]], len: usize) {
        assert!(len < 8 * self.rate());
        for lane in &mut block[len / 8] {
            *lane ^= u64::from(self.suffix()) << (8 * (len % 8));
        }
        for lane in &mut block[self.rate() - 1] {
            *lane ^= LAST_BIT;
        }
    }

    /// Pads one lane only, of a block or of a state that has absorbed earlier blocks.
    ///
    /// # Panics
    ///
    /// As [`pad`](Self::pad), and if there is no such lane.
    pub fn pad_lane<const L: usize>(self, block: &mut [[u64; L]], lane: usize, len: usize) {
        assert!(len < 8 * self.rate());
        block[len / 8][lane] ^= u64::from(self.suffix()) << (8 * (len % 8));
        block[self.rate() - 1][lane] ^= LAST_BIT;
    }
}

/// Keccak over the lanes of a register.
///
/// A state is an array of [`STATE`](Self::STATE) vectors; lane `l` of it belongs to message `l`.
/// [`Sponge::start`] makes the first state of a short message, [`absorb`](Self::absorb) takes in
/// longer ones. After a permutation the first [`Sponge::rate`] vectors are the next block of
/// output, as little-endian words.
///
/// Time depends on the lengths of the messages only.
#[derive(Clone, Copy, Debug)]
pub struct Keccak<const L: usize> {
    kernels: KeccakKernels<Callable<L>>,
}

impl<const L: usize> Keccak<L> {
    /// Vectors of a state.
    pub const STATE: usize = Family::STATE;

    /// Kernels on a machine.
    pub fn new(machine: impl Into<Machine<L>>) -> Self {
        let machine = machine.into();
        let kernels = KeccakKernels::new(|kernel| Callable::new(machine, kernel));
        Self { kernels }
    }

    /// Vectors of scratch space that every method needs.
    pub fn scratch_len(&self) -> usize {
        most_slots(self.kernels.each())
    }

    /// `state := Keccak-f[1600](state)`.
    #[inline]
    pub fn permute(&self, state: &mut [[u64; L]], scratch: &mut [[u64; L]]) {
        self.kernels.permute.call([state], [], scratch);
    }

    /// Absorbs one message in each lane, in parts and of any length, and permutes. Afterwards
    /// `state` holds the first block of output.
    ///
    /// `blocks` are two blocks of space.
    ///
    /// # Panics
    ///
    /// If an array has another length, or for SHA3-512.
    pub fn absorb(
        &self,
        sponge: Sponge,
        state: &mut [[u64; L]],
        messages: [&[&[u8]]; L],
        blocks: &mut [[u64; L]],
        scratch: &mut [[u64; L]],
    ) {
        let rate = sponge.rate();
        let (mut now, mut next) = blocks.split_at_mut(rate);
        let mut readers = messages.map(Reader::new);
        let last = readers.each_ref().map(|reader| reader.blocks(sponge) - 1);
        let longest = last.into_iter().max().unwrap_or(0);
        // The states of lanes whose messages are shorter than the longest one.
        let mut done = Zeroizing::new([[0; Family::STATE]; L]);
        state.fill([0; L]);
        let mut read = |block: &mut [[u64; L]]| {
            for (lane, reader) in readers.iter_mut().enumerate() {
                reader.next_block(sponge, block, lane);
            }
        };
        read(now);
        for index in 0..=longest {
            self.absorb_block(sponge, state, now, scratch);
            // Before the permutation, so that the block has reached the cache when a kernel reads
            // it as vectors.
            if index < longest {
                read(next);
            }
            self.permute(state, scratch);
            if index < longest {
                for lane in (0..L).filter(|&lane| last[lane] == index) {
                    for (done, vector) in done[lane].iter_mut().zip(&*state) {
                        *done = vector[lane];
                    }
                }
            }
            std::mem::swap(&mut now, &mut next);
        }
        for lane in (0..L).filter(|&lane| last[lane] < longest) {
            for (done, vector) in done[lane].iter().zip(&mut *state) {
                vector[lane] = *done;
            }
        }
    }

    /// Absorbs a message of whole words in each lane, all of the same length, and permutes.
    /// Afterwards `state` holds the first block of output.
    ///
    /// `block` is a block of space.
    ///
    /// # Panics
    ///
    /// If an array has another length, or for SHA3-512.
    pub fn absorb_words(
        &self,
        sponge: Sponge,
        state: &mut [[u64; L]],
        message: &[[u64; L]],
        block: &mut [[u64; L]],
        scratch: &mut [[u64; L]],
    ) {
        let (whole, rest) = message.split_at(message.len() / sponge.rate() * sponge.rate());
        block.fill([0; L]);
        block[..rest.len()].copy_from_slice(rest);
        sponge.pad(block, 8 * rest.len());
        state.fill([0; L]);
        for block in whole.chunks_exact(sponge.rate()) {
            self.absorb_block(sponge, state, block, scratch);
            self.permute(state, scratch);
        }
        self.absorb_block(sponge, state, block, scratch);
        self.permute(state, scratch);
    }

    fn absorb_block(&self, sponge: Sponge, state: &mut [[u64; L]], block: &[[u64; L]], scratch: &mut [[u64; L]]) {
        let kernel = match sponge {
            Sponge::Shake128 => &self.kernels.absorb_shake128,
            Sponge::Shake256 | Sponge::Sha3_256 => &self.kernels.absorb_256,
            Sponge::Sha3_512 => panic!("there are no kernels for long messages of SHA3-512"),
        };
        kernel.call([state], [block], scratch);
    }
}

/// A message that is split into blocks.
struct Reader<'a> {
    parts: &'a [&'a [u8]],
    /// Rest of the first part.
    part: &'a [u8],
    /// Bytes of the message.
    len: usize,
    /// The block under construction.
    bytes: Zeroizing<[u8; MAX_BYTES]>,
    /// True after the block with the padding was read.
    padded: bool,
}

impl<'a> Reader<'a> {
    fn new(parts: &'a [&'a [u8]]) -> Self {
        Self {
            parts,
            part: &[],
            len: parts.iter().map(|part| part.len()).sum(),
            bytes: Zeroizing::new([0; MAX_BYTES]),
            padded: false,
        }
    }

    /// Blocks of the padded message: at least one byte is padding.
    fn blocks(&self, sponge: Sponge) -> usize {
        self.len / (8 * sponge.rate()) + 1
    }

    /// Writes the next block into a lane. After the last block the content has no meaning.
    fn next_block<const L: usize>(&mut self, sponge: Sponge, block: &mut [[u64; L]], lane: usize) {
        let bytes = &mut self.bytes[..8 * sponge.rate()];
        let mut filled = 0;
        while filled < bytes.len() {
            if self.part.is_empty() {
                let Some((part, parts)) = self.parts.split_first() else {
                    break;
                };
                (self.part, self.parts) = (part, parts);
            }
            let (head, tail) = self.part.split_at(self.part.len().min(bytes.len() - filled));
            bytes[filled..filled + head.len()].copy_from_slice(head);
            filled += head.len();
            self.part = tail;
        }
        if filled < bytes.len() && !self.padded {
            bytes[filled..].fill(0);
            bytes[filled] = sponge.suffix();
            if let Some(last) = bytes.last_mut() {
                *last ^= 0x80;
            }
            self.padded = true;
        }
        for (vector, word) in block.iter_mut().zip(bytes.as_chunks().0) {
            vector[lane] = u64::from_le_bytes(*word);
        }
    }
}

/// Bytes of the longest block.
const MAX_BYTES: usize = 168;
/// The last bit of the padding (FIPS 202, section 5.1), in the last word of a block.
const LAST_BIT: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;
    use widelane_lanes::Definition;

    fn hex<const L: usize>(state: &[[u64; L]], lane: usize) -> String {
        let bytes = state[..4].iter().flat_map(|vector| vector[lane].to_le_bytes());
        bytes.map(|byte| format!("{byte:02x}")).collect()
    }

    /// Messages of every length around the ends of blocks, of different lengths in one call: each
    /// lane has the state of the plain sponge, whatever the parts are.
    fn check<const L: usize>(keccak: Keccak<L>) {
        let mut scratch = vec![[0; L]; keccak.scratch_len()];
        let text: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let mut state = [[0; L]; Family::STATE];
        for sponge in [Sponge::Shake128, Sponge::Shake256, Sponge::Sha3_256] {
            let rate = 8 * sponge.rate();
            let mut blocks = vec![[1; L]; 2 * sponge.rate()];
            for base in [0, rate - 3, 2 * rate - 3, 5 * rate - 1] {
                let lens: [usize; L] = std::array::from_fn(|lane| base * (lane % 3) / 2 + lane);
                let parts = lens.map(|len| [&text[..len / 3], &text[len / 3..len]]);
                let messages = parts.each_ref().map(|parts| parts.as_slice());
                keccak.absorb(sponge, &mut state, messages, &mut blocks, &mut scratch);
                for (lane, len) in lens.into_iter().enumerate() {
                    let expected = plain(sponge, &text[..len]);
                    assert_eq!(state.map(|vector| vector[lane]), expected, "{sponge:?} {len}");
                }
            }
            for words in [0, 1, sponge.rate() - 1, sponge.rate(), 2 * sponge.rate() + 1] {
                let message: Vec<[u64; L]> = (0..words as u64)
                    .map(|i| std::array::from_fn(|lane| i << 32 | lane as u64))
                    .collect();
                let block = &mut blocks[..sponge.rate()];
                keccak.absorb_words(sponge, &mut state, &message, block, &mut scratch);
                for lane in 0..L {
                    let bytes: Vec<u8> = message.iter().flat_map(|w| w[lane].to_le_bytes()).collect();
                    let expected = plain(sponge, &bytes);
                    assert_eq!(state.map(|vector| vector[lane]), expected, "{sponge:?} {words}");
                }
            }
        }
        // A message in one lane, and none in the others.
        for lane in 0..L {
            state.fill([0; L]);
            state[0][lane] = u64::from_le_bytes(*b"lane by ");
            state[1][lane] = u64::from_le_bytes(*b"lane\0\0\0\0");
            Sponge::Shake128.pad_lane(&mut state, lane, 12);
            keccak.permute(&mut state, &mut scratch);
            let expected = plain(Sponge::Shake128, b"lane by lane");
            assert_eq!(state.map(|vector| vector[lane]), expected);
        }
        // "abc": NIST's example value.
        for lane in 0..L {
            Sponge::Sha3_256.start(&mut state, lane, &[b"a", b"bc"]);
        }
        keccak.permute(&mut state, &mut scratch);
        for lane in 0..L {
            assert_eq!(
                hex(&state, lane),
                "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532"
            );
        }
    }

    /// The sponge as FIPS 202, algorithm 8, has it, a byte at a time.
    fn plain(sponge: Sponge, message: &[u8]) -> [u64; Family::STATE] {
        let mut padded = message.to_vec();
        padded.push(sponge.suffix());
        padded.resize(padded.len().next_multiple_of(8 * sponge.rate()), 0);
        *padded.last_mut().unwrap() ^= 0x80;
        let mut state = [[0u64; 1]; Family::STATE];
        for block in padded.chunks(8 * sponge.rate()) {
            for (at, &byte) in block.iter().enumerate() {
                state[at / 8][0] ^= u64::from(byte) << (at % 8 * 8);
            }
            Family::Permute.model(&mut [&mut state], &[]);
        }
        state.map(|[word]| word)
    }

    #[test]
    fn the_model_hashes() {
        check(Keccak::<4>::new(Machine::model()));
    }

    #[test]
    fn every_target_hashes() {
        widelane_cpu::on_every_target!(token => check(Keccak::new(token)));
    }
}
