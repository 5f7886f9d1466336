//! Code that waits in the middle of a synchronous call, on a stack of its own.
//!
//! rustls calls its provider synchronously. A [`Suspendable`] runs such a call on a stack of its
//! own; when the provider has to wait for its jobs ([`Frame::run`]), it leaves that stack and lets
//! the thread do something else. Polling the `Suspendable` again goes on where it stopped.
//!
//! The unsafe code of this file reads one pointer: [`CURRENT`], the frame on whose stack this thread
//! runs at this moment. The rules that make reading it sound:
//!
//! 1. The coroutine sets it to its own frame when it starts and whenever it comes back from a
//!    suspension. A frame that is dropped clears it first, and so does a frame that runs something
//!    on the thread's own stack, for that time. [`resume`] puts back what was there before, as soon
//!    as the coroutine returns, suspends or panics. Nothing else writes it. Hence it names a frame
//!    only while that frame's coroutine runs.
//! 2. A frame lives on its coroutine's stack, below everything that the coroutine calls, and goes
//!    away when the coroutine's body returns or panics, never earlier: coroutines are not unwound
//!    from outside. One that must stop early is resumed a last time and told so, and returns by
//!    itself (see [`Cancelled`]).
//! 3. It is a thread-local and coroutines cannot move between threads.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::thread;

use corosensei::{Coroutine, CoroutineResult, Yielder};
use widelane_engine::{JobError, Request, Worker};
use widelane_stacks::{GuardedStack, Stacks};

/// A synchronous call that can stop in the middle, on a stack taken from a pool.
///
/// The stack goes back to the pool when the call has finished or the `Suspendable` is dropped.
pub(crate) struct Suspendable<T: 'static> {
    coroutine: Option<Stepper<T>>,
    stacks: Rc<Stacks>,
}

impl<T: 'static> Suspendable<T> {
    /// Prepares `step` to run on `stack`; it does not run yet. Its jobs go to `worker`,
    /// unless `alone` says that no other job can join them.
    pub(crate) fn new(
        stacks: &Rc<Stacks>,
        stack: GuardedStack,
        worker: &Rc<Worker>,
        alone: impl Fn() -> bool + 'static,
        step: impl FnOnce() -> T + 'static,
    ) -> Self {
        let worker = Rc::clone(worker);
        let coroutine = Coroutine::with_stack(stack, move |yielder, waker| {
            let frame = Frame {
                yielder,
                waker: RefCell::new(waker),
                worker,
                alone: &alone,
            };
            frame.make_current();
            step()
        });
        Self {
            coroutine: Some(coroutine),
            stacks: Rc::clone(stacks),
        }
    }

    /// Runs the call until it ends or waits; `waker` is woken when it can go on.
    ///
    /// # Panics
    ///
    /// When the call panics, with the same payload, and when it is resumed after its end.
    pub(crate) fn resume(&mut self, waker: &Waker) -> Poll<T> {
        let coroutine = self.coroutine.as_mut().expect("resumed after its end");
        match resume(coroutine, Some(waker.clone())) {
            CoroutineResult::Yield(()) => Poll::Pending,
            CoroutineResult::Return(value) => {
                self.release();
                Poll::Ready(value)
            }
        }
    }

    /// Gives the stack of a finished call back.
    fn release(&mut self) {
        if let Some(coroutine) = self.coroutine.take() {
            self.stacks.put(coroutine.into_stack());
        }
    }
}

impl<T: 'static> Drop for Suspendable<T> {
    fn drop(&mut self) {
        let Some(coroutine) = &mut self.coroutine else {
            return;
        };
        if !coroutine.started() {
            // Drops the closure; there is nothing to unwind.
            coroutine.force_unwind();
        }
        // A finished coroutine gets here by a panic. A suspended one is told that it is cancelled:
        // each wait in it fails from now on, so it comes to its end in this one call. What
        // it returns, or the panic it ends with (whose message the hook has printed), has
        // no reader any more.
        while !coroutine.done() {
            let _unread: Result<_, Box<dyn Any + Send>> = catch_unwind(AssertUnwindSafe(|| resume(coroutine, None)));
        }
        self.release();
    }
}

/// The record of a suspendable call at the bottom of its stack.
pub(crate) struct Frame<'stack> {
    yielder: &'stack Yielder<Option<Waker>, ()>,
    /// Waker for when this call can go on; `None` once it is cancelled.
    waker: RefCell<Option<Waker>>,
    worker: Rc<Worker>,
    alone: &'stack dyn Fn() -> bool,
}

impl Frame<'_> {
    /// Lends `use_it` the frame on whose stack the caller runs; `None` on an ordinary stack.
    pub(crate) fn with_current<R>(use_it: impl FnOnce(Option<&Frame<'_>>) -> R) -> R {
        // SAFETY: `CURRENT` names a frame only while that frame's coroutine runs on this thread
        // (rule 1), so the caller runs on that coroutine's stack, above the frame. The
        // frame stays until the coroutine's body ends (rule 2), which is after this call
        // returns, also if `use_it` suspends in between. Frames are only ever shared, never
        // borrowed mutably.
        use_it(CURRENT.get().map(|frame| unsafe { frame.as_ref() }))
    }

    /// Runs jobs of this call to their end: on the thread's own stack, if no other job can join
    /// them, else by suspending the call, once for all of them.
    pub(crate) fn run<R: Request>(&self, requests: Vec<R>) -> Result<Result<Vec<R::Output>, JobError>, Cancelled> {
        if !thread::panicking() && self.waker.borrow().is_some() && (self.alone)() {
            let engine = self.worker.engine();
            return Ok(self.on_thread_stack(|| engine.run_all_at_once(requests)));
        }
        match self.worker.submit_all(requests) {
            Ok(tickets) => self.wait(tickets),
            Err(refused) => Ok(Err(refused)),
        }
    }

    /// Does `work` on the thread's own stack, from which this call was resumed.
    fn on_thread_stack<R>(&self, work: impl FnOnce() -> R + Send) -> R {
        let _restore = Restore(CURRENT.take());
        self.yielder.on_parent_stack(work)
    }

    /// Suspends this call until `future` is ready. The future is polled on this call's stack, so it
    /// must need little of it.
    fn wait<F: Future>(&self, future: F) -> Result<F::Output, Cancelled> {
        if thread::panicking() {
            // The runtime counts panics by thread: one in flight must not be carried into other
            // calls.
            return Err(Cancelled);
        }
        let mut future = pin!(future);
        loop {
            let Some(waker) = self.waker.borrow().clone() else {
                return Err(Cancelled);
            };
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Ok(output);
            }
            let waker = self.yielder.suspend(());
            self.make_current();
            self.waker.replace(waker);
        }
    }

    fn make_current(&self) {
        CURRENT.set(Some(NonNull::from(self).cast()));
    }
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        // Dropping the fields may run anything.
        CURRENT.set(None);
    }
}

/// The caller's stack is being cleared away: its connection has vanished or a panic passes through
/// it.
#[derive(Debug, thiserror::Error)]
#[error("the connection was dropped while it waited for an operation")]
pub(crate) struct Cancelled;

type Stepper<T> = Coroutine<Option<Waker>, (), T, GuardedStack>;

/// Resumes `coroutine` and afterwards makes current again what was current before.
fn resume<T>(coroutine: &mut Stepper<T>, waker: Option<Waker>) -> CoroutineResult<(), T> {
    // Nothing is current while the coroutine starts or returns from its suspension; it says itself
    // what is.
    let _restore = Restore(CURRENT.take());
    coroutine.resume(waker)
}

/// Makes current again what was current before.
struct Restore(Option<NonNull<Frame<'static>>>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

thread_local! {
    /// See the rules at the top of this file. The lifetime is really that of the stack.
    static CURRENT: Cell<Option<NonNull<Frame<'static>>>> = const { Cell::new(None) };
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use widelane_engine::{Config, Engine};

    use super::*;

    /// A future that is ready when the test says so.
    #[derive(Clone, Default)]
    struct Gate(Rc<RefCell<Option<u32>>>);

    impl Gate {
        fn open(&self, value: u32) {
            self.0.replace(Some(value));
        }

        async fn passed(self) -> u32 {
            std::future::poll_fn(|_| match self.0.borrow_mut().take() {
                Some(value) => Poll::Ready(value),
                None => Poll::Pending,
            })
            .await
        }
    }

    fn wait(gate: &Gate) -> Result<u32, Cancelled> {
        Frame::with_current(|frame| frame.expect("on a stack").wait(gate.clone().passed()))
    }

    /// Runs `step` as a driver runs a step of a handshake that never waits.
    pub(crate) fn on_a_drivers_stack<T: 'static>(step: impl FnOnce() -> T + 'static) -> T {
        let Poll::Ready(value) = resume(&mut Thread::new().call(step)) else {
            panic!("it waits for nothing")
        };
        value
    }

    fn on_a_stack() -> bool {
        Frame::with_current(|frame| frame.is_some())
    }

    struct Thread {
        stacks: Rc<Stacks>,
        worker: Rc<Worker>,
    }

    impl Thread {
        fn new() -> Self {
            let engine = Engine::start(Config::default()).unwrap();
            Self {
                stacks: Rc::default(),
                worker: Rc::new(engine.worker()),
            }
        }

        fn call<T>(&self, step: impl FnOnce() -> T + 'static) -> Suspendable<T> {
            Suspendable::new(&self.stacks, self.stacks.take().unwrap(), &self.worker, || false, step)
        }
    }

    fn resume<T>(call: &mut Suspendable<T>) -> Poll<T> {
        call.resume(Waker::noop())
    }

    #[test]
    fn interleaved_calls_keep_to_their_own_stacks() {
        let thread = Thread::new();
        let mut calls = VecDeque::new();
        for id in 0..50_u32 {
            let gates = [Gate::default(), Gate::default(), Gate::default()];
            let call = thread.call({
                let gates = gates.clone();
                move || gates.iter().map(|gate| wait(gate).unwrap()).sum::<u32>() + id
            });
            calls.push_back((id, call, gates.into_iter()));
        }
        assert_eq!(thread.stacks.live(), 50);
        let mut turn = 0;
        let mut ended = 0;
        while let Some((id, mut call, mut gates)) = calls.pop_front() {
            // An order that differs from round to round.
            turn += 1;
            if turn % 7 == 3 || turn % 11 == 5 {
                calls.push_back((id, call, gates));
                continue;
            }
            match resume(&mut call) {
                Poll::Pending => {
                    assert!(!on_a_stack());
                    if turn % 3 != 0
                        && let Some(gate) = gates.next()
                    {
                        gate.open(1000 * id);
                    }
                    calls.push_back((id, call, gates));
                }
                Poll::Ready(sum) => {
                    assert_eq!(sum, 3001 * id);
                    ended += 1;
                }
            }
        }
        assert_eq!(ended, 50);
        assert_eq!(thread.stacks.live(), 0);
        assert_eq!(thread.stacks.free(), 50);
    }

    #[test]
    fn a_call_inside_of_a_call_has_its_own_frame() {
        let thread = Thread::new();
        let (inner_gate, outer_gate) = (Gate::default(), Gate::default());
        let mut outer = thread.call({
            let (inner_gate, outer_gate) = (inner_gate.clone(), outer_gate.clone());
            let mut inner = thread.call(move || wait(&inner_gate).unwrap());
            move || {
                assert!(resume(&mut inner).is_pending());
                // This suspends the outer call, although the inner one was the last to run.
                let own = wait(&outer_gate).unwrap();
                let Poll::Ready(inner) = resume(&mut inner) else {
                    panic!("its gate is open")
                };
                (own, inner)
            }
        });
        assert!(resume(&mut outer).is_pending());
        assert!(!on_a_stack());
        inner_gate.open(1);
        assert!(resume(&mut outer).is_pending());
        outer_gate.open(2);
        assert_eq!(resume(&mut outer), Poll::Ready((2, 1)));
        assert_eq!(thread.stacks.live(), 0);
    }

    #[test]
    fn a_dropped_call_ends_by_an_error_and_drops_what_it_holds() {
        let thread = Thread::new();
        let held = Rc::new(());
        let failures = Rc::new(Cell::new(0));
        let gate = Gate::default();
        let mut call = thread.call({
            let (held, failures, gate) = (held.clone(), failures.clone(), gate.clone());
            move || {
                for _ in 0..3 {
                    failures.set(failures.get() + u32::from(wait(&gate).is_err()));
                }
                drop(held);
            }
        });
        assert!(resume(&mut call).is_pending());
        assert_eq!(Rc::strong_count(&held), 2);
        drop(call);
        assert_eq!(failures.get(), 3, "each wait fails once the call is cancelled");
        assert_eq!(Rc::strong_count(&held), 1);
        assert_eq!(
            Rc::strong_count(&gate.0),
            1,
            "the future that it waited for is gone too"
        );
        assert_eq!((thread.stacks.live(), thread.stacks.free()), (0, 1));
        assert!(!on_a_stack());

        // One that has never run.
        let call = thread.call({
            let held = held.clone();
            move || drop(held)
        });
        drop(call);
        assert_eq!(Rc::strong_count(&held), 1);
        assert_eq!((thread.stacks.live(), thread.stacks.free()), (0, 1));
    }

    #[test]
    fn a_panic_reaches_the_caller_and_gives_the_stack_back() {
        let thread = Thread::new();
        for waits in [false, true] {
            let gate = Gate::default();
            let mut call = thread.call({
                let gate = gate.clone();
                move || {
                    if waits {
                        wait(&gate).unwrap();
                    }
                    panic!("mid-call");
                }
            });
            if waits {
                assert!(resume(&mut call).is_pending());
                gate.open(0);
            }
            let panic = catch_unwind(AssertUnwindSafe(|| resume(&mut call).map(|()| ())));
            assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"mid-call"));
            assert!(!on_a_stack());
            drop(call);
            assert_eq!((thread.stacks.live(), thread.stacks.free()), (0, 1));
        }
    }

    #[test]
    fn a_panic_of_a_cancelled_call_stays_inside() {
        let thread = Thread::new();
        let mut call = thread.call(|| wait(&Gate::default()).unwrap());
        assert!(resume(&mut call).is_pending());
        drop(call);
        assert_eq!((thread.stacks.live(), thread.stacks.free()), (0, 1));
        assert!(!on_a_stack());
    }

    #[test]
    fn work_on_the_threads_stack_is_on_no_frame() {
        let thread = Thread::new();
        let mut call = thread.call(|| {
            let on_thread_stack = |panics: bool| {
                Frame::with_current(|frame| {
                    frame.expect("on a stack").on_thread_stack(|| {
                        assert!(!panics, "off-stack");
                        on_a_stack()
                    })
                })
            };
            assert!(!on_thread_stack(false));
            assert!(on_a_stack());
            let panic = catch_unwind(AssertUnwindSafe(|| on_thread_stack(true)));
            assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"off-stack"));
            on_a_stack()
        });
        assert_eq!(resume(&mut call), Poll::Ready(true));
        assert!(!on_a_stack());
    }

    #[test]
    fn nothing_suspends_while_a_panic_passes() {
        struct WaitsOnDrop(Rc<Cell<bool>>);
        impl Drop for WaitsOnDrop {
            fn drop(&mut self) {
                self.0.set(wait(&Gate::default()).is_err());
            }
        }
        let thread = Thread::new();
        let refused = Rc::new(Cell::new(false));
        let mut call = thread.call({
            let waits = WaitsOnDrop(refused.clone());
            move || {
                let _waits = waits;
                panic!("mid-call");
            }
        });
        let panic = catch_unwind(AssertUnwindSafe(|| resume(&mut call).map(|()| ())));
        assert!(panic.is_err());
        assert!(refused.get());
    }
}
