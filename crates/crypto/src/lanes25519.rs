//! What passes of X25519 and Ed25519 have in common: kernels, memory, and bytes in lanes.

use crate::{Backend, BackendUnavailable};
use std::sync::{Mutex, PoisonError};
use widelane_cpu::{Avx512Ifma, Avx512IfmaVl};
use widelane_kernels::{Arena, Curve25519, Sha512, wipe_registers};

/// Runs passes on one backend.
#[derive(Debug)]
pub(crate) enum Lanes {
    /// There are none.
    Single,
    /// Registers of 256 bits.
    Ymm(Pass<4>),
    /// Registers of 512 bits.
    Zmm(Pass<8>),
}

impl Lanes {
    pub(crate) fn new(backend: Backend) -> Result<Self, BackendUnavailable> {
        let missing = BackendUnavailable { backend };
        Ok(match backend {
            Backend::AwsLc => Self::Single,
            Backend::Avx512Ifma256 => {
                let token = Avx512IfmaVl::detect().ok_or(missing)?;
                let kernels = Kernels {
                    curve: Curve25519::ymm(token),
                    hash: Sha512::ymm(token),
                };
                Self::Ymm(Pass::new(kernels, Some(token.zmm())))
            }
            Backend::Avx512Ifma => {
                let token = Avx512Ifma::detect().ok_or(missing)?;
                let kernels = Kernels {
                    curve: Curve25519::zmm(token),
                    hash: Sha512::zmm(token),
                };
                Self::Zmm(Pass::new(kernels, Some(token)))
            }
        })
    }

    /// Requests of a pass.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Single => 1,
            Self::Ymm(_) => 4,
            Self::Zmm(_) => 8,
        }
    }
}

/// What a pass computes with.
#[derive(Debug)]
pub(crate) struct Kernels<const L: usize> {
    pub(crate) curve: Curve25519<L>,
    pub(crate) hash: Sha512<L>,
}

/// Runs passes of `L` lanes.
#[derive(Debug)]
pub(crate) struct Pass<const L: usize> {
    kernels: Kernels<L>,
    /// Present where the kernels run in vector registers, to wipe those.
    registers: Option<Avx512Ifma>,
    /// Memory of passes that are not running.
    arenas: Mutex<Vec<Arena<L>>>,
}

impl<const L: usize> Pass<L> {
    /// The same in portable Rust: the oracle, and far too slow for anything else.
    #[cfg(test)]
    pub(crate) fn model() -> Self {
        let kernels = Kernels {
            curve: Curve25519::model(),
            hash: Sha512::model(),
        };
        Self::new(kernels, None)
    }

    fn new(kernels: Kernels<L>, registers: Option<Avx512Ifma>) -> Self {
        Self {
            kernels,
            registers,
            arenas: Mutex::default(),
        }
    }

    /// Runs `pass` on the kernels, `len` vectors, and the kernels' working memory. If they are
    /// `secret`, nothing is left behind.
    pub(crate) fn with_memory<T>(
        &self,
        len: usize,
        secret: bool,
        pass: impl FnOnce(&Kernels<L>, &mut [[u64; L]], &mut [[u64; L]]) -> T,
    ) -> T {
        let space_len = self.kernels.space_len();
        let mut arena = lock(&self.arenas)
            .pop()
            .unwrap_or_else(|| Arena::new(space_len + len));
        let (space, vectors) = arena.vectors().split_at_mut(space_len);
        let result = pass(&self.kernels, vectors, space);
        if secret {
            arena.wipe();
            if let Some(token) = self.registers {
                wipe_registers(token);
            }
        }
        lock(&self.arenas).push(arena);
        result
    }
}

impl<const L: usize> Kernels<L> {
    /// Vectors of working memory that is enough for each.
    fn space_len(&self) -> usize {
        self.curve.space_len().max(self.hash.space_len())
    }
}

/// Divides memory into parts of so many vectors, all of it.
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

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
