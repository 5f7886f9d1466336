//! The kernels of ML-KEM (FIPS 203), one request for each lane.
//!
//! A polynomial of 256 coefficients modulo q = 3329 is 64 vectors: vector `i` holds coefficients
//! `4 i` to `4 i + 3` in the four signed 16-bit words of a lane.

mod coding;
mod sampling;
#[cfg(test)]
mod tests;
mod transform;
mod words;

use crate::bounds::Holds;
use crate::definition::kernels;
use crate::machine::{Array, Machine};
use coding::{Stream, compress, decode, decompress, encode};
use words::{OR_XOR, POLYNOMIAL, Q, QUARTER, canonical};

kernels! {
    /// Arithmetic, sampling and encoding of polynomials.
    pub enum MlKem {
        /// For rejection sampling. The first 28 vectors are words with up to four coefficients from
        /// the low end, and zeros; the other 29 are the number of coefficients in front of each
        /// word, and in all.
        Candidates {
            name: "mlkem_candidates",
            formula: "out := coefficients below q, counts",
            reference: "FIPS 203, algorithm 7",
            arrays: {
                out: writes(2 * MlKem::CANDIDATES + 1, ANY).public(),
                state: reads(25, ANY).public(),
            },
            body: |m| sampling::candidates(m, out, state),
        }
        /// Transposes: in `rows` each lane's polynomial is 64 consecutive words.
        Transpose {
            name: "mlkem_transpose",
            formula: "poly := rows",
            reference: "none: it only changes the layout in memory",
            arrays: { poly: writes(POLYNOMIAL, DECODED), rows: reads(POLYNOMIAL, DECODED) },
            body: |m| transpose(m, poly, rows),
        }
        /// A quarter of the sum of `rank` products in the transformed domain, 16 vectors of each
        /// polynomial: `a` and `b` from the quarter of the first polynomial to that of the last,
        /// and the quarter's [`MlKem::product_factors`].
        Product(rank: usize) {
            name: "mlkem_product{rank}",
            formula: "out := sum of a b, a quarter",
            reference: "FIPS 203, algorithms 11 and 12",
            arrays: {
                out: writes(QUARTER, PRODUCT),
                a: reads((rank - 1) * POLYNOMIAL + QUARTER, DECODED),
                b: reads((rank - 1) * POLYNOMIAL + QUARTER, TRANSFORMED),
                plain: reads(QUARTER, words16(Q as u16 / 2)).public(),
                quotient: reads(QUARTER, ANY).public(),
            },
            body: |m| transform::product(m, rank, out, [a, b, plain, quotient]),
        }
        /// Transforms in place. The kernel reads less than its bound.
        Ntt {
            name: "mlkem_ntt",
            formula: "poly := NTT(poly)",
            reference: "FIPS 203, algorithm 9",
            arrays: { poly: writes(POLYNOMIAL, TRANSFORMED) },
            body: |m| transform::ntt(m, poly),
        }
        /// Transforms in place. The kernel reads less than its bound.
        InverseNtt {
            name: "mlkem_intt",
            formula: "poly := NTT^-1(poly)",
            reference: "FIPS 203, algorithm 10",
            arrays: { poly: writes(POLYNOMIAL, INVERSE) },
            body: |m| transform::inverse_ntt(m, poly),
        }
        /// A coefficient takes `2 eta` random bits.
        Noise(eta: u32) {
            name: "mlkem_noise{eta}",
            formula: "poly := SamplePolyCBD(words)",
            reference: "FIPS 203, algorithm 8",
            arrays: { poly: writes(POLYNOMIAL, NOISE), words: reads(8 * eta as usize, ANY) },
            body: |m| {
                let words = Stream::new(m, words, 8 * eta as usize);
                for i in 0..POLYNOMIAL {
                    let bits = words.fields(m, i, 2 * eta);
                    let noise = sampling::noise(m, bits, eta);
                    m.store(poly, i, noise);
                }
            },
        }
        /// Encodes one polynomial, or the sum of two.
        Encode(terms: usize) {
            name: "mlkem_encode12of{terms}",
            formula: "words := ByteEncode_12(sum)",
            reference: "FIPS 203, algorithm 5",
            arrays: {
                words: writes(48, ANY),
                a: reads(POLYNOMIAL, TRANSFORMED),
                b: reads((terms - 1) * POLYNOMIAL, PRODUCT),
            },
            body: |m| encode(m, words, 12, |m, i| {
                let mut sum = m.load(a, i);
                if terms == 2 {
                    let other = m.load(b, i);
                    sum = m.add16(sum, other);
                }
                canonical(m, sum)
            }),
        }
        /// Without the reduction modulo q. `bad` becomes other than zero where a coefficient needs
        /// it.
        Decode {
            name: "mlkem_decode12",
            formula: "poly := ByteDecode_12(words), bad := bad | poly >= q",
            reference: "FIPS 203, algorithm 6 and section 7.2",
            arrays: {
                poly: writes(POLYNOMIAL, DECODED),
                bad: writes(1, ANY),
                words: reads(48, ANY),
            },
            body: |m| decode(m, poly, bad, words),
        }
        /// Decrypts.
        Recover {
            name: "mlkem_recover",
            formula: "words := ByteEncode_1(Compress_1(a - b))",
            reference: "FIPS 203, algorithm 15, steps 6 and 7",
            arrays: {
                words: writes(4, ANY),
                a: reads(POLYNOMIAL, DECODED),
                b: reads(POLYNOMIAL, INVERSE),
            },
            body: |m| encode(m, words, 1, |m, i| {
                let (a, b) = (m.load(a, i), m.load(b, i));
                let difference = m.sub16(a, b);
                compress(m, difference, 1)
            }),
        }
        /// With 4 or 5 bits, for the second part of a ciphertext, `c` is the message.
        Compress(bits: u32) {
            name: "mlkem_compress{bits}",
            formula: "words := ByteEncode_d(Compress_d(sum))",
            reference: "FIPS 203, section 4.2.1",
            arrays: {
                words: writes(4 * bits as usize, ANY),
                a: reads(POLYNOMIAL, INVERSE),
                b: reads(POLYNOMIAL, NOISE),
                c: reads(usize::from(has_message(bits)) * POLYNOMIAL, DECODED),
            },
            body: |m| encode(m, words, bits, |m, i| {
                let (a, b) = (m.load(a, i), m.load(b, i));
                let mut sum = m.add16(a, b);
                if has_message(bits) {
                    let message = m.load(c, i);
                    sum = m.add16(sum, message);
                }
                compress(m, sum, bits)
            }),
        }
        /// The reverse, as far as it goes.
        Decompress(bits: u32) {
            name: "mlkem_decompress{bits}",
            formula: "poly := Decompress_d(ByteDecode_d(words))",
            reference: "FIPS 203, section 4.2.1",
            arrays: { poly: writes(POLYNOMIAL, DECODED), words: reads(4 * bits as usize, ANY) },
            body: |m| {
                let words = Stream::new(m, words, 4 * bits as usize);
                for i in 0..POLYNOMIAL {
                    let fields = words.fields(m, i, bits);
                    let decompressed = decompress(m, fields, bits);
                    m.store(poly, i, decompressed);
                }
            },
        }
        /// Chooses in each lane by whether two ciphertexts are equal.
        Choose(len: usize) {
            name: "mlkem_choose{len}",
            formula: "out := ours = theirs ? good : bad",
            reference: "FIPS 203, algorithm 18, steps 9 to 11",
            arrays: {
                out: writes(4, ANY),
                ours: reads(len, ANY),
                theirs: reads(len, ANY),
                good: reads(4, ANY),
                bad: reads(4, ANY),
            },
            body: |m| {
                let mut differences = m.splat(0);
                for i in 0..len {
                    let (ours, theirs) = (m.load(ours, i), m.load(theirs, i));
                    differences = m.ternary(differences, ours, theirs, OR_XOR);
                }
                let zero = m.splat(0);
                let same = m.eq(differences, zero);
                for i in 0..4 {
                    let (good, bad) = (m.load(good, i), m.load(bad, i));
                    let chosen = m.select(same, good, bad);
                    m.store(out, i, chosen);
                }
            },
        }
    }

    /// The kernels of the parameter set with `rank` polynomials in a vector: ML-KEM-512, 768 and
    /// 1024.
    pub struct MlKemKernels for rank: usize in [2, 3, 4] {
        candidates: Candidates,
        transpose: Transpose;
        product: Product(rank);
        ntt: Ntt,
        inverse_ntt: InverseNtt;
        noise2: Noise(2),
        noise1: Noise(MlKem::eta1(rank));
        encode: Encode(1),
        encode_sum: Encode(2),
        decode: Decode,
        recover: Recover;
        compress_v: Compress(MlKem::compressed_bits(rank)[1]);
        compress_u: Compress(MlKem::compressed_bits(rank)[0]);
        message: Decompress(1);
        decompress_v: Decompress(MlKem::compressed_bits(rank)[1]);
        decompress_u: Decompress(MlKem::compressed_bits(rank)[0]);
        choose: Choose(MlKem::ciphertext_words(rank));
    }
}

impl MlKem {
    /// Vectors of a polynomial.
    pub const POLYNOMIAL: usize = POLYNOMIAL;
    /// Parts in which polynomials are multiplied.
    pub const PARTS: usize = words::PARTS;
    /// Words that a block of SHAKE128 gives to [`MlKem::Candidates`].
    pub const CANDIDATES: usize = sampling::CANDIDATES;

    /// `eta_1` of a parameter set (FIPS 203, table 2).
    pub const fn eta1(rank: usize) -> u32 {
        if rank == 2 { 3 } else { 2 }
    }

    /// `d_u` and `d_v` (FIPS 203, table 2).
    pub const fn compressed_bits(rank: usize) -> [u32; 2] {
        if rank == 4 { [11, 5] } else { [10, 4] }
    }

    /// 64-bit words of a ciphertext.
    pub const fn ciphertext_words(rank: usize) -> usize {
        let [u, v] = Self::compressed_bits(rank);
        4 * (u as usize * rank + v as usize)
    }

    /// Factors of vector `i` of a quarter of [`MlKem::Product`]: a word for every lane with the factors, and one with
    /// the factors over q.
    pub fn product_factors(part: usize, i: usize) -> (u64, u64) {
        transform::product_factors(part, i)
    }
}

/// Lane by lane: rows become columns.
fn transpose<M: Machine>(m: &mut M, poly: Array, rows: Array) {
    let lanes = m.lanes();
    for from in 0..POLYNOMIAL / lanes {
        let rows = (0..lanes)
            .map(|lane| m.load(rows, lane * POLYNOMIAL / lanes + from))
            .collect();
        let columns = sampling::transpose(m, rows);
        for (i, column) in columns.into_iter().enumerate() {
            m.store(poly, from * lanes + i, column);
        }
    }
}

/// Returns whether coefficients compressed to `bits` bits contain the message: the ciphertext's second part.
fn has_message(bits: u32) -> bool {
    bits <= 5
}

const fn words16(limit: u16) -> Holds {
    Holds::Words16 { limit }
}

// Limits of what polynomials hold, in absolute value.
/// Coefficients of 12 bits, reduced or not.
const DECODED: Holds = words16(4095);
/// Bound after `Ntt`, and before: what is decoded is less.
const TRANSFORMED: Holds = words16(6300);
/// Bound after `InverseNtt`, and before: products are less.
const INVERSE: Holds = words16(15500);
/// Bound after `Product`.
const PRODUCT: Holds = words16(4096);
/// Bound after `Noise`.
const NOISE: Holds = words16(3);
/// Bits of any meaning.
const ANY: Holds = Holds::Bits(64);
