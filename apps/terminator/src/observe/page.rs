//! The page on which other processes see what this one does in lanes, and its switch: `widelane status`.
//!
//! It belongs to the process, as the switch does; of several servers in one, all count on it. Handshakes are counted as
//! they end. The engine's counters are copied then, too, at most every 10 ms: by that time, the figures of a server at
//! rest can be behind.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use widelane_crypto::Backend;
use widelane_engine::Engine;
use widelane_status::{Facts, OverloadCounters, Page};

/// Makes the page, if there is memory for it, and tells who does the arithmetic.
pub(crate) fn begin(backend: Backend) {
    let facts = Facts {
        provider: env!("CARGO_PKG_VERSION").to_owned(),
        backend: backend.to_string(),
        suspends: true,
        serves: true,
        ..Facts::default()
    };
    let made = PAGE.get_or_init(|| {
        let made = widelane_status::map();
        if let Err(error) = made {
            tracing::warn!(%error, "`widelane status` sees nothing of this process");
        }
        made.ok()
    });
    if let Some(page) = made {
        page.begin(std::process::id(), &facts);
    }
}

/// Returns whether an operator or a proof has switched lanes off.
pub(crate) fn lanes_are_off() -> bool {
    page().is_some_and(|page| page.switch().is_off(now))
}

/// A handshake has come to its end, and has taken so much of the server's time.
pub(crate) fn count(engine: &Engine, is_resumed: bool, took: Duration) {
    let Some(page) = page() else { return };
    page.count_handshake(is_resumed, took);
    let now = u64::try_from(now().as_millis()).unwrap_or(u64::MAX);
    if now.saturating_sub(COPIED.load(Relaxed)) < INTERVAL {
        return;
    }
    // Another worker copies, and counts this handshake's jobs or not.
    let Ok(_only) = COPYING.try_lock() else {
        return;
    };
    COPIED.store(now, Relaxed);
    engine.for_each_totals(|number, name, totals| page.set_operation(number, name, &totals));
}

/// Counts overload.
pub(crate) fn overload(count: impl FnOnce(&OverloadCounters)) {
    if let Some(page) = page() {
        count(page.overload());
    }
}

fn page() -> Option<&'static Page> {
    PAGE.get().copied().flatten()
}

fn now() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

static PAGE: OnceLock<Option<&'static Page>> = OnceLock::new();
/// Held by the worker that copies the engine's counters.
static COPYING: Mutex<()> = Mutex::new(());
/// Time at which they were last copied, in milliseconds of the monotonic clock.
static COPIED: AtomicU64 = AtomicU64::new(0);
/// Milliseconds between copies.
const INTERVAL: u64 = 10;

#[cfg(test)]
pub(crate) mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::ptr;

    use widelane_status::{Report, SIZE};

    use super::*;

    /// Reads the page as another process does.
    pub(crate) fn report() -> Report {
        let page = ptr::from_ref(page().expect("a page")).addr();
        let mut bytes = [0; SIZE];
        let memory = File::open("/proc/self/mem").expect("our memory");
        (memory.read_exact_at(&mut bytes, page as u64)).expect("a page of it");
        Report::parse(&bytes).expect("a page")
    }
}
