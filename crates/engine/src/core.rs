//! What the calling thread's core has run: the past that the width of its next pass depends on.
//!
//! A thread stands for a core: event loops and vector cores are pinned to theirs, or seldom moved.

#![cfg_attr(loom, expect(dead_code, reason = "models have no widths to choose"))]

use std::cell::Cell;
use std::time::Instant;

use widelane_batching::Core;

/// Says that the calling thread runs passes only.
pub(crate) fn dedicate() {
    DEDICATED.set(true);
}

/// Whether the calling thread runs passes only.
pub(crate) fn is_dedicated() -> bool {
    DEDICATED.get()
}

/// The core as a pass is about to begin on it.
pub(crate) fn now() -> Core {
    let passed = |ended: Instant| u64::try_from(ended.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Core {
        dedicated: is_dedicated(),
        since: ENDED.get().map(passed),
    }
}

/// Notes that a pass has just ended.
pub(crate) fn ran() {
    ENDED.set(Some(Instant::now()));
}

thread_local! {
    static DEDICATED: Cell<bool> = const { Cell::new(false) };
    static ENDED: Cell<Option<Instant>> = const { Cell::new(None) };
}
