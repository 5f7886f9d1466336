//! The engine of this process, its workers, and why a call may have no answer from them.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use widelane_crypto::{Backend, Preference};
use widelane_engine::{Clock, Config, Engine, JobError, Placement, StartError, Switch, Worker};
use widelane_forks::process_id;

use crate::ffi::libcrypto::{INTERNAL_ERROR, LibCrypto};
use crate::forked::Forked;
use crate::log;

/// Chooses the code that does the arithmetic, and what decides its width, before the first job.
///
/// `are_off` tells whether an operator has switched lanes off.
pub(crate) fn choose(backend: Preference, clock: Clock, are_off: fn() -> bool) {
    *choice() = Choice {
        backend,
        clock,
        switch: Switch(are_off),
    };
    NO_LANES.store(backend.resolve() == Ok(Backend::AwsLc), Relaxed);
}

/// Returns whether passes of this process take more than one job.
pub(crate) fn has_lanes() -> bool {
    !NO_LANES.load(Relaxed)
}

/// The engine of this process.
///
/// # Errors
///
/// When the backend that was asked for cannot run here.
pub(crate) fn engine() -> Result<Engine, StartError> {
    #[cfg(test)]
    if let Some(engine) = tests::OF_THREAD.with_borrow(Clone::clone) {
        return Ok(engine);
    }
    // After a fork, another process has the threads that hold the engine's locks: it starts anew.
    // The old engine is left alone, because its threads are not here to be joined.
    if let Some(engine) = ENGINE.get_own() {
        return Ok(engine.clone());
    }
    let Choice { backend, clock, switch } = *choice();
    let engine = Engine::start(Config {
        placement: Placement::Inline,
        backend,
        clock,
        switch,
        ..Config::default()
    })?;
    Ok(ENGINE.set(engine).clone())
}

/// Returns this thread's worker; a new one after a fork. `None` while the thread ends. Not inlined: after a pause
/// another thread may go on, whose worker is at another address.
#[inline(never)]
pub(crate) fn worker() -> Result<Option<Rc<Worker>>, Failure> {
    let process = process_id();
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

/// Polls the tickets of submitted jobs: their outputs, or `None` and a wake-up later.
pub(crate) fn poll<F: Future + Unpin>(tickets: &mut F, waker: &Waker) -> Option<F::Output> {
    match Pin::new(tickets).poll(&mut Context::from_waker(waker)) {
        Poll::Ready(outputs) => Some(outputs),
        Poll::Pending => None,
    }
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
    /// True if OpenSSL does the operation by itself; the first time, the log says why at level `info`. If false, the
    /// error is in OpenSSL's queue.
    pub(crate) fn falls_back(&self) -> bool {
        if self.is_final() {
            LibCrypto::get().raise(INTERNAL_ERROR, &self.to_string());
            return false;
        }
        log::reason(&format!("OpenSSL computes by itself: {self}"));
        true
    }

    /// True if the handshake that asked is being ended: its result is not used.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Cancelled)
    }
}

static ENGINE: Forked<Engine> = Forked::new();

/// Passes of this process take one job.
static NO_LANES: AtomicBool = AtomicBool::new(false);

/// Configuration of the engine.
#[derive(Clone, Copy, Default)]
pub(crate) struct Choice {
    backend: Preference,
    clock: Clock,
    switch: Switch,
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
        pub(crate) static OF_THREAD: RefCell<Option<Engine>> = const { RefCell::new(None) };
    }

    /// Runs `work` with an engine that refuses everything.
    pub(crate) fn refusing<R>(work: impl FnOnce() -> R) -> R {
        let engine = Engine::start(Config::default()).unwrap();
        engine.shutdown();
        OF_THREAD.set(Some(engine));
        let result = work();
        OF_THREAD.set(None);
        result
    }
}
