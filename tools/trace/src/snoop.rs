//! Every call, in the order of entries.
//!
//! Calls arrive when they return. [`Snoop`] holds each for a fifth of a second, because a call that
//! was entered before it may still return. A call that takes longer comes later than those inside it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use serde_json::json;

use crate::clock::Clock;
use crate::event::{Call, Stack};
use crate::functions::Role;
use crate::nesting::{Place, Stacks};
use crate::outcome::{Meaning, error_name, explained, meaning};
use crate::text::{Members, duration, escaped, json_line, micros, thread_name, time_of_day};

/// Longest time that a call is held for those that were entered before it, in nanoseconds.
const HELD: u64 = 200_000_000;
/// No call waits longer, though others that were entered before have just come.
const LONGEST: u64 = 1_000_000_000;
/// Most calls that are held.
const MOST: usize = 65_536;
/// Most calls of a process, not yet ended, that are checked for being around another.
const MOST_AROUND: usize = 256;

/// A call, as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Snooped {
    /// The call. It has no data.
    pub call: Call,
    /// Number of shown calls around this one.
    pub depth: usize,
    /// OpenSSL's name for why it failed, or for what `SSL_get_error` said.
    pub error: Option<&'static str>,
    /// Seconds since 1970 when it was entered.
    pub time_s: f64,
}

/// Order of calls: by entry, then from the outside to the inside, then by arrival.
type Key = (u64, Reverse<Stack>, u64);

/// Brings calls into the order of their entries.
#[derive(Debug)]
pub struct Snoop {
    clock: Clock,
    held: BTreeMap<Key, (Call, Option<&'static str>)>,
    /// Held calls by their return: to find which are due.
    returns: BTreeMap<(u64, u64), Key>,
    /// The last call on an object that failed and is not explained, if it still waits.
    failed: HashMap<(u32, u64), Key>,
    arrivals: u64,
    /// Calls that were shown and may be around the next, by process.
    around: HashMap<u32, Vec<Place>>,
    stacks: Stacks,
}

impl Snoop {
    /// Makes one that holds no calls yet.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            held: BTreeMap::new(),
            returns: BTreeMap::new(),
            failed: HashMap::new(),
            arrivals: 0,
            around: HashMap::new(),
            stacks: Stacks::default(),
        }
    }

    /// Takes a call, and gives those that need not wait any longer.
    pub fn take(&mut self, call: &Call) -> Vec<Snooped> {
        let place = Place::of(call);
        self.arrivals += 1;
        let key = (call.start, Reverse(call.stack), self.arrivals);
        let object = (call.pid, call.object);
        let mut error = None;
        if call.function.role == Role::Error {
            error = error_name(call.result);
            let failed = self.failed.remove(&object);
            if explained(call.result).is_some()
                && let Some((_, why)) = failed.and_then(|failed| self.held.get_mut(&failed))
            {
                *why = error;
            }
        } else if meaning(call) == Meaning::Unexplained {
            self.failed.insert(object, key);
        }
        let mut call = call.clone();
        call.data = Vec::new();
        for (other, (earlier, _)) in self.held.range(..key).rev().take(16) {
            if earlier.pid == call.pid && *other != key {
                self.stacks.compare(call.pid, &Place::of(earlier), &place);
            }
        }
        self.returns.insert((place.end, self.arrivals), key);
        self.held.insert(key, (call, error));
        let mut shown = self.settle(place.end);
        while self.held.len() > MOST {
            shown.extend(self.show_first());
        }
        shown
    }

    /// Gives the calls that need not wait at a time of the monotonic clock, in nanoseconds: call it
    /// some times a second also when no calls come.
    pub fn settle(&mut self, now: u64) -> Vec<Snooped> {
        let mut shown = Vec::new();
        // A call that was held for long is released, with all that were entered before.
        while let Some((&(end, _), &due)) = self.returns.first_key_value() {
            if end.saturating_add(LONGEST) > now {
                break;
            }
            while self.held.first_key_value().is_some_and(|(key, _)| *key <= due) {
                shown.extend(self.show_first());
            }
        }
        while let Some((_, (call, _))) = self.held.first_key_value() {
            if Place::of(call).end.saturating_add(HELD) > now {
                break;
            }
            shown.extend(self.show_first());
        }
        shown
    }

    /// Returns whether calls wait to be shown: until then, [`settle`](Self::settle) need not be called.
    pub fn is_waiting(&self) -> bool {
        !self.held.is_empty()
    }

    /// Gives all calls, at the end of a trace.
    pub fn finish(&mut self) -> Vec<Snooped> {
        self.settle(u64::MAX)
    }

    /// Forgets a process that has ended, but for the calls that wait.
    pub fn forget(&mut self, pid: u32) {
        self.around.remove(&pid);
        self.stacks.forget(pid);
    }

    fn show_first(&mut self) -> Option<Snooped> {
        let (key, (call, error)) = self.held.pop_first()?;
        let place = Place::of(&call);
        self.returns.remove(&(place.end, key.2));
        let object = (call.pid, call.object);
        if self.failed.get(&object) == Some(&key) {
            self.failed.remove(&object);
        }
        // Processes whose end was not reported are forgotten at some time.
        if self.around.len() > MOST_AROUND && !self.around.contains_key(&call.pid) {
            self.around.clear();
        }
        let around = self.around.entry(call.pid).or_default();
        around.retain(|outer| outer.end >= place.start);
        let stacks = &self.stacks;
        let outer = around.iter();
        let depth = outer.filter(|outer| stacks.is_inside(call.pid, &place, outer));
        let depth = depth.count();
        if around.len() >= MOST_AROUND {
            around.remove(0);
        }
        around.push(place);
        let time_s = self.clock.seconds(call.start);
        Some(Snooped {
            call,
            depth,
            error,
            time_s,
        })
    }
}

impl Snooped {
    /// The heading of the columns of [`Snooped::text`].
    pub fn header() -> String {
        format!(
            "{:<15} {:>7} {:>7} {:<15} {:>8}  {}\n",
            "TIME (UTC)", "PID", "TID", "COMMAND", "LATENCY", "FUNCTION"
        )
    }

    /// A line for people.
    pub fn text(&self) -> String {
        let call = &self.call;
        let mut line = format!(
            "{:<15} {:>7} {:>7} {:<15} {:>8}  {:indent$}{} = {}",
            time_of_day((self.time_s * 1e6).round() as u64 * 1_000),
            call.pid,
            call.tid,
            escaped(&thread_name(&call.comm)),
            duration(call.wall),
            "",
            escaped(&call.function.symbol),
            result(call),
            indent = 2 * self.depth.min(20),
        );
        if let Some(error) = self.error {
            let _ = write!(line, " {error}");
        }
        line.push('\n');
        line
    }

    /// A line for programs.
    pub fn json(&self) -> String {
        let call = &self.call;
        json_line(&Members([
            ("time_s", json!(self.time_s)),
            ("pid", json!(call.pid)),
            ("tid", json!(call.tid)),
            ("comm", json!(thread_name(&call.comm))),
            ("library", json!(call.function.library)),
            ("function", json!(call.function.symbol)),
            ("depth", json!(self.depth)),
            ("object", json!(format!("{:#x}", call.object))),
            ("wall_us", json!(micros(call.wall))),
            ("cpu_us", json!(call.cpu.map(micros))),
            ("size", json!(call.size)),
            ("result", json!(call.result)),
            ("error", json!(self.error)),
        ]))
    }
}

/// Return value as text: a number that is not small is an address.
fn result(call: &Call) -> String {
    match call.result {
        small @ -0xffff_ffff..=0xffff_ffff => small.to_string(),
        address => format!("{address:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimens::{call, function};

    const TOP: u64 = 0x7fff_0000_0000;
    const MS: u64 = 1_000_000;

    fn snoop() -> Snoop {
        Snoop::new(Clock::at(0, 1_700_000_000_000_000_000))
    }

    fn shown(calls: impl IntoIterator<Item = Call>) -> Vec<(String, usize)> {
        let mut snoop = snoop();
        let mut all = Vec::new();
        for call in calls {
            all.extend(snoop.take(&call));
        }
        all.extend(snoop.finish());
        assert!(snoop.held.is_empty() && snoop.returns.is_empty() && snoop.failed.is_empty());
        let name = |one: &Snooped| (one.call.function.symbol.clone(), one.depth);
        all.iter().map(name).collect()
    }

    fn named(name: &str, sp: u64, start: u64, wall: u64) -> Call {
        call(&function(name, Role::Sign), sp, start, wall)
    }

    #[test]
    fn calls_come_in_the_order_of_entries_with_their_depth() {
        let all = shown([
            named("c", TOP - 0x300, 30, 10),
            named("b", TOP - 0x200, 20, 40),
            named("d", TOP - 0x200, 70, 5),
            named("a", TOP, 10, 100),
            named("e", TOP, 200, 5),
        ]);
        let expected = [("a", 0), ("b", 1), ("c", 2), ("d", 1), ("e", 0)];
        assert_eq!(all, expected.map(|(name, depth)| (name.to_owned(), depth)));
    }

    #[test]
    fn calls_of_one_entry_time_are_ordered_by_their_stacks() {
        let all = shown([named("inner", TOP - 0x100, 10, 5), named("outer", TOP, 10, 5)]);
        assert_eq!(all, [("outer".to_owned(), 0), ("inner".to_owned(), 1)]);
    }

    #[test]
    fn coroutines_are_not_inside_each_other() {
        // Two suspended calls whose times cross, 64 KiB apart, with one call inside each.
        let low = TOP - 0x1_0000;
        let all = shown([
            named("in a", TOP - 0x100, 11, 30),
            named("in b", low - 0x100, 21, 60),
            named("a", TOP, 10, 50),
            named("b", low, 20, 80),
        ]);
        let expected = [("a", 0), ("in a", 1), ("b", 0), ("in b", 1)];
        assert_eq!(all, expected.map(|(name, depth)| (name.to_owned(), depth)));
    }

    #[test]
    fn a_call_waits_for_those_entered_before_and_not_for_ever() {
        let mut snoop = snoop();
        assert!(snoop.take(&named("first", TOP, 0, MS)).is_empty());
        assert!(snoop.settle(MS + HELD - 1).is_empty());
        assert_eq!(snoop.settle(MS + HELD).len(), 1);
        // Calls that were entered long ago return again and again: the other goes after a second.
        assert!(snoop.take(&named("short", TOP, 100 * MS, MS)).is_empty());
        let mut at = None;
        for number in 1..30 {
            let end = 100 * MS + number * 50 * MS;
            let long = named("long", TOP, 99 * MS - number, end - 99 * MS + number);
            let all = snoop.take(&long);
            if all.iter().any(|one| one.call.function.symbol == "short") {
                at = at.or(Some(end));
            }
        }
        assert_eq!(at, Some(101 * MS + LONGEST + 49 * MS));
    }

    #[test]
    fn failures_get_their_names() {
        let handshake = function("SSL_do_handshake", Role::Handshake);
        let mut failed = call(&handshake, TOP, 0, 10);
        failed.result = -1;
        let mut why = call(&function("SSL_get_error", Role::Error), TOP, 20, 1);
        why.result = 2;
        let mut snoop = snoop();
        snoop.take(&failed);
        snoop.take(&why);
        let all = snoop.finish();
        let errors: Vec<_> = all.iter().map(|one| one.error).collect();
        assert_eq!(errors, [Some("SSL_ERROR_WANT_READ"); 2]);
        let text = all[0].text();
        assert!(
            text.ends_with("  SSL_do_handshake = -1 SSL_ERROR_WANT_READ\n"),
            "{text}"
        );
        let value: serde_json::Value = serde_json::from_str(&all[0].json()).expect("JSON");
        assert_eq!((&value["result"], &value["object"]), (&(-1).into(), &"0x1000".into()));
        assert_eq!(value["error"], "SSL_ERROR_WANT_READ");
    }

    #[test]
    fn lines_cannot_steer_a_terminal() {
        let mut one = named("\x1b[2Jsym\n", TOP, 0, 10);
        one.comm = *b"\x1b[2J\nroot\x07\xc2\x9b\xff\0\0\0";
        let mut snoop = snoop();
        snoop.take(&one);
        for one in snoop.finish() {
            for line in [one.text(), one.json()] {
                assert_eq!(line.find(char::is_control), Some(line.len() - 1), "{line:?}");
            }
        }
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut snoop = snoop();
        let call = named("f", TOP, 0, 1);
        let mut all = 0;
        for _ in 0..MOST + 100 {
            all += snoop.take(&call).len();
        }
        assert_eq!((all, snoop.held.len()), (100, MOST));
        assert_eq!(snoop.returns.len(), MOST);
    }
}
