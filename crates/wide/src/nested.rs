//! Calls inside calls: a thread on vector cores runs them in place.

use std::cell::Cell;

/// Returns whether the calling thread is on vector cores, by a call or as a thread of a pool.
pub(crate) fn is_wide() -> bool {
    WIDE.get()
}

/// Lets all calls on this thread run in place from now on: it is the thread of a vector core.
pub(crate) fn never_leaves() {
    WIDE.set(true);
}

/// While this exists, calls on this thread run in place.
pub(crate) struct Nested(());

impl Nested {
    pub(crate) fn new() -> Self {
        WIDE.set(true);
        Self(())
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        WIDE.set(false);
    }
}

thread_local! {
    /// True while this thread is on vector cores, by a call or as a thread of a pool.
    static WIDE: Cell<bool> = const { Cell::new(false) };
}
