//! Follows host names: looks each up by the system's resolver, again after five seconds, and less often while that
//! fails.
//!
//! [`Names`] takes the names that are wanted, from any thread. [`Follower::run`] is the work: a future that a runtime of
//! tokio with timers runs, and that calls back with each answer. It decides when each name is due, and never waits for
//! a lookup: each has a thread of its own, since a call to the system cannot be cut off. A lookup that hangs holds up
//! neither other names nor the end of the work; after 20 seconds it counts as failed, and its answer still counts when
//! it comes.
//!
//! An answer has the addresses that a connection can reach from this machine, each once and in an order of their own, so
//! that a server that turns its answers changes nothing. What a failure means is for the caller to say: [`NoAnswer`]
//! tells one that may be over in a while from one that an operator has to correct.

#![forbid(unsafe_code)]

mod follower;
mod resolver;
mod schedule;

pub use follower::{Follower, Names};
pub use resolver::{NoAnswer, Resolver};
