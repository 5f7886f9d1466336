//! Waiting inside a job of OpenSSL's own (`ASYNC_start_job(3)`): HAProxy's `ssl-mode-async`,
//! Traffic Server, `openssl speed -async_jobs`.
//!
//! The job is paused, and its connection gets an event when it can go on. One paused job of each
//! thread is the leader: its event comes at once, so that the application resumes it after one
//! look at its sockets. If that look has brought new jobs, the leader waits for one more look;
//! otherwise it runs the passes that are due, and every job with an answer gets its event.
//!
//! OpenSSL drops a paused job without a word when its connection is freed. Then only the wait context
//! tells: its clean-up ends our part, and another job leads.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};

use corosensei::stack::DefaultStack;
use rustix::event::{EventfdFlags, eventfd};
use widelane_engine::{Idle, Worker};

use crate::abi::Object;
use crate::libcrypto::{LibCrypto, STATUS_OK, WaitCallback};
use crate::status;
use crate::waiting::{self, Failure, Jobs, Tickets};

/// The job of OpenSSL's in which the caller runs.
pub(crate) fn current() -> Option<Object> {
    // SAFETY: the function takes nothing and looks at this thread only.
    let job = unsafe { (LibCrypto::started()?.async_get_current_job)() };
    (!job.is_null()).then_some(job)
}

/// Runs jobs inside OpenSSL's job `job`, which is paused meanwhile.
pub(crate) fn run<J: Jobs>(job: Object, jobs: J) -> Result<J::Outputs, Failure> {
    let Some(worker) = waiting::worker()? else {
        return Err(Failure::NotPaused);
    };
    let mut tickets = jobs.submit(&worker)?;
    run_passes(&worker, Idle::No);
    let submitted = worker.submitted();
    drop(worker);
    if let Some(outputs) = tickets.poll(Waker::noop()) {
        return Ok(outputs?);
    }
    // Only now: HAProxy must not find a descriptor on a connection that was never paused.
    let queue = queue();
    let signal = Signal::of(job, &queue).ok_or(Failure::NotPaused)?;
    let waker = Waker::from(Arc::clone(&signal));
    loop {
        if let Some(outputs) = tickets.poll(&waker) {
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
            return match tickets.poll(&waker) {
                Some(outputs) => Ok(outputs?),
                None => Err(Failure::Moved),
            };
        }
        if signal.leads.load(SeqCst) {
            let Some(worker) = waiting::worker()? else {
                return Err(Failure::NotPaused);
            };
            queue.lead(&signal, &worker);
        }
    }
}

/// The paused jobs of one thread.
#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    /// Those that wait, the oldest first.
    waiting: VecDeque<Arc<Signal>>,
    /// What the worker had taken in all when the leader last looked.
    looked_at: u64,
}

impl Queue {
    /// A job is about to be paused, when `submitted` jobs have come in all. If there is no leader,
    /// it becomes the leader: its next turn comes after one look at the sockets.
    fn enter(&self, signal: &Arc<Signal>, submitted: u64) {
        let mut state = self.lock();
        if state.waiting.is_empty() {
            state.looked_at = submitted;
        }
        if !state.waiting.iter().any(|one| Arc::ptr_eq(one, signal)) {
            state.waiting.push_back(Arc::clone(signal));
        }
        appoint(state);
    }

    /// A job does not wait any more.
    fn leave(&self, signal: &Arc<Signal>) {
        let mut state = self.lock();
        state.waiting.retain(|one| !Arc::ptr_eq(one, signal));
        signal.leads.store(false, SeqCst);
        appoint(state);
    }

    /// The leader is back from one look at the sockets.
    fn lead(&self, leader: &Arc<Signal>, worker: &Worker) {
        let submitted = worker.submitted();
        let last = std::mem::replace(&mut self.lock().looked_at, submitted);
        if last != submitted {
            leader.raise();
            return;
        }
        // Wakers raise events while it runs: nothing is locked.
        run_passes(worker, Idle::Yes);
        leader.leads.store(false, SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the oldest waiting job the leader, unless there is one, and tells it without the lock.
fn appoint(state: MutexGuard<'_, QueueState>) {
    if state.waiting.iter().any(|one| one.leads.load(SeqCst)) {
        return;
    }
    let leader = state.waiting.front().map(Arc::clone);
    if let Some(leader) = &leader {
        leader.leads.store(true, SeqCst);
    }
    drop(state);
    if let Some(leader) = leader {
        leader.raise();
    }
}

/// How the application learns that a job can go on; one for each wait context.
struct Signal {
    event: Mutex<Event>,
    leads: AtomicBool,
    queue: Weak<Queue>,
}

enum Event {
    /// What the application polls, and what it wants called beside, if anything.
    Live(OwnedFd, Option<Callback>),
    /// The wait context is gone.
    Gone,
}

/// What the application wants called, and with which pointer of its own.
#[derive(Clone, Copy)]
struct Callback(WaitCallback, usize);

impl Signal {
    /// The signal of the job's wait context; a new one if there is none yet. `None` if the context
    /// belongs to another thread's queue, or takes no descriptor.
    ///
    /// A context has a descriptor even where the application wants a callback: its clean-up is how
    /// we learn that the context is gone, and with it the callback's pointer.
    fn of(job: Object, queue: &Arc<Queue>) -> Option<Arc<Self>> {
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
                Callback(function, argument.expose_provenance())
            });
            let (mut descriptor, mut custom): (c_int, *mut c_void) = (-1, ptr::null_mut());
            let key = (&raw const KEY).cast();
            if (libcrypto.wait_ctx_get_fd)(context, key, &mut descriptor, &mut custom) == 1 {
                let found = custom.cast_const().cast::<Self>();
                // The context keeps one count until `clean_up`.
                Arc::increment_strong_count(found);
                let found = Arc::from_raw(found);
                if let Event::Live(_, of_context) = &mut *found.event() {
                    *of_context = callback;
                }
                let is_ours = found.queue.ptr_eq(&Arc::downgrade(queue));
                return is_ours.then_some(found);
            }
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
            let number = event.as_raw_fd();
            let signal = Arc::new(Self {
                event: Mutex::new(Event::Live(event, callback)),
                leads: AtomicBool::new(false),
                queue: Arc::downgrade(queue),
            });
            let kept = Arc::into_raw(Arc::clone(&signal)).cast_mut().cast();
            if (libcrypto.wait_ctx_set_wait_fd)(context, key, number, kept, Some(clean_up)) != 1 {
                drop(Arc::from_raw(kept.cast_const().cast::<Self>()));
                return None;
            }
            Some(signal)
        }
    }

    /// Tells the application to go on with the job. The caller holds no lock: the application may
    /// submit jobs from its callback.
    fn raise(&self) {
        let callback = match &*self.event() {
            Event::Live(descriptor, callback) => {
                // A counter that is full is an event already.
                let _ = rustix::io::write(descriptor, &1_u64.to_ne_bytes());
                *callback
            }
            Event::Gone => None,
        };
        if let Some(Callback(function, argument)) = callback {
            // SAFETY: the application gave both for this call, which may come from any code of its
            // own thread, and its wait context is not gone.
            unsafe { function(ptr::with_exposed_provenance_mut(argument)) };
        }
    }

    /// Takes the event back: the job runs again.
    fn clear(&self) {
        if let Event::Live(descriptor, _) = &*self.event() {
            let _ = rustix::io::read(descriptor, &mut [0; 8]);
        }
    }

    fn event(&self) -> MutexGuard<'_, Event> {
        self.event.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.raise();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.raise();
    }
}

/// OpenSSL drops the wait context, and with it the job if that is paused.
unsafe extern "C" fn clean_up(_: Object, _: *const c_void, _: c_int, kept: *mut c_void) {
    // SAFETY: `Signal::of` gave the context this count, and it calls back once.
    let signal = unsafe { Arc::from_raw(kept.cast_const().cast::<Signal>()) };
    crate::keymgmt::guarded((), || {
        *signal.event() = Event::Gone;
        if let Some(queue) = signal.queue.upgrade() {
            queue.leave(&signal);
        }
    });
}

/// Runs the passes that are due. OpenSSL's job has a stack of 32 KiB, which is too small for passes:
/// they run on a stack of our own.
fn run_passes(worker: &Worker, idle: Idle) {
    PASS_STACK.with(|stack| {
        let Ok(mut stack) = stack.try_borrow_mut() else {
            // A pass of this thread is under way below us; it goes on with what is due.
            return;
        };
        let work = || {
            loop {
                let jobs = worker.turn(idle);
                status::passed(jobs, worker.waiting());
                if jobs == 0 || idle == Idle::Yes {
                    break;
                }
            }
        };
        match &mut *stack {
            Some(stack) => corosensei::on_stack(stack, work),
            // Without memory for a stack, jobs wait for a leader that has one.
            None => log_no_stack(),
        }
    });
}

fn log_no_stack() {
    crate::log::once("there is no memory for the stack of passes");
}

/// This thread's queue.
fn queue() -> Arc<Queue> {
    QUEUE.with(|queue| {
        let mut queue = queue.borrow_mut();
        let process = std::process::id();
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
        RefCell::new((std::process::id(), Arc::default()));
    static PASS_STACK: Rc<RefCell<Option<DefaultStack>>> =
        Rc::new(RefCell::new(DefaultStack::new(STACK).ok()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(queue: &Arc<Queue>, callback: Option<Callback>) -> Arc<Signal> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        Arc::new(Signal {
            event: Mutex::new(Event::Live(event, callback)),
            leads: AtomicBool::new(false),
            queue: Arc::downgrade(queue),
        })
    }

    /// Whether the application was told; takes the event back.
    fn told(signal: &Signal) -> bool {
        match &*signal.event() {
            Event::Live(descriptor, _) => rustix::io::read(descriptor, &mut [0; 8]).is_ok(),
            Event::Gone => false,
        }
    }

    #[test]
    fn one_paused_job_leads_and_the_next_one_follows() {
        let queue = Arc::default();
        let [first, second] = [signal(&queue, None), signal(&queue, None)];
        queue.enter(&first, 1);
        queue.enter(&second, 2);
        assert!(told(&first) && !told(&second));
        // It is paused again: it stays the leader, and its event comes from `lead`.
        queue.enter(&first, 2);
        assert!(!told(&first) && !told(&second));
        queue.leave(&first);
        assert!(told(&second) && second.leads.load(SeqCst));
        queue.leave(&second);
        assert!(queue.lock().waiting.is_empty());
    }

    /// A connection that goes away takes its signal with it, and another job leads.
    #[test]
    fn a_wait_context_that_goes_away_appoints_another_leader() {
        let queue = Arc::default();
        let [first, second] = [signal(&queue, None), signal(&queue, None)];
        queue.enter(&first, 1);
        queue.enter(&second, 2);
        let kept = Arc::into_raw(Arc::clone(&first)).cast_mut().cast();
        // SAFETY: as OpenSSL calls it, with the count that the context would keep.
        unsafe { clean_up(ptr::null_mut(), ptr::null(), -1, kept) };
        assert!(told(&second));
        first.raise();
        assert!(!told(&first), "nothing is left to be told");
    }

    #[test]
    fn callbacks_come_without_the_lock() {
        unsafe extern "C" fn submit(queue: *mut c_void) -> c_int {
            // SAFETY: the test passes its queue, which outlives the call.
            let queue = unsafe { &*queue.cast_const().cast::<Queue>() };
            queue.state.try_lock().map_or(0, |mut state| {
                state.looked_at = 77;
                1
            })
        }

        let queue: Arc<Queue> = Arc::default();
        let argument = Arc::as_ptr(&queue).expose_provenance();
        let paused = signal(&queue, Some(Callback(submit, argument)));
        queue.enter(&paused, 1);
        assert_eq!(queue.lock().looked_at, 77);
    }
}
