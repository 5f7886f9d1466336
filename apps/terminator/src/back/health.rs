//! Health of an address, as connections that were tried there show it.
//!
//! An address that fails is left out for a pause. When that is over, one connection tries it again, and no
//! other before it is known how that ended.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::number::{Number, update};

/// Health of one address: in one word, since all workers change it. Zero: it answers. Else the
/// lower bits count failures in sequence, and the others are the millisecond at which the pause ends.
#[derive(Debug, Default)]
pub(crate) struct Health(AtomicU64);

/// State of an address at the beginning of an attempt. A failure that came to be known meanwhile is not counted twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Observation(u64);

/// State of an address, which says if it may be tried. Moments are milliseconds since some beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Good,
    /// The pause is over.
    Due,
    /// The address is left out until then.
    Paused(u64),
}

impl Observation {
    /// Returns whether the address had answered.
    pub(crate) fn is_good(self) -> bool {
        unpack(self.0).1 == 0
    }
}

impl Health {
    pub(crate) fn state(&self, now: u64) -> (State, Observation) {
        let word = self.0.now();
        let state = match unpack(word) {
            (_, 0) => State::Good,
            (until, _) if until <= now => State::Due,
            (until, _) => State::Paused(until),
        };
        (state, Observation(word))
    }

    /// Takes the one attempt that is due, which ends within `lasts` milliseconds. `None`: another
    /// connection has it.
    pub(crate) fn claim(&self, now: u64, lasts: u64) -> Option<Observation> {
        claim(&self.0, now, lasts).map(Observation)
    }

    /// Begins a pause, and returns it. `None`: another attempt has begun it.
    pub(crate) fn failed(&self, observed: Observation, now: u64) -> Option<Duration> {
        let word = failed(&self.0, observed.0, now)?;
        let (until, _) = unpack(word);
        Some(Duration::from_millis(until.saturating_sub(now)))
    }

    /// Begins a pause, the `times`th in sequence, at an address that takes connections and breaks them. `None`:
    /// there is one already.
    pub(crate) fn broke(&self, times: u64, now: u64) -> Option<Duration> {
        let times = times.clamp(1, MOST_FAILURES);
        let begun = |word| (word == 0).then(|| pack(now.saturating_add(pause(times)), times));
        update(&self.0, begun)?;
        Some(Duration::from_millis(pause(times)))
    }

    /// Ends the pause. Returns whether there was one.
    pub(crate) fn succeeded(&self) -> bool {
        update(&self.0, |word| (word != 0).then_some(0)).is_some()
    }
}

fn claim(word: &impl Number, now: u64, lasts: u64) -> Option<u64> {
    update(word, |word| {
        let (until, failures) = unpack(word);
        // Another attempt would change the word, and the failure of this one would not count.
        let pause = pause(failures).max(lasts.saturating_add(SPARE));
        (failures > 0 && until <= now).then(|| pack(now.saturating_add(pause), failures))
    })
}

fn failed(word: &impl Number, observed: u64, now: u64) -> Option<u64> {
    update(word, |word| {
        let (_, failures) = unpack(word);
        let failures = (failures + 1).min(MOST_FAILURES);
        (word == observed).then(|| pack(now + pause(failures), failures))
    })
}

/// Time for which an address is left out after so many failures, in milliseconds.
fn pause(failures: u64) -> u64 {
    let doubled = FIRST_PAUSE << failures.saturating_sub(1).min(16);
    doubled.min(LONGEST_PAUSE)
}

fn pack(until: u64, failures: u64) -> u64 {
    (until.min(u64::MAX >> FAILURE_BITS) << FAILURE_BITS) | failures
}

fn unpack(word: u64) -> (u64, u64) {
    (word >> FAILURE_BITS, word & MOST_FAILURES)
}

const FAILURE_BITS: u32 = 6;
const MOST_FAILURES: u64 = (1 << FAILURE_BITS) - 1;
const FIRST_PAUSE: u64 = 1000;
const LONGEST_PAUSE: u64 = 30_000;
/// Time by which a worker may be late to notice that an attempt has had its time.
const SPARE: u64 = 1000;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use loom::sync::atomic::AtomicU64 as ModelU64;

    use super::*;

    #[test]
    fn pauses_grow_and_end_with_a_success() {
        let health = Health::default();
        let mut now = 5;
        let (state, mut observed) = health.state(now);
        assert_eq!(state, State::Good);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let pause = health.failed(observed, now).expect("the first to know");
            pauses.push(pause.as_secs());
            let ends = now + pause.as_millis() as u64;
            assert_eq!(health.state(ends - 1).0, State::Paused(ends));
            assert_eq!(health.claim(ends - 1, 0), None);
            now = ends;
            assert_eq!(health.state(now).0, State::Due);
            observed = health.claim(now, 0).expect("due");
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert!(health.succeeded());
        assert!(!health.succeeded());
        assert_eq!(health.state(now).0, State::Good);
        assert_eq!(health.claim(now, 0), None);
    }

    #[test]
    fn no_other_attempt_begins_while_one_lasts_and_its_failure_counts() {
        for lasts in [1000, 5000] {
            let health = Health::default();
            let (_, observed) = health.state(0);
            health.failed(observed, 0).expect("the only one");
            let trial = health.claim(1000, lasts).expect("due");
            for later in [2000, 1000 + lasts] {
                assert_eq!(health.claim(later, lasts), None);
            }
            let pause = health.failed(trial, 1000 + lasts);
            assert_eq!(pause, Some(Duration::from_secs(2)));
        }
    }

    #[test]
    fn an_attempt_that_never_ends_leaves_the_address_out_without_harm() {
        let health = Health::default();
        let (_, observed) = health.state(0);
        health.failed(observed, 0).expect("the only one");
        let trial = health.claim(1000, u64::MAX).expect("due");
        assert_eq!(health.failed(trial, 9), Some(Duration::from_secs(2)));
    }

    #[test]
    fn attempts_that_fail_together_are_one_failure() {
        let health = Health::default();
        let (_, observed) = health.state(0);
        assert_eq!(health.failed(observed, 0), Some(Duration::from_secs(1)));
        assert_eq!(health.failed(observed, 1), None);
        assert_eq!(health.state(1).0, State::Paused(1000));
    }

    #[test]
    fn an_address_that_breaks_connections_has_one_pause_at_a_time() {
        let health = Health::default();
        assert_eq!(health.broke(1, 0), Some(Duration::from_secs(1)));
        assert_eq!(health.broke(2, 0), None);
        assert_eq!(health.state(0).0, State::Paused(1000));
        assert!(health.claim(1000, 0).is_some());
        // It takes the connection.
        assert!(health.succeeded());
        assert_eq!(health.broke(3, 2000), Some(Duration::from_secs(4)));
        assert!(health.succeeded());
        assert_eq!(health.broke(u64::MAX, 2000), Some(Duration::from_secs(30)));
    }

    #[test]
    fn failures_are_counted_to_the_end() {
        let health = Health::default();
        for _ in 0..200 {
            let (_, observed) = health.state(0);
            health.failed(observed, 0).expect("the only one");
        }
        assert_eq!(health.state(0).0, State::Paused(30_000));
    }

    /// Two threads want the one attempt that is due.
    #[test]
    fn model_one_connection_tries_an_address_again() {
        loom::model(|| {
            let word = Arc::new(ModelU64::new(pack(10, 1)));
            let other = word.clone();
            let thread = loom::thread::spawn(move || claim(&*other, 10, 1000).is_some());
            let mine = claim(&*word, 10, 1000).is_some();
            assert!(mine ^ thread.join().unwrap(), "one of two");
        });
    }

    /// The one attempt fails while another connection looks whether one is due.
    #[test]
    fn model_the_failure_of_the_one_attempt_counts() {
        loom::model(|| {
            let word = Arc::new(ModelU64::new(pack(10, 1)));
            let observed = claim(&*word, 10, 1000).expect("due");
            let other = word.clone();
            let thread = loom::thread::spawn(move || claim(&*other, 1010, 1000).is_some());
            assert!(failed(&*word, observed, 1010).is_some(), "it counts");
            assert!(!thread.join().unwrap(), "none is due");
            assert_eq!(unpack(word.now()), (3010, 2));
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
