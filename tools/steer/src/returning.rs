//! Decides when a thread that was wide goes back to the scalar cores.

use crate::tasks;
use std::collections::VecDeque;
use std::time::Duration;

/// Time that a thread stays on the vector cores after it was last seen wide.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Returning {
    /// One time for all threads.
    Fixed(Duration),
    /// Time that would have been best for this thread's own pauses, given the cost of a wrong return.
    Measured {
        /// The time on a vector core that is as bad as being moved away too early and back.
        cost: Duration,
    },
}

impl Returning {
    /// [`Returning::Measured`] for a steerer that looks once an `interval`.
    ///
    /// A thread that went back too early runs wide code among scalar threads until the next look,
    /// half an interval later on average and a whole one at most, and is moved twice. What a move
    /// takes is found out here by moving a thread to and fro.
    pub fn measured(interval: Duration) -> Self {
        Self::Measured {
            cost: interval + 2 * tasks::time_of_a_move().unwrap_or_default(),
        }
    }
}

/// The pauses of one thread between times of wide code, newest last.
#[derive(Clone, Debug, Default)]
pub struct Pauses(VecDeque<Duration>);

impl Pauses {
    /// The thread was wide again after this long.
    pub fn record(&mut self, pause: Duration) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(pause);
    }

    /// Time to wait under `returning`.
    ///
    /// With pauses `g`, waiting `h` has cost `g` each time the thread was wide again before `h`
    /// was over, and `h + cost` each time that it was not. The best `h` is nothing, or one of the
    /// pauses. A thread that is not known yet waits for `cost`, which is never worse than twice
    /// the best.
    pub fn hold(&self, returning: Returning) -> Duration {
        let cost = match returning {
            Returning::Fixed(hold) => return hold,
            Returning::Measured { cost } => cost,
        };
        if self.0.len() < ENOUGH {
            return cost;
        }
        let paid = |hold: Duration| -> Duration {
            let one = |&pause: &Duration| {
                if pause <= hold { pause } else { hold + cost }
            };
            self.0.iter().map(one).sum()
        };
        let holds = self.0.iter().copied();
        std::iter::once(Duration::ZERO)
            .chain(holds)
            .min_by_key(|&hold| (paid(hold), hold))
            .unwrap_or(cost)
    }
}

const REMEMBERED: usize = 16;
const ENOUGH: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COST: Duration = Duration::from_millis(250);

    fn after(pauses: &[u64]) -> Duration {
        let mut known = Pauses::default();
        for &pause in pauses {
            known.record(Duration::from_millis(pause));
        }
        known.hold(Returning::Measured { cost: COST })
    }

    #[test]
    fn short_pauses_are_waited_for_and_long_ones_are_not() {
        assert_eq!(after(&[]), COST);
        assert_eq!(after(&[100, 120, 110]), Duration::from_millis(120));
        assert_eq!(after(&[9000, 8000, 7000]), Duration::ZERO);
        // Mostly short: one long pause changes nothing.
        assert_eq!(after(&[100, 100, 100, 100, 9000]), Duration::from_millis(100));
    }

    #[test]
    fn a_fixed_time_is_fixed() {
        let mut pauses = Pauses::default();
        (0..20).for_each(|_| pauses.record(Duration::from_secs(60)));
        assert_eq!(pauses.hold(Returning::Fixed(COST)), COST);
    }

    proptest! {
        /// No time of waiting at all would have been cheaper for what is remembered.
        #[test]
        fn no_other_time_was_better(
            pauses in prop::collection::vec(1..2000u64, 3..16),
            other in 0..3000u64,
        ) {
            let paid = |hold: u64| -> u64 {
                let cost = COST.as_millis() as u64;
                pauses.iter().map(|&g| if g <= hold { g } else { hold + cost }).sum()
            };
            let chosen = after(&pauses).as_millis() as u64;
            prop_assert!(paid(chosen) <= paid(other));
        }
    }
}
