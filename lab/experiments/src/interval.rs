//! Medians of turns that were taken in rounds.

use widelane_samples::median;

/// A median with the least and the most of the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The median.
    pub median: f64,
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

impl Interval {
    /// Interval of at least one value.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            median: median(values.to_vec())?,
            low: values.iter().copied().fold(f64::INFINITY, f64::min),
            high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }

    /// The changes against the values of the same rounds, in per cent.
    pub(crate) fn of_changes(values: &[f64], against: &[f64]) -> Option<Self> {
        let changes = values.iter().zip(against);
        let changes: Vec<_> = changes.map(|(value, base)| (value / base - 1.0) * 100.0).collect();
        Self::of(&changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_have_their_range() {
        assert_eq!(Interval::of(&[]), None);
        let odd = Interval::of(&[3.0, 1.0, 2.0]).expect("three values");
        assert_eq!((odd.low, odd.median, odd.high), (1.0, 2.0, 3.0));
    }
}
