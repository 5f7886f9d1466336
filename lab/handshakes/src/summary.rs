//! Medians, and tables in plain text.

use serde_json::Value;

/// The median; `None` of nothing.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// The median of `key` over `reports`. A report without the figure counts for nothing.
pub(crate) fn median_of(reports: &[Value], key: &str) -> Option<f64> {
    median(figures(reports, key).collect())
}

/// The median of the quotients of `key`, round by round: what drifts over a run drifts for both.
pub(crate) fn median_ratio(ours: &[Value], theirs: &[Value], key: &str) -> Option<f64> {
    median(ratios(ours, theirs, key))
}

/// The quotients of `key`, round by round, of those rounds in which both measured it.
pub(crate) fn ratios(ours: &[Value], theirs: &[Value], key: &str) -> Vec<f64> {
    let pairs = ours.iter().zip(theirs);
    let ratios = pairs.filter_map(|(our, their)| Some(our[key].as_f64()? / their[key].as_f64()?));
    ratios.filter(|ratio| ratio.is_finite()).collect()
}

/// The confidence interval of the median from order statistics, of at least 95 %; `None` if there
/// are too few values for any.
///
/// The number of values below the true median is binomial with one half. (H. A. David, H. N.
/// Nagaraja, Order Statistics, 3rd edition, section 7.1.)
pub(crate) fn interval_of_median(values: &[f64]) -> Option<(f64, f64)> {
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

/// The sum of `key` over `reports`.
pub(crate) fn sum_of(reports: &[Value], key: &str) -> u64 {
    reports
        .iter()
        .filter_map(|report| report[key].as_u64())
        .sum()
}

/// A whole number with commas, or `n/a`.
pub(crate) fn whole(value: Option<f64>) -> String {
    let Some(value) = value else {
        return "n/a".into();
    };
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A quotient with two digits, or `n/a`.
pub(crate) fn ratio(value: Option<f64>) -> String {
    value.map_or("n/a".into(), |value| format!("{value:.2}"))
}

/// Rows in columns: the first column to the left, all others to the right, the first row a head.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().map(|row| cell(row, column).chars().count());
            cells.max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let mut line = format!("{:<1$}", cell(row, 0), widths[0]);
        for (column, width) in widths.iter().enumerate().skip(1) {
            line.push_str(&format!("  {:>width$}", cell(row, column)));
        }
        text.push_str(line.trim_end());
        text.push('\n');
        if index == 0 {
            let ruler: Vec<_> = widths.iter().map(|width| "-".repeat(*width)).collect();
            text.push_str(&ruler.join("  "));
            text.push('\n');
        }
    }
    text
}

fn figures(reports: &[Value], key: &str) -> impl Iterator<Item = f64> {
    reports
        .iter()
        .filter_map(move |report| report[key].as_f64())
}

const MISSED_ON_EACH_SIDE: f64 = 0.025;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn ratios_pair_the_rounds_and_leave_out_what_was_not_measured() {
        let ours = [json!({"x": 10.0}), json!({"x": 60.0}), json!({"x": null})];
        let theirs = [json!({"x": 5.0}), json!({"x": 20.0}), json!({"x": 1.0})];
        assert_eq!(median_ratio(&ours, &theirs, "x"), Some(2.5));
        assert_eq!(median_ratio(&ours, &[json!({"x": 0.0})], "x"), None);
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

    #[test]
    fn numbers_for_people() {
        assert_eq!(whole(None), "n/a");
        assert_eq!(whole(Some(999.4)), "999");
        assert_eq!(whole(Some(1_234_567.0)), "1,234,567");
        assert_eq!(ratio(Some(2.834)), "2.83");
    }

    #[test]
    fn columns_line_up() {
        let rows = [
            vec!["a".into(), "b".into()],
            vec!["cc".into(), "1,000".into()],
        ];
        assert_eq!(table(&rows), "a       b\n--  -----\ncc  1,000\n");
    }
}
