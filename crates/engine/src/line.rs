//! One operation inside an engine: how its jobs are collected, run and counted.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use widelane_batching as batching;

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
pub(crate) struct Batch<R: Request> {
    requests: Vec<R>,
    replies: Vec<Reply<R::Output>>,
    since: Vec<Instant>,
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

    /// Collects up to `jobs` jobs that are still wanted from `next`, and drops the others.
    pub(crate) fn collect(
        &self,
        jobs: usize,
        mut next: impl FnMut() -> Option<Job<R>>,
    ) -> Option<Batch<R>> {
        let mut batch = Batch {
            requests: Vec::with_capacity(jobs),
            replies: Vec::with_capacity(jobs),
            since: Vec::with_capacity(jobs),
        };
        let mut cancelled = 0;
        while batch.requests.len() < jobs {
            let Some(job) = next() else { break };
            if job.reply.is_wanted() {
                batch.requests.push(job.request);
                batch.replies.push(job.reply);
                batch.since.push(job.since);
            } else {
                cancelled += 1;
            }
        }
        self.counters.cancelled(cancelled);
        (!batch.requests.is_empty()).then_some(batch)
    }

    /// Runs a pass and answers its jobs; returns how many there were.
    pub(crate) fn run(&self, batch: Batch<R>) -> usize {
        let Batch {
            requests,
            replies,
            since,
        } = batch;
        let jobs = requests.len();
        let started = Instant::now();
        let outputs = self.attempt(&requests);
        let queued = since
            .iter()
            .map(|since| started.saturating_duration_since(*since))
            .sum();
        self.counters.pass(jobs, queued, started.elapsed());
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
                        self.attempt_one(request)
                    } else {
                        None
                    };
                    reply.complete(self.judge(output));
                }
            }
        }
        jobs
    }

    /// Runs one job on the spot.
    pub(crate) fn run_alone(&self, request: R) -> Result<R::Output, JobError> {
        let started = Instant::now();
        let output = self.attempt_one(&request);
        self.counters.pass(1, Duration::ZERO, started.elapsed());
        self.judge(output)
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
                self.counters.panicked();
                Err(JobError::Panicked {
                    operation: self.name,
                })
            }
        }
    }

    fn attempt_one(&self, request: &R) -> Option<R::Output> {
        self.attempt(std::slice::from_ref(request))
            .and_then(|mut outputs| outputs.pop())
    }

    /// Runs the operation; `None` if it panicked, or answered with the wrong number of outputs,
    /// which would mix up whose output is whose.
    fn attempt(&self, requests: &[R]) -> Option<Vec<R::Output>> {
        let run = AssertUnwindSafe(|| {
            let outputs = self.operation.run(requests);
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
    fn counters(&self) -> OperationCounters;
    /// An empty gatherer for this operation.
    fn gatherer(self: std::sync::Arc<Self>) -> Box<dyn AnyGatherer>;
    /// Jobs in the queue to the vector cores.
    fn queued(&self) -> usize;
    /// Takes a pass of up to `jobs` jobs from the queue to the vector cores.
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
        let batch = self.collect(jobs, || self.queue.as_ref().and_then(Queue::pop))?;
        Some(Box::new(move || self.run(batch)))
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
    /// Drops cancelled jobs among the next `jobs`, so that they do not count towards a full pass;
    /// returns whether there were any.
    fn prune(&mut self, jobs: usize) -> bool;
    /// Takes a pass of the `jobs` jobs from place `first` on, to be run without the gatherer. It
    /// may carry fewer, or be none at all, if jobs have just been cancelled.
    fn take(&mut self, first: usize, jobs: usize) -> Option<ReadyPass>;
}

/// A pass that only needs to be called; returns the number of jobs it answered.
pub(crate) type ReadyPass = Box<dyn FnOnce() -> usize>;

impl<R: Request> AnyGatherer for Gatherer<R> {
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn waiting(&self) -> batching::Waiting {
        batching::Waiting {
            lanes: self.line.lanes,
            jobs: self.jobs.len(),
            oldest: self.jobs.front().map_or(0, |(sequence, _)| *sequence),
        }
    }

    fn prune(&mut self, jobs: usize) -> bool {
        let before = self.jobs.len();
        let mut index = 0;
        while index < jobs.min(self.jobs.len()) {
            if self.jobs[index].1.reply.is_wanted() {
                index += 1;
            } else {
                self.jobs.remove(index);
            }
        }
        let cancelled = before - self.jobs.len();
        self.line.counters.cancelled(cancelled);
        cancelled > 0
    }

    fn take(&mut self, first: usize, jobs: usize) -> Option<ReadyPass> {
        let line = std::sync::Arc::clone(&self.line);
        let mut taken = self.jobs.drain(first..first + jobs).map(|(_, job)| job);
        let batch = line.collect(jobs, || taken.next())?;
        Some(Box::new(move || line.run(batch)))
    }
}
