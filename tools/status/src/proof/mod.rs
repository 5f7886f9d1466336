//! The proof on a living server: lanes off and on again in random blocks, and what a handshake takes in both.
//!
//! [`Plan`] says which blocks there are, [`run`] switches and measures, [`prove`] says what that means. All three
//! are without a clock and without a process of their own: they get both by a [`World`].

mod note;
mod plan;
mod run;
mod verdict;

pub use note::noted;
pub use plan::{Plan, PlanError};
pub use run::{Counts, End, Look, Progress, World, run, wait_for_load};
pub use verdict::{Block, Both, Counted, Estimate, Latency, Pair, Proof, Span, Verdict, prove};
