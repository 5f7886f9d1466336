//! Which blocks a proof has, and how long they last.

use std::time::Duration;

use super::run::LEFT_OUT;
use super::verdict::FEWEST;

/// Pairs of blocks: in one of each pair lanes are on, in the other off. Which comes first is drawn anew for each
/// pair, so that nothing that comes and goes by itself can keep step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// How many pairs.
    pub pairs: usize,
    /// How long lanes are on in each.
    pub on: Duration,
    /// How long they are off.
    pub off: Duration,
}

/// Why there is no plan.
#[derive(Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// One of the two kinds of blocks would have hardly any time.
    #[error("a share of {0} leaves too little time for one of both; it is between 0.05 and 0.95")]
    Share(f64),
    /// There are too few blocks for an interval.
    #[error("that takes {} seconds at least: {FEWEST_PAIRS} pairs of blocks", least.as_secs_f64().ceil())]
    Short {
        /// The shortest time.
        least: Duration,
    },
}

impl Plan {
    /// Blocks for so long in all, with lanes off for this share of it.
    ///
    /// # Errors
    ///
    /// When they are too few, or too short.
    pub fn new(length: Duration, share: f64) -> Result<Self, PlanError> {
        if !(0.05..=0.95).contains(&share) {
            return Err(PlanError::Share(share));
        }
        let shortest_pair = SHORTEST.div_f64(share.min(1.0 - share));
        let pairs = (length.as_secs_f64() / shortest_pair.as_secs_f64() + ROUNDING) as usize;
        if pairs < FEWEST_PAIRS {
            let least = shortest_pair * FEWEST_PAIRS as u32;
            return Err(PlanError::Short { least });
        }
        let pair = length.div_f64(pairs as f64);
        let off = pair.mul_f64(share);
        Ok(Self {
            pairs,
            on: pair - off,
            off,
        })
    }
}

impl Plan {
    /// Handshakes a second that make enough of them in each block.
    pub(super) fn least_rate(&self) -> f64 {
        let counted = self.on.min(self.off).mul_f64(1.0 - 1.0 / f64::from(LEFT_OUT));
        FEWEST as f64 / counted.as_secs_f64()
    }
}

/// The shortest block. A tenth of it is left out.
const SHORTEST: Duration = Duration::from_secs(2);
/// Fewer have no interval (`widelane_statistics::interval_of_median`).
const FEWEST_PAIRS: usize = 6;
const ROUNDING: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_minute_has_fifteen_pairs() {
        let plan = Plan::new(MINUTE, 0.5).unwrap();
        let two = Duration::from_secs(2);
        assert_eq!((plan.pairs, plan.on, plan.off), (15, two, two));
    }

    #[test]
    fn a_smaller_share_makes_longer_pairs_and_no_shorter_blocks() {
        for share in [0.05, 0.1, 0.25, 0.4, 0.6, 0.95] {
            let plan = Plan::new(MINUTE * 10, share).unwrap();
            assert!(plan.on >= SHORTEST && plan.off >= SHORTEST, "{plan:?}");
            let all = (plan.on + plan.off) * plan.pairs as u32;
            assert!(all <= MINUTE * 10 && all + MINUTE / 60 > MINUTE * 10);
            let off = plan.off.as_secs_f64() / (plan.on + plan.off).as_secs_f64();
            assert!((off - share).abs() < 1e-6, "{off}");
        }
    }

    #[test]
    fn what_cannot_be_planned_says_what_can() {
        let short = Plan::new(MINUTE, 0.1).unwrap_err();
        assert_eq!(short.to_string(), "that takes 120 seconds at least: 6 pairs of blocks");
        assert!(Plan::new(MINUTE * 2, 0.1).is_ok());
        for share in [0.0, 1.0, -1.0, f64::NAN] {
            let error = Plan::new(MINUTE, share).unwrap_err();
            assert!(matches!(error, PlanError::Share(_)), "{error}");
        }
    }
}
