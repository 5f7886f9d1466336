//! The engine: operations, placement, and the life of both.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use widelane_batching::{self as batching, Clock, Place};

use crate::config::{Config, Placement};
use crate::group::Group;
use crate::line::{AnyGatherer, AnyLine, Job};
use crate::operation::{Operations, Registry, Route};
use crate::sleepers::{self, Sleepers};
use crate::sync::{AtomicBool, Mutex, Ordering, lock, thread};
use crate::worker::Worker;
use crate::{
    JobError, OperationCounters, Request, StartError, SubmitError, Ticket, VectorCoreCounters,
    vector,
};

/// Runs jobs of many submitters in shared passes. A clone is another handle to the same engine.
///
/// Event loops take a [`Worker`] each; threads that may block call [`run`](Self::run). The engine
/// shuts down when it is told to, or when the last handle and the last worker are dropped.
#[derive(Clone)]
pub struct Engine {
    core: Arc<Core>,
}

impl Engine {
    /// Starts an engine that serves [`Operations::standard`].
    ///
    /// # Errors
    ///
    /// When `config` cannot be met on this machine.
    #[cfg(not(loom))]
    pub fn start(config: Config) -> Result<Self, StartError> {
        let operations = Operations::standard_for(config.backend, config.clock)?;
        Self::start_with(config, operations)
    }

    /// The engine of this process for whoever was given none: made with [`Config::default`] on
    /// first use, and never shut down unless somebody does so by hand.
    #[cfg(not(loom))]
    pub fn global() -> &'static Self {
        static GLOBAL: std::sync::LazyLock<Engine> = std::sync::LazyLock::new(|| {
            // The default asks for nothing that could be missing: no CPU by number, no backend by
            // name.
            Engine::start(Config::default()).expect("the default configuration runs everywhere")
        });
        &GLOBAL
    }

    /// Starts an engine that serves `operations`; `config.backend` has no bearing on them.
    ///
    /// # Errors
    ///
    /// When `config` cannot be met on this machine.
    pub fn start_with(mut config: Config, operations: Operations) -> Result<Self, StartError> {
        if config.queue_limit == 0 {
            return Err(StartError::QueueLimitZero);
        }
        config.placement = decided(config.placement, &config.clock);
        let cpus = match &config.placement {
            Placement::VectorCores { cpus } => checked(cpus)?,
            Placement::Inline | Placement::Auto { .. } => Vec::new(),
        };
        let registry = operations.register((!cpus.is_empty()).then_some(config.queue_limit))?;
        let group = Group::new(&registry.lines, parallelism());
        let sleepers = Sleepers::new(cpus.len(), config.give_back.as_ref());
        let shared = Arc::new(Shared {
            registry,
            config,
            closed: AtomicBool::new(false),
            group,
            sleepers,
        });
        // Dropped on an early return, which ends the threads that did start.
        let core = Core {
            shared,
            threads: Mutex::new(Vec::new()),
        };
        for cpu in cpus {
            let thread = vector::start(cpu, Arc::clone(&core.shared))?;
            lock(&core.threads).push(thread);
        }
        Ok(Self {
            core: Arc::new(core),
        })
    }

    /// Finds out now what passes and single requests cost, where that is not known: a tenth of a
    /// second or two for all [standard operations](Operations::standard), nothing the next time.
    ///
    /// For servers, before they listen. Without this, each operation is measured beside its first
    /// requests, on a thread of its own. See [`calibration`](crate::calibration) for a file that
    /// makes it once a machine instead of once a process.
    pub fn calibrate(&self) {
        for line in &self.core.shared.registry.lines {
            line.calibrate();
        }
    }

    /// A new worker, for one event-loop thread.
    pub fn worker(&self) -> Worker {
        Worker::new(self.clone())
    }

    /// Runs one job, blocking the calling thread until it has ended.
    ///
    /// With inline placement, threads that call this form groups: as many passes run at once as the
    /// machine has cores, each on a thread whose own job it carries, and what arrives meanwhile
    /// fills the lanes of the next. With vector cores the job goes to the shared queues.
    ///
    /// # Errors
    ///
    /// When the job is refused, and what may become of an accepted one.
    pub fn run<R: Request>(&self, request: R) -> Result<R::Output, JobError> {
        match self.placement() {
            Placement::Inline | Placement::Auto { .. } => {
                let route = self.route(&request)?;
                self.core
                    .shared
                    .group
                    .run(route, request, self.queue_limit())
            }
            Placement::VectorCores { .. } => self.enqueue(request)?.wait(),
        }
    }

    /// Runs one job on the calling thread, at once and without company: where
    /// [`Worker::is_quiet`], this is the shortest way.
    ///
    /// # Errors
    ///
    /// When the engine has been shut down or serves no such request, and those of the job.
    pub fn run_at_once<R: Request>(&self, request: R) -> Result<R::Output, JobError> {
        let (_, line) = self.route(&request)?;
        line.run_at_once(&request)
    }

    /// What each operation did so far, in the order of registration.
    pub fn counters(&self) -> Vec<OperationCounters> {
        self.core
            .shared
            .registry
            .lines
            .iter()
            .map(|line| line.counters())
            .collect()
    }

    /// What the vector cores do, and what became of them so far.
    pub fn vector_cores(&self) -> VectorCoreCounters {
        self.core.shared.sleepers.counters()
    }

    /// Where passes run; [`Placement::Auto`] has been decided.
    pub fn placement(&self) -> &Placement {
        &self.core.shared.config.placement
    }

    /// Refuses new jobs from now on and returns when the vector cores have finished what was queued
    /// and their threads are gone. Calling it again does nothing.
    ///
    /// Jobs that a [`Worker`] has gathered stay its own: turn it, or drop it and they end with
    /// [`JobError::ShutDown`]. Threads inside [`run`](Self::run) finish their jobs.
    pub fn shutdown(&self) {
        self.core.shutdown();
    }

    pub(crate) fn queue_limit(&self) -> usize {
        self.core.shared.config.queue_limit
    }

    /// An empty gatherer a line, in the lines' order.
    pub(crate) fn gatherers(&self) -> Vec<Box<dyn AnyGatherer>> {
        self.core
            .shared
            .registry
            .lines
            .iter()
            .map(|line| Arc::clone(line).gatherer())
            .collect()
    }

    /// Finds the operation for a request, unless the engine has been shut down.
    pub(crate) fn route<R: Request>(&self, request: &R) -> Result<&Route<R>, SubmitError> {
        if self.core.shared.is_closed() {
            return Err(SubmitError::ShutDown);
        }
        self.core.shared.registry.route(request)
    }

    /// Hands a job to the vector cores.
    pub(crate) fn enqueue<R: Request>(&self, request: R) -> Result<Ticket<R::Output>, SubmitError> {
        let (_, line) = self.route(&request)?;
        let (ticket, job) = Job::new(request);
        line.enqueue(job, self.queue_limit())?;
        let shared = &self.core.shared;
        shared.sleepers.notify(|| shared.passes_queued());
        // `notify` fenced: either we see that the engine closed after `route` looked, or its
        // shutdown sees our job. Both may; then one of the two answers it.
        if shared.is_closed() {
            line.drain();
        }
        Ok(ticket)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("config", &self.core.shared.config)
            .field("closed", &self.core.shared.is_closed())
            .finish_non_exhaustive()
    }
}

/// What the vector cores share with the handles.
pub(crate) struct Shared {
    pub(crate) registry: Registry,
    pub(crate) sleepers: Sleepers,
    config: Config,
    closed: AtomicBool,
    group: Group,
}

impl Shared {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn anything_queued(&self) -> bool {
        self.registry.lines.iter().any(|line| line.queued() > 0)
    }

    /// The passes that wait for vector cores.
    pub(crate) fn passes_queued(&self) -> usize {
        let passes = |line: &Arc<dyn AnyLine>| batching::passes(&line.waiting());
        self.registry.lines.iter().map(passes).sum()
    }

    /// The vector core of `cpu`, for the thread that is one.
    pub(crate) fn vector_core(&self, cpu: usize) -> sleepers::Core {
        let Config {
            give_back, clock, ..
        } = &self.config;
        sleepers::Core::new(cpu, give_back.as_ref(), clock)
    }
}

/// What the handles share. The threads do not, so that the last handle ends them.
struct Core {
    shared: Arc<Shared>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

impl Core {
    fn shutdown(&self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.sleepers.wake_all();
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            // A job may own the last handle and be dropped by a vector core, which cannot wait
            // for itself; it ends right after.
            if thread.thread().id() != thread::current().id() {
                // A vector core contains panics; had it died all the same, the drain answers.
                let _ = thread.join();
            }
        }
        for line in &self.shared.registry.lines {
            line.drain();
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// The placement with nothing left to decide.
fn decided(placement: Placement, clock: &Clock) -> Placement {
    let Placement::Auto { cpus } = placement else {
        return placement;
    };
    let others = parallelism().saturating_sub(cpus.len());
    let place = batching::place(clock, cpus.len(), others);
    tracing::debug!(?place, ?cpus, "placement");
    match place {
        Place::Inline => Placement::Inline,
        Place::VectorCores => Placement::VectorCores { cpus },
    }
}

/// The CPUs for vector cores, if they make sense.
fn checked(cpus: &[usize]) -> Result<Vec<usize>, StartError> {
    let mut seen = HashSet::new();
    if let Some(&cpu) = cpus.iter().find(|cpu| !seen.insert(**cpu)) {
        return Err(StartError::DuplicateCpu { cpu });
    }
    if cpus.is_empty() {
        return Err(StartError::NoVectorCpus);
    }
    Ok(cpus.to_vec())
}

/// Cores that this process may use; one if the system does not say.
fn parallelism() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
