//! One operation inside an engine: how its jobs are collected, run and counted, what they cost,
//! and how wide their passes are.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use widelane_batching::{self as batching, Clock, NEVER, Width};
use widelane_crypto::{Backend, Operation, Request};
use widelane_probes::{operations, sites};
use widelane_status::Totals;

use crate::background;
use crate::calibration;
use crate::core;
use crate::cost::{self, CostModel};
use crate::counters::{Counters, OperationCounters};
use crate::error::{JobError, SubmitError};
use crate::queue::Queue;
use crate::slot::{self, Reply, Ticket};

/// One operation, its counters and, for vector cores, the queue that all workers share.
pub(crate) struct Line<R: Request> {
    wide: Arc<Variant<R>>,
    narrow: Option<Narrow<R>>,
    /// The fewest jobs that are worth a pass of either width; zero while that is not known.
    worth: AtomicUsize,
    /// The background measurement has been started.
    measuring: AtomicBool,
    /// Requests that were answered before the costs were known.
    answered: AtomicUsize,
    name: &'static str,
    /// Number by which tracers know the operation.
    number: u16,
    lanes: usize,
    counters: Counters,
    queue: Option<Queue<Job<R>>>,
}

/// One way to run an operation, and what it costs.
pub(crate) struct Variant<R: Request> {
    operation: Box<dyn Operation<Request = R>>,
    costs: Arc<CostModel>,
    measured: Option<Measured>,
}

/// Measurements of an operation in this process.
struct Measured {
    backend: Backend,
    /// Holds what passes cost and the method that they use, also where other costs are given.
    model: Arc<CostModel>,
}

/// Narrow form of an operation, and the clock that decides between the two.
struct Narrow<R: Request> {
    variant: Arc<Variant<R>>,
    clock: Clock,
}

impl<R: Request> Variant<R> {
    /// An operation with given costs.
    pub(crate) fn new(operation: impl Operation<Request = R>, costs: Arc<CostModel>) -> Self {
        Self {
            operation: Box::new(operation),
            costs,
            measured: None,
        }
    }

    /// An operation whose requests always run in passes, however few they are.
    pub(crate) fn always(operation: impl Operation<Request = R>) -> Self {
        Self::new(operation, Arc::new(CostModel::fixed(1)))
    }

    /// An operation made for `backend` whose requests always run in lanes if it has any, else one
    /// by one. If there are several methods, the fastest is measured.
    pub(crate) fn without_choice(operation: impl Operation<Request = R>, backend: Backend) -> Self {
        let has_lanes = operation.lanes() > 1;
        let worth = if has_lanes { 1 } else { NEVER };
        let is_choice = has_lanes && operation.methods().len() > 1;
        let measured = is_choice.then(|| Measured::new(&operation, backend));
        Self {
            measured,
            ..Self::new(operation, Arc::new(CostModel::fixed(worth)))
        }
    }

    /// An operation made for `backend`, whose costs are those of this process's
    /// [table](calibration).
    pub(crate) fn measured(operation: impl Operation<Request = R>, backend: Backend) -> Self {
        if operation.lanes() <= 1 {
            return Self::without_choice(operation, backend);
        }
        let measured = Measured::new(&operation, backend);
        let costs = Arc::clone(&measured.model);
        Self {
            measured: Some(measured),
            ..Self::new(operation, costs)
        }
    }

    /// Measures the costs unless they are known or given.
    fn calibrate(&self) {
        if let Some(measured) = &self.measured {
            calibration::table().measure(&*self.operation, measured.backend);
        }
    }

    /// Returns whether there is something left to measure.
    fn is_unmeasured(&self) -> bool {
        let known = |measured: &Measured| measured.model.is_known();
        !self.measured.as_ref().is_none_or(known)
    }

    /// Runs a pass by the fastest method or, now and then, by another one.
    fn pass(&self, requests: &[R]) -> Vec<R::Output> {
        let methods = self.operation.methods();
        let Some(measured) = self.measured.as_ref().filter(|_| methods.len() > 1) else {
            return self.operation.pass(requests);
        };
        let method = measured.model.next_method();
        let started = Instant::now();
        let outputs = self.operation.pass_by(method, requests);
        let taken = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if let Some(other) = measured.model.ran(method, requests.len(), taken) {
            let (name, backend) = (self.operation.name(), measured.backend);
            tracing::info!(operation = name, %backend, method = methods[other], "faster now");
        }
        outputs
    }
}

impl Measured {
    fn new(operation: &impl Operation, backend: Backend) -> Self {
        let (name, lanes) = (operation.name(), operation.lanes());
        Self {
            backend,
            model: calibration::table().model(name, backend, lanes, operation.methods()),
        }
    }
}

/// A request on its way, and the obligation to answer it.
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
    /// Time at which the first job was submitted.
    since: Option<Instant>,
    /// The delays of the other jobs after the first, summed.
    later: Duration,
    /// Cancelled jobs that were taken too. Dropping them runs their owner's code: the pass does it.
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

    /// The waiting times of the jobs until `now`, summed.
    fn queued(&self, now: Instant) -> Duration {
        let jobs = u32::try_from(self.requests.len()).unwrap_or(u32::MAX);
        let since = self.since.unwrap_or(now);
        (now.saturating_duration_since(since) * jobs).saturating_sub(self.later)
    }
}

/// Requests of an operation that a process answers before it measures what they cost: sixteen handshakes.
const BEFORE_MEASUREMENT: usize = 16;

impl<R: Request> Line<R> {
    pub(crate) fn new(variant: Variant<R>, queue_capacity: Option<usize>) -> Self {
        let lanes = variant.operation.lanes().max(1);
        Self {
            name: variant.operation.name(),
            number: operations::number(variant.operation.name()),
            wide: Arc::new(variant),
            narrow: None,
            worth: AtomicUsize::new(0),
            measuring: AtomicBool::new(false),
            answered: AtomicUsize::new(0),
            lanes,
            counters: Counters::new(lanes),
            queue: queue_capacity.map(Queue::new),
        }
    }

    /// Lets each pass run in the narrower registers of `variant` where, by `clock`, that costs the
    /// core less.
    #[must_use]
    pub(crate) fn or_narrow(mut self, variant: Variant<R>, clock: Clock) -> Self {
        if self.lanes > 1 && variant.operation.lanes() > 1 {
            let variant = Arc::new(variant);
            self.narrow = Some(Narrow { variant, clock });
        }
        self
    }

    pub(crate) fn takes(&self, request: &R) -> bool {
        self.wide.operation.takes(request)
    }

    /// Makes a job of a request.
    pub(crate) fn job(&self, request: R) -> (Ticket<R::Output>, Job<R>) {
        let (ticket, job) = Job::new(request);
        sites::job_submitted(job.reply.job(), self.number);
        (ticket, job)
    }

    /// Counts a refusal and returns its error.
    pub(crate) fn overloaded(&self, limit: usize) -> SubmitError {
        self.counters.rejected();
        SubmitError::Overloaded {
            operation: self.name,
            limit,
        }
    }

    /// Hands a job to the vector cores.
    pub(crate) fn enqueue(&self, job: Job<R>, limit: usize) -> Result<(), SubmitError> {
        let queue = self.queue.as_ref().expect("vector cores start with a queue a line");
        if !batching::admit(queue.len(), limit) {
            return Err(self.overloaded(limit));
        }
        queue.push(job).map_err(|_refused| self.overloaded(limit))
    }

    /// The fewest jobs that are worth a pass at the moment.
    pub(crate) fn worth(&self) -> usize {
        let Some(narrow) = &self.narrow else {
            return self.wide.costs.worth();
        };
        let known = self.worth.load(Relaxed);
        if known != 0 {
            return known;
        }
        let models = [&self.wide, &narrow.variant].map(|variant| &variant.costs);
        if !models.iter().all(|model| model.is_known()) {
            return self.wide.costs.worth();
        }
        // Costs stay what they are once they are known.
        let [Some(wide), Some(narrow)] = models.map(|model| model.costs()) else {
            return self.wide.costs.worth();
        };
        let worth = batching::worth_in_either(&wide, &narrow, cost::CLEAR);
        self.worth.store(worth, Relaxed);
        worth
    }

    /// Nanoseconds that a pass of `jobs` jobs saves beside the same jobs each run at once; `None` while the costs
    /// are not known.
    fn saving(&self, jobs: usize) -> Option<u64> {
        let wide = self.wide.costs.costs()?;
        let narrow = match &self.narrow {
            Some(narrow) => narrow.variant.costs.costs()?,
            None => wide,
        };
        Some(batching::saving(&wide, &narrow, self.worth(), jobs))
    }

    /// The registers for a pass of `jobs` jobs that starts now on the calling thread.
    fn width(&self, jobs: usize) -> Width {
        let Some(narrow) = &self.narrow else {
            return Width::Wide;
        };
        let core = core::now();
        match (self.wide.costs.busy(jobs), narrow.variant.costs.busy(jobs)) {
            (Some(in_wide), Some(in_narrow)) => batching::width(&narrow.clock, &core, in_wide, in_narrow),
            // Not known yet: the width that slows other code least.
            _ if core.dedicated || narrow.clock.is_free() => Width::Wide,
            _ => Width::Narrow,
        }
    }

    /// Takes notice of requests. After some, it starts a measurement of the costs in the background, unless
    /// they are known. A process that answers few gains less than the measurement costs: one that
    /// was forked for a single connection, or a client.
    fn measure_if_used(&self, requests: usize) {
        if self.is_unmeasured() {
            let before = self.answered.fetch_add(requests, Relaxed);
            if before + requests >= BEFORE_MEASUREMENT {
                self.measure_once();
            }
        }
    }

    /// Starts a measurement of the costs in the background, unless they are known.
    pub(crate) fn measure_once(&self) {
        if !self.claim_measurement() {
            return;
        }
        let (wide, narrow) = (
            Arc::clone(&self.wide),
            self.narrow.as_ref().map(|narrow| narrow.variant.clone()),
        );
        let calibrate = move || {
            wide.calibrate();
            if let Some(narrow) = narrow {
                narrow.calibrate();
            }
        };
        // Without a thread the guess remains.
        if let Err(error) = background::start(Box::new(calibrate)) {
            tracing::debug!(%error, "no thread to measure {}", self.name);
        }
    }

    fn is_unmeasured(&self) -> bool {
        let narrow = self.narrow.as_ref().map(|narrow| &narrow.variant);
        let mut variants = [Some(&self.wide), narrow].into_iter().flatten();
        variants.any(|variant| variant.is_unmeasured())
    }

    /// Returns whether the caller is to measure the costs: they are not known, and no other thread measures them.
    fn claim_measurement(&self) -> bool {
        self.is_unmeasured() && !self.measuring.swap(true, Relaxed)
    }

    /// Answers jobs in a pass, or one by one if they are not worth a pass; returns their number.
    fn run(&self, batch: Batch<R>) -> usize {
        self.counters.cancelled(batch.unwanted.len());
        let jobs = batch.requests.len();
        if jobs == 0 {
            return 0;
        }
        let started = Instant::now();
        let mut queued = batch.queued(started);
        self.counters.queued(queued);
        let Batch { requests, replies, .. } = batch;
        if !self.is_worth_a_pass(&requests, self.worth()) {
            let mut started = started;
            for (reply, request) in replies.into_iter().zip(&requests) {
                let queued = std::mem::take(&mut queued);
                reply.complete(self.run_one(request, self.worth(), started, queued));
                started = Instant::now();
            }
            return jobs;
        }
        let width = self.width(jobs);
        self.tell_begin(jobs, way(width), queued);
        let outputs = self.attempt(&requests, width);
        self.tell_end(jobs, outputs.is_some());
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
                    // Each job gets its own pass, which shows which of them panics.
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

    /// Runs one gathered job and answers it. Lists with one entry would slow down a short job.
    fn run_job(&self, job: Job<R>) -> usize {
        let started = Instant::now();
        let queued = started.saturating_duration_since(job.since);
        self.counters.queued(queued);
        let result = self.run_one(&job.request, self.worth(), started, queued);
        job.reply.complete(result);
        1
    }

    /// Runs one job at once, because no other job could share its pass, or lanes are switched off.
    pub(crate) fn run_at_once(&self, request: &R, is_off: bool) -> Result<R::Output, JobError> {
        self.counters.at_once();
        let worth = if is_off { NEVER } else { self.worth() };
        self.run_with(request, worth)
    }

    /// Runs one job now, in the cheaper way.
    pub(crate) fn run_now(&self, request: &R) -> Result<R::Output, JobError> {
        self.run_with(request, self.worth())
    }

    /// Runs one job now, in a pass if that needs no more jobs than one.
    fn run_with(&self, request: &R, worth: usize) -> Result<R::Output, JobError> {
        let job = std::ptr::from_ref(request).addr();
        sites::job_submitted(job, self.number);
        let result = self.run_one(request, worth, Instant::now(), Duration::ZERO);
        sites::job_done(job, slot::ended(&result));
        result
    }

    fn run_one(&self, request: &R, worth: usize, started: Instant, queued: Duration) -> Result<R::Output, JobError> {
        let output = if self.is_worth_a_pass(std::slice::from_ref(request), worth) {
            let width = self.width(1);
            self.tell_begin(1, way(width), queued);
            let output = self.attempt_one(request, width);
            self.tell_end(1, output.is_some());
            self.counters.pass(1, width, started.elapsed());
            output
        } else {
            self.measure_if_used(1);
            let run = AssertUnwindSafe(|| self.wide.operation.alone(request));
            self.tell_begin(1, ALONE, queued);
            let output = catch_unwind(run).ok();
            self.tell_end(1, output.is_some());
            self.counters.alone(started.elapsed());
            output
        };
        self.judge(output)
    }

    fn tell_begin(&self, jobs: usize, way: u8, queued: Duration) {
        // In 584 years of waiting there is no more room for them.
        sites::pass_begun(self.number, jobs, self.lanes, way, queued.as_nanos() as u64);
    }

    fn tell_end(&self, jobs: usize, succeeded: bool) {
        sites::pass_ended(self.number, jobs, succeeded);
    }

    fn is_worth_a_pass(&self, requests: &[R], worth: usize) -> bool {
        let needs_lanes = |request| self.wide.operation.needs_lanes(request);
        let any_needs_lanes = || requests.iter().any(needs_lanes);
        // After a panic the jobs run one by one, where a second panic is assigned to its job.
        requests.len() >= worth || catch_unwind(AssertUnwindSafe(any_needs_lanes)).unwrap_or(false)
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
                Err(JobError::Panicked { operation: self.name })
            }
        }
    }

    fn attempt_one(&self, request: &R, width: Width) -> Option<R::Output> {
        self.attempt(std::slice::from_ref(request), width)
            .and_then(|mut outputs| outputs.pop())
    }

    /// Runs a pass; `None` if it panicked, or returned the wrong number of outputs: then it is
    /// unknown which output belongs to which request.
    fn attempt(&self, requests: &[R], width: Width) -> Option<Vec<R::Output>> {
        self.measure_if_used(requests.len());
        let variant = match (width, &self.narrow) {
            (Width::Narrow, Some(narrow)) => &narrow.variant,
            _ => &*self.wide,
        };
        let run = AssertUnwindSafe(|| {
            let outputs = variant.pass(requests);
            if self.narrow.is_some() {
                core::ran();
            }
            assert_eq!(outputs.len(), requests.len(), "{}: one output a request", self.name);
            outputs
        });
        catch_unwind(run).ok()
    }
}

/// A width, for tracers.
fn way(width: Width) -> u8 {
    match width {
        Width::Wide => 1,
        Width::Narrow => 2,
    }
}

/// A request that runs by itself, without lanes: for tracers.
const ALONE: u8 = 0;

/// A [`Line`] with any type of request.
pub(crate) trait AnyLine: Send + Sync {
    fn name(&self) -> &'static str;
    fn lanes(&self) -> usize;
    fn worth(&self) -> usize;
    fn cost(&self) -> u64;
    fn calibrate(&self);
    /// Returns whether the caller is to [calibrate](Self::calibrate) in the background; to one caller at most.
    fn claim_measurement(&self) -> bool;
    fn counters(&self) -> OperationCounters;
    fn totals(&self) -> Totals;
    /// An empty gatherer for this operation.
    fn gatherer(self: Arc<Self>) -> Box<dyn AnyGatherer>;
    /// Jobs in the queue to the vector cores.
    fn queued(&self) -> usize;
    /// Describes the queue for the policy. The queue does not know for how long its jobs have waited.
    fn waiting(&self) -> batching::Waiting {
        batching::Waiting {
            lanes: self.lanes(),
            worth: self.worth(),
            jobs: self.queued(),
            oldest: 0,
            cost: self.cost(),
        }
    }
    /// Takes a pass of up to `jobs` jobs from the queue to the vector cores. If all remaining jobs
    /// were cancelled, the pass only drops them.
    fn take_queued(self: Arc<Self>, jobs: usize) -> Option<ReadyPass>;
    /// Answers all jobs in the queue to the vector cores with [`JobError::ShutDown`].
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

    fn cost(&self) -> u64 {
        self.wide.costs.first()
    }

    fn calibrate(&self) {
        self.wide.calibrate();
        if let Some(narrow) = &self.narrow {
            narrow.variant.calibrate();
        }
    }

    fn claim_measurement(&self) -> bool {
        Line::claim_measurement(self)
    }

    fn counters(&self) -> OperationCounters {
        self.counters.snapshot(self.name)
    }

    fn totals(&self) -> Totals {
        self.counters.totals()
    }

    fn gatherer(self: Arc<Self>) -> Box<dyn AnyGatherer> {
        Box::new(Gatherer {
            line: self,
            jobs: VecDeque::new(),
        })
    }

    fn queued(&self) -> usize {
        self.queue.as_ref().map_or(0, Queue::len)
    }

    fn take_queued(self: Arc<Self>, jobs: usize) -> Option<ReadyPass> {
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

/// Jobs of one operation that wait in one place for their pass, oldest first.
pub(crate) struct Gatherer<R: Request> {
    line: Arc<Line<R>>,
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

/// A [`Gatherer`] with any type of request.
pub(crate) trait AnyGatherer: Send {
    fn as_any(&mut self) -> &mut dyn Any;
    /// Describes the waiting jobs for the policy.
    fn waiting(&self) -> batching::Waiting;
    /// Removes cancelled jobs among the first `jobs`, so they do not count towards a full pass.
    /// The caller drops them, which runs their owner's code.
    fn prune(&mut self, jobs: usize) -> Option<Box<dyn Any>>;
    /// Nanoseconds that a pass of `jobs` jobs saves; `None` while the costs are not known.
    fn saving(&self, jobs: usize) -> Option<u64>;
    /// Takes a pass of `jobs` jobs, starting at place `first`. It runs without the gatherer.
    fn take(&mut self, first: usize, jobs: usize) -> ReadyPass;
}

/// A pass, ready to be called; returns the number of jobs in it.
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
            cost: self.line.wide.costs.first(),
        }
    }

    fn saving(&self, jobs: usize) -> Option<u64> {
        self.line.saving(jobs)
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
        let line = Arc::clone(&self.line);
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
