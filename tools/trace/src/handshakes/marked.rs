//! Handshakes that static probes tell of: each has a beginning, steps and an end of its own.

use std::sync::Arc;

use widelane_probes::operations;

use super::recent::Recent;
use super::{Ending, Handshake, MOST_CONNECTIONS, Operations};
use crate::clock::Clock;
use crate::event::Reached;
use crate::functions::{Role, Side};
use crate::marks::{Argument, Mark, Tells};
use crate::text::thread_name;
use crate::tls::names;

/// Most jobs that are known at a time.
const MOST_JOBS: usize = 65_536;
/// Most operations that are counted apart in a handshake.
const MOST_OPERATIONS: usize = 64;

/// Assembles handshakes from static probes.
#[derive(Debug)]
pub(super) struct Marked {
    connections: Recent<Open>,
    /// Connection with which each thread goes on.
    current: Recent<u64>,
    jobs: Recent<Job>,
    lost: u64,
}

/// A handshake under way.
#[derive(Debug)]
struct Open {
    time: u64,
    tid: u32,
    comm: [u8; 16],
    mark: Arc<Mark>,
    side: Option<Side>,
    steps: u64,
    operations: Vec<(u16, u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    connection: u64,
    operation: u16,
    time: u64,
}

impl Marked {
    pub(super) fn new() -> Self {
        Self {
            connections: Recent::of(MOST_CONNECTIONS),
            current: Recent::of(MOST_CONNECTIONS),
            jobs: Recent::of(MOST_JOBS),
            lost: 0,
        }
    }

    /// Takes one, and gives the handshake that it ends.
    pub(super) fn take(&mut self, reached: &Reached, clock: Clock) -> Option<Handshake> {
        let thread = (reached.pid, u64::from(reached.tid));
        let connection = || reached.get(Argument::Connection);
        let job = || Some((reached.pid, reached.get(Argument::Job)?));
        match reached.mark.tells {
            Tells::HandshakeBegun => self.begin(connection()?, reached),
            Tells::HandshakeStep => {
                let number = connection()?;
                let open = self.connections.get_mut(&(reached.pid, number))?;
                open.steps += 1;
                (open.tid, open.comm) = (reached.tid, reached.comm);
                self.current.insert(thread, number);
            }
            Tells::HandshakeEnded => {
                let open = self.connections.remove(&(reached.pid, connection()?))?;
                return Some(open.ended(reached, clock));
            }
            Tells::JobSubmitted => {
                let connection = *self.current.get(&thread)?;
                let submitted = Job {
                    connection,
                    operation: reached.operation(),
                    time: reached.time,
                };
                self.jobs.insert(job()?, submitted);
            }
            Tells::JobDone => {
                let job = self.jobs.remove(&job()?)?;
                let open = self.connections.get_mut(&(reached.pid, job.connection))?;
                open.count(job.operation, reached.time.saturating_sub(job.time));
            }
            Tells::PassBegun | Tells::PassEnded => {}
        }
        None
    }

    /// A process has ended, and with it its handshakes.
    pub(super) fn exit(&mut self, pid: u32, clock: Clock) -> Vec<Handshake> {
        self.current.remove_process(pid);
        self.jobs.remove_process(pid);
        let mut open = self.connections.remove_process(pid);
        open.sort_by_key(|open| open.time);
        let ended = open.iter().map(|open| open.closed(pid, open.time, clock));
        ended.collect()
    }

    /// Connections that were forgotten in the middle of a handshake.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    fn begin(&mut self, number: u64, reached: &Reached) {
        let key = (reached.pid, number);
        let open = Open {
            time: reached.time,
            tid: reached.tid,
            comm: reached.comm,
            mark: Arc::clone(&reached.mark),
            side: match reached.get(Argument::Side) {
                Some(0) => Some(Side::Client),
                Some(1) => Some(Side::Server),
                _ => None,
            },
            steps: 0,
            operations: Vec::new(),
        };
        // One that takes so long that 65,536 others are under way.
        let forgotten = self.connections.insert(key, open);
        self.lost += u64::from(forgotten.is_some());
    }
}

impl Open {
    fn count(&mut self, operation: u16, ns: u64) {
        let room = self.operations.len() < MOST_OPERATIONS;
        let mut known = self.operations.iter_mut();
        match known.find(|(number, ..)| *number == operation) {
            Some((_, count, sum)) => {
                *count += 1;
                *sum = sum.saturating_add(ns);
            }
            None if room => {
                self.operations.push((operation, 1, ns));
            }
            None => {}
        }
    }

    fn ended(&self, reached: &Reached, clock: Clock) -> Handshake {
        // A value that does not fit counts as unknown.
        let number = |argument| {
            let value = u16::try_from(reached.get(argument)?).ok()?;
            (value != 0).then_some(value)
        };
        let alert = reached.get(Argument::Alert);
        let alert = alert.and_then(|alert| u8::try_from(alert).ok());
        Handshake {
            tid: reached.tid,
            comm: thread_name(&reached.comm),
            version: number(Argument::Version).map(names::version),
            cipher: number(Argument::Cipher).map(names::cipher),
            group: number(Argument::Group).map(names::group),
            resumed: match reached.get(Argument::Resumed) {
                Some(0) => Some(false),
                Some(1) => Some(true),
                _ => None,
            },
            result: match reached.get(Argument::Ending) {
                Some(0) => Ending::Ok,
                Some(2) => Ending::Closed,
                _ => Ending::Alert,
            },
            alert: alert.map(names::alert),
            ..self.closed(reached.pid, reached.time, clock)
        }
    }

    /// Ends the handshake as if the connection had been closed at `then`.
    fn closed(&self, pid: u32, then: u64, clock: Clock) -> Handshake {
        let functions = self.operations.iter();
        let functions = functions.map(|(operation, count, ns)| {
            let name = match operations::description(*operation) {
                Some(description) => description.to_owned(),
                None => format!("operation {operation}"),
            };
            Operations {
                role: role(&name),
                name,
                count: *count,
                ns: *ns,
                innermost_ns: *ns,
            }
        });
        Handshake {
            time: self.time,
            time_s: clock.seconds(self.time),
            pid,
            tid: self.tid,
            comm: thread_name(&self.comm),
            library: self.mark.library.clone(),
            side: self.side,
            version: None,
            cipher: None,
            group: None,
            resumed: None,
            server_name: None,
            result: Ending::Closed,
            alert: None,
            calls: self.steps,
            again: self.steps.saturating_sub(1),
            wall: then.saturating_sub(self.time),
            cpu: None,
            waiting: None,
            functions: functions.collect(),
        }
    }
}

/// Role of an operation, from the last word of its name.
fn role(name: &str) -> Role {
    match name.rsplit(' ').next() {
        Some("sign") => Role::Sign,
        Some("verify") => Role::Verify,
        Some("generate") => Role::Generate,
        Some("derive") => Role::Derive,
        Some("encapsulate") => Role::Encapsulate,
        Some("decapsulate") => Role::Decapsulate,
        _ => Role::Pass,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimens::reached;

    const CONNECTION: u64 = 5;

    fn take(marked: &mut Marked, name: &str, tid: u32, time: u64, arguments: &[u64]) -> Option<Handshake> {
        let mut event = reached(name, time, arguments);
        event.tid = tid;
        marked.take(&event, Clock::at(0, 0))
    }

    #[test]
    fn a_handshake_is_reported_with_its_jobs() {
        let mut marked = Marked::new();
        let none = -1i64 as u64;
        let (x25519, rsa) = (13, 1);
        for (name, tid, time, arguments) in [
            ("handshake_begun", 7, 100, &[CONNECTION, 1][..]),
            ("handshake_step", 7, 110, &[CONNECTION]),
            ("job_submitted", 7, 120, &[0x1000, x25519]),
            // Another connection of the thread goes on; a job of another thread ends ours.
            ("handshake_begun", 7, 130, &[6, 1]),
            ("handshake_step", 7, 131, &[6]),
            ("job_submitted", 7, 132, &[0x2000, rsa]),
            ("job_done", 8, 150, &[0x1000, 0]),
            ("handshake_step", 7, 160, &[CONNECTION]),
            ("job_submitted", 7, 170, &[0x1000, x25519]),
            ("job_submitted", 7, 170, &[0x3000, rsa]),
            ("job_done", 7, 180, &[0x1000, 0]),
            ("job_done", 7, 190, &[0x3000, 0]),
            ("job_done", 7, 190, &[0x4000, 0]),
        ] {
            let seen = take(&mut marked, name, tid, time, arguments);
            assert!(seen.is_none(), "{name} {arguments:?}");
        }
        let ended = [CONNECTION, 0, 0x0304, 0x1302, 29, 0, 1, none];
        let seen = take(&mut marked, "handshake_ended", 7, 300, &ended).unwrap();
        assert_eq!((seen.time, seen.wall, seen.calls, seen.again), (100, 200, 2, 1));
        assert_eq!((seen.library.as_str(), seen.side), ("widelane", Some(Side::Server)));
        assert_eq!(seen.version.as_deref(), Some("TLSv1.3"));
        assert_eq!(seen.cipher.as_deref(), Some("TLS_AES_256_GCM_SHA384"));
        assert_eq!(seen.group.as_deref(), Some("x25519"));
        assert_eq!((seen.resumed, seen.result, seen.alert), (Some(false), Ending::Ok, None));
        let functions = seen.functions.iter().map(|one| (&*one.name, one.count, one.ns));
        let expected = [("x25519 derive", 2, 40), ("rsa-2048 sign", 1, 20)];
        assert_eq!(functions.collect::<Vec<_>>(), expected);
        let again = take(&mut marked, "handshake_ended", 7, 300, &ended);
        assert!(again.is_none(), "it has ended already");
        let left = marked.exit(7, Clock::at(0, 0));
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].result, Ending::Closed);
    }

    #[test]
    fn endings_and_unknown_values_are_reported() {
        let mut marked = Marked::new();
        let none = -1i64 as u64;
        for (ending, alert, expected, name) in [
            (1, 48, Ending::Alert, Some("unknown_ca")),
            (2, none, Ending::Closed, None),
            (3, none, Ending::Alert, None),
        ] {
            take(&mut marked, "handshake_begun", 7, 1, &[CONNECTION, 0]);
            let arguments = [CONNECTION, ending, 0, 0, 0, none, 0, alert];
            let seen = take(&mut marked, "handshake_ended", 7, 2, &arguments).unwrap();
            assert_eq!((seen.result, seen.alert.as_deref()), (expected, name));
            assert_eq!((seen.version, seen.resumed), (None, None));
            assert_eq!((seen.side, seen.group), (Some(Side::Client), None));
        }
        // This handshake began before the trace.
        let ended = [CONNECTION, 0, 0, 0, 0, 0, 1, 0];
        assert!(take(&mut marked, "handshake_ended", 7, 3, &ended).is_none());
        // Without arguments nothing is known.
        for name in ["handshake_begun", "handshake_step", "job_submitted", "job_done"] {
            assert!(take(&mut marked, name, 7, 3, &[]).is_none());
        }
    }

    #[test]
    fn handshakes_that_never_end_are_forgotten() {
        let mut marked = Marked::new();
        let mut begun = reached("handshake_begun", 0, &[0, 1]);
        for number in 0..MOST_CONNECTIONS as u64 + 10 {
            (begun.time, begun.arguments[0]) = (number, Some(number));
            marked.take(&begun, Clock::at(0, 0));
        }
        assert_eq!((marked.connections.len(), marked.lost()), (MOST_CONNECTIONS, 10));
    }
}
