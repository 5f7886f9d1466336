//! A limit for messages of one kind: what others cause must not fill the log.

use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use crate::number::{Number, update};

/// Lets a message through once in an interval, and counts those that are left out. All workers may share it.
#[derive(Debug, Default)]
pub(crate) struct LogLimiter {
    /// The millisecond from which on a message may be logged.
    next: AtomicU64,
    /// Messages left out since the last one.
    left_out: AtomicU64,
}

impl LogLimiter {
    /// Number of messages that were left out, if one may be logged now.
    pub(crate) fn may_log(&self) -> Option<u64> {
        static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
        let now = BEGAN.elapsed().as_millis();
        self.may_log_at(u64::try_from(now).unwrap_or(u64::MAX))
    }

    /// Decides as [`Self::may_log`] at a moment, in milliseconds since some beginning.
    pub(crate) fn may_log_at(&self, now: u64) -> Option<u64> {
        may_log(&self.next, &self.left_out, now)
    }
}

fn may_log(next: &impl Number, left_out: &impl Number, now: u64) -> Option<u64> {
    let may = update(next, |next| (next <= now).then(|| now.saturating_add(INTERVAL)));
    if may.is_none() {
        update(left_out, |before| Some(before.saturating_add(1)));
        return None;
    }
    let mut before = 0;
    update(left_out, |now| {
        before = now;
        (now > 0).then_some(0)
    });
    Some(before)
}

const INTERVAL: u64 = 1000;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use loom::sync::atomic::AtomicU64 as ModelU64;

    use super::*;

    #[test]
    fn one_message_is_logged_in_an_interval_with_the_number_of_those_left_out() {
        let limiter = LogLimiter::default();
        let left_out: Vec<_> = [0, 1, 999, 1000, 1500, 9000, 10_000]
            .into_iter()
            .map(|now| limiter.may_log_at(now))
            .collect();
        let expected = [Some(0), None, None, Some(2), None, Some(1), Some(0)];
        assert_eq!(left_out, expected);
    }

    /// Two threads have the same to log.
    #[test]
    fn model_one_thread_logs_it_and_the_other_is_counted() {
        loom::model(|| {
            let shared = Arc::new((ModelU64::new(0), ModelU64::new(0)));
            let other = shared.clone();
            let thread = loom::thread::spawn(move || may_log(&other.0, &other.1, 5));
            let mine = may_log(&shared.0, &shared.1, 5);
            let theirs = thread.join().unwrap();
            assert!(mine.is_some() ^ theirs.is_some(), "one of two");
            let left_out = mine.or(theirs).unwrap();
            assert_eq!(left_out + shared.1.now(), 1, "none is forgotten");
        });
    }
}
