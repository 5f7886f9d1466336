//! Medians of turns that were taken in rounds.

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
    /// Of at least one value.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
            _ => sorted[middle],
        };
        Some(Self { median, low, high })
    }

    /// The changes against the values of the same rounds, in per cent.
    pub(crate) fn of_changes(values: &[f64], against: &[f64]) -> Option<Self> {
        let changes = values.iter().zip(against);
        let changes: Vec<_> = changes
            .map(|(value, base)| (value / base - 1.0) * 100.0)
            .collect();
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
        let even = Interval::of(&[4.0, 1.0]).expect("two values");
        assert_eq!(even.median, 2.5);
        let changes = Interval::of_changes(&[90.0, 80.0], &[100.0, 100.0]).expect("two rounds");
        assert!((changes.median + 15.0).abs() < 1e-9 && (changes.low + 20.0).abs() < 1e-9);
    }
}
