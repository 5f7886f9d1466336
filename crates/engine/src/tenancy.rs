//! Vector cores that are given back to scalar work while there is none for them.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use crate::sync::contain;

/// Who else may run on a vector core while it has nothing to do.
///
/// For each CPU the engine calls these in turn, [`give`](Self::give) first, on the vector core's
/// own thread and with none of its locks held. A panic is contained and counts as done.
pub trait Tenancy: Send + Sync {
    /// The vector core of `cpu` will sleep: others may run there from now on.
    fn give(&self, cpu: usize);

    /// The vector core of `cpu` is about to run passes: nobody else may run there when this
    /// returns.
    ///
    /// # Errors
    ///
    /// When somebody may all the same. The pass runs, and the failure is counted.
    fn take(&self, cpu: usize) -> io::Result<()>;
}

/// That vector cores are given back, to whom, and after which time without work.
#[derive(Clone)]
pub struct GiveBack {
    /// Who is told.
    pub to: Arc<dyn Tenancy>,
    /// For how long a core rests first. `None`: 50 milliseconds, or eight times as long as the
    /// clock stays low after a pass. Never less than that once.
    pub rest: Option<Duration>,
}

/// How many vector cores an engine has and what became of them so far.
///
/// Each figure is exact; together they are a snapshot only of an engine at rest.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct VectorCoreCounters {
    /// Cores that are kept free of scalar work now, asleep or not.
    pub active: usize,
    /// Cores on which scalar work may run now.
    pub given_back: usize,
    /// How often a core was given back.
    pub gives: u64,
    /// How often a core was taken again.
    pub takes: u64,
    /// How often that failed, so that scalar work may have run beside wide code.
    pub take_failures: u64,
}

/// [`GiveBack`] at work, with its counters.
pub(crate) struct Landlord {
    tenancy: Arc<dyn Tenancy>,
    gives: AtomicU64,
    takes: AtomicU64,
    take_failures: AtomicU64,
}

impl Landlord {
    pub(crate) fn new(tenancy: Arc<dyn Tenancy>) -> Self {
        Self {
            tenancy,
            gives: AtomicU64::new(0),
            takes: AtomicU64::new(0),
            take_failures: AtomicU64::new(0),
        }
    }

    pub(crate) fn give(&self, cpu: usize) {
        self.gives.fetch_add(1, Release);
        contain(|| self.tenancy.give(cpu));
    }

    pub(crate) fn take(&self, cpu: usize) {
        let mut taken = Err(io::Error::other("it panicked"));
        contain(|| taken = self.tenancy.take(cpu));
        if let Err(error) = taken {
            let before = self.take_failures.fetch_add(1, Relaxed);
            // A cause that stays would fill the log.
            if before.is_power_of_two() || before == 0 {
                tracing::warn!(cpu, %error, "others may still run on this vector core");
            }
        }
        self.takes.fetch_add(1, Release);
    }

    /// For an engine of so many cores.
    pub(crate) fn counters(&self, cores: usize) -> VectorCoreCounters {
        // A core counts as given back before it is and until it has been taken: in between, nobody
        // knows who runs there.
        let takes = self.takes.load(Acquire);
        let gives = self.gives.load(Acquire);
        let given_back = (gives.saturating_sub(takes) as usize).min(cores);
        VectorCoreCounters {
            active: cores - given_back,
            given_back,
            gives,
            takes,
            take_failures: self.take_failures.load(Relaxed),
        }
    }
}

impl PartialEq for GiveBack {
    /// The same receiver, after the same time.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.to, &other.to) && self.rest == other.rest
    }
}

impl fmt::Debug for GiveBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GiveBack")
            .field("rest", &self.rest)
            .finish_non_exhaustive()
    }
}
