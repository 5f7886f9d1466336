//! How a call of OpenSSL waits for its jobs, chosen anew for each call:
//!
//! 1. On a stack of the library that suspends handshakes: the stack is left until a pass has
//!    answered ([`crate::suspension`]).
//! 2. In a job of OpenSSL's own (`ASYNC_start_job(3)`): the job is paused ([`crate::paused`]).
//! 3. On any other thread: it blocks, and shares passes with other threads that block
//!    ([`widelane_engine::Engine::run`]). A thread that is alone runs its job at once.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use widelane_crypto::Preference;
use widelane_engine::{Clock, Config, Engine, JobError, Placement, Request};
use widelane_engine::{StartError, SubmitError, Ticket, Worker};

use crate::forks::Forked;
use crate::libcrypto::{INTERNAL_ERROR, LibCrypto};
use crate::{log, paused, status, suspension};

/// Runs one job to its end.
pub(crate) fn run<R: Request>(request: R) -> Result<R::Output, Failure> {
    run_jobs(One(request))
}

/// Runs two jobs that do not depend on each other, or only the first.
pub(crate) fn run_pair<A: Request, B: Request>(
    first: A,
    second: Option<B>,
) -> Result<(A::Output, Option<B::Output>), Failure> {
    run_jobs(Pair(first, second))
}

/// Runs three jobs that do not depend on one another.
pub(crate) fn run_triple<A: Request, B: Request, C: Request>(
    first: A,
    second: B,
    third: C,
) -> Result<TripleOutputs<A, B, C>, Failure> {
    run_jobs(Triple(first, second, third))
}

/// Requests that have no other way in OpenSSL: those that the engine does not answer are answered at once by
/// AWS-LC, on the caller's thread.
pub(crate) trait Alone: Request + Clone {
    /// The answer.
    fn alone(&self) -> Self::Output;
}

/// Runs the jobs that `with` makes of these requests, or answers them by `alone`.
///
/// # Errors
///
/// When the handshake that asked is being ended.
pub(crate) fn run_in_any_case<R: Clone, O>(
    requests: R,
    with: impl FnOnce(R) -> Result<O, Failure>,
    alone: impl FnOnce(&R) -> O,
) -> Result<O, Failure> {
    match with(requests.clone()) {
        Err(failure) if !failure.is_final() => {
            log::once(&format!("one operation at a time: {failure}"));
            Ok(match paused::current() {
                Some(_) => paused::on_large_stack(|| alone(&requests)),
                None => alone(&requests),
            })
        }
        ended => ended,
    }
}

/// Chooses the code that does the arithmetic, and what decides its width, before the first job.
pub(crate) fn choose(backend: Preference, clock: Clock) {
    let mut choice = choice();
    (choice.backend, choice.clock) = (backend, clock);
}

/// The engine of this process.
///
/// # Errors
///
/// When the backend that was asked for cannot run here.
pub(crate) fn engine() -> Result<Engine, StartError> {
    #[cfg(test)]
    if let Some(engine) = tests::ENGINE_OF_THREAD.with_borrow(Clone::clone) {
        return Ok(engine);
    }
    // After a fork, another process has the threads that hold the engine's locks: it starts anew.
    // The old engine is left alone, because its threads are not here to be joined.
    if let Some(engine) = ENGINE.get_own() {
        return Ok(engine.clone());
    }
    let (backend, clock) = {
        let choice = choice();
        (choice.backend, choice.clock)
    };
    let engine = Engine::start(Config {
        placement: Placement::Inline,
        backend,
        clock,
        ..Config::default()
    })?;
    Ok(ENGINE.set(engine).clone())
}

/// Measures what passes cost here, unless that is known. The processes that this one forks inherit the
/// figures, and start no thread to measure them again.
pub(crate) fn calibrate() {
    if let Ok(engine) = engine() {
        engine.calibrate();
    }
}

/// Jobs of one call.
pub(crate) trait Jobs {
    type Outputs;
    type Tickets: Tickets<Outputs = Self::Outputs>;

    /// Submits all of them.
    fn submit(self, worker: &Worker) -> Result<Self::Tickets, SubmitError>;

    /// Runs all of them, blocking the thread.
    fn block(self, engine: &Engine) -> Result<Self::Outputs, JobError>;
}

/// The tickets of submitted jobs.
pub(crate) trait Tickets {
    type Outputs;

    /// The outputs once every job has ended. Until then, `waker` is woken when one ends.
    fn poll(&mut self, waker: &Waker) -> Option<Result<Self::Outputs, JobError>>;
}

/// Why a call has no result from lanes. The default provider can still do it.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The engine took the job and gave no output, or did not take it.
    Job(JobError),
    /// The engine does not start.
    Start(StartError),
    /// The handshake that asked is being ended.
    Cancelled,
    /// OpenSSL's job cannot be paused, or its connection cannot be told of events.
    NotPaused,
    /// The application went on with a paused job on another thread.
    Moved,
    /// The process was forked while the job waited: it is the parent's.
    Forked,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(error) => write!(f, "{error}"),
            Self::Start(error) => write!(f, "{error}"),
            Self::Cancelled => f.write_str("the handshake was ended while it waited"),
            Self::NotPaused => f.write_str("a job of OpenSSL's cannot be paused"),
            Self::Moved => f.write_str("the application resumed a paused job on another thread"),
            Self::Forked => f.write_str("the process was forked while an operation waited"),
        }
    }
}

impl Failure {
    /// Whether OpenSSL does the operation by itself, which is told once for each reason. If not, the
    /// error is in OpenSSL's queue.
    pub(crate) fn falls_back(&self) -> bool {
        if self.is_final() {
            LibCrypto::get().raise(INTERNAL_ERROR, &self.to_string());
            return false;
        }
        log::once(&format!("OpenSSL computes by itself: {self}"));
        true
    }

    /// Whether the handshake that asked is being ended: then its result is not used.
    fn is_final(&self) -> bool {
        matches!(self, Self::Cancelled)
    }
}

impl From<JobError> for Failure {
    fn from(error: JobError) -> Self {
        Self::Job(error)
    }
}

impl From<SubmitError> for Failure {
    fn from(error: SubmitError) -> Self {
        Self::Job(error.into())
    }
}

fn run_jobs<J: Jobs>(jobs: J) -> Result<J::Outputs, Failure> {
    if let Some(frame) = suspension::current() {
        return suspension::run(frame, jobs);
    }
    if let Some(job) = paused::current() {
        return paused::run(job, jobs);
    }
    let engine = engine().map_err(Failure::Start)?;
    Ok(status::blocking(&engine, || jobs.block(&engine))?)
}

/// This thread's worker; a new one after a fork. `None` while the thread ends. Not inlined: after a pause
/// another thread may go on, whose worker is at another address.
#[inline(never)]
pub(crate) fn worker() -> Result<Option<Rc<Worker>>, Failure> {
    let process = std::process::id();
    let found = WORKER.try_with(|local| {
        let mut local = local.borrow_mut();
        if let Some((of, worker)) = &*local
            && *of == process
        {
            return Ok(Rc::clone(worker));
        }
        let worker = Rc::new(engine()?.worker());
        // The jobs of a forked process's worker are another process's.
        std::mem::forget(local.replace((process, Rc::clone(&worker))));
        Ok(worker)
    });
    found.ok().transpose().map_err(Failure::Start)
}

struct One<R>(R);

impl<R: Request> Jobs for One<R> {
    type Outputs = R::Output;
    type Tickets = Ticket<R::Output>;

    fn submit(self, worker: &Worker) -> Result<Self::Tickets, SubmitError> {
        worker.submit(self.0)
    }

    fn block(self, engine: &Engine) -> Result<Self::Outputs, JobError> {
        engine.run(self.0)
    }
}

impl<T> Tickets for Ticket<T> {
    type Outputs = T;

    fn poll(&mut self, waker: &Waker) -> Option<Result<T, JobError>> {
        match Future::poll(Pin::new(self), &mut Context::from_waker(waker)) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }
}

struct Pair<A, B>(A, Option<B>);

/// Two tickets, and the outputs that are there.
pub(crate) struct PairTickets<A, B> {
    first: Half<A>,
    second: Option<Half<B>>,
}

/// One job of several: its ticket, and its output once that is there.
pub(crate) struct Half<T> {
    ticket: Ticket<T>,
    output: Option<T>,
}

impl<T> Half<T> {
    fn new(ticket: Ticket<T>) -> Self {
        Self {
            ticket,
            output: None,
        }
    }

    /// Whether the output is there.
    fn poll(&mut self, waker: &Waker) -> Result<bool, JobError> {
        if self.output.is_none() {
            self.output = self.ticket.poll(waker).transpose()?;
        }
        Ok(self.output.is_some())
    }
}

impl<A: Request, B: Request> Jobs for Pair<A, B> {
    type Outputs = (A::Output, Option<B::Output>);
    type Tickets = PairTickets<A::Output, B::Output>;

    fn submit(self, worker: &Worker) -> Result<Self::Tickets, SubmitError> {
        Ok(PairTickets {
            first: Half::new(worker.submit(self.0)?),
            second: match self.1 {
                Some(second) => Some(Half::new(worker.submit(second)?)),
                None => None,
            },
        })
    }

    fn block(self, engine: &Engine) -> Result<Self::Outputs, JobError> {
        let first = engine.run(self.0)?;
        let second = self.1.map(|second| engine.run(second)).transpose()?;
        Ok((first, second))
    }
}

impl<A, B> Tickets for PairTickets<A, B> {
    type Outputs = (A, Option<B>);

    fn poll(&mut self, waker: &Waker) -> Option<Result<Self::Outputs, JobError>> {
        let mut all = || {
            let first = self.first.poll(waker)?;
            let second = match &mut self.second {
                Some(second) => second.poll(waker)?,
                None => true,
            };
            Ok(first && second)
        };
        match all() {
            Err(error) => Some(Err(error)),
            Ok(false) => None,
            Ok(true) => {
                let second = self.second.take().and_then(|second| second.output);
                Some(Ok((self.first.output.take()?, second)))
            }
        }
    }
}

struct Triple<A, B, C>(A, B, C);

/// What three requests yield.
pub(crate) type TripleOutputs<A, B, C> = (
    <A as Request>::Output,
    <B as Request>::Output,
    <C as Request>::Output,
);

impl<A: Request, B: Request, C: Request> Jobs for Triple<A, B, C> {
    type Outputs = TripleOutputs<A, B, C>;
    type Tickets = (Half<A::Output>, Half<B::Output>, Half<C::Output>);

    fn submit(self, worker: &Worker) -> Result<Self::Tickets, SubmitError> {
        Ok((
            Half::new(worker.submit(self.0)?),
            Half::new(worker.submit(self.1)?),
            Half::new(worker.submit(self.2)?),
        ))
    }

    fn block(self, engine: &Engine) -> Result<Self::Outputs, JobError> {
        Ok((
            engine.run(self.0)?,
            engine.run(self.1)?,
            engine.run(self.2)?,
        ))
    }
}

impl<A, B, C> Tickets for (Half<A>, Half<B>, Half<C>) {
    type Outputs = (A, B, C);

    fn poll(&mut self, waker: &Waker) -> Option<Result<Self::Outputs, JobError>> {
        let mut all = || Ok(self.0.poll(waker)? & self.1.poll(waker)? & self.2.poll(waker)?);
        match all() {
            Err(error) => Some(Err(error)),
            Ok(false) => None,
            Ok(true) => Some(Ok((
                self.0.output.take()?,
                self.1.output.take()?,
                self.2.output.take()?,
            ))),
        }
    }
}

static ENGINE: Forked<Engine> = Forked::new();

/// What the engine is made with.
#[derive(Default)]
pub(crate) struct Choice {
    backend: Preference,
    clock: Clock,
}

pub(crate) fn choice() -> MutexGuard<'static, Choice> {
    static CHOICE: LazyLock<Mutex<Choice>> = LazyLock::new(Mutex::default);
    CHOICE.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static WORKER: RefCell<Option<(u32, Rc<Worker>)>> = const { RefCell::new(None) };
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    thread_local! {
        /// Takes the place of the engine on this thread.
        pub(crate) static ENGINE_OF_THREAD: RefCell<Option<Engine>> = const { RefCell::new(None) };
    }

    /// Runs `work` with an engine that refuses everything.
    pub(crate) fn refusing<R>(work: impl FnOnce() -> R) -> R {
        let engine = Engine::start(Config::default()).unwrap();
        engine.shutdown();
        ENGINE_OF_THREAD.set(Some(engine));
        let result = work();
        ENGINE_OF_THREAD.set(None);
        result
    }

    /// What is not being ended is done in any case.
    #[test]
    fn a_job_that_the_engine_does_not_answer_is_done_alone() {
        let _counts = crate::COUNTING
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let done = |failure| run_in_any_case(7, |_| Err(failure), |seven| seven + 1);
        let full = SubmitError::Overloaded {
            operation: "x25519-derive",
            limit: 4096,
        };
        let unavailable = StartError::NoVectorCpus;
        for failure in [
            Failure::from(full),
            Failure::Job(JobError::ShutDown),
            Failure::Start(unavailable),
            Failure::NotPaused,
            Failure::Moved,
            Failure::Forked,
        ] {
            assert_eq!(done(failure).unwrap(), 8);
        }
        assert!(matches!(done(Failure::Cancelled), Err(Failure::Cancelled)));
    }

    /// OpenSSL does what lanes cannot; what is being ended is told apart by its caller.
    #[test]
    fn openssl_takes_over_what_the_engine_does_not_do() {
        let _counts = crate::COUNTING
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        assert!(Failure::NotPaused.falls_back());
        assert!(Failure::Moved.falls_back());
        assert!(Failure::Job(JobError::ShutDown).falls_back());
    }
}
