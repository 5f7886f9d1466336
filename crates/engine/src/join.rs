//! Several requests for one caller: submitted together, and awaited once.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use widelane_crypto::Request;

use crate::engine::Engine;
use crate::error::JobError;
use crate::slot::Ticket;
use crate::sync::{AtomicUsize, Ordering};
use crate::worker::Worker;

/// Requests that do not depend on one another: a tuple of one, two or three.
pub trait Requests: Send {
    /// The outputs, in the order of the requests.
    type Outputs;
    /// Resolves when every job has ended, or as soon as one is seen to have failed. Wakes its task
    /// once all have ended, not for each. Dropping it cancels the jobs.
    type Tickets: Future<Output = Result<Self::Outputs, JobError>> + Unpin;

    /// Submits all of them. Never runs a kernel.
    ///
    /// # Errors
    ///
    /// When one is refused; those before it are cancelled.
    fn submit(self, worker: &Worker) -> Result<Self::Tickets, JobError>;

    /// Runs one after the other on the calling thread, as [`Engine::run_at_once`] does.
    ///
    /// # Errors
    ///
    /// Those of the first job that fails; the jobs after it are not run.
    fn run_at_once(self, engine: &Engine) -> Result<Self::Outputs, JobError>;

    /// Runs one after the other and blocks the calling thread, as [`Engine::run`] does.
    ///
    /// # Errors
    ///
    /// Those of the first job that fails; the jobs after it are not run.
    fn block(self, engine: &Engine) -> Result<Self::Outputs, JobError>;
}

/// The [`Part`]s of requests that were submitted together.
#[must_use = "dropping tickets cancels their jobs"]
pub struct Joined<T>(pub(crate) T);

// Nothing in it is pinned.
impl<T> Unpin for Joined<T> {}

/// One job of several: its ticket, and its output once that is there.
pub struct Part<T> {
    ticket: Ticket<T>,
    output: Option<T>,
}

impl<T> Part<T> {
    pub(crate) fn new(ticket: Ticket<T>) -> Self {
        Self {
            ticket,
            output: None,
        }
    }

    /// Looks whether the job has ended; 1 if it has not.
    fn look(&mut self) -> Result<usize, JobError> {
        if self.output.is_none() {
            self.output = self.ticket.try_take().transpose()?;
        }
        Ok(usize::from(self.output.is_none()))
    }

    /// Has `waker` woken when the job ends, or wakes it now if it has.
    fn watch(&mut self, waker: &Waker) -> Result<(), JobError> {
        if self.output.is_none()
            && let Poll::Ready(result) = self.ticket.poll_with(waker)
        {
            self.output = Some(result?);
            waker.wake_by_ref();
        }
        Ok(())
    }

    fn take(&mut self) -> T {
        self.output.take().expect("polled after its end")
    }
}

/// Wakes its task when it has been woken as often as it was told to expect.
struct Countdown {
    left: AtomicUsize,
    task: Waker,
}

impl Countdown {
    /// A waker of `task` that takes effect at the last of `left` calls.
    fn waker(left: usize, task: &Waker) -> Waker {
        let task = task.clone();
        if left == 1 {
            return task;
        }
        let left = AtomicUsize::new(left);
        Waker::from(Arc::new(Self { left, task }))
    }
}

impl Wake for Countdown {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.task.wake_by_ref();
        }
    }
}

macro_rules! requests {
    ($($request:ident $job:ident),+) => {
        impl<$($request: Request),+> Requests for ($($request,)+) {
            type Outputs = ($($request::Output,)+);
            type Tickets = Joined<($(Part<$request::Output>,)+)>;

            fn submit(self, worker: &Worker) -> Result<Self::Tickets, JobError> {
                let ($($job,)+) = self;
                Ok(Joined(($(Part::new(worker.submit($job)?),)+)))
            }

            fn run_at_once(self, engine: &Engine) -> Result<Self::Outputs, JobError> {
                let ($($job,)+) = self;
                Ok(($(engine.run_at_once($job)?,)+))
            }

            fn block(self, engine: &Engine) -> Result<Self::Outputs, JobError> {
                let ($($job,)+) = self;
                Ok(($(engine.run($job)?,)+))
            }
        }

        impl<$($request),+> Future for Joined<($(Part<$request>,)+)> {
            type Output = Result<($($request,)+), JobError>;

            fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
                let ($($job,)+) = &mut self.get_mut().0;
                let left = 0 $(+ $job.look()?)+;
                if left == 0 {
                    return Poll::Ready(Ok(($($job.take(),)+)));
                }
                let waker = Countdown::waker(left, cx.waker());
                $($job.watch(&waker)?;)+
                Poll::Pending
            }
        }
    };
}

requests!(A a);
requests!(A a, B b);
requests!(A a, B b, C c);
