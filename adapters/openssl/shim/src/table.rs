//! The two tables in which this library and the provider meet. The provider has the same
//! structures; the number in the symbol's name states their form.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Release};

use crate::handshakes;

/// What this library offers to the provider.
#[repr(C)]
pub(crate) struct Suspension {
    /// Bytes of this structure: libraries of different builds do not meet.
    size: usize,
    /// The handshake on whose stack the caller runs; null on any other stack.
    current: unsafe extern "C" fn() -> *mut c_void,
    /// Leaves that stack until the handshake is woken: 1, or 0 if it is being ended.
    suspend: unsafe extern "C" fn(*mut c_void) -> c_int,
    /// Wakes a suspended handshake of this thread.
    wake: unsafe extern "C" fn(*mut c_void),
    /// Takes the table of the provider, which stays valid.
    attach: unsafe extern "C" fn(*const Passes),
}

/// What the provider offers to this library.
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

impl Passes {
    /// The provider's, once it has come.
    pub(crate) fn get() -> Option<&'static Self> {
        // SAFETY: the provider gave a table that stays valid; see `attach`.
        unsafe { PASSES.load(Acquire).as_ref() }
    }

    /// Runs one pass that is full; how many jobs it carried.
    pub(crate) fn run_full(&self) -> usize {
        // SAFETY: the functions look at this thread only and take what they are given.
        unsafe { (self.turn)(0) }
    }

    /// Runs one pass, full or not; how many jobs it carried.
    pub(crate) fn run_any(&self) -> usize {
        // SAFETY: as above.
        unsafe { (self.turn)(1) }
    }

    /// Does what the first jobs of this process, and of those that it forks, would wait for.
    pub(crate) fn prepare(&self) {
        // SAFETY: as above.
        unsafe { (self.prepare)() }
    }

    pub(crate) fn waiting(&self) -> usize {
        // SAFETY: as above.
        unsafe { (self.waiting)() }
    }

    pub(crate) fn submitted(&self) -> u64 {
        // SAFETY: as above.
        unsafe { (self.submitted)() }
    }
}

unsafe extern "C" fn attach(passes: *const Passes) {
    // SAFETY: the provider passes its table, which begins with its size in every build.
    let size = unsafe { (&raw const (*passes).size).read() };
    if size == size_of::<Passes>() && handshakes::can_switch_stacks() {
        PASSES.store(passes.cast_mut(), Release);
    }
}

/// What the provider looks for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, unreachable_pub)]
pub static widelane_suspension_1: Suspension = Suspension {
    size: size_of::<Suspension>(),
    current: handshakes::current,
    suspend: handshakes::suspend,
    wake: handshakes::wake,
    attach,
};

static PASSES: AtomicPtr<Passes> = AtomicPtr::new(ptr::null_mut());
