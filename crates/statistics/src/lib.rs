//! Quantiles, quotients of paired rounds, and intervals that assume no distribution.
//!
//! For everything that measures and says how sure it is: the comparisons of the laboratory, and `widelane status
//! --prove`. It measures nothing, and uses nothing of ours.

#![forbid(unsafe_code)]

/// The median; `None` of nothing.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// The value below which `share` of the values lie, which are in ascending order: between the two nearest. `None` of
/// nothing.
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = share * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted[rank.floor() as usize], sorted[rank.ceil() as usize]);
    Some(below + (above - below) * rank.fract())
}

/// `ours` by `theirs`, round by round, of those rounds in which both measured something. What
/// drifts over a run drifts for both.
pub fn quotients(
    ours: impl IntoIterator<Item = Option<f64>>,
    theirs: impl IntoIterator<Item = Option<f64>>,
) -> Vec<f64> {
    let pairs = ours.into_iter().zip(theirs);
    let quotients = pairs.filter_map(|(our, their)| Some(our? / their?));
    quotients.filter(|quotient| quotient.is_finite()).collect()
}

/// The confidence interval of the median from order statistics, of at least 95 %; `None` if there
/// are too few values for any (fewer than six).
///
/// The number of values below the true median is binomial with one half. (H. A. David, H. N.
/// Nagaraja, Order Statistics, 3rd edition, section 7.1.)
pub fn interval_of_median(values: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    // By logarithms: 2 to the power of the count soon leaves the range of a number.
    let mut log_term = -(count as f64) * std::f64::consts::LN_2;
    let (mut below, mut skipped) = (0.0, 0);
    for index in 0..count / 2 {
        below += log_term.exp();
        if below > MISSED_ON_EACH_SIDE {
            break;
        }
        skipped = index + 1;
        log_term += ((count - index) as f64 / (index + 1) as f64).ln();
    }
    (skipped > 0).then(|| (sorted[skipped - 1], sorted[count - skipped]))
}

const MISSED_ON_EACH_SIDE: f64 = 0.025;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn quantiles_lie_between_neighbours() {
        let hundred: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!(quantile(&hundred, 0.99), Some(99.0));
        assert_eq!(quantile(&hundred, 0.0), Some(0.0));
        assert_eq!(quantile(&hundred, 1.0), Some(100.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn quotients_pair_the_rounds_and_leave_out_what_was_not_measured() {
        let found = quotients(
            [Some(10.0), Some(60.0), None, Some(1.0)],
            [Some(5.0), Some(20.0), Some(1.0), Some(0.0)],
        );
        assert_eq!(found, [2.0, 3.0]);
    }

    /// The ranks that tables of the sign test give for 95 %.
    #[test]
    fn the_interval_has_the_ranks_of_the_sign_test() {
        let ranks = |count: usize| {
            let values: Vec<f64> = (1..=count).rev().map(|value| value as f64).collect();
            interval_of_median(&values)
        };
        assert_eq!(ranks(0), None);
        assert_eq!(ranks(5), None);
        assert_eq!(ranks(6), Some((1.0, 6.0)));
        assert_eq!(ranks(10), Some((2.0, 9.0)));
        assert_eq!(ranks(20), Some((6.0, 15.0)));
        assert_eq!(ranks(40), Some((14.0, 27.0)));
        assert_eq!(ranks(100), Some((40.0, 61.0)));
        let (low, high) = ranks(5000).expect("an interval");
        assert!((2400.0..2440.0).contains(&low) && (2560.0..2600.0).contains(&high));
    }
}
