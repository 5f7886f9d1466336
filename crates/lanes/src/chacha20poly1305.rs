//! Kernels of ChaCha20-Poly1305.

use crate::bounds::Holds;
use crate::chacha20::{Blocks, PARAMETERS, ROUNDS, STATE};
use crate::kernel::{ArraySpec, Source};
use crate::machine::{Array, Machine};
use crate::poly1305::{Multiplier, Sums};

/// The two halves of ChaCha20-Poly1305 (RFC 8439) on a chunk of 16 vectors: 1024 bytes with
/// eight lanes, 512 with four.
///
/// `data` and `text` are bytes in the order of memory. `parameters` has words of 32 bits, each in
/// all places of its vector: the key's eight, the counter, the nonce's three; the counter moves on
/// by the chunk's blocks. `sums` has the limbs of one sum a lane, and those of what is added to the
/// chunk's first blocks, one a lane, which is 2^128 after the call. `power` has the limbs of `r^L`
/// for `L` lanes, and folded ones. How blocks come to lanes, and what limbs are, is said in
/// [`Multiplier`] and [`block_of`](Self::block_of). Lengths and counters are public.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChaCha20Poly1305 {
    /// `data ^= ChaCha20(parameters)`. Arrays `data[16] parameters[12]`.
    Encrypt,
    /// `sums := sums r^L + blocks`, one block a lane. Arrays `sums[2 limbs] text[2]
    /// power[2 limbs - 1]`.
    Authenticate(Multiplier),
    /// Both, eight blocks a lane, on a chunk each: side by side the two chains of operations take
    /// little longer than one of them. Arrays `data[16] parameters[12] sums[2 limbs] text[16]
    /// power[2 limbs - 1]`.
    Both(Multiplier),
    /// The same on one chunk: `text` is what `data` was. Arrays `data[16] parameters[12]
    /// sums[2 limbs] power[2 limbs - 1]`.
    Open(Multiplier),
}

impl ChaCha20Poly1305 {
    /// Vectors of a chunk.
    pub const CHUNK: usize = STATE;

    /// Every kernel of the family.
    pub(crate) fn all() -> Vec<ChaCha20Poly1305> {
        let mut all = vec![ChaCha20Poly1305::Encrypt];
        for multiplier in [Multiplier::Madd52, Multiplier::Mul32] {
            all.extend([
                ChaCha20Poly1305::Both(multiplier),
                ChaCha20Poly1305::Open(multiplier),
                ChaCha20Poly1305::Authenticate(multiplier),
            ]);
        }
        all
    }

    /// The block that `lane` takes of each group of as many as there are `lanes`.
    pub const fn block_of(lane: usize, lanes: usize) -> usize {
        lane / 2 + lane % 2 * lanes / 2
    }
}

impl Source for ChaCha20Poly1305 {
    fn name(self) -> String {
        let radix = |multiplier: Multiplier| multiplier.limb_bits();
        match self {
            ChaCha20Poly1305::Encrypt => "chacha20".to_owned(),
            ChaCha20Poly1305::Authenticate(multiplier) => {
                format!("poly1305_{}", radix(multiplier))
            }
            ChaCha20Poly1305::Both(multiplier) => {
                format!("chacha20poly1305_{}", radix(multiplier))
            }
            ChaCha20Poly1305::Open(multiplier) => {
                format!("chacha20poly1305_{}open", radix(multiplier))
            }
        }
    }

    fn formula(self) -> &'static str {
        match self {
            ChaCha20Poly1305::Encrypt => "data ^= ChaCha20(parameters)",
            ChaCha20Poly1305::Authenticate(_) => "sums := sums r^L + blocks of text",
            ChaCha20Poly1305::Both(_) => {
                "data ^= ChaCha20(parameters); sums := sums r^L + blocks of text"
            }
            ChaCha20Poly1305::Open(_) => {
                "sums := sums r^L + blocks of data; data ^= ChaCha20(parameters)"
            }
        }
    }

    fn arrays(self, _: usize) -> Vec<ArraySpec> {
        let data = ArraySpec::written("data", STATE, Holds::Bits(64));
        let parameters = ArraySpec::written("parameters", PARAMETERS, Holds::Bits(64));
        let sums = |multiplier: Multiplier| {
            let holds = Holds::Bits(multiplier.sum_bits());
            ArraySpec::written("sums", 2 * multiplier.limbs(), holds)
        };
        let text = |len| ArraySpec::read("text", len, Holds::Bits(64));
        let power = |multiplier: Multiplier| {
            let holds = Holds::Bits(multiplier.power_bits());
            ArraySpec::read("power", multiplier.power_len(), holds)
        };
        match self {
            ChaCha20Poly1305::Encrypt => vec![data, parameters],
            ChaCha20Poly1305::Authenticate(multiplier) => {
                vec![sums(multiplier), text(2), power(multiplier)]
            }
            ChaCha20Poly1305::Both(multiplier) => {
                let sums = sums(multiplier);
                vec![data, parameters, sums, text(STATE), power(multiplier)]
            }
            ChaCha20Poly1305::Open(multiplier) => {
                vec![data, parameters, sums(multiplier), power(multiplier)]
            }
        }
    }

    fn run<M: Machine>(self, m: &mut M) {
        match self {
            ChaCha20Poly1305::Encrypt => {
                let mut blocks = Blocks::new(m, Array(1));
                for round in 0..ROUNDS {
                    blocks.round(m, round);
                }
                blocks.encrypt(m, Array(0));
            }
            ChaCha20Poly1305::Authenticate(multiplier) => {
                let mut sums = Sums::new(m, multiplier, Array(0), Array(2));
                let columns = sums.multiply(m, Array(1), 0);
                sums.carry(m, columns);
                sums.finish(m);
            }
            ChaCha20Poly1305::Both(multiplier) => both(m, multiplier, Array(3), Array(4)),
            ChaCha20Poly1305::Open(multiplier) => both(m, multiplier, Array(0), Array(3)),
        }
    }
}

/// Encryption of array 0 beside sums, in array 2, of the blocks of `text`.
fn both<M: Machine>(m: &mut M, multiplier: Multiplier, text: Array, power: Array) {
    let mut blocks = Blocks::new(m, Array(1));
    let mut sums = Sums::new(m, multiplier, Array(2), power);
    // In halves: the steps of the sums are spread evenly over the rounds.
    let mut halves = 0;
    let mut columns = None;
    for round in 0..ROUNDS {
        blocks.round(m, round);
        while halves < 2 * STEPS * (round + 1) / ROUNDS {
            columns = match columns.take() {
                None => Some(sums.multiply(m, text, halves / 2)),
                Some(columns) => {
                    sums.carry(m, columns);
                    None
                }
            };
            halves += 1;
        }
    }
    sums.finish(m);
    blocks.encrypt(m, Array(0));
}

/// Steps in which the sums take a chunk: two vectors each.
const STEPS: usize = STATE / 2;
