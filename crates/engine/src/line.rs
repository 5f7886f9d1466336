//! One operation inside an engine: how its jobs are collected, run and counted.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use widelane_batching::{self as batching, Width};

use crate::counters::Counters;
use crate::queue::Queue;
use crate::slot::{self, Reply, Ticket};
use crate::{JobError, Operation, OperationCounters, Request, SubmitError};

/// One operation, its counters and, for vector cores, the queue that all workers share.
pub(crate) struct Line<R: Request> {
    operation: Box<dyn Operation<Request = R>>,
    name: &'static str,
    lanes: usize,
    counters: Counters,
    queue: Option<Queue<Job<R>>>,
}

/// A request on its way, with the duty to answer it.
pub(crate) struct Job<R: Request> {
    request: R,
    reply: Reply<R::Output>,
    since: Instant,
}

impl<R: Request> Job<R> {
    pub(crate) fn new(request: R) -> (Ticket<R::Output>, Self) {
        let (ticket, reply) = slot::pair();
        (
            ticket,
            Self {
                request,
                reply,
                since: Instant::now(),
            },
        )
    }
}

/// The jobs that one pass carries.
struct Batch<R: Request> {
    requests: Vec<R>,
    replies: Vec<Reply<R::Output>>,
    /// When the first job was submitted.
    since: Option<Instant>,
    /// By how much later the others were, summed.
    later: Duration,
    /// Cancelled jobs met on the way. Dropping them runs foreign code, so it is left to the pass.
    unwanted: Vec<Job<R>>,
}

impl<R: Request> Batch<R> {
    fn new(capacity: usize) -> Self {
        Self {
            requests: Vec::with_capacity(capacity),
            replies: Vec::with_capacity(capacity),
            since: None,
            later: Duration::ZERO,
            unwanted: Vec::new(),
        }
    }

    fn add(&mut self, job: Job<R>) {
        let since = *self.since.get_or_insert(job.since);
        self.later += job.since.saturating_duration_since(since);
        self.requests.push(job.request);
        self.replies.push(job.reply);
    }

    /// How long the jobs have waited until `now`, summed.
    fn queued(&self, now: Instant) -> Duration {
        let jobs = u32::try_from(self.requests.len()).unwrap_or(u32::MAX);
        let since = self.since.unwrap_or(now);
        (now.saturating_duration_since(since) * jobs).saturating_sub(self.later)
    }
}

impl<R: Request> Line<R> {
    pub(crate) fn new(
        operation: impl Operation<Request = R>,
        queue_capacity: Option<usize>,
    ) -> Self {
        let lanes = operation.lanes().max(1);
        Self {
            name: operation.name(),
            operation: Box::new(operation),
            lanes,
            counters: Counters::new(lanes),
            queue: queue_capacity.map(Queue::new),
        }
    }

    pub(crate) fn takes(&self, request: &R) -> bool {
        self.operation.takes(request)
    }

    /// Counts a refusal and words it.
    pub(crate) fn overloaded(&self, limit: usize) -> SubmitError {
        self.counters.rejected();
        SubmitError::Overloaded {
            operation: self.name,
            limit,
        }
    }

    /// Hands a job to the vector cores.
    pub(crate) fn enqueue(&self, job: Job<R>, limit: usize) -> Result<(), SubmitError> {
        let queue = self
            .queue
            .as_ref()
            .expect("vector cores start with a queue a line");
        if !batching::admit(queue.len(), limit) {
            return Err(self.overloaded(limit));
        }
        queue.push(job).map_err(|_refused| self.overloaded(limit))
    }

    /// The fewest jobs that are worth a pass, for the moment.
    pub(crate) fn worth(&self) -> usize {
        self.operation.worth()
    }

    /// Answers jobs in a pass, or one by one if they are not worth it; returns how many there were.
    fn run(&self, batch: Batch<R>) -> usize {
        self.counters.cancelled(batch.unwanted.len());
        let jobs = batch.requests.len();
        if jobs == 0 {
            return 0;
        }
        let started = Instant::now();
        self.counters.queued(batch.queued(started));
        let Batch {
            requests, replies, ..
        } = batch;
        if !self.is_worth_a_pass(&requests) {
            let mut started = started;
            for (reply, request) in replies.into_iter().zip(&requests) {
                reply.complete(self.run_one(request, started));
                started = Instant::now();
            }
            return jobs;
        }
        let width = self.operation.width(jobs);
        let outputs = self.attempt(&requests, width);
        self.counters.pass(jobs, width, started.elapsed());
        match outputs {
            Some(outputs) => {
                self.counters.answered(jobs);
                for (reply, output) in replies.into_iter().zip(outputs) {
                    reply.complete(Ok(output));
                }
            }
            None => {
                tracing::error!(operation = self.name, jobs, "a pass panicked");
                for (reply, request) in replies.into_iter().zip(&requests) {
                    // With company, each job gets a pass of its own to show whose fault it was.
                    let output = if jobs > 1 {
                        self.attempt_one(request, width)
                    } else {
                        None
                    };
                    reply.complete(self.judge(output));
                }
            }
        }
        jobs
    }

    /// Runs one gathered job and answers it; with a tiny job, lists of one would show in its time.
    fn run_job(&self, job: Job<R>) -> usize {
        let started = Instant::now();
        self.counters
            .queued(started.saturating_duration_since(job.since));
        job.reply.complete(self.run_one(&job.request, started));
        1
    }

    /// Runs one job that nobody could join.
    pub(crate) fn run_at_once(&self, request: &R) -> Result<R::Output, JobError> {
        self.counters.at_once();
        self.run_now(request)
    }

    /// Runs one job on the spot, whichever way is cheaper.
    pub(crate) fn run_now(&self, request: &R) -> Result<R::Output, JobError> {
        self.run_one(request, Instant::now())
    }

    fn run_one(&self, request: &R, started: Instant) -> Result<R::Output, JobError> {
        let output = if self.is_worth_a_pass(std::slice::from_ref(request)) {
            let width = self.operation.width(1);
            let output = self.attempt_one(request, width);
            self.counters.pass(1, width, started.elapsed());
            output
        } else {
            let run = AssertUnwindSafe(|| self.operation.run_alone(request));
            let output = catch_unwind(run).ok();
            self.counters.alone(started.elapsed());
            output
        };
        self.judge(output)
    }

    fn is_worth_a_pass(&self, requests: &[R]) -> bool {
        let needs_lanes = |request| self.operation.needs_lanes(request);
        requests.len() >= self.worth() || requests.iter().any(needs_lanes)
    }

    /// Counts a job that is about to be dropped without having run.
    fn unrun(&self, job: &Job<R>) {
        if job.reply.is_wanted() {
            self.counters.shut_down(1);
        } else {
            self.counters.cancelled(1);
        }
    }

    fn judge(&self, output: Option<R::Output>) -> Result<R::Output, JobError> {
        match output {
            Some(output) => {
                self.counters.answered(1);
                Ok(output)
            }
            None => {
                tracing::error!(operation = self.name, "a job panicked");
                self.counters.panicked();
                Err(JobError::Panicked {
                    operation: self.name,
                })
            }
        }
    }

    fn attempt_one(&self, request: &R, width: Width) -> Option<R::Output> {
        self.attempt(std::slice::from_ref(request), width)
            .and_then(|mut outputs| outputs.pop())
    }

    /// Runs the operation; `None` if it panicked, or answered with the wrong number of outputs,
    /// which would mix up whose output is whose.
    fn attempt(&self, requests: &[R], width: Width) -> Option<Vec<R::Output>> {
        let run = AssertUnwindSafe(|| {
            let outputs = self.operation.run_in(width, requests);
            assert_eq!(
                outputs.len(),
                requests.len(),
                "{}: one output a request",
                self.name
            );
            outputs
        });
        catch_unwind(run).ok()
    }
}

/// A [`Line`] whatever it works on.
pub(crate) trait AnyLine: Send + Sync {
    fn name(&self) -> &'static str;
    fn lanes(&self) -> usize;
    fn worth(&self) -> usize;
    fn calibrate(&self);
    fn counters(&self) -> OperationCounters;
    /// An empty gatherer for this operation.
    fn gatherer(self: std::sync::Arc<Self>) -> Box<dyn AnyGatherer>;
    /// Jobs in the queue to the vector cores.
    fn queued(&self) -> usize;
    /// The same, as the policy wants to know it; the queue does not tell since when they wait.
    fn waiting(&self) -> batching::Waiting {
        batching::Waiting {
            lanes: self.lanes(),
            worth: self.worth(),
            jobs: self.queued(),
            oldest: 0,
        }
    }
    /// Takes a pass of up to `jobs` jobs from the queue to the vector cores. If all that were left
    /// have been cancelled, the pass only clears them away.
    fn take_queued(self: std::sync::Arc<Self>, jobs: usize) -> Option<ReadyPass>;
    /// Answers what is left in the queue to the vector cores with [`JobError::ShutDown`].
    fn drain(&self);
}

impl<R: Request> AnyLine for Line<R> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lanes(&self) -> usize {
        self.lanes
    }

    fn worth(&self) -> usize {
        self.worth()
    }

    fn calibrate(&self) {
        self.operation.calibrate();
    }

    fn counters(&self) -> OperationCounters {
        self.counters.snapshot(self.name)
    }

    fn gatherer(self: std::sync::Arc<Self>) -> Box<dyn AnyGatherer> {
        Box::new(Gatherer {
            line: self,
            jobs: VecDeque::new(),
        })
    }

    fn queued(&self) -> usize {
        self.queue.as_ref().map_or(0, Queue::len)
    }

    fn take_queued(self: std::sync::Arc<Self>, jobs: usize) -> Option<ReadyPass> {
        let queue = self.queue.as_ref()?;
        let mut batch = Batch::new(jobs);
        while batch.requests.len() < jobs {
            match queue.pop() {
                Some(job) if job.reply.is_wanted() => batch.add(job),
                Some(job) => batch.unwanted.push(job),
                None => break,
            }
        }
        let found = batch.requests.len() + batch.unwanted.len() > 0;
        found.then(|| Box::new(move || self.run(batch)) as ReadyPass)
    }

    fn drain(&self) {
        while let Some(job) = self.queue.as_ref().and_then(Queue::pop) {
            self.unrun(&job);
        }
    }
}

/// Jobs of one operation that wait at one place for their pass, oldest first.
pub(crate) struct Gatherer<R: Request> {
    line: std::sync::Arc<Line<R>>,
    /// Each with its sequence number at this place.
    jobs: VecDeque<(u64, Job<R>)>,
}

impl<R: Request> Gatherer<R> {
    pub(crate) fn push(&mut self, sequence: u64, job: Job<R>) {
        self.jobs.push_back((sequence, job));
    }
}

impl<R: Request> Drop for Gatherer<R> {
    fn drop(&mut self) {
        for (_, job) in &self.jobs {
            self.line.unrun(job);
        }
    }
}

/// A [`Gatherer`] whatever it holds.
pub(crate) trait AnyGatherer: Send {
    fn as_any(&mut self) -> &mut dyn Any;
    /// What the policy needs to know.
    fn waiting(&self) -> batching::Waiting;
    /// Removes cancelled jobs among the first `jobs`, so that they do not count towards a full
    /// pass. They are the caller's to drop, which runs foreign code.
    fn prune(&mut self, jobs: usize) -> Option<Box<dyn Any>>;
    /// Takes a pass of the `jobs` jobs from place `first` on, to be run without the gatherer.
    fn take(&mut self, first: usize, jobs: usize) -> ReadyPass;
}

/// A pass that only needs to be called; returns the number of jobs it carried.
pub(crate) type ReadyPass = Box<dyn FnOnce() -> usize>;

impl<R: Request> AnyGatherer for Gatherer<R> {
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn waiting(&self) -> batching::Waiting {
        batching::Waiting {
            lanes: self.line.lanes,
            worth: self.line.worth(),
            jobs: self.jobs.len(),
            oldest: self.jobs.front().map_or(0, |(sequence, _)| *sequence),
        }
    }

    fn prune(&mut self, jobs: usize) -> Option<Box<dyn Any>> {
        let mut unwanted = Vec::new();
        let mut index = 0;
        while index < jobs.min(self.jobs.len()) {
            if self.jobs[index].1.reply.is_wanted() {
                index += 1;
            } else {
                unwanted.extend(self.jobs.remove(index));
            }
        }
        self.line.counters.cancelled(unwanted.len());
        (!unwanted.is_empty()).then(|| Box::new(unwanted) as Box<dyn Any>)
    }

    fn take(&mut self, first: usize, jobs: usize) -> ReadyPass {
        let line = std::sync::Arc::clone(&self.line);
        if jobs == 1
            && let Some((_, job)) = self.jobs.remove(first)
        {
            return Box::new(move || line.run_job(job));
        }
        let mut batch = Batch::new(jobs);
        for (_, job) in self.jobs.drain(first..first + jobs) {
            batch.add(job);
        }
        Box::new(move || line.run(batch))
    }
}
