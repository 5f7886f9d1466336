//! Kernel sources: ML-DSA (FIPS 204), one signature or attempt a lane, one coefficient a vector.
//!
//! A polynomial is an array of 256 vectors, coefficient `j` in vector `j`, as a non-negative number
//! congruent to it modulo `q`. With 52 bits for a product of 23-bit numbers there is room to leave
//! sums unreduced for several layers of a transform. A multiplication by a constant `w` takes three
//! multiply-adds: with `w' := floor(2^52 w / q)` and `e := floor(b w' / 2^52)` the number
//! `b w - e q` lies in `[0, q]` for every `b` below 2^29 (Shoup's method; Harvey, "Faster
//! arithmetic for number-theoretic transforms", J. Symb. Comput. 60 (2014), section 3).
//!
//! Most kernels work on [`CHUNK`] coefficients, so that a handful of them stays in the instruction
//! cache, and are called once for each chunk of a polynomial.
//!
//! Products of the challenge `c` with the short secret vectors have coefficients below 2^9 in
//! magnitude (`beta <= 196`). Two of them fit one polynomial modulo `q`: from
//! `c (a + 2^10 b) + 2^9 (1 + 2^10)`, which is positive and below 2^20, both are read off, for the
//! price of one inverse transform.

use crate::bounds::Holds;
use crate::kernel::{ArraySpec, Source, load, store};
use crate::machine::{Array, DIGIT_BITS, DIGIT_MASK, Machine};

/// The kernels of ML-DSA.
///
/// `q := 8380417`. Arrays named `words` hold packed bits, the least significant first, in 64-bit
/// words; those named `of all` hold the same numbers for all lanes, one after the other, each 64
/// bits. `bad` is left as it was or not zero where a check fails. `m := (q - 1) / (2 gamma2)`, 44
/// or 16, is the number of high parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MlDsa {
    /// The first four layers of the transform (FIPS 204, algorithm 41) on each 16th coefficient,
    /// from the first [`COLUMNS`](Self::COLUMNS) ones. Arrays `out[244] in[244]`.
    NttFar,
    /// The last four layers on four times 16 neighbours. Arrays `out[64] in[64]
    /// zetas[120 of all]`.
    NttNear,
    /// The first four layers of the inverse transform (algorithm 42), on neighbours. Arrays
    /// `out[64] in[64] zetas[120 of all]`.
    InverseNear,
    /// The last four layers, on each 16th coefficient; the result is at most `q`. Arrays
    /// `out[244] in[244]`.
    InverseFar,
    /// `out := matrix vector`, eight coefficients of each polynomial. Arrays
    /// `out[256 (rows - 1) + 8] matrix[8 rows columns of all] vector[256 (columns - 1) + 8]`, the
    /// matrix by columns.
    Product {
        /// Polynomials of the result.
        rows: usize,
        /// Polynomials of the vector.
        columns: usize,
    },
    /// `out := row vector`, eight coefficients of each polynomial. Arrays
    /// `out[8] row[256 (columns - 1) + 8] vector[256 (columns - 1) + 8]`.
    Row {
        /// Polynomials of the vector.
        columns: usize,
    },
    /// `out := factor in + addend`. Arrays `out[64] in[64] factor[64 of all] addend[64 of all]`.
    Scale,
    /// `out := gamma1 - words + q` for fields of `bits` bits: one chunk of the mask (algorithm 34,
    /// step 4). Arrays `out[64] words[bits]`.
    Mask {
        /// 1 and the bits of `gamma1 - 1`: 18 or 20.
        bits: u32,
    },
    /// The same, and `bad` where `z := gamma1 - words` is not below `gamma1 - beta` in magnitude
    /// (algorithm 8, step 13). Arrays `bad[1] out[64] words[bits]`.
    Response {
        /// 18 or 20.
        bits: u32,
        /// `tau eta`.
        beta: u64,
    },
    /// `words := gamma1 - z` for `z := mask + c s`, `c s` from one half of `pair`, and `bad` where
    /// `z` is not below `gamma1 - beta` in magnitude (algorithm 7, steps 20 and 23). Arrays
    /// `bad[1] words[bits] mask[64] pair[64]`.
    Respond {
        /// 18 or 20.
        bits: u32,
        /// `tau eta`.
        beta: u64,
        /// Which half.
        half: Half,
    },
    /// `words := high`, `low := low + gamma2` of the commitment (algorithms 36 and 28). Arrays
    /// `words[6 or 4] low[64] in[64]`.
    Decompose {
        /// High parts, 44 or 16.
        m: u64,
    },
    /// `bad` where `low + c s`, `c s` from one half of `pair`, is not below `gamma2 - beta` in
    /// magnitude (algorithm 7, step 23, where `s` is the negated second secret vector). Arrays
    /// `bad[1] low[64] pair[64]`.
    Low {
        /// High parts, 44 or 16.
        m: u64,
        /// `tau eta`.
        beta: u64,
        /// Which half.
        half: Half,
    },
    /// `hints := 1` where the high part of `in` is not the one of `words`, and `bad` where the hint
    /// does not lead back to it (algorithms 39 and 40). Arrays `bad[1] hints[1] in[64]
    /// words[6 or 4]`.
    MakeHint {
        /// High parts, 44 or 16.
        m: u64,
    },
    /// `words :=` the high part of `in`, corrected by the hint (algorithm 40). Arrays
    /// `words[6 or 4] hints[1] in[64]`.
    UseHint {
        /// High parts, 44 or 16.
        m: u64,
    },
    /// `bad` where `in` is not below `gamma2` in magnitude (algorithm 7, step 28). Arrays
    /// `bad[1] in[64]`.
    Norm {
        /// High parts, 44 or 16.
        m: u64,
    },
    /// `out := words` in fields of 24 bits less the highest, and `bad` where one is not below `q`
    /// (algorithm 14). Arrays `bad[1] out[64] words[24]`.
    Uniform,
    /// `out := -2^13 words` in fields of 10 bits: a chunk of the public key. Arrays
    /// `out[64] words[10]`.
    HighKey,
}

/// What kernels need to know of a parameter set (FIPS 204, section 4).
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
        high_bits(self.parts)
    }
}

/// A half of a polynomial with two products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// The lower bits.
    Low,
    /// The higher bits.
    High,
}

impl MlDsa {
    /// The modulus.
    pub const Q: u64 = 8_380_417;
    /// Coefficients of a polynomial.
    pub const N: usize = 256;
    /// Coefficients on which most kernels work.
    pub const CHUNK: usize = CHUNK;
    /// Neighbouring coefficients on which the far layers of a transform work.
    pub const COLUMNS: usize = 4;
    /// Vectors from the first to the last of those coefficients.
    pub const FAR: usize = Self::N - BLOCK + Self::COLUMNS;
    /// Coefficients of each polynomial on which a product of matrices works.
    pub const SLICE: usize = 8;
    /// Constants of a transform for one chunk.
    pub const ZETAS: usize = CHUNK / BLOCK * ZETAS_OF_BLOCK;
    /// The distance in a polynomial with two products.
    pub const PAIR_BITS: u32 = 10;
    /// What each of two products is raised by.
    pub const PAIR_OFFSET: u64 = 1 << (Self::PAIR_BITS - 1);

    /// The constants of the near layers of the transform, for all chunks.
    pub fn zetas() -> Vec<u64> {
        near_constants(|zeta| zeta)
    }

    /// The constants of the near layers of the inverse transform, for all chunks.
    pub fn inverse_zetas() -> Vec<u64> {
        near_constants(inverse)
    }

    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![
            Self::NttFar,
            Self::NttNear,
            Self::InverseNear,
            Self::InverseFar,
            Self::Scale,
        ];
        for shape in MlDsaShape::ALL {
            let MlDsaShape {
                rows,
                columns,
                bits,
                parts: m,
                beta,
            } = shape;
            all.extend([
                Self::Product { rows, columns },
                Self::Respond {
                    bits,
                    beta,
                    half: Half::Low,
                },
                Self::Respond {
                    bits,
                    beta,
                    half: Half::High,
                },
                Self::Low {
                    m,
                    beta,
                    half: Half::Low,
                },
                Self::Low {
                    m,
                    beta,
                    half: Half::High,
                },
                Self::Response { bits, beta },
                // With the public key as one more column.
                Self::Product {
                    rows,
                    columns: columns + 1,
                },
                Self::Row {
                    columns: columns + 1,
                },
            ]);
        }
        all.extend([18, 20].map(|bits| Self::Mask { bits }));
        for m in [44, 16] {
            all.extend([
                Self::Decompose { m },
                Self::MakeHint { m },
                Self::UseHint { m },
            ]);
        }
        all.extend([Self::Norm { m: 44 }, Self::Uniform, Self::HighKey]);
        all
    }
}

impl Source for MlDsa {
    fn name(self) -> String {
        let half = |half| match half {
            Half::Low => "low",
            Half::High => "high",
        };
        let name = match self {
            Self::NttFar => "nttfar".to_owned(),
            Self::NttNear => "nttnear".to_owned(),
            Self::InverseNear => "inversenear".to_owned(),
            Self::InverseFar => "inversefar".to_owned(),
            Self::Product { rows, columns } => format!("product{rows}x{columns}"),
            Self::Row { columns } => format!("row{columns}"),
            Self::Scale => "scale".to_owned(),
            Self::Mask { bits } => format!("mask{bits}"),
            Self::Response { bits, beta } => format!("response{bits}_{beta}"),
            Self::Respond {
                bits,
                beta,
                half: h,
            } => format!("respond{bits}_{beta}{}", half(h)),
            Self::Decompose { m } => format!("decompose{m}"),
            Self::Low { m, beta, half: h } => format!("low{m}_{beta}{}", half(h)),
            Self::MakeHint { m } => format!("makehint{m}"),
            Self::UseHint { m } => format!("usehint{m}"),
            Self::Norm { m } => format!("norm{m}"),
            Self::Uniform => "uniform".to_owned(),
            Self::HighKey => "highkey".to_owned(),
        };
        format!("mldsa_{name}")
    }

    fn formula(self) -> &'static str {
        match self {
            Self::NttFar => "out := layers 1 to 4 of NTT(in)",
            Self::NttNear => "out := layers 5 to 8 of NTT(in)",
            Self::InverseNear => "out := layers 1 to 4 of NTT^-1(in)",
            Self::InverseFar => "out := layers 5 to 8 of NTT^-1(in)",
            Self::Product { .. } => "out := matrix vector mod q",
            Self::Row { .. } => "out := row vector mod q",
            Self::Scale => "out := factor in + addend mod q",
            Self::Mask { .. } => "out := gamma1 - words + q",
            Self::Response { .. } => "out := gamma1 - words + q, bad if too large",
            Self::Respond { .. } => "words := gamma1 - (mask + c s), bad if too large",
            Self::Decompose { .. } => "words := HighBits(in), low := LowBits(in) + gamma2",
            Self::Low { .. } => "bad if low + c s is too large",
            Self::MakeHint { .. } => "hints := HighBits(in) != words, bad if of no help",
            Self::UseHint { .. } => "words := UseHint(hints, in)",
            Self::Norm { .. } => "bad if in is too large",
            Self::Uniform => "out := words mod 2^23, bad unless below q",
            Self::HighKey => "out := -2^13 words mod q",
        }
    }

    fn arrays(self, lanes: usize) -> Vec<ArraySpec> {
        let read = |name, len, bits| ArraySpec::read(name, len, Holds::Bits(bits));
        let written = |name, len, bits| ArraySpec::written(name, len, Holds::Bits(bits));
        let of_all = |name, words: usize, bits| read(name, words / lanes, bits);
        let bad = written("bad", 1, 64);
        let packed = |bits: u32| CHUNK * bits as usize / 64;
        match self {
            Self::NttFar => vec![
                written("out", Self::FAR, 26),
                read("in", Self::FAR, PLAIN_BITS),
            ],
            Self::NttNear => vec![
                written("out", CHUNK, NTT_BITS),
                read("in", CHUNK, 26),
                of_all("zetas", Self::ZETAS, DIGIT_BITS),
            ],
            Self::InverseNear => vec![
                written("out", CHUNK, 25),
                read("in", CHUNK, REDUCED_BITS),
                of_all("zetas", Self::ZETAS, DIGIT_BITS),
            ],
            Self::InverseFar => vec![written("out", Self::FAR, Q_BITS), read("in", Self::FAR, 25)],
            Self::Product { rows, columns } => vec![
                written("out", strided(rows), REDUCED_BITS),
                of_all("matrix", rows * columns * Self::SLICE, Q_BITS),
                read("vector", strided(columns), NTT_BITS),
            ],
            Self::Row { columns } => vec![
                written("out", Self::SLICE, REDUCED_BITS),
                read("row", strided(columns), REDUCED_BITS),
                read("vector", strided(columns), NTT_BITS),
            ],
            Self::Scale => vec![
                written("out", CHUNK, REDUCED_BITS),
                read("in", CHUNK, NTT_BITS),
                of_all("factor", CHUNK, Q_BITS),
                of_all("addend", CHUNK, Q_BITS),
            ],
            Self::Mask { bits } => vec![
                written("out", CHUNK, PLAIN_BITS),
                read("words", packed(bits), 64),
            ],
            Self::Response { bits, .. } => vec![
                bad,
                written("out", CHUNK, PLAIN_BITS),
                read("words", packed(bits), 64),
            ],
            Self::Respond { bits, .. } => vec![
                bad,
                written("words", packed(bits), 64),
                read("mask", CHUNK, PLAIN_BITS),
                read("pair", CHUNK, 2 * Self::PAIR_BITS),
            ],
            Self::Decompose { m } => vec![
                written("words", packed(high_bits(m)), 64),
                written("low", CHUNK, LOW_BITS),
                read("in", CHUNK, Q_BITS),
            ],
            Self::Low { .. } => vec![
                bad,
                read("low", CHUNK, LOW_BITS),
                read("pair", CHUNK, 2 * Self::PAIR_BITS),
            ],
            Self::MakeHint { m } => vec![
                bad,
                written("hints", 1, 64),
                read("in", CHUNK, Q_BITS),
                read("words", packed(high_bits(m)), 64),
            ],
            Self::UseHint { m } => vec![
                written("words", packed(high_bits(m)), 64),
                read("hints", 1, 64),
                read("in", CHUNK, Q_BITS),
            ],
            Self::Norm { .. } => vec![bad, read("in", CHUNK, Q_BITS)],
            Self::Uniform => vec![
                bad,
                written("out", CHUNK, Q_BITS),
                read("words", packed(24), 64),
            ],
            Self::HighKey => vec![
                written("out", CHUNK, PLAIN_BITS),
                read("words", packed(10), 64),
            ],
        }
    }

    fn run<M: Machine>(self, m: &mut M) {
        match self {
            Self::NttFar => {
                for column in 0..Self::COLUMNS {
                    let mut x = far(m, column);
                    forward(m, &mut x, |m, i| constant(m, zeta(i)));
                    store_far(m, column, &x);
                }
            }
            Self::NttNear => {
                for block in 0..CHUNK / BLOCK {
                    let mut x = near(m, block);
                    forward(m, &mut x, |m, i| near_constant(m, block, i));
                    store_near(m, block, &x);
                }
            }
            Self::InverseNear => {
                for block in 0..CHUNK / BLOCK {
                    let x = near(m, block);
                    let mut x = x.map(|v| Lazy::new(v, 1 << REDUCED_BITS));
                    backward(m, &mut x, |m, i| near_constant(m, block, i));
                    let x = x.map(|x| match x.most >= 1 << 25 {
                        true => x.reduce(m).v,
                        false => x.v,
                    });
                    store_near(m, block, &x);
                }
            }
            Self::InverseFar => {
                let scale = inverse(Self::N as u64);
                for column in 0..Self::COLUMNS {
                    let x = far(m, column);
                    let mut x = x.map(|v| Lazy::new(v, 1 << 25));
                    backward(m, &mut x, |m, i| {
                        // The last layer brings the factor 1/256 to one half of the coefficients.
                        let scale = if i == 1 { scale } else { 1 };
                        constant(m, inverse(zeta(i)) * scale % Self::Q)
                    });
                    let by = constant(m, scale);
                    let mut out = x.map(|x| x.v);
                    for (out, x) in out.iter_mut().zip(&x).take(BLOCK / 2) {
                        *out = x.for_product(m).times(m, by).v;
                    }
                    store_far(m, column, &out);
                }
            }
            Self::Product { rows, columns } => {
                for j in 0..Self::SLICE {
                    let factor = |m: &mut M, row: usize, column: usize| {
                        let at = (column * rows + row) * Self::SLICE + j;
                        m.broadcast(Array(1), at)
                    };
                    inner_products(m, rows, columns, j, factor);
                }
            }
            Self::Row { columns } => {
                for j in 0..Self::SLICE {
                    let factor =
                        |m: &mut M, _, column: usize| m.load(Array(1), column * Self::N + j);
                    inner_products(m, 1, columns, j, factor);
                }
            }
            Self::Scale => {
                for j in 0..CHUNK {
                    let (x, factor) = (m.load(Array(1), j), m.broadcast(Array(2), j));
                    let sum = m.broadcast(Array(3), j);
                    let sum = m.madd_lo(sum, x, factor);
                    // A product of 27 and 23 bits is whole, as is its sum with the addend.
                    let out = Lazy::new(sum, 1 << (NTT_BITS + Q_BITS + 1)).reduce(m);
                    m.store(Array(0), j, out.v);
                }
            }
            Self::Mask { bits } => {
                let words = load(m, 1, CHUNK * bits as usize / 64);
                let fields = unpack(m, &words, bits, bits);
                for (j, field) in fields.into_iter().enumerate() {
                    let y = from_gamma1(m, bits, field);
                    m.store(Array(0), j, y);
                }
            }
            Self::Response { bits, beta } => {
                let words = load(m, 2, CHUNK * bits as usize / 64);
                let fields = unpack(m, &words, bits, bits);
                let mut bad = m.load(Array(0), 0);
                for (j, field) in fields.into_iter().enumerate() {
                    bad = outside(m, bad, field, beta + 1, (1 << bits) - beta - 1);
                    let z = from_gamma1(m, bits, field);
                    m.store(Array(1), j, z);
                }
                store_bad(m, bad);
            }
            Self::Respond { bits, beta, half } => {
                let mut bad = m.load(Array(0), 0);
                let mut fields = Vec::with_capacity(CHUNK);
                // gamma1 - z, with what the mask and the pair are raised by.
                let top = (1 << (bits - 1)) + Self::Q + Self::PAIR_OFFSET;
                let (top, mask) = (m.splat(top), m.splat((1 << bits) - 1));
                for j in 0..CHUNK {
                    let product = half_of(m, 3, j, half);
                    let y = m.load(Array(2), j);
                    let z = m.add(y, product);
                    let field = m.sub(top, z);
                    bad = outside(m, bad, field, beta + 1, (1 << bits) - beta - 1);
                    fields.push(m.and(field, mask));
                }
                let words = pack(m, &fields, bits);
                store(m, 1, &words);
                store_bad(m, bad);
            }
            Self::Decompose { m: parts } => {
                let mut high = Vec::with_capacity(CHUNK);
                // What is raised by one already.
                let raise = m.splat(gamma2(parts) - 1);
                for j in 0..CHUNK {
                    let r = m.load(Array(2), j);
                    let (r1, raised) = decompose(m, r, parts);
                    high.push(r1);
                    let low = m.add(raised, raise);
                    let low = m.claim(low, LOW_BITS, "a low part is at most gamma2 in magnitude");
                    m.store(Array(1), j, low);
                }
                let words = pack(m, &high, high_bits(parts));
                store(m, 0, &words);
            }
            Self::Low {
                m: parts,
                beta,
                half,
            } => {
                let mut bad = m.load(Array(0), 0);
                let raised = gamma2(parts) + Self::PAIR_OFFSET;
                let most = gamma2(parts) - beta - 1;
                for j in 0..CHUNK {
                    let product = half_of(m, 2, j, half);
                    let low = m.load(Array(1), j);
                    let sum = m.add(low, product);
                    bad = outside(m, bad, sum, raised - most, raised + most);
                }
                store_bad(m, bad);
            }
            Self::MakeHint { m: parts } => {
                let bits = high_bits(parts);
                let words = load(m, 3, CHUNK * bits as usize / 64);
                let wanted = unpack(m, &words, bits, bits);
                let mut bad = m.load(Array(0), 0);
                let ones = m.splat((1 << 6) - 1);
                let mut hints = Vec::with_capacity(CHUNK);
                for (j, wanted) in wanted.into_iter().enumerate() {
                    let r = m.load(Array(2), j);
                    let (r1, raised) = decompose(m, r, parts);
                    // Whether six bits are not all zero.
                    let differs = m.xor(r1, wanted);
                    let hint = m.add(differs, ones);
                    let hint = m.shr(hint, 6);
                    hints.push(hint);
                    let led = use_hint(m, hint, r1, raised, parts);
                    let difference = m.xor(led, wanted);
                    bad = m.or(bad, difference);
                }
                let hints = pack(m, &hints, 1);
                store(m, 1, &hints);
                m.store(Array(0), 0, bad);
            }
            Self::UseHint { m: parts } => {
                let hints = load(m, 1, 1);
                let hints = unpack(m, &hints, 1, 1);
                let mut high = Vec::with_capacity(CHUNK);
                for (j, hint) in hints.into_iter().enumerate() {
                    let r = m.load(Array(2), j);
                    let (r1, raised) = decompose(m, r, parts);
                    high.push(use_hint(m, hint, r1, raised, parts));
                }
                let words = pack(m, &high, high_bits(parts));
                store(m, 0, &words);
            }
            Self::Norm { m: parts } => {
                let mut bad = m.load(Array(0), 0);
                let (least, most) = (m.splat(gamma2(parts)), m.splat(Self::Q - gamma2(parts)));
                let sign = m.splat(SIGN);
                for j in 0..CHUNK {
                    let r = m.load(Array(1), j);
                    // Too large is what is neither below gamma2 nor above q - gamma2.
                    let below = m.sub(r, least);
                    let above = m.sub(most, r);
                    let fine = m.or(below, above);
                    let fine = m.and(fine, sign);
                    let wrong = m.xor(fine, sign);
                    bad = m.or(bad, wrong);
                }
                m.store(Array(0), 0, bad);
            }
            Self::Uniform => {
                let words = load(m, 2, CHUNK * 24 / 64);
                let fields = unpack(m, &words, 24, Q_BITS);
                let mut bad = m.load(Array(0), 0);
                for (j, field) in fields.into_iter().enumerate() {
                    bad = outside(m, bad, field, 0, Self::Q - 1);
                    m.store(Array(1), j, field);
                }
                store_bad(m, bad);
            }
            Self::HighKey => {
                let words = load(m, 1, CHUNK * 10 / 64);
                let fields = unpack(m, &words, 10, 10);
                let q = m.splat(Self::Q);
                for (j, field) in fields.into_iter().enumerate() {
                    let shifted = m.shl(field, 13);
                    let negated = m.sub(q, shifted);
                    m.store(Array(0), j, negated);
                }
            }
        }
    }
}

/// Four layers of the transform on a block: those of the far layers on each 16th coefficient, those
/// of the near ones on neighbours. `zeta(i)` is the constant of part `i - 2^t` in layer `t`, of
/// which there are `2^t`, and `i` counts from `2^t`.
fn forward<M: Machine>(
    m: &mut M,
    x: &mut [M::V; BLOCK],
    mut zeta: impl FnMut(&mut M, usize) -> Constant<M::V>,
) {
    let mut len = BLOCK / 2;
    for layer in 0..LAYERS {
        for part in 0..1 << layer {
            let zeta = zeta(m, (1 << layer) + part);
            for j in 2 * len * part..2 * len * part + len {
                // Step 8 to 10: t := zeta w[j + len], then w[j] - t and w[j] + t.
                let t = Lazy::new(x[j + len], 1 << NTT_BITS).times(m, zeta);
                let raised = m.splat(MlDsa::Q);
                let raised = m.add(x[j], raised);
                let difference = m.sub(raised, t.v);
                x[j + len] = m.claim(difference, 63, AT_MOST_Q);
                x[j] = m.add(x[j], t.v);
            }
        }
        len /= 2;
    }
}

/// Four layers of the inverse transform on a block; `zeta(i)` is the inverse of what it is forward.
fn backward<M: Machine>(
    m: &mut M,
    x: &mut [Lazy<M::V>; BLOCK],
    mut zeta: impl FnMut(&mut M, usize) -> Constant<M::V>,
) {
    let mut len = 1;
    for layer in (0..LAYERS).rev() {
        for part in 0..1 << layer {
            let zeta = zeta(m, (1 << layer) + part);
            for j in 2 * len * part..2 * len * part + len {
                // Steps 8 to 11: w[j] + w[j + len], and zeta (w[j] - w[j + len]).
                let (mut a, mut b) = (x[j], x[j + len]);
                if a.most + b.most.next_multiple_of(MlDsa::Q) > WHOLE {
                    (a, b) = (a.reduce(m), b.reduce(m));
                }
                let raise = b.most.next_multiple_of(MlDsa::Q);
                let raised = m.splat(raise);
                let raised = m.add(a.v, raised);
                let difference = m.sub(raised, b.v);
                let difference = m.claim(difference, 63, AT_MOST_Q);
                x[j] = Lazy::new(m.add(a.v, b.v), a.most + b.most);
                x[j + len] = Lazy::new(difference, a.most + raise).times(m, zeta);
            }
        }
        len *= 2;
    }
}

/// A constant below `q`, and its quotient `floor(2^52 constant / q)`.
#[derive(Clone, Copy)]
struct Constant<V> {
    w: V,
    quotient: V,
}

/// A number modulo `q`, not reduced further than it has to be.
#[derive(Clone, Copy)]
struct Lazy<V> {
    v: V,
    most: u64,
}

impl<V: Copy> Lazy<V> {
    fn new(v: V, most: u64) -> Self {
        Self { v, most }
    }

    /// The product with a constant, at most `q`.
    fn times<M: Machine<V = V>>(self, m: &mut M, by: Constant<V>) -> Self {
        assert!(self.most <= WHOLE, "the product would not be whole");
        let (zero, q) = (m.splat(0), m.splat(MlDsa::Q));
        let quotient = m.madd_hi(zero, self.v, by.quotient);
        let product = m.madd_lo(zero, self.v, by.w);
        let multiple = m.madd_lo(zero, quotient, q);
        let rest = m.sub(product, multiple);
        let rest = m.claim(
            rest,
            Q_BITS,
            "the quotient is exact, or one too small for a rest of q",
        );
        Self::new(rest, MlDsa::Q)
    }

    /// The same modulo `q`, below `2 q`, of a number below 2^52.
    fn reduce<M: Machine<V = V>>(self, m: &mut M) -> Self {
        assert!(self.most <= DIGIT_MASK, "not a digit");
        let (zero, q) = (m.splat(0), m.splat(MlDsa::Q));
        let inverse = m.splat((1 << DIGIT_BITS) / MlDsa::Q);
        let quotient = m.madd_hi(zero, self.v, inverse);
        let multiple = m.madd_lo(zero, quotient, q);
        let rest = m.sub(self.v, multiple);
        let rest = m.claim(rest, REDUCED_BITS, "the quotient is exact or one too small");
        Self::new(rest, 2 * MlDsa::Q - 1)
    }

    /// The same, reduced if its product with a constant would not be whole.
    fn for_product<M: Machine<V = V>>(self, m: &mut M) -> Self {
        match self.most > WHOLE {
            true => self.reduce(m),
            false => self,
        }
    }
}

/// Coefficient `j` of `rows` inner products, in the array with index 0, of `factor(row, column)`
/// with the vector in the array with index 2.
fn inner_products<M: Machine>(
    m: &mut M,
    rows: usize,
    columns: usize,
    j: usize,
    mut factor: impl FnMut(&mut M, usize, usize) -> M::V,
) {
    let zero = m.splat(0);
    let mut sums = vec![zero; rows];
    for column in 0..columns {
        let x = m.load(Array(2), column * MlDsa::N + j);
        for (row, sum) in sums.iter_mut().enumerate() {
            let factor = factor(m, row, column);
            *sum = m.madd_lo(*sum, x, factor);
        }
    }
    // Up to eight whole products have 54 bits: without its last two a sum is a digit, and the
    // quotient by it at most two too small. The difference wraps around 2^52.
    let (q, ones) = (m.splat(MlDsa::Q), m.splat(DIGIT_MASK));
    let inverse = m.splat((1 << (DIGIT_BITS + 2)) / MlDsa::Q);
    for (row, &sum) in sums.iter().enumerate() {
        let digit = m.shr(sum, 2);
        let digit = m.claim(digit, DIGIT_BITS, "eight products of 51 bits have 54");
        let quotient = m.madd_hi(zero, digit, inverse);
        let multiple = m.madd_lo(zero, quotient, q);
        let rest = m.sub(sum, multiple);
        let rest = m.and(rest, ones);
        let rest = m.claim(rest, REDUCED_BITS, "the quotient is at most two too small");
        m.store(Array(0), row * MlDsa::N + j, rest);
    }
}

/// The high part of a number of at most `q`, and its low part raised by one (algorithm 36).
fn decompose<M: Machine>(m: &mut M, r: M::V, parts: u64) -> (M::V, M::V) {
    let (zero, alpha) = (m.splat(0), 2 * gamma2(parts));
    // The nearest multiple of 2 gamma2: the quotient is exact, as 2^24 / 2^52 < 1 / alpha.
    let round = m.splat(gamma2(parts) - 1);
    let rounded = m.add(r, round);
    let inverse = m.splat((1 << DIGIT_BITS) / alpha + 1);
    let r1 = m.madd_hi(zero, rounded, inverse);
    let r1 = m.claim(
        r1,
        high_bits(parts) + 1,
        "the quotient of q by 2 gamma2 is m",
    );
    let alpha = m.splat(alpha);
    let multiple = m.madd_lo(zero, r1, alpha);
    let r0 = m.sub(r, multiple);
    // Step 3: near q the high part is 0, and the low part one less: not raised. For q itself, which
    // is 0, both come out as 0.
    let last = m.splat(parts);
    let before = m.sub(r1, last);
    let before = m.sra(before, 63);
    let r1 = m.and(r1, before);
    let raised = m.sub(r0, before);
    (r1, raised)
}

/// The high part that a hint, 0 or 1, leads to, from what [`decompose`] gives (algorithm 40).
fn use_hint<M: Machine>(m: &mut M, hint: M::V, r1: M::V, raised: M::V, parts: u64) -> M::V {
    // Plus one where r0 > 0, else minus one.
    let two = m.splat(2);
    let less = m.sub(raised, two);
    let down = m.sra(less, 63);
    let step = m.xor(hint, down);
    let step = m.sub(step, down);
    let moved = m.add(r1, step);
    if parts.is_power_of_two() {
        let mask = m.splat(parts - 1);
        return m.and(moved, mask);
    }
    // From -1 to m: modulo m.
    let (all, highest) = (m.splat(parts), m.splat(parts - 1));
    let under = m.sra(moved, 63);
    let under = m.and(under, all);
    let over = m.sub(highest, moved);
    let over = m.sra(over, 63);
    let over = m.and(over, all);
    let moved = m.add(moved, under);
    let moved = m.sub(moved, over);
    m.claim(moved, high_bits(parts), "it is modulo m")
}

/// One of the two products that vector `j` of an array holds, raised by 2^9.
fn half_of<M: Machine>(m: &mut M, array: usize, j: usize, half: Half) -> M::V {
    let pair = m.load(Array(array), j);
    match half {
        Half::Low => {
            let mask = m.splat((1 << MlDsa::PAIR_BITS) - 1);
            m.and(pair, mask)
        }
        Half::High => m.shr(pair, MlDsa::PAIR_BITS),
    }
}

/// `gamma1 - field + q`.
fn from_gamma1<M: Machine>(m: &mut M, bits: u32, field: M::V) -> M::V {
    let top = m.splat((1 << (bits - 1)) + MlDsa::Q);
    m.sub(top, field)
}

/// `bad`, negative from now on if `x` is below `least` or above `most`.
fn outside<M: Machine>(m: &mut M, bad: M::V, x: M::V, least: u64, most: u64) -> M::V {
    let most = m.splat(most);
    let above = m.sub(most, x);
    if least == 0 {
        return m.or(bad, above);
    }
    let least = m.splat(least);
    let below = m.sub(x, least);
    m.ternary(bad, below, above, OR3)
}

/// Keeps of `bad` whether it is negative.
fn store_bad<M: Machine>(m: &mut M, bad: M::V) {
    let sign = m.splat(SIGN);
    let bad = m.and(bad, sign);
    m.store(Array(0), 0, bad);
}

/// The fields of `bits` bits in packed words, of which the lowest `keep` bits are wanted.
fn unpack<M: Machine>(m: &mut M, words: &[M::V], bits: u32, keep: u32) -> Vec<M::V> {
    let mask = m.splat((1 << keep) - 1);
    (0..64 * words.len() as u32 / bits)
        .map(|i| {
            let (word, at) = ((i * bits / 64) as usize, i * bits % 64);
            let mut field = m.shr(words[word], at);
            if at + keep > 64 {
                let rest = m.shl(words[word + 1], 64 - at);
                field = m.or(field, rest);
            }
            m.and(field, mask)
        })
        .collect()
}

/// Packs fields of `bits` bits into words.
fn pack<M: Machine>(m: &mut M, fields: &[M::V], bits: u32) -> Vec<M::V> {
    let zero = m.splat(0);
    let mut words = vec![zero; fields.len() * bits as usize / 64];
    for (i, &field) in (0..).zip(fields) {
        let (word, at) = ((i * bits / 64) as usize, i * bits % 64);
        let low = m.shl(field, at);
        words[word] = if at == 0 { low } else { m.or(words[word], low) };
        if at + bits > 64 {
            words[word + 1] = m.shr(field, 64 - at);
        }
    }
    words
}

fn far<M: Machine>(m: &mut M, column: usize) -> [M::V; BLOCK] {
    std::array::from_fn(|i| m.load(Array(1), i * BLOCK + column))
}

fn store_far<M: Machine>(m: &mut M, column: usize, x: &[M::V; BLOCK]) {
    for (i, &x) in x.iter().enumerate() {
        m.store(Array(0), i * BLOCK + column, x);
    }
}

fn near<M: Machine>(m: &mut M, block: usize) -> [M::V; BLOCK] {
    std::array::from_fn(|i| m.load(Array(1), block * BLOCK + i))
}

fn store_near<M: Machine>(m: &mut M, block: usize, x: &[M::V; BLOCK]) {
    for (i, &x) in x.iter().enumerate() {
        m.store(Array(0), block * BLOCK + i, x);
    }
}

fn constant<M: Machine>(m: &mut M, w: u64) -> Constant<M::V> {
    Constant {
        w: m.splat(w),
        quotient: m.splat(quotient(w)),
    }
}

/// Constant `i` of a block, out of the array with index 2.
fn near_constant<M: Machine>(m: &mut M, block: usize, i: usize) -> Constant<M::V> {
    let at = block * ZETAS_OF_BLOCK + 2 * (i - 1);
    Constant {
        w: m.broadcast(Array(2), at),
        quotient: m.broadcast(Array(2), at + 1),
    }
}

/// For each block of 16 coefficients the constants of its last four layers and their quotients.
fn near_constants(of: impl Fn(u64) -> u64) -> Vec<u64> {
    let mut all = Vec::new();
    for block in 0..MlDsa::N / BLOCK {
        for layer in 0..LAYERS {
            for part in 0..1 << layer {
                let w = of(zeta(((BLOCK + block) << layer) + part));
                all.extend([w, quotient(w)]);
            }
        }
    }
    all
}

/// `zetas[i]`: 1753 to the power of `i` with its eight bits reversed (FIPS 204, appendix B).
fn zeta(i: usize) -> u64 {
    power(1753, (i as u8).reverse_bits().into())
}

fn inverse(x: u64) -> u64 {
    power(x, MlDsa::Q - 2)
}

fn power(x: u64, exponent: u64) -> u64 {
    (0..64).rev().fold(1, |power, bit| {
        let square = power * power % MlDsa::Q;
        match exponent >> bit & 1 {
            1 => square * x % MlDsa::Q,
            _ => square,
        }
    })
}

/// `floor(2^52 w / q)` for `w` below `q`.
fn quotient(w: u64) -> u64 {
    ((u128::from(w) << DIGIT_BITS) / u128::from(MlDsa::Q)) as u64
}

/// Vectors from the first coefficient of the first of so many polynomials to the last that a
/// product of matrices works on in the last of them.
fn strided(polynomials: usize) -> usize {
    (polynomials - 1) * MlDsa::N + MlDsa::SLICE
}

fn gamma2(parts: u64) -> u64 {
    (MlDsa::Q - 1) / parts / 2
}

/// Bits of a high part, of which there are `parts`.
const fn high_bits(parts: u64) -> u32 {
    (parts - 1).ilog2() + 1
}

const CHUNK: usize = 64;
/// Coefficients that stay in registers for four layers of a transform.
const BLOCK: usize = 16;
const LAYERS: u32 = 4;
/// Constants of the near layers of a block, each with its quotient.
const ZETAS_OF_BLOCK: usize = 2 * (BLOCK - 1);

/// Bits of `q`.
const Q_BITS: u32 = 23;
/// Bits of a number below `2 q`.
const REDUCED_BITS: u32 = 24;
/// Bits of what is transformed: a number below `q` in magnitude, and `q`.
const PLAIN_BITS: u32 = 24;
/// Bits of what was transformed: of eight layers each has added `q`.
const NTT_BITS: u32 = 27;
/// Bits of a low part, raised by `gamma2`.
const LOW_BITS: u32 = 19;
// Products of what was transformed with what was reduced are whole.
const _: () = assert!(NTT_BITS + REDUCED_BITS < DIGIT_BITS);
/// The product of `q` and a number up to here fits a digit.
const WHOLE: u64 = DIGIT_MASK / MlDsa::Q;
const SIGN: u64 = 1 << 63;
const AT_MOST_Q: &str = "a product with a constant is at most q";
/// The table of `a | b | c`.
const OR3: u8 = 0xfe;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kernel;

    /// The transform as FIPS 204 has it, algorithm 41, on one polynomial.
    fn ntt(w: &[u64]) -> Vec<u64> {
        let mut w: Vec<u64> = w.iter().map(|w| w % MlDsa::Q).collect();
        let (mut i, mut len) = (0, 128);
        while len >= 1 {
            for start in (0..256).step_by(2 * len) {
                i += 1;
                for j in start..start + len {
                    let t = zeta(i) * w[j + len] % MlDsa::Q;
                    w[j + len] = (w[j] + MlDsa::Q - t) % MlDsa::Q;
                    w[j] = (w[j] + t) % MlDsa::Q;
                }
            }
            len /= 2;
        }
        w
    }

    fn spread(words: &[u64]) -> Vec<[u64; 1]> {
        words.iter().map(|&word| [word]).collect()
    }

    fn model(kernel: MlDsa, written: &mut [&mut [[u64; 1]]], read: &[&[[u64; 1]]]) {
        Kernel::from(kernel).model(written, read);
    }

    fn forward(x: &[[u64; 1]]) -> Vec<[u64; 1]> {
        let (mut far, mut out) = (vec![[0]; 256], vec![[0]; 256]);
        for at in (0..BLOCK).step_by(MlDsa::COLUMNS) {
            let range = at..at + MlDsa::FAR;
            model(MlDsa::NttFar, &mut [&mut far[range.clone()]], &[&x[range]]);
        }
        let zetas = spread(&MlDsa::zetas());
        for (i, zetas) in zetas.chunks(MlDsa::ZETAS).enumerate() {
            let range = i * CHUNK..(i + 1) * CHUNK;
            let out = &mut out[range.clone()];
            model(MlDsa::NttNear, &mut [out], &[&far[range], zetas]);
        }
        out
    }

    fn backward(x: &[[u64; 1]]) -> Vec<[u64; 1]> {
        let (mut near, mut out) = (vec![[0]; 256], vec![[0]; 256]);
        let zetas = spread(&MlDsa::inverse_zetas());
        for (i, zetas) in zetas.chunks(MlDsa::ZETAS).enumerate() {
            let range = i * CHUNK..(i + 1) * CHUNK;
            let near = &mut near[range.clone()];
            model(MlDsa::InverseNear, &mut [near], &[&x[range], zetas]);
        }
        for at in (0..BLOCK).step_by(MlDsa::COLUMNS) {
            let range = at..at + MlDsa::FAR;
            let out = &mut out[range.clone()];
            model(MlDsa::InverseFar, &mut [out], &[&near[range]]);
        }
        out
    }

    fn polynomial(seed: u64, below: u64) -> Vec<u64> {
        let next = |x: &mut u64| {
            *x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            Some((*x >> 33) % below)
        };
        let mut x = seed;
        std::iter::from_fn(|| next(&mut x)).take(256).collect()
    }

    /// Random polynomials, and those whose lanes grow the most.
    fn polynomials(below: u64) -> Vec<Vec<u64>> {
        let mut all: Vec<_> = (1..9).map(|seed| polynomial(seed, below)).collect();
        all.extend([vec![below - 1; 256], vec![0; 256], vec![MlDsa::Q; 256]]);
        all
    }

    #[test]
    fn the_transform_is_the_standards() {
        for x in polynomials(1 << PLAIN_BITS) {
            let found = forward(&spread(&x));
            let found: Vec<u64> = found.iter().map(|w| w[0] % MlDsa::Q).collect();
            assert_eq!(found, ntt(&x));
        }
    }

    #[test]
    fn the_inverse_transform_undoes_it() {
        for x in polynomials(MlDsa::Q) {
            let transformed: Vec<_> = ntt(&x).iter().map(|&w| [w + MlDsa::Q]).collect();
            let found: Vec<u64> = backward(&transformed).iter().map(|w| w[0]).collect();
            assert!(found.iter().all(|&w| w <= MlDsa::Q));
            let reduce = |x: &[u64]| x.iter().map(|x| x % MlDsa::Q).collect::<Vec<_>>();
            assert_eq!(reduce(&found), reduce(&x));
        }
    }

    /// Algorithm 36 with signed numbers, and division as in the text.
    fn plain_decompose(r: i64, m: i64) -> (i64, i64) {
        let (q, r) = (MlDsa::Q as i64, r % MlDsa::Q as i64);
        let alpha = (q - 1) / m;
        let mut r0 = r.rem_euclid(alpha);
        if r0 > alpha / 2 {
            r0 -= alpha;
        }
        match r - r0 == q - 1 {
            true => (0, r0 - 1),
            false => ((r - r0) / alpha, r0),
        }
    }

    /// Every boundary between two high parts, with its neighbours.
    fn boundaries(m: u64) -> Vec<u64> {
        let around = (0..=2 * m).map(|i| i * gamma2(m));
        let near = around.flat_map(|at| (0..5).map(move |d| (at + d).saturating_sub(2)));
        let mut all: Vec<u64> = near.filter(|&r| r <= MlDsa::Q).collect();
        all.extend([MlDsa::Q - 1, MlDsa::Q]);
        all.resize(all.len().next_multiple_of(CHUNK), 1);
        all
    }

    #[test]
    fn high_and_low_parts_are_the_standards() {
        for m in [44, 16] {
            let bits = high_bits(m);
            for r in boundaries(m).chunks(CHUNK) {
                let mut words = vec![[0]; CHUNK * bits as usize / 64];
                let mut low = vec![[0]; CHUNK];
                model(
                    MlDsa::Decompose { m },
                    &mut [&mut words, &mut low],
                    &[&spread(r)],
                );
                for (j, &r) in r.iter().enumerate() {
                    let (r1, r0) = plain_decompose(r as i64, m as i64);
                    assert_eq!(low[j][0] as i64 - gamma2(m) as i64, r0, "{r}");
                    assert_eq!(field(&words, j, bits) as i64, r1, "{r}");
                }
            }
        }
    }

    #[test]
    fn hints_lead_to_the_high_part() {
        for m in [44u64, 16] {
            let bits = high_bits(m);
            for r in boundaries(m).chunks(CHUNK) {
                for away in [0, 1, m - 1, 2] {
                    let fields: Vec<u64> = r
                        .iter()
                        .map(|&r| (plain_decompose(r as i64, m as i64).0 as u64 + away) % m)
                        .collect();
                    let wanted = packed(&fields, bits);
                    let (mut bad, mut hints) = ([[0]], [[0]]);
                    let read: [&[_]; 2] = [&spread(r), &wanted];
                    model(MlDsa::MakeHint { m }, &mut [&mut bad, &mut hints], &read);
                    let expected = if away == 0 { 0 } else { u64::MAX };
                    assert_eq!(hints[0][0], expected);
                    let mut led = vec![[0]; wanted.len()];
                    model(MlDsa::UseHint { m }, &mut [&mut led], &[&hints, &spread(r)]);
                    assert_eq!(led == wanted, bad[0][0] == 0);
                    for (j, &r) in r.iter().enumerate() {
                        let (r1, r0) = plain_decompose(r as i64, m as i64);
                        let step = if r0 > 0 { 1 } else { -1 };
                        let led_to = match away {
                            0 => r1,
                            _ => (r1 + step).rem_euclid(m as i64),
                        };
                        assert_eq!(field(&led, j, bits) as i64, led_to);
                    }
                }
            }
        }
    }

    #[test]
    fn norms_are_checked_on_both_sides() {
        let check = |kernel, bad: &mut [[u64; 1]], read: &[&[[u64; 1]]]| {
            let mut out = vec![[0]; CHUNK];
            match kernel {
                MlDsa::Norm { .. } | MlDsa::Low { .. } => model(kernel, &mut [bad], read),
                _ => model(kernel, &mut [bad, &mut out], read),
            }
        };
        for at in [0, 1, 31, 63] {
            // A value in one place, and nothing wrong in all others.
            let bad_with = |kernel, fine: u64, value: u64, bits: Option<u32>, rest: &[[u64; 1]]| {
                let mut values = vec![fine; CHUNK];
                values[at] = value;
                let values = match bits {
                    Some(bits) => packed(&values, bits),
                    None => spread(&values),
                };
                let mut bad = [[0]];
                let mut read: Vec<&[_]> = vec![&values];
                if !rest.is_empty() {
                    read.push(rest);
                }
                check(kernel, &mut bad, &read);
                bad[0][0] != 0
            };
            for (bits, beta) in [(18, 78), (20, 196), (20, 120)] {
                let kernel = MlDsa::Response { bits, beta };
                for (value, bad) in [
                    (beta, true),
                    (beta + 1, false),
                    ((1 << bits) - beta - 1, false),
                    ((1 << bits) - beta, true),
                ] {
                    let found = bad_with(kernel, 1 << (bits - 1), value, Some(bits), &[]);
                    assert_eq!(found, bad, "{value}");
                }
            }
            for (value, bad) in [
                (gamma2(44) - 1, false),
                (gamma2(44), true),
                (MlDsa::Q - gamma2(44), true),
                (MlDsa::Q - gamma2(44) + 1, false),
            ] {
                let found = bad_with(MlDsa::Norm { m: 44 }, 0, value, None, &[]);
                assert_eq!(found, bad, "{value}");
            }
            for (value, bad) in [(MlDsa::Q - 1, false), (MlDsa::Q, true)] {
                let found = bad_with(MlDsa::Uniform, 0, value, Some(24), &[]);
                assert_eq!(found, bad, "{value}");
            }
            let (m, beta) = (16, 196);
            let rim = gamma2(m) - beta;
            for half in [Half::Low, Half::High] {
                // c s = 3 in one half, -5 in the other.
                let pair = match half {
                    Half::Low => (512 + 3) | (512 - 5) << 10,
                    Half::High => (512 - 5) | (512 + 3) << 10,
                };
                let pair = spread(&[pair; CHUNK]);
                for (low, bad) in [
                    (gamma2(m) + rim - 4, false),
                    (gamma2(m) + rim - 3, true),
                    (gamma2(m) - rim - 2, false),
                    (gamma2(m) - rim - 3, true),
                ] {
                    let kernel = MlDsa::Low { m, beta, half };
                    assert_eq!(bad_with(kernel, gamma2(m), low, None, &pair), bad, "{low}");
                }
            }
        }
    }

    #[test]
    fn products_are_those_of_matrices() {
        let (rows, columns) = (6, 5);
        let matrix = polynomial(3, MlDsa::Q);
        let matrix = &matrix[..rows * columns * MlDsa::SLICE];
        let vector: Vec<u64> = (0..5).flat_map(|i| polynomial(i, 1 << NTT_BITS)).collect();
        let mut out = vec![[0]; strided(rows)];
        let input = spread(&vector[..strided(columns)]);
        let kernel = MlDsa::Product { rows, columns };
        model(kernel, &mut [&mut out], &[&spread(matrix), &input]);
        for (row, j) in (0..rows).flat_map(|row| (0..MlDsa::SLICE).map(move |j| (row, j))) {
            let factor = |column: usize| matrix[(column * rows + row) * MlDsa::SLICE + j];
            let sum = (0..columns)
                .map(|column| u128::from(factor(column)) * u128::from(vector[column * 256 + j]))
                .sum::<u128>();
            let found = u128::from(out[row * 256 + j][0]);
            assert_eq!(found % u128::from(MlDsa::Q), sum % u128::from(MlDsa::Q));
        }
    }

    fn packed(fields: &[u64], bits: u32) -> Vec<[u64; 1]> {
        let mut words = vec![[0]; fields.len() * bits as usize / 64];
        for (i, field) in fields.iter().enumerate() {
            for bit in 0..bits as usize {
                let at = i * bits as usize + bit;
                words[at / 64][0] |= (field >> bit & 1) << (at % 64);
            }
        }
        words
    }

    fn field(words: &[[u64; 1]], i: usize, bits: u32) -> u64 {
        (0..bits as usize).fold(0, |field, bit| {
            let at = i * bits as usize + bit;
            field | (words[at / 64][0] >> (at % 64) & 1) << bit
        })
    }
}
