//! Whether an address answers, as connections that were tried there show.
//!
//! An address that fails is left out for a pause. When that is over, one connection tries it again, and no
//! other before it is known how that ended or the next, longer pause is over.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::number::{Number, update};

/// What is known of one address: in one word, since all workers change it. Zero: it answers. Else the
/// lower bits count failures in sequence, and the others are the millisecond at which the pause ends.
#[derive(Debug, Default)]
pub(crate) struct Health(AtomicU64);

/// What an attempt knew when it began. A failure that came to be known meanwhile is not counted twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen(u64);

/// Whether an address may be tried. Moments are milliseconds since some beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Good,
    /// The pause is over.
    Due,
    /// It is left out until then.
    Paused(u64),
}

impl Health {
    pub(crate) fn state(&self, now: u64) -> (State, Seen) {
        let word = self.0.now();
        let state = match unpack(word) {
            (_, 0) => State::Good,
            (until, _) if until <= now => State::Due,
            (until, _) => State::Paused(until),
        };
        (state, Seen(word))
    }

    /// Takes the one attempt that is due. `None`: another connection has it.
    pub(crate) fn claim(&self, now: u64) -> Option<Seen> {
        claim(&self.0, now).map(Seen)
    }

    /// Begins a pause, and returns it. `None`: another attempt has begun it.
    pub(crate) fn failed(&self, seen: Seen, now: u64) -> Option<Duration> {
        let word = failed(&self.0, seen.0, now)?;
        let (until, _) = unpack(word);
        Some(Duration::from_millis(until.saturating_sub(now)))
    }

    /// Ends the pause. Returns whether there was one.
    pub(crate) fn succeeded(&self) -> bool {
        update(&self.0, |word| (word != 0).then_some(0)).is_some()
    }
}

fn claim(word: &impl Number, now: u64) -> Option<u64> {
    update(word, |word| {
        let (until, failures) = unpack(word);
        (failures > 0 && until <= now).then(|| pack(now + pause(failures), failures))
    })
}

fn failed(word: &impl Number, seen: u64, now: u64) -> Option<u64> {
    update(word, |word| {
        let (_, failures) = unpack(word);
        let failures = (failures + 1).min(MOST_FAILURES);
        (word == seen).then(|| pack(now + pause(failures), failures))
    })
}

/// How long an address is left out after so many failures, in milliseconds.
fn pause(failures: u64) -> u64 {
    let doubled = FIRST_PAUSE << failures.saturating_sub(1).min(16);
    doubled.min(LONGEST_PAUSE)
}

fn pack(until: u64, failures: u64) -> u64 {
    (until << FAILURE_BITS) | failures
}

fn unpack(word: u64) -> (u64, u64) {
    (word >> FAILURE_BITS, word & MOST_FAILURES)
}

const FAILURE_BITS: u32 = 6;
const MOST_FAILURES: u64 = (1 << FAILURE_BITS) - 1;
const FIRST_PAUSE: u64 = 1000;
const LONGEST_PAUSE: u64 = 30_000;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use loom::sync::atomic::AtomicU64 as ModelU64;

    use super::*;

    #[test]
    fn pauses_grow_and_end_with_a_success() {
        let health = Health::default();
        let mut now = 5;
        let (state, mut seen) = health.state(now);
        assert_eq!(state, State::Good);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let pause = health.failed(seen, now).expect("the first to know");
            pauses.push(pause.as_secs());
            let ends = now + pause.as_millis() as u64;
            assert_eq!(health.state(ends - 1).0, State::Paused(ends));
            assert_eq!(health.claim(ends - 1), None);
            now = ends;
            assert_eq!(health.state(now).0, State::Due);
            seen = health.claim(now).expect("due");
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert!(health.succeeded());
        assert!(!health.succeeded());
        assert_eq!(health.state(now).0, State::Good);
        assert_eq!(health.claim(now), None);
    }

    #[test]
    fn attempts_that_fail_together_are_one_failure() {
        let health = Health::default();
        let (_, seen) = health.state(0);
        assert_eq!(health.failed(seen, 0), Some(Duration::from_secs(1)));
        assert_eq!(health.failed(seen, 1), None);
        assert_eq!(health.state(1).0, State::Paused(1000));
    }

    #[test]
    fn failures_are_counted_to_the_end() {
        let health = Health::default();
        for _ in 0..200 {
            let (_, seen) = health.state(0);
            health.failed(seen, 0).expect("the only one");
        }
        assert_eq!(health.state(0).0, State::Paused(30_000));
    }

    /// Two threads want the one attempt that is due.
    #[test]
    fn model_one_connection_tries_an_address_again() {
        loom::model(|| {
            let word = Arc::new(ModelU64::new(pack(10, 1)));
            let other = word.clone();
            let thread = loom::thread::spawn(move || claim(&*other, 10).is_some());
            let mine = claim(&*word, 10).is_some();
            assert!(mine ^ thread.join().unwrap(), "one of two");
        });
    }

    /// Two attempts fail that began at the same time.
    #[test]
    fn model_a_failure_is_counted_once() {
        loom::model(|| {
            let word = Arc::new(ModelU64::new(0));
            let other = word.clone();
            let thread = loom::thread::spawn(move || failed(&*other, 0, 5).is_some());
            let mine = failed(&*word, 0, 5).is_some();
            assert!(mine ^ thread.join().unwrap(), "one of two");
            assert_eq!(unpack(word.now()), (1005, 1));
        });
    }
}
