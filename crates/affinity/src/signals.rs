//! Threads that take no signals of the program's.
//!
//! A library's threads run inside programs that know nothing of them. A signal for the whole process
//! (`kill(2)`) goes to any thread that does not block it, and the program's handlers must run on the
//! program's own threads, as without the library.

use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};

/// Calls `start`. Threads that it starts never take a signal, except those that a thread causes
/// itself.
pub fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let _blocked = Blocked::new();
    start()
}

/// The signals that the calling thread blocked before. Until this is dropped, that thread takes none;
/// threads that it starts inherit that.
struct Blocked(SigSet);

impl Blocked {
    fn new() -> Self {
        let mut signals = SigSet::all();
        // Blocked, they would end the process without the program's handler; and a profiler must see
        // these threads, too.
        for own in [
            Signal::SIGSEGV,
            Signal::SIGBUS,
            Signal::SIGFPE,
            Signal::SIGILL,
            Signal::SIGTRAP,
            Signal::SIGABRT,
            Signal::SIGSYS,
            Signal::SIGPROF,
        ] {
            signals.remove(own);
        }
        let mut before = SigSet::empty();
        // Fails only for a first argument that does not exist.
        let _ = pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&signals), Some(&mut before));
        Self(before)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&self.0), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_started_thread_blocks_signals() {
        let blocked = || {
            let mask = SigSet::thread_get_mask().unwrap();
            [Signal::SIGHUP, Signal::SIGTERM, Signal::SIGSEGV].map(|one| mask.contains(one))
        };
        let before = blocked();
        let thread = without_signals(|| std::thread::spawn(blocked));
        assert_eq!(thread.join().unwrap(), [true, true, false]);
        assert_eq!(blocked(), before);
        assert_eq!(before, [false; 3]);
    }
}
