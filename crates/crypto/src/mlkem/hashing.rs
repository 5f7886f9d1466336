//! Hashes of a pass, in one of two layouts.
//!
//! Requests for most of the lanes: each hashes all its streams in its own lane, one after the other. Few requests:
//! their streams are spread over the lanes. First the entries of the matrix, and beside them the one long message that
//! does not depend on them; then the noise. The results go back into the lanes of the requests.

use super::lanes::{Lanes, POLYNOMIAL, STATE, Work};
use std::ops::Range;
use widelane_kernels::{MlKem, Sponge};

/// A hash of a long message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Digest {
    /// `hash := H(public)`.
    Key,
    /// `rejected := J(theirs)`.
    Ciphertext,
}

impl<const L: usize> Lanes<L> {
    /// Hashes what depends on the input only: `digest`, and if the requests are few, all entries of the matrix, for
    /// [`sample_row`](Self::sample_row) to take from.
    pub(super) fn prepare(&self, w: &mut Work<'_, L>, digest: Option<Digest>) {
        if is_few::<L>(w.requests) {
            self.spread(w, digest);
        } else if let Some(digest) = digest {
            self.hash(w, digest);
        }
    }

    /// A digest, each in its request's lane.
    pub(super) fn hash(&self, w: &mut Work<'_, L>, digest: Digest) {
        let (sponge, message, digest) = digest.parts([w.public, w.theirs], [w.hash, w.rejected]);
        self.keccak.absorb_words(sponge, w.state, message, w.block, w.scratch);
        digest.copy_from_slice(&w.state[..4]);
    }

    /// `(shared, random) := G(message || hash)`.
    pub(super) fn derive(&self, w: &mut Work<'_, L>) {
        w.state.fill([0; L]);
        w.state[..4].copy_from_slice(w.message);
        w.state[4..8].copy_from_slice(w.hash);
        Sponge::Sha3_512.pad(w.state, 64);
        self.keccak.permute(w.state, w.scratch);
        w.shared.copy_from_slice(&w.state[..4]);
        w.random.copy_from_slice(&w.state[4..8]);
    }

    /// Polynomials of noise from `random`: the first `transformed` with eta_1, and their transforms
    /// taken, then `plain` with eta_2.
    pub(super) fn noises(&self, w: &mut Work<'_, L>, transformed: usize, plain: usize) {
        if is_few::<L>(w.requests) {
            self.spread_noises(w, transformed, plain);
            return;
        }
        // The states beforehand: a kernel that reads as a vector what has just been written in
        // pieces waits until that has reached the cache.
        let count = transformed + plain;
        for (number, state) in w.states.chunks_exact_mut(STATE).enumerate().take(count) {
            // PRF(random, number) (section 4.1).
            state.fill([0; L]);
            state[..4].copy_from_slice(w.random);
            state[4] = [number as u64; L];
            Sponge::Shake256.pad(state, PRF_LEN);
        }
        let states = w.states.chunks_exact_mut(STATE);
        let polys = w.noise.chunks_exact_mut(POLYNOMIAL);
        for (number, (state, poly)) in states.zip(polys).enumerate().take(count) {
            self.noise(poly, state, number < transformed, w.long, w.scratch);
        }
        // Afterwards: the three kernels together would not fit into the instruction cache.
        let polys = w.noise.chunks_exact_mut(POLYNOMIAL);
        for poly in polys.take(transformed) {
            self.kernels.ntt(poly, w.scratch);
        }
    }

    /// `row := A[index(0)], A[index(1)], ...`, with `A[i, j] = SampleNTT(rho || i || j)`
    /// (algorithm 7).
    pub(super) fn sample_row(&self, w: &mut Work<'_, L>, index: impl Fn(usize) -> [usize; 2]) {
        let rank = self.size.rank();
        if is_few::<L>(w.requests) {
            for (j, poly) in w.row.chunks_exact_mut(POLYNOMIAL).enumerate() {
                let [first, second] = index(j);
                let rows = &w.matrix[(first * rank + second) * POLYNOMIAL..][..POLYNOMIAL];
                self.kernels.transpose(poly, rows, w.scratch);
            }
            return;
        }
        for (j, state) in w.states.chunks_exact_mut(STATE).enumerate().take(rank) {
            state.fill([0; L]);
            state[..4].copy_from_slice(w.rho);
            state[4] = [entry(index(j)); L];
            Sponge::Shake128.pad(state, ENTRY_LEN);
        }
        let states = w.states.chunks_exact_mut(STATE);
        for (poly, state) in w.row.chunks_exact_mut(POLYNOMIAL).zip(states) {
            let mut samples = [Samples::new(); L];
            while samples.iter().any(|samples| !samples.are_enough()) {
                self.keccak.permute(state, w.scratch);
                self.kernels.candidates(w.candidates, state, w.scratch);
                for (lane, samples) in samples.iter_mut().enumerate() {
                    samples.take(w.candidates, lane);
                }
            }
            let rows = w.rows.as_flattened_mut().chunks_exact_mut(POLYNOMIAL);
            for (row, samples) in rows.zip(&samples) {
                samples.store(row);
            }
            self.kernels.transpose(poly, w.rows, w.scratch);
        }
    }

    /// [`prepare`](Self::prepare) with a stream a lane; one that ends is followed by the next.
    fn spread(&self, w: &mut Work<'_, L>, digest: Option<Digest>) {
        let rank = self.size.rank();
        let requests = 0..w.requests;
        // The long ones first.
        let digests = requests.clone().filter(|_| digest.is_some());
        let digests = digests.map(|request| Stream::Digest { request, taken: 0 });
        let entries = requests.flat_map(|request| {
            let entry = move |at| Stream::Entry { request, at };
            (0..rank * rank).map(entry)
        });
        let mut waiting = digests.chain(entries);
        let (sponge, message, digest): (_, &[_], &mut [_]) = match digest {
            Some(digest) => digest.parts([w.public, w.theirs], [w.hash, w.rejected]),
            None => (Sponge::Sha3_256, &[], &mut []),
        };
        let mut streams = [const { None }; L];
        let mut samples = [Samples::new(); L];
        loop {
            for (lane, stream) in streams.iter_mut().enumerate() {
                if stream.is_none() {
                    *stream = waiting.next();
                    for vector in &mut *w.state {
                        vector[lane] = 0;
                    }
                    if let Some(Stream::Entry { request, at }) = *stream {
                        take_in(w.state, lane, w.rho, request);
                        w.state[4][lane] = entry([at / rank, at % rank]);
                        Sponge::Shake128.pad_lane(w.state, lane, ENTRY_LEN);
                        samples[lane] = Samples::new();
                    }
                }
                if let Some(Stream::Digest { request, taken }) = stream {
                    let rest = &message[*taken..];
                    let block = &rest[..rest.len().min(sponge.rate())];
                    take_in(w.state, lane, block, *request);
                    *taken += block.len();
                    if block.len() < sponge.rate() {
                        sponge.pad_lane(w.state, lane, 8 * block.len());
                        *taken += 1;
                    }
                }
            }
            if streams.iter().all(Option::is_none) {
                return;
            }
            self.keccak.permute(w.state, w.scratch);
            if streams.iter().flatten().any(Stream::is_entry) {
                self.kernels.candidates(w.candidates, w.state, w.scratch);
            }
            for (lane, stream) in streams.iter_mut().enumerate() {
                match *stream {
                    Some(Stream::Digest { request, taken }) if taken > message.len() => {
                        for (digest, vector) in digest.iter_mut().zip(&*w.state) {
                            digest[request] = vector[lane];
                        }
                        *stream = None;
                    }
                    Some(Stream::Entry { request, at }) => {
                        samples[lane].take(w.candidates, lane);
                        if samples[lane].are_enough() {
                            let rows = &mut w.matrix[at * POLYNOMIAL..][..POLYNOMIAL];
                            let rows = rows.as_flattened_mut();
                            samples[lane].store(&mut rows[request * POLYNOMIAL..][..POLYNOMIAL]);
                            *stream = None;
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// [`noises`](Self::noises) with a polynomial a lane.
    fn spread_noises(&self, w: &mut Work<'_, L>, transformed: usize, plain: usize) {
        let requests = w.requests;
        // The number of the polynomial, and whose it is.
        let whose = |stream| (stream / requests, stream % requests);
        // Polynomials of both kinds go together if eta_1 equals eta_2.
        let wide = if self.kernels.noise_words() == NOISE2_WORDS {
            0
        } else {
            transformed
        };
        for (group, is_wide) in [(0..wide, true), (wide..transformed + plain, false)] {
            let end = group.end * requests;
            for from in (group.start * requests..end).step_by(L) {
                let streams = from..end.min(from + L);
                w.state.fill([0; L]);
                for (lane, (number, request)) in streams.clone().map(whose).enumerate() {
                    take_in(w.state, lane, w.random, request);
                    w.state[4][lane] = number as u64;
                }
                Sponge::Shake256.pad(w.state, PRF_LEN);
                self.noise(w.sum, w.state, is_wide, w.long, w.scratch);
                let mut put = |poly: &[[u64; L]], numbers: Range<usize>| {
                    for (lane, (number, request)) in streams.clone().map(whose).enumerate() {
                        if numbers.contains(&number) {
                            let to = &mut w.noise[number * POLYNOMIAL..][..POLYNOMIAL];
                            for (to, from) in to.iter_mut().zip(poly) {
                                to[request] = from[lane];
                            }
                        }
                    }
                };
                put(w.sum, transformed..transformed + plain);
                if whose(from).0 < transformed {
                    self.kernels.ntt(w.sum, w.scratch);
                    put(w.sum, 0..transformed);
                }
            }
        }
    }

    /// `poly := SamplePolyCBD` of the output of SHAKE256 whose first state is given, with eta_1 if
    /// `wide`.
    fn noise(
        &self,
        poly: &mut [[u64; L]],
        state: &mut [[u64; L]],
        wide: bool,
        long: &mut [[u64; L]],
        scratch: &mut [[u64; L]],
    ) {
        self.keccak.permute(state, scratch);
        if !wide {
            self.kernels.noise2(poly, &state[..NOISE2_WORDS], scratch);
        } else if self.kernels.noise_words() <= Sponge::Shake256.rate() {
            let words = &state[..self.kernels.noise_words()];
            self.kernels.noise1(poly, words, scratch);
        } else {
            let (first, second) = long.split_at_mut(Sponge::Shake256.rate());
            first.copy_from_slice(&state[..first.len()]);
            self.keccak.permute(state, scratch);
            second.copy_from_slice(&state[..second.len()]);
            self.kernels.noise1(poly, long, scratch);
        }
    }
}

/// Returns whether the streams of `requests` requests are spread over the lanes: with more requests the idle lanes cost
/// less than the way from lane to lane.
fn is_few<const L: usize>(requests: usize) -> bool {
    4 * requests <= 3 * L
}

impl Digest {
    /// The function, the message, and where its value goes.
    fn parts<'a, const L: usize>(
        self,
        [public, theirs]: [&'a [[u64; L]]; 2],
        [hash, rejected]: [&'a mut [[u64; L]]; 2],
    ) -> (Sponge, &'a [[u64; L]], &'a mut [[u64; L]]) {
        match self {
            Self::Key => (Sponge::Sha3_256, public, hash),
            Self::Ciphertext => (Sponge::Shake256, theirs, rejected),
        }
    }
}

/// Stream that a lane hashes when requests are few.
#[derive(Clone, Copy, Debug)]
enum Stream {
    /// Long message of a request. `taken` counts the words absorbed so far; the padding counts as one more.
    Digest { request: usize, taken: usize },
    /// The entry at this place of a request's matrix.
    Entry { request: usize, at: usize },
}

impl Stream {
    fn is_entry(&self) -> bool {
        matches!(self, Self::Entry { .. })
    }
}

/// The coefficients of an entry of the matrix, as they come (algorithm 7, lines 4 to 16).
#[derive(Clone, Copy)]
struct Samples {
    /// Two bytes for each coefficient. Bytes beyond the last are overwritten until the end, and then dropped.
    bytes: [u8; 2 * COEFFICIENTS + 8],
    count: usize,
}

impl Samples {
    fn new() -> Self {
        Self {
            bytes: [0; 2 * COEFFICIENTS + 8],
            count: 0,
        }
    }

    /// Takes what a lane of [`MlKem::candidates`] has, several coefficients at a time.
    fn take<const L: usize>(&mut self, candidates: &[[u64; L]], lane: usize) {
        let (words, places) = candidates.split_at(MlKem::<L>::CANDIDATES);
        for (word, place) in words.iter().zip(places) {
            let at = 2 * (self.count + place[lane] as usize).min(COEFFICIENTS);
            self.bytes[at..at + 8].copy_from_slice(&word[lane].to_le_bytes());
        }
        self.count += places[MlKem::<L>::CANDIDATES][lane] as usize;
    }

    fn are_enough(&self) -> bool {
        self.count >= COEFFICIENTS
    }

    fn store(&self, row: &mut [u64]) {
        for (word, bytes) in row.iter_mut().zip(self.bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
    }
}

/// A lane of a state takes in words from the lane of a request.
fn take_in<const L: usize>(state: &mut [[u64; L]], lane: usize, words: &[[u64; L]], request: usize) {
    for (vector, words) in state.iter_mut().zip(words) {
        vector[lane] ^= words[request];
    }
}

/// Bytes that follow rho in the message of an entry of the matrix.
fn entry([first, second]: [usize; 2]) -> u64 {
    (first | second << 8) as u64
}

/// Bytes of that message.
const ENTRY_LEN: usize = 34;
/// Bytes of a message of PRF (section 4.1).
const PRF_LEN: usize = 33;
/// Words of randomness for a polynomial of noise with eta_2.
const NOISE2_WORDS: usize = 16;
const COEFFICIENTS: usize = 256;
