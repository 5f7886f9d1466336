//! Core lending: workers may use vector cores while these are idle.
//!
//! A worker's affinity is the scalar CPUs and the lent vector cores. A loan widens the affinities of
//! all workers, a reclaim narrows them; when the system call returns, the kernel has moved the
//! worker away. All of it happens under one lock, and so does the end of a worker: an affinity is
//! never set by a thread number that may belong to another thread by then.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::thread::gettid;
use tokio::sync::watch;
use widelane_affinity::{Cpus, Pid, allow};
use widelane_engine::CoreBorrower;

/// The workers of one server, which borrow its idle vector cores.
#[derive(Debug)]
pub(crate) struct Borrowers {
    /// Number of vector cores that are lent now.
    lent: watch::Sender<usize>,
    shared: Mutex<Shared>,
}

/// The membership of the calling thread; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Borrower {
    borrowers: Arc<Borrowers>,
    thread: Pid,
}

#[derive(Debug)]
struct Shared {
    /// CPUs on which workers may run now.
    cpus: Cpus,
    /// CPUs on which they may run at all.
    allowed: Cpus,
    workers: Vec<Pid>,
}

impl Borrowers {
    /// Makes the group of workers that may always run on the CPUs `scalar`, and only on CPUs of `allowed`.
    pub(crate) fn new(scalar: Cpus, allowed: Cpus) -> Self {
        Self {
            lent: watch::Sender::new(0),
            shared: Mutex::new(Shared {
                cpus: scalar,
                allowed,
                workers: Vec::new(),
            }),
        }
    }

    /// Makes the calling thread one of the workers.
    pub(crate) fn join(self: &Arc<Self>) -> Borrower {
        let thread = gettid();
        let mut shared = self.lock();
        if let Err(error) = allow(Some(thread), &shared.cpus) {
            tracing::warn!(%error, "cannot keep a worker off the vector cores");
        }
        shared.workers.push(thread);
        Borrower {
            borrowers: self.clone(),
            thread,
        }
    }

    /// Number of vector cores that are lent, now and after each change.
    pub(crate) fn lent(&self) -> watch::Receiver<usize> {
        self.lent.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Even after a panic of a holder, the set and the list are whole.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CoreBorrower for Borrowers {
    fn lend(&self, cpu: usize) {
        let mut shared = self.lock();
        if !shared.allowed.has(cpu) {
            return;
        }
        shared.cpus.add(cpu);
        if let Err(error) = shared.apply() {
            // They stay where they were.
            tracing::debug!(cpu, %error, "not every worker may use an idle vector core");
        }
        self.lent.send_modify(|lent| *lent += 1);
    }

    fn reclaim(&self, cpu: usize) -> io::Result<()> {
        let mut shared = self.lock();
        if !shared.cpus.has(cpu) {
            // It was not lent.
            return Ok(());
        }
        shared.cpus.remove(cpu);
        self.lent.send_modify(|lent| *lent -= 1);
        shared.apply()
    }
}

impl Shared {
    /// Sets the affinity of all workers; returns the first error.
    fn apply(&self) -> io::Result<()> {
        let mut result = Ok(());
        for &worker in &self.workers {
            result = result.and(allow(Some(worker), &self.cpus));
        }
        result
    }
}

impl Drop for Borrower {
    fn drop(&mut self) {
        let mut shared = self.borrowers.lock();
        shared.workers.retain(|&worker| worker != self.thread);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use rustix::io::Errno;
    use widelane_affinity::allowed;

    use super::*;

    #[test]
    fn workers_come_and_go_and_others_are_left_alone() {
        let before = allowed(None).unwrap();
        let &[first, second, ..] = &before.iter().collect::<Vec<_>>()[..] else {
            eprintln!("SKIP: one CPU, and this needs a vector core beside it");
            return;
        };
        let [one, both] = [cpus(&[first]), cpus(&[first, second])];
        let borrowers = Arc::new(Borrowers::new(one, both));
        let (ready, joined) = mpsc::channel();
        let (leave, left) = mpsc::channel::<()>();
        let worker = {
            let borrowers = borrowers.clone();
            std::thread::spawn(move || {
                let borrower = borrowers.join();
                ready.send(gettid()).unwrap();
                let _ = left.recv();
                drop(borrower);
                ready.send(gettid()).unwrap();
                let _ = left.recv();
            })
        };
        let thread = joined.recv().unwrap();
        assert_eq!(affinity(thread), one);
        borrowers.lend(second);
        assert_eq!(affinity(thread), both);
        assert_eq!(*borrowers.lent().borrow(), 1);
        borrowers.reclaim(second).unwrap();
        assert_eq!(affinity(thread), one);
        assert_eq!(*borrowers.lent().borrow(), 0);
        // A late worker gets the same affinity.
        borrowers.lend(second);
        let late = std::thread::spawn({
            let borrowers = borrowers.clone();
            move || {
                let _borrower = borrowers.join();
                affinity(gettid())
            }
        });
        assert_eq!(late.join().unwrap(), both);
        // A worker that has left is not moved any more.
        leave.send(()).unwrap();
        joined.recv().unwrap();
        borrowers.reclaim(second).unwrap();
        assert_eq!(affinity(thread), both);
        assert_eq!(allowed(None).unwrap(), before);
        drop(leave);
        worker.join().unwrap();
    }

    #[test]
    fn a_cpu_that_is_not_ours_is_never_lent() {
        let Some(first) = allowed(None).unwrap().iter().next() else {
            eprintln!("SKIP: the system does not say which CPUs there are");
            return;
        };
        let one = cpus(&[first]);
        let borrowers = Arc::new(Borrowers::new(one, one));
        let worker = std::thread::spawn({
            let borrowers = borrowers.clone();
            move || {
                let _borrower = borrowers.join();
                borrowers.lend(first + 1);
                let lent = affinity(gettid());
                borrowers.reclaim(first + 1).unwrap();
                lent
            }
        });
        assert_eq!(worker.join().unwrap(), one);
    }

    #[test]
    fn a_worker_that_cannot_be_moved_away_is_a_failure() {
        // Its only CPU is the lent one.
        let Some(only) = allowed(None).unwrap().iter().next() else {
            eprintln!("SKIP: the system does not say which CPUs there are");
            return;
        };
        let borrowers = Arc::new(Borrowers::new(Cpus::default(), cpus(&[only])));
        let taken = std::thread::spawn({
            let borrowers = borrowers.clone();
            move || {
                borrowers.lend(only);
                let _borrower = borrowers.join();
                borrowers.reclaim(only)
            }
        });
        let error = taken.join().unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::INVAL.raw_os_error()));
    }

    fn affinity(thread: Pid) -> Cpus {
        allowed(Some(thread)).unwrap()
    }

    fn cpus(numbers: &[usize]) -> Cpus {
        numbers.iter().copied().collect()
    }
}
