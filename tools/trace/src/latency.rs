//! How long calls take: a histogram for each function and each way in which it ends.
//!
//! Times of functions that call each other overlap: that of `SSL_do_handshake` contains that of the
//! signature. So shares of CPU time need not add up to 100 %.

mod histogram;
mod show;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use histogram::{BUCKETS, Histogram, beginning_of, bucket_of};

use crate::event::{Call, Event};
use crate::functions::{Function, Role};
use crate::nesting::Place;
use crate::outcome::{Meaning, Outcome, explained, meaning};

/// So many objects have a call that failed and is not explained.
const MOST_UNEXPLAINED: usize = 65_536;
/// So many such calls has an object: those that are inside each other.
const MOST_OF_AN_OBJECT: usize = 8;

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The family of libraries.
    pub library: String,
    /// The symbol of the function.
    pub function: String,
    /// How the calls ended.
    pub outcome: Outcome,
}

/// A row.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Times from entry to return.
    pub times: Histogram,
    /// CPU time of those calls of which it is known, in nanoseconds.
    pub cpu: u64,
    /// Time from entry to return of the others.
    pub unknown: u64,
}

/// Histograms by function and outcome. The table of functions bounds their number.
#[derive(Debug, Default)]
pub struct Latencies {
    rows: BTreeMap<Key, Row>,
    unexplained: BTreeMap<(u32, u64), Vec<Unexplained>>,
}

/// A call that failed; `SSL_get_error` tells why.
#[derive(Debug)]
struct Unexplained {
    function: Arc<Function>,
    end: u64,
    wall: u64,
    cpu: Option<u64>,
}

impl Latencies {
    /// Without rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a call when it is known how it ended.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Call(call) => self.take_call(call),
            Event::Bytes(_) => {}
            Event::Exit { pid } => {
                let objects = self.unexplained.range((*pid, 0)..=(*pid, u64::MAX));
                for key in objects.map(|(key, _)| *key).collect::<Vec<_>>() {
                    self.explain(key, Outcome::Failed, u64::MAX);
                }
            }
        }
    }

    /// Counts the calls as failures that nothing has explained, at the end of a trace.
    pub fn finish(&mut self) {
        for key in self.unexplained.keys().copied().collect::<Vec<_>>() {
            self.explain(key, Outcome::Failed, u64::MAX);
        }
    }

    /// The row of a function and an outcome, to be filled from counts that the kernel has made.
    pub fn row(&mut self, library: &str, function: &str, outcome: Outcome) -> &mut Row {
        let key = Key {
            library: library.to_owned(),
            function: function.to_owned(),
            outcome,
        };
        self.rows.entry(key).or_default()
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = (&Key, &Row)> {
        self.rows.iter()
    }

    fn take_call(&mut self, call: &Call) {
        let object = (call.pid, call.object);
        let meaning = meaning(call);
        match call.function.role {
            Role::Error => {
                let outcome = match explained(call.result) {
                    Some(Meaning::Again) => Some(Outcome::Again),
                    Some(_) => Some(Outcome::Failed),
                    None => None,
                };
                if let Some(outcome) = outcome {
                    self.explain(object, outcome, call.start);
                }
            }
            Role::Free => self.explain(object, Outcome::Failed, call.start),
            // The program does not ask why the call before failed, and calls again.
            Role::Handshake | Role::Read | Role::Write => {
                self.explain(object, Outcome::Again, call.start);
            }
            _ => {}
        }
        let outcome = match meaning {
            // What these return is an answer, whatever it is.
            _ if matches!(call.function.role, Role::Error | Role::Free) => Outcome::Ok,
            Meaning::Ok => Outcome::Ok,
            Meaning::Again => Outcome::Again,
            Meaning::Failed | Meaning::Closed => Outcome::Failed,
            Meaning::Unexplained => return self.wait(object, call),
        };
        self.count(&call.function, outcome, call.wall, call.cpu);
    }

    fn wait(&mut self, object: (u32, u64), call: &Call) {
        let known = self.unexplained.len() < MOST_UNEXPLAINED;
        if known || self.unexplained.contains_key(&object) {
            let waiting = self.unexplained.entry(object).or_default();
            if waiting.len() < MOST_OF_AN_OBJECT {
                waiting.push(Unexplained {
                    function: call.function.clone(),
                    end: Place::of(call).end,
                    wall: call.wall,
                    cpu: call.cpu,
                });
                return;
            }
        }
        self.count(&call.function, Outcome::Failed, call.wall, call.cpu);
    }

    /// The calls on an object that had returned at a time ended like this.
    fn explain(&mut self, object: (u32, u64), outcome: Outcome, until: u64) {
        let Some(waiting) = self.unexplained.remove(&object) else {
            return;
        };
        let (past, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|one| one.end <= until);
        for one in past {
            self.count(&one.function, outcome, one.wall, one.cpu);
        }
        if !rest.is_empty() {
            self.unexplained.insert(object, rest);
        }
    }

    fn count(&mut self, function: &Function, outcome: Outcome, wall: u64, cpu: Option<u64>) {
        let row = self.row(&function.library, &function.symbol, outcome);
        row.times.add(wall);
        match cpu {
            Some(cpu) => row.cpu = row.cpu.saturating_add(cpu),
            None => row.unknown = row.unknown.saturating_add(wall),
        }
    }
}

impl Row {
    /// Adds calls of one bucket with their measured sum, as the kernel counts them.
    pub fn add(&mut self, bucket: usize, calls: u64, total: u64) {
        let sum = self.times.total().saturating_add(total);
        self.times.add_counts(bucket, calls);
        self.times.correct(sum, self.times.max());
    }

    /// The share of `cpu` nanoseconds of CPU time that the calls took. Where the kernel tells no CPU
    /// time of a call, its whole time counts.
    pub fn share(&self, cpu: u64) -> Option<f64> {
        let mine = match self.cpu.saturating_add(self.unknown) {
            // Filled from counts of the kernel.
            0 => self.times.total(),
            mine => mine,
        };
        (cpu > 0).then(|| mine as f64 / cpu as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimens::{call, function};

    fn rows(latencies: &Latencies) -> Vec<(String, Outcome, u64)> {
        let rows = latencies.rows();
        rows.map(|(key, row)| (key.function.clone(), key.outcome, row.times.count()))
            .collect()
    }

    fn taken(calls: impl IntoIterator<Item = Call>) -> Latencies {
        let mut latencies = Latencies::new();
        for call in calls {
            latencies.take(&call.into());
        }
        latencies
    }

    fn with(mut call: Call, result: i64) -> Call {
        call.result = result;
        call
    }

    #[test]
    fn errors_tell_how_calls_ended() {
        let (accept, inner) = (
            function("SSL_accept", Role::Handshake),
            function("SSL_do_handshake", Role::Handshake),
        );
        let error = function("SSL_get_error", Role::Error);
        let mut latencies = taken([
            with(call(&inner, 90, 12, 10), -1),
            with(call(&accept, 100, 10, 20), -1),
            with(call(&error, 100, 40, 1), 2),
            with(call(&inner, 90, 52, 10), -1),
            with(call(&accept, 100, 50, 20), -1),
            with(call(&error, 100, 80, 1), 1),
            // The program does not ask why, and goes on.
            with(call(&inner, 90, 92, 10), -1),
            with(call(&accept, 100, 90, 20), -1),
            call(&inner, 90, 122, 10),
            call(&accept, 100, 120, 20),
            with(call(&accept, 100, 150, 20), -1),
        ]);
        let expected = |failed| {
            let (accept, inner) = ("SSL_accept".to_owned(), "SSL_do_handshake".to_owned());
            vec![
                (accept.clone(), Outcome::Ok, 1),
                (accept.clone(), Outcome::Again, 2),
                (accept, Outcome::Failed, failed),
                (inner.clone(), Outcome::Ok, 1),
                (inner.clone(), Outcome::Again, 2),
                (inner, Outcome::Failed, 1),
                ("SSL_get_error".to_owned(), Outcome::Ok, 2),
            ]
        };
        assert_eq!(rows(&latencies), expected(1));
        latencies.take(&Event::Exit { pid: 7 });
        assert_eq!(rows(&latencies), expected(2));
        latencies.finish();
        assert_eq!(rows(&latencies), expected(2));
    }

    #[test]
    fn shares_are_of_cpu_time() {
        let sign = function("EVP_DigestSign", Role::Sign);
        let mut unknown = call(&sign, 100, 0, 1000);
        unknown.cpu = None;
        let mut latencies = taken([call(&sign, 100, 0, 1000), unknown]);
        let row = latencies.row("openssl", "EVP_DigestSign", Outcome::Ok);
        assert_eq!((row.cpu, row.unknown), (500, 1000));
        assert_eq!((row.share(15_000), row.share(0)), (Some(0.1), None));
        let row = latencies.row("openssl", "EVP_DigestVerify", Outcome::Ok);
        row.times.add_counts(bucket_of(1000), 10);
        row.times.correct(10_000, 1000);
        assert_eq!(row.share(100_000), Some(0.1));
    }
}
