//! The life of one job's result: a slot that a [`Reply`] fills once and a [`Ticket`] reads once.
//!
//! The state of the slot is three bits in one atomic byte: `D`one, `W`aiting, `A`bandoned. In the
//! table, `-` is a clear bit and `*` is either value.
//!
//! | event    | by     | before  | after   | meaning |
//! | ---      | ---    | ---     | ---     | --- |
//! | submit   |        |         | `- - -` | queued; both halves exist |
//! | poll     | ticket | `- - -` | `- W -` | a waker was stored: the ticket waits |
//! | poll     | ticket | `- W -` | `- - -` | the waker is taken back, to be compared |
//! | run      | reply  | `- * -` | same    | it looks: wanted, so a pass takes the job |
//! | skip     | reply  | `- * A` | same    | it looks: unwanted, so no pass takes it |
//! | complete | reply  | `- * *` | `D * *` | the output was stored; a waiting ticket is woken |
//! | panic    | reply  | `- * *` | `D * *` | as complete: [`JobError::Panicked`] |
//! | shutdown | reply  | `- * *` | `D * *` | as complete: [`JobError::ShutDown`]; reply dropped |
//! | take     | ticket | `D * -` | same    | the output leaves the slot |
//! | cancel   | ticket | `* * -` | `* * A` | the ticket was dropped |
//!
//! No other transition exists. The bits tell which half may access the two cells:
//!
//! * **output**: the reply before it sets `DONE`, the ticket from then on;
//! * **waker**: the ticket while both `DONE` and `WAITING` are clear; neither half while only
//!   `WAITING` is set; once both are set, the reply that found `WAITING` when it set `DONE`. If
//!   `DONE` was set while `WAITING` was clear, the cell stays with the ticket.
//!
//! Each slot has exactly one reply and one ticket. Neither can be cloned, and each acts through
//! `&mut self` or by value, so no half races with itself.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use widelane_probes::sites;

use crate::error::JobError;
use crate::sync::{Arc, AtomicU8, Ordering, Parker, UnsafeCell, contain};

/// The result of one submitted job, once it is there.
///
/// Await the ticket, [`wait`](Self::wait) for it or poll it with [`try_take`](Self::try_take).
/// Dropping it cancels the job: a job that has not started is skipped, the result of one that has
/// is dropped.
#[must_use = "dropping a ticket cancels its job"]
pub struct Ticket<T> {
    slot: Arc<Slot<T>>,
}

impl<T> Ticket<T> {
    /// Returns whether the job has ended; the result may have been taken already.
    pub fn is_done(&self) -> bool {
        self.slot.state.load(Ordering::Acquire) & DONE != 0
    }

    /// Takes the result. `None` until the job has ended, and after the result was taken.
    pub fn try_take(&mut self) -> Option<Result<T, JobError>> {
        if self.is_done() { self.take_output() } else { None }
    }

    /// Blocks the calling thread until the job has ended.
    ///
    /// With inline placement another thread must turn the job's worker. A thread that waits for a
    /// job of its own worker would wait for ever: use [`Worker::wait`](crate::Worker::wait) there.
    ///
    /// # Panics
    ///
    /// If the result was already taken.
    pub fn wait(mut self) -> Result<T, JobError> {
        if let Some(result) = self.try_take() {
            return result;
        }
        let parker = Parker::current();
        let waker = Waker::from(std::sync::Arc::clone(&parker));
        loop {
            if let Poll::Ready(result) = self.poll_with(&waker) {
                return result;
            }
            parker.park();
        }
    }

    /// Stores `waker` unless the job has ended.
    pub(crate) fn poll_with(&mut self, waker: &Waker) -> Poll<Result<T, JobError>> {
        let slot = &*self.slot;
        let mut state = slot.state.load(Ordering::Acquire);
        loop {
            if state & DONE != 0 {
                let result = self.take_output();
                return Poll::Ready(result.expect("a ticket was polled after it gave its result"));
            }
            if state & WAITING != 0 {
                match slot.exchange(state, state & !WAITING) {
                    Ok(()) => state &= !WAITING,
                    Err(changed) => {
                        state = changed;
                        continue;
                    }
                }
            }
            // Cloning and dropping a waker run the caller's code. A panic there leaves the cell
            // whole.
            let replaced = slot.waker.with_mut(|cell| {
                // SAFETY: this thread saw DONE and WAITING clear. Only the ticket sets WAITING, and
                // the reply leaves the waker alone unless it finds WAITING set, so the cell
                // is ours; the read-modify-write that cleared WAITING, if any, ordered us
                // after its last use.
                let cell = unsafe { &mut *cell };
                match cell {
                    Some(held) if held.will_wake(waker) => None,
                    cell => cell.replace(waker.clone()),
                }
            });
            drop(replaced);
            match slot.exchange(state, state | WAITING) {
                Ok(()) => return Poll::Pending,
                Err(changed) => state = changed,
            }
        }
    }

    fn take_output(&mut self) -> Option<Result<T, JobError>> {
        self.slot.output.with_mut(|cell| {
            // SAFETY: the callers saw DONE with acquire ordering, and the reply never touches the
            // output again once it has set DONE; `&mut self` is the only other side.
            unsafe { (*cell).take() }
        })
    }
}

impl<T> Future for Ticket<T> {
    type Output = Result<T, JobError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_with(context.waker())
    }
}

impl<T> Drop for Ticket<T> {
    fn drop(&mut self) {
        // Release: our accesses to the cells happen before the reply sees the bit.
        self.slot.state.fetch_or(ABANDONED, Ordering::Release);
    }
}

impl<T> fmt::Debug for Ticket<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("done", &self.is_done())
            .finish_non_exhaustive()
    }
}

/// The obligation to answer one job. Dropping it answers [`JobError::ShutDown`].
pub(crate) struct Reply<T> {
    slot: Option<Arc<Slot<T>>>,
}

impl<T> Reply<T> {
    /// Returns whether the ticket still exists.
    pub(crate) fn is_wanted(&self) -> bool {
        let slot = self.slot.as_ref();
        slot.is_some_and(|slot| slot.state.load(Ordering::Acquire) & ABANDONED == 0)
    }

    /// A number that no other job has until this one is done: the address of its slot.
    pub(crate) fn job(&self) -> usize {
        self.slot.as_deref().map_or(0, Slot::job)
    }

    /// Ends the job.
    pub(crate) fn complete(mut self, result: Result<T, JobError>) {
        if let Some(slot) = self.slot.take() {
            slot.complete(result);
            // Without a ticket this drops the output, whose destructor runs the caller's code. If
            // it panics, the other jobs of the pass must still be answered.
            contain(|| drop(slot));
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.complete(Err(JobError::ShutDown));
        }
    }
}

/// End of a job as a number, for tracers.
pub(crate) fn ended<T>(result: &Result<T, JobError>) -> u8 {
    match result {
        Ok(_) => 0,
        Err(JobError::Panicked { .. }) => 1,
        Err(JobError::ShutDown) => 2,
        Err(JobError::Refused(_)) => 3,
    }
}

/// Makes the two halves of a new slot.
pub(crate) fn pair<T>() -> (Ticket<T>, Reply<T>) {
    let slot = Arc::new(Slot {
        state: AtomicU8::new(0),
        output: UnsafeCell::new(None),
        waker: UnsafeCell::new(None),
    });
    let reply = Reply {
        slot: Some(Arc::clone(&slot)),
    };
    (Ticket { slot }, reply)
}

struct Slot<T> {
    state: AtomicU8,
    output: UnsafeCell<Option<Result<T, JobError>>>,
    waker: UnsafeCell<Option<Waker>>,
}

// SAFETY: the cells are handed from one half to the other by the state's read-modify-writes (see
// the table above), so at most one thread touches a cell at a time and each sees what the last one
// wrote. The output moves between threads, hence `T: Send`; a waker may be used from any.
unsafe impl<T: Send> Send for Slot<T> {}
// SAFETY: threads that share a slot reach the cells only by the states of the table above, which let one at a time
// touch a cell. So none has a reference to what another one changes.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Slot<T> {
    fn exchange(&self, from: u8, to: u8) -> Result<(), u8> {
        self.state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
    }

    fn job(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Called once for each slot: the reply gives up its reference to call it.
    fn complete(&self, result: Result<T, JobError>) {
        sites::job_done(self.job(), ended(&result));
        self.output.with_mut(|cell| {
            // SAFETY: DONE is clear, because only this function sets it and runs once, and the
            // ticket stays away from the output until it sees DONE.
            unsafe { *cell = Some(result) };
        });
        let before = self.state.fetch_or(DONE, Ordering::AcqRel);
        debug_assert_eq!(before & DONE, 0, "a job was completed twice");
        if before & (WAITING | ABANDONED) == WAITING {
            let waker = self.waker.with_mut(|cell| {
                // SAFETY: DONE and WAITING are both set and this thread set DONE, so the ticket has
                // given the waker away (AcqRel: its write is visible here) and, seeing
                // DONE, will not reach for it again.
                unsafe { (*cell).take() }
            });
            if let Some(waker) = waker {
                // A waker runs the caller's code. If it panics, the other jobs of the pass must
                // still be answered.
                contain(|| waker.wake());
            }
        }
    }
}

/// The output is in its cell, or was taken.
const DONE: u8 = 1;
/// The ticket waits; its waker is in the cell.
const WAITING: u8 = 2;
/// The ticket was dropped.
const ABANDONED: u8 = 4;
