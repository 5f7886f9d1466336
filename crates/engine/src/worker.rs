//! The event loop's side of an engine: submit jobs, turn to run passes.

use std::cell::{Cell, RefCell};
use std::fmt;

use widelane_batching::{self as batching, Idle, Placement};
use widelane_crypto::Request;

use crate::engine::Engine;
use crate::error::{JobError, SubmitError};
use crate::line::{AnyGatherer, Gatherer, ReadyPass};
use crate::slot::Ticket;

/// One event-loop thread's access to an engine.
///
/// With inline placement it gathers this thread's jobs, and [`turn`](Self::turn) runs their passes.
/// With vector cores, jobs go to the shared queues at once and `turn` has nothing to do. Jobs that
/// still wait when the worker is dropped end with [`JobError::ShutDown`].
pub struct Worker {
    engine: Engine,
    local: RefCell<Local>,
    submitted: Cell<u64>,
    /// Index of the line of the last pass, and its jobs.
    last_pass: Cell<Option<(usize, usize)>>,
}

/// The gathered jobs. Both lists have the indices of the engine's lines.
struct Local {
    waiting: Vec<batching::Waiting>,
    gatherers: Vec<Box<dyn AnyGatherer>>,
    /// Jobs in all gatherers: callers often ask whether any job is left.
    jobs: usize,
}

impl Local {
    /// Updates the figures of a gatherer that has changed.
    fn look_at(&mut self, index: usize) {
        let now = self.gatherers[index].waiting();
        self.jobs = self.jobs - self.waiting[index].jobs + now.jobs;
        self.waiting[index] = now;
    }
}

impl Engine {
    /// A new worker, for one event-loop thread.
    pub fn worker(&self) -> Worker {
        Worker::new(self.clone())
    }
}

impl Worker {
    fn new(engine: Engine) -> Self {
        let gatherers: Vec<_> = engine.gatherers();
        let waiting = gatherers.iter().map(|gatherer| gatherer.waiting()).collect();
        let local = RefCell::new(Local {
            waiting,
            gatherers,
            jobs: 0,
        });
        Self {
            engine,
            local,
            submitted: Cell::new(0),
            last_pass: Cell::new(None),
        }
    }

    /// The engine this worker belongs to.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Submits a job. Never runs a kernel.
    ///
    /// # Errors
    ///
    /// When the queue is full, the engine has been shut down or serves no such request.
    pub fn submit<R: Request>(&self, request: R) -> Result<Ticket<R::Output>, SubmitError> {
        let ticket = match self.engine.placement() {
            Placement::Inline => self.gather(request)?,
            Placement::VectorCores(_) => self.engine.enqueue(request)?,
        };
        self.submitted.set(self.submitted.get() + 1);
        Ok(ticket)
    }

    /// Runs at most one pass on the caller's stack and returns how many jobs it carried.
    ///
    /// With [`Idle::No`] it runs only a pass that need not wait: a full pass, or one with a job
    /// that too many later jobs have overtaken. Call it after each submission. With [`Idle::Yes`]
    /// it runs any pass. Call it when there is nothing else to do, and look at the sockets between
    /// two calls, so that answers leave and new jobs arrive. `turn(Idle::Yes)` returns 0 only when
    /// no job waits, so `while worker.turn(Idle::Yes) > 0 {}` runs all of them.
    ///
    /// Always 0 with vector cores.
    pub fn turn(&self, idle: Idle) -> usize {
        // Nothing is borrowed while the pass runs and wakes tasks: a waker may submit jobs.
        self.next_pass(idle).map_or(0, |pass| pass())
    }

    /// Returns whether no other job could share a pass with a new one: no job waits here, and `others`, the
    /// number of tasks that may submit soon, is 0. Run such a job with [`Engine::run_at_once`].
    /// Always false with vector cores, because this thread must not run passes then; always true while lanes
    /// are [switched off](crate::Switch).
    pub fn is_quiet(&self, others: usize) -> bool {
        let inline = matches!(self.engine.placement(), Placement::Inline);
        self.engine.is_off() || inline && batching::quiet(self.waiting(), others)
    }

    /// Turns until the job of `ticket` has ended, on this thread or another.
    ///
    /// # Errors
    ///
    /// Those of the job.
    pub fn wait<T>(&self, mut ticket: Ticket<T>) -> Result<T, JobError> {
        loop {
            if let Some(result) = ticket.try_take() {
                return result;
            }
            if self.turn(Idle::Yes) == 0 {
                return ticket.wait();
            }
        }
    }

    /// Jobs gathered by this worker and not yet run; 0 with vector cores.
    pub fn waiting(&self) -> usize {
        self.local.borrow().jobs
    }

    /// Jobs accepted so far. If the number has not changed, no new job has come.
    pub fn submitted(&self) -> u64 {
        self.submitted.get()
    }

    /// Nanoseconds that the last pass saved beside the same jobs each run at once, by the measured costs. `None` if
    /// these are not known.
    pub fn saved(&self) -> Option<u64> {
        match self.last_pass.get() {
            Some((index, jobs)) => self.local.borrow().gatherers[index].saving(jobs),
            None => Some(0),
        }
    }

    fn gather<R: Request>(&self, request: R) -> Result<Ticket<R::Output>, SubmitError> {
        let (index, line) = self.engine.route(&request)?;
        let limit = self.engine.queue_limit();
        let local = &mut *self.local.borrow_mut();
        if !batching::admit(local.waiting[*index].jobs, limit) {
            return Err(line.overloaded(limit));
        }
        let gatherer = &mut local.gatherers[*index];
        let (ticket, job) = line.job(request);
        let typed = gatherer.as_any().downcast_mut::<Gatherer<R>>();
        typed
            .expect("gatherers have the indices of the lines")
            .push(self.submitted.get(), job);
        local.look_at(*index);
        Ok(ticket)
    }

    fn next_pass(&self, idle: Idle) -> Option<ReadyPass> {
        // Dropped after the borrow ends: dropping a cancelled job may submit another one.
        let mut unwanted = Vec::new();
        let local = &mut *self.local.borrow_mut();
        while local.jobs > 0 {
            let pass = batching::next_pass(&local.waiting, idle, self.submitted.get())?;
            let gatherer = &mut local.gatherers[pass.operation];
            let pruned = gatherer.prune(pass.jobs);
            let ready = match pruned {
                None => {
                    self.last_pass.set(Some((pass.operation, pass.jobs)));
                    Some(gatherer.take(0, pass.jobs))
                }
                Some(_) => None,
            };
            local.look_at(pass.operation);
            if ready.is_some() {
                return ready;
            }
            // The cancelled jobs are removed: decide again by those that are left.
            unwanted.extend(pruned);
        }
        None
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("submitted", &self.submitted())
            .finish_non_exhaustive()
    }
}
