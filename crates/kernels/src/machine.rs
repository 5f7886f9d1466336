//! Executor of kernels: the machine code that a token allows, and in tests the model.

use widelane_cpu::Token;

/// Executor of kernels of `L` lanes.
///
/// One for machine code is made from the token that proves that the CPU runs it.
#[derive(Clone, Copy, Debug)]
pub struct Machine<const L: usize>(Kind<L>);

#[derive(Clone, Copy, Debug)]
enum Kind<const L: usize> {
    Code(Token<L>),
    #[cfg(any(test, feature = "model"))]
    Model,
}

impl<const L: usize> From<Token<L>> for Machine<L> {
    fn from(token: Token<L>) -> Self {
        Self(Kind::Code(token))
    }
}

impl<const L: usize> Machine<L> {
    /// Portable Rust, with the feature `model` only.
    #[cfg(any(test, feature = "model"))]
    pub fn model() -> Self {
        Self(Kind::Model)
    }

    /// The token of its machine code; `None` for the model.
    pub fn token(self) -> Option<Token<L>> {
        match self.0 {
            Kind::Code(token) => Some(token),
            #[cfg(any(test, feature = "model"))]
            Kind::Model => None,
        }
    }
}

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
