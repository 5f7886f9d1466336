//! Workers that may use vector cores as well while these have nothing to do.
//!
//! A worker's affinity is the scalar CPUs and those vector cores that are given back. Giving back
//! widens the affinities of all workers, taking narrows them, and the kernel has moved a worker
//! away by the time its call returns. All of it happens under one lock, and so does a worker's
//! end: no affinity is ever set by a thread number that may have become somebody else's.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity};
use tokio::sync::watch;
use widelane_engine::Tenancy;

/// The workers of one server.
#[derive(Debug)]
pub(crate) struct Tenants {
    /// How many vector cores workers may use now.
    lent: watch::Sender<usize>,
    shared: Mutex<Shared>,
}

/// The calling thread's share, given up when dropped.
#[derive(Debug)]
pub(crate) struct Tenant {
    tenants: Arc<Tenants>,
    thread: Pid,
}

#[derive(Debug)]
struct Shared {
    /// Where workers may run now.
    cpus: CpuSet,
    /// Where they may ever run.
    allowed: CpuSet,
    workers: Vec<Pid>,
}

impl Tenants {
    /// For workers that may always run on the CPUs `scalar`, and never but on those of `allowed`.
    pub(crate) fn new(scalar: &[usize], allowed: &[usize]) -> Self {
        Self {
            lent: watch::Sender::new(0),
            shared: Mutex::new(Shared {
                cpus: set(scalar),
                allowed: set(allowed),
                workers: Vec::new(),
            }),
        }
    }

    /// Makes the calling thread one of the workers.
    pub(crate) fn join(self: &Arc<Self>) -> Tenant {
        let thread = gettid();
        let mut shared = self.lock();
        if let Err(error) = sched_setaffinity(Some(thread), &shared.cpus) {
            tracing::warn!(%error, "cannot keep a worker off the vector cores");
        }
        shared.workers.push(thread);
        Tenant {
            tenants: self.clone(),
            thread,
        }
    }

    /// How many vector cores the workers may use, now and from now on.
    pub(crate) fn lent(&self) -> watch::Receiver<usize> {
        self.lent.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Whatever happened to the last holder, the set and the list are whole.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tenancy for Tenants {
    fn give(&self, cpu: usize) {
        let mut shared = self.lock();
        if !shared.allowed.is_set(cpu) {
            return;
        }
        shared.cpus.set(cpu);
        if let Err(error) = shared.apply() {
            // They run where they did.
            tracing::debug!(cpu, %error, "not every worker may use an idle vector core");
        }
        self.lent.send_modify(|lent| *lent += 1);
    }

    fn take(&self, cpu: usize) -> io::Result<()> {
        let mut shared = self.lock();
        if !shared.cpus.is_set(cpu) {
            // It was none of theirs.
            return Ok(());
        }
        shared.cpus.unset(cpu);
        self.lent.send_modify(|lent| *lent -= 1);
        Ok(shared.apply()?)
    }
}

impl Shared {
    /// Tells all workers, and of the first one that it did not work for.
    fn apply(&self) -> Result<(), Errno> {
        let mut result = Ok(());
        for &worker in &self.workers {
            result = result.and(sched_setaffinity(Some(worker), &self.cpus));
        }
        result
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        let mut shared = self.tenants.lock();
        shared.workers.retain(|&worker| worker != self.thread);
    }
}

fn set(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for &cpu in cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    set
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use rustix::thread::sched_getaffinity;

    use super::*;
    use crate::cores;

    #[test]
    fn workers_come_and_go_and_others_are_left_alone() {
        let allowed = cores::allowed();
        let &[first, second, ..] = &allowed[..] else {
            eprintln!("SKIP: one CPU, and this needs a vector core beside it");
            return;
        };
        let tenants = Arc::new(Tenants::new(&[first], &[first, second]));
        let (ready, joined) = mpsc::channel();
        let (leave, left) = mpsc::channel::<()>();
        let worker = {
            let tenants = tenants.clone();
            std::thread::spawn(move || {
                let tenant = tenants.join();
                ready.send(gettid()).unwrap();
                let _ = left.recv();
                drop(tenant);
                ready.send(gettid()).unwrap();
                let _ = left.recv();
            })
        };
        let thread = joined.recv().unwrap();
        assert_eq!(affinity(thread), [first]);
        tenants.give(second);
        assert_eq!(affinity(thread), [first, second]);
        assert_eq!(*tenants.lent().borrow(), 1);
        tenants.take(second).unwrap();
        assert_eq!(affinity(thread), [first]);
        assert_eq!(*tenants.lent().borrow(), 0);
        // Who comes late gets what all have.
        tenants.give(second);
        let late = std::thread::spawn({
            let tenants = tenants.clone();
            move || {
                let _tenant = tenants.join();
                affinity(gettid())
            }
        });
        assert_eq!(late.join().unwrap(), [first, second]);
        // Who has left is not a worker any more.
        leave.send(()).unwrap();
        joined.recv().unwrap();
        tenants.take(second).unwrap();
        assert_eq!(affinity(thread), [first, second]);
        assert_eq!(cores::allowed(), allowed);
        drop(leave);
        worker.join().unwrap();
    }

    #[test]
    fn a_cpu_that_is_not_ours_is_never_lent() {
        let Some(&first) = cores::allowed().first() else {
            eprintln!("SKIP: the system does not say which CPUs there are");
            return;
        };
        let tenants = Arc::new(Tenants::new(&[first], &[first]));
        let worker = std::thread::spawn({
            let tenants = tenants.clone();
            move || {
                let _tenant = tenants.join();
                tenants.give(first + 1);
                let lent = affinity(gettid());
                tenants.take(first + 1).unwrap();
                lent
            }
        });
        assert_eq!(worker.join().unwrap(), [first]);
    }

    #[test]
    fn a_worker_that_cannot_be_moved_away_is_a_failure() {
        // It has no CPU but the one that is lent.
        let Some(&only) = cores::allowed().first() else {
            eprintln!("SKIP: the system does not say which CPUs there are");
            return;
        };
        let tenants = Arc::new(Tenants::new(&[], &[only]));
        let taken = std::thread::spawn({
            let tenants = tenants.clone();
            move || {
                tenants.give(only);
                let _tenant = tenants.join();
                tenants.take(only)
            }
        });
        let error = taken.join().unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::INVAL.raw_os_error()));
    }

    fn affinity(thread: Pid) -> Vec<usize> {
        let set = sched_getaffinity(Some(thread)).unwrap();
        (0..CpuSet::MAX_CPU)
            .filter(|&cpu| set.is_set(cpu))
            .collect()
    }
}
