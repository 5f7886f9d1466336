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

impl Worker {
    /// Submits jobs that do not depend on one another. Never runs a kernel.
    ///
    /// # Errors
    ///
    /// When one is refused; those before it are cancelled.
    pub fn submit_all<R: Request>(&self, requests: Vec<R>) -> Result<Tickets<R::Output>, JobError> {
        let part = |request| Ok(Part::new(self.submit(request)?));
        requests.into_iter().map(part).collect::<Result<_, _>>().map(Tickets)
    }
}

impl Engine {
    /// Runs one job after the other and blocks the calling thread, as [`run`](Self::run) does.
    ///
    /// # Errors
    ///
    /// Those of the first job that fails; the jobs after it are not run.
    pub fn run_all<R: Request>(&self, requests: Vec<R>) -> Result<Vec<R::Output>, JobError> {
        let run = |request| self.run(request);
        requests.into_iter().map(run).collect()
    }

    /// Runs all of them on the calling thread, as [`run_at_once`](Self::run_at_once) does.
    ///
    /// # Errors
    ///
    /// Those of the first job that fails; the jobs after it are not run.
    pub fn run_all_at_once<R: Request>(&self, requests: Vec<R>) -> Result<Vec<R::Output>, JobError> {
        let run = |request| self.run_at_once(request);
        requests.into_iter().map(run).collect()
    }
}

/// The tickets of jobs that were submitted together: a future of their outputs, in order.
///
/// It resolves when every job has ended, or as soon as one is seen to have failed. It wakes its task once all
/// have ended, not for each. Dropping it cancels the jobs.
#[must_use = "dropping tickets cancels their jobs"]
pub struct Tickets<T>(pub(crate) Vec<Part<T>>);

// Nothing in it is pinned.
impl<T> Unpin for Tickets<T> {}

/// One job of several: its ticket, and its output once that is there.
pub(crate) struct Part<T> {
    ticket: Ticket<T>,
    output: Option<T>,
}

impl<T> Part<T> {
    pub(crate) fn new(ticket: Ticket<T>) -> Self {
        Self { ticket, output: None }
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

impl<T> Future for Tickets<T> {
    type Output = Result<Vec<T>, JobError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let parts = &mut self.get_mut().0;
        let mut left = 0;
        for part in &mut *parts {
            left += part.look()?;
        }
        if left == 0 {
            return Poll::Ready(Ok(parts.iter_mut().map(Part::take).collect()));
        }
        let waker = Countdown::waker(left, cx.waker());
        for part in parts {
            part.watch(&waker)?;
        }
        Poll::Pending
    }
}
