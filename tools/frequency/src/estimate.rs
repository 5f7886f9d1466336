//! Statements from samples: medians, distributions, and intervals of confidence.

use serde::{Deserialize, Serialize};
use widelane_statistics::quantile;

/// A median, and where the true one is with a probability of 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median.
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Estimate {
    /// Estimate from independent samples, one a round; `None` of too few.
    ///
    /// The interval is that of order statistics, which assumes no distribution (David and Nagaraja,
    /// Order Statistics, 2003, section 7.1), and never narrower than what a clock drifts from one
    /// second to the next (a hundredth to either side).
    pub fn of(samples: &[f64]) -> Option<Self> {
        let sorted = sorted(samples);
        let n = sorted.len();
        if n < FEWEST {
            return None;
        }
        let value = quantile(&sorted, 0.5)?;
        // Ranks between which the median lies with 95 %: binomial, by its normal approximation.
        let spread = 1.96 * (n as f64).sqrt() / 2.0;
        let low = (n as f64 / 2.0 - spread).floor().max(0.0) as usize;
        let high = ((n as f64 / 2.0 + spread).ceil() as usize).min(n - 1);
        let drift = DRIFT * value.abs();
        Some(Self {
            value,
            low: sorted[low].min(value - drift),
            high: sorted[high].max(value + drift),
        })
    }

    /// Returns whether the interval contains `value`.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// Distribution of samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Samples.
    pub count: usize,
    /// A twentieth is below.
    pub p5: f64,
    /// Half is below.
    pub p50: f64,
    /// A twentieth is above.
    pub p95: f64,
    /// A hundredth is above.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Distribution {
    /// Distribution of samples; `None` of none.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let sorted = sorted(samples);
        let max = *sorted.last()?;
        Some(Self {
            count: sorted.len(),
            p5: quantile(&sorted, 0.05)?,
            p50: quantile(&sorted, 0.5)?,
            p95: quantile(&sorted, 0.95)?,
            p99: quantile(&sorted, 0.99)?,
            max,
        })
    }
}

/// The median; `None` of no samples.
pub(crate) fn median(samples: &[f64]) -> Option<f64> {
    quantile(&sorted(samples), 0.5)
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|x| x.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Fewer samples than this say nothing about where the median is.
pub(crate) const FEWEST: usize = 6;
/// Share by which a clock moves in a second without any known reason.
const DRIFT: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_hold_the_median_as_often_as_they_say() {
        // A pseudo-random walk over a skewed distribution whose median is ln 2.
        let mut state = 1u64;
        let mut next = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let uniform = ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
            -uniform.ln()
        };
        let trials = 2000;
        let held = (0..trials)
            .filter(|_| {
                let samples: Vec<f64> = (0..25).map(|_| next()).collect();
                Estimate::of(&samples).is_some_and(|e| e.contains(std::f64::consts::LN_2))
            })
            .count();
        assert!(held as f64 / trials as f64 > 0.95, "{held} of {trials}");
    }

    #[test]
    fn few_samples_and_odd_ones_say_nothing() {
        assert_eq!(Estimate::of(&[1.0; FEWEST - 1]), None);
        assert_eq!(Estimate::of(&[f64::NAN; 20]), None);
        assert_eq!(Distribution::of(&[]), None);
        let steady = Estimate::of(&[2.0; FEWEST]).unwrap();
        assert!(steady.contains(2.0) && steady.contains(1.99) && !steady.contains(1.9));
    }

    #[test]
    fn distributions_are_of_what_was_given() {
        let samples: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        let found = Distribution::of(&samples).unwrap();
        assert_eq!((found.p5, found.p50, found.p99, found.max), (5.0, 50.0, 99.0, 100.0));
    }
}
