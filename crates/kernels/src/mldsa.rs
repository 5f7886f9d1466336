//! The arithmetic of ML-DSA (FIPS 204) for `L` signatures at once, one in each lane.

use std::sync::LazyLock;

use widelane_lanes::{Half, MlDsa as Family, MlDsaKernels, MlDsaShape};

use crate::assembled::{Callable, most_slots};
use crate::machine::Machine;

/// The kernels for one parameter set, in one width.
///
/// A polynomial is an array of 256 vectors, lane `l` of which belongs to signature `l`; a vector of
/// polynomials is one array of them all. Coefficients are non-negative numbers modulo `q`: plain
/// ones, before a transform, below 2^24; transformed ones below 2^27; after
/// [`inverse`](Self::inverse) at most `q`. Fields of several bits are packed into 64-bit words, one
/// polynomial after the other. Constants that are the same in all lanes are slices of words.
///
/// `bad` is one vector, which comes out not zero in the lanes where a check fails or had failed.
///
/// Every method is constant time in all lanes' values, and panics when an array has another length
/// than it says.
#[derive(Clone, Debug)]
pub struct MlDsa<const L: usize> {
    shape: MlDsaShape,
    kernels: MlDsaKernels<Callable<L>>,
    zetas: &'static [u64],
    inverse_zetas: &'static [u64],
}

/// Powers of zeta for all parameter sets and widths: a process computes them once.
static ZETAS: LazyLock<Vec<u64>> = LazyLock::new(Family::zetas);
static INVERSE_ZETAS: LazyLock<Vec<u64>> = LazyLock::new(Family::inverse_zetas);

/// Methods that call a kernel for each chunk of polynomials: `bad` is one vector for all of them, and of the other
/// arrays a chunk has as many vectors as is said.
macro_rules! by_chunks {
    ($($(#[$meta:meta])* $method:ident: [$($bad:ident)?],
        [$($written:ident: $written_len:expr),*], [$($read:ident: $read_len:expr),*];)*) => { $(
        $(#[$meta])*
        pub fn $method(
            &self,
            $($bad: &mut [[u64; L]],)?
            $($written: &mut [[u64; L]],)*
            $($read: &[[u64; L]],)*
            scratch: &mut [[u64; L]],
        ) {
            let len = |of: fn(MlDsaShape) -> usize| of(self.shape);
            $(let mut $written = $written.chunks_exact_mut(len($written_len));)*
            $(let mut $read = $read.chunks_exact(len($read_len));)*
            while let ($(Some($written),)* $(Some($read),)*)
                = ($($written.next(),)* $($read.next(),)*)
            {
                let written = [$(&mut *$bad,)? $($written),*];
                self.kernels.$method.call(written, [$($read),*], scratch);
            }
        }
    )* };
}

/// Vectors of a chunk of a polynomial, for all parameter sets.
const CHUNK: fn(MlDsaShape) -> usize = |_| Family::CHUNK;

impl<const L: usize> MlDsa<L> {
    /// Coefficients of a polynomial.
    pub const N: usize = Family::N;

    /// The kernels of a parameter set on a machine.
    pub fn new(machine: impl Into<Machine<L>>, shape: MlDsaShape) -> Self {
        let machine = machine.into();
        Self {
            shape,
            kernels: MlDsaKernels::new(shape, |kernel| Callable::new(machine, kernel)),
            zetas: &ZETAS,
            inverse_zetas: &INVERSE_ZETAS,
        }
    }

    /// The parameter set.
    pub fn shape(&self) -> MlDsaShape {
        self.shape
    }

    /// Vectors of scratch space that every method needs.
    pub fn scratch_len(&self) -> usize {
        most_slots(self.kernels.each())
    }

    /// Words of [`matrix`](Self::product): the matrix and the public key.
    pub fn matrix_len(&self) -> usize {
        Self::N * self.shape.rows * (self.shape.columns + 1)
    }

    /// Index in a matrix of the coefficient `j` of `row` and `column`; the public key is the last column.
    pub fn matrix_at(&self, row: usize, column: usize, j: usize) -> usize {
        let MlDsaShape { rows, columns, .. } = self.shape;
        let (slice, j) = (j / Family::SLICE, j % Family::SLICE);
        ((slice * (columns + 1) + column) * rows + row) * Family::SLICE + j
    }

    /// `out := NTT(x)` of a plain polynomial (algorithm 41). `space` is a polynomial too.
    #[inline]
    pub fn ntt(&self, out: &mut [[u64; L]], x: &[[u64; L]], space: &mut [[u64; L]], scratch: &mut [[u64; L]]) {
        for at in columns() {
            let far = at..at + Family::FAR;
            self.kernels.ntt_far.call([&mut space[far.clone()]], [&x[far]], scratch);
        }
        let chunks = chunks(out).zip(space.chunks_exact(Family::CHUNK));
        for ((out, x), zetas) in chunks.zip(self.zetas.chunks_exact(Family::ZETAS)) {
            self.kernels.ntt_near.call([out], [x, of_all(zetas)], scratch);
        }
    }

    /// `out := NTT^-1(x)` of reduced coefficients, below 2^24 (algorithm 42). `space` is a
    /// polynomial too.
    #[inline]
    pub fn inverse(&self, out: &mut [[u64; L]], x: &[[u64; L]], space: &mut [[u64; L]], scratch: &mut [[u64; L]]) {
        let chunks = chunks(space).zip(x.chunks_exact(Family::CHUNK));
        for ((near, x), zetas) in chunks.zip(self.inverse_zetas.chunks_exact(Family::ZETAS)) {
            self.kernels.inverse_near.call([near], [x, of_all(zetas)], scratch);
        }
        for at in columns() {
            let far = at..at + Family::FAR;
            self.kernels
                .inverse_far
                .call([&mut out[far.clone()]], [&space[far]], scratch);
        }
    }

    /// `out := matrix vector`, transformed and then reduced below 2^24.
    ///
    /// `vector` has as many polynomials as the matrix columns, or one more, with which the public
    /// key is multiplied; the matrix is [`matrix_len`](Self::matrix_len) words below `q`, in the
    /// order of [`matrix_at`](Self::matrix_at).
    #[inline]
    pub fn product(&self, out: &mut [[u64; L]], matrix: &[u64], vector: &[[u64; L]], scratch: &mut [[u64; L]]) {
        let MlDsaShape { rows, columns, .. } = self.shape;
        let used = vector.len() / Self::N;
        let kernel = match used == columns {
            true => &self.kernels.product,
            false => &self.kernels.product_with_key,
        };
        let out_len = (rows - 1) * Self::N + Family::SLICE;
        let vector_len = (used - 1) * Self::N + Family::SLICE;
        let slices = matrix.chunks_exact(rows * (columns + 1) * Family::SLICE);
        for (matrix, at) in slices.zip((0..Self::N).step_by(Family::SLICE)) {
            let matrix = of_all(&matrix[..rows * used * Family::SLICE]);
            let (out, vector) = (&mut out[at..][..out_len], &vector[at..][..vector_len]);
            kernel.call([out], [matrix, vector], scratch);
        }
    }

    /// `out := row vector`, where both have one polynomial more than the matrix columns: those of
    /// `row` below 2^24.
    #[inline]
    pub fn row(&self, out: &mut [[u64; L]], row: &[[u64; L]], vector: &[[u64; L]], scratch: &mut [[u64; L]]) {
        let len = self.shape.columns * Self::N + Family::SLICE;
        let slices = out.chunks_exact_mut(Family::SLICE);
        for (out, at) in slices.zip((0..Self::N).step_by(Family::SLICE)) {
            let (row, vector) = (&row[at..][..len], &vector[at..][..len]);
            self.kernels.row_with_key.call([out], [row, vector], scratch);
        }
    }

    /// `out := factor x + addend`, reduced below 2^24, of transformed polynomials; `factor` and
    /// `addend` are below `q`.
    #[inline]
    pub fn scale(
        &self,
        out: &mut [[u64; L]],
        x: &[[u64; L]],
        factor: &[u64],
        addend: &[u64],
        scratch: &mut [[u64; L]],
    ) {
        let constants = factor
            .chunks_exact(Family::CHUNK)
            .zip(addend.chunks_exact(Family::CHUNK));
        let chunks = chunks(out).zip(x.chunks_exact(Family::CHUNK));
        for ((out, x), (factor, addend)) in chunks.zip(constants) {
            let inputs = [x, of_all(factor), of_all(addend)];
            self.kernels.scale.call([out], inputs, scratch);
        }
    }

    /// The response `mask + c s` in packed fields, and whether it is small enough (algorithm 7,
    /// steps 20 and 23); `c s` is in one half of `pair`.
    pub fn respond(
        &self,
        bad: &mut [[u64; L]],
        words: &mut [[u64; L]],
        mask: &[[u64; L]],
        (pair, half): (&[[u64; L]], Half),
        scratch: &mut [[u64; L]],
    ) {
        let kernel = match half {
            Half::Low => &self.kernels.respond_low,
            Half::High => &self.kernels.respond_high,
        };
        let inputs = mask.chunks_exact(Family::CHUNK).zip(pair.chunks_exact(Family::CHUNK));
        let words = words.chunks_exact_mut(packed(self.shape.bits));
        for (words, (mask, pair)) in words.zip(inputs) {
            kernel.call([bad, words], [mask, pair], scratch);
        }
    }

    /// Checks that `low + c s` is small enough (algorithm 7, step 23); `c s` is in one half of `pair`.
    pub fn low(
        &self,
        bad: &mut [[u64; L]],
        low: &[[u64; L]],
        (pair, half): (&[[u64; L]], Half),
        scratch: &mut [[u64; L]],
    ) {
        let kernel = match half {
            Half::Low => &self.kernels.low_low,
            Half::High => &self.kernels.low_high,
        };
        let pair = pair.chunks_exact(Family::CHUNK);
        for (low, pair) in low.chunks_exact(Family::CHUNK).zip(pair) {
            kernel.call([&mut *bad], [low, pair], scratch);
        }
    }

    by_chunks! {
        /// A polynomial of the mask from its packed fields (algorithm 34, step 4).
        mask: [], [out: CHUNK], [words: |shape| packed(shape.bits)];
        /// A polynomial of the response from its packed fields, and whether it is small enough
        /// (algorithm 8, step 13).
        response: [bad], [out: CHUNK], [words: |shape| packed(shape.bits)];
        /// The high part in packed fields, and the low part raised by `gamma2` (algorithm 36).
        decompose: [], [words: |shape| packed(shape.high_bits()), low: CHUNK], [x: CHUNK];
        /// Hints, one bit a coefficient, where the high part of `x` is not that of `words`, and whether
        /// they lead to it (algorithms 39 and 40).
        make_hint: [bad], [hints: |_| 1], [x: CHUNK, words: |shape| packed(shape.high_bits())];
        /// The high part of `x` in packed fields, as hints correct it (algorithm 40).
        use_hint: [], [words: |shape| packed(shape.high_bits())], [hints: |_| 1, x: CHUNK];
        /// Checks that a polynomial is below `gamma2` of ML-DSA-44 in magnitude (algorithm 7, step 28).
        norm44: [bad], [], [x: CHUNK];
        /// 256 candidates for uniform coefficients, from 96 words, and whether one of them is not
        /// below `q` (algorithm 14).
        uniform: [bad], [out: CHUNK], [words: |_| packed(24)];
        /// `-2^13 t1` from the 40 words of a polynomial `t1` of a public key.
        high_key: [], [out: CHUNK], [words: |_| packed(10)];
    }
}

fn chunks<const L: usize>(polynomial: &mut [[u64; L]]) -> impl Iterator<Item = &mut [[u64; L]]> {
    polynomial.chunks_exact_mut(Family::CHUNK)
}

/// The first coefficients of the calls for the far layers of a transform.
fn columns() -> impl Iterator<Item = usize> {
    (0..Family::N - Family::FAR + Family::COLUMNS).step_by(Family::COLUMNS)
}

/// Words that are the same in all lanes, as a kernel takes them.
fn of_all<const L: usize>(words: &[u64]) -> &[[u64; L]] {
    words.as_chunks().0
}

/// Words of the fields of a chunk.
fn packed(bits: u32) -> usize {
    Family::CHUNK * bits as usize / 64
}
