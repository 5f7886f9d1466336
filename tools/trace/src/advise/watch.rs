//! Watches: events to tallies, looks to counts, and both to servers.

use std::collections::{BTreeMap, HashMap};

use widelane_threads::Proc;

use super::pace::{Pace, Paced, is_answer};
use super::program::Program;
use super::ready::Ready;
use super::sampler::{QueueSamples, Sampler};
use super::tally::{Kind, Operation, Tally};
use crate::clock::Clock;
use crate::event::Event;
use crate::handshakes::{Handshake, Handshakes};
use crate::want::Want;

/// Observations of one server.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Program of the server.
    pub program: Program,
    /// Processes of the server that did handshakes.
    pub processes: Vec<u32>,
    /// Time for which the server was watched, in seconds.
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
    /// CPU time of a handshake in nanoseconds while no functions were traced; `None`: too few were seen.
    pub untraced: Option<f64>,
    /// Handshakes that were ready at the same time.
    pub ready: Ready,
}

/// A process that is watched.
#[derive(Debug)]
struct Process {
    tally: Tally,
    /// Work since its first event.
    paced: Paced,
}

/// Watches TLS servers by events of a tracer.
#[derive(Debug)]
pub struct Watch {
    proc: Proc,
    handshakes: Handshakes,
    processes: HashMap<u32, Process>,
    sampler: Sampler,
    pace: Pace,
    /// Time at which the watch was closed.
    end: Option<u64>,
}

impl Watch {
    /// Begins. `pace` is what was seen before, without traced functions.
    pub fn new(proc: Proc, clock: Clock, pace: Pace) -> Self {
        Self {
            sampler: Sampler::start(proc.clone()),
            proc,
            handshakes: Handshakes::new(clock),
            processes: HashMap::new(),
            pace,
            end: None,
        }
    }

    /// Probes that the watch needs. Functions that call each other are all traced: the innermost has the smallest share
    /// of tracing's cost.
    pub fn want() -> Want {
        Want {
            handshakes_only: false,
            tells: Vec::new(),
            ..Want::handshakes()
        }
    }

    /// Stops counting: later events do not count. Earlier ones may still be taken.
    pub fn close(&mut self) {
        self.refresh();
        self.end = Some(Clock::monotonic());
    }

    /// Takes events that have arrived together.
    pub fn take(&mut self, events: &[Event]) {
        for event in events {
            match event {
                Event::Call(call) => {
                    let end = call.start.saturating_add(call.wall);
                    if let Some(process) = self.process(call.pid, call.start, end) {
                        process.tally.take_call(call);
                    }
                    if call.goes_on() {
                        let looks = &mut self.sampler.seen().looks;
                        looks.take(call.pid, call.object, call.start, end);
                    }
                }
                Event::Bytes(bytes) => {
                    if is_answer(bytes)
                        && let Some(process) = self.process(bytes.pid, bytes.time, bytes.time)
                    {
                        process.paced.answers += 1;
                    }
                    self.sampler.seen().queues.take(bytes);
                }
                Event::Exit { pid } => self.sampler.seen().queues.forget(*pid),
                // These events report Widelane's own handshakes, which need no advice.
                Event::Reached(_) => {}
            }
            let ended = self.handshakes.take(event);
            self.count(&ended);
        }
        let ended = self.handshakes.settle(Clock::monotonic());
        self.count(&ended);
        if self.end.is_none() {
            self.refresh();
        }
    }

    /// Observations of each server until now, the one with the most handshakes first. `loaded` returns whether a
    /// process has loaded Widelane's provider.
    pub fn finish(mut self, loaded: impl Fn(u32) -> bool) -> Vec<Observed> {
        let end = self.end.unwrap_or_else(Clock::monotonic);
        let ended = self.handshakes.finish();
        self.count(&ended);
        let seen = std::mem::take(&mut *self.sampler.seen());
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
            .map(|(program, processes)| self.observed(program, &processes, &seen, end))
            .collect();
        all.sort_by(|one, other| {
            let order = |one: &Observed| (std::cmp::Reverse(one.done), one.program.running.name.clone());
            order(one).cmp(&order(other))
        });
        all
    }

    fn observed(
        &self,
        program: Program,
        processes: &BTreeMap<u32, Process>,
        seen: &QueueSamples,
        end: u64,
    ) -> Observed {
        let mut all = Tally::default();
        let mut loops = BTreeMap::new();
        let (mut ticks, mut since) = (0, end);
        let (mut answers, mut paced, mut paced_ticks) = (0, 0, 0);
        for (&pid, process) in processes {
            all.join(&process.tally);
            let threads = match program.has_loops() {
                true => process.tally.threads.len(),
                false => 1,
            };
            loops.insert(pid, threads);
            ticks += process.paced.ticks();
            since = since.min(process.paced.begin);
            answers += process.paced.answers;
            let before = self.pace.of(pid);
            paced += before.answers;
            paced_ticks += before.ticks();
        }
        let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        // Some of the answered handshakes fail.
        let enough = paced >= FEWEST_ANSWERS && answers > 0 && all.done > 0;
        let untraced = enough.then(|| {
            let each = (paced_ticks * tick) as f64 / paced as f64;
            each * answers as f64 / all.done as f64
        });
        Observed {
            program,
            processes: processes.keys().copied().collect(),
            seconds: end.saturating_sub(since) as f64 / 1e9,
            cpu: ticks * tick,
            untraced,
            done: all.done,
            failed: all.failed,
            as_client: all.as_client,
            kinds: all.kinds.clone(),
            operations: all.operations(),
            calls: all.calls,
            trivial: all.trivial(),
            ready: seen.looks.ready(&loops, &seen.queues.ports),
        }
    }

    /// Looks how much CPU time the processes have used.
    fn refresh(&mut self) {
        for (&pid, process) in &mut self.processes {
            process.paced.refresh(&self.proc, pid);
        }
    }

    /// The process of something that happened, if its CPU time counts: events may come late, and it is not
    /// known how much the process had used then.
    fn process(&mut self, pid: u32, start: u64, end: u64) -> Option<&mut Process> {
        let proc = &self.proc;
        let process = self.processes.entry(pid).or_insert_with(|| Process {
            tally: Tally::default(),
            paced: Paced::from_now(proc, pid),
        });
        let late = self.end.is_some_and(|closed| end > closed);
        (start >= process.paced.begin && !late).then_some(process)
    }

    fn count(&mut self, ended: &[Handshake]) {
        for one in ended {
            let end = one.time.saturating_add(one.wall);
            if let Some(process) = self.process(one.pid, one.time, end) {
                process.tally.take_handshake(one);
            }
        }
    }
}

/// Fewer handshakes than these tell little of what one costs.
const FEWEST_ANSWERS: u64 = 100;
