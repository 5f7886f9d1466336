//! Core lending: other threads may use the CPU of an idle vector core.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use crate::sync::contain;

/// Decides which threads may run on a vector core while it is idle.
///
/// For each CPU the engine calls these functions in turn, [`lend`](Self::lend) first, on the thread
/// of the vector core and without holding a lock. A panic is contained and counts as done.
pub trait CoreBorrower: Send + Sync {
    /// The vector core of `cpu` will sleep: other threads may run there from now on.
    fn lend(&self, cpu: usize);

    /// The vector core of `cpu` is about to run passes: when this returns, no other thread may run
    /// there.
    ///
    /// # Errors
    ///
    /// When another thread may still run there. The pass runs all the same, and the failure is
    /// counted.
    fn reclaim(&self, cpu: usize) -> io::Result<()>;
}

/// Threads that borrow idle vector cores, and the time without work after which they do.
#[derive(Clone)]
pub struct CoreLending {
    /// The borrower.
    pub to: Arc<dyn CoreBorrower>,
    /// Time that a core rests before it is lent. `None`: 50 milliseconds, or eight times as long as
    /// the clock stays low after a pass if that is longer. In any case at least as long as the
    /// clock stays low.
    pub rest: Option<Duration>,
}

/// Number of an engine's vector cores, and of their loans so far.
///
/// Each figure is exact; together they are consistent only while the engine is idle.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct VectorCoreCounters {
    /// Cores that are free of scalar work now, asleep or awake.
    pub active: usize,
    /// Cores on which scalar work may run now.
    pub lent: usize,
    /// Number of loans.
    pub loans: u64,
    /// Number of reclaims.
    pub reclaims: u64,
    /// Number of reclaims that failed, so that scalar work may have run beside wide code.
    pub failed_reclaims: u64,
}

/// A [`CoreLending`] in use, with its counters.
pub(crate) struct Lender {
    borrower: Arc<dyn CoreBorrower>,
    loans: AtomicU64,
    reclaims: AtomicU64,
    failed_reclaims: AtomicU64,
}

impl Lender {
    pub(crate) fn new(borrower: Arc<dyn CoreBorrower>) -> Self {
        Self {
            borrower,
            loans: AtomicU64::new(0),
            reclaims: AtomicU64::new(0),
            failed_reclaims: AtomicU64::new(0),
        }
    }

    pub(crate) fn lend(&self, cpu: usize) {
        self.loans.fetch_add(1, Release);
        contain(|| self.borrower.lend(cpu));
    }

    pub(crate) fn reclaim(&self, cpu: usize) {
        let mut reclaimed = Err(io::Error::other("the borrower panicked"));
        contain(|| reclaimed = self.borrower.reclaim(cpu));
        if let Err(error) = reclaimed {
            let before = self.failed_reclaims.fetch_add(1, Relaxed);
            // A lasting cause would fill the log.
            if before.is_power_of_two() || before == 0 {
                tracing::warn!(cpu, %error, "other threads may still run on this vector core");
            }
        }
        self.reclaims.fetch_add(1, Release);
    }

    /// For an engine with this number of cores.
    pub(crate) fn counters(&self, cores: usize) -> VectorCoreCounters {
        // A core counts as lent from just before the loan until just after the reclaim: in between,
        // scalar work may run there.
        let reclaims = self.reclaims.load(Acquire);
        let loans = self.loans.load(Acquire);
        let lent = (loans.saturating_sub(reclaims) as usize).min(cores);
        VectorCoreCounters {
            active: cores - lent,
            lent,
            loans,
            reclaims,
            failed_reclaims: self.failed_reclaims.load(Relaxed),
        }
    }
}

impl PartialEq for CoreLending {
    /// Compares the borrowers, as one object, and the times.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.to, &other.to) && self.rest == other.rest
    }
}

impl fmt::Debug for CoreLending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoreLending")
            .field("rest", &self.rest)
            .finish_non_exhaustive()
    }
}
