//! Lanes off and on again, as an operator and a proof ask a living process by a word of its page each.
//!
//! The process reads the words wherever it chooses between lanes and code for one job; nothing that is under way
//! changes. They come from other processes: no value does harm. The operator's word stays. A proof's has a time in it,
//! and counts in place of the operator's until then: one that was left behind ends by itself, and the operator's was
//! never away.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Both words.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Switch {
    operator: AtomicU64,
    proof: AtomicU64,
}

/// State of lanes that is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asked {
    /// Lanes compute what they pay for, as without a switch.
    #[default]
    On,
    /// None does.
    Off,
}

/// What a proof asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InProof {
    /// The state.
    pub asked: Asked,
    /// Time by the monotonic clock until which it is asked for.
    pub until: Duration,
}

impl Asked {
    /// The word by which an operator asks for it.
    pub fn to_word(self) -> u64 {
        match self {
            Self::On => 0,
            Self::Off => OFF,
        }
    }

    /// Reads the word of an operator. Any word has a meaning.
    pub fn of_word(word: u64) -> Self {
        match word {
            OFF => Self::Off,
            _ => Self::On,
        }
    }
}

impl InProof {
    /// The word that asks for it. Time counts to two nanoseconds.
    pub fn to_word(self) -> u64 {
        let until = u64::try_from(self.until.as_nanos()).unwrap_or(0) & !WITHOUT;
        match self.asked {
            Asked::On => until,
            Asked::Off => until | WITHOUT,
        }
    }

    /// Reads a word. Any has a meaning.
    pub fn of_word(word: u64) -> Self {
        Self {
            asked: match word & WITHOUT {
                WITHOUT => Asked::Off,
                _ => Asked::On,
            },
            until: Duration::from_nanos(word & !WITHOUT),
        }
    }

    /// The state that is asked for at an instant of the monotonic clock; `None`: no proof is at work.
    pub fn at(self, now: Duration) -> Option<Asked> {
        let is_at_work = self.until > now && self.until - now <= LONGEST;
        is_at_work.then_some(self.asked)
    }
}

impl Switch {
    /// Returns whether lanes are off. `now`, the monotonic clock, is read only after a proof has begun.
    pub fn is_off(&self, now: impl FnOnce() -> Duration) -> bool {
        let in_proof = match self.proof.load(Relaxed) {
            0 => None,
            word => InProof::of_word(word).at(now()),
        };
        let asked = in_proof.unwrap_or_else(|| Asked::of_word(self.operator.load(Relaxed)));
        asked == Asked::Off
    }

    /// Writes the word of an operator.
    pub fn ask(&self, asked: Asked) {
        self.operator.store(asked.to_word(), Relaxed);
    }

    /// Writes the word of a proof.
    pub fn ask_in_proof(&self, asked: InProof) {
        self.proof.store(asked.to_word(), Relaxed);
    }

    /// The words of an operator and of a proof.
    pub fn words(&self) -> [u64; 2] {
        [&self.operator, &self.proof].map(|word| word.load(Relaxed))
    }

    /// Writes the words that another page has.
    pub fn set_words(&self, words: [u64; 2]) {
        for (to, word) in [&self.operator, &self.proof].into_iter().zip(words) {
            to.store(word, Relaxed);
        }
    }
}

/// A time further away than this means nothing.
pub const LONGEST: Duration = Duration::from_secs(600);

const OFF: u64 = u64::from_le_bytes(*b"LANESOFF");
/// Bit of a proof's word that asks for no lanes; the others are the time.
const WITHOUT: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Duration = Duration::from_secs(5000);
    const BOTH: [Asked; 2] = [Asked::On, Asked::Off];

    fn is_off(operator: Asked, proof: InProof) -> bool {
        let switch = Switch::default();
        switch.ask(operator);
        switch.ask_in_proof(proof);
        switch.is_off(|| NOW)
    }

    #[test]
    fn a_proof_counts_until_its_time_comes_and_the_operator_from_then_on() {
        for (operator, asked) in BOTH.into_iter().flat_map(|one| BOTH.map(|other| (one, other))) {
            let at = |until: Duration| is_off(operator, InProof { asked, until });
            let (proof, operator) = (asked == Asked::Off, operator == Asked::Off);
            let tick = Duration::from_nanos(2);
            assert_eq!(at(NOW + tick), proof);
            assert_eq!(at(NOW + LONGEST), proof);
            for over in [NOW, NOW - tick, NOW + LONGEST + tick, Duration::ZERO, Duration::MAX] {
                assert_eq!(at(over), operator, "{over:?}");
            }
        }
    }

    #[test]
    fn without_a_proof_no_clock_is_read() {
        for asked in BOTH {
            let switch = Switch::default();
            switch.ask(asked);
            assert_eq!(switch.is_off(|| panic!("the clock is read")), asked == Asked::Off);
        }
    }

    proptest! {
        #[test]
        fn any_words_have_a_meaning(words: [u64; 2], near in 0..LONGEST.as_nanos() as u64 * 2) {
            let [operator, proof] = words;
            for proof in [proof, NOW.as_nanos() as u64 + near] {
                let switch = Switch::default();
                switch.set_words([operator, proof]);
                prop_assert_eq!(switch.words(), [operator, proof]);
                let until = u128::from(proof & !1);
                let counts = until > NOW.as_nanos() && until <= (NOW + LONGEST).as_nanos();
                let expected = if counts { proof & 1 == 1 } else { operator == OFF };
                prop_assert_eq!(switch.is_off(|| NOW), expected);
                prop_assert_eq!(InProof::of_word(proof).to_word(), proof);
            }
        }
    }
}
