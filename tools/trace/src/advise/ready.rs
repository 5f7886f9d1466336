//! Counts the handshakes that were ready at the same time.
//!
//! At each look, the handshakes that a process computes at that moment are known from the calls that were
//! under way, and those that wait for it from the sockets. A server that computes one handshake after the
//! other would find all of them ready if it could put one aside.

use std::collections::{BTreeMap, BTreeSet};

use super::queues::Port;

/// Handshakes that were ready at the same time, by looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ready {
    /// Number of handshakes that were ready, the computed one included: for each look at which an event loop, or a
    /// process whose threads wait for each other, computed one and it was asked what waits.
    pub counts: Vec<f64>,
    /// Number of looks, also while nothing was computed.
    pub looks: usize,
    /// Number of looks at which a handshake was computed.
    pub computed: usize,
    /// Number of those looks at which the kernel was asked what waits.
    pub asked: usize,
    /// Number of those looks at which a handshake waited.
    pub waited: usize,
}

impl Ready {
    /// The mean; 1 without looks.
    pub fn mean(&self) -> f64 {
        match self.counts.len() {
            0 => 1.0,
            counts => self.counts.iter().sum::<f64>() / counts as f64,
        }
    }

    /// The share of looks at which handshakes were computed.
    pub fn busy(&self) -> f64 {
        self.computed as f64 / self.looks.max(1) as f64
    }

    /// Returns whether another handshake waited at nearly each look: then the server is at its limit.
    pub fn is_at_limit(&self) -> bool {
        self.asked >= FEWEST_LOOKS && self.waited as f64 >= LIMIT * self.asked as f64
    }
}

/// Looks so far.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// Looks in the order of their times.
    looks: Vec<Look>,
}

#[derive(Debug)]
struct Look {
    /// Nanoseconds of the monotonic clock.
    time: u64,
    /// Number of handshakes that waited at each port; `None` if the kernel was not asked.
    waiting: Option<BTreeMap<Port, u32>>,
    /// Processes and connections of which a call was under way.
    computed: BTreeSet<(u32, u64)>,
}

impl Looks {
    /// Looks now: its number is for what waits, which is known a moment later, or is not asked. `None`: there
    /// were enough.
    pub(super) fn add(&mut self, time: u64) -> Option<usize> {
        let number = self.looks.len();
        if number >= MOST_LOOKS {
            return None;
        }
        self.looks.push(Look {
            time,
            waiting: None,
            computed: BTreeSet::new(),
        });
        Some(number)
    }

    /// Records how many handshakes waited at the ports at a look.
    pub(super) fn waited_at(&mut self, look: Option<usize>, waiting: BTreeMap<Port, u32>) {
        if let Some(look) = look.and_then(|look| self.looks.get_mut(look)) {
            look.waiting = Some(waiting);
        }
    }

    /// A call that goes on with a handshake, from its entry to its return: it arrives after the looks that
    /// happened meanwhile.
    pub(super) fn take(&mut self, pid: u32, object: u64, start: u64, end: u64) {
        let from = self.looks.partition_point(|look| look.time < start);
        for look in self.looks.iter_mut().skip(from) {
            if look.time >= end {
                break;
            }
            look.computed.insert((pid, object));
        }
    }

    /// Handshakes that were ready in processes. Each process has a number of event loops, among which its handshakes
    /// are divided: 1 if its threads share passes. `ports` names where clients of these and of other processes come;
    /// the others take their part.
    pub(super) fn ready(&self, loops: &BTreeMap<u32, usize>, ports: &BTreeMap<u32, BTreeSet<Port>>) -> Ready {
        let mut servers: BTreeMap<Port, f64> = BTreeMap::new();
        for port in ports.values().flatten() {
            *servers.entry(*port).or_default() += 1.0;
        }
        let mut ready = Ready::default();
        for look in &self.looks {
            for (&pid, &loops) in loops {
                ready.looks += 1;
                let computed = look.computed.range((pid, 0)..=(pid, u64::MAX)).count() as f64;
                ready.computed += usize::from(computed > 0.0);
                let Some(known) = &look.waiting else {
                    continue;
                };
                ready.asked += 1;
                let waiting = |port: &Port| {
                    let waiting = f64::from(known.get(port).copied().unwrap_or(0));
                    waiting / servers.get(port).copied().unwrap_or(1.0)
                };
                let waiting: f64 = ports.get(&pid).into_iter().flatten().map(waiting).sum();
                let loops = loops.max(1) as f64;
                let others = (computed + waiting) / loops - computed.min(1.0);
                ready.waited += usize::from(others >= 1.0);
                if computed > 0.0 {
                    ready.counts.push(1.0 + others.max(0.0));
                }
            }
        }
        ready
    }
}

/// Looks that are kept: at a hundred a second, for some minutes.
const MOST_LOOKS: usize = 50_000;
/// Fewer than these tell nothing of a limit.
const FEWEST_LOOKS: usize = 10;
/// The share of looks from which a server is at its limit.
const LIMIT: f64 = 0.9;
