//! ChaCha20-Poly1305 on chunks of 16 vectors. All lanes work on one message.

use widelane_lanes::{ChaCha20Poly1305 as Family, ChaCha20Poly1305Kernels, Multiplier};

use crate::assembled::{Callable, Read, Written, most_slots};
use crate::machine::Machine;

/// The kernels of one form, in one width.
///
/// Messages are bytes, at any address. The other arrays are vectors:
///
/// * `parameters`, [`PARAMETERS`](Self::PARAMETERS) of them, as 64-bit words, each a word of 32
///   bits twice: eight of the key, the number of the data's first block, three of the nonce.
/// * `sums`, [`sums_len`](Self::sums_len) of them: the limbs of one sum for each lane, then the
///   limbs of the addend of each lane's first block in a call; after a call that is 2^128 in every
///   lane.
/// * `power`, [`power_len`](Self::power_len) of them, as words: the limbs of `r^L`, those from the
///   second on times [`Multiplier::fold`], and the same of `r^(2 L)` and so on,
///   [`POWERS`](Self::POWERS) of them.
/// * `scratch`, [`scratch_len`](Self::scratch_len) of them.
///
/// Every method is constant time in all contents, and panics when an array has another length than
/// it says.
#[derive(Clone, Copy, Debug)]
pub struct ChaCha20Poly1305<const L: usize> {
    kernels: ChaCha20Poly1305Kernels<Callable<L>>,
    multiplier: Option<Multiplier>,
}

/// The sums and powers from which a message's tag is computed.
#[derive(Debug)]
pub struct Sums<'a, const L: usize> {
    /// The sums, and the addends of the next blocks.
    pub sums: &'a mut [[u64; L]],
    /// `r^L`, `r^(2 L)` and so on.
    pub power: &'a [[u64; L]],
}

impl<const L: usize> ChaCha20Poly1305<L> {
    /// Bytes of a chunk.
    pub const CHUNK: usize = Family::CHUNK * 8 * L;
    /// The most bytes that [`encrypt`](Self::encrypt) takes.
    pub const CHUNKS: usize = Family::CHUNKS * Self::CHUNK;
    /// Bytes of one block for each lane.
    pub const GROUP: usize = 16 * L;
    /// Powers of `r^L` in `power`.
    pub const POWERS: usize = Family::GROUPS[0];
    /// Vectors of `parameters`.
    pub const PARAMETERS: usize = Family::PARAMETERS.div_ceil(L);

    /// Kernels on a machine. Without a multiplier ChaCha20 only.
    pub fn new(machine: impl Into<Machine<L>>, multiplier: Option<Multiplier>) -> Self {
        let machine = machine.into();
        // The kernels that encrypt are the same for every multiplier.
        let any = multiplier.unwrap_or(Multiplier::Mul32);
        let callable = |kernel| Callable::new(machine, kernel);
        Self {
            kernels: ChaCha20Poly1305Kernels::new(any, callable),
            multiplier,
        }
    }

    /// The multiplication that the sums are computed with, if lanes compute them.
    pub fn multiplier(&self) -> Option<Multiplier> {
        self.multiplier
    }

    /// Vectors of `sums`.
    pub fn sums_len(&self) -> usize {
        self.multiplier().map_or(0, |multiplier| 2 * multiplier.limbs())
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
        most_slots(self.each())
    }

    /// Length of scratch memory for [`encrypt`](Self::encrypt) only.
    pub fn encrypt_scratch_len(&self) -> usize {
        most_slots(self.encrypting().into_iter())
    }

    #[inline(always)]
    fn encrypting(&self) -> [&Callable<L>; Family::CHUNKS] {
        [&self.kernels.encrypt, &self.kernels.encrypt_two]
    }

    #[inline(always)]
    fn authenticating(&self) -> [&Callable<L>; Family::GROUPS.len()] {
        [&self.kernels.authenticate_most, &self.kernels.authenticate]
    }

    fn each(&self) -> impl Iterator<Item = &Callable<L>> {
        let authenticating = self.multiplier.map(|_| self.authenticating());
        let authenticating = authenticating.into_iter().flatten();
        self.encrypting().into_iter().chain(authenticating)
    }

    /// `data ^= key stream`, for one chunk or two.
    #[inline]
    pub fn encrypt(&self, data: &mut [u8], parameters: &[[u64; L]], scratch: &mut [[u64; L]]) {
        let kernel = self.encrypting()[usize::from(data.len() > Self::CHUNK)];
        kernel.call_on_bytes([Written::Bytes(data)], [Read::Lanes(parameters)], scratch);
    }

    /// `sums := sums r^L + blocks` for a text of whole [`GROUP`](Self::GROUP)s.
    #[inline]
    pub fn authenticate(&self, mut text: &[u8], sums: &mut Sums<'_, L>, scratch: &mut [[u64; L]]) {
        assert_eq!(text.len() % Self::GROUP, 0);
        assert!(self.multiplier.is_some(), "the form has no multiplier");
        for (kernel, groups) in self.authenticating().into_iter().zip(Family::GROUPS) {
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
