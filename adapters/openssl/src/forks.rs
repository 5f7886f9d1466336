//! Locks that each fork waits for, so that no thread leaves them locked in the child.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::sync::MutexGuard;

use crate::ffi::objects::guarded;
use crate::{engine, log, prepared};

/// Before a fork: takes the locks that all threads share. Nothing waits for anything else while it holds one of them.
pub(crate) extern "C" fn prepare() {
    guarded((), || {
        HELD.set(Some(ManuallyDrop::new(Held {
            _known: prepared::known(),
            _choice: engine::choice(),
            _told: log::told(),
        })));
    });
}

/// After a fork, in both processes.
pub(crate) extern "C" fn release() {
    guarded((), || drop(HELD.take().map(ManuallyDrop::into_inner)));
}

struct Held {
    _known: MutexGuard<'static, prepared::Known>,
    _choice: MutexGuard<'static, engine::Choice>,
    _told: MutexGuard<'static, BTreeSet<String>>,
}

thread_local! {
    /// Locks held over a fork. The place needs no destructor, so it is there as long as the thread.
    static HELD: Cell<Option<ManuallyDrop<Held>>> = const { Cell::new(None) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_waits_for_the_locks_of_all_threads() {
        prepare();
        let all = || drop((prepared::known(), engine::choice(), log::told()));
        let waits = std::thread::spawn(all);
        assert!(!waits.is_finished());
        release();
        waits.join().unwrap();
        release();
    }
}
