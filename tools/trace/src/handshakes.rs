//! Makes handshakes of calls.
//!
//! A handshake is all calls that go on with it, on one object of a process, until one succeeds, one
//! fails, or the object is freed. `SSL_accept` calls `SSL_do_handshake`: of two calls on one object, one
//! inside the other, the outer counts. So a call that ends a handshake is kept for a moment before the
//! handshake is reported.
//!
//! Static probes tell of the beginning and the end of each handshake by themselves.

mod connection;
mod marked;
mod recent;
mod show;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;
use widelane_text::named;

use crate::clock::Clock;
use crate::event::{Call, Event};
use crate::functions::{Returns, Role, Side};
use crate::nesting::{Child, ChildKind, InnerCall, Nesting, Place};
use crate::outcome::{Meaning, explained};
use crate::text::{as_micros, known_as_micros};
use connection::{Connection, OpenCall};
use marked::Marked;
use recent::{Key, Recent};

/// Longest time after the end of a handshake until the enclosing call arrives, in nanoseconds.
const SETTLED: u64 = 50_000_000;
/// Time after which to settle, a little longer than [`SETTLED`].
const SETTLES: Duration = Duration::from_millis(60);
/// Most connections that are known at a time.
const MOST_CONNECTIONS: usize = 65_536;

named! {
    /// Result of a handshake.
    #[derive(Hash, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Ending {
        /// The handshake was completed.
        Ok = "ok",
        /// The handshake failed by an error of the protocol, which an alert reports to the peer.
        Alert = "alert",
        /// The connection ended before the handshake did.
        Closed = "closed",
    }
}

/// A handshake, with its fields in the order in which programs read them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Handshake {
    /// Time of the first call's entry: nanoseconds of the monotonic clock.
    #[serde(skip)]
    pub time: u64,
    /// Time of the first call in seconds since 1970.
    pub time_s: f64,
    /// The process.
    pub pid: u32,
    /// The thread of the last call.
    pub tid: u32,
    /// Name of the thread; it may contain anything.
    pub comm: String,
    /// The family of libraries.
    pub library: String,
    /// Side of the process: client or server.
    pub side: Option<Side>,
    /// The version, as `TLSv1.3`.
    pub version: Option<String>,
    /// The cipher suite.
    pub cipher: Option<String>,
    /// The group of the key exchange.
    pub group: Option<String>,
    /// True if a session was resumed; `None` if not known.
    pub resumed: Option<bool>,
    /// The host that the client asked for, escaped.
    pub server_name: Option<String>,
    /// Result of the handshake.
    pub result: Ending,
    /// The alert that was seen; of an encrypted one, only that it was.
    pub alert: Option<String>,
    /// Time from the first entry to the last return, in nanoseconds.
    #[serde(rename = "wall_us", serialize_with = "as_micros")]
    pub wall: u64,
    /// CPU time of the calls in nanoseconds, if it is known of all.
    #[serde(rename = "cpu_us", serialize_with = "known_as_micros")]
    pub cpu: Option<u64>,
    /// Time between the calls, in nanoseconds, if that is known.
    #[serde(rename = "waiting_us", serialize_with = "known_as_micros")]
    pub waiting: Option<u64>,
    /// Number of calls.
    pub calls: u64,
    /// Number of calls that returned to wait.
    pub again: u64,
    /// Cryptographic functions.
    pub functions: Vec<Operations>,
}

/// Calls of a cryptographic function in a handshake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Operations {
    /// Name of the operations, as `rsa-2048 sign`.
    pub name: String,
    /// Role of the operations, without the algorithm.
    #[serde(skip)]
    pub role: Role,
    /// Number of calls.
    pub count: u64,
    /// Time of the calls from entry to return in nanoseconds.
    #[serde(rename = "us", serialize_with = "as_micros")]
    pub ns: u64,
    /// CPU time of the calls inside that do the work, as functions of a library that do the same thing call
    /// each other. Where it is not known, their time from entry to return.
    #[serde(skip)]
    pub innermost_ns: u64,
}

/// Numbers of events that were dropped because of limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Connections that were forgotten in the middle of a handshake.
    pub connections: u64,
    /// Calls and bytes that waited for the call around them.
    pub children: u64,
}

/// Assembles handshakes from events.
#[derive(Debug)]
pub struct Handshakes {
    clock: Clock,
    nesting: Nesting,
    connections: Recent<Connection>,
    /// Calls that end a handshake, with the time of their return, in the order of arrival.
    settling: VecDeque<(u64, Key)>,
    marked: Marked,
    lost: u64,
}

impl Handshakes {
    /// Makes one that knows no connections yet.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            nesting: Nesting::default(),
            connections: Recent::of(MOST_CONNECTIONS),
            settling: VecDeque::new(),
            marked: Marked::new(),
            lost: 0,
        }
    }

    /// Takes an event, and gives the handshakes that it ends.
    pub fn take(&mut self, event: &Event) -> Vec<Handshake> {
        let mut ended = Vec::new();
        match event {
            Event::Bytes(bytes) => {
                let place = Place::of_bytes(bytes);
                ended.extend(self.settle(place.end));
                let what = ChildKind::Bytes(bytes.clone());
                self.nesting.add(bytes.pid, Child { place, what });
            }
            Event::Call(call) => {
                ended.extend(self.settle(Place::of(call).end));
                ended.extend(self.take_call(call));
            }
            Event::Reached(reached) => ended.extend(self.marked.take(reached, self.clock)),
            Event::Exit { pid } => {
                ended.extend(self.exit(*pid));
                ended.extend(self.marked.exit(*pid, self.clock));
            }
        }
        ended
    }

    /// Gives the handshakes that have ended at a time of the monotonic clock, in nanoseconds: call it
    /// some times a second also when no events come.
    pub fn settle(&mut self, now: u64) -> Vec<Handshake> {
        let mut ended = Vec::new();
        while let Some(&(end, key)) = self.settling.front() {
            if end.saturating_add(SETTLED) > now {
                break;
            }
            self.settling.pop_front();
            if let Some(connection) = self.connections.get_mut(&key) {
                // Another call may have taken its place; that has an entry of its own.
                if connection.held_until() == Some(end) {
                    ended.extend(connection.apply(None, self.clock));
                }
            }
        }
        ended
    }

    /// Time after which to call [`settle`](Self::settle) if no events come; `None` if each handshake that has ended was
    /// returned.
    pub fn settles_after(&self) -> Option<Duration> {
        (!self.settling.is_empty()).then_some(SETTLES)
    }

    /// Gives the handshakes that are complete, at the end of a trace. Those under way are left out.
    pub fn finish(&mut self) -> Vec<Handshake> {
        self.settle(u64::MAX)
    }

    /// Numbers of dropped events.
    pub fn lost(&self) -> Lost {
        Lost {
            connections: self.lost + self.marked.lost(),
            children: self.nesting.lost(),
        }
    }

    fn take_call(&mut self, call: &Call) -> Vec<Handshake> {
        let key = (call.pid, call.object);
        match call.function.role {
            Role::Handshake => self.go_on(call),
            Role::Error => {
                let Some(meaning) = explained(call.result) else {
                    return Vec::new();
                };
                let connection = self.connections.get_mut(&key);
                let ended = connection.and_then(|one| one.explain(meaning, self.clock));
                ended.into_iter().collect()
            }
            Role::Free => {
                let connection = self.connections.remove(&key);
                let ended = connection.and_then(|one| one.close(self.clock));
                ended.into_iter().collect()
            }
            Role::Sign | Role::Verify | Role::Generate | Role::Derive | Role::Encapsulate | Role::Decapsulate => {
                // The call has made nothing: NSS tries one way after another.
                if call.function.returns == Returns::Pointer && call.result == 0 {
                    return Vec::new();
                }
                let what = ChildKind::Call(InnerCall {
                    function: call.function.clone(),
                    size: call.size,
                    innermost: call.cpu.unwrap_or(call.wall),
                });
                let place = Place::of(call);
                self.nesting.add(call.pid, Child { place, what });
                Vec::new()
            }
            Role::Read | Role::Write if call.still.is_some() => self.go_on(call),
            Role::Read | Role::Write | Role::Pass | Role::Poll | Role::Around | Role::Load => Vec::new(),
        }
    }

    /// A call that goes on with a handshake.
    fn go_on(&mut self, call: &Call) -> Vec<Handshake> {
        let key = (call.pid, call.object);
        let place = Place::of(call);
        let mut connection = self.connections.remove(&key).unwrap_or_default();
        let children = self.nesting.take_inside(call.pid, &place, connection.job());
        let beside = connection.beside(&mut self.nesting, call.pid, &place, &children);
        let mut ended = Vec::new();
        let held = OpenCall::new(call, place, children, beside);
        let stacks = self.nesting.stacks();
        if let Some(before) = connection.held_place() {
            stacks.compare(call.pid, &before, &place);
            if !stacks.is_inside(call.pid, &before, &place) {
                // The next call on the connection begins: the one before is complete, and nothing explained it.
                ended.extend(connection.apply(Some(Meaning::Again), self.clock));
            }
        }
        let last = held.is_last();
        ended.extend(connection.hold(held, stacks, self.clock));
        if last {
            self.settling.push_back((place.end, key));
        }
        let forgotten = self.connections.insert(key, connection);
        self.lost += u64::from(forgotten.is_some_and(|one| one.is_under_way()));
        ended
    }

    fn exit(&mut self, pid: u32) -> Vec<Handshake> {
        self.nesting.forget(pid);
        let connections = self.connections.remove_process(pid).into_iter();
        connections.filter_map(|one| one.close(self.clock)).collect()
    }
}
