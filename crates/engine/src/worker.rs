//! The event loop's side of an engine: submit jobs, turn to run passes.

use std::cell::{Cell, RefCell};
use std::fmt;

use widelane_batching as batching;

use crate::engine::Engine;
use crate::line::{AnyGatherer, Gatherer, Job, ReadyPass};
use crate::{Idle, JobError, Placement, Request, SubmitError, Ticket};

/// One event-loop thread's access to an engine.
///
/// With inline placement it gathers this thread's jobs, and [`turn`](Self::turn) runs their passes.
/// With vector cores jobs go straight to the shared queues and there is nothing to turn.
/// Jobs that still wait when the worker is dropped end with [`JobError::ShutDown`].
pub struct Worker {
    engine: Engine,
    local: RefCell<Local>,
    submitted: Cell<u64>,
}

/// What has been gathered. Both lists are indexed as the engine's lines are.
struct Local {
    waiting: Vec<batching::Waiting>,
    gatherers: Vec<Box<dyn AnyGatherer>>,
    /// Jobs in all of them: callers ask often whether anything is left.
    jobs: usize,
}

impl Local {
    /// Takes note of what a gatherer holds now.
    fn look_at(&mut self, index: usize) {
        let now = self.gatherers[index].waiting();
        self.jobs = self.jobs - self.waiting[index].jobs + now.jobs;
        self.waiting[index] = now;
    }
}

impl Worker {
    pub(crate) fn new(engine: Engine) -> Self {
        let gatherers: Vec<_> = engine.gatherers();
        let waiting = gatherers
            .iter()
            .map(|gatherer| gatherer.waiting())
            .collect();
        let local = RefCell::new(Local {
            waiting,
            gatherers,
            jobs: 0,
        });
        Self {
            engine,
            local,
            submitted: Cell::new(0),
        }
    }

    /// The engine this worker belongs to.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Hands in a job. Never runs a kernel.
    ///
    /// # Errors
    ///
    /// When the queue is full, the engine has been shut down or serves no such request.
    pub fn submit<R: Request>(&self, request: R) -> Result<Ticket<R::Output>, SubmitError> {
        let ticket = match self.engine.placement() {
            Placement::Inline | Placement::Auto { .. } => self.gather(request)?,
            Placement::VectorCores { .. } => self.engine.enqueue(request)?,
        };
        self.submitted.set(self.submitted.get() + 1);
        Ok(ticket)
    }

    /// Runs at most one pass on the caller's stack and returns how many jobs it carried.
    ///
    /// With [`Idle::No`] that is a pass which need not wait for company: a full one, or one that
    /// too many jobs have overtaken. Call it so after each submission. With [`Idle::Yes`] it is
    /// any pass: call it so when there is nothing else to do, and look at the sockets between two
    /// calls, so that answers leave and new jobs join. `turn(Idle::Yes)` returns 0 only when
    /// nothing waits any more, so `while worker.turn(Idle::Yes) > 0 {}` runs everything.
    ///
    /// Always 0 with vector cores.
    pub fn turn(&self, idle: Idle) -> usize {
        // The pass runs, and wakes tasks, with nothing borrowed: a waker may submit.
        self.next_pass(idle).map_or(0, |pass| pass())
    }

    /// Whether a job would find nobody to share a pass with: nothing waits here, and none of
    /// `others`, who may submit soon, is left. Such a job is best run with
    /// [`Engine::run_at_once`]. Never with vector cores, which are there to keep passes away from
    /// this thread.
    pub fn is_quiet(&self, others: usize) -> bool {
        let inline = matches!(self.engine.placement(), Placement::Inline);
        inline && batching::quiet(self.waiting(), others)
    }

    /// Turns until the job behind `ticket` has ended, whoever runs it.
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

    /// Jobs accepted so far: unchanged since the last look means that nothing new came.
    pub fn submitted(&self) -> u64 {
        self.submitted.get()
    }

    fn gather<R: Request>(&self, request: R) -> Result<Ticket<R::Output>, SubmitError> {
        let (index, line) = self.engine.route(&request)?;
        let limit = self.engine.queue_limit();
        let local = &mut *self.local.borrow_mut();
        if !batching::admit(local.waiting[*index].jobs, limit) {
            return Err(line.overloaded(limit));
        }
        let gatherer = &mut local.gatherers[*index];
        let (ticket, job) = Job::new(request);
        let typed = gatherer.as_any().downcast_mut::<Gatherer<R>>();
        typed
            .expect("gatherers are indexed as lines are")
            .push(self.submitted.get(), job);
        local.look_at(*index);
        Ok(ticket)
    }

    fn next_pass(&self, idle: Idle) -> Option<ReadyPass> {
        // Outlives the borrow: whatever cancelled jobs own may submit as it is dropped.
        let mut unwanted = Vec::new();
        let local = &mut *self.local.borrow_mut();
        while local.jobs > 0 {
            let pass = batching::next_pass(&local.waiting, idle, self.submitted.get())?;
            let gatherer = &mut local.gatherers[pass.operation];
            let pruned = gatherer.prune(pass.jobs);
            let ready = match pruned {
                None => Some(gatherer.take(0, pass.jobs)),
                Some(_) => None,
            };
            local.look_at(pass.operation);
            if ready.is_some() {
                return ready;
            }
            // Cancelled jobs are out of the way: decide again by what is really there.
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
