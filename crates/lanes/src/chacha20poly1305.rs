//! Kernels of ChaCha20-Poly1305.

use crate::bounds::Holds;
use crate::chacha20::{Blocks, COUNTER, PARAMETERS, ROUNDS, STATE};
use crate::kernel::{ArraySpec, Source};
use crate::machine::{Array, Machine};
use crate::poly1305::{Multiplier, Sums};

/// The two halves of ChaCha20-Poly1305 (RFC 8439) on chunks of 16 vectors: 1024 bytes with eight
/// lanes, 512 with four.
///
/// `data` and `text` are bytes in the order of memory. `parameters` has 64-bit words, each a word
/// of 32 bits twice: the key's eight, the number of the first block, the nonce's three. `sums` has
/// the limbs of one sum a lane, and those of what is added to the call's first blocks, one a lane,
/// which is 2^128 after the call. `power` has the words of `r^L` and of `r^(2 L)` for `L` lanes.
/// How blocks come to lanes, and what limbs and words are, is said in
/// [`block_of`](Self::block_of) and [`Multiplier`]. Lengths and numbers of blocks are public.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChaCha20Poly1305 {
    /// `data ^= ChaCha20(parameters)` for a number of chunks. Arrays `data[16 chunks]
    /// parameters`.
    Encrypt(usize),
    /// `sums := sums r^L + blocks`, for a number of groups of one block a lane. Arrays
    /// `sums[2 limbs] text[2 groups] power`.
    Authenticate(Multiplier, usize),
    /// Both, on two chunks each: side by side the three chains of operations take little longer
    /// than one of them. Arrays `data[32] sums[2 limbs] parameters text[32] power`.
    Both(Multiplier),
    /// The same on the same two chunks: `text` is what `data` was. Arrays `data[32] sums[2 limbs]
    /// parameters power`.
    Open(Multiplier),
}

impl ChaCha20Poly1305 {
    /// Vectors of a chunk.
    pub const CHUNK: usize = STATE;
    /// Chunks that a kernel takes at most.
    pub const CHUNKS: usize = 2;
    /// Groups that a kernel takes which does nothing else, the most first.
    pub const GROUPS: [usize; 2] = [4, 1];
    /// Words of `parameters`.
    pub const PARAMETERS: usize = PARAMETERS;
    /// Where in them the number of the first block is.
    pub const COUNTER: usize = COUNTER;

    /// Every kernel of the family.
    pub(crate) fn all() -> Vec<ChaCha20Poly1305> {
        let mut all = vec![ChaCha20Poly1305::Encrypt(1), ChaCha20Poly1305::Encrypt(2)];
        for multiplier in [Multiplier::Madd52, Multiplier::Mul32] {
            all.extend([
                ChaCha20Poly1305::Both(multiplier),
                ChaCha20Poly1305::Open(multiplier),
            ]);
            let authenticate = |groups| ChaCha20Poly1305::Authenticate(multiplier, groups);
            all.extend(Self::GROUPS.map(authenticate));
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
            ChaCha20Poly1305::Encrypt(chunks) => format!("chacha20x{chunks}"),
            ChaCha20Poly1305::Authenticate(multiplier, groups) => {
                format!("poly1305_{}x{groups}", radix(multiplier))
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
            ChaCha20Poly1305::Encrypt(_) => "data ^= ChaCha20(parameters)",
            ChaCha20Poly1305::Authenticate(..) => "sums := sums r^L + blocks of text",
            ChaCha20Poly1305::Both(_) => {
                "data ^= ChaCha20(parameters); sums := sums r^L + blocks of text"
            }
            ChaCha20Poly1305::Open(_) => {
                "sums := sums r^L + blocks of data; data ^= ChaCha20(parameters)"
            }
        }
    }

    fn arrays(self, lanes: usize) -> Vec<ArraySpec> {
        let data = |chunks| ArraySpec::written("data", chunks * STATE, Holds::Bits(64));
        let sums = |multiplier: Multiplier| {
            let holds = Holds::Bits(multiplier.sum_bits());
            ArraySpec::written("sums", 2 * multiplier.limbs(), holds)
        };
        let parameters = ArraySpec::read("parameters", PARAMETERS.div_ceil(lanes), Holds::Bits(64));
        let text = |groups| ArraySpec::read("text", 2 * groups, Holds::Bits(64));
        let power = |multiplier: Multiplier| {
            let len = (2 * multiplier.power_len()).div_ceil(lanes);
            ArraySpec::read("power", len, Holds::Bits(multiplier.power_bits()))
        };
        match self {
            ChaCha20Poly1305::Encrypt(chunks) => vec![data(chunks), parameters],
            ChaCha20Poly1305::Authenticate(multiplier, groups) => {
                vec![sums(multiplier), text(groups), power(multiplier)]
            }
            ChaCha20Poly1305::Both(multiplier) => {
                let (data, sums) = (data(Self::CHUNKS), sums(multiplier));
                vec![data, sums, parameters, text(GROUPS), power(multiplier)]
            }
            ChaCha20Poly1305::Open(multiplier) => {
                let (data, sums) = (data(Self::CHUNKS), sums(multiplier));
                vec![data, sums, parameters, power(multiplier)]
            }
        }
    }

    fn run<M: Machine>(self, m: &mut M) {
        match self {
            ChaCha20Poly1305::Encrypt(chunks) => {
                let mut states = states(m, chunks, Array(1));
                for round in 0..ROUNDS {
                    Blocks::round(m, &mut states, round);
                }
                encrypt(m, states);
            }
            ChaCha20Poly1305::Authenticate(multiplier, groups) => {
                let mut sums = Sums::new(m, multiplier, Array(0), Array(2));
                let mut group = 0;
                while group < groups {
                    let pair = group + 1 < groups;
                    let columns = if pair {
                        sums.two(m, Array(1), group)
                    } else {
                        sums.one(m, Array(1), group)
                    };
                    sums.carry(m, columns);
                    group += if pair { 2 } else { 1 };
                }
                sums.finish(m);
            }
            ChaCha20Poly1305::Both(multiplier) => both(m, multiplier, Array(3), Array(4)),
            ChaCha20Poly1305::Open(multiplier) => both(m, multiplier, Array(0), Array(3)),
        }
    }
}

/// Encryption of array 0 beside sums, in array 1, of the blocks of `text`.
fn both<M: Machine>(m: &mut M, multiplier: Multiplier, text: Array, power: Array) {
    let mut states = states(m, ChaCha20Poly1305::CHUNKS, Array(2));
    let mut sums = Sums::new(m, multiplier, Array(1), power);
    // Pairs of groups, in halves, are spread evenly over the rounds.
    let mut halves = 0;
    let mut columns = None;
    for round in 0..ROUNDS {
        Blocks::round(m, &mut states, round);
        while halves < GROUPS * (round + 1) / ROUNDS {
            columns = match columns.take() {
                None => Some(sums.two(m, text, halves)),
                Some(columns) => {
                    sums.carry(m, columns);
                    None
                }
            };
            halves += 1;
        }
    }
    sums.finish(m);
    encrypt(m, states);
}

/// The states of so many chunks.
fn states<M: Machine>(m: &mut M, chunks: usize, parameters: Array) -> Vec<Blocks<M::V>> {
    (0..chunks)
        .map(|before| Blocks::new(m, parameters, before))
        .collect()
}

/// Encrypts array 0.
fn encrypt<M: Machine>(m: &mut M, states: Vec<Blocks<M::V>>) {
    for (i, state) in states.into_iter().enumerate() {
        state.encrypt(m, Array(0), i * STATE);
    }
}

/// Groups of one block a lane that the two chunks have.
const GROUPS: usize = ChaCha20Poly1305::CHUNKS * STATE / 2;
