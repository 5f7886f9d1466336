//! A caller lends a closure to another thread and waits for it. All unsafe code of this crate is
//! here.
//!
//! Closure, result and a [`Latch`] that signals the end stay on the caller's stack. Only a [`Job`],
//! two pointers, goes to the other thread. The state of the latch is one byte:
//!
//! | event  | by     | before     | after      | meaning |
//! | ---    | ---    | ---        | ---        | --- |
//! | lend   | caller |            | `PENDING`  | the job travels or runs; the caller spins |
//! | sleep  | caller | `PENDING`  | `SLEEPING` | the caller sleeps, and must be woken |
//! | finish | runner | `PENDING`  | `DONE`     | the caller may be gone: nothing more is touched |
//! | finish | runner | `SLEEPING` | `DONE`     | the runner, with a handle taken before, wakes it |
//!
//! `DONE` is the runner's last access. The caller returns or unwinds only after it has seen `DONE`.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::time::Duration;

use crate::sync::{Arc, AtomicU8, Ordering, Parker, spin};

/// Gives `closure` to `hand_over` as a job, waits until it has run, and returns its value or resumes its panic. The
/// caller spins for at most `patience` before it sleeps.
///
/// `hand_over` must make sure that the job runs; else the caller waits for ever.
pub(crate) fn lend<R: Send>(closure: impl FnOnce() -> R + Send, patience: Duration, hand_over: impl FnOnce(Job)) -> R {
    let mut closure = Some(closure);
    let mut result = None;
    let mut run = || {
        if let Some(closure) = closure.take() {
            // A panic goes on in the caller, which sees what the closure left half done.
            result = Some(catch_unwind(AssertUnwindSafe(closure)));
        }
    };
    let latch = Latch::new();
    {
        let run: &mut (dyn FnMut() + Send + '_) = &mut run;
        let run: *mut (dyn FnMut() + Send + '_) = run;
        // SAFETY: only the lifetime in the type changes. The type no longer tells for how long the
        // pointer is valid; `Job::run`, its only user, states why it is valid there.
        let run = unsafe { std::mem::transmute::<*mut (dyn FnMut() + Send + '_), *mut (dyn FnMut() + Send)>(run) };
        // From here until the latch signals the end, this frame must stay.
        let stay = AbortOnUnwind;
        hand_over(Job {
            run,
            latch: NonNull::from(&latch),
        });
        latch.wait(patience);
        std::mem::forget(stay);
    }
    match result {
        Some(Ok(value)) => value,
        Some(Err(panic)) => resume_unwind(panic),
        None => unreachable!("the latch is set after the closure ran"),
    }
}

/// A lent closure on its way. It [runs](Self::run) exactly once, by construction.
pub(crate) struct Job {
    run: *mut (dyn FnMut() + Send),
    latch: NonNull<Latch>,
}

// SAFETY: the closure behind `run` is `Send`: `lend` asks that of what it captures, the user's
// closure and the place for its value. The latch is shared by atomics alone.
unsafe impl Send for Job {}

impl Job {
    /// Runs the closure and tells its caller. Does not panic.
    pub(crate) fn run(self) {
        // SAFETY: the closure is alive, because `lend` does not leave its frame, not even by a
        // panic, before the latch is set, which happens below and nowhere else. Nothing else uses
        // it: `lend` makes one `Job` and does not touch the closure until then, and `run` consumes
        // it. The closure catches the panics of the user's closure.
        unsafe { (*self.run)() };
        // SAFETY: the latch is alive for the same reason.
        unsafe { Latch::set(self.latch) };
    }
}

/// Tells one waiting thread that a job has ended.
struct Latch {
    state: AtomicU8,
    waiter: Arc<Parker>,
}

impl Latch {
    /// Makes a latch for the calling thread; only that thread may wait for it.
    fn new() -> Self {
        Self {
            state: AtomicU8::new(PENDING),
            waiter: Parker::current(),
        }
    }

    /// Returns once [`set`](Self::set) was called, and sees what its caller wrote before.
    fn wait(&self, patience: Duration) {
        let is_done = || self.state.load(Ordering::Acquire) == DONE;
        if spin(patience, is_done) {
            return;
        }
        let asleep = self.state.compare_exchange(
            PENDING,
            SLEEPING,
            // No data of ours must be visible; the waiter exists since the job was handed over.
            Ordering::Relaxed,
            Ordering::Acquire,
        );
        while asleep.is_ok() && !is_done() {
            self.waiter.park();
        }
    }

    /// Ends the wait. A pointer, as the latch may be gone before this returns.
    ///
    /// # Safety
    ///
    /// The latch is alive at the call, and the waiter keeps it so until the state is `DONE`.
    unsafe fn set(this: NonNull<Self>) {
        // SAFETY: the state is not `DONE` before this function makes it so, and it touches nothing
        // of the latch after that.
        let latch = unsafe { this.as_ref() };
        let spinning = latch
            .state
            .compare_exchange(PENDING, DONE, Ordering::Release, Ordering::Relaxed);
        if spinning.is_err() {
            let waiter = Arc::clone(&latch.waiter);
            latch.state.store(DONE, Ordering::Release);
            waiter.unpark();
        }
    }
}

/// Ends the process if a panic would destroy data that another thread may use.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}

const PENDING: u8 = 0;
const SLEEPING: u8 = 1;
const DONE: u8 = 2;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_closure_runs_on_another_thread_and_its_value_comes_back() {
        for patience in [Duration::ZERO, Duration::MAX] {
            let text = String::from("borrowed");
            let value = std::thread::scope(|scope| {
                lend(
                    || (text.len(), std::thread::current().id()),
                    patience,
                    |job| drop(scope.spawn(|| job.run())),
                )
            });
            assert_eq!(value.0, 8);
            assert_ne!(value.1, std::thread::current().id());
        }
    }

    #[test]
    fn a_panic_comes_back() {
        let caught = catch_unwind(|| {
            std::thread::scope(|scope| {
                lend(
                    || std::panic::panic_any(7_u8),
                    Duration::ZERO,
                    |job| drop(scope.spawn(|| job.run())),
                )
            })
        });
        assert_eq!(caught.expect_err("it panicked").downcast_ref(), Some(&7_u8));
    }
}
