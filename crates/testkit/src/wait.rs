//! Waiting until something holds.
//!
//! Time is counted in looks, each for a second at most, so that a test which is stopped for a while loses none of it.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longer than anything in a test takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks.
pub const STEP: Duration = Duration::from_millis(10);
/// The most that a look counts.
const LONGEST: Duration = Duration::from_secs(1);

/// Waits until `holds`.
///
/// # Panics
///
/// With `what` if that takes [`PATIENCE`], which only a hanging program needs.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, || holds().then_some(()));
}

/// Waits for what `find` returns.
///
/// # Panics
///
/// As [`eventually`].
#[track_caller]
pub fn until<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    until_by(what, Instant::now, || sleep(STEP), &mut find)
}

#[track_caller]
fn until_by<T>(what: &str, now: impl Fn() -> Instant, pause: impl Fn(), find: &mut dyn FnMut() -> Option<T>) -> T {
    let mut left = PATIENCE;
    loop {
        let began = now();
        if let Some(found) = find() {
            return found;
        }
        assert!(!left.is_zero(), "never came true: {what}");
        pause();
        left = left.saturating_sub(now().duration_since(began).min(LONGEST));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn the_first_find_is_returned() {
        let mut looks = 0;
        let found = until("three looks", || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found, 3);
    }

    #[test]
    fn slow_looks_use_patience_up() {
        let (began, clock) = (Instant::now(), Cell::new(Duration::ZERO));
        let mut looks = 0;
        let slow = || {
            looks += 1;
            clock.set(clock.get() + Duration::from_secs(3));
            None::<()>
        };
        let mut slow = AssertUnwindSafe(slow);
        let never = AssertUnwindSafe(|| until_by("nothing", || began + clock.get(), || {}, &mut *slow));
        assert!(catch_unwind(never).is_err());
        assert_eq!(looks, 61);
    }
}
