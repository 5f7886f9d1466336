//! Polynomials of ML-KEM (FIPS 203), `L` requests at once.

use widelane_cpu::{Avx512Ifma, Avx512IfmaVl};
use widelane_lanes::MlKem as Source;

use crate::arena::Arena;
use crate::assembled::Callable;

/// The kernels for one parameter set, in one width.
///
/// A polynomial is an array of [`POLYNOMIAL`](Self::POLYNOMIAL) vectors, a vector of `rank` of them
/// one of `rank` times as many; lane `l` of every array belongs to request `l`. Bytes are
/// little-endian words, 32 bytes in 4 vectors. Names are those of the standard.
///
/// Every method but [`candidates`](Self::candidates) is meant for secrets and constant time in all
/// lanes' values, and panics when an array has another length than it says.
#[derive(Debug)]
pub struct MlKem<const L: usize> {
    rank: usize,
    candidates: Callable<L>,
    transpose: Callable<L>,
    product: Callable<L>,
    ntt: Callable<L>,
    inverse_ntt: Callable<L>,
    /// With eta_1, and with eta_2.
    noise: [Callable<L>; 2],
    encode: [Callable<L>; 2],
    decode: Callable<L>,
    /// With d_u, and with d_v.
    compress: [Callable<L>; 2],
    decompress: [Callable<L>; 2],
    message: Callable<L>,
    recover: Callable<L>,
    choose: Callable<L>,
    /// What products are multiplied by: factors, then factors over q, for each part.
    factors: Arena<L>,
}

impl MlKem<8> {
    /// Kernels for 512-bit registers; `rank` is 2, 3 or 4, for ML-KEM-512, 768 and 1024.
    pub fn zmm(token: Avx512Ifma, rank: usize) -> Self {
        Self::new(rank, |kernel| Callable::zmm(token, kernel))
    }
}

impl MlKem<4> {
    /// Kernels for 256-bit registers; `rank` is 2, 3 or 4, for ML-KEM-512, 768 and 1024.
    pub fn ymm(token: Avx512IfmaVl, rank: usize) -> Self {
        Self::new(rank, |kernel| Callable::ymm(token, kernel))
    }
}

impl<const L: usize> MlKem<L> {
    /// Vectors of a polynomial.
    pub const POLYNOMIAL: usize = Source::POLYNOMIAL;
    /// Vectors that [`candidates`](Self::candidates) takes coefficients from.
    pub const CANDIDATES: usize = Source::CANDIDATES;
    /// Vectors of a polynomial in bytes of 12 bits a coefficient.
    pub const ENCODED: usize = 48;

    /// Kernels in portable Rust, for tests and for keys that are loaded once.
    pub fn model(rank: usize) -> Self {
        Self::new(rank, Callable::model)
    }

    fn new(rank: usize, callable: impl Fn(Source) -> Callable<L>) -> Self {
        assert!((2..=4).contains(&rank), "there is no ML-KEM of rank {rank}");
        // FIPS 203, table 2.
        let eta1 = if rank == 2 { 3 } else { 2 };
        let bits = if rank == 4 { [11, 5] } else { [10, 4] };
        let words = 4 * (bits[0] as usize * rank + bits[1] as usize);
        let mut factors = Arena::new(2 * Source::POLYNOMIAL);
        let quarter = Source::POLYNOMIAL / Source::PARTS;
        for (part, vectors) in factors.vectors().chunks_exact_mut(2 * quarter).enumerate() {
            for i in 0..quarter {
                let (plain, quotient) = Source::product_factors(part, i);
                vectors[i] = [plain; L];
                vectors[quarter + i] = [quotient; L];
            }
        }
        Self {
            rank,
            candidates: callable(Source::Candidates),
            transpose: callable(Source::Transpose),
            product: callable(Source::Product { rank }),
            ntt: callable(Source::Ntt),
            inverse_ntt: callable(Source::InverseNtt),
            noise: [eta1, 2].map(|eta| callable(Source::Noise { eta })),
            encode: [1, 2].map(|terms| callable(Source::Encode { terms })),
            decode: callable(Source::Decode),
            compress: bits.map(|bits| callable(Source::Compress { bits })),
            decompress: bits.map(|bits| callable(Source::Decompress { bits })),
            message: callable(Source::Decompress { bits: 1 }),
            recover: callable(Source::Recover),
            choose: callable(Source::Choose { words }),
            factors,
        }
    }

    /// Vectors of scratch space that every method needs.
    pub fn scratch_len(&self) -> usize {
        let single = [
            &self.candidates,
            &self.transpose,
            &self.product,
            &self.ntt,
            &self.inverse_ntt,
            &self.decode,
            &self.message,
            &self.recover,
            &self.choose,
        ];
        let double = [&self.noise, &self.encode, &self.compress, &self.decompress];
        let all = single.into_iter().chain(double.into_iter().flatten());
        all.map(Callable::slots).max().unwrap_or(0)
    }

    /// The coefficients below q that a block of SHAKE128 gives, for rejection sampling of what is
    /// public. The first [`CANDIDATES`](Self::CANDIDATES) vectors are words with up to four of
    /// them from the low end, in 16 bits each; the others are their number in front of each word,
    /// and in all. `out` has `2 CANDIDATES + 1` vectors.
    pub fn candidates(&self, out: &mut [[u64; L]], state: &[[u64; L]], scratch: &mut [[u64; L]]) {
        self.candidates.call([out], [state], scratch);
    }

    /// `poly := rows`: lane `l` of it is made of the `64 l`th word and those after it.
    pub fn transpose(&self, poly: &mut [[u64; L]], rows: &[[u64; L]], scratch: &mut [[u64; L]]) {
        self.transpose.call([poly], [rows], scratch);
    }

    /// `out := a . b` of two vectors of polynomials in the transformed domain, `a` as decoded and
    /// `b` as transformed.
    pub fn product(
        &self,
        out: &mut [[u64; L]],
        a: &[[u64; L]],
        b: &[[u64; L]],
        scratch: &mut [[u64; L]],
    ) {
        assert_eq!(out.len(), Source::POLYNOMIAL);
        let quarter = Source::POLYNOMIAL / Source::PARTS;
        let len = (self.rank - 1) * Source::POLYNOMIAL + quarter;
        let factors = self.factors.as_vectors().chunks_exact(2 * quarter);
        for ((part, out), factors) in out.chunks_exact_mut(quarter).enumerate().zip(factors) {
            let (plain, quotient) = factors.split_at(quarter);
            let at = part * quarter;
            let (a, b) = (&a[at..at + len], &b[at..at + len]);
            self.product.call([out], [a, b, plain, quotient], scratch);
        }
    }

    /// `poly := NTT(poly)`.
    pub fn ntt(&self, poly: &mut [[u64; L]], scratch: &mut [[u64; L]]) {
        self.ntt.call([poly], [], scratch);
    }

    /// `poly := NTT^-1(poly)`.
    pub fn inverse_ntt(&self, poly: &mut [[u64; L]], scratch: &mut [[u64; L]]) {
        self.inverse_ntt.call([poly], [], scratch);
    }

    /// Vectors of random words for a polynomial of noise with eta_1.
    pub fn noise_words(&self) -> usize {
        if self.rank == 2 { 24 } else { 16 }
    }

    /// `poly := SamplePolyCBD` of [`noise_words`](Self::noise_words) vectors, with eta_1.
    pub fn noise1(&self, poly: &mut [[u64; L]], words: &[[u64; L]], scratch: &mut [[u64; L]]) {
        self.noise[0].call([poly], [words], scratch);
    }

    /// `poly := SamplePolyCBD` of 16 vectors, with eta_2.
    pub fn noise2(&self, poly: &mut [[u64; L]], words: &[[u64; L]], scratch: &mut [[u64; L]]) {
        self.noise[1].call([poly], [words], scratch);
    }

    /// `words := ByteEncode_12(a)`, [`ENCODED`](Self::ENCODED) vectors.
    pub fn encode(&self, words: &mut [[u64; L]], a: &[[u64; L]], scratch: &mut [[u64; L]]) {
        self.encode[0].call([words], [a], scratch);
    }

    /// `words := ByteEncode_12(a + b)`, `a` transformed and `b` a product.
    pub fn encode_sum(
        &self,
        words: &mut [[u64; L]],
        a: &[[u64; L]],
        b: &[[u64; L]],
        scratch: &mut [[u64; L]],
    ) {
        self.encode[1].call([words], [a, b], scratch);
    }

    /// `poly := ByteDecode_12(words)`; the one vector `bad` becomes other than zero in lanes with
    /// a coefficient that is not reduced modulo q, and stays as it is in the others.
    pub fn decode(
        &self,
        poly: &mut [[u64; L]],
        bad: &mut [[u64; L]],
        words: &[[u64; L]],
        scratch: &mut [[u64; L]],
    ) {
        self.decode.call([poly, bad], [words], scratch);
    }

    /// Vectors of a polynomial in the first part of a ciphertext.
    pub fn u_words(&self) -> usize {
        if self.rank == 4 { 44 } else { 40 }
    }

    /// `words := ByteEncode(Compress(a + noise))` for the first part of a ciphertext.
    pub fn compress_u(
        &self,
        words: &mut [[u64; L]],
        a: &[[u64; L]],
        noise: &[[u64; L]],
        scratch: &mut [[u64; L]],
    ) {
        self.compress[0].call([words], [a, noise], scratch);
    }

    /// `words := ByteEncode(Compress(a + noise + message))` for its second part.
    pub fn compress_v(
        &self,
        words: &mut [[u64; L]],
        a: &[[u64; L]],
        noise: &[[u64; L]],
        message: &[[u64; L]],
        scratch: &mut [[u64; L]],
    ) {
        self.compress[1].call([words], [a, noise, message], scratch);
    }

    /// `poly := Decompress(ByteDecode(words))` of the first part of a ciphertext.
    pub fn decompress_u(
        &self,
        poly: &mut [[u64; L]],
        words: &[[u64; L]],
        scratch: &mut [[u64; L]],
    ) {
        self.decompress[0].call([poly], [words], scratch);
    }

    /// `poly := Decompress(ByteDecode(words))` of its second part.
    pub fn decompress_v(
        &self,
        poly: &mut [[u64; L]],
        words: &[[u64; L]],
        scratch: &mut [[u64; L]],
    ) {
        self.decompress[1].call([poly], [words], scratch);
    }

    /// `poly := Decompress_1(ByteDecode_1(m))` of the 4 vectors of a message.
    pub fn message(&self, poly: &mut [[u64; L]], m: &[[u64; L]], scratch: &mut [[u64; L]]) {
        self.message.call([poly], [m], scratch);
    }

    /// `m := ByteEncode_1(Compress_1(v - w))`.
    pub fn recover(
        &self,
        m: &mut [[u64; L]],
        v: &[[u64; L]],
        w: &[[u64; L]],
        scratch: &mut [[u64; L]],
    ) {
        self.recover.call([m], [v, w], scratch);
    }

    /// `out := good` in lanes with equal ciphertexts, `bad` in the others; 4 vectors each.
    pub fn choose(
        &self,
        out: &mut [[u64; L]],
        ciphertexts: [&[[u64; L]]; 2],
        good: &[[u64; L]],
        bad: &[[u64; L]],
        scratch: &mut [[u64; L]],
    ) {
        let [ours, theirs] = ciphertexts;
        self.choose.call([out], [ours, theirs, good, bad], scratch);
    }
}
