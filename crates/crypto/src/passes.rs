//! The runner of all passes: chooses the lanes, lends memory, and wipes what a pass leaves.
//!
//! A [`Family`] says what its passes compute with; [`Passes`] holds them for a backend.
//! [`Pass::run`] takes memory from a pool and gives it back wiped, together with the vector
//! registers, also when the pass panics.

use crate::{Backend, BackendUnavailable};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use widelane_cpu::licence::Class;
use widelane_cpu::{AnyToken, Token};
use widelane_kernels::{Arena, Machine, wipe_registers};

/// Common parts of the passes of some operations.
pub trait Family: Copy + fmt::Debug + Send + Sync + 'static {
    /// Kernels that a pass of `L` lanes computes with.
    type Kernels<const L: usize>: Send + Sync;
    /// Memory that a pass works in.
    type Memory<const L: usize>: Memory + Send;

    /// The kernels on a machine.
    fn kernels<const L: usize>(self, machine: Machine<L>) -> Self::Kernels<L>;

    /// Memory for one pass, with zeros.
    fn memory<const L: usize>(self, kernels: &Self::Kernels<L>) -> Self::Memory<L>;

    /// Returns whether passes work on secrets. Memory without secrets is not wiped.
    fn is_secret(self) -> bool {
        true
    }
}

/// The memory of a pass.
pub trait Memory {
    /// Overwrites everything secret.
    fn wipe(&mut self);
}

impl<const L: usize> Memory for Arena<L> {
    fn wipe(&mut self) {
        Arena::wipe(self);
    }
}

/// The passes of a family on one backend.
#[derive(Debug)]
pub(crate) enum Passes<F: Family> {
    /// The backend has none: aws-lc-rs answers each request by itself.
    None,
    /// Pass of four lanes.
    Four(Box<Pass<F, 4>>),
    /// Pass of eight lanes.
    Eight(Box<Pass<F, 8>>),
}

impl<F: Family> Passes<F> {
    pub(crate) fn new(backend: Backend, family: F) -> Result<Self, BackendUnavailable> {
        let Some(target) = backend.target() else {
            return Ok(Self::None);
        };
        match AnyToken::detect(target) {
            Some(AnyToken::Four(token)) => Ok(Self::Four(Box::new(Pass::new(family, token)))),
            Some(AnyToken::Eight(token)) => Ok(Self::Eight(Box::new(Pass::new(family, token)))),
            None => Err(BackendUnavailable { backend }),
        }
    }

    /// Lanes of a pass; 1 where there are no passes.
    pub(crate) fn lanes(&self) -> usize {
        with_pass!(self, pass => pass.lanes(), else 1)
    }
}

/// Evaluates an expression with the pass of as many lanes as there are.
macro_rules! with_pass {
    ($passes:expr, $pass:ident => $some:expr, else $none:expr) => {
        match $passes {
            $crate::passes::Passes::None => $none,
            $crate::passes::Passes::Four($pass) => $some,
            $crate::passes::Passes::Eight($pass) => $some,
        }
    };
}
pub(crate) use with_pass;

/// Runs the passes of a family in `L` lanes.
pub struct Pass<F: Family, const L: usize> {
    pub(crate) family: F,
    pub(crate) kernels: F::Kernels<L>,
    /// Present where the kernels run in vector registers, to wipe those.
    registers: Option<Token<L>>,
    /// Memory of passes that are not running.
    idle: Mutex<Vec<F::Memory<L>>>,
}

impl<F: Family, const L: usize> Pass<F, L> {
    /// Passes on this machine.
    pub(crate) fn new(family: F, machine: impl Into<Machine<L>>) -> Self {
        let machine = machine.into();
        Self {
            family,
            kernels: family.kernels(machine),
            registers: machine.token(),
            idle: Mutex::default(),
        }
    }

    /// Passes in portable Rust: the oracle, and far too slow for anything else.
    #[cfg(test)]
    pub(crate) fn model(family: F) -> Self {
        Self::new(family, Machine::model())
    }

    /// Lanes of a pass.
    pub(crate) fn lanes(&self) -> usize {
        L
    }

    /// Runs one pass in memory of its own.
    pub(crate) fn run<T>(&self, job: impl FnOnce(&mut F::Memory<L>) -> T) -> T {
        let _marked = widelane_marks::wide(self.class());
        let idle = lock(&self.idle).pop();
        let memory = idle.unwrap_or_else(|| self.family.memory(&self.kernels));
        let mut held = Held {
            pass: self,
            memory: Some(memory),
        };
        job(held.memory.as_mut().expect("only `drop` takes the memory"))
    }

    /// Class of the passes' code, which decides about the clock: the passes of all families multiply.
    fn class(&self) -> Class {
        let token = self.registers;
        token.map_or(Class::Scalar, |token| token.target().class())
    }

    /// Memory of the passes so far, as they left it.
    #[cfg(test)]
    pub(crate) fn idle(&self) -> MutexGuard<'_, Vec<F::Memory<L>>> {
        lock(&self.idle)
    }
}

impl<F: Family, const L: usize> fmt::Debug for Pass<F, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("lanes", &L).finish_non_exhaustive()
    }
}

/// The memory of a running pass. It is wiped and given back even when the pass panics.
struct Held<'a, F: Family, const L: usize> {
    pass: &'a Pass<F, L>,
    memory: Option<F::Memory<L>>,
}

impl<F: Family, const L: usize> Drop for Held<'_, F, L> {
    fn drop(&mut self) {
        let Some(mut memory) = self.memory.take() else {
            return;
        };
        if self.pass.family.is_secret() {
            memory.wipe();
            if let Some(token) = self.pass.registers {
                wipe_registers(token);
            }
        }
        lock(&self.pass.idle).push(memory);
    }
}

/// Locks, also after a panic elsewhere: nothing is ever left half done under these locks.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Declares the memory of a pass: names for parts of an arena, and how many vectors each has.
macro_rules! memory {
    (
        $(#[$outer:meta])*
        $vis:vis struct $name:ident($of:ident: &$kernels:ty $(, $extra:ident: $type:ty)*) {
            $( $(#[$inner:meta])* $part:ident: $len:expr, )*
        }
    ) => {
        $(#[$outer])*
        $vis struct $name<'a, const L: usize> {
            $( $vis $extra: $type, )*
            $( $(#[$inner])* $vis $part: &'a mut [[u64; L]], )*
        }

        impl<'a, const L: usize> $name<'a, L> {
            /// Vectors of all parts.
            #[allow(dead_code)]
            $vis fn len($of: &$kernels) -> usize {
                0 $( + $len )*
            }

            /// Divides the vectors of an arena.
            $vis fn new(
                $of: &$kernels,
                mut vectors: &'a mut [[u64; L]]
                $(, $extra: $type)*
            ) -> Self {
                $(
                    let len: usize = $len;
                    let $part = vectors.split_off_mut(..len).expect("the arena has all parts");
                )*
                let _ = vectors;
                Self { $( $extra, )* $( $part, )* }
            }

            /// A moment between two steps, at which tests damage any part.
            #[allow(dead_code)]
            #[inline(always)]
            $vis fn rest(&mut self) {
                $( $crate::faults::resting(stringify!($part), self.$part); )*
            }
        }
    };
}
pub(crate) use memory;

/// Returns whether there is memory, all of it zero.
#[cfg(test)]
pub(crate) fn are_wiped<const L: usize>(arenas: &mut [Arena<L>]) -> bool {
    let is_zero = |arena: &mut Arena<L>| arena.vectors().as_flattened().iter().all(|&word| word == 0);
    !arenas.is_empty() && arenas.iter_mut().all(is_zero)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use widelane_cpu::Target;
    use widelane_kernels::faults::wipes;

    #[derive(Clone, Copy, Debug)]
    struct Sums {
        is_secret: bool,
    }

    impl Family for Sums {
        type Kernels<const L: usize> = ();
        type Memory<const L: usize> = Arena<L>;

        fn kernels<const L: usize>(self, _: Machine<L>) {}

        fn memory<const L: usize>(self, _: &()) -> Arena<L> {
            Arena::new(1000)
        }

        fn is_secret(self) -> bool {
            self.is_secret
        }
    }

    /// Vector registers of eight lanes where there are any.
    fn machine() -> Machine<8> {
        let token = Target::available().rev().find_map(Token::detect);
        token.map_or_else(Machine::model, Machine::from)
    }

    /// A sum of the ones that it writes.
    fn sum(pass: &Pass<Sums, 8>) -> u64 {
        pass.run(|arena| {
            arena.vectors().fill([1; 8]);
            arena.vectors().as_flattened().iter().sum()
        })
    }

    #[test]
    fn secret_memory_is_wiped_and_used_again() {
        let pass = Pass::new(Sums { is_secret: true }, machine());
        for _ in 0..3 {
            assert_eq!(sum(&pass), 8000);
            assert_eq!(pass.idle().len(), 1);
            assert!(are_wiped(&mut pass.idle()));
        }
        let public = Pass::new(Sums { is_secret: false }, machine());
        assert_eq!(sum(&public), 8000);
        assert!(!are_wiped(&mut public.idle()));
    }

    /// What a wipe does to registers is tested where it is defined.
    #[test]
    fn secret_passes_wipe_registers_and_public_ones_do_not() {
        let wiped = |work: &dyn Fn()| {
            let before = wipes();
            work();
            wipes() - before
        };
        let secret = Pass::new(Sums { is_secret: true }, machine());
        let public = Pass::new(Sums { is_secret: false }, machine());
        // The model has none.
        let once = usize::from(secret.registers.is_some());
        assert_eq!(wiped(&|| assert_eq!(sum(&secret), 8000)), once);
        let panics = || {
            let pass = AssertUnwindSafe(|| secret.run::<()>(|_| panic!("in the middle of a pass")));
            assert!(catch_unwind(pass).is_err());
        };
        assert_eq!(wiped(&panics), once);
        assert_eq!(wiped(&|| assert_eq!(sum(&public), 8000)), 0);
    }

    #[test]
    fn a_panic_leaves_nothing_secret() {
        let pass = Pass::new(Sums { is_secret: true }, machine());
        let panicking = AssertUnwindSafe(|| {
            pass.run(|arena: &mut Arena<8>| {
                arena.vectors().fill([1; 8]);
                panic!("in the middle of a pass");
            })
        });
        assert!(catch_unwind(panicking).is_err());
        assert!(are_wiped(&mut pass.idle()));
        // The pool is as good as before.
        assert_eq!(sum(&pass), 8000);
        assert!(are_wiped(&mut pass.idle()));
    }
}
