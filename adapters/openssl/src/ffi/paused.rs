//! Waiting inside a job of OpenSSL's own (`ASYNC_start_job(3)`): HAProxy's `ssl-mode-async`,
//! Traffic Server, `openssl speed -async_jobs`.
//!
//! The job is paused, and its connection gets an event when it can go on. One paused job of each
//! thread is the leader: its event comes at once, so that the application resumes it after one
//! look at its sockets. If that look has brought new jobs, the leader waits for one more look;
//! otherwise it runs the passes that are due, and every job with an answer gets its event.
//!
//! A thread whose passes save less than the pauses cost runs most jobs at once.
//!
//! OpenSSL drops a paused job without a word when its connection is freed. Then only the wait context
//! tells: its clean-up ends our part, and another job leads.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use corosensei::stack::DefaultStack;
use rustix::event::{EventfdFlags, eventfd};
use widelane_engine::{Idle, Request, Worker};
use widelane_forks::process_id;

use crate::engine::{self, Failure};
use crate::ffi::abi::Object;
use crate::ffi::libcrypto::{Callback, LibCrypto, STATUS_OK};
use crate::ffi::status;
use crate::jobs::queue::{Queue, Signal};

/// The job of OpenSSL's in which the caller runs.
pub(crate) fn current() -> Option<Object> {
    // SAFETY: the function takes nothing and looks at this thread only.
    let job = unsafe { (LibCrypto::started()?.async_get_current_job)() };
    (!job.is_null()).then_some(job)
}

/// Runs jobs inside OpenSSL's job `job`, which is paused meanwhile.
pub(crate) fn run<R: Request>(job: Object, requests: Vec<R>) -> Result<Vec<R::Output>, Failure> {
    // The first call starts the engine, which needs more stack than OpenSSL's job has.
    let Some(worker) = on_large_stack(engine::worker)? else {
        return Err(Failure::NotPaused);
    };
    let mut tickets = on_large_stack(|| worker.submit_all(requests))?;
    let queue = queue();
    if queue.is_pause_worth_while() {
        while run_shared_pass(&worker, Idle::No, &queue) > 0 {}
    } else {
        while run_pass(&worker, Idle::Yes) > 0 {}
    }
    let submitted = worker.submitted();
    drop(worker);
    if let Some(outputs) = engine::poll(&mut tickets, Waker::noop()) {
        return Ok(outputs?);
    }
    // Only now: HAProxy must not find a descriptor on a connection that was never paused.
    let signal = signal_of(job, &queue).ok_or(Failure::NotPaused)?;
    let waker = Waker::from(Arc::clone(&signal));
    loop {
        if let Some(outputs) = engine::poll(&mut tickets, &waker) {
            queue.leave(&signal);
            return Ok(outputs?);
        }
        queue.enter(&signal, submitted);
        // SAFETY: the caller runs in a job, which may be paused. Nothing is borrowed from this
        // thread across the pause: all that is kept is counted and may change threads.
        if unsafe { (LibCrypto::get().async_pause_job)() } != 1 {
            queue.leave(&signal);
            return Err(Failure::NotPaused);
        }
        signal.clear();
        if !Arc::ptr_eq(&queue, &self::queue()) {
            // Its jobs belong to another thread's worker, which cannot be used from here.
            queue.leave(&signal);
            return match engine::poll(&mut tickets, &waker) {
                Some(outputs) => Ok(outputs?),
                None => Err(Failure::Moved),
            };
        }
        if signal.leads() {
            let Some(worker) = engine::worker()? else {
                return Err(Failure::NotPaused);
            };
            if queue.lead(&signal, worker.submitted()) {
                run_shared_pass(&worker, Idle::Yes, &queue);
                queue.led(&signal);
            }
        }
    }
}

/// The signal of the job's wait context; a new one if there is none yet. `None` if the context
/// belongs to another thread's queue, or takes no descriptor.
///
/// A context has a descriptor even where the application wants a callback: its clean-up is how
/// we learn that the context is gone, and with it the callback's pointer.
fn signal_of(job: Object, queue: &Arc<Queue>) -> Option<Arc<Signal>> {
    let libcrypto = LibCrypto::get();
    // SAFETY: OpenSSL's public functions with the job in which the caller runs, its wait
    // context, and places for what they answer.
    unsafe {
        let context = (libcrypto.async_get_wait_ctx)(job);
        if context.is_null() {
            return None;
        }
        let (mut function, mut argument) = (None, ptr::null_mut());
        (libcrypto.wait_ctx_get_callback)(context, &mut function, &mut argument);
        let callback = function.map(|function| {
            (libcrypto.wait_ctx_set_status)(context, STATUS_OK);
            Callback::new(function, argument)
        });
        let (mut descriptor, mut custom): (c_int, *mut c_void) = (-1, ptr::null_mut());
        let key = (&raw const KEY).cast();
        if (libcrypto.wait_ctx_get_fd)(context, key, &mut descriptor, &mut custom) == 1 {
            let found = custom.cast_const().cast::<Signal>();
            // The context keeps one count until `clean_up`.
            Arc::increment_strong_count(found);
            let found = Arc::from_raw(found);
            found.call(callback);
            return found.is_of(queue).then_some(found);
        }
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
        let number = event.as_raw_fd();
        let signal = Arc::new(Signal::new(queue, event, callback));
        let kept = Arc::into_raw(Arc::clone(&signal)).cast_mut().cast();
        if (libcrypto.wait_ctx_set_wait_fd)(context, key, number, kept, Some(clean_up)) != 1 {
            drop(Arc::from_raw(kept.cast_const().cast::<Signal>()));
            return None;
        }
        Some(signal)
    }
}

/// OpenSSL drops the wait context, and with it the job if that is paused.
unsafe extern "C" fn clean_up(_: Object, _: *const c_void, _: c_int, kept: *mut c_void) {
    // SAFETY: `signal_of` gave the context this count, and it calls back once.
    let signal = unsafe { Arc::from_raw(kept.cast_const().cast::<Signal>()) };
    crate::ffi::objects::guarded((), || signal.vanish());
}

/// Runs at most one pass that is due of paused jobs, and returns how many it carried.
fn run_shared_pass(worker: &Worker, idle: Idle, queue: &Queue) -> usize {
    let jobs = run_pass(worker, idle);
    if jobs > 0 {
        queue.passed(jobs, worker.saved());
    }
    jobs
}

/// Runs at most one pass that is due, and returns how many jobs it carried. OpenSSL's job has a stack
/// of 32 KiB, which is too small for passes: they run on a stack of our own.
fn run_pass(worker: &Worker, idle: Idle) -> usize {
    PASS_STACK.with(|stack| {
        let Ok(mut stack) = stack.try_borrow_mut() else {
            // A pass of this thread is under way below us; it goes on with what is due.
            return 0;
        };
        let work = || {
            let jobs = worker.turn(idle);
            status::passed(jobs, worker.waiting());
            jobs
        };
        match &mut *stack {
            Some(stack) => corosensei::on_stack(stack, work),
            // Without memory for a stack, jobs wait for a leader that has one.
            None => {
                log_no_stack();
                0
            }
        }
    })
}

/// Runs what is too deep for the stack of OpenSSL's job on the one for passes.
pub(crate) fn on_large_stack<R>(work: impl FnOnce() -> R) -> R {
    PASS_STACK.with(|stack| match stack.try_borrow_mut().as_deref_mut() {
        Ok(Some(stack)) => corosensei::on_stack(stack, work),
        // A pass is under way below us, or there is no memory for a stack.
        _ => work(),
    })
}

fn log_no_stack() {
    crate::log::once("there is no memory for the stack of passes");
}

/// Returns this thread's queue. Not inlined: after a pause another thread may go on, whose queue is at another
/// address.
#[inline(never)]
fn queue() -> Arc<Queue> {
    QUEUE.with(|queue| {
        let mut queue = queue.borrow_mut();
        let process = process_id();
        if queue.0 != process {
            // The paused jobs of a forked process are its own.
            std::mem::forget(std::mem::replace(&mut *queue, (process, Arc::default())));
        }
        Arc::clone(&queue.1)
    })
}

/// Our place in a wait context: its address is the key.
static KEY: u8 = 0;

/// Bytes of a stack for passes.
const STACK: usize = 512 * 1024;

thread_local! {
    static QUEUE: RefCell<(u32, Arc<Queue>)> =
        RefCell::new((process_id(), Arc::default()));
    static PASS_STACK: Rc<RefCell<Option<DefaultStack>>> =
        Rc::new(RefCell::new(DefaultStack::new(STACK).ok()));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The application may submit jobs, and free other wait contexts, from its callback.
    #[test]
    fn callbacks_come_without_the_lock() {
        unsafe extern "C" fn submit(queue: *mut c_void) -> c_int {
            // SAFETY: the test passes its queue, which outlives the call.
            let queue = unsafe { &*queue.cast_const().cast::<Queue>() };
            assert!(!queue.is_locked());
            queue.lead(&unheard(), 77);
            1
        }

        fn unheard() -> Signal {
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
            Signal::new(&Arc::default(), event, None)
        }

        let queue: Arc<Queue> = Arc::default();
        let argument = Arc::as_ptr(&queue).cast_mut().cast();
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let callback = Some(Callback::new(submit, argument));
        let paused = Arc::new(Signal::new(&queue, event, callback));
        queue.enter(&paused, 1);
        assert!(queue.lead(&unheard(), 77), "the callback was called");
        // As OpenSSL calls it, with the count that the context would keep.
        let kept = Arc::into_raw(Arc::clone(&paused)).cast_mut().cast();
        // SAFETY: the count above is given away.
        unsafe { clean_up(ptr::null_mut(), ptr::null(), -1, kept) };
        assert_eq!(queue.waiting(), 0);
    }
}
