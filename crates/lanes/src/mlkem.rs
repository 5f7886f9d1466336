//! Kernel sources: polynomials of ML-KEM (FIPS 203), one request a lane.
//!
//! A polynomial of 256 coefficients modulo q = 3329 is 64 vectors: vector `i` holds coefficients
//! `4 i` to `4 i + 3` in the four signed 16-bit words of a lane. Layers of the number-theoretic
//! transform with distances of at least 4 thus act between vectors, and the last one inside lanes.
//!
//! Products modulo q are Montgomery's with the radix 2^16, on signed words (Seiler, "Faster AVX2
//! optimized NTT multiplication for Ring-LWE lattice cryptography", IACR ePrint 2018/039,
//! section 2): nothing is corrected after additions, as `Bounds` proves that no word wraps.

use crate::bounds::Holds;
use crate::kernel::{ArraySpec, Source};
use crate::machine::{Array, Machine};

/// Arithmetic, sampling and encoding of polynomials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MlKem {
    /// `poly := NTT(poly)` (FIPS 203, algorithm 9). Arrays `poly[64]`.
    Ntt,
    /// `poly := NTT^-1(poly)` (algorithm 10). Arrays `poly[64]`.
    InverseNtt,
    /// A quarter of the sum of `rank` products in the transformed domain (algorithms 11 and 12),
    /// 16 vectors of each polynomial. Arrays `out[16]`, `a` and `b` from the quarter of the first
    /// polynomial to that of the last, and the quarter's [`MlKem::product_factors`],
    /// `plain[16] quotient[16]`.
    Product {
        /// Products in the sum.
        rank: usize,
    },
    /// `poly := noise` from `8 eta` words of random bits (algorithm 8). Arrays `poly[64]
    /// words[8 eta]`.
    Noise {
        /// Half the bits of a coefficient.
        eta: u32,
    },
    /// `words := ByteEncode_12` of the sum of so many polynomials (algorithm 5). Arrays
    /// `words[48] a[64]`, with two terms also `b[64]`.
    Encode {
        /// Polynomials in the sum, one or two.
        terms: usize,
    },
    /// `poly := ByteDecode_12(words)` (algorithm 6) without the reduction modulo q; `bad` becomes
    /// other than zero where a coefficient needs it. Arrays `poly[64] bad[1] words[48]`.
    Decode,
    /// `words := ByteEncode_d(Compress_d(sum))` (section 4.2.1). Arrays `words[4 d] a[64] b[64]`,
    /// and with 4 or 5 bits, for the ciphertext's second part, `c[64]`.
    Compress {
        /// d.
        bits: u32,
    },
    /// `poly := Decompress_d(ByteDecode_d(words))`. Arrays `poly[64] words[4 d]`.
    Decompress {
        /// d.
        bits: u32,
    },
    /// `words := ByteEncode_1(Compress_1(a - b))`. Arrays `words[4] a[64] b[64]`.
    Recover,
    /// `out := good` in lanes where `ours = theirs`, `bad` in the others. Arrays `out[4]
    /// ours[words] theirs[words] good[4] bad[4]`.
    Choose {
        /// Words that are compared.
        words: usize,
    },
    /// The coefficients below q in a block of SHAKE128, for rejection sampling (algorithm 7). The
    /// first 28 vectors are words with up to four such coefficients from the low end, and zeros;
    /// the other 29 are the number of coefficients in front of each word, and in all. Arrays
    /// `out[57] state[25]`. The block is public.
    Candidates,
    /// `poly := rows`, where each lane's polynomial is 64 consecutive words. Arrays `poly[64]
    /// rows[64]`.
    Transpose,
}

impl MlKem {
    /// Vectors of a polynomial.
    pub const POLYNOMIAL: usize = 64;
    /// Polynomials are multiplied in so many parts.
    pub const PARTS: usize = 4;
    /// Words that a block of SHAKE128 gives to [`MlKem::Candidates`].
    pub const CANDIDATES: usize = 28;

    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![
            Self::Candidates,
            Self::Transpose,
            Self::Product { rank: 2 },
            Self::Product { rank: 3 },
            Self::Product { rank: 4 },
            Self::Ntt,
            Self::InverseNtt,
            Self::Noise { eta: 2 },
            Self::Noise { eta: 3 },
            Self::Encode { terms: 1 },
            Self::Encode { terms: 2 },
            Self::Decode,
            Self::Recover,
        ];
        all.extend([4, 5, 10, 11].map(|bits| Self::Compress { bits }));
        all.extend([1, 4, 5, 10, 11].map(|bits| Self::Decompress { bits }));
        // Ciphertexts of ML-KEM-512, 768 and 1024.
        all.extend([96, 136, 196].map(|words| Self::Choose { words }));
        all
    }

    /// What a quarter of [`MlKem::Product`] multiplies by, a word for every lane of vector `i`: the
    /// factor, and the factor over q.
    pub fn product_factors(part: usize, i: usize) -> (u64, u64) {
        // Pairs of coefficients are multiplied modulo X^2 - gamma, gamma = 17^(2 BitRev7(pair) + 1)
        // (algorithm 11); this also takes away what Montgomery's form left.
        let vector = QUARTER * part + i;
        let square = power(2, 32);
        let gamma = |pair| square * power(ROOT, 2 * reversed(pair) + 1);
        let factor = Factor::new([square, gamma(2 * vector), square, gamma(2 * vector + 1)]);
        (factor.plain, factor.quotient)
    }
}

impl Source for MlKem {
    fn name(self) -> String {
        match self {
            Self::Ntt => "mlkem_ntt".to_owned(),
            Self::InverseNtt => "mlkem_intt".to_owned(),
            Self::Product { rank } => format!("mlkem_product{rank}"),
            Self::Noise { eta } => format!("mlkem_noise{eta}"),
            Self::Encode { terms } => format!("mlkem_encode12of{terms}"),
            Self::Decode => "mlkem_decode12".to_owned(),
            Self::Compress { bits } => format!("mlkem_compress{bits}"),
            Self::Decompress { bits } => format!("mlkem_decompress{bits}"),
            Self::Recover => "mlkem_recover".to_owned(),
            Self::Choose { words } => format!("mlkem_choose{words}"),
            Self::Candidates => "mlkem_candidates".to_owned(),
            Self::Transpose => "mlkem_transpose".to_owned(),
        }
    }

    fn formula(self) -> &'static str {
        match self {
            Self::Ntt => "poly := NTT(poly)",
            Self::InverseNtt => "poly := NTT^-1(poly)",
            Self::Product { .. } => "out := sum of a b, a quarter",
            Self::Noise { .. } => "poly := SamplePolyCBD(words)",
            Self::Encode { .. } => "words := ByteEncode_12(sum)",
            Self::Decode => "poly := ByteDecode_12(words), bad := bad | poly >= q",
            Self::Compress { .. } => "words := ByteEncode_d(Compress_d(sum))",
            Self::Decompress { .. } => "poly := Decompress_d(ByteDecode_d(words))",
            Self::Recover => "words := ByteEncode_1(Compress_1(a - b))",
            Self::Choose { .. } => "out := ours = theirs ? good : bad",
            Self::Candidates => "out := coefficients below q, counts",
            Self::Transpose => "poly := rows",
        }
    }

    fn arrays(self, _: usize) -> Vec<ArraySpec> {
        let words = |limit| Holds::Words16 { limit };
        let poly = |limit| ArraySpec::written("poly", Self::POLYNOMIAL, words(limit));
        let read = |name, limit| ArraySpec::read(name, Self::POLYNOMIAL, words(limit));
        let any = Holds::Bits(64);
        let out = |len| ArraySpec::written("words", len, any);
        let packed = |len| ArraySpec::read("words", len, any);
        match self {
            // The kernel reads less than it writes.
            Self::Ntt | Self::InverseNtt => vec![poly(match self {
                Self::Ntt => TRANSFORMED,
                _ => INVERSE,
            })],
            Self::Product { rank } => {
                let len = (rank - 1) * Self::POLYNOMIAL + QUARTER;
                vec![
                    ArraySpec::written("out", QUARTER, words(PRODUCT)),
                    ArraySpec::read("a", len, words(DECODED)),
                    ArraySpec::read("b", len, words(TRANSFORMED)),
                    ArraySpec::read("plain", QUARTER, words(Q as u16 / 2)),
                    ArraySpec::read("quotient", QUARTER, any),
                ]
            }
            Self::Noise { eta } => vec![poly(NOISE), packed(8 * eta as usize)],
            Self::Encode { terms } => {
                let mut arrays = vec![out(48), read("a", TRANSFORMED)];
                if terms == 2 {
                    arrays.push(read("b", PRODUCT));
                }
                arrays
            }
            Self::Decode => vec![poly(DECODED), ArraySpec::written("bad", 1, any), packed(48)],
            Self::Compress { bits } => {
                let mut arrays = vec![out(4 * bits as usize), read("a", INVERSE), read("b", NOISE)];
                if has_message(bits) {
                    arrays.push(read("c", DECODED));
                }
                arrays
            }
            Self::Decompress { bits } => vec![poly(DECODED), packed(4 * bits as usize)],
            Self::Recover => vec![out(4), read("a", DECODED), read("b", INVERSE)],
            Self::Choose { words } => vec![
                ArraySpec::written("out", 4, any),
                ArraySpec::read("ours", words, any),
                ArraySpec::read("theirs", words, any),
                ArraySpec::read("good", 4, any),
                ArraySpec::read("bad", 4, any),
            ],
            Self::Candidates => vec![
                ArraySpec::written("out", 2 * Self::CANDIDATES + 1, any),
                ArraySpec::read("state", 25, any),
            ],
            Self::Transpose => vec![poly(DECODED), read("rows", DECODED)],
        }
    }

    fn run<M: Machine>(self, m: &mut M) {
        match self {
            Self::Ntt => ntt(m),
            Self::InverseNtt => inverse_ntt(m),
            Self::Product { rank } => product(m, rank),
            Self::Noise { eta } => {
                let words = Stream::new(m, Array(1), 8 * eta as usize);
                for i in 0..Self::POLYNOMIAL {
                    let bits = words.fields(m, i, 2 * eta);
                    let noise = noise(m, bits, eta);
                    m.store(Array(0), i, noise);
                }
            }
            Self::Encode { terms } => encode(m, 12, |m, i| {
                let mut sum = m.load(Array(1), i);
                if terms == 2 {
                    let other = m.load(Array(2), i);
                    sum = m.add16(sum, other);
                }
                canonical(m, sum)
            }),
            Self::Decode => decode(m),
            Self::Compress { bits } => encode(m, bits, |m, i| {
                let (a, b) = (m.load(Array(1), i), m.load(Array(2), i));
                let mut sum = m.add16(a, b);
                if has_message(bits) {
                    let message = m.load(Array(3), i);
                    sum = m.add16(sum, message);
                }
                compress(m, sum, bits)
            }),
            Self::Decompress { bits } => {
                let words = Stream::new(m, Array(1), 4 * bits as usize);
                for i in 0..Self::POLYNOMIAL {
                    let fields = words.fields(m, i, bits);
                    let decompressed = decompress(m, fields, bits);
                    m.store(Array(0), i, decompressed);
                }
            }
            Self::Recover => encode(m, 1, |m, i| {
                let (a, b) = (m.load(Array(1), i), m.load(Array(2), i));
                let difference = m.sub16(a, b);
                compress(m, difference, 1)
            }),
            Self::Choose { words } => {
                let mut differences = m.splat(0);
                for i in 0..words {
                    let (ours, theirs) = (m.load(Array(1), i), m.load(Array(2), i));
                    differences = m.ternary(differences, ours, theirs, OR_XOR);
                }
                let zero = m.splat(0);
                let same = m.eq(differences, zero);
                for i in 0..4 {
                    let (good, bad) = (m.load(Array(3), i), m.load(Array(4), i));
                    let chosen = m.select(same, good, bad);
                    m.store(Array(0), i, chosen);
                }
            }
            Self::Candidates => candidates(m),
            Self::Transpose => {
                let lanes = m.lanes();
                for from in 0..Self::POLYNOMIAL / lanes {
                    let rows = (0..lanes)
                        .map(|lane| m.load(Array(1), lane * Self::POLYNOMIAL / lanes + from))
                        .collect();
                    let columns = transpose(m, rows);
                    for (i, column) in columns.into_iter().enumerate() {
                        m.store(Array(0), from * lanes + i, column);
                    }
                }
            }
        }
    }
}

/// Algorithm 9: three layers between vectors 8 apart, then four between neighbours.
fn ntt<M: Machine>(m: &mut M) {
    let mut f: Vec<_> = (0..MlKem::POLYNOMIAL)
        .map(|i| m.load(Array(0), i))
        .collect();
    let layer = |m: &mut M, f: &mut [M::V], places: &[usize], distance: usize| {
        // zeta number `at` belongs to block `at` of the layer (algorithm 9, line 1, counts on).
        let blocks = MlKem::POLYNOMIAL / (2 * distance);
        for &i in places {
            if i & distance == 0 {
                let zeta = power(ROOT, reversed(blocks + i / (2 * distance)));
                let t = multiply(m, f[i + distance], Factor::new([zeta << 16; 4]));
                f[i + distance] = m.sub16(f[i], t);
                f[i] = m.add16(f[i], t);
            }
        }
    };
    for column in 0..8 {
        let places: Vec<_> = (0..8).map(|k| column + 8 * k).collect();
        for distance in [32, 16, 8] {
            layer(m, &mut f, &places, distance);
        }
    }
    for group in 0..8 {
        let places: Vec<_> = (0..8).map(|k| 8 * group + k).collect();
        for distance in [4, 2, 1] {
            layer(m, &mut f, &places, distance);
        }
        for &i in &places {
            // Distance 2: (c0, c1, c2, c3) to (c0 + z c2, c1 + z c3, c0 - z c2, c1 - z c3).
            let zeta = power(ROOT, reversed(64 + i));
            let minus = Q - zeta;
            let factor = Factor::new([1 << 16, 1 << 16, minus << 16, minus << 16]);
            let f = multiply(m, f[i], factor);
            let swapped = m.rol(f, 32);
            let signed = negate(m, swapped, LOW_HALF);
            let sum = m.add16(f, signed);
            m.store(Array(0), i, sum);
        }
    }
}

/// Algorithm 10: four layers between neighbours, then three between vectors 8 apart.
fn inverse_ntt<M: Machine>(m: &mut M) {
    let mut f: Vec<_> = (0..MlKem::POLYNOMIAL)
        .map(|i| m.load(Array(0), i))
        .collect();
    let layer = |m: &mut M, f: &mut [M::V], places: &[usize], distance: usize| {
        let blocks = MlKem::POLYNOMIAL / (2 * distance);
        for &i in places {
            if i & distance == 0 {
                let zeta = power(ROOT, reversed(2 * blocks - 1 - i / (2 * distance)));
                let difference = m.sub16(f[i + distance], f[i]);
                f[i] = m.add16(f[i], f[i + distance]);
                f[i + distance] = multiply(m, difference, Factor::new([zeta << 16; 4]));
            }
        }
    };
    for group in 0..8 {
        let places: Vec<_> = (0..8).map(|k| 8 * group + k).collect();
        for &i in &places {
            // Distance 2, and line 14's multiplication by 128^-1 = 3303 for all that follows:
            // (c0, c1, c2, c3) to (c0 + c2, c1 + c3, z (c2 - c0), z (c3 - c1)).
            let zeta = power(ROOT, reversed(127 - i));
            let (low, high) = (3303 << 16, (3303 * zeta) << 16);
            let swapped = m.rol(f[i], 32);
            let signed = negate(m, swapped, !LOW_HALF);
            let sum = m.add16(f[i], signed);
            f[i] = multiply(m, sum, Factor::new([low, low, high, high]));
        }
        for distance in [1, 2, 4] {
            layer(m, &mut f, &places, distance);
        }
        // The sums among them have grown; three more layers of sums have room for products only.
        for &i in &places[..4] {
            f[i] = multiply(m, f[i], Factor::new([1 << 16; 4]));
        }
    }
    for column in 0..8 {
        let places: Vec<_> = (0..8).map(|k| column + 8 * k).collect();
        for distance in [8, 16, 32] {
            layer(m, &mut f, &places, distance);
        }
        for &i in &places {
            m.store(Array(0), i, f[i]);
        }
    }
}

/// Algorithms 11 and 12, and a sum over them: `(a0 + a1 X) (b0 + b1 X)` is
/// `(a0 b0 + gamma a1 b1) + (a0 b1 + a1 b0) X` modulo `X^2 - gamma`.
fn product<M: Machine>(m: &mut M, rank: usize) {
    for i in 0..QUARTER {
        // Over all products: (a0 b0, a1 b1) and (a0 b1, a1 b0).
        let mut sums = None;
        for j in 0..rank {
            let at = j * MlKem::POLYNOMIAL + i;
            let (a, b) = (m.load(Array(1), at), m.load(Array(2), at));
            let swapped = m.rol32(b, 16);
            let straight = multiply_variables(m, a, b);
            let crossed = multiply_variables(m, a, swapped);
            sums = Some(match sums {
                None => (straight, crossed),
                Some((s, c)) => (m.add16(s, straight), m.add16(c, crossed)),
            });
        }
        let (straight, crossed) = sums.expect("a vector has polynomials");
        let plain = m.load(Array(3), i);
        let quotient = m.load(Array(4), i);
        let straight = multiply_by(m, straight, plain, quotient);
        let swapped = m.rol32(straight, 16);
        let straight = m.add16(straight, swapped);
        let swapped = m.rol32(crossed, 16);
        let crossed = m.add16(crossed, swapped);
        // Back from Montgomery's form.
        let crossed = multiply(m, crossed, Factor::new([power(2, 32); 4]));
        let even = m.splat(EVEN_WORDS);
        let sum = m.ternary(even, straight, crossed, CHOOSE);
        m.store(Array(0), i, sum);
    }
}

/// Algorithm 8 on fields of `2 eta` bits: the ones in the low half less those in the high half.
fn noise<M: Machine>(m: &mut M, bits: M::V, eta: u32) -> M::V {
    let lowest = m.splat(EVERY_WORD * (1 << eta | 1));
    let mut sum = m.and(bits, lowest);
    for shift in 1..eta {
        let shifted = m.shr16(bits, shift);
        let bit = m.and(shifted, lowest);
        sum = m.add16(sum, bit);
    }
    let three = m.splat(EVERY_WORD * 3);
    let (x, y) = (m.and(sum, three), m.shr16(sum, eta));
    m.sub16(x, y)
}

/// Algorithm 6 with d = 12, and the check of section 7.2.
fn decode<M: Machine>(m: &mut M) {
    let words = Stream::new(m, Array(2), 48);
    let q = m.splat(EVERY_WORD * Q);
    // Differences to q have their signs all set where every coefficient is reduced.
    let mut signs = None;
    for i in 0..MlKem::POLYNOMIAL {
        let coefficients = words.fields(m, i, 12);
        let difference = m.sub16(coefficients, q);
        signs = Some(match signs {
            None => difference,
            Some(signs) => m.and(signs, difference),
        });
        m.store(Array(0), i, coefficients);
    }
    let signs = signs.expect("a polynomial has vectors");
    let before = m.load(Array(1), 0);
    let sign = m.splat(EVERY_WORD << 15);
    let bad = m.ternary(before, signs, sign, OR_AND_NOT);
    m.store(Array(1), 0, bad);
}

/// Packs what `field` makes of each vector, words below 2^`bits`, and stores it.
fn encode<M: Machine>(m: &mut M, bits: u32, mut field: impl FnMut(&mut M, usize) -> M::V) {
    // Bits that are not stored yet, and how many they are.
    let mut pending: Option<(M::V, u32)> = None;
    let mut stored = 0;
    for i in 0..MlKem::POLYNOMIAL {
        let fields = field(m, i);
        let chunk = compact(m, fields, bits);
        let (value, have) = match pending {
            None => (chunk, 0),
            Some((value, have)) => {
                let shifted = m.shl(chunk, have);
                (m.or(value, shifted), have)
            }
        };
        let total = have + 4 * bits;
        pending = if total < 64 {
            Some((value, total))
        } else {
            m.store(Array(0), stored, value);
            stored += 1;
            (total > 64).then(|| (m.shr(chunk, 64 - have), total - 64))
        };
    }
}

/// A stream of bits in an array of words.
struct Stream<V> {
    words: Vec<V>,
}

impl<V: Copy> Stream<V> {
    fn new<M: Machine<V = V>>(m: &mut M, array: Array, len: usize) -> Self {
        Self {
            words: (0..len).map(|i| m.load(array, i)).collect(),
        }
    }

    /// Fields `4 index` to `4 index + 3` of `bits` bits each, a field a word.
    fn fields<M: Machine<V = V>>(&self, m: &mut M, index: usize, bits: u32) -> V {
        let width = 4 * bits;
        let (word, offset) = (
            index * width as usize / 64,
            (index * width as usize % 64) as u32,
        );
        let mut chunk = self.words[word];
        if offset > 0 {
            chunk = m.shr(chunk, offset);
        }
        if offset + width > 64 {
            let high = m.shl(self.words[word + 1], 64 - offset);
            chunk = m.or(chunk, high);
        }
        expand(m, chunk, bits)
    }
}

/// The lowest four fields of `bits` bits, moved apart: one a word.
fn expand<M: Machine>(m: &mut M, chunk: M::V, bits: u32) -> M::V {
    // Two fields a half, then one a word, with something above them until the end.
    let half = m.splat(LOW_HALF);
    let moved = m.shl(chunk, 32 - 2 * bits);
    let halves = m.ternary(half, chunk, moved, CHOOSE);
    let even = m.splat(EVEN_WORDS);
    let moved = m.shl(halves, 16 - bits);
    let words = m.ternary(even, halves, moved, CHOOSE);
    let mask = m.splat(EVERY_WORD * ((1 << bits) - 1));
    m.and(words, mask)
}

/// Four words below 2^`bits`, moved together to the low end.
fn compact<M: Machine>(m: &mut M, words: M::V, bits: u32) -> M::V {
    let low = (1u64 << bits) - 1;
    let mask = m.splat(low << 32 | low);
    let moved = m.shr(words, 16 - bits);
    let halves = m.ternary(mask, words, moved, CHOOSE);
    let mask = m.splat((1 << (2 * bits)) - 1);
    let moved = m.shr(halves, 32 - 2 * bits);
    m.ternary(mask, halves, moved, CHOOSE)
}

/// `Compress_d` of any words: `round(2^d x / q) mod 2^d`.
///
/// Let `s` be the residue of `2^d x` modulo q that is nearest to zero. `2^d x - s` is q times the
/// rounded quotient, so that modulo `2^d` the quotient is `-s / q`, and needs no division.
fn compress<M: Machine>(m: &mut M, x: M::V, bits: u32) -> M::V {
    let scaled = multiply(m, x, Factor::new([(1 << bits) << 16; 4]));
    let nearest = nearest(m, scaled);
    let inverse = m.splat(EVERY_WORD * u64::from(Q_INVERSE.wrapping_neg()));
    let quotient = m.mul_lo16(nearest, inverse);
    let mask = m.splat(EVERY_WORD * ((1 << bits) - 1));
    m.and(quotient, mask)
}

/// `Decompress_d`: `round(q y / 2^d)`, as `(floor(q y / 2^(d - 1)) + 1) / 2`.
fn decompress<M: Machine>(m: &mut M, y: M::V, bits: u32) -> M::V {
    let y = m.shl16(y, 15 - bits);
    let factor = m.splat(EVERY_WORD * (4 * Q));
    let twice = m.mul_hi16(y, factor);
    let one = m.splat(EVERY_WORD);
    let up = m.add16(twice, one);
    m.shr16(up, 1)
}

/// The residues in `[0, q)`.
fn canonical<M: Machine>(m: &mut M, x: M::V) -> M::V {
    let nearest = nearest(m, x);
    let sign = m.sra16(nearest, 15);
    let q = m.splat(EVERY_WORD * Q);
    let correction = m.and(sign, q);
    let residue = m.add16(nearest, correction);
    let mask = m.splat(EVERY_WORD * 0xfff);
    m.and(residue, mask)
}

/// The residues nearest to zero, by Barrett's quotient: `x 20159 / 2^26` is so near to `x / q`
/// that rounding gives the same, for every word `x`.
fn nearest<M: Machine>(m: &mut M, x: M::V) -> M::V {
    let factor = m.splat(EVERY_WORD * ((1 << 26) / Q + 1));
    let half = m.splat(EVERY_WORD * (1 << 9));
    let high = m.mul_hi16(x, factor);
    let rounded = m.add16(high, half);
    let quotient = m.sra16(rounded, 10);
    let q = m.splat(EVERY_WORD * Q);
    let multiple = m.mul_lo16(quotient, q);
    m.sub16(x, multiple)
}

/// Four public factors, with what Montgomery's multiplication wants to know of them.
#[derive(Clone, Copy)]
struct Factor {
    /// The factors modulo q, nearest to zero.
    plain: u64,
    /// The same times `1 / q`, modulo 2^16.
    quotient: u64,
}

impl Factor {
    fn new(values: [u64; 4]) -> Self {
        let pack = |word: &dyn Fn(u64) -> u16| {
            values
                .iter()
                .rev()
                .fold(0, |lane, &value| lane << 16 | u64::from(word(value)))
        };
        let nearest = |value: u64| {
            let residue = (value % Q) as u16;
            residue.wrapping_sub(if residue > Q as u16 / 2 { Q as u16 } else { 0 })
        };
        Self {
            plain: pack(&nearest),
            quotient: pack(&|value| nearest(value).wrapping_mul(Q_INVERSE)),
        }
    }
}

/// `x factor / 2^16` modulo q.
fn multiply<M: Machine>(m: &mut M, x: M::V, factor: Factor) -> M::V {
    let (plain, quotient) = (m.splat(factor.plain), m.splat(factor.quotient));
    multiply_by(m, x, plain, quotient)
}

/// `x plain / 2^16` modulo q, `quotient = plain / q mod 2^16`.
fn multiply_by<M: Machine>(m: &mut M, x: M::V, plain: M::V, quotient: M::V) -> M::V {
    let quotient = m.mul_lo16(x, quotient);
    let high = m.mul_hi16(x, plain);
    difference(m, high, quotient)
}

/// `a b / 2^16` modulo q.
fn multiply_variables<M: Machine>(m: &mut M, a: M::V, b: M::V) -> M::V {
    let inverse = m.splat(EVERY_WORD * u64::from(Q_INVERSE));
    let low = m.mul_lo16(a, b);
    let quotient = m.mul_lo16(low, inverse);
    let high = m.mul_hi16(a, b);
    difference(m, high, quotient)
}

/// `high - floor(quotient q / 2^16)`: both products have the same low halves, which cancel.
fn difference<M: Machine>(m: &mut M, high: M::V, quotient: M::V) -> M::V {
    let q = m.splat(EVERY_WORD * Q);
    let multiple = m.mul_hi16(quotient, q);
    m.sub16(high, multiple)
}

/// `-x` in the words of `mask`, `x` in the others.
fn negate<M: Machine>(m: &mut M, x: M::V, mask: u64) -> M::V {
    let mask = m.splat(mask);
    let flipped = m.xor(x, mask);
    m.sub16(flipped, mask)
}

/// See [`MlKem::Candidates`].
fn candidates<M: Machine>(m: &mut M) {
    let words = Stream::new(m, Array(1), 21);
    let q = m.splat(EVERY_WORD * Q);
    let seven = m.splat(7);
    let (one, minus_one) = (m.splat(1), m.splat(u64::MAX));
    let mut count = m.splat(0);
    for i in 0..MlKem::CANDIDATES {
        let x = words.fields(m, i, 12);
        // Negative where a coefficient is good.
        let difference = m.sub16(x, q);
        let good = m.sra16(difference, 15);
        let x = m.and(x, good);
        // From the highest word down: a good one joins those above it, for a bad one they close
        // up.
        let word = |at: u32| 0xffff << (16 * at);
        let highest = m.splat(word(3));
        let mut packed = m.and(x, highest);
        let ones = m.shr16(difference, 15);
        let upper = m.shr(ones, 32);
        for at in (0..3).rev() {
            let bit = match at {
                0 => ones,
                1 => m.shr(ones, 16),
                _ => upper,
            };
            let bit = m.and(bit, one);
            // All ones where it is not good.
            let is_bad = m.add64(bit, minus_one);
            let here = m.splat(word(at));
            let joined = m.ternary(packed, x, here, OR_AND);
            let closed = m.shr(packed, 16);
            packed = m.ternary(is_bad, closed, joined, CHOOSE);
        }
        m.store(Array(0), i, packed);
        m.store(Array(0), MlKem::CANDIDATES + i, count);
        let pairs = m.add(ones, upper);
        let upper = m.shr(pairs, 16);
        let all = m.add(pairs, upper);
        let all = m.and(all, seven);
        count = m.add(count, all);
    }
    m.store(Array(0), 2 * MlKem::CANDIDATES, count);
}

/// As many vectors as there are lanes, with rows and columns exchanged.
fn transpose<M: Machine>(m: &mut M, mut rows: Vec<M::V>) -> Vec<M::V> {
    let lanes = rows.len();
    for i in (0..lanes).step_by(2) {
        let (a, b) = (rows[i], rows[i + 1]);
        rows[i] = m.unpack_low64(a, b);
        rows[i + 1] = m.unpack_high64(a, b);
    }
    let mut step = 2;
    while step < lanes {
        // Of each pair of blocks of `step` lanes the first, or the second, by turns of a and b.
        let index = |m: &mut M, second: usize| {
            m.vector(std::array::from_fn(|lane| {
                let from_b = lane / step % 2;
                let block = lane / (2 * step) * 2 + second;
                (from_b * lanes + block * step + lane % step) as u64
            }))
        };
        let (first, second) = (index(m, 0), index(m, 1));
        for i in (0..lanes).filter(|i| i & step == 0) {
            let (a, b) = (rows[i], rows[i + step]);
            rows[i] = m.pick2(a, b, first);
            rows[i + step] = m.pick2(a, b, second);
        }
        step *= 2;
    }
    rows
}

/// Whether what is compressed to so many bits contains the message: the ciphertext's second part.
fn has_message(bits: u32) -> bool {
    bits <= 5
}

/// `base^exponent mod q`.
fn power(base: u64, exponent: usize) -> u64 {
    (0..exponent).fold(1, |power, _| power * base % Q)
}

/// BitRev7 (section 4.3).
fn reversed(index: usize) -> usize {
    (0..7).fold(0, |reversed, bit| {
        reversed | (index >> bit & 1) << (6 - bit)
    })
}

/// The modulus.
const Q: u64 = 3329;
/// `1 / q mod 2^16`.
const Q_INVERSE: u16 = 62209;
/// A primitive 256th root of unity modulo q.
const ROOT: u64 = 17;
/// Vectors of a part of [`MlKem::Product`].
const QUARTER: usize = MlKem::POLYNOMIAL / MlKem::PARTS;

// Limits of what polynomials hold, in absolute value.
/// Coefficients of 12 bits, reduced or not.
const DECODED: u16 = 4095;
/// After [`MlKem::Ntt`], and before: what is decoded is less.
const TRANSFORMED: u16 = 6300;
/// After [`MlKem::InverseNtt`], and before: products are less.
const INVERSE: u16 = 15500;
/// After [`MlKem::Product`].
const PRODUCT: u16 = 4096;
/// After [`MlKem::Noise`].
const NOISE: u16 = 3;

const EVERY_WORD: u64 = 0x0001_0001_0001_0001;
const EVEN_WORDS: u64 = 0x0000_ffff_0000_ffff;
const LOW_HALF: u64 = 0xffff_ffff;

// Functions of three bits.
/// `a ? b : c`.
const CHOOSE: u8 = 0xca;
/// `a | (b & c)`.
const OR_AND: u8 = 0xf8;
/// `a | (!b & c)`.
const OR_AND_NOT: u8 = 0xf2;
/// `a | (b ^ c)`.
const OR_XOR: u8 = 0xf6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kernel;
    use std::array::from_fn;

    /// Runs a kernel on one array that it writes and those that it reads.
    fn run(kernel: MlKem, out: &mut [[u64; 4]], read: &[&[[u64; 4]]]) {
        Kernel::from(kernel).model(&mut [out], read);
    }

    /// A polynomial with the same coefficients in every lane, but rotated by lanes.
    fn pack(coefficients: &[i32; 256]) -> Vec<[u64; 4]> {
        let word = |lane: usize, at: usize| coefficients[(at + lane) % 256] as u16;
        let vector = |i: usize| {
            let words = |lane| (0..4).map(move |k| u64::from(word(lane, 4 * i + k)) << (16 * k));
            from_fn(|lane| words(lane).sum())
        };
        (0..64).map(vector).collect()
    }

    /// Coefficients of one lane, in `[0, q)`.
    fn unpack(poly: &[[u64; 4]], lane: usize) -> [i32; 256] {
        from_fn(|at| i32::from((poly[at / 4][lane] >> (16 * (at % 4))) as i16).rem_euclid(3329))
    }

    fn sample(seed: u64, below: i32) -> [i32; 256] {
        let mut state = seed;
        from_fn(|_| {
            state = state
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 40) as i32 % below
        })
    }

    /// Products through the transform are products modulo X^256 + 1.
    #[test]
    fn transforms_and_products_are_those_of_the_ring() {
        for rank in [2, 3, 4] {
            let a: Vec<_> = (0..rank).map(|i| sample(i as u64, 3329)).collect();
            let b: Vec<_> = (0..rank).map(|i| sample(i as u64 + 9, 3329)).collect();
            let transformed = |polys: &[[i32; 256]]| {
                let transform = |poly| {
                    let mut poly = pack(poly);
                    run(MlKem::Ntt, &mut poly, &[]);
                    poly
                };
                polys.iter().flat_map(transform).collect::<Vec<_>>()
            };
            // The left operand is as decoded: reduced.
            let mut left = transformed(&a);
            for poly in left.chunks_mut(64) {
                for vector in poly {
                    for lane in vector {
                        *lane = (0..4).fold(0, |v, k| {
                            let word = i32::from((*lane >> (16 * k)) as i16).rem_euclid(3329);
                            v | (word as u64) << (16 * k)
                        });
                    }
                }
            }
            let right = transformed(&b);
            let mut product = vec![[0; 4]; 64];
            for part in 0..4 {
                let quarter = 16 * part..16 * part + (rank - 1) * 64 + 16;
                let factors: Vec<_> = (0..16).map(|i| MlKem::product_factors(part, i)).collect();
                let plain: Vec<_> = factors.iter().map(|&(plain, _)| [plain; 4]).collect();
                let quotient: Vec<_> = factors.iter().map(|&(_, quotient)| [quotient; 4]).collect();
                run(
                    MlKem::Product { rank },
                    &mut product[16 * part..][..16],
                    &[&left[quarter.clone()], &right[quarter], &plain, &quotient],
                );
            }
            run(MlKem::InverseNtt, &mut product, &[]);
            for lane in 0..4 {
                let mut expected = [0i64; 256];
                for (a, b) in a.iter().zip(&b) {
                    for i in 0..256 {
                        for j in 0..256 {
                            let term = i64::from(a[(i + lane) % 256] * b[(j + lane) % 256]);
                            expected[(i + j) % 256] += if i + j < 256 { term } else { -term };
                        }
                    }
                }
                let expected = expected.map(|c| c.rem_euclid(3329) as i32);
                assert_eq!(unpack(&product, lane), expected, "rank {rank} lane {lane}");
            }
        }
    }

    /// Every coefficient, and what rounding in exact integers gives (section 4.2.1).
    #[test]
    fn compression_rounds() {
        for bits in [4, 5, 10, 11] {
            for from in (0..3329).step_by(256) {
                let coefficients: [i32; 256] = from_fn(|i| (from + i as i32) % 3329);
                let poly = pack(&coefficients);
                let zero = vec![[0; 4]; 64];
                let mut words = vec![[0; 4]; 4 * bits as usize];
                let mut read: Vec<&[[u64; 4]]> = vec![&poly, &zero];
                if bits <= 5 {
                    read.push(&zero);
                }
                run(MlKem::Compress { bits }, &mut words, &read);
                let mut back = zero.clone();
                run(MlKem::Decompress { bits }, &mut back, &[&words]);
                for lane in 0..4 {
                    let field = |at: usize| {
                        let bit = at * bits as usize;
                        let word = |i: usize| words.get(i).map_or(0, |w| u128::from(w[lane]));
                        let both = word(bit / 64) | word(bit / 64 + 1) << 64;
                        (both >> (bit % 64)) as i32 & ((1 << bits) - 1)
                    };
                    let back = unpack(&back, lane);
                    for at in 0..256 {
                        let x = coefficients[(at + lane) % 256];
                        let y = ((x << (bits + 1)) + 3329) / (2 * 3329) % (1 << bits);
                        assert_eq!(field(at), y, "{x} to {bits} bits");
                        assert_eq!(back[at], (2 * 3329 * y + (1 << bits)) >> (bits + 1));
                    }
                }
            }
        }
    }

    /// Unreduced sums come out canonical, and come back; what is not canonical is told.
    #[test]
    fn encoding_is_canonical_and_decoding_tells() {
        let coefficients = sample(5, 6001).map(|c| c - 3000);
        let poly = pack(&coefficients);
        let mut words = vec![[0; 4]; 48];
        run(MlKem::Encode { terms: 1 }, &mut words, &[&poly]);
        let decode = |words: &[[u64; 4]]| {
            let (mut poly, mut bad) = (vec![[0; 4]; 64], vec![[0; 4]]);
            Kernel::from(MlKem::Decode).model(&mut [&mut poly, &mut bad], &[words]);
            (poly, bad[0])
        };
        let (back, bad) = decode(&words);
        assert_eq!(bad, [0; 4]);
        for lane in 0..4 {
            let expected: [i32; 256] =
                from_fn(|at| coefficients[(at + lane) % 256].rem_euclid(3329));
            assert_eq!(unpack(&back, lane), expected);
            for (i, vector) in back.iter().enumerate() {
                let word = (vector[lane] & 0xffff) as i32;
                assert_eq!(word, expected[4 * i], "canonical as it is");
            }
        }
        // The first coefficient of lane 1 is q, the last of lane 3 is 4095.
        words[0][1] = words[0][1] & !0xfff | 3329;
        words[47][3] |= 0xfff << 52;
        let (_, bad) = decode(&words);
        assert_eq!(bad.map(|lane| lane != 0), [false, true, false, true]);
        words[0][1] -= 1;
        assert_eq!(decode(&words).1[1], 0);
    }

    /// Bit by bit as algorithm 8 has it.
    #[test]
    fn noise_is_the_difference_of_ones() {
        for eta in [2, 3] {
            let words: Vec<[u64; 4]> = (0..8 * u64::from(eta))
                .map(|i| {
                    from_fn(|lane| (i + 77 * lane as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
                })
                .collect();
            let mut poly = vec![[0; 4]; 64];
            run(MlKem::Noise { eta }, &mut poly, &[&words]);
            for lane in 0..4 {
                let stream: Vec<u64> = words.iter().map(|vector| vector[lane]).collect();
                let bit = |at: usize| (stream[at / 64] >> (at % 64) & 1) as i32;
                let ones = |at: usize| (at..at + eta as usize).map(bit).sum::<i32>();
                for (i, c) in unpack(&poly, lane).into_iter().enumerate() {
                    let at = 2 * i * eta as usize;
                    assert_eq!(c, (ones(at) - ones(at + eta as usize)).rem_euclid(3329));
                }
            }
        }
    }

    /// The good coefficients of a block, in order, at the places that are told.
    #[test]
    fn candidates_are_those_below_q() {
        let mut state = vec![[0; 4]; 25];
        for (i, vector) in state.iter_mut().enumerate() {
            *vector =
                from_fn(|lane| (i as u64 + 31 * lane as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        // All bad and all good.
        state[..3]
            .iter_mut()
            .for_each(|vector| vector[2] = u64::MAX);
        state[..9].iter_mut().for_each(|vector| vector[3] = 0);
        let mut out = vec![[0; 4]; 57];
        run(MlKem::Candidates, &mut out, &[&state]);
        for lane in 0..4 {
            let bytes: Vec<u8> = state[..21]
                .iter()
                .flat_map(|w| w[lane].to_le_bytes())
                .collect();
            let pairs = bytes.chunks(3).flat_map(|b| {
                let (b0, b1, b2) = (u16::from(b[0]), u16::from(b[1]), u16::from(b[2]));
                // Algorithm 7, lines 6 and 7.
                [b0 + 256 * (b1 % 16), b1 / 16 + 16 * b2]
            });
            let expected: Vec<u16> = pairs.filter(|&d| d < 3329).collect();
            let mut found = vec![0; 120];
            for i in 0..28 {
                let at = out[28 + i][lane] as usize;
                for k in 0..4 {
                    found[at + k] = (out[i][lane] >> (16 * k)) as u16;
                }
            }
            assert_eq!(out[56][lane] as usize, expected.len());
            assert_eq!(found[..expected.len()], expected);
        }
    }

    #[test]
    fn rows_become_lanes() {
        fn check<const L: usize>() {
            let word = |lane: usize, i: usize| (i | lane << 8) as u64;
            let rows: Vec<[u64; L]> = (0..64)
                .map(|v| from_fn(|k| word(v * L / 64, v * L % 64 + k)))
                .collect();
            let mut poly = vec![[0; L]; 64];
            Kernel::from(MlKem::Transpose).model(&mut [&mut poly], &[&rows]);
            for (i, vector) in poly.iter().enumerate() {
                assert_eq!(*vector, from_fn(|lane| word(lane, i)));
            }
        }
        check::<4>();
        check::<8>();
    }

    #[test]
    fn choices_are_lane_by_lane() {
        let ours: Vec<[u64; 4]> = (0..96).map(|i| [i; 4]).collect();
        let mut theirs = ours.clone();
        theirs[0][1] ^= 1 << 63;
        theirs[95][3] ^= 1;
        let mut out = vec![[0; 4]; 4];
        run(
            MlKem::Choose { words: 96 },
            &mut out,
            &[&ours, &theirs, &[[1; 4]; 4], &[[2; 4]; 4]],
        );
        assert_eq!(out, [[1, 2, 1, 2]; 4]);
    }
}
