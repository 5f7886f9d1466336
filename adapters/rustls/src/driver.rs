//! The driver of suspended handshakes: one for each event-loop thread.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::ops::DerefMut;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use rustls::client::ClientConnectionData;
use rustls::{ClientConfig, ClientConnection, ConnectionCommon, IoState, OtherError};
use rustls_pki_types::ServerName;
use tokio::task::yield_now;
use widelane_engine::{Engine, Idle, JobError, SubmitError, Worker};
use widelane_stacks::{GuardedStack, Stacks};

use crate::jobs::Failure;
use crate::observed::Observed;
use crate::suspend::Suspendable;

/// Runs the handshakes of one thread and suspends each while it waits for a public-key operation, so
/// that the thread goes on with other connections. For servers and for clients.
///
/// One driver serves one event-loop thread: a single-threaded tokio runtime that can spawn local
/// tasks ([`LocalRuntime`](tokio::runtime::LocalRuntime), or a
/// [`LocalSet`](tokio::task::LocalSet)), or a loop of your own (see [`Driver::turns`]). Each step
/// runs on a small stack of its own. When [`provider`](crate::provider) has to agree on a key, to
/// sign or to verify, it submits its jobs and leaves that stack, and other connections go on. A pass
/// runs when the waiting jobs fill its lanes, or when the thread has nothing else to do. Then the
/// handshakes of its jobs go on.
///
/// # Stacks
///
/// A step takes its stack from a pool and gives it back at its end: an idle connection holds none. A
/// stack has 256 KiB and a guard area of 64 KiB below it; a handshake touches up to 32 KiB. Pages
/// that a deeper call has touched return to the kernel with the stack.
///
/// # Callbacks
///
/// The callbacks of a configuration (certificate resolvers, verifiers, session stores, key logs) run
/// on these stacks too, and a callback that uses this provider may be suspended in the middle. Other
/// handshakes of the thread then run before it goes on. So a callback must not
///
/// * hold a lock, or a borrow of a `RefCell`, while it signs, verifies or agrees on a key: the next
///   handshake that wants the same lock blocks the only thread that can release it;
/// * keep in a thread-local what it expects to find unchanged afterwards;
/// * need more stack than is left: 200 KiB are safe.
pub struct Driver {
    worker: Rc<Worker>,
    stacks: Rc<Stacks>,
    /// `Worker::submitted` when last looked at.
    seen: Cell<u64>,
    /// Handshakes that may submit jobs soon.
    expected: Cell<usize>,
    /// Number of [`Turns`]: callers that promise to run the waiting jobs.
    turning: Cell<usize>,
    /// Wakes the flusher when a job waits that no full pass has taken.
    flusher: RefCell<Option<Waker>>,
}

impl Driver {
    /// A driver for the calling thread, whose jobs go to `engine`: the one given to
    /// [`provider`](crate::provider).
    ///
    /// Spawn [`Driver::flusher`] as a local task before the first handshake.
    pub fn new(engine: &Engine) -> Rc<Self> {
        Rc::new(Self {
            worker: Rc::new(engine.worker()),
            stacks: Rc::default(),
            seen: Cell::new(0),
            expected: Cell::new(0),
            turning: Cell::new(0),
            flusher: RefCell::default(),
        })
    }

    /// The engine to which its jobs go.
    pub fn engine(&self) -> &Engine {
        self.worker.engine()
    }

    /// Announces a handshake. Call it as soon as the socket is accepted, before waiting for its
    /// first bytes.
    ///
    /// While other handshakes are under way, a job waits so that theirs can share its pass. The jobs
    /// of the only handshake run at once, without suspending it.
    pub fn handshake(self: &Rc<Self>) -> Handshake {
        self.expected.set(self.expected.get() + 1);
        Handshake {
            driver: Rc::clone(self),
            expected: true,
            observed: Observed::default(),
        }
    }

    /// Runs passes that are not full when the thread has nothing else to do. Spawn it once, as a
    /// local task on the thread of this driver; it never ends by itself.
    ///
    /// A job waits as long as jobs keep coming: the flusher lets every other task run and looks at
    /// the sockets once more; if that brought no new job, it runs what is there. There is no
    /// timer, and on a quiet server no wait: the jobs of a lone handshake run at once. Without a
    /// flusher all jobs do.
    pub async fn flusher(self: Rc<Self>) {
        let turns = self.turns();
        loop {
            self.work().await;
            loop {
                let seen = self.worker.submitted();
                // Comes back only after all ready tasks have run and the I/O driver has been
                // polled.
                yield_now().await;
                if self.worker.submitted() == seen {
                    break;
                }
            }
            turns.turn();
        }
    }

    /// For event loops other than tokio's, in place of the [flusher](Self::flusher): as long as
    /// what it returns lives, passes that are not full are left to [`Turns::turn`].
    ///
    /// The futures of a driver need no runtime: poll one with a waker that tells the loop to poll
    /// it again.
    pub fn turns(self: &Rc<Self>) -> Turns {
        self.turning.set(self.turning.get() + 1);
        Turns {
            driver: Rc::clone(self),
        }
    }

    /// Handshake steps that have begun and not ended, most of them suspended; each holds a stack.
    pub fn stacks_in_use(&self) -> usize {
        self.stacks.live()
    }

    /// Stacks that are kept for the next steps.
    pub fn stacks_pooled(&self) -> usize {
        self.stacks.free()
    }

    /// Returns whether only the step that runs now can submit jobs soon; `own` of the expected handshakes
    /// are the step's.
    ///
    /// A handshake that is both suspended and expected counts twice, which does no harm: the
    /// question is whether there is any.
    fn is_quiet(&self, own: usize) -> bool {
        let others = self.stacks.live() - 1 + self.expected.get() - own;
        self.turning.get() > 0 && self.worker.is_quiet(others)
    }

    /// A step has suspended: runs full passes and tells the flusher about the rest. Returns whether
    /// any ran.
    fn gather(&self) -> bool {
        let submitted = self.worker.submitted();
        if self.seen.replace(submitted) == submitted {
            return false;
        }
        if self.turning.get() == 0 {
            self.run_out();
            return true;
        }
        // Jobs that were submitted together may have filled several passes.
        let mut ran = false;
        while self.worker.turn(Idle::No) > 0 {
            ran = true;
        }
        if self.worker.waiting() > 0 {
            let waker = self.flusher.borrow_mut().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        ran
    }

    /// Waits until there is a job that no full pass has taken.
    async fn work(&self) {
        poll_fn(|cx| {
            if self.worker.waiting() > 0 {
                return Poll::Ready(());
            }
            self.flusher.replace(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Runs all waiting jobs.
    fn run_out(&self) {
        while self.worker.turn(Idle::Yes) > 0 {}
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("stacks_in_use", &self.stacks_in_use())
            .field("stacks_pooled", &self.stacks_pooled())
            .finish_non_exhaustive()
    }
}

/// A handshake in progress, announced with [`Driver::handshake`]: its steps, one after the other.
///
/// Dropping it tells the driver to expect no more jobs of it.
pub struct Handshake {
    driver: Rc<Driver>,
    /// True if the driver counts it.
    expected: bool,
    observed: Observed,
}

impl Handshake {
    /// Processes the TLS bytes that `connection`, a server's or a client's, has read, like
    /// [`process_new_packets`](ConnectionCommon::process_new_packets), and waits for the
    /// operations this needs.
    ///
    /// The connection is moved in and comes back with the result, also with an error, so that the
    /// caller can send the alert that rustls has queued. rustls queues none when the engine failed.
    ///
    /// The future may complete without yielding: the jobs of a lone handshake run at once. A task
    /// that handles many connections in one loop should yield between them.
    ///
    /// If the future is dropped meanwhile, the connection is dropped, its jobs are cancelled and
    /// its stack goes back to the pool.
    ///
    /// # Panics
    ///
    /// A panic inside rustls, or inside a callback of its configuration, is passed on to the
    /// caller. The connection is gone; the driver and its other connections are unharmed.
    pub async fn process<C, D>(&mut self, mut connection: Box<C>) -> (Box<C>, Result<IoState, HandshakeError>)
    where
        C: DerefMut<Target = ConnectionCommon<D>> + 'static,
        D: 'static,
    {
        self.observed.begin(&connection);
        let stack = match self.driver.stacks.take() {
            Ok(stack) => stack,
            Err(error) => {
                let error = HandshakeError::NoStack(error);
                self.observed.failed(Some(&connection), &error);
                return (connection, Err(error));
            }
        };
        let step = self.suspendable(stack, move || {
            let result = connection.process_new_packets();
            (connection, result)
        });
        let (mut connection, result) = self.finish(step).await;
        let result = result.map_err(HandshakeError::from);
        if let Err(HandshakeError::Overloaded | HandshakeError::ShutDown) = result {
            // rustls blames the peer for every key exchange that does not take place.
            discard_queued(&mut connection);
        }
        match &result {
            Ok(_) => self.observed.stepped(&connection, None),
            Err(error) => self.observed.failed(Some(&connection), error),
        }
        if connection.wants_write() || !connection.is_handshaking() {
            // A server's next step follows the client's answer, a round trip away, and often needs
            // no job.
            self.settle();
        }
        (connection, result)
    }

    /// Starts a client's connection, like [`ClientConnection::new`], which generates the keys of
    /// its ClientHello, and waits for that.
    ///
    /// On an idle driver this completes without yielding, as [`process`](Self::process) may: a loop
    /// that starts many clients should yield between them, or its first connections wait until the
    /// last one has started.
    ///
    /// # Errors
    ///
    /// Those of [`ClientConnection::new`], and when the engine does not take the jobs.
    ///
    /// # Panics
    ///
    /// As [`process`](Self::process) does.
    pub async fn start_client(
        &mut self,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Box<ClientConnection>, HandshakeError> {
        self.observed.begin_client();
        let stack = self.driver.stacks.take().map_err(HandshakeError::NoStack);
        let started = match stack {
            Ok(stack) => {
                let step = self.suspendable(stack, move || ClientConnection::new(config, name).map(Box::new));
                self.finish(step).await.map_err(HandshakeError::from)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = &started {
            self.observed.failed::<ClientConnectionData>(None, error);
        }
        started
    }

    /// Runs `step` to its end.
    async fn finish<T>(&self, mut step: Suspendable<T>) -> T {
        poll_fn(|cx| {
            loop {
                self.observed.resumed();
                let poll = step.resume(cx.waker());
                // The step may wait for a pass that has just run. If its jobs gain nothing from a
                // shared pass this is always so, and no step stays suspended.
                if poll.is_ready() || !self.driver.gather() {
                    return poll;
                }
            }
        })
        .await
    }

    fn suspendable<T>(&self, stack: GuardedStack, step: impl FnOnce() -> T + 'static) -> Suspendable<T> {
        let Driver { stacks, worker, .. } = &*self.driver;
        let (driver, own) = (Rc::clone(&self.driver), usize::from(self.expected));
        Suspendable::new(stacks, stack, worker, move || driver.is_quiet(own), step)
    }

    /// Tells the driver to expect no more jobs soon.
    fn settle(&mut self) {
        if std::mem::take(&mut self.expected) {
            let expected = &self.driver.expected;
            expected.set(expected.get() - 1);
        }
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.settle();
    }
}

impl std::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handshake").finish_non_exhaustive()
    }
}

/// The promise to run what waits at a [`Driver`], made by [`Driver::turns`]. When it is dropped,
/// what still waits is run.
///
/// A loop that keeps it: handle every socket that is ready and poll every future that was woken;
/// look at the sockets once more without waiting; if that brought nothing, [`turn`](Self::turn);
/// wait at the sockets only when that returned 0 and no future was woken.
#[derive(Debug)]
pub struct Turns {
    driver: Rc<Driver>,
}

impl Turns {
    /// Runs one pass, full or not, and returns how many jobs it carried: 0 when nothing waits.
    pub fn turn(&self) -> usize {
        self.driver.worker.turn(Idle::Yes)
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        let turning = &self.driver.turning;
        turning.set(turning.get() - 1);
        if turning.get() == 0 {
            self.driver.flusher.take();
            // No caller is left to run these jobs.
            self.driver.run_out();
        }
    }
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// More operations of one kind wait than the engine accepts. The machine is at its limit: close
    /// the connection and accept fewer.
    #[error(
        "the engine's queue of public-key operations is full; \
         accept fewer connections at once or raise its queue limit"
    )]
    Overloaded,
    /// The engine has been shut down.
    #[error("the engine has been shut down; no more handshakes can be served")]
    ShutDown,
    /// The peer closed the connection in the middle of its handshake.
    #[error("the peer closed the connection during its handshake")]
    Closed,
    /// The peer broke the protocol, or no agreement was possible. An alert has been sent.
    #[error("TLS handshake failed: {0}")]
    Tls(#[source] rustls::Error),
    /// The socket failed.
    #[error("the connection failed during its handshake: {0}")]
    Io(#[from] io::Error),
    /// The system gave no memory for another stack.
    #[error(
        "no memory for the stack of a handshake: {0}; \
         lower the limit of connections or raise vm.max_map_count"
    )]
    NoStack(#[source] io::Error),
}

impl From<rustls::Error> for HandshakeError {
    fn from(error: rustls::Error) -> Self {
        if let rustls::Error::Other(OtherError(cause)) = &error {
            match cause.downcast_ref() {
                Some(Failure::Job(JobError::Refused(SubmitError::Overloaded { .. }))) => {
                    return Self::Overloaded;
                }
                Some(Failure::Job(JobError::ShutDown | JobError::Refused(SubmitError::ShutDown))) => {
                    return Self::ShutDown;
                }
                _ => {}
            }
        }
        Self::Tls(error)
    }
}

/// Drops what rustls wants to send.
fn discard_queued<D>(connection: &mut ConnectionCommon<D>) {
    while connection.wants_write() && connection.write_tls(&mut io::sink()).is_ok_and(|n| n > 0) {}
}
