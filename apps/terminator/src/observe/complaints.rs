//! How often one thing is told in the log: what clients cause must not fill it.

use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use crate::number::{Number, update};

/// When something was told last, and how often it was not told since. All workers share it.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    /// The millisecond after which it may be told again.
    next: AtomicU64,
    untold: AtomicU64,
}

impl Complaints {
    /// Whether to tell it now: how often it was not told before.
    pub(crate) fn tell(&self) -> Option<u64> {
        static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
        let now = BEGAN.elapsed().as_millis();
        self.tell_at(u64::try_from(now).unwrap_or(u64::MAX))
    }

    /// The same at a moment, in milliseconds since some beginning.
    pub(crate) fn tell_at(&self, now: u64) -> Option<u64> {
        tell(&self.next, &self.untold, now)
    }
}

fn tell(next: &impl Number, untold: &impl Number, now: u64) -> Option<u64> {
    let may = update(next, |next| {
        (next <= now).then(|| now.saturating_add(INTERVAL))
    });
    if may.is_none() {
        update(untold, |before| Some(before.saturating_add(1)));
        return None;
    }
    let mut before = 0;
    update(untold, |now| {
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
    fn it_is_told_once_in_an_interval_with_the_number_of_those_before() {
        let complaints = Complaints::default();
        let told: Vec<_> = [0, 1, 999, 1000, 1500, 9000, 10_000]
            .into_iter()
            .map(|now| complaints.tell_at(now))
            .collect();
        let expected = [Some(0), None, None, Some(2), None, Some(1), Some(0)];
        assert_eq!(told, expected);
    }

    /// Two threads have the same to tell.
    #[test]
    fn model_one_thread_tells_it_and_the_other_is_counted() {
        loom::model(|| {
            let shared = Arc::new((ModelU64::new(0), ModelU64::new(0)));
            let other = shared.clone();
            let thread = loom::thread::spawn(move || tell(&other.0, &other.1, 5));
            let mine = tell(&shared.0, &shared.1, 5);
            let theirs = thread.join().unwrap();
            assert!(mine.is_some() ^ theirs.is_some(), "one of two");
            let told = mine.or(theirs).unwrap();
            assert_eq!(told + shared.1.now(), 1, "none is forgotten");
        });
    }
}
