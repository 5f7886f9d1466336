//! Lanes off and on again, as an operator asks a living process by one word of its page.
//!
//! The process reads the word wherever it chooses between lanes and code for one job; nothing that is under
//! way changes. The word comes from another process: a value that is neither "off" nor a time soon to come
//! means "on", so that no value does harm, and one that was left behind ends by itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The word.
#[derive(Debug, Default)]
pub struct Switch(pub(crate) AtomicU64);

/// State of lanes that an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Lanes compute what they pay for, as without an operator.
    On,
    /// None does, until the word says otherwise.
    Off,
    /// None does until then, by the monotonic clock.
    OffUntil(Duration),
}

impl Asked {
    /// The word that asks for it. Time counts to the nanosecond.
    pub fn to_word(self) -> u64 {
        match self {
            Self::On => ON,
            Self::Off => OFF,
            Self::OffUntil(then) => u64::try_from(then.as_nanos()).unwrap_or(ON),
        }
    }

    /// Reads a word at an instant of the monotonic clock. Any word has a meaning.
    pub fn of_word(word: u64, now: Duration) -> Self {
        let then = Duration::from_nanos(word);
        match word {
            ON => Self::On,
            OFF => Self::Off,
            _ if then > now && then - now <= LONGEST => Self::OffUntil(then),
            _ => Self::On,
        }
    }
}

impl Switch {
    /// Returns whether lanes are off. `now`, the monotonic clock, is read only when the word holds a time.
    pub fn is_off(&self, now: impl FnOnce() -> Duration) -> bool {
        match self.word() {
            ON | ON_IN_A_PROOF => false,
            OFF => true,
            word => Asked::of_word(word, now()) != Asked::On,
        }
    }

    /// The word.
    pub fn word(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Writes the word, as an operator does.
    pub fn set(&self, word: u64) {
        self.0.store(word, Relaxed);
    }
}

/// A time further away than this means nothing.
pub const LONGEST: Duration = Duration::from_secs(600);

/// Word by which a proof asks for lanes. It means the same as [`Asked::On`], and differs from an operator's word, so
/// that the proof sees when an operator has asked for lanes meanwhile.
pub const ON_IN_A_PROOF: u64 = u64::from_le_bytes(*b"LANES-ON");

const ON: u64 = 0;
const OFF: u64 = u64::from_le_bytes(*b"LANESOFF");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Duration = Duration::from_secs(5000);

    fn is_off(word: u64) -> bool {
        Switch(AtomicU64::new(word)).is_off(|| NOW)
    }

    #[test]
    fn off_stays_and_off_until_then_ends_then() {
        assert!(!is_off(Asked::On.to_word()));
        assert!(is_off(Asked::Off.to_word()));
        let until = |then: Duration| is_off(Asked::OffUntil(then).to_word());
        assert!(until(NOW + Duration::from_nanos(1)));
        assert!(!until(NOW), "its time has come");
        assert!(!until(NOW - Duration::from_secs(1)));
        assert!(until(NOW + LONGEST));
        assert!(!until(NOW + LONGEST + Duration::from_nanos(1)));
        assert!(!until(Duration::MAX));
        assert_eq!(Asked::of_word(ON_IN_A_PROOF, NOW), Asked::On);
    }

    #[test]
    fn a_word_without_a_time_asks_no_clock() {
        for word in [ON, ON_IN_A_PROOF, OFF] {
            let switch = Switch(AtomicU64::new(word));
            assert_eq!(switch.is_off(|| panic!("the clock is read")), word == OFF);
        }
    }

    proptest! {
        #[test]
        fn any_other_word_means_on(word: u64, now in 0..u64::MAX / 2) {
            let now = Duration::from_nanos(now);
            let soon = word > now.as_nanos() as u64
                && u128::from(word) <= (now + LONGEST).as_nanos();
            let is_off = Switch(AtomicU64::new(word)).is_off(|| now);
            prop_assert_eq!(is_off, word == OFF || soon);
        }
    }
}
