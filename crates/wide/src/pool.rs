//! The threads behind [`Form::Pool`](crate::Form::Pool), each pinned to one CPU.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, getpid};
use rustix::thread::sched_getcpu;
use widelane_affinity::{Cpus, pin, without_signals};

use crate::error::StartError;
use crate::job::{Job, lend};
use crate::line::Line;
use crate::nested::never_leaves;

/// Vector cores that run jobs. Dropping it ends their threads.
pub(crate) struct Pool {
    line: Arc<Line<Job>>,
    threads: Vec<JoinHandle<()>>,
    cpus: Cpus,
    /// The process of the threads: a forked child has the memory, but not the threads.
    process: Pid,
    caller_spin: Duration,
}

impl Pool {
    /// Starts a thread for each CPU, and returns when they are pinned.
    pub(crate) fn start(cpus: Cpus, vector_spin: Duration, caller_spin: Duration) -> Result<Self, StartError> {
        let mut pool = Self {
            line: Arc::new(Line::new()),
            threads: Vec::new(),
            cpus,
            process: getpid(),
            caller_spin,
        };
        for cpu in cpus.iter() {
            // If this fails, dropping the pool ends the threads that run already.
            pool.threads.push(start(cpu, vector_spin, Arc::clone(&pool.line))?);
        }
        Ok(pool)
    }

    /// Returns whether the threads are in this process.
    pub(crate) fn is_here(&self) -> bool {
        self.process == getpid()
    }

    /// Runs a closure on one of the vector cores. The pool must [be here](Self::is_here).
    pub(crate) fn run<R: Send>(&self, closure: impl FnOnce() -> R + Send) -> R {
        // A caller that spins on a vector core would block the thread that it waits for.
        let patience = match self.cpus.has(sched_getcpu()) {
            true => Duration::ZERO,
            false => self.caller_spin,
        };
        lend(closure, patience, |job| self.line.push(job))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Callers borrow the pool, so now there are no callers and no jobs.
        let threads = std::mem::take(&mut self.threads);
        if self.is_here() {
            self.line.close();
            for thread in threads {
                // The thread does not panic; if it did, the thread that drops the pool could do nothing.
                let _ = thread.join();
            }
        } else {
            // A thread that does not exist here may have held the lock.
            std::mem::forget(threads);
        }
    }
}

fn start(cpu: usize, spin: Duration, line: Arc<Line<Job>>) -> Result<JoinHandle<()>, StartError> {
    let spawn_error = |source| StartError::Spawn { cpu, source };
    let (report, pinned) = sync_channel(1);
    let serve = move || {
        let result = pin(cpu);
        let failed = result.is_err();
        // The starter waits for this message, so the channel is open.
        let _ = report.send(result);
        if !failed {
            never_leaves();
            while let Some(job) = line.take(spin) {
                job.run();
            }
        }
    };
    let thread = Builder::new().name(format!("wide-{cpu}")).stack_size(STACK);
    let thread = without_signals(|| thread.spawn(serve)).map_err(spawn_error)?;
    match pinned.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(source)) => Err(StartError::Unusable { cpu, source }),
        Err(_) => Err(spawn_error(std::io::Error::other("it died at once"))),
    }
}

/// Size of a stack, that of a main thread: code that runs in place must not overflow in the pool. Only the used part
/// takes memory.
const STACK: usize = 8 << 20;
