//! Kernels and memory of passes of ML-KEM.

use super::size::Size;
use crate::passes::{self, Family, Memory, memory};
use widelane_kernels::{Arena, Keccak, Machine, MlKem, Sponge};

/// Kernels that a pass computes with.
#[derive(Debug)]
pub struct Lanes<const L: usize> {
    pub(super) size: Size,
    pub(super) kernels: MlKem<L>,
    pub(super) keccak: Keccak<L>,
}

/// Runs passes for one size.
pub(super) type Pass<const L: usize> = passes::Pass<Size, L>;

impl Family for Size {
    type Kernels<const L: usize> = Lanes<L>;
    type Memory<const L: usize> = Space<L>;

    fn kernels<const L: usize>(self, machine: Machine<L>) -> Lanes<L> {
        Lanes {
            size: self,
            kernels: MlKem::new(machine, self.rank()),
            keccak: Keccak::new(machine),
        }
    }

    fn memory<const L: usize>(self, lanes: &Lanes<L>) -> Space<L> {
        let len = Work::len(lanes);
        Space {
            arena: Arena::new(len),
            secret: len - lanes.matrix_len(),
        }
    }
}

/// The memory of a pass. Between passes it is zero but for the matrix.
#[derive(Debug)]
pub struct Space<const L: usize> {
    pub(super) arena: Arena<L>,
    /// Vectors before the matrix.
    secret: usize,
}

impl<const L: usize> Memory for Space<L> {
    fn wipe(&mut self) {
        self.arena.vectors()[..self.secret].fill([0; L]);
    }
}

impl<const L: usize> Lanes<L> {
    fn matrix_len(&self) -> usize {
        self.size.rank() * self.size.rank() * POLYNOMIAL
    }
}

memory! {
    /// The memory of a pass, by name. A polynomial has [`POLYNOMIAL`] vectors, 32 bytes have 4.
    /// `requests` have the first lanes.
    pub(super) struct Work(lanes: &Lanes<L>, requests: usize) {
        // Polynomials: `rank` of them, `2 rank + 1`, and one each.
        row: lanes.size.rank() * POLYNOMIAL,
        noise: (2 * lanes.size.rank() + 1) * POLYNOMIAL,
        rows: POLYNOMIAL,
        sum: POLYNOMIAL,
        // States: `2 rank + 1`, and one.
        states: (2 * lanes.size.rank() + 1) * STATE,
        state: STATE,
        /// A block of a hash.
        block: Sponge::Sha3_256.rate(),
        /// Random words for a polynomial, where they are more than a block.
        long: lanes.kernels.noise_words(),
        candidates: 2 * MlKem::<L>::CANDIDATES + 1,
        // Bytes.
        /// The vector s.
        secret: lanes.size.rank() * ENCODED,
        /// The encapsulation key.
        public: lanes.size.rank() * ENCODED + 4,
        /// A ciphertext that we have made.
        ours: lanes.size.ciphertext_len() / 8,
        /// z, and a ciphertext that has come.
        theirs: 4 + lanes.size.ciphertext_len() / 8,
        // Fields of 32 bytes.
        rho: 4,
        random: 4,
        hash: 4,
        message: 4,
        shared: 4,
        rejected: 4,
        /// One vector: other than zero where an encapsulation key is refused.
        bad: 1,
        scratch: lanes.kernels.scratch_len().max(lanes.keccak.scratch_len()),
        /// If requests are few, the matrix of each: for each entry a row a lane, as
        /// [`MlKem::transpose`] takes them. They are public.
        matrix: lanes.matrix_len(),
    }
}

pub(super) const POLYNOMIAL: usize = MlKem::<8>::POLYNOMIAL;
pub(super) const ENCODED: usize = MlKem::<8>::ENCODED;
pub(super) const STATE: usize = Keccak::<8>::STATE;
