//! The line where jobs wait for a vector core, and vector cores for jobs.
//!
//! All decisions happen under one lock, held for about twenty nanoseconds, so no wake-up is lost. A
//! searching core reads a counter, and takes the lock only if there is a job.

use std::collections::VecDeque;
use std::time::Duration;

use crate::sync::{Arc, AtomicBool, AtomicUsize, Mutex, Ordering, Parker, lock, spin};

/// Jobs, oldest first, and the cores that wait for them.
pub(crate) struct Line<J> {
    /// Number of jobs, for a look without the lock.
    length: AtomicUsize,
    closed: AtomicBool,
    state: Mutex<State<J>>,
}

struct State<J> {
    jobs: VecDeque<J>,
    /// Cores that are awake and look for jobs, or were woken to do so.
    searching: usize,
    sleeping: Vec<Arc<Parker>>,
}

impl<J> Line<J> {
    pub(crate) fn new() -> Self {
        Self {
            length: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                searching: 0,
                sleeping: Vec::new(),
            }),
        }
    }

    /// Adds a job, and wakes a core if none is looking.
    pub(crate) fn push(&self, job: J) {
        let woken = {
            let mut state = lock(&self.state);
            state.jobs.push_back(job);
            self.length.store(state.jobs.len(), Ordering::Relaxed);
            state.wake()
        };
        if let Some(core) = woken {
            core.unpark();
        }
    }

    /// Takes the oldest job. If there is none, spins for at most `patience`, then sleeps. `None` when the line is
    /// closed and empty.
    pub(crate) fn take(&self, patience: Duration) -> Option<J> {
        let mut state = lock(&self.state);
        state.searching += 1;
        loop {
            if let Some(job) = state.jobs.pop_front() {
                self.length.store(state.jobs.len(), Ordering::Relaxed);
                state.searching -= 1;
                // Jobs that arrive meanwhile rely on the searching cores.
                let woken = state.wake();
                drop(state);
                if let Some(core) = woken {
                    core.unpark();
                }
                return Some(job);
            }
            if self.closed.load(Ordering::Relaxed) {
                state.searching -= 1;
                return None;
            }
            drop(state);
            let anything = || self.length.load(Ordering::Relaxed) > 0 || self.closed.load(Ordering::Relaxed);
            if !spin(patience, anything) {
                self.sleep();
            }
            state = lock(&self.state);
        }
    }

    /// Tells all cores that no more jobs will come.
    pub(crate) fn close(&self) {
        let woken = {
            let mut state = lock(&self.state);
            self.closed.store(true, Ordering::Relaxed);
            state.searching += state.sleeping.len();
            std::mem::take(&mut state.sleeping)
        };
        for core in woken {
            core.unpark();
        }
    }

    /// Sleeps until woken, unless there is a reason not to. The caller counts as searching before
    /// and after; the thread that wakes it counts it.
    fn sleep(&self) {
        let parker = Parker::current();
        {
            let mut state = lock(&self.state);
            if !state.jobs.is_empty() || self.closed.load(Ordering::Relaxed) {
                return;
            }
            state.searching -= 1;
            state.sleeping.push(Arc::clone(&parker));
        }
        parker.park();
    }
}

impl<J> State<J> {
    /// Takes a core off the list if a job needs one; the caller must unpark it.
    ///
    /// One is enough: a core that takes a job and leaves another one calls this again. The core
    /// with the shortest sleep has the warmest caches.
    fn wake(&mut self) -> Option<Arc<Parker>> {
        if self.jobs.is_empty() || self.searching > 0 {
            return None;
        }
        let core = self.sleeping.pop()?;
        self.searching += 1;
        Some(core)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn jobs_leave_in_order_even_after_the_end() {
        let line = Line::new();
        line.push(1);
        line.push(2);
        line.close();
        let taken: Vec<_> = std::iter::from_fn(|| line.take(Duration::ZERO)).collect();
        assert_eq!(taken, [1, 2]);
    }

    #[test]
    fn sleeping_cores_serve_all_jobs() {
        const JOBS: u64 = 500;
        let line = Line::new();
        let sum = std::thread::scope(|scope| {
            let core = || std::iter::from_fn(|| line.take(Duration::ZERO)).sum::<u64>();
            let cores = [(); 3].map(|()| scope.spawn(core));
            for job in 1..=JOBS {
                line.push(job);
            }
            line.close();
            cores.map(|core| core.join().expect("no panic")).iter().sum::<u64>()
        });
        assert_eq!(sum, JOBS * (JOBS + 1) / 2);
    }
}
