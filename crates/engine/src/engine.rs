//! The engine: operations, placement, start and shutdown.

use std::fmt;
use std::sync::Arc;

use widelane_batching::Placement;
use widelane_crypto::Request;
use widelane_status::Totals;

use crate::background;
use crate::config::Config;
use crate::counters::OperationCounters;
use crate::error::{JobError, StartError, SubmitError};
use crate::group::Group;
use crate::lending::VectorCoreCounters;
use crate::line::{AnyGatherer, AnyLine};
use crate::operations::{Operations, Route};
use crate::shared::Shared;
use crate::sleepers::Sleepers;
use crate::slot::Ticket;
use crate::sync::{AtomicBool, Mutex, Ordering, lock, thread};
use crate::vector;

/// Runs jobs of many submitters in shared passes. A clone is another handle to the same engine.
///
/// Each event loop takes a [`Worker`](crate::Worker); a thread that may block calls
/// [`run`](Self::run). The engine shuts down in [`shutdown`](Self::shutdown), or when the last
/// handle and the last worker are dropped.
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
    pub fn start(config: Config) -> Result<Self, StartError> {
        let operations = Operations::standard_for(config.backend, config.clock)?;
        Self::start_with(config, operations)
    }

    /// The default engine of this process: started with [`Config::default`] on first use, and shut
    /// down only by a call of [`shutdown`](Self::shutdown).
    pub fn global() -> &'static Self {
        static GLOBAL: std::sync::LazyLock<Engine> = std::sync::LazyLock::new(|| {
            // The default names no CPU and no backend, so nothing can be missing.
            Engine::start(Config::default()).expect("the default configuration runs everywhere")
        });
        &GLOBAL
    }

    /// Starts an engine that serves `operations`. Ignores `config.backend`.
    ///
    /// # Errors
    ///
    /// When `config` cannot be met on this machine.
    pub fn start_with(config: Config, operations: Operations) -> Result<Self, StartError> {
        if config.queue_limit == 0 {
            return Err(StartError::QueueLimitZero);
        }
        let cpus = config.placement.vector_cores();
        if cpus.is_empty() && config.placement != Placement::Inline {
            return Err(StartError::NoVectorCpus);
        }
        tracing::debug!(placement = %config.placement.choice(), %cpus, "engine starts");
        let registry = operations.register((!cpus.is_empty()).then_some(config.queue_limit))?;
        let group = Group::new(&registry.lines, parallelism());
        let sleepers = Sleepers::new(cpus.count(), config.lending.as_ref());
        let shared = Arc::new(Shared {
            registry,
            config,
            closed: AtomicBool::new(false),
            group,
            sleepers,
        });
        // An early return drops it, which ends the threads that have started.
        let core = Core {
            shared,
            threads: Mutex::new(Vec::new()),
        };
        for cpu in cpus.iter() {
            let thread = vector::start(cpu, Arc::clone(&core.shared))?;
            lock(&core.threads).push(thread);
        }
        Ok(Self { core: Arc::new(core) })
    }

    /// Measures the costs of passes and single requests that are not known yet: 0.1 to 0.2 seconds
    /// for all [standard operations](Operations::standard) at the first call, nothing later.
    ///
    /// For programs that compare, before they begin. Servers call
    /// [`calibrate_in_background`](Self::calibrate_in_background). Without either call, a background
    /// thread measures each operation once it has had sixteen requests. With a
    /// [`calibration`](crate::calibration) file this happens once per machine instead of once per
    /// process.
    pub fn calibrate(&self) {
        for line in &self.core.shared.registry.lines {
            line.calibrate();
        }
    }

    /// Calibrates in a thread of low priority, so that a server answers meanwhile: until the costs of an
    /// operation are known, single requests are answered one by one and all others in passes. The
    /// thread ends when all is measured, or with the process.
    pub fn calibrate_in_background(&self) {
        let lines = self.core.shared.registry.lines.iter();
        let lines: Vec<_> = lines.filter(|line| line.claim_measurement()).cloned().collect();
        if lines.is_empty() {
            return;
        }
        let measure = move || {
            background::give_way();
            for line in &lines {
                line.calibrate();
            }
        };
        // Without a thread the guesses remain.
        if let Err(error) = background::start(Box::new(measure)) {
            tracing::debug!(%error, "no thread to measure what passes cost");
        }
    }

    /// Runs one job and blocks the calling thread until the job has ended.
    ///
    /// With inline placement, calling threads share passes: at most one pass per core runs at a
    /// time, on a thread whose own job is in it, and jobs that arrive meanwhile fill the lanes of
    /// the next pass. With vector cores the job goes to the shared queues.
    ///
    /// # Errors
    ///
    /// When the job is refused, or an accepted job does not end with an output.
    pub fn run<R: Request>(&self, request: R) -> Result<R::Output, JobError> {
        if self.is_off() {
            return self.run_at_once(request);
        }
        match self.placement() {
            Placement::Inline => {
                let route = self.route(&request)?;
                self.core.shared.group.run(route, request, self.queue_limit())
            }
            Placement::VectorCores(_) => self.enqueue(request)?.wait(),
        }
    }

    /// Runs one job on the calling thread, at once and by itself. The fastest way when
    /// [`Worker::is_quiet`](crate::Worker::is_quiet) says that no other job could share its pass.
    ///
    /// # Errors
    ///
    /// When the engine has been shut down or serves no such request; the errors of the job.
    pub fn run_at_once<R: Request>(&self, request: R) -> Result<R::Output, JobError> {
        let (_, line) = self.route(&request)?;
        line.run_at_once(&request, self.is_off())
    }

    /// The counters of each operation so far, in the order of registration.
    pub fn counters(&self) -> Vec<OperationCounters> {
        self.core
            .shared
            .registry
            .lines
            .iter()
            .map(|line| line.counters())
            .collect()
    }

    /// Shows number, name and sums of each operation so far, in the same order. Allocates nothing: for programs
    /// that look often.
    pub fn for_each_totals(&self, mut visit: impl FnMut(usize, &'static str, Totals)) {
        for (number, line) in self.core.shared.registry.lines.iter().enumerate() {
            visit(number, line.name(), line.totals());
        }
    }

    /// Number of vector cores, and of their loans so far.
    pub fn vector_cores(&self) -> VectorCoreCounters {
        self.core.shared.sleepers.counters()
    }

    /// Place where passes run.
    pub fn placement(&self) -> &Placement {
        &self.core.shared.config.placement
    }

    /// Refuses new jobs from now on. Returns when the vector cores have finished the queued jobs
    /// and their threads have ended. Calling it again does nothing.
    ///
    /// A [`Worker`](crate::Worker) keeps the jobs that it has gathered: turn it to run them, or
    /// drop it and they end with [`JobError::ShutDown`]. Threads inside [`run`](Self::run) finish
    /// their jobs.
    pub fn shutdown(&self) {
        self.core.shutdown();
    }

    /// Switch by which an operator turns lanes off.
    pub(crate) fn is_off(&self) -> bool {
        (self.core.shared.config.switch.0)()
    }

    pub(crate) fn queue_limit(&self) -> usize {
        self.core.shared.config.queue_limit
    }

    /// One empty gatherer for each line, in the order of the lines.
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
        let (ticket, job) = line.job(request);
        line.enqueue(job, self.queue_limit())?;
        let shared = &self.core.shared;
        shared.sleepers.notify(|| shared.passes_queued());
        // `notify` has a fence: if the engine closed after `route` looked, we see it here or the
        // shutdown sees our job. If both do, one of the two answers the job.
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

/// State that the handles share. The threads do not hold it, so dropping the last handle ends them.
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
            // A job may own the last handle and be dropped by a vector core. That thread cannot
            // wait for itself; it ends right after.
            if thread.thread().id() != thread::current().id() {
                // A vector core contains panics. If it died all the same, `drain` answers its jobs.
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

/// Cores that this process may use; 1 if the system does not tell.
fn parallelism() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
