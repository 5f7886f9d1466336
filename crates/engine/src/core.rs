//! What the calling thread's core has run: the past that the width of its next pass depends on.
//!
//! A thread stands for a core: event loops and vector cores are pinned to theirs, or seldom moved.

use std::cell::Cell;
use std::time::Instant;

use widelane_batching::{Core, Width};

/// Says that the calling thread runs passes only.
pub(crate) fn dedicate() {
    HERE.with(|here| {
        here.set(Past {
            dedicated: true,
            ..here.get()
        });
    });
}

/// Whether the calling thread runs passes only.
pub(crate) fn is_dedicated() -> bool {
    HERE.get().dedicated
}

/// The core as a pass is about to begin on it.
pub(crate) fn now() -> Core {
    let here = HERE.get();
    let now = Instant::now();
    let since = |ended: Option<Instant>| {
        let passed = now.saturating_duration_since(ended?);
        Some(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX))
    };
    Core {
        dedicated: here.dedicated,
        since_wide: since(here.wide),
        since_narrow: since(here.narrow),
    }
}

/// Notes that a pass of this width has just ended.
pub(crate) fn ran(width: Width) {
    HERE.with(|here| {
        let mut past = here.get();
        let ended = match width {
            Width::Wide => &mut past.wide,
            Width::Narrow => &mut past.narrow,
        };
        *ended = Some(Instant::now());
        here.set(past);
    });
}

#[derive(Clone, Copy)]
struct Past {
    dedicated: bool,
    wide: Option<Instant>,
    narrow: Option<Instant>,
}

thread_local! {
    static HERE: Cell<Past> = const {
        Cell::new(Past {
            dedicated: false,
            wide: None,
            narrow: None,
        })
    };
}
