//! ChaCha20-Poly1305 on chunks of 16 vectors, all lanes of which work on one message.

use widelane_cpu::{Avx512Ifma, Avx512IfmaVl};
use widelane_lanes::{ChaCha20Poly1305 as Source, Kernel, Licence, Multiplier, Width};

use crate::assembled::{Callable, Read, Written};

/// The kernels of one form, in one width.
///
/// Messages are bytes, at any address. The other arrays are vectors:
///
/// * `parameters`, [`PARAMETERS`](Self::PARAMETERS) of them, as 64-bit words, each a word of 32
///   bits twice: eight of the key, the number of the data's first block, three of the nonce.
/// * `sums`, [`sums_len`](Self::sums_len) of them: the limbs of one sum a lane, then those of what
///   is added to a call's first blocks, lane by lane; after a call that is 2^128 in every lane.
/// * `power`, [`power_len`](Self::power_len) of them, as words: the limbs of `r^L`, those from the
///   second on times [`Multiplier::fold`], and the same of `r^(2 L)` and so on,
///   [`POWERS`](Self::POWERS) of them.
/// * `scratch`, [`scratch_len`](Self::scratch_len) of them.
///
/// Every method is constant time in all contents, and panics when an array has another length than
/// it says.
#[derive(Clone, Copy, Debug)]
pub struct ChaCha20Poly1305<const L: usize> {
    encrypt: [Callable<L>; Source::CHUNKS],
    poly1305: Option<Poly1305<L>>,
}

/// What a form with vector multiplications has besides.
#[derive(Clone, Copy, Debug)]
struct Poly1305<const L: usize> {
    multiplier: Multiplier,
    authenticate: [Callable<L>; Source::GROUPS.len()],
}

/// What a message's tag is made with.
#[derive(Debug)]
pub struct Sums<'a, const L: usize> {
    /// The sums, and what is added to the next blocks.
    pub sums: &'a mut [[u64; L]],
    /// `r^L`, `r^(2 L)` and so on.
    pub power: &'a [[u64; L]],
}

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
    /// Bytes of what most methods take.
    pub const CHUNKS: usize = Source::CHUNKS * Self::CHUNK;
    /// Bytes of one block a lane.
    pub const GROUP: usize = 16 * L;
    /// Powers of `r^L` in `power`.
    pub const POWERS: usize = Source::GROUPS[0];
    /// Vectors of `parameters`.
    pub const PARAMETERS: usize = Source::PARAMETERS.div_ceil(L);

    /// Kernels in portable Rust, for tests.
    pub fn model(multiplier: Option<Multiplier>) -> Self {
        Self::new(multiplier, Callable::model)
    }

    fn new(multiplier: Option<Multiplier>, callable: impl Fn(Source) -> Callable<L>) -> Self {
        Self {
            encrypt: std::array::from_fn(|i| callable(Source::Encrypt(i + 1))),
            poly1305: multiplier.map(|multiplier| Poly1305 {
                multiplier,
                authenticate: Source::GROUPS
                    .map(|groups| callable(Source::Authenticate(multiplier, groups))),
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

    /// Vectors of `sums`.
    pub fn sums_len(&self) -> usize {
        self.multiplier()
            .map_or(0, |multiplier| 2 * multiplier.limbs())
    }

    /// Vectors of `power`.
    pub fn power_len(&self) -> usize {
        let words = self
            .multiplier()
            .map_or(0, |multiplier| Self::POWERS * multiplier.power_len());
        words.div_ceil(L)
    }

    /// Vectors of scratch space that every method needs.
    pub fn scratch_len(&self) -> usize {
        self.kernels()
            .map(|callable| callable.slots())
            .max()
            .unwrap_or(0)
    }

    /// The same for [`encrypt`](Self::encrypt) only.
    pub fn encrypt_scratch_len(&self) -> usize {
        let slots = self.encrypt.iter().map(|callable| callable.slots());
        slots.max().unwrap_or(0)
    }

    fn kernels(&self) -> impl Iterator<Item = Callable<L>> {
        let of_poly1305 = |kernels: &Poly1305<L>| kernels.authenticate;
        self.encrypt
            .iter()
            .copied()
            .chain(self.poly1305.iter().flat_map(of_poly1305))
    }

    /// `data ^= key stream`, for one chunk or two.
    #[inline]
    pub fn encrypt(&self, data: &mut [u8], parameters: &[[u64; L]], scratch: &mut [[u64; L]]) {
        let kernel = &self.encrypt[usize::from(data.len() > Self::CHUNK)];
        kernel.call_on_bytes([Written::Bytes(data)], [Read::Lanes(parameters)], scratch);
    }

    /// `sums := sums r^L + blocks` for a text of whole [`GROUP`](Self::GROUP)s.
    #[inline]
    pub fn authenticate(&self, mut text: &[u8], sums: &mut Sums<'_, L>, scratch: &mut [[u64; L]]) {
        assert_eq!(text.len() % Self::GROUP, 0);
        let poly1305 = self.poly1305.as_ref().expect("the form has a multiplier");
        for (kernel, groups) in poly1305.authenticate.iter().zip(Source::GROUPS) {
            let mut pieces = text.chunks_exact(groups * Self::GROUP);
            for piece in &mut pieces {
                kernel.call_on_bytes(
                    [Written::Lanes(sums.sums)],
                    [Read::Bytes(piece), Read::Lanes(sums.power)],
                    scratch,
                );
            }
            text = pieces.remainder();
        }
    }
}
