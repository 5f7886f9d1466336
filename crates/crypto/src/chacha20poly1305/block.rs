//! ChaCha20 one block at a time, in 32-bit words: for the key of Poly1305 and short ends of texts,
//! where a call of a kernel would be for sixteen blocks.

use super::NONCE_LEN;
use zeroize::Zeroizing;

/// The initial state of every block of a message, except for the number of the block.
pub(super) struct Initial(Zeroizing<[u32; WORDS]>);

impl Initial {
    /// RFC 8439, section 2.3.
    pub(super) fn new(key: &[u32; 8], nonce: &[u8; NONCE_LEN]) -> Self {
        let mut words = Zeroizing::new([0; WORDS]);
        words[..4].copy_from_slice(&CONSTANTS);
        words[4..NUMBER].copy_from_slice(key);
        let (nonce, _) = nonce.as_chunks();
        for (word, &bytes) in words[NUMBER + 1..].iter_mut().zip(nonce) {
            *word = u32::from_le_bytes(bytes);
        }
        Self(words)
    }

    /// Words that are not constant: eight of the key, the number of the block, here 0, and three of the nonce.
    pub(super) fn parameters(&self) -> &[u32] {
        &self.0[4..]
    }

    /// Block `number` of the key stream.
    pub(super) fn block(&self, number: u32) -> Zeroizing<[u8; BLOCK]> {
        let mut initial = self.0.clone();
        initial[NUMBER] = number;
        let mut words = initial.clone();
        for _ in 0..ROUNDS / 2 {
            // Section 2.3.1: columns, then diagonals.
            quarter_round(&mut words, [0, 4, 8, 12]);
            quarter_round(&mut words, [1, 5, 9, 13]);
            quarter_round(&mut words, [2, 6, 10, 14]);
            quarter_round(&mut words, [3, 7, 11, 15]);
            quarter_round(&mut words, [0, 5, 10, 15]);
            quarter_round(&mut words, [1, 6, 11, 12]);
            quarter_round(&mut words, [2, 7, 8, 13]);
            quarter_round(&mut words, [3, 4, 9, 14]);
        }
        let mut block = Zeroizing::new([0; BLOCK]);
        let (bytes, _) = block.as_chunks_mut();
        for (bytes, (word, initial)) in bytes.iter_mut().zip(words.iter().zip(initial.iter())) {
            *bytes = word.wrapping_add(*initial).to_le_bytes();
        }
        block
    }
}

/// Section 2.1.
#[inline(always)]
fn quarter_round(words: &mut [u32; WORDS], [a, b, c, d]: [usize; 4]) {
    // x += y; z ^= x; z <<<= bits.
    for (x, y, z, bits) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)] {
        words[x] = words[x].wrapping_add(words[y]);
        words[z] = (words[z] ^ words[x]).rotate_left(bits);
    }
}

/// Bytes of a block.
pub(super) const BLOCK: usize = 64;
const WORDS: usize = 16;
/// The word that is the number of the block.
const NUMBER: usize = 12;
const ROUNDS: usize = 20;
/// "expand 32-byte k".
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];
