//! Waiting on a stack of the library that suspends handshakes in synchronous event loops.
//!
//! That library is preloaded into the server and knows the server's event loop; this one knows
//! passes. They meet in two tables of functions.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::task::{RawWaker, RawWakerVTable, Waker};

use widelane_engine::Idle;

use crate::abi::Object;
use crate::keymgmt::guarded;
use crate::log;
use crate::status;
use crate::waiting::{self, Failure, Jobs, Tickets};

/// What the preloaded library offers, under the symbol `widelane_suspension_1`.
#[repr(C)]
pub(crate) struct Suspension {
    /// Bytes of this structure: libraries of different builds do not meet.
    size: usize,
    /// The handshake on whose stack the caller runs; null on any other stack.
    current: unsafe extern "C" fn() -> Object,
    /// Leaves that stack until the handshake is woken: 1, or 0 if it is being ended.
    suspend: unsafe extern "C" fn(Object) -> c_int,
    /// Wakes a suspended handshake of this thread.
    wake: unsafe extern "C" fn(Object),
    /// Takes the table of the provider, which stays valid.
    attach: unsafe extern "C" fn(*const Passes),
}

/// What the provider offers to the preloaded library.
#[repr(C)]
pub(crate) struct Passes {
    /// Bytes of this structure, as above.
    size: usize,
    /// Runs passes of this thread: with 0 one that is full, with 1 any. Returns how many jobs it
    /// carried.
    turn: unsafe extern "C" fn(c_int) -> usize,
    /// Jobs of this thread that wait.
    waiting: unsafe extern "C" fn() -> usize,
    /// Jobs that this thread has submitted in all.
    submitted: unsafe extern "C" fn() -> u64,
    /// Does what the first jobs of this process would have to wait for.
    prepare: unsafe extern "C" fn(),
}

/// Looks for the preloaded library, once.
pub(crate) fn attach() {
    // SAFETY: a string of C; the symbol is a table of this form, which its name's number states.
    let found = unsafe {
        libc::dlsym(libc::RTLD_DEFAULT, c"widelane_suspension_1".as_ptr())
            .cast_const()
            .cast::<Suspension>()
            .as_ref()
    };
    let fits = |found: &&Suspension| found.size == size_of::<Suspension>();
    if found.is_some_and(|found| !fits(&found)) {
        log::once("the preloaded library is of another version and is not used; install both anew");
    }
    if SUSPENSION.set(found.filter(fits)).is_ok()
        && let Some(found) = table()
    {
        // SAFETY: the table is constant.
        unsafe { (found.attach)(&PASSES) };
    }
}

/// Whether the preloaded library is there.
pub(crate) fn is_attached() -> bool {
    table().is_some()
}

/// The handshake on whose stack the caller runs.
pub(crate) fn current() -> Option<Frame> {
    let table = table()?;
    // SAFETY: the function takes nothing and looks at this thread only.
    let handshake = unsafe { (table.current)() };
    (!handshake.is_null()).then_some(Frame { table, handshake })
}

/// A handshake's stack.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    table: &'static Suspension,
    handshake: Object,
}

/// Runs jobs of a handshake whose stack is left meanwhile.
pub(crate) fn run<J: Jobs>(frame: Frame, jobs: J) -> Result<J::Outputs, Failure> {
    let Some(worker) = waiting::worker()? else {
        // The thread ends.
        return Ok(jobs.block(&waiting::engine().map_err(Failure::Start)?)?);
    };
    let mut tickets = jobs.submit(&worker)?;
    drop(worker);
    let waker = frame.waker();
    loop {
        if let Some(outputs) = tickets.poll(&waker) {
            return Ok(outputs?);
        }
        // SAFETY: the caller runs on this handshake's stack. Nothing is borrowed across the call.
        if unsafe { (frame.table.suspend)(frame.handshake) } != 1 {
            return Err(Failure::Cancelled);
        }
    }
}

impl Frame {
    /// Wakes the handshake. Passes of this thread run on this thread, so it is woken from here;
    /// its ticket is dropped before the handshake ends, and with it the waker.
    fn waker(self) -> Waker {
        // SAFETY: the functions keep the contract of a waker: the data is a plain address, whose
        // copies need no care. It is only used on this thread, because this thread's worker
        // answers its jobs, with `Placement::Inline`.
        unsafe { Waker::from_raw(RawWaker::new(self.handshake.cast_const().cast(), &WAKER)) }
    }
}

static WAKER: RawWakerVTable = RawWakerVTable::new(
    |handshake| RawWaker::new(handshake, &WAKER),
    wake,
    wake,
    |_| (),
);

unsafe fn wake(handshake: *const ()) {
    if let Some(table) = table() {
        // SAFETY: the address is of a handshake that waits; see `Frame::waker`.
        unsafe { (table.wake)(handshake.cast_mut().cast::<c_void>()) };
    }
}

fn table() -> Option<&'static Suspension> {
    SUSPENSION.get().copied().flatten()
}

unsafe extern "C" fn turn(any: c_int) -> usize {
    guarded(0, || {
        let idle = if any == 0 { Idle::No } else { Idle::Yes };
        with_worker(|worker| {
            let jobs = worker.turn(idle);
            status::passed(jobs, worker.waiting());
            jobs
        })
    })
}

unsafe extern "C" fn waiting_jobs() -> usize {
    guarded(0, || with_worker(widelane_engine::Worker::waiting))
}

unsafe extern "C" fn submitted() -> u64 {
    guarded(0, || with_worker(widelane_engine::Worker::submitted))
}

/// Measures what passes cost here. The processes that this one forks inherit the figures, and start
/// no thread to measure them again.
unsafe extern "C" fn prepare() {
    guarded((), || {
        if let Ok(engine) = waiting::engine() {
            engine.calibrate();
        }
    });
}

fn with_worker<T: Default>(use_it: impl FnOnce(&widelane_engine::Worker) -> T) -> T {
    match waiting::worker() {
        Ok(Some(worker)) => use_it(&worker),
        _ => T::default(),
    }
}

static PASSES: Passes = Passes {
    size: size_of::<Passes>(),
    turn,
    waiting: waiting_jobs,
    submitted,
    prepare,
};

static SUSPENSION: OnceLock<Option<&'static Suspension>> = OnceLock::new();
