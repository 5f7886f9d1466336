//! Waits that end early when the server is to stop.

use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Waits until `is_open` does not hold any more, but not longer than `limit`, and not after `is_cut_off` says
/// so, which is called often. Who changes the state notifies `changed`.
pub(crate) fn wait_while<'a, T>(
    changed: &Condvar,
    mut state: MutexGuard<'a, T>,
    limit: Duration,
    is_cut_off: &mut dyn FnMut() -> bool,
    is_open: impl Fn(&T) -> bool,
) -> MutexGuard<'a, T> {
    let until = Instant::now() + limit;
    while is_open(&state) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || is_cut_off() {
            break;
        }
        let waited = changed.wait_timeout(state, left.min(LOOK));
        (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
    }
    state
}

/// How often a wait looks whether it is cut off.
const LOOK: Duration = Duration::from_millis(20);
