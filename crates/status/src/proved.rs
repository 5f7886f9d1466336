//! Result of a proof in the page of each process that it has switched, for others to see. The process itself does
//! nothing with it.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Words of the result.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Words(pub(crate) [AtomicU64; WORDS]);

/// Result of the last proof.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proved {
    /// Time by the monotonic clock at which it ended; zero: there was none.
    pub ended: Duration,
    /// What it found.
    pub found: Found,
    /// CPU time of a handshake with lanes.
    pub with: Duration,
    /// Time without lanes.
    pub without: Duration,
}

/// What a proof found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Found {
    /// The proof found no answer: there was too little load, or too much noise.
    #[default]
    Nothing,
    /// Handshakes take as much with lanes as without, as far as is seen.
    Same,
    /// Both differ.
    Differ,
}

impl Proved {
    /// Returns the words that say this.
    pub fn to_words(self) -> [u64; WORDS] {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let found = match self.found {
            Found::Nothing => 0,
            Found::Same => SAME,
            Found::Differ => DIFFER,
        };
        [nanos(self.ended), found, nanos(self.with), nanos(self.without)]
    }

    /// Reads words. Any have a meaning.
    pub fn of_words([ended, found, with, without]: [u64; WORDS]) -> Self {
        Self {
            ended: Duration::from_nanos(ended),
            found: match found {
                SAME => Found::Same,
                DIFFER => Found::Differ,
                _ => Found::Nothing,
            },
            with: Duration::from_nanos(with),
            without: Duration::from_nanos(without),
        }
    }

    /// Time since it ended; `None` if there was none.
    pub fn age(&self, now: Duration) -> Option<Duration> {
        let was = !self.ended.is_zero() && self.ended <= now;
        was.then(|| now - self.ended)
    }
}

/// Number of words.
pub(crate) const WORDS: usize = 4;
const SAME: u64 = 1;
const DIFFER: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_and_any_word_is_harmless(words: [u64; WORDS], now in 0..u64::MAX) {
            let read = Proved::of_words(words);
            prop_assert_eq!(Proved::of_words(read.to_words()), read);
            let now = Duration::from_nanos(now);
            prop_assert!(read.age(now).is_none_or(|age| age <= now));
        }
    }
}
