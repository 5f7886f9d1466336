//! What kernels run on: the machine code that a token allows, and in tests the model.

use widelane_cpu::{Avx512Ifma, Avx512IfmaVl};
use widelane_lanes::Width;

/// What kernels of `L` lanes run on.
///
/// A target for machine code is made from the token that proves what the CPU has. Another kind of
/// registers is a [`Width`], a `From` here and a constructor in `constructors!`.
#[derive(Clone, Copy, Debug)]
pub struct Target<const L: usize> {
    machine: Machine,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Machine {
    /// Machine code. The registers have as many lanes as the target, and the CPU has them.
    Registers(Width),
    #[cfg(any(test, feature = "model"))]
    Model,
}

impl From<Avx512Ifma> for Target<8> {
    fn from(_: Avx512Ifma) -> Self {
        let machine = Machine::Registers(Width::Zmm);
        Self { machine }
    }
}

impl From<Avx512IfmaVl> for Target<4> {
    fn from(_: Avx512IfmaVl) -> Self {
        let machine = Machine::Registers(Width::Ymm);
        Self { machine }
    }
}

impl<const L: usize> Target<L> {
    /// Portable Rust, with the feature `model` only.
    #[cfg(any(test, feature = "model"))]
    pub fn model() -> Self {
        let machine = Machine::Model;
        Self { machine }
    }

    pub(crate) fn machine(self) -> Machine {
        self.machine
    }
}

/// The constructors of a family from its `new`: one for each target.
macro_rules! constructors {
    ($family:ident $(, $parameter:ident: $type:ty, $doc:literal)?) => {
        impl $family<8> {
            /// Kernels for 512-bit registers.
            $(#[doc = $doc])?
            pub fn zmm(token: widelane_cpu::Avx512Ifma $(, $parameter: $type)?) -> Self {
                Self::new(token.into() $(, $parameter)?)
            }
        }

        impl $family<4> {
            /// Kernels for 256-bit registers.
            $(#[doc = $doc])?
            pub fn ymm(token: widelane_cpu::Avx512IfmaVl $(, $parameter: $type)?) -> Self {
                Self::new(token.into() $(, $parameter)?)
            }
        }

        #[cfg(any(test, feature = "model"))]
        impl<const L: usize> $family<L> {
            /// Kernels in portable Rust, for tests: with the feature `model` only.
            $(#[doc = $doc])?
            pub fn model($($parameter: $type)?) -> Self {
                Self::new($crate::target::Target::model() $(, $parameter)?)
            }
        }
    };
}
pub(crate) use constructors;

/// Methods of a family that each call one kernel of its set `kernels`: on the arrays that it
/// writes, those that it reads, and scratch space.
macro_rules! wrappers {
    ($($(#[$meta:meta])* $method:ident: [$($written:ident),*], [$($read:ident),*];)*) => {
        $($(#[$meta])*
        pub fn $method(
            &self,
            $($written: &mut [[u64; L]],)*
            $($read: &[[u64; L]],)*
            scratch: &mut [[u64; L]],
        ) {
            self.kernels.$method.call([$($written),*], [$($read),*], scratch);
        })*
    };
}
pub(crate) use wrappers;
