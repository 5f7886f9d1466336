//! Medians of reports, and tables in plain text.

use serde_json::Value;
use widelane_samples::quotients;

pub(crate) use widelane_samples::{interval_of_median, median};

/// The median of `key` over `reports`. A report without the figure counts for nothing.
pub(crate) fn median_of(reports: &[Value], key: &str) -> Option<f64> {
    median(figures(reports, key).collect())
}

/// The smallest and the largest `key` of `reports`.
pub(crate) fn extremes(reports: &[Value], key: &str) -> Option<(f64, f64)> {
    let ends = figures(reports, key).map(|figure| (figure, figure));
    ends.reduce(|(low, high), (one, other)| (low.min(one), high.max(other)))
}

/// The median of the quotients of `key`, round by round: what drifts over a run drifts for both.
pub(crate) fn median_ratio(ours: &[Value], theirs: &[Value], key: &str) -> Option<f64> {
    median(ratios(ours, theirs, key))
}

/// The quotients of `key`, round by round, of those rounds in which both measured it.
pub(crate) fn ratios(ours: &[Value], theirs: &[Value], key: &str) -> Vec<f64> {
    let of = |reports: &[Value]| -> Vec<Option<f64>> {
        reports.iter().map(|report| report[key].as_f64()).collect()
    };
    quotients(of(ours), of(theirs))
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ratios_pair_the_rounds_and_leave_out_what_was_not_measured() {
        let ours = [json!({"x": 10.0}), json!({"x": 60.0}), json!({"x": null})];
        let theirs = [json!({"x": 5.0}), json!({"x": 20.0}), json!({"x": 1.0})];
        assert_eq!(median_ratio(&ours, &theirs, "x"), Some(2.5));
        assert_eq!(median_ratio(&ours, &[json!({"x": 0.0})], "x"), None);
    }

    #[test]
    fn extremes_leave_out_what_was_not_measured() {
        let reports = [2.0, 5.0, 1.0].map(|x| json!({"x": x}));
        assert_eq!(extremes(&reports, "x"), Some((1.0, 5.0)));
        assert_eq!(extremes(&[json!({"x": null})], "x"), None);
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
