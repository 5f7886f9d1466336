//! Which process and which thread runs.
//!
//! The child of `vfork` runs in the memory of its parent. No function is called at such a fork:
//! [`owns_memory`] tells it apart by its number.

use std::arch::asm;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Takes the memory for that of the process that runs: at the beginning, and in the child of each fork.
pub(crate) fn claim_memory() {
    OWNER.store(std::process::id(), Relaxed);
}

/// Returns whether the memory is that of the process that runs.
pub(crate) fn owns_memory() -> bool {
    OWNER.load(Relaxed) == std::process::id()
}

/// A number that no other thread has at the same time. The thread has it in the child of a fork, too.
#[inline(always)]
pub(crate) fn this_thread() -> u64 {
    let thread;
    // SAFETY: reads the address of the thread's control block, which lies at its beginning (System V ABI for AMD64,
    // thread-local storage).
    unsafe { asm!("mov {}, fs:[0]", out(reg) thread, options(pure, nomem, nostack, preserves_flags)) };
    thread
}

/// The process in whose memory this library runs.
static OWNER: AtomicU32 = AtomicU32::new(0);
