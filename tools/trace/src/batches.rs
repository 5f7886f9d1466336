//! How well a multi-buffer library is filled: operations in each pass.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::event::Call;
use crate::functions::Role;
use crate::text::{duration, escaped, json_line, micros};

/// Lanes of a 512-bit register.
pub const LANES: usize = 8;

/// Passes of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passes {
    /// How many calls there were; passes, or looks whether passes have ended.
    pub calls: u64,
    /// How many of them had a size: only these count in what follows.
    pub sized: u64,
    /// Operations in them.
    pub operations: u64,
    /// Times that 8 lanes were used: once for each 8 operations of a pass or less.
    pub rounds: u64,
    /// How many passes had 1 to 8 operations; the last also counts passes with more.
    pub by_size: [u64; LANES],
    /// Time of all calls in nanoseconds.
    pub time: u64,
    /// They only look whether passes have ended.
    pub polls: bool,
}

impl Passes {
    /// Operations in a pass.
    pub fn mean(&self) -> Option<f64> {
        let filled = self.filled();
        (filled > 0).then(|| self.operations as f64 / filled as f64)
    }

    /// The share of passes with one operation only.
    pub fn alone(&self) -> Option<f64> {
        let filled = self.filled();
        let [one, ..] = self.by_size;
        (filled > 0).then(|| one as f64 / filled as f64)
    }

    /// The share of lanes that had an operation.
    pub fn lanes(&self) -> Option<f64> {
        let lanes = self.rounds as f64 * LANES as f64;
        (self.rounds > 0).then(|| self.operations as f64 / lanes)
    }

    /// Passes that had operations. A look that finds nothing is none.
    fn filled(&self) -> u64 {
        self.by_size.iter().sum()
    }
}

/// Passes by library and function. The table of functions bounds their number.
#[derive(Clone, Debug, Default)]
pub struct Batches {
    rows: BTreeMap<(String, String), Passes>,
}

impl Batches {
    /// Without passes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a call, if it is a pass or looks whether passes have ended.
    pub fn take(&mut self, call: &Call) {
        let function = &call.function;
        if !matches!(function.role, Role::Pass | Role::Poll) {
            return;
        }
        let key = (function.library.clone(), function.symbol.clone());
        let passes = self.rows.entry(key).or_default();
        passes.polls = function.role == Role::Poll;
        passes.calls += 1;
        passes.time = passes.time.saturating_add(call.wall);
        if let Some(size) = call.size {
            passes.sized += 1;
            passes.operations = passes.operations.saturating_add(size);
            let rounds = size.div_ceil(LANES as u64);
            passes.rounds = passes.rounds.saturating_add(rounds);
            // No slot for passes without operations.
            let last = LANES - 1;
            let slot = size
                .checked_sub(1)
                .map(|slot| usize::try_from(slot).unwrap_or(last));
            if let Some(count) = slot.and_then(|slot| passes.by_size.get_mut(slot.min(last))) {
                *count += 1;
            }
        }
    }

    /// All rows, by library and function.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &str, &Passes)> {
        let rows = self.rows.iter();
        rows.map(|((library, function), passes)| (&**library, &**function, passes))
    }

    /// A table of what was counted in `elapsed`.
    pub fn table(&self, elapsed: Duration) -> String {
        let mut text = format!(
            "{:<10} {:<36} {:>9} {:>8} {:>10} {:>7} {:>7} {:>7} {:>8}  {}\n",
            "LIBRARY",
            "FUNCTION",
            "CALLS",
            "PER S",
            "OPERATIONS",
            "A PASS",
            "LANES",
            "ALONE",
            "TIME",
            "PASSES WITH 1 TO 8 OPERATIONS"
        );
        let percent = |share: Option<f64>| match share {
            Some(share) => format!("{:.1} %", 100.0 * share),
            None => "-".to_owned(),
        };
        for (library, function, passes) in self.rows() {
            let mean = passes.mean();
            let mean = mean.map_or("-".to_owned(), |mean| format!("{mean:.2}"));
            let _ = write!(
                text,
                "{:<10} {:<36} {:>9} {:>8.0} {:>10} {mean:>7} {:>7} {:>7} {:>8} ",
                escaped(library),
                escaped(function),
                passes.calls,
                rate(passes.calls, elapsed).unwrap_or_default(),
                passes.operations,
                percent(passes.lanes()),
                percent(passes.alone()),
                duration(passes.time.checked_div(passes.calls).unwrap_or_default()),
            );
            for count in passes.by_size {
                let _ = write!(text, " {count}");
            }
            text.push('\n');
        }
        text
    }

    /// A line for each row, of what was counted in `elapsed`.
    pub fn json(&self, elapsed: Duration) -> String {
        let lines = self.rows().map(|(library, function, passes)| {
            json_line(&Line {
                library,
                function,
                kind: if passes.polls { "poll" } else { "pass" },
                calls: passes.calls,
                calls_per_second: rate(passes.calls, elapsed),
                operations: passes.operations,
                operations_per_pass: passes.mean(),
                one_lane_share: passes.alone(),
                lanes_filled: passes.lanes(),
                passes_by_size: passes.by_size,
                total_us: micros(passes.time),
            })
        });
        lines.collect()
    }
}

fn rate(count: u64, elapsed: Duration) -> Option<f64> {
    let seconds = elapsed.as_secs_f64();
    (seconds > 0.0).then(|| count as f64 / seconds)
}

#[derive(Serialize)]
struct Line<'a> {
    library: &'a str,
    function: &'a str,
    kind: &'static str,
    calls: u64,
    calls_per_second: Option<f64>,
    operations: u64,
    operations_per_pass: Option<f64>,
    one_lane_share: Option<f64>,
    lanes_filled: Option<f64>,
    passes_by_size: [u64; LANES],
    total_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimens::{call, function};

    fn batches(role: Role, sizes: &[Option<u64>]) -> Batches {
        let mut batches = Batches::new();
        let row = function("mbx_rsa_private", role);
        for size in sizes {
            let mut one = call(&row, 100, 0, 3_000);
            one.size = *size;
            batches.take(&one);
        }
        batches
    }

    #[test]
    fn passes_are_counted_by_size() {
        let batches = batches(Role::Pass, &[Some(1), Some(8), Some(8), Some(3), None]);
        let (_, _, passes) = batches.rows().next().expect("a row");
        assert_eq!((passes.calls, passes.sized, passes.operations), (5, 4, 20));
        assert_eq!(passes.by_size, [1, 0, 1, 0, 0, 0, 0, 2]);
        assert_eq!((passes.mean(), passes.alone()), (Some(5.0), Some(0.25)));
        assert_eq!(passes.lanes(), Some(0.625));
        let text = batches.table(Duration::from_secs(2));
        let row = text.lines().nth(1).expect("a row");
        assert!(
            row.ends_with("  5.00  62.5 %  25.0 %   3.00µs  1 0 1 0 0 0 0 2"),
            "{row}"
        );
        let json: serde_json::Value =
            serde_json::from_str(&batches.json(Duration::from_secs(2))).expect("JSON");
        assert_eq!(json["calls_per_second"], 2.5);
        assert_eq!(json["passes_by_size"][7], 2);
    }

    #[test]
    fn looks_that_find_nothing_are_no_passes() {
        let batches = batches(Role::Poll, &[Some(0), Some(0), Some(4), Some(u64::MAX)]);
        let (_, _, passes) = batches.rows().next().expect("a row");
        assert!(passes.polls);
        assert_eq!(
            (passes.calls, passes.by_size),
            (4, [0, 0, 0, 1, 0, 0, 0, 1])
        );
    }

    #[test]
    fn more_operations_than_lanes_take_several_rounds() {
        let batches = batches(Role::Pass, &[Some(12)]);
        let (_, _, passes) = batches.rows().next().expect("a row");
        assert_eq!((passes.rounds, passes.lanes()), (2, Some(0.75)));
    }

    #[test]
    fn nothing_is_no_division_by_zero() {
        let none = batches(Role::Pass, &[None]);
        let (_, _, passes) = none.rows().next().expect("a row");
        assert_eq!(
            (passes.mean(), passes.alone(), passes.lanes()),
            (None, None, None)
        );
        let json: serde_json::Value =
            serde_json::from_str(&none.json(Duration::ZERO)).expect("JSON");
        assert!(json["calls_per_second"].is_null() && json["lanes_filled"].is_null());
        assert_eq!(batches(Role::Sign, &[Some(1)]).rows().count(), 0);
    }
}
