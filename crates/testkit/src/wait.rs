//! Waiting until something holds.
//!
//! Time is counted in steps, so that a test which is stopped for a while loses none of it.

use std::thread::sleep;
use std::time::Duration;

/// Longer than anything in a test takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks.
pub const STEP: Duration = Duration::from_millis(10);

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
    let mut left = PATIENCE;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(!left.is_zero(), "never came true: {what}");
        sleep(STEP);
        left = left.saturating_sub(STEP);
    }
}

#[cfg(test)]
mod tests {
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
}
