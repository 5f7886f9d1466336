//! Latencies as a table with drawn histograms, as JSON, and as Prometheus text.

use std::fmt::Write as _;

use serde_json::json;

use super::{Histogram, Latencies};
use crate::text::{Members, duration, escaped, json_line, label, micros};

/// Columns of the longest bar.
const LONGEST: u64 = 40;
/// Powers of two of nanoseconds between which bars are drawn and Prometheus counts: 1 µs to 69 s.
const POWERS: std::ops::RangeInclusive<u32> = 10..=36;

impl Latencies {
    /// A table; `cpu` is the CPU time in nanoseconds of which shares are shown. With `drawn`, each row
    /// is followed by its histogram.
    pub fn table(&self, cpu: Option<u64>, drawn: bool) -> String {
        let mut text = format!(
            "{:<10} {:<32} {:<7} {:>10} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7}\n",
            "LIBRARY", "FUNCTION", "OUTCOME", "COUNT", "MEAN", "TOTAL", "P50", "P99", "MAX", "CPU"
        );
        for ((library, function, outcome), times) in &self.rows {
            let share = cpu.and_then(|cpu| share(times, cpu));
            let share = share.map_or("-".to_owned(), |share| format!("{:.1} %", 100.0 * share));
            let _ = writeln!(
                text,
                "{:<10} {:<32} {:<7} {:>10} {:>8} {:>8} {:>8} {:>8} {:>8} {share:>7}",
                escaped(library),
                escaped(function),
                outcome.name(),
                times.count(),
                duration(times.mean()),
                duration(times.total()),
                duration(times.quantile(0.5)),
                duration(times.quantile(0.99)),
                duration(times.max()),
            );
            if drawn {
                draw(&mut text, times);
            }
        }
        text
    }

    /// A line for each row; `time_s` is when the calls had been counted, in seconds since 1970, and `cpu` as
    /// for [`Latencies::table`].
    pub fn json(&self, time_s: f64, cpu: Option<u64>) -> String {
        let lines = self.rows.iter().map(|((library, function, outcome), times)| {
            json_line(&Members([
                ("time_s", json!(time_s)),
                ("library", json!(library)),
                ("function", json!(function)),
                ("outcome", json!(outcome.name())),
                ("count", json!(times.count())),
                ("mean_us", json!(micros(times.mean()))),
                ("total_us", json!(micros(times.total()))),
                ("p50_us", json!(micros(times.quantile(0.5)))),
                ("p99_us", json!(micros(times.quantile(0.99)))),
                ("max_us", json!(micros(times.max()))),
                ("cpu_share", json!(cpu.and_then(|cpu| share(times, cpu)))),
            ]))
        });
        lines.collect()
    }

    /// The text format of Prometheus: a histogram, whose bounds are powers of two of nanoseconds.
    pub fn prometheus(&self) -> String {
        const NAME: &str = "widelane_trace_call_seconds";
        let mut text = format!("# HELP {NAME} Time of calls from entry to return.\n# TYPE {NAME} histogram\n");
        for ((library, function, outcome), times) in &self.rows {
            let mut labels = String::new();
            label(&mut labels, "library", library);
            labels.push(',');
            label(&mut labels, "function", function);
            labels.push(',');
            label(&mut labels, "outcome", outcome.name());
            for power in POWERS {
                // Times are whole nanoseconds: shorter than the power is no longer than this.
                let bound = ((1u64 << power) - 1) as f64 / 1e9;
                let below = times.below_power(power);
                let _ = writeln!(text, "{NAME}_bucket{{{labels},le=\"{bound}\"}} {below}");
            }
            let count = times.count();
            let _ = writeln!(text, "{NAME}_bucket{{{labels},le=\"+Inf\"}} {count}");
            let seconds = times.total() as f64 / 1e9;
            let _ = writeln!(text, "{NAME}_sum{{{labels}}} {seconds}");
            let _ = writeln!(text, "{NAME}_count{{{labels}}} {count}");
        }
        text
    }
}

/// The share of `cpu` nanoseconds of CPU time. The kernel counts no CPU time of calls, so that their whole
/// time counts.
fn share(times: &Histogram, cpu: u64) -> Option<f64> {
    (cpu > 0).then(|| times.total() as f64 / cpu as f64)
}

/// A bar for each power of two, from the first to the last that has times.
fn draw(text: &mut String, times: &Histogram) {
    let mut bars: Vec<(u64, u64, u64)> = Vec::new();
    let (mut beginning, mut before) = (0, 0);
    for power in POWERS {
        let below = times.below_power(power);
        bars.push((beginning, 1 << power, below - before));
        (beginning, before) = (1 << power, below);
    }
    bars.push((beginning, u64::MAX, times.count() - before));
    let most = bars.iter().map(|bar| bar.2).max().unwrap_or(0).max(1);
    let first = bars.iter().position(|bar| bar.2 > 0);
    let last = bars.iter().rposition(|bar| bar.2 > 0);
    let shown = first.zip(last).and_then(|(first, last)| bars.get(first..=last));
    for (from, to, count) in shown.unwrap_or_default() {
        let to = match *to {
            u64::MAX => "…".to_owned(),
            to => duration(to),
        };
        // A row that has any calls gets at least one column.
        let columns = (u128::from(*count) * u128::from(LONGEST)).div_ceil(u128::from(most));
        let bar = "█".repeat(columns as usize);
        let from = duration(*from);
        let _ = writeln!(text, "  {from:>7} to {to:>7} |{bar:<40}| {count}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::bucket_of;
    use super::*;
    use crate::outcome::Outcome;

    fn latencies() -> Latencies {
        let mut latencies = Latencies::default();
        let mut add = |library, function, outcome, time| {
            let row = latencies.row(library, function, outcome);
            row.add(bucket_of(time), 1, time);
        };
        for time in [800, 1_100_000, 1_200_000, 3_000_000] {
            add("openssl", "SSL_do_handshake", Outcome::Ok, time);
        }
        let hostile = ("li\"b\\\n", "\x1b[2J");
        add(hostile.0, hostile.1, Outcome::Again, 100_000_000_000);
        latencies
    }

    #[test]
    fn a_table_with_drawn_histograms() {
        let text = latencies().table(Some(100_000_000), true);
        let expected = [
            "openssl    SSL_do_handshake                 ok               4   1.33ms   5.30ms   1.11ms   3.01ms   3.01ms   5.3 %",
            "      0ns to  1.02µs |████████████████████                    | 1",
            "   1.02µs to  2.05µs |                                        | 0",
            "   1.05ms to  2.10ms |████████████████████████████████████████| 2",
            "   2.10ms to  4.19ms |████████████████████                    | 1",
            "    68.7s to       … |████████████████████████████████████████| 1",
        ];
        for line in expected {
            assert!(text.lines().any(|is| is == line), "{line}\n{text}");
        }
        let control = |line: &str| line.contains(char::is_control);
        assert!(!text.lines().any(control), "{text:?}");
        assert_eq!(latencies().table(None, false).lines().count(), 3);
    }

    #[test]
    fn lines_for_programs() {
        let text = latencies().json(1_700_000_000.25, None);
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["library"], "li\"b\\\n");
        assert_eq!(lines[0]["time_s"], 1_700_000_000.25);
        assert_eq!((&lines[1]["count"], &lines[1]["max_us"]), (&4.into(), &3014.655.into()));
        assert!(lines[1]["cpu_share"].is_null());
        let shared = latencies().json(0.0, Some(53_008_000));
        assert!(shared.contains("\"cpu_share\":0.1}"), "{shared}");
    }

    #[test]
    fn buckets_of_prometheus_add_up() {
        let text = latencies().prometheus();
        let of = |line: &&str| line.contains("\"SSL_do_handshake\"") && line.contains("_bucket");
        let counts: Vec<u64> = text
            .lines()
            .filter(of)
            .filter_map(|line| line.rsplit_once(' ')?.1.parse().ok())
            .collect();
        assert_eq!(counts.len(), 28);
        assert!(counts.is_sorted() && counts[0] == 1 && counts[27] == 4, "{counts:?}");
        let rest = "{library=\"openssl\",function=\"SSL_do_handshake\",outcome=\"ok\"";
        for line in [
            format!("widelane_trace_call_seconds_bucket{rest},le=\"0.000001023\"}} 1"),
            format!("widelane_trace_call_seconds_bucket{rest},le=\"0.002097151\"}} 3"),
            format!("widelane_trace_call_seconds_sum{rest}}} 0.0053008"),
            format!("widelane_trace_call_seconds_count{rest}}} 4"),
        ] {
            assert!(text.lines().any(|is| is == line), "{line}\n{text}");
        }
        // A newline in a label would begin another line.
        assert!(text.contains("{library=\"li\\\"b\\\\\\n\",function="), "{text}");
        let known = |line: &str| line.starts_with(['#', 'w']);
        assert!(text.lines().all(known));
    }
}
