//! Overload: connections come faster than they can be served in time.
//!
//! The workers of `serve`, and the listening sockets of a server with the provider, come under it and leave it. Meanwhile
//! clients go away or are refused, and the others wait for their turn.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of overload, as a process writes them.
#[derive(Debug, Default)]
#[repr(C)]
pub struct OverloadCounters {
    now: AtomicU64,
    begun: AtomicU64,
    gone: AtomicU64,
    refused: AtomicU64,
    waits: [AtomicU64; WAITS],
}

/// Overload of a process, as others read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overload {
    /// Workers, or listening sockets, that are under overload.
    pub now: u64,
    /// Number of times that one has come under overload.
    pub begun: u64,
    /// Clients that had gone away before they were served.
    pub gone: u64,
    /// Clients that were refused, because they had waited for too long.
    pub refused: u64,
    /// Connections that had their turn under overload, by their wait: below 8 milliseconds, below 16, and so on.
    pub waits: [u64; WAITS],
}

impl OverloadCounters {
    /// A worker or a listening socket comes under overload.
    pub fn begins(&self) {
        self.begun.fetch_add(1, Relaxed);
        self.now.fetch_add(1, Relaxed);
    }

    /// One leaves it.
    pub fn ends(&self) {
        let fewer = |now: u64| now.checked_sub(1);
        let _ = self.now.fetch_update(Relaxed, Relaxed, fewer);
    }

    /// A client has gone away before it was served.
    pub fn gone(&self) {
        self.gone.fetch_add(1, Relaxed);
    }

    /// A client is refused, because it has waited for too long.
    pub fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// A connection has its turn under overload, after so many milliseconds.
    pub fn served(&self, wait: u64) {
        let doublings = (u64::BITS - (wait / LEAST_BOUND).leading_zeros()) as usize;
        self.waits[doublings.min(WAITS - 1)].fetch_add(1, Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn words(&self) -> Vec<&AtomicU64> {
        let counts = [&self.now, &self.begun, &self.gone, &self.refused];
        counts.into_iter().chain(&self.waits).collect()
    }
}

impl Overload {
    pub(crate) fn from_words([now, begun, gone, refused, waits @ ..]: [u64; WORDS]) -> Self {
        Self {
            now,
            begun,
            gone,
            refused,
            waits,
        }
    }

    /// Milliseconds below which so many of a hundred waits were; `None` without waits. Longer ones count as ones of
    /// 16 seconds.
    pub fn wait(&self, percent: u8) -> Option<u64> {
        let all: u128 = self.waits.iter().map(|&count| u128::from(count)).sum();
        let wanted = (all * u128::from(percent)).div_ceil(100).max(1);
        let mut below = 0;
        let reached = self.waits.iter().position(|&count| {
            below += u128::from(count);
            below >= wanted
        });
        reached.map(|doublings| LEAST_BOUND << doublings)
    }

    /// The increase since `earlier`, with the overload of now.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            now: self.now,
            begun: self.begun.saturating_sub(earlier.begun),
            gone: self.gone.saturating_sub(earlier.gone),
            refused: self.refused.saturating_sub(earlier.refused),
            waits: std::array::from_fn(|at| self.waits[at].saturating_sub(earlier.waits[at])),
        }
    }
}

pub(crate) const WORDS: usize = 4 + WAITS;
const WAITS: usize = 12;
const LEAST_BOUND: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(counters: &OverloadCounters) -> Overload {
        let words: Vec<u64> = counters.words().iter().map(|word| word.load(Relaxed)).collect();
        Overload::from_words(words.try_into().expect("so many"))
    }

    #[test]
    fn waits_are_told_by_the_bound_below_which_they_are() {
        let counters = OverloadCounters::default();
        assert_eq!(read(&counters).wait(50), None);
        for wait in [0, 7, 8, 15, 16] {
            counters.served(wait);
        }
        let overload = read(&counters);
        let bounds = [1, 40, 41, 80, 81, 100].map(|percent| overload.wait(percent));
        assert_eq!(bounds, [8, 8, 16, 16, 32, 32].map(Some));
        for wait in [8191, 8192, 16_384, u64::MAX] {
            counters.served(wait);
        }
        let later = read(&counters).since(&overload);
        assert_eq!((later.wait(25), later.wait(26)), (Some(8192), Some(16_384)));
        assert_eq!(later.wait(100), Some(16_384));
    }

    #[test]
    fn each_begin_counts_and_no_end_is_one_too_many() {
        let counters = OverloadCounters::default();
        counters.begins();
        counters.begins();
        counters.ends();
        counters.gone();
        counters.refused();
        let first = read(&counters);
        assert_eq!((first.now, first.begun, first.gone, first.refused), (1, 2, 1, 1));
        counters.ends();
        counters.ends();
        counters.begins();
        counters.gone();
        let since = read(&counters).since(&first);
        assert_eq!((since.now, since.begun, since.gone, since.refused), (1, 1, 1, 0));
        // Another process may have the number now.
        assert_eq!(Overload::default().since(&first), Overload::default());
    }

    #[test]
    fn counts_of_a_damaged_page_do_no_harm() {
        let overload = Overload::from_words([u64::MAX; WORDS]);
        assert_eq!(overload.wait(100), Some(16_384));
        assert_eq!(overload.wait(255), None);
    }
}
