//! Watches: events to tallies, looks to counts, and both to servers.

use std::collections::{BTreeMap, HashMap};

use widelane_threads::Proc;

use super::program::Program;
use super::queues::Queues;
use super::ready::{Looks, Ready};
use super::tally::{Kind, Operation, Tally};
use crate::clock::Clock;
use crate::event::Event;
use crate::functions::Role;
use crate::handshakes::{Handshake, Handshakes};

/// What one server did while it was watched.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Which program it is.
    pub program: Program,
    /// Its processes that did handshakes.
    pub processes: Vec<u32>,
    /// For how long it was watched.
    pub seconds: f64,
    /// CPU time of these processes in nanoseconds, with what tracing adds.
    pub cpu: u64,
    /// Complete handshakes as a server.
    pub done: u64,
    /// Handshakes as a server that failed.
    pub failed: u64,
    /// Handshakes as a client.
    pub as_client: u64,
    /// Kinds of complete handshakes, and how many of each.
    pub kinds: BTreeMap<Kind, u64>,
    /// Cryptographic operations in handshakes as a server.
    pub operations: Vec<Operation>,
    /// Traced calls.
    pub calls: u64,
    /// The time of a traced call that does nearly nothing, in nanoseconds; `None`: no call of that kind was
    /// seen.
    pub trivial: Option<f64>,
    /// How many handshakes were ready at the same time.
    pub ready: Ready,
}

/// A process that is watched.
#[derive(Debug)]
struct Process {
    tally: Tally,
    /// When its first event was taken, and how many ticks of CPU time it had then.
    since: u64,
    ticks: u64,
    /// Of the last look at it.
    last_ticks: u64,
}

/// Watches TLS servers by events of a tracer.
#[derive(Debug)]
pub struct Watch {
    proc: Proc,
    handshakes: Handshakes,
    processes: HashMap<u32, Process>,
    queues: Queues,
    looks: Looks,
}

impl Watch {
    /// Nothing has been seen yet.
    pub fn new(proc: Proc, clock: Clock) -> Self {
        Self {
            queues: Queues::new(proc.clone()),
            proc,
            handshakes: Handshakes::new(clock),
            processes: HashMap::new(),
            looks: Looks::default(),
        }
    }

    /// Which roles of functions it wants to be traced.
    pub fn roles() -> Vec<Role> {
        let mut roles = Role::PARTS.to_vec();
        roles.extend([Role::Error, Role::Free]);
        roles
    }

    /// Takes an event.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Call(call) => {
                self.process(call.pid, call.start).tally.take_call(call);
                if call.function.role == Role::Handshake {
                    let end = call.start.saturating_add(call.wall);
                    self.looks.take(call.pid, call.object, call.start, end);
                }
            }
            Event::Bytes(bytes) => self.queues.take(bytes),
            Event::Exit { pid } => self.queues.forget(*pid),
        }
        let ended = self.handshakes.take(event);
        self.count(&ended);
    }

    /// Looks at the queues, unless the last look was a moment ago. Call it some dozen times a second.
    pub fn look(&mut self) {
        let time = Clock::monotonic();
        let ended = self.handshakes.settle(time);
        self.count(&ended);
        if let Some(waiting) = self.queues.look() {
            self.looks.add(time, waiting);
            for (&pid, process) in &mut self.processes {
                // Of one that has ended, the last is the best that there is.
                if let Some(stat) = self.proc.stat_of(pid) {
                    process.last_ticks = stat.ticks;
                }
            }
        }
    }

    /// What each server did until now, the one with the most handshakes first. `loaded` says whether a
    /// process has loaded Widelane's provider.
    pub fn finish(mut self, loaded: impl Fn(u32) -> bool) -> Vec<Observed> {
        let end = Clock::monotonic();
        let ended = self.handshakes.finish();
        self.count(&ended);
        let mut servers: Vec<(Program, BTreeMap<u32, Process>)> = Vec::new();
        for (pid, process) in std::mem::take(&mut self.processes) {
            let Some(library) = process.tally.library.clone() else {
                continue;
            };
            let program = Program::of(&self.proc, pid, &library, loaded(pid));
            match servers.iter_mut().find(|(known, _)| *known == program) {
                Some((_, processes)) => {
                    processes.insert(pid, process);
                }
                None => servers.push((program, BTreeMap::from([(pid, process)]))),
            }
        }
        let mut all: Vec<Observed> = servers
            .into_iter()
            .map(|(program, processes)| self.observed(program, &processes, end))
            .collect();
        all.sort_by(|one, other| {
            let order = |one: &Observed| (std::cmp::Reverse(one.done), one.program.name.clone());
            order(one).cmp(&order(other))
        });
        all
    }

    fn observed(&self, program: Program, processes: &BTreeMap<u32, Process>, end: u64) -> Observed {
        let mut all = Tally::default();
        let mut loops = BTreeMap::new();
        let (mut ticks, mut since) = (0, end);
        for (&pid, process) in processes {
            all.join(&process.tally);
            let threads = match program.has_loops() {
                true => process.tally.threads.len(),
                false => 1,
            };
            loops.insert(pid, threads);
            ticks += process.last_ticks.saturating_sub(process.ticks);
            since = since.min(process.since);
        }
        Observed {
            program,
            processes: processes.keys().copied().collect(),
            seconds: end.saturating_sub(since) as f64 / 1e9,
            cpu: ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)),
            done: all.done,
            failed: all.failed,
            as_client: all.as_client,
            kinds: all.kinds.clone(),
            operations: all.operations(),
            calls: all.calls(),
            trivial: all.trivial(),
            ready: self.looks.ready(&loops, &self.queues.ports),
        }
    }

    fn process(&mut self, pid: u32, time: u64) -> &mut Process {
        self.processes.entry(pid).or_insert_with(|| {
            let ticks = self.proc.stat_of(pid).map_or(0, |stat| stat.ticks);
            Process {
                tally: Tally::default(),
                since: time,
                ticks,
                last_ticks: ticks,
            }
        })
    }

    fn count(&mut self, ended: &[Handshake]) {
        for handshake in ended {
            let process = self.process(handshake.pid, handshake.time);
            process.tally.take_handshake(handshake);
        }
    }
}
