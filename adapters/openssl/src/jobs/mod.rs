//! Waiting of a call of OpenSSL for its jobs: the choice of the way, and the queue of paused jobs.

#[cfg(all(loom, test))]
mod models;
pub(crate) mod queue;
mod sync;
pub(crate) mod waiting;
