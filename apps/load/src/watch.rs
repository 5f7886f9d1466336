//! A run as another thread sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A view of a run from another thread. Clones watch the same run.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    stopped: Arc<AtomicBool>,
    counts: Arc<Counts>,
}

/// Numbers of connections.
#[derive(Debug, Default)]
struct Counts {
    started: AtomicU64,
    completed: AtomicU64,
    errors: AtomicU64,
}

/// Progress of a run, warm-up included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Connections started.
    pub started: u64,
    /// Connections that succeeded.
    pub completed: u64,
    /// Connections that failed.
    pub errors: u64,
}

impl Watch {
    /// Ends the run within a twentieth of a second.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Returns whether the run was stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Progress of the run.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            started: self.counts.started.load(Ordering::Relaxed),
            completed: self.counts.completed.load(Ordering::Relaxed),
            errors: self.counts.errors.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn count_start(&self) {
        self.counts.started.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_end(&self, failed: bool) {
        let count = match failed {
            true => &self.counts.errors,
            false => &self.counts.completed,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// A view that stops together with `self`, and has counts of its own.
    pub(crate) fn apart(&self) -> Self {
        Self {
            stopped: self.stopped.clone(),
            counts: Arc::default(),
        }
    }
}
