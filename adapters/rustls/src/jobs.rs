//! The way from inside rustls to the engine and back.
//!
//! rustls calls the provider synchronously. On a driver's stack the caller is suspended until its
//! jobs have ended, or its jobs run at once if no other job can join them soon. On any other stack
//! the caller blocks, and shares passes with other threads that block.

use std::error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use rustls::OtherError;
use widelane_engine::{Engine, JobError, Request, SubmitError, Ticket, Worker};

use crate::suspend::{Cancelled, Frame};

/// Runs one job to its end.
pub(crate) fn run<R: Request>(engine: &Engine, request: R) -> Result<R::Output, Failure> {
    Frame::with_current(|frame| match frame {
        Some(frame) if frame.is_quiet() => Ok(run_at_once(frame, request)?),
        Some(frame) => {
            let ticket = frame.worker().submit(request).map_err(JobError::from)?;
            Ok(frame.wait(ticket)??)
        }
        None => Ok(engine.run(request)?),
    })
}

/// Runs jobs that do not depend on one another. On a driver's stack all are submitted before the
/// caller is suspended, once; elsewhere one runs after the other.
pub(crate) fn run_together<J: Jobs>(engine: &Engine, jobs: J) -> Result<J::Outputs, Failure> {
    Frame::with_current(|frame| match frame {
        Some(frame) if frame.is_quiet() => Ok(jobs.run_at_once(frame)?),
        Some(frame) => {
            let tickets = jobs.submit(frame.worker()).map_err(JobError::from)?;
            Ok(frame.wait(tickets)??)
        }
        None => Ok(jobs.block(engine)?),
    })
}

/// Runs one job on the thread's own stack, where all jobs run.
fn run_at_once<R: Request>(frame: &Frame<'_>, request: R) -> Result<R::Output, JobError> {
    let engine = frame.worker().engine();
    frame.on_thread_stack(|| engine.run_at_once(request))
}

/// Why an operation gave no result although the peer did nothing wrong. It travels through rustls
/// as [`rustls::Error::Other`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The engine took the job and gave no output, or did not take it.
    #[error("the engine did not do this operation: {0}")]
    Job(#[from] JobError),
    /// The operation itself failed.
    #[error(transparent)]
    Operation(Box<dyn error::Error + Send + Sync>),
    /// The connection that wanted it is gone.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl Failure {
    /// An operation that failed with `cause`.
    pub(crate) fn operation(cause: impl error::Error + Send + Sync + 'static) -> Self {
        Self::Operation(Box::new(cause))
    }
}

impl From<Failure> for rustls::Error {
    fn from(failure: Failure) -> Self {
        Self::Other(OtherError(Arc::new(failure)))
    }
}

/// Requests that are submitted together: a pair or a triple.
pub(crate) trait Jobs {
    type Outputs;
    type Tickets: Future<Output = Result<Self::Outputs, JobError>>;

    /// Submits all of them; if one is refused, those before it are cancelled.
    fn submit(self, worker: &Worker) -> Result<Self::Tickets, SubmitError>;

    /// Runs all of them at once; if one fails, those after it are not run.
    fn run_at_once(self, frame: &Frame<'_>) -> Result<Self::Outputs, JobError>;

    /// Runs all of them, blocking the calling thread.
    fn block(self, engine: &Engine) -> Result<Self::Outputs, JobError>;
}

/// Resolves when every job has ended, or as soon as one is seen to have failed. Wakes its task once
/// all have ended, not for each.
pub(crate) struct Together<T>(T);

/// One job of several: its ticket, and its output once that is there.
pub(crate) struct Pending<T> {
    ticket: Ticket<T>,
    output: Option<T>,
}

impl<T> Pending<T> {
    fn new(ticket: Ticket<T>) -> Self {
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
        if self.output.is_none() {
            let poll = Pin::new(&mut self.ticket).poll(&mut Context::from_waker(waker));
            if let Poll::Ready(result) = poll {
                self.output = Some(result?);
                waker.wake_by_ref();
            }
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

macro_rules! jobs {
    ($($request:ident $job:ident),+) => {
        impl<$($request: Request),+> Jobs for ($($request,)+) {
            type Outputs = ($($request::Output,)+);
            type Tickets = Together<($(Pending<$request::Output>,)+)>;

            fn submit(self, worker: &Worker) -> Result<Self::Tickets, SubmitError> {
                let ($($job,)+) = self;
                Ok(Together(($(Pending::new(worker.submit($job)?),)+)))
            }

            fn run_at_once(self, frame: &Frame<'_>) -> Result<Self::Outputs, JobError> {
                let ($($job,)+) = self;
                Ok(($(run_at_once(frame, $job)?,)+))
            }

            fn block(self, engine: &Engine) -> Result<Self::Outputs, JobError> {
                let ($($job,)+) = self;
                Ok(($(engine.run($job)?,)+))
            }
        }

        // Nothing in it is pinned.
        impl<$($request),+> Unpin for Together<($(Pending<$request>,)+)> {}

        impl<$($request),+> Future for Together<($(Pending<$request>,)+)> {
            type Output = Result<($($request,)+), JobError>;

            fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
                let ($($job,)+) = &mut self.get_mut().0;
                let left = 0 $(+ $job.look()?)+;
                if left == 0 {
                    return Poll::Ready(Ok(($($job.take(),)+)));
                }
                let waker = Waker::from(Arc::new(Countdown {
                    left: AtomicUsize::new(left),
                    task: cx.waker().clone(),
                }));
                $($job.watch(&waker)?;)+
                Poll::Pending
            }
        }
    };
}

jobs!(A a, B b);
jobs!(A a, B b, C c);
