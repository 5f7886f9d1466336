//! Polynomials of ML-KEM (FIPS 203), `L` requests at once.

use std::sync::LazyLock;

use widelane_lanes::{MlKem as Family, MlKemKernels};

use crate::arena::Arena;
use crate::assembled::{Callable, most_slots};
use crate::machine::{Machine, wrappers};

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
    kernels: MlKemKernels<Callable<L>>,
    /// Factors of products: first the factors, then the factors over q, for each part.
    factors: Arena<L>,
}

/// Factors for all parameter sets and widths: a process computes them once. Forked processes, which start engines of
/// their own, inherit them.
static FACTORS: LazyLock<Vec<(u64, u64)>> = LazyLock::new(|| {
    let quarters = 0..Family::PARTS;
    let quarter = Family::POLYNOMIAL / Family::PARTS;
    quarters
        .flat_map(|part| (0..quarter).map(move |i| Family::product_factors(part, i)))
        .collect()
});

impl<const L: usize> MlKem<L> {
    /// Vectors of a polynomial.
    pub const POLYNOMIAL: usize = Family::POLYNOMIAL;
    /// Vectors that [`candidates`](Self::candidates) takes coefficients from.
    pub const CANDIDATES: usize = Family::CANDIDATES;
    /// Vectors of a polynomial in bytes of 12 bits a coefficient.
    pub const ENCODED: usize = 48;

    /// Kernels on a machine; `rank` is 2, 3 or 4, for ML-KEM-512, 768 and 1024.
    pub fn new(machine: impl Into<Machine<L>>, rank: usize) -> Self {
        let machine = machine.into();
        assert!((2..=4).contains(&rank), "there is no ML-KEM of rank {rank}");
        let mut factors = Arena::new(2 * Family::POLYNOMIAL);
        let quarter = Family::POLYNOMIAL / Family::PARTS;
        let parts = factors.vectors().chunks_exact_mut(2 * quarter);
        for (vectors, words) in parts.zip(FACTORS.chunks_exact(quarter)) {
            for (i, &(plain, quotient)) in words.iter().enumerate() {
                vectors[i] = [plain; L];
                vectors[quarter + i] = [quotient; L];
            }
        }
        Self {
            rank,
            kernels: MlKemKernels::new(rank, |kernel| Callable::new(machine, kernel)),
            factors,
        }
    }

    /// Vectors of scratch space that every method needs.
    pub fn scratch_len(&self) -> usize {
        most_slots(self.kernels.each())
    }

    /// Vectors of random words for a polynomial of noise with eta_1.
    pub fn noise_words(&self) -> usize {
        8 * Family::eta1(self.rank) as usize
    }

    /// Vectors of a polynomial in the first part of a ciphertext.
    pub fn u_words(&self) -> usize {
        4 * Family::compressed_bits(self.rank)[0] as usize
    }

    wrappers! {
        /// The coefficients below q that a block of SHAKE128 gives, for rejection sampling of what
        /// is public. The first [`CANDIDATES`](Self::CANDIDATES) vectors are words with up to four
        /// of them from the low end, in 16 bits each; the others are their number in front of each
        /// word, and in all. `out` has `2 CANDIDATES + 1` vectors.
        candidates: [out], [state];
        /// `poly := rows`: lane `l` of it is made of the `64 l`th word and those after it.
        transpose: [poly], [rows];
        /// `poly := NTT(poly)`.
        ntt: [poly], [];
        /// `poly := NTT^-1(poly)`.
        inverse_ntt: [poly], [];
        /// `poly := SamplePolyCBD` of [`noise_words`](Self::noise_words) vectors, with eta_1.
        noise1: [poly], [words];
        /// `poly := SamplePolyCBD` of 16 vectors, with eta_2.
        noise2: [poly], [words];
        /// `words := ByteEncode_12(a)`, [`ENCODED`](Self::ENCODED) vectors.
        encode: [words], [a];
        /// `words := ByteEncode_12(a + b)`, `a` transformed and `b` a product.
        encode_sum: [words], [a, b];
        /// `poly := ByteDecode_12(words)`; the one vector `bad` becomes other than zero in lanes
        /// with a coefficient that is not reduced modulo q, and stays as it is in the others.
        decode: [poly, bad], [words];
        /// `words := ByteEncode(Compress(a + noise))` for the first part of a ciphertext.
        compress_u: [words], [a, noise];
        /// `words := ByteEncode(Compress(a + noise + message))` for its second part.
        compress_v: [words], [a, noise, message];
        /// `poly := Decompress(ByteDecode(words))` of the first part of a ciphertext.
        decompress_u: [poly], [words];
        /// `poly := Decompress(ByteDecode(words))` of its second part.
        decompress_v: [poly], [words];
        /// `poly := Decompress_1(ByteDecode_1(m))` of the 4 vectors of a message.
        message: [poly], [m];
        /// `m := ByteEncode_1(Compress_1(v - w))`.
        recover: [m], [v, w];
    }

    /// `out := a . b` of two vectors of polynomials in the transformed domain, `a` as decoded and
    /// `b` as transformed.
    pub fn product(&self, out: &mut [[u64; L]], a: &[[u64; L]], b: &[[u64; L]], scratch: &mut [[u64; L]]) {
        assert_eq!(out.len(), Family::POLYNOMIAL);
        let quarter = Family::POLYNOMIAL / Family::PARTS;
        let len = (self.rank - 1) * Family::POLYNOMIAL + quarter;
        let factors = self.factors.as_vectors().chunks_exact(2 * quarter);
        for ((part, out), factors) in out.chunks_exact_mut(quarter).enumerate().zip(factors) {
            let (plain, quotient) = factors.split_at(quarter);
            let at = part * quarter;
            let (a, b) = (&a[at..at + len], &b[at..at + len]);
            self.kernels.product.call([out], [a, b, plain, quotient], scratch);
        }
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
        self.kernels.choose.call([out], [ours, theirs, good, bad], scratch);
    }
}
