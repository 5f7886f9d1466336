//! Common parts of signing and verification in lanes: memory, hashing, sampling, and values derived from keys.

use std::sync::OnceLock;

use super::hints::HINT_WORDS;
use super::key::PrivateKey;
use super::message::Message;
use super::prepared::Prepared;
use super::size::Size;
use crate::faults;
use crate::passes::{self, Family, memory};
use crate::secrecy;
use widelane_kernels::{Arena, Keccak, Machine, MlDsa, Sponge};
use widelane_lanes::{MlDsa as Constants, MlDsaShape};
use zeroize::Zeroizing;

/// Signing or verification with keys of one size.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub(super) size: Size,
    pub(super) is_secret: bool,
}

/// Runs passes of one operation.
pub(super) type Pass<const L: usize> = passes::Pass<Kind, L>;

impl Kind {
    pub(super) fn signing(size: Size) -> Self {
        let is_secret = true;
        Self { size, is_secret }
    }

    pub(super) fn verification(size: Size) -> Self {
        let is_secret = false;
        Self { size, is_secret }
    }
}

impl Family for Kind {
    type Kernels<const L: usize> = Lanes<L>;
    type Memory<const L: usize> = Arena<L>;

    fn kernels<const L: usize>(self, machine: Machine<L>) -> Lanes<L> {
        let kernels = MlDsa::new(machine, self.size.shape());
        Lanes::new(self.size, kernels, Keccak::new(machine))
    }

    fn memory<const L: usize>(self, lanes: &Lanes<L>) -> Arena<L> {
        Arena::new(Space::len(lanes))
    }

    fn is_secret(self) -> bool {
        self.is_secret
    }
}

impl<const L: usize> Pass<L> {
    /// Runs something that needs the memory of a pass.
    pub(super) fn with_space<R>(&self, run: impl FnOnce(&Lanes<L>, &mut Space<'_, L>) -> R) -> R {
        let lanes = &self.kernels;
        self.run(|arena| run(lanes, &mut Space::new(lanes, arena.vectors())))
    }

    /// Derives the values that passes need from a key, for all its signatures. Signatures are verified with these
    /// values too, so that they are computed until two results agree.
    pub(super) fn prepare(&self, key: &PrivateKey) -> Prepared {
        let prepare = || self.with_space(|lanes, space| lanes.prepare(space, key));
        let mut prepared = prepare();
        for _ in 0..MAX_PREPARATIONS {
            let again = prepare();
            if prepared.is_same(&again) {
                break;
            }
            prepared = again;
        }
        prepared
    }
}

/// The kernels for one size in one width.
#[derive(Debug)]
pub struct Lanes<const L: usize> {
    pub(super) size: Size,
    pub(super) shape: MlDsaShape,
    pub(super) kernels: MlDsa<L>,
    pub(super) keccak: Keccak<L>,
    /// Offset of products in pairs, transformed.
    pub(super) offset: &'static [u64],
}

impl<const L: usize> Lanes<L> {
    fn new(size: Size, kernels: MlDsa<L>, keccak: Keccak<L>) -> Self {
        let mut lanes = Self {
            size,
            shape: size.shape(),
            kernels,
            keccak,
            offset: &[],
        };
        // The offset is the same in all sizes and widths: a process computes it once.
        static OFFSET: OnceLock<Vec<u64>> = OnceLock::new();
        lanes.offset = OFFSET.get_or_init(|| {
            let mut arena = Arena::new(Space::len(&lanes));
            let mut space = Space::new(&lanes, arena.vectors());
            let offset = Constants::PAIR_OFFSET * (1 + (1 << Constants::PAIR_BITS));
            space.plain.fill([offset; L]);
            lanes.transform(&mut space, 1).to_vec()
        });
        lanes
    }

    /// `mu := H(tr || M')` (FIPS 204, algorithm 7, step 6), of each lane's own hash of the public
    /// key and message.
    pub(super) fn representatives(
        &self,
        space: &mut Space<'_, L>,
        hashes: [&[u8]; L],
        messages: [Message<'_>; L],
    ) -> [[u64; 8]; L] {
        let prefixes = messages.map(|message| message.prefix());
        let parts: [[&[u8]; 4]; L] = std::array::from_fn(|lane| {
            let (context, text) = messages[lane].parts();
            let prefix = match messages[lane] {
                Message::Text { .. } => prefixes[lane].as_slice(),
                #[cfg(test)]
                _ => &[],
            };
            [hashes[lane], prefix, context, text]
        });
        self.shake256(space, parts.each_ref().map(|parts| parts.as_slice()));
        std::array::from_fn(|lane| match messages[lane] {
            #[cfg(test)]
            Message::Representative(mu) => {
                let mut words = [0; MU_WORDS];
                set(words.as_chunks_mut::<1>().0, 0, mu);
                words
            }
            _ => column(space.state, lane),
        })
    }

    /// The first block of SHAKE256 of each lane's message, into `space.state`.
    pub(super) fn shake256(&self, space: &mut Space<'_, L>, messages: [&[&[u8]]; L]) {
        let block = &mut space.block[..2 * RATE];
        self.keccak
            .absorb(Sponge::Shake256, space.state, messages, block, space.scratch);
    }

    /// The first words of `H(mu || w1)`, both of which are in `space.message`, into `space.state`
    /// (algorithm 7, step 15).
    pub(super) fn hash_commitment(&self, space: &mut Space<'_, L>) {
        let block = &mut space.block[..RATE];
        self.keccak
            .absorb_words(Sponge::Shake256, space.state, space.message, block, space.scratch);
    }

    /// `c := SampleInBall(c~)` (algorithm 29), transformed, as the last polynomial of
    /// `space.transformed`. `c~` is in the first words of `space.state`.
    ///
    /// Time and addresses depend on `c~`. Where it does not become part of a signature, it is a
    /// hash of the high part of a commitment `A y` that never leaves: if the hash is a random oracle,
    /// the challenge is independent of the key.
    pub(super) fn challenge(&self, space: &mut Space<'_, L>) {
        let len = self.size.challenge_len() / 8;
        // Public, as said above.
        secrecy::publish(&space.state[..len]);
        space.state[len..].fill([0; L]);
        Sponge::Shake256.pad(&mut space.state[..RATE], 8 * len);
        self.keccak.permute(space.state, space.scratch);
        let (c, tau) = (&mut *space.plain, self.size.tau());
        c.fill([0; L]);
        // Steps 3 to 5: signs, and what coefficient comes next in each lane.
        let signs = space.state[0];
        let mut next = [Constants::N - tau; L];
        let mut from = 8;
        while next.iter().any(|&next| next < Constants::N) {
            if from == 0 {
                self.keccak.permute(space.state, space.scratch);
            }
            for (lane, next) in next.iter_mut().enumerate() {
                let mut bytes = [0; 8 * RATE];
                for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(&*space.state) {
                    *bytes = word[lane].to_le_bytes();
                }
                // Steps 6 to 13.
                for j in bytes[from..].iter().map(|&byte| usize::from(byte)) {
                    let i = *next;
                    if i == Constants::N {
                        break;
                    }
                    if j <= i {
                        c[i][lane] = c[j][lane];
                        let sign = signs[lane] >> (i + tau - Constants::N) & 1;
                        c[j][lane] = 1 + sign * (Constants::Q - 2);
                        *next = i + 1;
                    }
                }
            }
            from = 0;
        }
        let out = &mut space.transformed[self.shape.columns * Constants::N..];
        self.kernels.ntt(out, space.plain, space.space, space.scratch);
    }

    /// Entries of matrices, each lane's of its own `(row, column)` and seed, into polynomial `at`
    /// of `space.low` (algorithms 32 and 30). All this is public.
    pub(super) fn expand(
        &self,
        space: &mut Space<'_, L>,
        at: usize,
        seeds: &[[u64; L]; SEED_LEN / 8],
        entries: [(usize, usize); L],
    ) {
        // 34 bytes: two of indices, then the padding begins.
        let (seed, rest) = space.state.split_at_mut(seeds.len());
        seed.copy_from_slice(seeds);
        rest.fill([0; L]);
        rest[0] = entries.map(|(row, column)| (column | row << 8) as u64 | SHAKE_SUFFIX << 16);
        space.state[RATE_128 - 1] = [1 << 63; L];
        for block in space.words.chunks_exact_mut(RATE_128) {
            self.keccak.permute(space.state, space.scratch);
            block.copy_from_slice(&space.state[..RATE_128]);
        }
        let out = polynomial_mut(space.low, at);
        let bad = &mut space.bad[..1];
        bad.fill([0; L]);
        let (candidates, more) = space.words.split_at(Constants::N * 3 / 8);
        self.kernels.uniform(bad, out, candidates, space.scratch);
        // One coefficient in a thousand is out of range. Such lanes close ranks, and are filled
        // from what comes next.
        let mut more = more.to_vec();
        for lane in (0..L).filter(|&lane| bad[0][lane] != 0) {
            let mut len = 0;
            for j in 0..Constants::N {
                let value = out[j][lane];
                out[len][lane] = value;
                len += usize::from(value < Constants::Q);
            }
            let mut at = 0;
            while len < Constants::N {
                if (at + 1) * 24 > more.len() * 64 {
                    self.keccak.permute(space.state, space.scratch);
                    more.extend_from_slice(&space.state[..RATE_128]);
                }
                // Steps 5 and 6: CoeffFromThreeBytes (algorithm 14).
                let (word, bit) = (at * 24 / 64, at * 24 % 64);
                let next = more.get(word + 1).map_or(0, |next| next[lane]);
                let both = u128::from(more[word][lane]) | u128::from(next) << 64;
                let value = (both >> bit) as u64 & ((1 << 23) - 1);
                out[len][lane] = value;
                len += usize::from(value < Constants::Q);
                at += 1;
            }
        }
    }

    /// `-2^13 t1` of each lane's `row` and public key, transformed and reduced below 2^24, into
    /// polynomial `at` of `space.low`.
    pub(super) fn high_key(&self, space: &mut Space<'_, L>, at: usize, keys: [&[u8]; L], rows: [usize; L]) {
        for (lane, (key, row)) in keys.into_iter().zip(rows).enumerate() {
            let bytes = &key[SEED_LEN + HIGH_LEN * row..][..HIGH_LEN];
            set(space.words, lane, bytes);
        }
        let words = &space.words[..HIGH_LEN / 8];
        self.kernels.high_key(space.plain, words, space.scratch);
        self.transform_reduced(space, at);
    }

    /// The seeds of these keys' matrices.
    pub(super) fn seeds(&self, keys: [&[u8]; L]) -> [[u64; L]; SEED_LEN / 8] {
        let mut seeds = [[0; L]; SEED_LEN / 8];
        for (lane, key) in keys.into_iter().enumerate() {
            set(&mut seeds, lane, &key[..SEED_LEN]);
        }
        seeds
    }

    /// Derives the values that passes need from a key, for all its signatures.
    fn prepare(&self, space: &mut Space<'_, L>, key: &PrivateKey) -> Prepared {
        let MlDsaShape { rows, columns, .. } = self.shape;
        let mut matrix = vec![0; self.kernels.matrix_len()];
        let mut place = |(row, column): (usize, usize), polynomial: &[u64]| {
            for (j, &word) in polynomial.iter().enumerate() {
                matrix[self.kernels.matrix_at(row, column, j)] = word;
            }
        };
        let seeds = self.seeds([key.public_key(); L]);
        let entries: Vec<_> = (0..rows * columns).map(|i| (i / columns, i % columns)).collect();
        for entries in entries.chunks(L) {
            let spread = std::array::from_fn(|lane| entries[lane.min(entries.len() - 1)]);
            self.expand(space, 0, &seeds, spread);
            for (lane, &entry) in entries.iter().enumerate() {
                place(entry, &column::<{ Constants::N }, L>(space.low, lane));
            }
        }
        let indices: Vec<usize> = (0..rows).collect();
        for some in indices.chunks(L) {
            let spread = std::array::from_fn(|lane| some[lane.min(some.len() - 1)]);
            self.high_key(space, 0, [key.public_key(); L], spread);
            let words = canonical(space.low, some.len());
            for (&row, polynomial) in some.iter().zip(words.chunks_exact(Constants::N)) {
                place((row, columns), polynomial);
            }
        }

        let (short, t0) = key.expanded()[SHORT_AT..].split_at((rows + columns) * self.size.short_len());
        let bits = self.size.short_bits();
        // The coefficient of the first or, negated, of the second secret vector, plus 2^3.
        let short = |polynomial: usize, j: usize| {
            let Some(bytes) = short.chunks_exact(self.size.short_len()).nth(polynomial) else {
                return SHORT_RAISE;
            };
            let (field, eta) = (field(bytes, j, bits), self.size.eta());
            match polynomial < columns {
                true => SHORT_RAISE + eta - field,
                false => SHORT_RAISE + field - eta,
            }
        };
        let raise = Constants::Q - SHORT_RAISE * (1 + (1 << Constants::PAIR_BITS));
        let pairs = self.transform_all(space, (rows + columns).div_ceil(2), |pair, j| {
            raise + short(2 * pair, j) + (short(2 * pair + 1, j) << Constants::PAIR_BITS)
        });
        let t0 = match self.size {
            Size::MlDsa44 => self.transform_all(space, rows, |row, j| {
                let bytes = &t0[LOW_LEN * row..][..LOW_LEN];
                Constants::Q + (1 << (LOW_BITS - 1)) - field(bytes, j, LOW_BITS)
            }),
            _ => Zeroizing::default(),
        };
        Prepared { matrix, pairs, t0 }
    }

    /// Transforms `count` secret polynomials, given by their coefficients, below 2^24.
    fn transform_all(
        &self,
        space: &mut Space<'_, L>,
        count: usize,
        coefficient: impl Fn(usize, usize) -> u64,
    ) -> Zeroizing<Vec<u64>> {
        let mut all = Zeroizing::new(Vec::with_capacity(count * Constants::N));
        for from in (0..count).step_by(L) {
            for (j, vector) in space.plain.iter_mut().enumerate() {
                *vector = std::array::from_fn(|lane| coefficient((from + lane).min(count - 1), j));
            }
            all.extend_from_slice(&self.transform(space, L.min(count - from)));
        }
        all
    }

    /// Transforms the first `lanes` lanes of `space.plain` to words below `q`.
    fn transform(&self, space: &mut Space<'_, L>, lanes: usize) -> Zeroizing<Vec<u64>> {
        self.transform_reduced(space, 0);
        canonical(space.low, lanes)
    }

    /// The transform of `space.plain`, below 2^24, into polynomial `at` of `space.low`.
    fn transform_reduced(&self, space: &mut Space<'_, L>, at: usize) {
        let transformed = polynomial_mut(space.product, 0);
        self.kernels.ntt(transformed, space.plain, space.space, space.scratch);
        let (one, zero) = ([1; Constants::N], [0; Constants::N]);
        let out = polynomial_mut(space.low, at);
        self.kernels.scale(out, transformed, &one, &zero, space.scratch);
    }
}

memory! {
    /// The memory of a pass, by name.
    pub(super) struct Space(lanes: &Lanes<L>) {
        /// One polynomial per column of the matrix: the mask, or the response.
        vector: Constants::N * lanes.shape.columns,
        /// Transforms of those polynomials, and the challenge.
        transformed: Constants::N * (lanes.shape.columns + 1),
        /// One polynomial per row of the matrix: the product with it.
        product: Constants::N * lanes.shape.rows,
        /// One polynomial per row: low parts. In verification a row of the matrix and of the key.
        low: Constants::N * lanes.shape.rows.max(lanes.shape.columns + 1),
        /// One polynomial.
        plain: Constants::N,
        /// One polynomial, for transforms.
        space: Constants::N,
        /// A state of Keccak.
        state: Keccak::<L>::STATE,
        /// Two blocks of Keccak.
        block: 2 * RATE,
        /// Keccak's output, before it becomes a polynomial.
        words: UNIFORM_BLOCKS * RATE_128,
        /// `mu`, and the packed high part of the commitment.
        message: MU_WORDS + lanes.shape.rows * lanes.size.high_words(),
        /// The packed response.
        response: lanes.shape.columns * lanes.size.response_words(),
        /// A bit for each coefficient of the commitment.
        hints: lanes.shape.rows * HINT_WORDS,
        /// Lanes that failed, for two reasons.
        bad: 2,
        scratch: lanes.kernels.scratch_len().max(lanes.keccak.scratch_len()),
    }
}

/// Polynomial `at` of several.
pub(super) fn polynomial<const L: usize>(all: &[[u64; L]], at: usize) -> &[[u64; L]] {
    &all[at * Constants::N..][..Constants::N]
}

/// Polynomial `at` of several.
pub(super) fn polynomial_mut<const L: usize>(all: &mut [[u64; L]], at: usize) -> &mut [[u64; L]] {
    &mut all[at * Constants::N..][..Constants::N]
}

/// The first `N` numbers of a lane.
pub(super) fn column<const N: usize, const L: usize>(vectors: &[[u64; L]], lane: usize) -> [u64; N] {
    std::array::from_fn(|i| vectors[i][lane])
}

/// Puts bytes into a lane, as little-endian words.
pub(super) fn set<const L: usize>(vectors: &mut [[u64; L]], lane: usize, bytes: &[u8]) {
    for (vector, word) in vectors.iter_mut().zip(bytes.as_chunks().0) {
        vector[lane] = u64::from_le_bytes(*word);
    }
    faults::loaded("bytes", vectors);
}

/// Reads field `j` of packed fields of `bits` bits each, at most 24.
fn field(bytes: &[u8], j: usize, bits: usize) -> u64 {
    let (byte, at) = (j * bits / 8, j * bits % 8);
    let some = bytes.iter().skip(byte).take(4).enumerate();
    let word = some.fold(0, |word, (i, &byte)| word | u64::from(byte) << (8 * i));
    word >> at & ((1 << bits) - 1)
}

/// Reduces the first `lanes` lanes of a polynomial, which is below `2 q`.
fn canonical<const L: usize>(polynomial: &[[u64; L]], lanes: usize) -> Zeroizing<Vec<u64>> {
    let reduce = |word: u64| {
        let less = word.wrapping_sub(Constants::Q);
        // The highest bit says whether that was too much.
        less.wrapping_add(Constants::Q & (less >> 63).wrapping_neg())
    };
    let of_lane = |lane| polynomial[..Constants::N].iter().map(move |v| reduce(v[lane]));
    let mut all = Zeroizing::new(Vec::with_capacity(lanes * Constants::N));
    all.extend((0..lanes).flat_map(of_lane));
    all
}

/// Further attempts to derive the same from a key twice. On a machine where all of them fail no
/// signature passes its check.
const MAX_PREPARATIONS: usize = 4;
/// Bytes of the seed of a matrix.
const SEED_LEN: usize = 32;
/// Words of `mu`.
pub(super) const MU_WORDS: usize = 8;
/// Words of a block of SHAKE256 and of SHAKE128.
pub(super) const RATE: usize = Sponge::Shake256.rate();
/// Bits that follow a message in SHAKE: 1111, and the first bit of the padding (FIPS 202, section 6.2).
pub(super) const SHAKE_SUFFIX: u64 = 0x1f;
const RATE_128: usize = Sponge::Shake128.rate();
/// Blocks that hold 256 candidates for coefficients, and some more.
const UNIFORM_BLOCKS: usize = 5;
/// Bytes of a polynomial of `t1`.
const HIGH_LEN: usize = 320;
/// Bits of a coefficient of `t0`, and bytes of a polynomial.
const LOW_BITS: usize = 13;
const LOW_LEN: usize = LOW_BITS * Constants::N / 8;
/// Offset of the secret vectors in an expanded key, after the seed, `K` and `tr` (algorithm 24).
const SHORT_AT: usize = 128;
/// Amount added to a coefficient of a secret vector to make it positive.
const SHORT_RAISE: u64 = 8;
