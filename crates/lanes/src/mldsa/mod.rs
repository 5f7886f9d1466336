//! The kernels of ML-DSA (FIPS 204), one signature or attempt for each lane, one coefficient for
//! each vector.
//!
//! A polynomial is an array of 256 vectors, coefficient `j` in vector `j`, as a non-negative number
//! congruent to it modulo `q`. Most kernels work on [`CHUNK`] coefficients, so that a handful of
//! them stays in the instruction cache, and are called once for each chunk of a polynomial.

mod fields;
mod matrix;
mod numbers;
mod rounding;
#[cfg(test)]
mod tests;
mod transform;

use crate::bounds::Holds;
use crate::definition::{kernels, load, store};
use crate::machine::DIGIT_BITS;
pub use fields::Half;
use fields::{PAIR_BITS, PAIR_OFFSET, from_gamma1, half_of, outside, pack, packed, store_bad, unpack};
use matrix::{SLICE, inner_products, strided};
use numbers::{CHUNK, Lazy, NTT_BITS, PLAIN_BITS, Q, Q_BITS, REDUCED_BITS};
use rounding::{LOW_BITS, decompose, gamma2, high_bits, use_hint};

kernels! {
    /// The kernels of ML-DSA.
    ///
    /// `q := 8380417`. Arrays named `words` hold packed bits, the least significant first, in
    /// 64-bit words. `bad` is left as it was, or not zero where a check fails. `parts := (q - 1) /
    /// (2 gamma2)`, 44 or 16, is the number of high parts; `bits`, 18 or 20, is 1 and the bits of
    /// `gamma1 - 1`; `beta` is `tau eta`.
    pub enum MlDsa {
        /// Transforms each 16th coefficient, from the first [`COLUMNS`](Self::COLUMNS) ones.
        NttFar {
            name: "mldsa_nttfar",
            formula: "out := layers 1 to 4 of NTT(in)",
            reference: "FIPS 204, algorithm 41",
            arrays: {
                out: writes(MlDsa::FAR, bits(26)),
                r#in: reads(MlDsa::FAR, bits(PLAIN_BITS)),
            },
            body: |m| transform::ntt_far(m, out, r#in),
        }
        /// Transforms four times 16 neighbours.
        NttNear {
            name: "mldsa_nttnear",
            formula: "out := layers 5 to 8 of NTT(in)",
            reference: "FIPS 204, algorithm 41",
            arrays: {
                out: writes(CHUNK, bits(NTT_BITS)),
                r#in: reads(CHUNK, bits(26)),
                zetas: reads(MlDsa::ZETAS, bits(DIGIT_BITS)).shared().public(),
            },
            body: |m| transform::ntt_near(m, out, r#in, zetas),
        }
        /// Transforms four times 16 neighbours.
        InverseNear {
            name: "mldsa_inversenear",
            formula: "out := layers 1 to 4 of NTT^-1(in)",
            reference: "FIPS 204, algorithm 42",
            arrays: {
                out: writes(CHUNK, bits(25)),
                r#in: reads(CHUNK, bits(REDUCED_BITS)),
                zetas: reads(MlDsa::ZETAS, bits(DIGIT_BITS)).shared().public(),
            },
            body: |m| transform::inverse_near(m, out, r#in, zetas),
        }
        /// Transforms each 16th coefficient. The result is at most `q`.
        InverseFar {
            name: "mldsa_inversefar",
            formula: "out := layers 5 to 8 of NTT^-1(in)",
            reference: "FIPS 204, algorithm 42",
            arrays: {
                out: writes(MlDsa::FAR, bits(Q_BITS)),
                r#in: reads(MlDsa::FAR, bits(25)),
            },
            body: |m| transform::inverse_far(m, out, r#in),
        }
        /// Transformed polynomials.
        Scale {
            name: "mldsa_scale",
            formula: "out := factor in + addend mod q",
            reference: "FIPS 204, algorithm 8, step 9",
            arrays: {
                out: writes(CHUNK, bits(REDUCED_BITS)),
                r#in: reads(CHUNK, bits(NTT_BITS)),
                factor: reads(CHUNK, bits(Q_BITS)).shared(),
                addend: reads(CHUNK, bits(Q_BITS)).shared(),
            },
            body: |m| {
                for j in 0..CHUNK {
                    let (x, factor) = (m.load(r#in, j), m.broadcast(factor, j));
                    let sum = m.broadcast(addend, j);
                    let sum = m.madd_lo(sum, x, factor);
                    // A product of 27 and 23 bits is whole, as is its sum with the addend.
                    let reduced = Lazy::new(sum, 1 << (NTT_BITS + Q_BITS + 1)).reduce(m);
                    m.store(out, j, reduced.v);
                }
            },
        }
        /// Eight coefficients of each polynomial; the matrix, which all lanes share, by columns.
        Product(rows: usize, columns: usize) {
            name: "mldsa_product{rows}x{columns}",
            formula: "out := matrix vector mod q",
            reference: "FIPS 204, algorithm 48",
            arrays: {
                out: writes(strided(rows), bits(REDUCED_BITS)),
                matrix: reads(rows * columns * SLICE, bits(Q_BITS)).shared().public(),
                vector: reads(strided(columns), bits(NTT_BITS)),
            },
            body: |m| {
                for j in 0..SLICE {
                    inner_products(m, [out, vector], [rows, columns], j, |m, row, column| {
                        m.broadcast(matrix, (column * rows + row) * SLICE + j)
                    });
                }
            },
        }
        /// `c s` is one half of `pair`. `bad` where `z := mask + c s` is not below `gamma1 - beta`
        /// in magnitude.
        Respond(bits_of_z: u32, beta: u64, half: Half) {
            name: "mldsa_respond{bits_of_z}_{beta}{half}",
            formula: "words := gamma1 - (mask + c s), bad if too large",
            reference: "FIPS 204, algorithm 7, steps 20 and 23",
            arrays: {
                bad: writes(1, ANY),
                words: writes(packed(bits_of_z), ANY),
                mask: reads(CHUNK, bits(PLAIN_BITS)),
                pair: reads(CHUNK, bits(2 * PAIR_BITS)),
            },
            body: |m| {
                let mut all = m.load(bad, 0);
                let mut fields = Vec::with_capacity(CHUNK);
                // gamma1 - z, with what the mask and the pair are raised by.
                let top = (1 << (bits_of_z - 1)) + Q + PAIR_OFFSET;
                let (top, ones) = (m.splat(top), m.splat((1 << bits_of_z) - 1));
                for j in 0..CHUNK {
                    let product = half_of(m, pair, j, half);
                    let y = m.load(mask, j);
                    let z = m.add(y, product);
                    let field = m.sub(top, z);
                    all = outside(m, all, field, beta + 1, (1 << bits_of_z) - beta - 1);
                    fields.push(m.and(field, ones));
                }
                let packed = pack(m, &fields, bits_of_z);
                store(m, words, &packed);
                store_bad(m, bad, all);
            },
        }
        /// `c s` is one half of `pair`, and `s` the negated second secret vector. `bad` where the
        /// sum is not below `gamma2 - beta` in magnitude.
        Low(parts: u64, beta: u64, half: Half) {
            name: "mldsa_low{parts}_{beta}{half}",
            formula: "bad if low + c s is too large",
            reference: "FIPS 204, algorithm 7, step 23",
            arrays: {
                bad: writes(1, ANY),
                low: reads(CHUNK, bits(LOW_BITS)),
                pair: reads(CHUNK, bits(2 * PAIR_BITS)),
            },
            body: |m| {
                let mut all = m.load(bad, 0);
                let raised = gamma2(parts) + PAIR_OFFSET;
                let most = gamma2(parts) - beta - 1;
                for j in 0..CHUNK {
                    let product = half_of(m, pair, j, half);
                    let low = m.load(low, j);
                    let sum = m.add(low, product);
                    all = outside(m, all, sum, raised - most, raised + most);
                }
                store_bad(m, bad, all);
            },
        }
        /// `bad` where `z := gamma1 - words` is not below `gamma1 - beta` in magnitude.
        Response(bits_of_z: u32, beta: u64) {
            name: "mldsa_response{bits_of_z}_{beta}",
            formula: "out := gamma1 - words + q, bad if too large",
            reference: "FIPS 204, algorithm 8, step 13",
            arrays: {
                bad: writes(1, ANY),
                out: writes(CHUNK, bits(PLAIN_BITS)),
                words: reads(packed(bits_of_z), ANY),
            },
            body: |m| {
                let words = load(m, words, packed(bits_of_z));
                let fields = unpack(m, &words, bits_of_z, bits_of_z);
                let mut all = m.load(bad, 0);
                for (j, field) in fields.into_iter().enumerate() {
                    all = outside(m, all, field, beta + 1, (1 << bits_of_z) - beta - 1);
                    let z = from_gamma1(m, bits_of_z, field);
                    m.store(out, j, z);
                }
                store_bad(m, bad, all);
            },
        }
        /// Eight coefficients of each polynomial.
        Row(columns: usize) {
            name: "mldsa_row{columns}",
            formula: "out := row vector mod q",
            reference: "FIPS 204, algorithm 48",
            arrays: {
                out: writes(SLICE, bits(REDUCED_BITS)),
                row: reads(strided(columns), bits(REDUCED_BITS)),
                vector: reads(strided(columns), bits(NTT_BITS)),
            },
            body: |m| {
                for j in 0..SLICE {
                    inner_products(m, [out, vector], [1, columns], j, |m, _, column| {
                        m.load(row, column * MlDsa::N + j)
                    });
                }
            },
        }
        /// One chunk of the mask.
        Mask(bits_of_z: u32) {
            name: "mldsa_mask{bits_of_z}",
            formula: "out := gamma1 - words + q",
            reference: "FIPS 204, algorithm 34, step 4",
            arrays: {
                out: writes(CHUNK, bits(PLAIN_BITS)),
                words: reads(packed(bits_of_z), ANY),
            },
            body: |m| {
                let words = load(m, words, packed(bits_of_z));
                let fields = unpack(m, &words, bits_of_z, bits_of_z);
                for (j, field) in fields.into_iter().enumerate() {
                    let y = from_gamma1(m, bits_of_z, field);
                    m.store(out, j, y);
                }
            },
        }
        /// Decomposes the commitment.
        Decompose(parts: u64) {
            name: "mldsa_decompose{parts}",
            formula: "words := HighBits(in), low := LowBits(in) + gamma2",
            reference: "FIPS 204, algorithms 36 and 28",
            arrays: {
                words: writes(packed(high_bits(parts)), ANY),
                low: writes(CHUNK, bits(LOW_BITS)),
                r#in: reads(CHUNK, bits(Q_BITS)),
            },
            body: |m| {
                let mut high = Vec::with_capacity(CHUNK);
                // 1 is added to `r` already.
                let raise = m.splat(gamma2(parts) - 1);
                for j in 0..CHUNK {
                    let r = m.load(r#in, j);
                    let (r1, raised) = decompose(m, r, parts);
                    high.push(r1);
                    let r0 = m.add(raised, raise);
                    let r0 = m.claim(r0, LOW_BITS, "a low part is at most gamma2 in magnitude");
                    m.store(low, j, r0);
                }
                let high = pack(m, &high, high_bits(parts));
                store(m, words, &high);
            },
        }
        /// One bit for each coefficient, and `bad` where the hint does not lead back to `words`.
        MakeHint(parts: u64) {
            name: "mldsa_makehint{parts}",
            formula: "hints := HighBits(in) != words, bad if of no help",
            reference: "FIPS 204, algorithms 39 and 40",
            arrays: {
                bad: writes(1, ANY),
                hints: writes(1, ANY),
                r#in: reads(CHUNK, bits(Q_BITS)),
                words: reads(packed(high_bits(parts)), ANY),
            },
            body: |m| {
                let words = load(m, words, packed(high_bits(parts)));
                let wanted = unpack(m, &words, high_bits(parts), high_bits(parts));
                let mut all = m.load(bad, 0);
                let ones = m.splat((1 << 6) - 1);
                let mut found = Vec::with_capacity(CHUNK);
                for (j, wanted) in wanted.into_iter().enumerate() {
                    let r = m.load(r#in, j);
                    let (r1, raised) = decompose(m, r, parts);
                    // Is 0 only if all six bits are.
                    let differs = m.xor(r1, wanted);
                    let hint = m.add(differs, ones);
                    let hint = m.shr(hint, 6);
                    found.push(hint);
                    let led = use_hint(m, hint, r1, raised, parts);
                    let difference = m.xor(led, wanted);
                    all = m.or(all, difference);
                }
                let found = pack(m, &found, 1);
                store(m, hints, &found);
                m.store(bad, 0, all);
            },
        }
        /// The high part of `in`, corrected by the hint.
        UseHint(parts: u64) {
            name: "mldsa_usehint{parts}",
            formula: "words := UseHint(hints, in)",
            reference: "FIPS 204, algorithm 40",
            arrays: {
                words: writes(packed(high_bits(parts)), ANY),
                hints: reads(1, ANY),
                r#in: reads(CHUNK, bits(Q_BITS)),
            },
            body: |m| {
                let hints = load(m, hints, 1);
                let hints = unpack(m, &hints, 1, 1);
                let mut high = Vec::with_capacity(CHUNK);
                for (j, hint) in hints.into_iter().enumerate() {
                    let r = m.load(r#in, j);
                    let (r1, raised) = decompose(m, r, parts);
                    high.push(use_hint(m, hint, r1, raised, parts));
                }
                let high = pack(m, &high, high_bits(parts));
                store(m, words, &high);
            },
        }
        /// `bad` where `in` is not below `gamma2` in magnitude.
        Norm(parts: u64) {
            name: "mldsa_norm{parts}",
            formula: "bad if in is too large",
            reference: "FIPS 204, algorithm 7, step 28",
            arrays: { bad: writes(1, ANY), r#in: reads(CHUNK, bits(Q_BITS)) },
            body: |m| {
                let mut all = m.load(bad, 0);
                let (least, most) = (m.splat(gamma2(parts)), m.splat(Q - gamma2(parts)));
                let sign = m.splat(fields::SIGN);
                for j in 0..CHUNK {
                    let r = m.load(r#in, j);
                    // Too large is what is neither below gamma2 nor above q - gamma2.
                    let below = m.sub(r, least);
                    let above = m.sub(most, r);
                    let fine = m.or(below, above);
                    let fine = m.and(fine, sign);
                    let wrong = m.xor(fine, sign);
                    all = m.or(all, wrong);
                }
                m.store(bad, 0, all);
            },
        }
        /// Candidates for uniform coefficients, from fields of 24 bits less the highest.
        Uniform {
            name: "mldsa_uniform",
            formula: "out := words mod 2^23, bad unless below q",
            reference: "FIPS 204, algorithm 14",
            arrays: {
                bad: writes(1, ANY).public(),
                out: writes(CHUNK, bits(Q_BITS)).public(),
                words: reads(packed(24), ANY).public(),
            },
            body: |m| {
                let words = load(m, words, packed(24));
                let fields = unpack(m, &words, 24, Q_BITS);
                let mut all = m.load(bad, 0);
                for (j, field) in fields.into_iter().enumerate() {
                    all = outside(m, all, field, 0, Q - 1);
                    m.store(out, j, field);
                }
                store_bad(m, bad, all);
            },
        }
        /// A chunk of the public key, from fields of 10 bits.
        HighKey {
            name: "mldsa_highkey",
            formula: "out := -2^13 words mod q",
            reference: "FIPS 204, algorithm 8, step 9",
            arrays: {
                out: writes(CHUNK, bits(PLAIN_BITS)).public(),
                words: reads(packed(10), ANY).public(),
            },
            body: |m| {
                let words = load(m, words, packed(10));
                let fields = unpack(m, &words, 10, 10);
                let q = m.splat(Q);
                for (j, field) in fields.into_iter().enumerate() {
                    let shifted = m.shl(field, 13);
                    let negated = m.sub(q, shifted);
                    m.store(out, j, negated);
                }
            },
        }
    }

    /// The kernels of one parameter set. Products and rows `with_key` have the public key as one
    /// more column.
    pub struct MlDsaKernels for shape: MlDsaShape in SHAPES {
        ntt_far: NttFar,
        ntt_near: NttNear,
        inverse_near: InverseNear,
        inverse_far: InverseFar,
        scale: Scale;
        product: Product(shape.rows, shape.columns),
        respond_low: Respond(shape.bits, shape.beta, Half::Low),
        respond_high: Respond(shape.bits, shape.beta, Half::High),
        low_low: Low(shape.parts, shape.beta, Half::Low),
        low_high: Low(shape.parts, shape.beta, Half::High),
        response: Response(shape.bits, shape.beta),
        product_with_key: Product(shape.rows, shape.columns + 1),
        row_with_key: Row(shape.columns + 1);
        mask: Mask(shape.bits);
        decompose: Decompose(shape.parts),
        make_hint: MakeHint(shape.parts),
        use_hint: UseHint(shape.parts);
        norm44: Norm(44),
        uniform: Uniform,
        high_key: HighKey;
    }
}

/// Parameters of a parameter set that kernels need (FIPS 204, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MlDsaShape {
    /// `k`: polynomials of the public vector.
    pub rows: usize,
    /// `l`: polynomials of the first secret vector.
    pub columns: usize,
    /// 1 and the bits of `gamma1 - 1`: of a coefficient of the mask or of the response.
    pub bits: u32,
    /// `m`, the number of high parts.
    pub parts: u64,
    /// `tau eta`.
    pub beta: u64,
}

impl MlDsaShape {
    /// ML-DSA-44, 65 and 87.
    pub const ALL: [Self; 3] = [
        Self {
            rows: 4,
            columns: 4,
            bits: 18,
            parts: 44,
            beta: 39 * 2,
        },
        Self {
            rows: 6,
            columns: 5,
            bits: 20,
            parts: 16,
            beta: 49 * 4,
        },
        Self {
            rows: 8,
            columns: 7,
            bits: 20,
            parts: 16,
            beta: 60 * 2,
        },
    ];

    /// Bits of a high part.
    pub const fn high_bits(self) -> u32 {
        rounding::high_bits(self.parts)
    }
}

impl MlDsa {
    /// The modulus.
    pub const Q: u64 = Q;
    /// Coefficients of a polynomial.
    pub const N: usize = numbers::N;
    /// Coefficients on which most kernels work.
    pub const CHUNK: usize = CHUNK;
    /// Neighbouring coefficients on which the far layers of a transform work.
    pub const COLUMNS: usize = transform::COLUMNS;
    /// Vectors from the first to the last of those coefficients.
    pub const FAR: usize = Self::N - transform::BLOCK + Self::COLUMNS;
    /// Coefficients of each polynomial on which a product of matrices works.
    pub const SLICE: usize = SLICE;
    /// Constants of a transform for one chunk.
    pub const ZETAS: usize = CHUNK / transform::BLOCK * transform::ZETAS_OF_BLOCK;
    /// The distance in a polynomial with two products.
    pub const PAIR_BITS: u32 = PAIR_BITS;
    /// Amount added to each of two products of a pair.
    pub const PAIR_OFFSET: u64 = PAIR_OFFSET;

    /// The constants of the near layers of the transform, for all chunks.
    pub fn zetas() -> Vec<u64> {
        transform::near_constants(|zeta| zeta)
    }

    /// The constants of the near layers of the inverse transform, for all chunks.
    pub fn inverse_zetas() -> Vec<u64> {
        transform::near_constants(numbers::inverse)
    }
}

const fn bits(bits: u32) -> Holds {
    Holds::Bits(bits)
}

/// Bits of any meaning.
const ANY: Holds = Holds::Bits(64);
const SHAPES: [MlDsaShape; 3] = MlDsaShape::ALL;
