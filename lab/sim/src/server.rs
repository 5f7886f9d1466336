//! The server: events, requests, and which thread does what.
//!
//! Threads are the hyperthreads of all cores; the last cores are vector cores, if the placement has
//! any. Requests that may run on any other thread wait in one queue, `ready`: an ideal balance
//! between event loops. Work for vector cores waits in `wide`, and jobs of shared passes wait in a
//! [`Gatherer`].

mod policy;
mod requests;
mod threads;
mod vector_cores;

use std::collections::VecDeque;

use widelane_batching::{self as batching, Idleness};
use widelane_cpu::licence::Class;
use widelane_cpu::licence::machine::Request;

use crate::core::{Core, Work};
use crate::events::{Event, Events};
use crate::gatherer::Gatherer;
use crate::outcome::{Flow, Outcome, Times};
use crate::plan::{Arrivals, Plan, is_wide};
use crate::random::Random;
use crate::timeline::{Span, Timeline};
use policy::Policy;

/// Simulates a run.
pub fn simulate(plan: &Plan) -> Outcome {
    let mut server = Server::new(plan, None);
    server.run();
    server.outcome()
}

/// Simulates a run and returns the work of one core for `microseconds` after the warm-up.
pub fn timeline(plan: &Plan, core: usize, microseconds: u64) -> Vec<Span> {
    let from = (plan.warm_up * 1e9) as u64;
    let core = core.min(plan.cores() - 1);
    let timeline = Timeline::new(core, from, from + microseconds * 1000);
    let mut server = Server::new(plan, Some(timeline));
    server.run();
    let timeline = server.timeline.take();
    timeline.expect("it was given").spans()
}

struct Server<'a> {
    plan: &'a Plan,
    policy: Policy,
    now: u64,
    end: u64,
    events: Events,
    random: Random,
    cores: Vec<Core>,
    clocks: [u64; 3],
    /// Cores on their way to another level.
    changing: usize,
    threads: Vec<Thread>,
    tasks: Vec<Task>,
    free: Vec<u32>,
    ready: VecDeque<u32>,
    wide: VecDeque<u32>,
    /// Threads of other cores that have nothing to do.
    idle: Vec<u32>,
    /// Threads of vector cores that may do scalar work and have nothing to do.
    idle_lent: Vec<u32>,
    /// Threads of vector cores that do scalar work.
    borrowed: Vec<u32>,
    shipped: Gatherer,
    times: Times,
    flow: Flow,
    counted_from: u64,
    timeline: Option<Timeline>,
}

struct Thread {
    does: Does,
    is_vector: bool,
    gatherer: Gatherer,
    sleep: Sleep,
    idleness: Idleness,
    stamp: u32,
}

enum Does {
    Nothing,
    Task(u32),
    Pass(Vec<u32>),
    Background,
}

/// A vector core of ours.
#[derive(Clone, Copy, PartialEq)]
enum Sleep {
    /// Awake, or about to be.
    Searching,
    Busy,
    Resting {
        since: u64,
    },
    Lent {
        since: u64,
    },
}

/// A request.
struct Task {
    kind: usize,
    round: u32,
    step: usize,
    /// Units of the present step.
    left: u64,
    /// Units that moving it about added to its next step.
    extra: u64,
    /// Units for which it may stay on a vector core with scalar work.
    stay: u64,
    connection: u32,
    began: u64,
    step_began: u64,
}

/// Place where a task's step runs.
enum Target {
    Ready,
    Wide,
    Job(usize),
}

/// A step in the form that the placement gives it.
struct Formed {
    class: Class,
    dense: bool,
    cycles: f64,
}

impl<'a> Server<'a> {
    fn new(plan: &'a Plan, timeline: Option<Timeline>) -> Self {
        let policy = Policy::of(plan);
        let clocks = plan.machine.all_active();
        let mut random = Random::new(plan.seed);
        let mut seed = || (random.share() * u64::MAX as f64) as u64;
        let core = |_| Core::new(&plan.machine, clocks, seed());
        let cores = (0..plan.machine.cores).map(core).collect();
        let threads = plan.machine.cores * plan.machine.threads;
        let thread = |index: usize| Thread {
            does: Does::Nothing,
            is_vector: index >= policy.first_vector,
            gatherer: Gatherer::new(&plan.operations),
            sleep: Sleep::Resting { since: 0 },
            idleness: Idleness::new(batching::usual_rest(&policy.clock), &policy.clock),
            stamp: 0,
        };
        Self {
            plan,
            now: 0,
            end: ((plan.warm_up + plan.seconds) * 1e9) as u64,
            events: Events::default(),
            random,
            cores,
            clocks,
            changing: 0,
            threads: (0..threads).map(thread).collect(),
            tasks: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            wide: VecDeque::new(),
            idle: Vec::new(),
            idle_lent: Vec::new(),
            borrowed: Vec::new(),
            shipped: Gatherer::new(&plan.operations),
            times: Times::default(),
            flow: Flow::default(),
            counted_from: 0,
            timeline,
            policy,
        }
    }

    fn run(&mut self) {
        self.begin();
        while let Some((time, event)) = self.events.next() {
            if time > self.end {
                break;
            }
            self.now = time;
            self.flow.events += 1;
            match event {
                Event::Core { core, stamp } => {
                    if self.cores[core as usize].stamp == stamp {
                        self.core(core as usize);
                    }
                }
                Event::Arrival => self.arrival(),
                Event::Request { connection } => self.request(connection),
                Event::Awake { thread } => self.find(thread as usize),
                Event::Rested { thread, stamp } => {
                    if self.threads[thread as usize].stamp == stamp {
                        self.rested(thread as usize);
                    }
                }
                Event::Activity => self.activity(),
                Event::Count => self.count(),
            }
        }
        self.now = self.end;
        for core in &mut self.cores {
            core.settle(self.end);
        }
    }

    fn begin(&mut self) {
        self.events.plan((self.plan.warm_up * 1e9) as u64, Event::Count);
        if self.plan.machine.follows_activity() {
            self.events.plan(ACTIVITY, Event::Activity);
        }
        for thread in (0..self.threads.len()).rev() {
            if let Some(class) = self.background(thread) {
                self.threads[thread].does = Does::Background;
                let work = Work {
                    left: None,
                    request: Request::of(class, true),
                    wide: is_wide(class),
                };
                self.set(thread, Some(work));
            } else if !self.threads[thread].is_vector {
                self.idle.push(thread as u32);
            } else if self.policy.ships {
                self.rest(thread);
            } else if self.plan.transfer.lend {
                self.idle_lent.push(thread as u32);
            }
        }
        match self.plan.arrivals {
            Arrivals::Closed { connections, .. } => {
                for connection in 0..connections as u32 {
                    self.request(connection);
                }
            }
            Arrivals::Open { .. } => self.plan_arrival(),
        }
    }

    fn background(&self, thread: usize) -> Option<Class> {
        let (of_core, classes) = self.plan.background.as_ref()?;
        let threads = self.plan.machine.threads;
        (thread % threads == *of_core).then(|| classes[thread / threads % classes.len()])
    }

    /// Ends the warm-up: drops the counts so far.
    fn count(&mut self) {
        for core in &mut self.cores {
            core.settle(self.now);
            core.account = Default::default();
        }
        self.times = Times::default();
        self.flow.finished = 0;
        self.counted_from = self.now;
        for core in 0..self.cores.len() {
            self.plan_core(core);
        }
    }

    fn activity(&mut self) {
        let active = self.cores.iter().filter(|core| core.is_busy()).count();
        let clocks = self.plan.machine.clocks(active.max(1));
        if clocks != self.clocks {
            self.clocks = clocks;
            for core in 0..self.cores.len() {
                self.settle(core);
                self.cores[core].set_clocks(clocks);
                self.plan_core(core);
            }
        }
        self.events.plan(self.now + ACTIVITY, Event::Activity);
    }

    fn core_of(&self, thread: usize) -> usize {
        thread / self.plan.machine.threads
    }

    fn place_in_core(&self, thread: usize) -> usize {
        thread % self.plan.machine.threads
    }

    /// A core ended a work or changed its speed.
    fn core(&mut self, core: usize) {
        self.settle(core);
        let threads = self.plan.machine.threads;
        for place in 0..threads {
            if self.cores[core].left(place) == Some(0) {
                let thread = core * threads + place;
                let does = std::mem::replace(&mut self.threads[thread].does, Does::Nothing);
                self.set(thread, None);
                self.ended(thread, does);
            }
        }
        self.plan_core(core);
    }

    fn settle(&mut self, core: usize) {
        let before = self.cores[core].is_changing();
        self.cores[core].settle(self.now);
        self.changed(core, before);
    }

    fn set(&mut self, thread: usize, work: Option<Work>) {
        let (core, place) = (self.core_of(thread), self.place_in_core(thread));
        let before = self.cores[core].is_changing();
        let others = self.changing - usize::from(before);
        self.cores[core].set(place, work, others >= CROWD);
        self.changed(core, before);
        self.plan_core(core);
    }

    fn changed(&mut self, core: usize, before: bool) {
        let after = self.cores[core].is_changing();
        self.changing = self.changing + usize::from(after) - usize::from(before);
        if let Some(timeline) = &mut self.timeline {
            let shown = self.cores[core].shown();
            timeline.note(core, self.now, shown, self.clocks, self.cores[core].is_wide());
        }
    }

    fn plan_core(&mut self, core: usize) {
        let state = &mut self.cores[core];
        state.stamp = state.stamp.wrapping_add(1);
        if let Some(next) = state.next() {
            let event = Event::Core {
                core: core as u32,
                stamp: state.stamp,
            };
            self.events.plan(next.max(self.now), event);
        }
    }

    fn outcome(&mut self) -> Outcome {
        let accounts: Vec<_> = self.cores.iter().map(|core| core.account).collect();
        let left = (0..self.threads.len())
            .filter_map(|thread| self.cores[self.core_of(thread)].left(self.place_in_core(thread)));
        self.flow.left = left.map(u128::from).sum();
        let waiting = self.tasks.len() - self.free.len();
        Outcome::new(
            self.plan,
            (self.counted_from, self.end),
            accounts,
            std::mem::take(&mut self.times),
            self.flow,
            waiting as u64,
        )
    }
}

/// Period in nanoseconds in which the processor looks how many cores are active: assumed.
const ACTIVITY: u64 = 1_000_000;
/// Number of other cores that change their level from which on a change takes longer.
const CROWD: usize = 2;
