//! The driver of suspended handshakes, one an event-loop thread.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};

use rustls::server::ServerConnection;
use rustls::{IoState, OtherError};
use tokio::task::yield_now;
use widelane_engine::{Engine, Idle, JobError, SubmitError, Worker};

use crate::provider::SignFailure;
use crate::suspend::{Stacks, Suspendable};

/// Runs handshake steps so that one that waits for a private-key operation does not hold up its
/// thread.
///
/// One driver serves one event-loop thread: a single-threaded tokio runtime that can spawn local
/// tasks ([`LocalRuntime`](tokio::runtime::LocalRuntime), or a
/// [`LocalSet`](tokio::task::LocalSet)). Each step runs on a small stack of its own. When a signer
/// of [`provider`](crate::provider) needs its private key, it submits a job and leaves that stack;
/// other connections go on; when enough jobs have come together to fill the lanes of a pass, or
/// nothing else is left to do, the pass runs and its handshakes go on.
///
/// Stacks are taken from a pool for the time of a step only: an idle connection holds none. One has
/// 256 KiB of address space and a guard page below; a handshake touches up to 32 KiB of it. The
/// callbacks of a configuration (resolvers, verifiers) run there too.
pub struct Driver {
    worker: Rc<Worker>,
    stacks: Rc<Stacks>,
    /// `Worker::submitted` when last looked at.
    seen: Cell<u64>,
    flusher: RefCell<Flusher>,
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
            flusher: RefCell::default(),
        })
    }

    /// Processes the TLS bytes that `connection` has read, like
    /// [`process_new_packets`](rustls::ConnectionCommon::process_new_packets), and waits for the
    /// private-key operations this needs.
    ///
    /// The connection is moved in and comes back with the result, also with an error, so that the
    /// alert that rustls has queued can be sent. If the future is dropped meanwhile, the
    /// connection is dropped, its job is cancelled and its stack goes back to the pool.
    ///
    /// # Panics
    ///
    /// A panic inside rustls, or inside a callback of its configuration, is passed on to the
    /// caller. The connection is gone; the driver and its other connections are unharmed.
    pub async fn process(
        &self,
        mut connection: Box<ServerConnection>,
    ) -> (Box<ServerConnection>, Result<IoState, HandshakeError>) {
        let stack = match self.stacks.take() {
            Ok(stack) => stack,
            Err(error) => return (connection, Err(HandshakeError::NoStack(error))),
        };
        let mut step = Suspendable::new(&self.stacks, stack, &self.worker, move || {
            let result = connection.process_new_packets();
            (connection, result)
        });
        let (connection, result) = poll_fn(|cx| {
            let poll = step.resume(cx.waker());
            if poll.is_pending() {
                self.gather();
            }
            poll
        })
        .await;
        (connection, result.map_err(HandshakeError::from))
    }

    /// Runs passes that are not full when the thread has nothing else to do. Spawn it once, as a
    /// local task on the thread of this driver; it never ends by itself.
    ///
    /// A job waits as long as jobs keep coming: the flusher lets every other task run and looks at
    /// the sockets once more; if that brought no new job, it runs what is there. There is no
    /// timer: on a quiet server this costs one look at the sockets. Without a flusher each job
    /// is run at once, alone.
    pub async fn flusher(self: Rc<Self>) {
        let flusher = Running::new(&self);
        loop {
            flusher.work().await;
            loop {
                let seen = self.worker.submitted();
                // Comes back only after all ready tasks have run and the I/O driver has been
                // polled.
                yield_now().await;
                if self.worker.submitted() == seen {
                    break;
                }
            }
            self.worker.turn(Idle::Yes);
        }
    }

    /// Handshake steps that are under way, most of them suspended; each holds a stack.
    pub fn stacks_in_use(&self) -> usize {
        self.stacks.live()
    }

    /// Stacks that are kept for the next steps.
    pub fn stacks_pooled(&self) -> usize {
        self.stacks.free()
    }

    /// A step has suspended: runs full passes and tells the flusher about the rest.
    fn gather(&self) {
        let submitted = self.worker.submitted();
        if self.seen.replace(submitted) == submitted {
            return;
        }
        if !self.flusher.borrow().running {
            while self.worker.turn(Idle::Yes) > 0 {}
            return;
        }
        self.worker.turn(Idle::No);
        if self.worker.waiting() > 0 {
            let waker = self.flusher.borrow_mut().waker.take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
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

/// Why a handshake did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// More private-key operations wait than the engine accepts. The machine is at its limit: close
    /// the connection and accept fewer.
    #[error(
        "the engine's queue of private-key operations is full; \
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
                Some(SignFailure::Job(JobError::Refused(SubmitError::Overloaded { .. }))) => {
                    return Self::Overloaded;
                }
                Some(SignFailure::Job(
                    JobError::ShutDown | JobError::Refused(SubmitError::ShutDown),
                )) => return Self::ShutDown,
                _ => {}
            }
        }
        Self::Tls(error)
    }
}

/// What the driver knows of its flusher.
#[derive(Default)]
struct Flusher {
    running: bool,
    waker: Option<Waker>,
}

/// The flusher's own end: as long as it lives, partly filled passes are its duty.
struct Running<'a>(&'a Driver);

impl<'a> Running<'a> {
    fn new(driver: &'a Driver) -> Self {
        driver.flusher.borrow_mut().running = true;
        Self(driver)
    }

    /// Waits until there is a job that no full pass has taken along.
    async fn work(&self) {
        poll_fn(|cx| {
            if self.0.worker.waiting() > 0 {
                return Poll::Ready(());
            }
            self.0.flusher.borrow_mut().waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *self.0.flusher.borrow_mut() = Flusher::default();
        // Nobody else would run what still waits.
        while self.0.worker.turn(Idle::Yes) > 0 {}
    }
}
