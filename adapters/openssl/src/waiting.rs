//! Three ways in which a call of OpenSSL waits for its jobs; each call chooses anew:
//!
//! 1. On a stack of the library that suspends handshakes: the stack is left until a pass has
//!    answered ([`crate::suspension`]).
//! 2. In a job of OpenSSL's own (`ASYNC_start_job(3)`): the job is paused ([`crate::paused`]).
//! 3. On any other thread: it blocks, and shares passes with other threads that block
//!    ([`widelane_engine::Engine::run`]). A thread that is alone runs its job at once.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use widelane_crypto::{Backend, Preference};
use widelane_engine::{Clock, Config, Engine, JobError, Placement, Request};
use widelane_engine::{StartError, Worker};

use crate::forks::Forked;
use crate::libcrypto::{INTERNAL_ERROR, LibCrypto};
use crate::{comparison, log, paused, status, suspension};

/// Runs one job to its end.
pub(crate) fn run<R: Request>(request: R) -> Result<R::Output, Failure> {
    Ok(run_all(vec![request])?.remove(0))
}

/// Runs jobs that do not depend on one another.
pub(crate) fn run_all<R: Request>(requests: Vec<R>) -> Result<Vec<R::Output>, Failure> {
    if NO_LANES.load(Relaxed) {
        return run_at_once(requests);
    }
    if let Some(frame) = suspension::current() {
        return suspension::run(frame, requests);
    }
    if let Some(job) = paused::current() {
        return paused::run(job, requests);
    }
    let engine = engine()?;
    Ok(status::blocking(&engine, || engine.run_all(requests))?)
}

/// The same where there are no lanes: nothing can be shared, so nothing waits.
fn run_at_once<R: Request>(requests: Vec<R>) -> Result<Vec<R::Output>, Failure> {
    let work = || {
        let engine = engine()?;
        Ok(status::blocking(&engine, || {
            engine.run_all_at_once(requests)
        })?)
    };
    match paused::current() {
        Some(_) => paused::on_large_stack(work),
        None => work(),
    }
}

/// Answers by `alone`, on the caller's thread, if there is no result from the engine.
///
/// # Errors
///
/// When the handshake that asked is being ended.
pub(crate) fn in_any_case<O>(
    result: Result<O, Failure>,
    alone: impl FnOnce() -> O,
) -> Result<O, Failure> {
    match result {
        Err(failure) if !failure.is_final() => {
            log::once(&format!("one operation at a time: {failure}"));
            Ok(match paused::current() {
                Some(_) => paused::on_large_stack(alone),
                None => alone(),
            })
        }
        ended => ended,
    }
}

/// Polls the tickets of submitted jobs: their outputs, or `None` and a wake-up later.
pub(crate) fn poll<F: Future + Unpin>(tickets: &mut F, waker: &Waker) -> Option<F::Output> {
    match Pin::new(tickets).poll(&mut Context::from_waker(waker)) {
        Poll::Ready(outputs) => Some(outputs),
        Poll::Pending => None,
    }
}

/// Chooses the code that does the arithmetic, and what decides its width, before the first job.
pub(crate) fn choose(backend: Preference, clock: Clock) {
    let mut choice = choice();
    (choice.backend, choice.clock) = (backend, clock);
    NO_LANES.store(backend.resolve() == Ok(Backend::AwsLc), Relaxed);
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

/// Measures what passes and OpenSSL's own operations cost here, unless that is known. The processes that this one forks inherit the
/// figures, and start no thread to measure them again.
pub(crate) fn calibrate() {
    if let Ok(engine) = engine() {
        engine.calibrate();
    }
    comparison::measure();
}

/// Why a call has no result from lanes. The default provider can still do it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The engine took the job and gave no output, or did not take it.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The engine does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The handshake that asked is being ended.
    #[error("the handshake was ended while it waited")]
    Cancelled,
    /// OpenSSL's job cannot be paused, or its connection takes no events.
    #[error("a job of OpenSSL's cannot be paused")]
    NotPaused,
    /// The application went on with a paused job on another thread.
    #[error("the application resumed a paused job on another thread")]
    Moved,
    /// The process was forked while the job waited: it is the parent's.
    #[error("the process was forked while an operation waited")]
    Forked,
}

impl Failure {
    /// True if OpenSSL does the operation by itself; the first time, the log says why. If false, the
    /// error is in OpenSSL's queue.
    pub(crate) fn falls_back(&self) -> bool {
        if self.is_final() {
            LibCrypto::get().raise(INTERNAL_ERROR, &self.to_string());
            return false;
        }
        log::once(&format!("OpenSSL computes by itself: {self}"));
        true
    }

    /// True if the handshake that asked is being ended: its result is not used.
    fn is_final(&self) -> bool {
        matches!(self, Self::Cancelled)
    }
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

static ENGINE: Forked<Engine> = Forked::new();

/// Passes of this process take one job.
static NO_LANES: AtomicBool = AtomicBool::new(false);

/// Configuration of the engine.
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
    use widelane_engine::SubmitError;

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

    /// A handshake that goes on gets an answer in any case.
    #[test]
    fn a_job_that_the_engine_does_not_answer_is_done_alone() {
        let _counts = crate::COUNTING
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let done = |failure| in_any_case(Err(failure), || 8);
        let full = SubmitError::Overloaded {
            operation: "x25519-derive",
            limit: 4096,
        };
        let unavailable = StartError::NoVectorCpus;
        for failure in [
            Failure::Job(full.into()),
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

    /// OpenSSL does what lanes cannot do.
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
