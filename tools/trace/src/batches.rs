//! Measures how full the passes of a multi-buffer library are: operations in each pass.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;
use widelane_probes::operations;
use widelane_text::named;

use crate::event::{Call, Event, Reached};
use crate::functions::Role;
use crate::marks::{Argument, Tells};
use crate::text::{Members, duration, escaped, json_line, micros};

/// Lanes of a 512-bit register.
const LANES: usize = 8;

/// Passes of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passes {
    /// Number of calls; passes, or looks whether passes have ended.
    pub calls: u64,
    /// Operations in those whose size is known: only these count here and in the next two fields.
    pub operations: u64,
    /// Operations that would have had room in these passes.
    pub room: u64,
    /// Passes by their number of operations, 1 to 8; the last also counts passes with more.
    pub by_size: [u64; LANES],
    /// Time of all calls in nanoseconds.
    pub time: u64,
    /// Time that the operations have waited for their passes, in nanoseconds, summed; `None` if the library does not
    /// report it.
    pub queued: Option<u64>,
    /// Kind of the calls.
    pub kind: Kind,
}

named! {
    /// Kind of call that is counted.
    #[derive(Default, PartialOrd, Ord)]
    pub enum Kind {
        /// Passes, in lanes.
        #[default]
        Pass = "pass",
        /// Operations that ran by themselves, without lanes, where a pass could have run.
        Alone = "alone",
        /// Looks whether passes have ended.
        Poll = "poll",
    }
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
        (self.room > 0).then(|| self.operations as f64 / self.room as f64)
    }

    /// Mean wait of an operation for its pass, in nanoseconds.
    pub fn wait(&self) -> Option<u64> {
        self.queued?.checked_div(self.operations)
    }

    fn count(&mut self, operations: u64, lanes: u64) {
        self.operations = self.operations.saturating_add(operations);
        let rounds = operations.div_ceil(lanes.max(1));
        self.room = self.room.saturating_add(rounds.saturating_mul(lanes));
        // No slot for passes without operations.
        let last = LANES - 1;
        let slot = operations.checked_sub(1);
        let slot = slot.map(|slot| usize::try_from(slot).unwrap_or(last));
        if let Some(count) = slot.and_then(|slot| self.by_size.get_mut(slot.min(last))) {
            *count += 1;
        }
    }

    /// Passes that had operations. A look that finds nothing is none.
    fn filled(&self) -> u64 {
        self.by_size.iter().sum()
    }
}

/// Passes by library and function. The table of functions, and for static probes that of operations,
/// bounds their number.
#[derive(Clone, Debug, Default)]
pub struct Batches {
    rows: BTreeMap<(String, String, Kind), Passes>,
    /// Passes under way, of which static probes tell, by process and thread.
    under_way: HashMap<(u32, u32), Reached>,
}

impl Batches {
    /// Counts a pass, or a look whether passes have ended, if the event is one.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Call(call) => self.take_call(call),
            Event::Reached(reached) => self.take_reached(reached),
            Event::Exit { pid } => self.under_way.retain(|(of, _), _| of != pid),
            Event::Bytes(_) => {}
        }
    }

    /// Begins to count anew. Passes under way will count.
    pub fn clear(&mut self) {
        self.rows.clear();
    }

    fn take_call(&mut self, call: &Call) {
        let function = &call.function;
        let kind = match function.role {
            Role::Pass => Kind::Pass,
            Role::Poll => Kind::Poll,
            _ => return,
        };
        let passes = self.row(&function.library, &function.symbol, kind);
        passes.calls += 1;
        passes.time = passes.time.saturating_add(call.wall);
        if let Some(size) = call.size {
            passes.count(size, LANES as u64);
        }
    }

    fn take_reached(&mut self, reached: &Reached) {
        let thread = (reached.pid, reached.tid);
        match reached.mark.tells {
            // A thread ends inside a pass only when its process does.
            Tells::PassBegun if self.under_way.len() < MOST_THREADS => {
                self.under_way.insert(thread, reached.clone());
            }
            Tells::PassEnded => {
                if let Some(begun) = self.under_way.remove(&thread) {
                    self.count(&begun, reached.time.saturating_sub(begun.time));
                }
            }
            _ => {}
        }
    }

    /// Counts a pass of which static probes tell.
    fn count(&mut self, begun: &Reached, time: u64) {
        let name = operations::name(begun.operation()).unwrap_or("other");
        let kind = match begun.get(Argument::Way) {
            Some(0) => Kind::Alone,
            _ => Kind::Pass,
        };
        let passes = self.row(&begun.mark.library, name, kind);
        passes.calls += 1;
        passes.time = passes.time.saturating_add(time);
        if let Some(jobs) = begun.get(Argument::Jobs) {
            let lanes = match kind {
                Kind::Alone => 0,
                Kind::Pass | Kind::Poll => begun.get(Argument::Lanes).unwrap_or(0),
            };
            passes.count(jobs, lanes);
        }
        if let Some(queued) = begun.get(Argument::Queued) {
            let sum = passes.queued.unwrap_or_default();
            passes.queued = Some(sum.saturating_add(queued));
        }
    }

    fn row(&mut self, library: &str, function: &str, kind: Kind) -> &mut Passes {
        let key = (library.to_owned(), function.to_owned(), kind);
        let passes = self.rows.entry(key).or_default();
        passes.kind = kind;
        passes
    }

    /// All rows, by library and function.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &str, &Passes)> {
        let rows = self.rows.iter();
        rows.map(|((library, function, _), passes)| (&**library, &**function, passes))
    }

    /// A table of what was counted in `elapsed`.
    pub fn table(&self, elapsed: Duration) -> String {
        let mut text = format!(
            "{:<10} {:<36} {:<5} {:>9} {:>8} {:>10} {:>7} {:>7} {:>7} {:>8} {:>8}  {}\n",
            "LIBRARY",
            "FUNCTION",
            "KIND",
            "CALLS",
            "PER S",
            "OPERATIONS",
            "A PASS",
            "LANES",
            "ALONE",
            "TIME",
            "QUEUED",
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
                "{:<10} {:<36} {:<5} {:>9} {:>8.0} {:>10} {mean:>7} {:>7} {:>7} {:>8} {:>8} ",
                escaped(library),
                escaped(function),
                passes.kind.name(),
                passes.calls,
                rate(passes.calls, elapsed).unwrap_or_default(),
                passes.operations,
                percent(passes.lanes()),
                percent(passes.alone()),
                duration(passes.time.checked_div(passes.calls).unwrap_or_default()),
                passes.wait().map_or("-".to_owned(), duration),
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
            json_line(&Members([
                ("library", json!(library)),
                ("function", json!(function)),
                ("kind", json!(passes.kind.name())),
                ("calls", json!(passes.calls)),
                ("calls_per_second", json!(rate(passes.calls, elapsed))),
                ("operations", json!(passes.operations)),
                ("operations_per_pass", json!(passes.mean())),
                ("one_lane_share", json!(passes.alone())),
                ("lanes_filled", json!(passes.lanes())),
                ("passes_by_size", json!(passes.by_size)),
                ("total_us", json!(micros(passes.time))),
                ("queued_us", json!(passes.queued.map(micros))),
            ]))
        });
        lines.collect()
    }
}

fn rate(count: u64, elapsed: Duration) -> Option<f64> {
    let seconds = elapsed.as_secs_f64();
    (seconds > 0.0).then(|| count as f64 / seconds)
}

/// Threads in a pass at the same time, of all processes.
const MOST_THREADS: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimens::{call, function, reached};

    fn batches(role: Role, sizes: &[Option<u64>]) -> Batches {
        let mut batches = Batches::default();
        let row = function("mbx_rsa_private", role);
        for size in sizes {
            let mut one = call(&row, 100, 0, 3_000);
            one.size = *size;
            batches.take(&one.into());
        }
        batches
    }

    #[test]
    fn passes_are_counted_by_size() {
        let batches = batches(Role::Pass, &[Some(1), Some(8), Some(8), Some(3), None]);
        let (_, _, passes) = batches.rows().next().expect("a row");
        assert_eq!((passes.calls, passes.operations), (5, 20));
        assert_eq!(passes.by_size, [1, 0, 1, 0, 0, 0, 0, 2]);
        assert_eq!((passes.mean(), passes.alone()), (Some(5.0), Some(0.25)));
        assert_eq!(passes.lanes(), Some(0.625));
        let text = batches.table(Duration::from_secs(2));
        let row = text.lines().nth(1).expect("a row");
        assert!(
            row.ends_with("  5.00  62.5 %  25.0 %   3.00µs        -  1 0 1 0 0 0 0 2"),
            "{row}"
        );
        let json: serde_json::Value = serde_json::from_str(&batches.json(Duration::from_secs(2))).expect("JSON");
        assert_eq!(json["calls_per_second"], 2.5);
        assert_eq!(json["passes_by_size"][7], 2);
    }

    #[test]
    fn looks_that_find_nothing_are_no_passes() {
        let batches = batches(Role::Poll, &[Some(0), Some(0), Some(4), Some(u64::MAX)]);
        let (_, _, passes) = batches.rows().next().expect("a row");
        assert_eq!(passes.kind, Kind::Poll);
        assert_eq!((passes.calls, passes.by_size), (4, [0, 0, 0, 1, 0, 0, 0, 1]));
    }

    #[test]
    fn more_operations_than_lanes_take_several_rounds() {
        let batches = batches(Role::Pass, &[Some(12)]);
        let (_, _, passes) = batches.rows().next().expect("a row");
        assert_eq!((passes.room, passes.lanes()), (16, Some(0.75)));
    }

    #[test]
    fn static_probes_report_passes_with_their_wait() {
        let mut batches = Batches::default();
        let (rsa, alone, lanes) = (1, 0, 1);
        for (begun, tid, arguments) in [
            (100, 7, [rsa, 4, 4, lanes, 8_000]),
            (200, 7, [rsa, 1, 4, lanes, 2_000]),
            (300, 8, [rsa, 1, 4, alone, 0]),
            (400, 8, [999, 2, 8, lanes, 0]),
        ] {
            let mut event = reached("pass_begun", begun, &arguments);
            event.tid = tid;
            batches.take(&Event::Reached(event.clone()));
            // Ends a pass on another thread, on which no pass began.
            let mut ended = reached("pass_ended", begun + 10, &arguments[..2]);
            ended.tid = 9;
            batches.take(&Event::Reached(ended.clone()));
            (ended.tid, ended.time) = (tid, begun + 50);
            batches.take(&Event::Reached(ended));
        }
        let rows: Vec<_> = batches.rows().collect();
        let [
            (_, "other", other),
            (library, "rsa2048-sign", passes),
            (_, "rsa2048-sign", single),
        ] = rows[..]
        else {
            panic!("{rows:?}");
        };
        assert_eq!((library, passes.kind, passes.calls), ("widelane", Kind::Pass, 2));
        assert_eq!((passes.operations, passes.room, passes.time), (5, 8, 100));
        assert_eq!((passes.alone(), passes.wait()), (Some(0.5), Some(2_000)));
        assert_eq!((single.kind, single.calls, single.lanes()), (Kind::Alone, 1, None));
        assert_eq!(other.lanes(), Some(0.25));
        let text = batches.table(Duration::from_secs(1));
        assert!(text.contains("2.00µs  1 0 0 1"), "{text}");
        batches.clear();
        assert_eq!(batches.rows().count(), 0);
    }

    #[test]
    fn nothing_is_no_division_by_zero() {
        let none = batches(Role::Pass, &[None]);
        let (_, _, passes) = none.rows().next().expect("a row");
        assert_eq!((passes.mean(), passes.alone(), passes.lanes()), (None, None, None));
        let json: serde_json::Value = serde_json::from_str(&none.json(Duration::ZERO)).expect("JSON");
        assert!(json["calls_per_second"].is_null() && json["lanes_filled"].is_null());
        assert_eq!(batches(Role::Sign, &[Some(1)]).rows().count(), 0);
    }
}
