//! The kernels by name: their arrays, their bounds, and what can be done with them.

use crate::allocate::{Allocated, allocate};
use crate::analysis::Report;
use crate::bounds::{Bounds, BoundsError, Holds, Proof};
use crate::chacha20poly1305::ChaCha20Poly1305;
use crate::curve25519::Curve25519;
use crate::keccak::Keccak;
use crate::machine::{Array, Machine};
use crate::mldsa::MlDsa;
use crate::mlkem::MlKem;
use crate::model::Model;
use crate::modular::Modular;
use crate::nist::Nist;
use crate::print::{Width, print};
use crate::schedule::schedule;
use crate::sha512::Sha512;
use crate::trace::Trace;

/// A family of kernels: what each is called, what it reads and writes, and its source.
pub(crate) trait Source: Copy {
    /// Operation and shape, for example `amm52x20`.
    fn name(self) -> String;
    /// What the kernel computes, in one line.
    fn formula(self) -> &'static str;
    /// The arrays in the order of the argument list, first those that are written.
    fn arrays(self, lanes: usize) -> Vec<ArraySpec>;
    /// The source, for any machine.
    fn run<M: Machine>(self, m: &mut M);
}

/// Makes [`Kernel`] out of the families.
macro_rules! families {
    ($($(#[$doc:meta])* $family:ident,)*) => {
        /// A kernel: one operation on the lanes of its arrays, without other branches than loops of
        /// a constant number of turns.
        ///
        /// Arrays do not overlap, and are listed with those first that the kernel writes. Unless
        /// its family says otherwise, all values are secret, in every lane.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kernel {
            $($(#[$doc])* $family($family),)*
        }

        $(impl From<$family> for Kernel {
            fn from(kernel: $family) -> Self {
                Kernel::$family(kernel)
            }
        })*

        impl Kernel {
            /// Every kernel of the library. Those that run by turns are neighbours.
            pub fn all() -> Vec<Kernel> {
                let mut all = Vec::new();
                $(all.extend($family::all().into_iter().map(Kernel::$family));)*
                all
            }

            /// Operation and shape, for example `amm52x20`.
            pub fn name(self) -> String {
                match self {
                    $(Kernel::$family(kernel) => kernel.name(),)*
                }
            }

            /// What the kernel computes, in one line.
            pub fn formula(self) -> &'static str {
                match self {
                    $(Kernel::$family(kernel) => kernel.formula(),)*
                }
            }

            /// The kernel's arrays in the order of its argument list, for vectors of `lanes` lanes.
            pub fn arrays(self, lanes: usize) -> Vec<ArraySpec> {
                match self {
                    $(Kernel::$family(kernel) => kernel.arrays(lanes),)*
                }
            }

            fn run<M: Machine>(self, m: &mut M) {
                match self {
                    $(Kernel::$family(kernel) => kernel.run(m),)*
                }
            }
        }
    };
}

families! {
    /// Montgomery arithmetic on big numbers, for RSA.
    Modular,
    /// ML-DSA.
    MlDsa,
    /// ChaCha20-Poly1305, for records.
    ChaCha20Poly1305,
    /// Keccak, for SHA-3 and SHAKE.
    Keccak,
    /// X25519 and Ed25519.
    Curve25519,
    /// SHA-512, which Ed25519 signs with.
    Sha512,
    /// The curves P-256 and P-384.
    Nist,
    /// Polynomials of ML-KEM.
    MlKem,
}

/// One of a kernel's arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArraySpec {
    /// Its name in the kernel's formula.
    pub name: &'static str,
    /// Vectors.
    pub len: usize,
    /// What every lane is: promised by the caller where the kernel reads, kept by the kernel where
    /// it writes.
    pub holds: Holds,
    /// Whether the kernel writes it. It may read it before.
    pub written: bool,
}

impl ArraySpec {
    /// An array that the kernel only reads.
    pub(crate) fn read(name: &'static str, len: usize, holds: Holds) -> Self {
        Self {
            name,
            len,
            holds,
            written: false,
        }
    }

    /// An array that the kernel writes.
    pub(crate) fn written(name: &'static str, len: usize, holds: Holds) -> Self {
        Self {
            written: true,
            ..Self::read(name, len, holds)
        }
    }
}

impl Kernel {
    /// The symbol of the assembled kernel: its name and the number of its lanes.
    pub fn symbol(self, width: Width) -> String {
        format!("widelane_{}_mb{}", self.name(), width.lanes())
    }

    /// Runs the kernel in portable Rust on `L` lanes: on the arrays that it writes and those that
    /// it only reads.
    ///
    /// # Panics
    ///
    /// If the arrays are not as [`arrays`](Self::arrays) says, or a claim of the source fails.
    pub fn model<const L: usize>(self, written: &mut [&mut [[u64; L]]], read: &[&[[u64; L]]]) {
        let arrays = self.arrays(L);
        let lens = written
            .iter()
            .map(|array| array.len())
            .chain(read.iter().map(|array| array.len()));
        assert!(
            lens.eq(arrays.iter().map(|spec| spec.len)),
            "{} has other arrays",
            self.name()
        );
        self.run(&mut Model::new(written, read));
    }

    /// Proves that no lane overflows and that every array keeps its bound.
    pub fn prove(self, width: Width) -> Result<Proof, BoundsError> {
        let lanes = width.lanes();
        let arrays: Vec<_> = self
            .arrays(lanes)
            .iter()
            .map(|spec| (spec.len, spec.holds))
            .collect();
        let mut machine = Bounds::new(lanes, &arrays);
        self.run(&mut machine);
        machine.finish()
    }

    /// GNU assembly of the kernel (Intel syntax) for registers of `width`.
    ///
    /// The function has the System V calling convention and takes one pointer an array, in order,
    /// and last a pointer to as many vectors as [`Report::slots`] says, for intermediate values.
    pub fn assembly(self, width: Width) -> String {
        print(self, width, &self.allocated(width))
    }

    /// Instruction mix, licence level and port bound of the kernel.
    pub fn report(self, width: Width) -> Report {
        Report::new(width, &self.allocated(width))
    }

    fn allocated(self, width: Width) -> Allocated {
        let mut trace = Trace::new(width.lanes());
        self.run(&mut trace);
        allocate(&schedule(&trace.ops))
    }
}

/// The vectors of an array.
pub(crate) fn load<M: Machine>(m: &mut M, array: usize, len: usize) -> Vec<M::V> {
    (0..len).map(|i| m.load(Array(array), i)).collect()
}

/// Writes the vectors of an array.
pub(crate) fn store<M: Machine>(m: &mut M, array: usize, values: &[M::V]) {
    for (i, &value) in values.iter().enumerate() {
        m.store(Array(array), i, value);
    }
}
