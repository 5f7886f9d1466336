//! The results: rows for programs, a table for people.

use crate::operation::{AUTO, Operation};
use crate::run::OPENSSL;
use serde::Serialize;
use std::fmt::{self, Write as _};
use widelane_cpu::Lanes;
use widelane_crypto::Backend;
use widelane_statistics::quantile;

/// Everything that a run measured.
#[derive(Clone, Debug)]
pub struct Report {
    rows: Vec<Row>,
    lanes: Lanes,
}

/// One condition: an operation on a backend with a number of jobs in flight.
///
/// What could not be measured is `None`, and `reason` says why.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The operation's name.
    pub operation: &'static str,
    /// a name of lanes, like `avx512ifma`, `aws-lc`, `auto` (the engine, which chooses among them),
    /// `openssl` or another library; for ChaCha20-Poly1305, the form instead of a vector backend.
    pub backend: String,
    /// Jobs that wait together.
    pub in_flight: usize,
    /// Operations a second of CPU time: the median of the slices. If nothing else runs on the CPU,
    /// it is the same as for wall-clock time; see `cpu_share`.
    pub ops_per_s: Option<f64>,
    /// Rate in 10^9 bytes a second, for operations that encrypt.
    pub gigabytes_per_s: Option<f64>,
    /// Microseconds of wall-clock time from a job's submission to the results of all jobs in
    /// flight: the median. That is one pass if the jobs fit into one, else several. For `openssl`
    /// it is computed from the rate.
    pub latency_us: Option<f64>,
    /// The 99th percentile of the same.
    pub latency_p99_us: Option<f64>,
    /// The first quartile of the slices.
    pub ops_per_s_q1: Option<f64>,
    /// The third quartile of the slices.
    pub ops_per_s_q3: Option<f64>,
    /// `ops_per_s` as a multiple of that of `openssl` in the same run.
    pub times_openssl: Option<f64>,
    /// `ops_per_s` as a multiple of that of `aws-lc` with one job in flight in the same run.
    pub times_aws_lc: Option<f64>,
    /// `ops_per_s` as a multiple of that of the library `libcrux` in the same run.
    pub times_libcrux: Option<f64>,
    /// Vector multiply-adds (VPMADD52 or FMA, of any width) a nanosecond.
    pub multiply_adds_per_ns: Option<f64>,
    /// Multiply-adds as a share of what the ports can do, measured in the same run.
    pub port_limit_share: Option<f64>,
    /// CPU time divided by wall-clock time: below 1 if other programs used the CPU.
    pub cpu_share: Option<f64>,
    /// Operations a second of every slice, in the order of measurement.
    pub samples: Vec<f64>,
    /// The medians of parts of the run, each with new buffers at other addresses. They are alike if
    /// the addresses do not matter. Empty for `openssl`.
    pub ops_per_s_by_placement: Vec<f64>,
    /// Reason why there is no figure.
    pub reason: Option<String>,
    /// Version that the peer prints.
    pub version: Option<String>,
    /// The CPU of the measurement.
    pub cpu: usize,
    /// The CPU's model name.
    pub cpu_model: Option<String>,
    /// The version of Widelane.
    pub widelane: &'static str,
    /// The command line of the measurement.
    pub command: String,
}

impl Report {
    /// The rows, in the order of the operations.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(crate) fn new(machine: Machine, series: Vec<Series>) -> Self {
        let mut rows: Vec<Row> = series.into_iter().map(|s| s.row(&machine)).collect();
        let rate = |operation: &str, backend: &str| {
            rows.iter()
                .find(|row| row.operation == operation && row.backend == backend)
                .and_then(|row| row.ops_per_s)
        };
        let limit = |backend: &str| {
            rows.iter()
                .find(|row| row.operation == crate::multiply::PORT_LIMIT && row.backend == backend)
                .and_then(|row| row.multiply_adds_per_ns)
        };
        let ratios: Vec<_> = rows
            .iter()
            .map(|row| {
                let times = |peer| Some(row.ops_per_s? / rate(row.operation, peer)?);
                let share = || Some(row.multiply_adds_per_ns? / limit(&row.backend)?);
                let aws_lc = times(Backend::AwsLc.name());
                (times(OPENSSL), aws_lc, times(LIBCRUX), share())
            })
            .collect();
        for (row, (openssl, aws_lc, libcrux, share)) in rows.iter_mut().zip(ratios) {
            row.times_openssl = openssl;
            row.times_aws_lc = aws_lc;
            row.times_libcrux = libcrux;
            row.port_limit_share = share;
        }
        Self {
            rows,
            lanes: machine.lanes,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Row { cpu, cpu_model, .. }) = self.rows.first() {
            let model = cpu_model.as_deref().unwrap_or("unknown model");
            writeln!(f, "CPU {cpu}: {model}")?;
        }
        writeln!(f, "{}", self.lanes.sentence())?;
        if !self.lanes.exist() && self.rows.iter().any(|row| row.backend == AUTO) {
            writeln!(f, "{SAME_CODE}")?;
        }
        let mut tables = String::new();
        let mut rest = &self.rows[..];
        while let Some(first) = rest.first() {
            let same = rest.iter().take_while(|row| row.operation == first.operation).count();
            let (rows, after) = rest.split_at(same);
            rest = after;
            writeln!(tables)?;
            table(&mut tables, rows, self.lanes)?;
        }
        write!(f, "{tables}")?;
        let caveats = widelane_cpu::caveats(&tables);
        if !caveats.is_empty() {
            write!(f, "\n{caveats}")?;
        }
        let crowded = |row: &&Row| row.cpu_share.is_some_and(|share| share < ALONE);
        let crowded = self.rows.iter().filter(crowded).count();
        if crowded > 0 {
            writeln!(
                f,
                "\n{crowded} of {} rows had less than {:.0} % of the CPU: other programs ran on \
                 it.\nTheir rates count only CPU time of their own; their latencies are too long.",
                self.rows.len(),
                100.0 * ALONE,
            )?;
        }
        Ok(())
    }
}

/// The machine and the command line of a run.
pub(crate) struct Machine {
    pub(crate) cpu: usize,
    pub(crate) cpu_model: Option<String>,
    pub(crate) lanes: Lanes,
    pub(crate) command: String,
}

/// The raw measurements of one condition.
#[derive(Debug, Default)]
pub(crate) struct Series {
    operation: &'static str,
    /// Bytes that one operation encrypts.
    bytes: Option<usize>,
    pub(crate) backend: String,
    pub(crate) in_flight: usize,
    /// Operations a second, by slice.
    pub(crate) rates: Vec<f64>,
    /// The slices before which new buffers were made.
    pub(crate) places: Vec<usize>,
    /// Nanoseconds for all jobs in flight together.
    pub(crate) latencies: Vec<f64>,
    /// Multiply-adds of each slice, if they are counted.
    pub(crate) multiply_adds_per_ns: Vec<f64>,
    /// CPU time divided by wall-clock time, by slice.
    pub(crate) cpu_shares: Vec<f64>,
    /// Reason why there are no figures.
    pub(crate) reason: Option<String>,
    /// Version that a peer prints.
    pub(crate) version: Option<String>,
}

impl Series {
    pub(crate) fn new(operation: &Operation, backend: &str, in_flight: usize) -> Self {
        Self {
            operation: operation.name,
            bytes: operation.bytes,
            backend: backend.to_owned(),
            in_flight,
            ..Self::default()
        }
    }

    fn row(self, machine: &Machine) -> Row {
        let ops_per_s = median(&self.rates);
        // The loop of the port limit is not a job.
        let waits = self.operation != crate::multiply::PORT_LIMIT;
        let latency = |q| quantile_of(&self.latencies, q).map(|ns| ns / 1e3).filter(|_| waits);
        let latency_us = if self.backend == OPENSSL {
            ops_per_s.map(|rate| 1e6 / rate)
        } else {
            latency(0.5)
        };
        let ends = self.places.iter().skip(1).copied().chain([self.rates.len()]);
        let places = self.places.iter().zip(ends);
        let by_placement = places.filter_map(|(&from, to)| median(&self.rates[from..to]));
        Row {
            ops_per_s_by_placement: by_placement.map(round).collect(),
            operation: self.operation,
            in_flight: self.in_flight,
            ops_per_s: ops_per_s.map(round),
            gigabytes_per_s: self.bytes.and_then(|bytes| Some(ops_per_s? * bytes as f64 / 1e9)),
            latency_us: latency_us.map(round),
            latency_p99_us: latency(0.99).map(round),
            ops_per_s_q1: quantile_of(&self.rates, 0.25).map(round),
            ops_per_s_q3: quantile_of(&self.rates, 0.75).map(round),
            times_openssl: None,
            times_aws_lc: None,
            times_libcrux: None,
            multiply_adds_per_ns: median(&self.multiply_adds_per_ns),
            port_limit_share: None,
            cpu_share: median(&self.cpu_shares),
            samples: self.rates.iter().copied().map(round).collect(),
            reason: self.reason,
            version: self.version,
            backend: self.backend,
            cpu: machine.cpu,
            cpu_model: machine.cpu_model.clone(),
            widelane: env!("CARGO_PKG_VERSION"),
            command: machine.command.clone(),
        }
    }
}

/// The rows of one operation.
fn table(f: &mut impl fmt::Write, rows: &[Row], lanes: Lanes) -> fmt::Result {
    let counted = rows.iter().any(|row| row.multiply_adds_per_ns.is_some());
    let libcrux = rows.iter().any(|row| row.backend == LIBCRUX);
    let (left, right) = if counted {
        ("madds/ns", "of limit")
    } else if libcrux {
        ("x libcrux", "x aws-lc")
    } else {
        ("x openssl", "x aws-lc")
    };
    let encrypted = rows.iter().any(|row| row.gigabytes_per_s.is_some());
    let last = if encrypted { "GB/s" } else { "p99 us" };
    writeln!(
        f,
        "{:<28} {:>9} {:>12} {:>7} {:>7} {:>10} {last:>10} {left:>9} {right:>8}",
        rows[0].operation, "in flight", "ops/s", "spread", "placed", "latency us",
    )?;
    for alike in rows.chunk_by(missing_alike) {
        let row = &alike[0];
        let name = match &row.version {
            Some(version) => version.as_str(),
            None => &row.backend,
        };
        let in_flight = match alike {
            [_, .., last] => format!("{}-{}", row.in_flight, last.in_flight),
            _ => row.in_flight.to_string(),
        };
        write!(f, "  {name:<26} {in_flight:>9} ")?;
        let Some(rate) = row.ops_per_s else {
            let reason = match row.reason.as_deref().unwrap_or("not measured") {
                // The text is in the second line.
                long if !lanes.exist() && long.ends_with(&lanes.to_string()) => "no lanes",
                reason => reason,
            };
            writeln!(f, "{:>12} ({reason})", NOT_MEASURED)?;
            continue;
        };
        let spread = match (row.ops_per_s_q1, row.ops_per_s_q3) {
            (Some(q1), Some(q3)) => format!("{:.1}%", 100.0 * (q3 - q1) / rate),
            _ => NOT_MEASURED.to_owned(),
        };
        let lowest = row.ops_per_s_by_placement.iter().copied().reduce(f64::min);
        let placed = match lowest {
            Some(lowest) if row.ops_per_s_by_placement.len() > 1 => {
                format!("{:+.1}%", 100.0 * (lowest / rate - 1.0))
            }
            _ => NOT_MEASURED.to_owned(),
        };
        let (left, right) = if counted {
            let share = row.port_limit_share.map(|share| format!("{:.1}%", 100.0 * share));
            (
                number(row.multiply_adds_per_ns, 2),
                share.unwrap_or_else(|| NOT_MEASURED.to_owned()),
            )
        } else if libcrux {
            (number(row.times_libcrux, 2), number(row.times_aws_lc, 2))
        } else {
            (number(row.times_openssl, 2), number(row.times_aws_lc, 2))
        };
        writeln!(
            f,
            "{:>12} {spread:>7} {placed:>7} {:>10} {:>10} {left:>9} {right:>8}",
            format!("{rate:.0}"),
            number(row.latency_us, 1),
            if encrypted {
                number(row.gigabytes_per_s, 2)
            } else {
                number(row.latency_p99_us, 1)
            },
        )?;
    }
    Ok(())
}

/// Returns whether two rows lack their figures for the same reason, and need one line.
fn missing_alike(one: &Row, other: &Row) -> bool {
    one.reason.is_some() && (&one.backend, &one.reason) == (&other.backend, &other.reason)
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| NOT_MEASURED.to_owned(), |value| format!("{value:.decimals$}"))
}

/// A quantile of samples in any order.
fn quantile_of(samples: &[f64], share: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, share)
}

fn median(samples: &[f64]) -> Option<f64> {
    quantile_of(samples, 0.5)
}

/// Rounds to a tenth: further digits are noise.
fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

const NOT_MEASURED: &str = "n/a";
/// The library that stands in for `openssl` where that has no such operation.
const LIBCRUX: &str = "libcrux";

/// Note for a CPU without lanes.
const SAME_CODE: &str = "auto and aws-lc run the same code here: they differ by noise and by the \
                         cost of submitting requests.";

/// A row with at least this share of the CPU counts as undisturbed.
const ALONE: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::operations;

    fn report() -> Report {
        report_of(Lanes::PREFERRED, "no AVX-512 VL")
    }

    fn report_of(lanes: Lanes, reason: &str) -> Report {
        let machine = Machine {
            cpu: 3,
            cpu_model: Some("A CPU".to_owned()),
            lanes,
            command: "widelane speed".to_owned(),
        };
        let named = |name| operations().iter().find(|o| o.name == name).unwrap();
        let series = |operation, backend, rates: &[f64]| Series {
            rates: rates.to_vec(),
            latencies: vec![1e6, 2e6, 3e6],
            cpu_shares: vec![1.0, 0.5, 0.4],
            places: (0..rates.len().min(2)).collect(),
            ..Series::new(named(operation), backend, 1)
        };
        let counted = |operation, per_ns: f64| Series {
            multiply_adds_per_ns: vec![per_ns],
            ..series(operation, "avx512ifma", &[10.0])
        };
        let mut missing = Series::new(named("rsa2048-sign"), "avx512ifma-256", 1);
        missing.reason = Some(reason.to_owned());
        let mut more = Series::new(named("rsa2048-sign"), "avx512ifma-256", 8);
        more.reason = missing.reason.clone();
        Report::new(
            machine,
            vec![
                series("rsa2048-sign", OPENSSL, &[1000.0]),
                series("rsa2048-sign", "avx512ifma", &[5000.0, 1000.0, 4000.0]),
                missing,
                more,
                series("rsa2048-sign", "aws-lc", &[2000.0]),
                counted("power-1024", 4.5),
                counted("port-limit", 5.0),
            ],
        )
    }

    #[test]
    fn ratios_are_of_medians_in_the_same_run() {
        let report = report();
        let row = &report.rows()[1];
        assert_eq!((row.ops_per_s, row.latency_us), (Some(4000.0), Some(2000.0)));
        assert_eq!((row.times_openssl, row.times_aws_lc), (Some(4.0), Some(2.0)));
        assert_eq!((row.ops_per_s_q1, row.ops_per_s_q3), (Some(2500.0), Some(4500.0)));
        assert_eq!(row.ops_per_s_by_placement, [5000.0, 2500.0]);
        assert_eq!(report.rows()[0].latency_us, Some(1000.0));
        assert_eq!(report.rows()[5].port_limit_share, Some(0.9));
        assert_eq!(report.rows()[6].latency_us, None);
    }

    #[test]
    fn rows_are_objects_with_stable_names_and_null_for_what_is_not_known() {
        let report = report();
        let json = |row| serde_json::to_value(row).unwrap();
        let row = json(&report.rows()[1]);
        assert_eq!(row["operation"], "rsa2048-sign");
        assert_eq!(row["backend"], "avx512ifma");
        assert_eq!(row["in_flight"], 1);
        assert_eq!(row["ops_per_s"], 4000.0);
        assert_eq!(row["latency_us"], 2000.0);
        assert_eq!(row["samples"], serde_json::json!([5000.0, 1000.0, 4000.0]));
        assert_eq!(row["cpu"], 3);
        let missing = json(&report.rows()[2]);
        assert!(missing["ops_per_s"].is_null() && missing["latency_us"].is_null());
        assert_eq!(missing["reason"], "no AVX-512 VL");
    }

    #[test]
    fn the_table_says_what_is_missing_and_what_was_disturbed() {
        let text = report().to_string();
        let head = "CPU 3: A CPU\nThis CPU has lanes that Widelane uses: ";
        assert!(text.starts_with(head), "{text}");
        assert!(text.contains("n/a (no AVX-512 VL)"), "{text}");
        assert!(text.contains("90.0%") && text.contains("-37.5%"), "{text}");
        assert!(text.contains("5 of 7 rows had less than 95 %"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 120), "{text}");
    }

    #[test]
    fn lanes_without_measurements_are_called_so() {
        let machine = Machine {
            cpu: 3,
            cpu_model: None,
            lanes: Lanes::ALL,
            command: String::new(),
        };
        let row = Series::new(&operations()[0], "avxifma", 1);
        let text = Report::new(machine, vec![row]).to_string();
        let caveat = "\navxifma: tested by emulation, never measured\n";
        assert!(text.ends_with(caveat), "{text}");
        assert!(!report().to_string().contains("emulation"));
    }

    #[test]
    fn without_lanes_the_reason_is_said_once() {
        let reason = format!("avx512ifma-256 does not run here: {}", Lanes::NONE);
        let text = report_of(Lanes::NONE, &reason).to_string();
        let second = text.lines().nth(1).expect("a line");
        assert!(second.starts_with("This CPU has no lanes that Widelane uses"), "{text}");
        assert_eq!(text.matches("has no lanes").count(), 1, "{text}");
        let mut rows = text.lines().filter(|line| line.contains("avx512ifma-256"));
        let row: Vec<_> = rows.next().expect("a row").split_whitespace().collect();
        assert_eq!(row, ["avx512ifma-256", "1-8", "n/a", "(no", "lanes)"]);
        assert_eq!(rows.next(), None, "{text}");
    }
}
