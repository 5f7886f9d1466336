//! History of the calling thread's core; the width of its next pass depends on it.
//!
//! Each thread represents one core: event loops and vector cores are pinned or seldom move.

use std::cell::Cell;
use std::time::Instant;

use widelane_batching::Core;

/// Marks the calling thread as one that runs only passes.
pub(crate) fn dedicate() {
    DEDICATED.set(true);
}

/// Returns whether the calling thread runs only passes.
pub(crate) fn is_dedicated() -> bool {
    DEDICATED.get()
}

/// The state of the core just before a pass.
pub(crate) fn now() -> Core {
    let passed = |ended: Instant| u64::try_from(ended.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Core {
        dedicated: is_dedicated(),
        since: ENDED.get().map(passed),
    }
}

/// Records that a pass has just ended.
pub(crate) fn ran() {
    ENDED.set(Some(Instant::now()));
}

thread_local! {
    static DEDICATED: Cell<bool> = const { Cell::new(false) };
    static ENDED: Cell<Option<Instant>> = const { Cell::new(None) };
}
