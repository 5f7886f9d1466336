//! Forks: whose memory this is, and locks that no fork leaves locked.
//!
//! The child of a fork has only the thread that forked. A lock that another thread held stays locked in
//! its copy for ever, so each fork waits until the locks of this library are free. Nothing waits for
//! anything else while it holds one of them. A signal handler that forks may have interrupted its own thread in there:
//! then nothing is waited for, and when the handler returns, the child has what the thread had.
//!
//! The child of `vfork` runs in the memory of its parent. No function is called at such a fork:
//! [`is_own`] tells it apart by its number.

use std::arch::asm;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::boundary::guarded;
use crate::{backlog, connections, handshakes, registrations};

/// Takes notice of forks from now on.
pub(crate) fn begin() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        OWNER.store(std::process::id(), Relaxed);
        // SAFETY: functions of this library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    });
}

/// Returns whether the memory is that of the process that runs.
pub(crate) fn is_own() -> bool {
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

unsafe extern "C" fn prepare() {
    guarded(|| {
        if !connections::is_busy() {
            HELD.set(Some(ManuallyDrop::new(connections::lock())));
        }
    });
}

unsafe extern "C" fn parent() {
    guarded(|| drop(HELD.take().map(ManuallyDrop::into_inner)));
}

unsafe extern "C" fn child() {
    guarded(|| {
        OWNER.store(std::process::id(), Relaxed);
        drop(HELD.take().map(ManuallyDrop::into_inner));
        registrations::forked(this_thread());
        if !connections::is_busy() {
            handshakes::forked();
        }
        backlog::forked();
    });
}

/// The process in whose memory this library runs.
static OWNER: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The lock during a fork. A value that is never dropped is there as long as the thread.
    static HELD: Cell<Option<ManuallyDrop<connections::Locked>>> = const { Cell::new(None) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// As a signal handler does that forks and has interrupted this library.
    #[test]
    fn a_thread_forks_that_holds_the_lock() {
        begin();
        connections::while_locked(|| {
            // SAFETY: the child ends at once.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::_exit(5);
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                assert_eq!(libc::WEXITSTATUS(status), 5);
            }
        });
    }
}
