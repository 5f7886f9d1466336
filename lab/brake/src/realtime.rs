//! Real-time priority for the calling thread. All unsafe code of this crate is here.

use std::io;

/// Gives the calling thread a real-time priority, from 1 to 99: it runs whenever it wants to, before
/// all threads without one. Threads and processes that it starts have none.
pub(crate) fn prioritise(priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: thread 0 is the calling one, and the call only reads the parameters.
    match unsafe { libc::sched_setscheduler(0, policy, &parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
