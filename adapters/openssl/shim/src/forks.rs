//! Forks: no lock stays locked in a child, and the parent's connections are not a child's.
//!
//! The child of a fork has only the thread that forked. A lock that another thread held stays locked in
//! its copy for ever, so each fork waits until the locks of this library are free. Nothing waits for
//! anything else while it holds one of them. A signal handler that forks may have interrupted its own thread in there:
//! then nothing is waited for, and when the handler returns, the child has what the thread had.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::Once;

use crate::boundary::guarded;
use crate::{backlog, connections, handshakes, process, registrations};

/// Takes notice of forks from now on.
pub(crate) fn begin() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        process::claim_memory();
        // SAFETY: functions of this library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    });
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
        process::claim_memory();
        drop(HELD.take().map(ManuallyDrop::into_inner));
        registrations::forked(process::this_thread());
        if !connections::is_busy() {
            handshakes::forked();
        }
        backlog::forked();
    });
}

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
