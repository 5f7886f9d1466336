//! The stacks on which handshakes are suspended: guarded, pooled, and small while they are pooled.
//!
//! A stack is address space with a guard area below it; only the pages that a call touches cost
//! memory. A pool keeps those that are free, so that a handshake step seldom asks the kernel for
//! one. What a rare deep call (a long certificate chain, a callback of the program) has touched
//! goes back to the kernel when its stack returns to the pool: neither memory nor the call's data
//! stays.
//!
//! It is not a coroutine: `corosensei` switches between stacks.
//!
//! Start with [`Stacks`], the pool of a thread.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod guarded;

pub use guarded::{GuardedStack, Stacks};
