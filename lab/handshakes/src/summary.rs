//! Medians of reports, and notes on what limited them.

use serde_json::Value;
use widelane_samples::kinds::LOAD_CPU;
use widelane_samples::{Kind, Record, median};

/// The median of `key` over `reports`. A report without the figure counts for nothing.
pub(crate) fn median_of(reports: &[Value], key: &str) -> Option<f64> {
    median(reports.iter().filter_map(|report| report[key].as_f64()).collect())
}

/// Notes on rows in which the load generator had no CPU left: the server may have had.
pub(crate) fn limits(record: &Record, kind: &Kind) -> Vec<String> {
    let mut notes = Vec::new();
    for group in kind.groups(record) {
        let busy = group.median(LOAD_CPU).unwrap_or(0.0);
        if busy > GENERATOR_LIMIT {
            notes.push(format!(
                "The load generator was at its limit ({:.0} % of its CPU) for {}: the server may be faster than this; \
                 its CPU time for a handshake says more than the rate.",
                busy * 100.0,
                kind.title(record, &group)
            ));
        }
    }
    notes
}

const GENERATOR_LIMIT: f64 = 0.97;
