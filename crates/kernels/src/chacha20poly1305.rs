//! ChaCha20-Poly1305 on chunks of 16 vectors, all lanes of which work on one message.

use widelane_cpu::{Avx512Ifma, Avx512IfmaVl};
use widelane_lanes::{ChaCha20Poly1305 as Source, Kernel, Licence, Multiplier, Width};

use crate::assembled::{Callable, Read, Written};

/// The kernels of one form, in one width.
///
/// Messages are bytes, at any address. The other arrays are vectors:
///
/// * `parameters`, [`PARAMETERS`] of them: words of 32 bits, each in all places of its vector:
///   eight of the key, the number of the chunk's first block, three of the nonce. Every call moves
///   the number on.
/// * `sums`, [`sums_len`](Self::sums_len) of them: the limbs of one sum a lane, then those of what
///   is added to a call's first blocks, lane by lane; after a call that is 2^128 in every lane.
/// * `power`, [`power_len`](Self::power_len) of them: the limbs of `r^L`, then those from the
///   second on times [`Multiplier::fold`], each in all lanes.
/// * `scratch`, [`scratch_len`](Self::scratch_len) of them.
///
/// Every method is constant time in all contents, and panics when an array has another length than
/// it says.
#[derive(Clone, Copy, Debug)]
pub struct ChaCha20Poly1305<const L: usize> {
    encrypt: Callable<L>,
    poly1305: Option<Poly1305<L>>,
}

/// What a form with vector multiplications has besides.
#[derive(Clone, Copy, Debug)]
struct Poly1305<const L: usize> {
    multiplier: Multiplier,
    both: Callable<L>,
    open: Callable<L>,
    authenticate: Callable<L>,
}

/// What the sums of a message are made with.
#[derive(Debug)]
pub struct Sums<'a, const L: usize> {
    /// The sums, and what is added to the next blocks.
    pub sums: &'a mut [[u64; L]],
    /// `r^L`.
    pub power: &'a [[u64; L]],
}

/// Vectors of `parameters`.
pub const PARAMETERS: usize = 12;

impl ChaCha20Poly1305<8> {
    /// Kernels for 512-bit registers; without a multiplier ChaCha20 only.
    pub fn zmm(token: Avx512Ifma, multiplier: Option<Multiplier>) -> Self {
        Self::new(multiplier, |kernel| Callable::zmm(token, kernel))
    }
}

impl ChaCha20Poly1305<4> {
    /// Kernels for 256-bit registers; without a multiplier ChaCha20 only.
    pub fn ymm(token: Avx512IfmaVl, multiplier: Option<Multiplier>) -> Self {
        Self::new(multiplier, |kernel| Callable::ymm(token, kernel))
    }
}

impl<const L: usize> ChaCha20Poly1305<L> {
    /// Bytes of a chunk.
    pub const CHUNK: usize = Source::CHUNK * 8 * L;
    /// Bytes of one block a lane.
    pub const STEP: usize = 16 * L;

    /// Kernels in portable Rust, for tests.
    pub fn model(multiplier: Option<Multiplier>) -> Self {
        Self::new(multiplier, Callable::model)
    }

    fn new(multiplier: Option<Multiplier>, callable: impl Fn(Source) -> Callable<L>) -> Self {
        Self {
            encrypt: callable(Source::Encrypt),
            poly1305: multiplier.map(|multiplier| Poly1305 {
                multiplier,
                both: callable(Source::Both(multiplier)),
                open: callable(Source::Open(multiplier)),
                authenticate: callable(Source::Authenticate(multiplier)),
            }),
        }
    }

    /// How the sums are made, if they are made in lanes.
    pub fn multiplier(&self) -> Option<Multiplier> {
        self.poly1305.map(|poly1305| poly1305.multiplier)
    }

    /// The licence that these kernels ask for: the highest of any.
    pub fn licence(&self) -> Licence {
        let width = if L == 8 { Width::Zmm } else { Width::Ymm };
        let licence = |kernel: Kernel| kernel.report(width).licence;
        self.kernels()
            .map(|callable| licence(callable.kernel()))
            .max()
            .unwrap_or(Licence::Level0)
    }

    /// Vectors of scratch space that every method needs.
    pub fn scratch_len(&self) -> usize {
        self.kernels().map(Callable::slots).max().unwrap_or(0)
    }

    fn kernels(&self) -> impl Iterator<Item = &Callable<L>> {
        let poly1305 = self.poly1305.iter();
        poly1305
            .flat_map(|kernels| [&kernels.both, &kernels.open, &kernels.authenticate])
            .chain([&self.encrypt])
    }

    /// `data ^= key stream`, for one chunk.
    #[inline]
    pub fn encrypt(&self, data: &mut [u8], parameters: &mut [[u64; L]], scratch: &mut [[u64; L]]) {
        let written = [Written::Bytes(data), Written::Lanes(parameters)];
        self.encrypt.call_on_bytes(written, [], scratch);
    }

    /// `data ^= key stream` and `sums := sums r^L + blocks` of the text, for one chunk each.
    #[inline]
    pub fn both(
        &self,
        data: &mut [u8],
        parameters: &mut [[u64; L]],
        text: &[u8],
        sums: &mut Sums<'_, L>,
        scratch: &mut [[u64; L]],
    ) {
        self.poly1305().both.call_on_bytes(
            [
                Written::Bytes(data),
                Written::Lanes(parameters),
                Written::Lanes(sums.sums),
            ],
            [Read::Bytes(text), Read::Lanes(sums.power)],
            scratch,
        );
    }

    /// `sums := sums r^L + blocks` of the data, then `data ^= key stream`, for one chunk.
    #[inline]
    pub fn open(
        &self,
        data: &mut [u8],
        parameters: &mut [[u64; L]],
        sums: &mut Sums<'_, L>,
        scratch: &mut [[u64; L]],
    ) {
        self.poly1305().open.call_on_bytes(
            [
                Written::Bytes(data),
                Written::Lanes(parameters),
                Written::Lanes(sums.sums),
            ],
            [Read::Lanes(sums.power)],
            scratch,
        );
    }

    /// `sums := sums r^L + blocks` for a text of whole [`STEP`](Self::STEP)s.
    #[inline]
    pub fn authenticate(&self, text: &[u8], sums: &mut Sums<'_, L>, scratch: &mut [[u64; L]]) {
        assert_eq!(text.len() % Self::STEP, 0);
        for step in text.chunks_exact(Self::STEP) {
            self.poly1305().authenticate.call_on_bytes(
                [Written::Lanes(sums.sums)],
                [Read::Bytes(step), Read::Lanes(sums.power)],
                scratch,
            );
        }
    }

    fn poly1305(&self) -> &Poly1305<L> {
        self.poly1305.as_ref().expect("the form has a multiplier")
    }
}
