//! All kernels of all families.

use widelane_cpu::{Product, Target};

use crate::chacha20poly1305::ChaCha20Poly1305;
use crate::curve25519::Curve25519;
use crate::definition::{ArraySpec, Definition};
use crate::keccak::Keccak;
use crate::lower::is_lowered;
use crate::machine::Machine;
use crate::mldsa::MlDsa;
use crate::mlkem::MlKem;
use crate::modular::Modular;
use crate::nist::Nist;
use crate::schedule::Multipliers;
use crate::sha512::Sha512;

/// Makes [`Kernel`] out of the families.
macro_rules! families {
    ($($(#[$doc:meta])* $family:ident,)*) => {
        /// A kernel: one operation on the lanes of its arrays. Its only branches are loops of a
        /// constant number of turns.
        ///
        /// Arrays do not overlap.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kernel {
            $($(#[$doc])* $family($family),)*
        }

        $(impl From<$family> for Kernel {
            fn from(kernel: $family) -> Self {
                Kernel::$family(kernel)
            }
        })*

        impl Definition for Kernel {
            fn all() -> Vec<Self> {
                let mut all = Vec::new();
                $(all.extend($family::all().into_iter().map(Kernel::$family));)*
                all
            }

            fn name(self) -> String {
                match self {
                    $(Kernel::$family(kernel) => kernel.name(),)*
                }
            }

            fn formula(self) -> &'static str {
                match self {
                    $(Kernel::$family(kernel) => kernel.formula(),)*
                }
            }

            fn reference(self) -> &'static str {
                match self {
                    $(Kernel::$family(kernel) => kernel.reference(),)*
                }
            }

            fn multipliers(self) -> Multipliers {
                match self {
                    $(Kernel::$family(kernel) => kernel.multipliers(),)*
                }
            }

            fn arrays(self, lanes: usize) -> Vec<ArraySpec> {
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

impl Kernel {
    /// The kernels that there are for a target.
    pub fn all_for(target: Target) -> Vec<Self> {
        let mut all = Self::all();
        all.retain(|kernel| kernel.is_for(target));
        all
    }

    /// Returns whether the kernel exists for a target.
    pub fn is_for(self, target: Target) -> bool {
        match self {
            // Other code is as fast.
            Kernel::ChaCha20Poly1305(_) => !is_lowered(target),
            // CPUs multiply and add in two units for registers of 256 bits.
            Kernel::Modular(kernel) if kernel.multipliers() == Multipliers::One => {
                target.product() != Product::Fma || !target.has_few_registers()
            }
            _ => true,
        }
    }
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
