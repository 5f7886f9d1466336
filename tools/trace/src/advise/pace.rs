//! Measures the cost of handshakes while no function is traced.
//!
//! Breakpoints in functions take time that counts as the server's. So it is watched without them at first:
//! the ServerHellos that it writes are seen at calls of the system, and counted.

use std::collections::BTreeMap;

use widelane_threads::Proc;

use crate::clock::Clock;
use crate::event::{Bytes, Direction, Event};
use crate::tls::{Flights, HANDSHAKE, SERVER_HELLO};

/// ServerHellos of processes, and the CPU time since the first of them.
#[derive(Debug)]
pub struct Pace {
    proc: Proc,
    processes: BTreeMap<u32, Paced>,
    closed: bool,
}

/// Work of a process between two looks at its CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Paced {
    /// Number of handshakes that the process answered.
    pub(super) answers: u64,
    /// Times of the first look and of the last one, in nanoseconds of the monotonic clock.
    pub(super) begin: u64,
    end: u64,
    /// Clock ticks of CPU time then.
    from: u64,
    to: u64,
}

impl Paced {
    /// Looks at a process for the first time.
    pub(super) fn from_now(proc: &Proc, pid: u32) -> Self {
        let ticks = proc.stat_of(pid).map_or(0, |stat| stat.ticks);
        let now = Clock::monotonic();
        Self {
            answers: 0,
            begin: now,
            end: now,
            from: ticks,
            to: ticks,
        }
    }

    /// Looks how much CPU time the process has used: that of one that has ended would be unknown.
    pub(super) fn refresh(&mut self, proc: &Proc, pid: u32) {
        if let Some(stat) = proc.stat_of(pid) {
            (self.to, self.end) = (stat.ticks, Clock::monotonic());
        }
    }

    /// Clock ticks of CPU time between the looks.
    pub(super) fn ticks(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

impl Pace {
    /// Makes one that has seen nothing yet.
    pub fn new(proc: Proc) -> Self {
        Self {
            proc,
            processes: BTreeMap::new(),
            closed: false,
        }
    }

    /// Takes an event of a tracer that traces no functions.
    pub fn take(&mut self, event: &Event) {
        let Event::Bytes(bytes) = event else {
            return;
        };
        if !is_answer(bytes) {
            return;
        }
        match self.processes.get_mut(&bytes.pid) {
            // Events may come late: what was done before the first look is in no time.
            Some(paced) => {
                let late = self.closed && bytes.time > paced.end;
                paced.answers += u64::from(bytes.time > paced.begin && !late);
            }
            None => {
                let paced = Paced::from_now(&self.proc, bytes.pid);
                self.processes.insert(bytes.pid, paced);
            }
        }
    }

    /// Stops counting: later events do not count. Earlier ones may still be taken.
    pub fn close(&mut self) {
        self.refresh();
        self.closed = true;
    }

    /// Looks how much CPU time the processes have used.
    pub fn refresh(&mut self) {
        for (&pid, paced) in &mut self.processes {
            paced.refresh(&self.proc, pid);
        }
    }

    pub(super) fn of(&self, pid: u32) -> Paced {
        self.processes.get(&pid).copied().unwrap_or_default()
    }
}

/// Returns whether a process answers a client's first flight with these bytes.
pub(super) fn is_answer(bytes: &Bytes) -> bool {
    let is_hello = matches!(bytes.bytes.get(..6), Some([HANDSHAKE, .., SERVER_HELLO]));
    if bytes.direction != Direction::Written || !is_hello {
        return false;
    }
    let mut flights = Flights::default();
    flights.take(bytes);
    // A HelloRetryRequest is none.
    flights.facts().server_hello
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimens::{bytes, client_hello, record, server_hello, tls13};
    use std::fs;

    #[test]
    fn server_hellos_are_counted_with_the_time_they_take() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("7")).unwrap();
        let used = |ticks: u64| {
            let stat = format!("7 (nginx) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 5 0 0 20 0 1 0 9 0");
            let rest = " 0".repeat(40);
            fs::write(folder.path().join("7/stat"), stat + &rest).unwrap();
        };
        used(100);
        let mut pace = Pace::new(Proc::at(folder.path()));
        let answer = record(22, &server_hello(&[1; 32], &[], 0x1301, &tls13(29, 32, false)));
        let later = Clock::monotonic() + 1_000_000_000;
        for (direction, content, time) in [
            (Direction::Read, client_hello(&[], b"a.example"), later),
            (Direction::Read, answer.clone(), later),
            (Direction::Written, client_hello(&[], b"a.example"), later),
            (Direction::Written, vec![22], later),
            (Direction::Written, answer.clone(), 0),
            (Direction::Written, answer.clone(), 0),
            (Direction::Written, answer.clone(), later),
        ] {
            pace.take(&bytes(direction, &content, 0, time).into());
        }
        used(130);
        pace.close();
        // The first two were before the first look, the last is after the end.
        pace.take(&bytes(Direction::Written, &answer, 0, later).into());
        let paced = pace.of(7);
        assert_eq!((paced.answers, paced.from, paced.to), (1, 105, 135));
        assert_eq!(pace.of(8), Paced::default());
    }
}
