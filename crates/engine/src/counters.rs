//! Counters of each operation.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use widelane_batching::Width;
use widelane_status::Totals;

use crate::core;

/// Counters of one operation since its engine started.
///
/// Each figure is exact. Together they are consistent only while the engine is idle, because
/// counting must not slow down a pass. Then each accepted job is in exactly one of `jobs`,
/// `cancelled`, `panicked` and `shut_down`.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct OperationCounters {
    /// The operation's name, such as `rsa2048-sign`.
    pub name: &'static str,
    /// Jobs that one pass takes.
    pub lanes: usize,
    /// Jobs answered.
    pub jobs: u64,
    /// Jobs that ran one by one because that was cheaper than a pass, including those that
    /// panicked.
    pub alone: u64,
    /// Jobs run at once because no other job could share the pass; each is also in `alone` or
    /// `lanes_filled`.
    pub at_once: u64,
    /// Passes, without those repeated one job at a time after a panic.
    pub passes: u64,
    /// Passes on vector cores. If it equals `passes`, no wide code ran beside scalar code.
    pub on_vector_cores: u64,
    /// Passes in narrower registers than the widest, or in lanes of the other kind, because that cost the core less in
    /// total.
    pub narrow: u64,
    /// Jobs in passes, including those that panicked; divided by `passes`, the mean fill.
    pub lanes_filled: u64,
    /// Passes by fill: `fills[k]` passes had `k` jobs. Has `lanes + 1` entries, the first always 0.
    pub fills: Vec<u64>,
    /// Jobs refused because the queue was full.
    pub rejected: u64,
    /// Accepted jobs that were skipped because their ticket was dropped before the start.
    pub cancelled: u64,
    /// Jobs that made the operation panic.
    pub panicked: u64,
    /// Accepted jobs that had not started when the engine or their worker ended.
    pub shut_down: u64,
    /// Time from submission to start, summed over the jobs that ran.
    pub queued: Duration,
    /// Time in jobs, in passes and one by one.
    pub kernel: Duration,
}

/// The live counters behind [`OperationCounters`].
#[derive(Default)]
pub(crate) struct Counters {
    fills: Box<[AtomicU64]>,
    jobs: AtomicU64,
    alone: AtomicU64,
    at_once: AtomicU64,
    on_vector_cores: AtomicU64,
    narrow: AtomicU64,
    rejected: AtomicU64,
    cancelled: AtomicU64,
    panicked: AtomicU64,
    shut_down: AtomicU64,
    queued_ns: AtomicU64,
    kernel_ns: AtomicU64,
}

impl Counters {
    pub(crate) fn new(lanes: usize) -> Self {
        Self {
            fills: (0..=lanes).map(|_| AtomicU64::new(0)).collect(),
            ..Self::default()
        }
    }

    /// A pass with `jobs` in registers of this width, on the calling thread.
    pub(crate) fn pass(&self, jobs: usize, width: Width, kernel: Duration) {
        if core::is_dedicated() {
            add(&self.on_vector_cores, 1);
        }
        if width == Width::Narrow {
            add(&self.narrow, 1);
        }
        if let Some(fill) = self.fills.get(jobs) {
            fill.fetch_add(1, Relaxed);
        }
        self.kernel_ns.fetch_add(nanoseconds(kernel), Relaxed);
    }

    /// A job that ran alone.
    pub(crate) fn alone(&self, kernel: Duration) {
        self.alone.fetch_add(1, Relaxed);
        self.kernel_ns.fetch_add(nanoseconds(kernel), Relaxed);
    }

    /// A job that is about to run without having waited.
    pub(crate) fn at_once(&self) {
        add(&self.at_once, 1);
    }

    /// The time for which jobs waited that run now.
    pub(crate) fn queued(&self, queued: Duration) {
        if !queued.is_zero() {
            self.queued_ns.fetch_add(nanoseconds(queued), Relaxed);
        }
    }

    pub(crate) fn answered(&self, jobs: usize) {
        add(&self.jobs, jobs);
    }

    pub(crate) fn rejected(&self) {
        add(&self.rejected, 1);
    }

    pub(crate) fn cancelled(&self, jobs: usize) {
        add(&self.cancelled, jobs);
    }

    pub(crate) fn panicked(&self) {
        add(&self.panicked, 1);
    }

    pub(crate) fn shut_down(&self, jobs: usize) {
        add(&self.shut_down, jobs);
    }

    pub(crate) fn totals(&self) -> Totals {
        let (mut passes, mut lanes_filled) = (0, 0);
        for (count, jobs) in self.fills.iter().zip(0..) {
            let count = count.load(Relaxed);
            passes += count;
            lanes_filled += count * jobs;
        }
        let failed = [&self.rejected, &self.panicked, &self.shut_down];
        Totals {
            lanes: self.fills.len() as u64 - 1,
            jobs: self.jobs.load(Relaxed),
            alone: self.alone.load(Relaxed),
            at_once: self.at_once.load(Relaxed),
            passes,
            lanes_filled,
            failed: failed.iter().map(|count| count.load(Relaxed)).sum(),
            busy_ns: self.kernel_ns.load(Relaxed),
        }
    }

    pub(crate) fn snapshot(&self, name: &'static str) -> OperationCounters {
        let totals = self.totals();
        let fills = self.fills.iter();
        OperationCounters {
            name,
            lanes: self.fills.len() - 1,
            jobs: totals.jobs,
            alone: totals.alone,
            at_once: totals.at_once,
            passes: totals.passes,
            on_vector_cores: self.on_vector_cores.load(Relaxed),
            narrow: self.narrow.load(Relaxed),
            lanes_filled: totals.lanes_filled,
            fills: fills.map(|fill| fill.load(Relaxed)).collect(),
            rejected: self.rejected.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            panicked: self.panicked.load(Relaxed),
            shut_down: self.shut_down.load(Relaxed),
            queued: Duration::from_nanos(self.queued_ns.load(Relaxed)),
            kernel: Duration::from_nanos(totals.busy_ns),
        }
    }
}

fn add(counter: &AtomicU64, jobs: usize) {
    if jobs > 0 {
        counter.fetch_add(jobs as u64, Relaxed);
    }
}

/// Nanoseconds, at most [`u64::MAX`].
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
