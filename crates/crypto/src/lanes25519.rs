//! Common parts of passes of X25519 and Ed25519: kernels, memory, and bytes in lanes.

use crate::faults;
use crate::passes::Family;
use widelane_kernels::{Arena, Curve25519, Machine, Sha512};

/// An operation of X25519 or Ed25519: what it needs of memory, besides that of the kernels.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub(crate) vectors: usize,
    pub(crate) is_secret: bool,
}

impl Family for Kind {
    type Kernels<const L: usize> = Kernels<L>;
    type Memory<const L: usize> = Arena<L>;

    fn kernels<const L: usize>(self, machine: Machine<L>) -> Kernels<L> {
        Kernels {
            curve: Curve25519::new(machine),
            hash: Sha512::new(machine),
        }
    }

    fn memory<const L: usize>(self, kernels: &Kernels<L>) -> Arena<L> {
        Arena::new(kernels.space_len() + self.vectors)
    }

    fn is_secret(self) -> bool {
        self.is_secret
    }
}

/// Kernels that a pass computes with.
#[derive(Debug)]
pub struct Kernels<const L: usize> {
    pub(crate) curve: Curve25519<L>,
    pub(crate) hash: Sha512<L>,
}

/// Runs passes of `L` lanes.
pub(crate) type Pass<const L: usize> = crate::passes::Pass<Kind, L>;

impl<const L: usize> Pass<L> {
    /// Runs `pass` on the kernels, the operation's vectors, and the kernels' working memory.
    pub(crate) fn with_memory<T>(&self, pass: impl FnOnce(&Kernels<L>, &mut [[u64; L]], &mut [[u64; L]]) -> T) -> T {
        self.run(|arena| {
            let (space, vectors) = arena.vectors().split_at_mut(self.kernels.space_len());
            pass(&self.kernels, vectors, space)
        })
    }
}

impl<const L: usize> Kernels<L> {
    /// Vectors of working memory that is enough for each.
    fn space_len(&self) -> usize {
        self.curve.space_len().max(self.hash.space_len())
    }
}

/// Divides all of a memory into parts; `N` lengths count vectors.
pub(crate) fn divide<const L: usize, const N: usize>(
    memory: &mut [[u64; L]],
    lens: [usize; N],
) -> [&mut [[u64; L]]; N] {
    let mut rest = memory;
    lens.map(|len| {
        let (part, after) = std::mem::take(&mut rest).split_at_mut(len);
        rest = after;
        part
    })
}

/// Writes bytes, little-endian, to a lane of as many limbs.
pub(crate) fn set<const L: usize>(limbs: &mut [[u64; L]], lane: usize, bytes: &[u8]) {
    assert_eq!(bytes.len(), 8 * limbs.len());
    for (limb, bytes) in limbs.iter_mut().zip(bytes.as_chunks().0) {
        limb[lane] = u64::from_le_bytes(*bytes);
    }
    faults::loaded("bytes", limbs);
}

/// The 32 bytes in a lane of four limbs.
pub(crate) fn get<const L: usize>(limbs: &[[u64; L]], lane: usize) -> [u8; 32] {
    assert_eq!(limbs.len(), 4);
    let mut bytes = [0; 32];
    for (bytes, limb) in bytes.as_chunks_mut().0.iter_mut().zip(limbs) {
        *bytes = limb[lane].to_le_bytes();
    }
    bytes
}
