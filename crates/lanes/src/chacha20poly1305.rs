//! Kernels of ChaCha20-Poly1305.

use crate::bounds::Holds;
use crate::chacha20::{Blocks, COUNTER, PARAMETERS, STATE};
use crate::kernel::{ArraySpec, Source};
use crate::machine::{Array, Machine};
use crate::poly1305::{Multiplier, Sums};

/// The two halves of ChaCha20-Poly1305 (RFC 8439): ChaCha20 on chunks of 16 vectors, 1024 bytes
/// with eight lanes, 512 with four, and Poly1305 on groups of one block a lane.
///
/// `data` and `text` are bytes in the order of memory. `parameters` has 64-bit words, each a word
/// of 32 bits twice: the key's eight, the number of the first block, the nonce's three. `sums` has
/// the limbs of one sum a lane, and those of what is added to the call's first blocks, one a lane,
/// which is 2^128 after the call. `power` has the words of `r^L`, `r^(2 L)` and so on for `L`
/// lanes, as many powers as the most of [`GROUPS`](Self::GROUPS).
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
    /// Where in them the number of the first block is.
    pub const COUNTER: usize = COUNTER;

    /// Every kernel of the family.
    pub(crate) fn all() -> Vec<ChaCha20Poly1305> {
        let mut all = vec![ChaCha20Poly1305::Encrypt(1), ChaCha20Poly1305::Encrypt(2)];
        for multiplier in [Multiplier::Madd52, Multiplier::Mul32] {
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
        }
    }

    fn formula(self) -> &'static str {
        match self {
            ChaCha20Poly1305::Encrypt(_) => "data ^= ChaCha20(parameters)",
            ChaCha20Poly1305::Authenticate(..) => "sums := sums r^L + blocks of text",
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
            let len = (Self::GROUPS[0] * multiplier.power_len()).div_ceil(lanes);
            ArraySpec::read("power", len, Holds::Bits(multiplier.power_bits()))
        };
        match self {
            ChaCha20Poly1305::Encrypt(chunks) => vec![data(chunks), parameters],
            ChaCha20Poly1305::Authenticate(multiplier, groups) => {
                vec![sums(multiplier), text(groups), power(multiplier)]
            }
        }
    }

    fn run<M: Machine>(self, m: &mut M) {
        match self {
            ChaCha20Poly1305::Encrypt(chunks) => {
                let mut states = states(m, chunks, Array(1));
                Blocks::rounds(m, &mut states);
                encrypt(m, states);
            }
            ChaCha20Poly1305::Authenticate(multiplier, groups) => {
                let mut sums = Sums::new(m, multiplier, Array(0), Array(2));
                sums.add(m, Array(1), groups);
                sums.finish(m);
            }
        }
    }
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
