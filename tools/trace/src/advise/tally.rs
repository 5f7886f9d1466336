//! Counts of one process: handshakes, operations, calls.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::event::Call;
use crate::functions::{Role, Side};
use crate::handshakes::{Ending, Handshake};

/// Parameters agreed in a handshake; `None` if not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Kind {
    /// The version, as `TLSv1.3`.
    pub version: Option<String>,
    /// The group of the key exchange, as `x25519`.
    pub group: Option<String>,
    /// The algorithm of the server's signature, as `rsa-2048`.
    pub signature: Option<String>,
    /// True if a session was resumed.
    pub resumed: bool,
}

/// Calls of one function with the same algorithm and group.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Name of the operation, as `rsa-2048 sign`.
    pub name: String,
    /// Role of the operation, without the algorithm.
    pub role: Role,
    /// The group of the handshakes, if it is known.
    pub group: Option<String>,
    /// Number of calls.
    pub count: u64,
    /// The time of one, in nanoseconds: the mean of the middle half. Of functions that call each other and
    /// do the same, that of the innermost.
    pub typical: f64,
}

/// Counts of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Complete, as a server.
    pub(super) done: u64,
    /// Failed handshakes, as a server.
    pub(super) failed: u64,
    /// Handshakes of the process as a client.
    pub(super) as_client: u64,
    pub(super) kinds: BTreeMap<Kind, u64>,
    operations: BTreeMap<(Role, String, Option<String>), Times>,
    /// Traced calls. Functions that call each other count each.
    pub(super) calls: u64,
    /// Times of a function that does nearly nothing.
    trivial: Times,
    /// Threads that went on with handshakes.
    pub(super) threads: BTreeSet<u32>,
    /// The family of libraries whose handshakes were seen, or else whose functions.
    pub(super) library: Option<String>,
}

/// Times of the same thing, in nanoseconds.
#[derive(Clone, Debug, Default)]
struct Times {
    count: u64,
    /// The first of them.
    kept: Vec<u64>,
}

impl Times {
    fn add(&mut self, count: u64, ns: u64) {
        self.count += count;
        if self.kept.len() < MOST_KEPT {
            self.kept.push(ns / count.max(1));
        }
    }

    fn join(&mut self, other: &Self) {
        self.count += other.count;
        self.kept.extend(&other.kept);
    }

    /// The mean of the middle half: without calls that were interrupted, and finer than a median.
    fn typical(&self) -> Option<f64> {
        let mut kept = self.kept.clone();
        kept.sort_unstable();
        let quarter = kept.len() / 4;
        let middle = kept.get(quarter..kept.len() - quarter)?;
        let sum: f64 = middle.iter().map(|&ns| ns as f64).sum();
        (!middle.is_empty()).then(|| sum / middle.len() as f64)
    }
}

impl Tally {
    pub(super) fn take_call(&mut self, call: &Call) {
        let function = &call.function;
        self.calls += 1;
        match function.role {
            _ if call.goes_on() => {
                self.threads.insert(call.tid);
                self.library = Some(function.library.clone());
            }
            Role::Error => self.trivial.add(1, call.wall),
            Role::Sign if self.library.is_none() => {
                self.library = Some(function.library.clone());
            }
            _ => {}
        }
    }

    pub(super) fn take_handshake(&mut self, handshake: &Handshake) {
        if handshake.side == Some(Side::Client) {
            self.as_client += 1;
            return;
        }
        for part in &handshake.functions {
            let key = (part.role, part.name.clone(), handshake.group.clone());
            let times = self.operations.entry(key).or_default();
            times.add(part.count, part.innermost_ns);
        }
        if handshake.result != Ending::Ok {
            self.failed += 1;
            return;
        }
        self.done += 1;
        let sign = |part: &&crate::handshakes::Operations| part.role == Role::Sign;
        let signature = handshake.functions.iter().find(sign);
        let algorithm = signature.and_then(|part| part.name.strip_suffix(" sign"));
        let kind = Kind {
            version: handshake.version.clone(),
            group: handshake.group.clone(),
            signature: algorithm.map(str::to_owned),
            resumed: handshake.resumed == Some(true),
        };
        if self.kinds.len() < MOST_KINDS || self.kinds.contains_key(&kind) {
            *self.kinds.entry(kind).or_default() += 1;
        }
    }

    /// Adds what another process of the same server did.
    pub(super) fn join(&mut self, other: &Self) {
        self.done += other.done;
        self.failed += other.failed;
        self.as_client += other.as_client;
        for (kind, count) in &other.kinds {
            *self.kinds.entry(kind.clone()).or_default() += count;
        }
        for (key, times) in &other.operations {
            self.operations.entry(key.clone()).or_default().join(times);
        }
        self.calls += other.calls;
        self.trivial.join(&other.trivial);
        self.threads.extend(&other.threads);
        self.library = self.library.take().or_else(|| other.library.clone());
    }

    /// The time of a traced call that does nearly nothing: what tracing adds to the time of each.
    pub(super) fn trivial(&self) -> Option<f64> {
        self.trivial.typical()
    }

    pub(super) fn operations(&self) -> Vec<Operation> {
        let operations = self.operations.iter();
        let operations = operations.filter_map(|((role, name, group), times)| {
            Some(Operation {
                name: name.clone(),
                role: *role,
                group: group.clone(),
                count: times.count,
                typical: times.typical()?,
            })
        });
        operations.collect()
    }
}

/// Times that are kept of each kind of operation in a process.
const MOST_KEPT: usize = 20_000;
/// Most kinds of handshakes that are counted apart.
const MOST_KINDS: usize = 256;
