//! The server: events, requests, and which thread does what.
//!
//! Threads are the hyperthreads of all cores; the last cores are vector cores, if the placement has
//! any. Requests that may run on any other thread wait in one queue, `ready`: an ideal balance
//! between event loops. Work for vector cores waits in `wide`, and jobs of shared passes wait in a
//! [`Gatherer`].

use std::collections::VecDeque;

use widelane_batching::{
    self as batching, Clock, Form, Idle, Idleness, Records, Sleeper, TransferCosts, VectorCores,
};
use widelane_cpu::licence::Class;
use widelane_cpu::licence::machine::Request;

use crate::core::{CYCLE, Core, Work};
use crate::events::{Event, Events};
use crate::gatherer::Gatherer;
use crate::outcome::{Flow, Outcome, Times};
use crate::placement::Placement;
use crate::plan::{Arrivals, Plan, Step, is_wide};
use crate::random::Random;
use crate::timeline::Timeline;

/// Simulates a run.
pub fn simulate(plan: &Plan) -> Outcome {
    let mut server = Server::new(plan, None);
    server.run();
    server.outcome()
}

/// Simulates a run and gives what one core does for so many microseconds after the warm-up.
pub fn timeline(plan: &Plan, core: usize, microseconds: u64) -> Timeline {
    let from = (plan.warm_up * 1e9) as u64;
    let core = core.min(plan.cores() - 1);
    let timeline = Timeline::new(core, from, from + microseconds * 1000);
    let mut server = Server::new(plan, Some(timeline));
    server.run();
    server.timeline.take().expect("it was given")
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

/// What the engine's policy decides once, for this processor.
struct Policy {
    clock: Clock,
    /// The first hyperthread of a vector core.
    first_vector: usize,
    ships: bool,
    records: Records,
    form: Form,
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

/// Where a task's step runs.
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
        self.events
            .plan((self.plan.warm_up * 1e9) as u64, Event::Count);
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

    /// What happened until now was the warm-up.
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

    // Requests.

    fn plan_arrival(&mut self) {
        if let Arrivals::Open { rate, burst } = self.plan.arrivals {
            let pause = self.random.exponential(burst as f64 / rate * 1e9);
            self.events.plan(self.now + pause as u64, Event::Arrival);
        }
    }

    fn arrival(&mut self) {
        if let Arrivals::Open { burst, .. } = self.plan.arrivals {
            for _ in 0..burst {
                self.request(0);
            }
        }
        self.plan_arrival();
    }

    fn request(&mut self, connection: u32) {
        let total: f64 = self.plan.kinds.iter().map(|kind| kind.share).sum();
        let mut drawn = self.random.share() * total;
        let kinds = &self.plan.kinds;
        let chosen = kinds.iter().position(|kind| {
            drawn -= kind.share;
            drawn < 0.0
        });
        let task = Task {
            // Rounding may leave a rest.
            kind: chosen.unwrap_or(kinds.len() - 1),
            round: 0,
            step: 0,
            left: 0,
            extra: 0,
            stay: 0,
            connection,
            began: self.now,
            step_began: self.now,
        };
        let task = match self.free.pop() {
            Some(slot) => {
                self.tasks[slot as usize] = task;
                slot
            }
            None => {
                self.tasks.push(task);
                self.tasks.len() as u32 - 1
            }
        };
        self.flow.arrived += 1;
        self.prepare(task);
        self.route(task);
    }

    fn finish(&mut self, task: u32) {
        let Task {
            began, connection, ..
        } = self.tasks[task as usize];
        self.times.requests.record(self.now - began);
        self.flow.finished += 1;
        self.flow.answered += 1;
        self.free.push(task);
        if let Arrivals::Closed { think, .. } = self.plan.arrivals {
            if think > 0.0 {
                let pause = self.random.exponential(think * 1e9) as u64;
                self.events
                    .plan(self.now + pause, Event::Request { connection });
            } else {
                self.request(connection);
            }
        }
    }

    fn step(&self, task: u32) -> &'a Step {
        let task = &self.tasks[task as usize];
        &self.plan.kinds[task.kind].steps[task.step]
    }

    /// Gives a task the units of its present step.
    fn prepare(&mut self, task: u32) {
        let formed = self.formed(self.step(task));
        let cycles = match self.step(task).random {
            true => self.random.exponential(formed.cycles),
            false => formed.cycles,
        };
        let task = &mut self.tasks[task as usize];
        task.left = (cycles * CYCLE) as u64 + std::mem::take(&mut task.extra);
        task.step_began = self.now;
    }

    /// A step in the form that the placement gives it.
    fn formed(&self, step: &Step) -> Formed {
        if let Some(operation) = step.operation {
            // For one request alone; passes have their own cost.
            let operation = &self.plan.operations[operation];
            return match self.plan.placement {
                Placement::AvxOff | Placement::Light256 => Formed {
                    class: Class::Scalar,
                    dense: false,
                    cycles: operation.costs.alone as f64,
                },
                _ => Formed {
                    class: operation.class,
                    dense: operation.dense,
                    cycles: operation.costs.first as f64,
                },
            };
        }
        let own = Formed {
            class: step.class,
            dense: step.dense,
            cycles: step.cycles,
        };
        if !is_wide(step.class) {
            return own;
        }
        let light = || {
            step.light.map(|cycles| Formed {
                class: Class::Light256,
                dense: false,
                cycles,
            })
        };
        let scalar = || {
            step.scalar.map(|cycles| Formed {
                class: Class::Scalar,
                dense: false,
                cycles,
            })
        };
        let formed = match self.plan.placement {
            Placement::AvxOff => scalar(),
            Placement::Light256 => light(),
            Placement::Widelane if self.policy.records != Records::Widest => light(),
            _ => None,
        };
        formed.unwrap_or(own)
    }

    fn is_wide_step(&self, task: u32) -> bool {
        is_wide(self.formed(self.step(task)).class)
    }

    fn target(&self, task: u32) -> Target {
        let step = self.step(task);
        if let (Placement::Widelane, Some(operation)) = (self.plan.placement, step.operation) {
            return Target::Job(operation);
        }
        let vector_cores = match self.plan.placement {
            Placement::Widelane => self.policy.form != Form::Inline,
            placement => placement.needs_vector_cores(),
        };
        match vector_cores && self.is_wide_step(task) {
            true => Target::Wide,
            false => Target::Ready,
        }
    }

    /// Units that the way to a vector core costs, and the same back.
    fn way(&self) -> u64 {
        let transfer = &self.plan.transfer;
        let cycles = match (self.plan.placement, self.policy.form) {
            (Placement::MarkedPool, _) | (Placement::Widelane, Form::Pool) => transfer.pool,
            _ => transfer.migration,
        };
        (cycles * CYCLE) as u64
    }

    /// Puts a task where its present step can be taken up.
    fn route(&mut self, task: u32) {
        match self.target(task) {
            Target::Ready => self.make_ready(task),
            Target::Wide => self.send(task),
            // A pass of the thread that will run it: it has to be on one first.
            Target::Job(_) if !self.policy.ships => self.make_ready(task),
            Target::Job(operation) => self.ship(operation, task),
        }
    }

    fn make_ready(&mut self, task: u32) {
        self.ready.push_back(task);
        self.serve_ready();
    }

    fn serve_ready(&mut self) {
        if let Some(thread) = self.idle.pop().or_else(|| self.idle_lent.pop()) {
            self.find(thread as usize);
        }
    }

    /// Sends a task to the vector cores.
    fn send(&mut self, task: u32) {
        let mut units = self.way();
        if self.plan.placement.traps() {
            units += (self.plan.transfer.fault * CYCLE) as u64;
        }
        self.tasks[task as usize].left += units;
        self.wide.push_back(task);
        if self.policy.ships {
            self.wake();
        } else if let Some(thread) = self.idle_vector() {
            self.find(thread);
        }
    }

    /// A vector core that has nothing to do or can be taken from scalar work.
    fn idle_vector(&mut self) -> Option<usize> {
        if !self.plan.transfer.lend {
            let nothing =
                |thread: &Thread| thread.is_vector && matches!(thread.does, Does::Nothing);
            return self.threads.iter().position(nothing);
        }
        if let Some(thread) = self.idle_lent.pop() {
            return Some(thread as usize);
        }
        let thread = self.borrowed.pop()? as usize;
        self.reclaim(thread);
        Some(thread)
    }

    /// Takes a thread of a vector core away from scalar work, which goes on elsewhere.
    fn reclaim(&mut self, thread: usize) {
        let core = self.core_of(thread);
        self.settle(core);
        let left = self.cores[core]
            .left(self.place_in_core(thread))
            .unwrap_or(0);
        let does = std::mem::replace(&mut self.threads[thread].does, Does::Nothing);
        self.set(thread, None);
        if let Does::Task(task) = does {
            self.flow.taken_back += u128::from(left);
            let way = self.way();
            let task_state = &mut self.tasks[task as usize];
            task_state.left += left + way;
            self.ready.push_front(task);
            if let Some(idle) = self.idle.pop() {
                self.find(idle as usize);
            }
        }
    }

    // Passes of ours.

    fn ship(&mut self, operation: usize, task: u32) {
        self.tasks[task as usize].extra += (self.plan.transfer.queue * CYCLE) as u64;
        self.shipped.push(operation, task);
        self.wake();
    }

    /// Wakes a vector core if the policy says so.
    fn wake(&mut self) {
        let mut cores = VectorCores::default();
        let vector = self.policy.first_vector..self.threads.len();
        for thread in &self.threads[vector.clone()] {
            match thread.sleep {
                Sleep::Searching => cores.searching += 1,
                Sleep::Busy => cores.busy += 1,
                Sleep::Resting { .. } => cores.resting += 1,
                Sleep::Lent { .. } => cores.lent += 1,
            }
        }
        let passes = || self.shipped.passes() + self.wide.len();
        let Some(sleeper) = batching::wake(&cores, passes) else {
            return;
        };
        let lent = sleeper == Sleeper::Lent;
        let is_one = |index: &usize| match self.threads[*index].sleep {
            Sleep::Resting { .. } => !lent,
            Sleep::Lent { .. } => lent,
            Sleep::Searching | Sleep::Busy => false,
        };
        let Some(thread) = vector.into_iter().find(is_one) else {
            return;
        };
        let state = &mut self.threads[thread];
        match state.sleep {
            Sleep::Resting { since } => state.idleness.slept(self.now - since),
            Sleep::Lent { since } => state.idleness.reclaimed(self.now - since),
            Sleep::Searching | Sleep::Busy => {}
        }
        state.sleep = Sleep::Searching;
        state.stamp += 1;
        self.idle_lent.retain(|&lent| lent as usize != thread);
        if let Some(place) = self.borrowed.iter().position(|&one| one as usize == thread) {
            self.borrowed.swap_remove(place);
            self.reclaim(thread);
        }
        let thread = thread as u32;
        self.events.plan(
            self.now + self.plan.transfer.wake_ns,
            Event::Awake { thread },
        );
    }

    fn rest(&mut self, thread: usize) {
        let state = &mut self.threads[thread];
        state.sleep = Sleep::Resting { since: self.now };
        state.stamp += 1;
        self.plan_rest(thread, 0);
    }

    fn plan_rest(&mut self, thread: usize, asleep: u64) {
        if !self.plan.transfer.lend {
            return;
        }
        let left = self.threads[thread]
            .idleness
            .rest_left(asleep, self.has_spare());
        let event = Event::Rested {
            thread: thread as u32,
            stamp: self.threads[thread].stamp,
        };
        self.events.plan(self.now + left, event);
    }

    fn has_spare(&self) -> bool {
        let awake = |thread: &&Thread| !matches!(thread.sleep, Sleep::Lent { .. });
        let vector = &self.threads[self.policy.first_vector..];
        let resting = vector.iter().filter(awake).count();
        let cores = VectorCores {
            resting,
            ..VectorCores::default()
        };
        cores.has_spare()
    }

    fn rested(&mut self, thread: usize) {
        let Sleep::Resting { since } = self.threads[thread].sleep else {
            return;
        };
        let asleep = self.now - since;
        let left = self.threads[thread]
            .idleness
            .rest_left(asleep, self.has_spare());
        if left > 0 {
            return self.plan_rest(thread, asleep);
        }
        self.threads[thread].sleep = Sleep::Lent { since: self.now };
        self.find(thread);
    }

    // Threads.

    fn core_of(&self, thread: usize) -> usize {
        thread / self.plan.machine.threads
    }

    fn place_in_core(&self, thread: usize) -> usize {
        thread % self.plan.machine.threads
    }

    /// A thread that does nothing looks for something to do.
    fn find(&mut self, thread: usize) {
        let state = &self.threads[thread];
        match (state.is_vector, self.policy.ships) {
            (false, _) => self.find_scalar(thread),
            (true, true) if !matches!(state.sleep, Sleep::Lent { .. }) => self.find_pass(thread),
            (true, ships) => {
                let wide = if ships { None } else { self.wide.pop_front() };
                if let Some(task) = wide {
                    self.start(thread, task);
                } else if !self.plan.transfer.lend {
                    // It waits for wide work.
                } else if let Some(task) = self.ready.pop_front() {
                    self.borrowed.push(thread as u32);
                    self.start(thread, task);
                } else {
                    self.idle_lent.push(thread as u32);
                }
            }
        }
    }

    fn find_scalar(&mut self, thread: usize) {
        let own = &mut self.threads[thread].gatherer;
        if let Some((operation, tasks)) = own.next(Idle::No) {
            self.start_pass(thread, operation, tasks);
        } else if let Some(task) = self.ready.pop_front() {
            self.start(thread, task);
        } else if let Some((operation, tasks)) = self.threads[thread].gatherer.next(Idle::Yes) {
            self.start_pass(thread, operation, tasks);
        } else {
            self.idle.push(thread as u32);
        }
    }

    fn find_pass(&mut self, thread: usize) {
        self.threads[thread].sleep = Sleep::Busy;
        if let Some((operation, tasks)) = self.shipped.next(Idle::Yes) {
            self.start_pass(thread, operation, tasks);
        } else if let Some(task) = self.wide.pop_front() {
            self.start(thread, task);
        } else {
            self.rest(thread);
        }
    }

    /// Lets a thread run a task's present step, or the part of it that may run there.
    fn start(&mut self, thread: usize, task: u32) {
        if let (Placement::Widelane, Some(operation)) =
            (self.plan.placement, self.step(task).operation)
        {
            // The thread gathers it and looks again: others may join it.
            self.threads[thread].gatherer.push(operation, task);
            return self.find(thread);
        }
        let formed = self.formed(self.step(task));
        let captive = self.plan.placement.traps()
            && self.threads[thread].is_vector
            && !is_wide(formed.class)
            && !self.borrowed.contains(&(thread as u32));
        let state = &mut self.tasks[task as usize];
        let now = match captive {
            true => state.left.min(state.stay),
            false => state.left,
        };
        state.left -= now;
        state.stay -= if captive { now } else { 0 };
        self.threads[thread].does = Does::Task(task);
        self.work(thread, now, formed.class, formed.dense);
    }

    fn start_pass(&mut self, thread: usize, operation: usize, tasks: Vec<u32>) {
        let operation = &self.plan.operations[operation];
        let costs = &operation.costs;
        let alone = tasks.len() < costs.worth();
        let (class, cycles) = match alone {
            true => (Class::Scalar, costs.alone * tasks.len() as u64),
            false => (operation.class, costs.pass(tasks.len())),
        };
        self.flow.passes += u64::from(!alone);
        self.flow.jobs += if alone { 0 } else { tasks.len() as u64 };
        let dense = operation.dense;
        self.threads[thread].does = Does::Pass(tasks);
        self.work(thread, cycles * CYCLE as u64, class, dense);
    }

    fn work(&mut self, thread: usize, units: u64, class: Class, dense: bool) {
        self.flow.begun += u128::from(units);
        let core = self.core_of(thread);
        self.settle(core);
        let work = Work {
            left: Some(units),
            request: Request::of(class, dense),
            wide: is_wide(class),
        };
        self.set(thread, Some(work));
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

    fn ended(&mut self, thread: usize, does: Does) {
        match does {
            Does::Task(task) => self.step_ended(thread, task),
            Does::Pass(tasks) => {
                let pool = self.threads[thread].is_vector;
                for task in tasks {
                    self.time_step(task);
                    if self.advance(task).is_some() {
                        if pool {
                            let units = (self.plan.transfer.queue * CYCLE) as u64;
                            self.tasks[task as usize].left += units;
                        }
                        self.route(task);
                    }
                }
                self.find_next(thread);
            }
            Does::Nothing | Does::Background => {}
        }
    }

    fn find_next(&mut self, thread: usize) {
        // What the thread brought about may have given it something to do.
        if matches!(self.threads[thread].does, Does::Nothing) {
            self.find(thread);
        }
    }

    fn step_ended(&mut self, thread: usize, task: u32) {
        let is_vector = self.threads[thread].is_vector;
        let borrowed = self.borrowed.iter().position(|&one| one as usize == thread);
        if let Some(place) = borrowed {
            self.borrowed.swap_remove(place);
        }
        if self.tasks[task as usize].left > 0 {
            // It may stay no longer.
            self.tasks[task as usize].left += self.way();
            self.make_ready(task);
            return self.find_next(thread);
        }
        self.time_step(task);
        let was_wide = self.is_wide_step(task);
        let Some(same_round) = self.advance(task) else {
            return self.find_next(thread);
        };
        let captive = is_vector && borrowed.is_none();
        match self.target(task) {
            Target::Wide if is_vector && same_round && !self.policy.ships => {
                self.start(thread, task);
            }
            Target::Ready if captive => {
                if was_wide {
                    self.tasks[task as usize].stay = self.stay();
                }
                // A round ends with a system call, as an event loop writes and waits.
                let goes_on = same_round || self.plan.placement == Placement::FaultFixedTime;
                if self.tasks[task as usize].stay > 0 && goes_on {
                    self.start(thread, task);
                } else {
                    let way = self.way();
                    let state = &mut self.tasks[task as usize];
                    state.stay = 0;
                    state.left += way;
                    self.make_ready(task);
                    self.find_next(thread);
                }
            }
            Target::Ready if same_round && (borrowed.is_none() || self.wide.is_empty()) => {
                if borrowed.is_some() {
                    self.borrowed.push(thread as u32);
                }
                self.start(thread, task);
            }
            Target::Job(_) if !self.policy.ships => self.start(thread, task),
            _ => {
                self.route(task);
                self.find_next(thread);
            }
        }
    }

    /// Moves a task to its next step. `None`: the request is finished; else whether the step is in
    /// the same round.
    fn advance(&mut self, task: u32) -> Option<bool> {
        let state = &mut self.tasks[task as usize];
        let kind = &self.plan.kinds[state.kind];
        state.step += 1;
        let same_round = state.step < kind.steps.len();
        if !same_round {
            state.step = 0;
            state.round += 1;
            if state.round == kind.rounds {
                self.finish(task);
                return None;
            }
        }
        self.prepare(task);
        Some(same_round)
    }

    /// For how many units a thread stays on a vector core after its wide work.
    fn stay(&mut self) -> u64 {
        let transfer = &self.plan.transfer;
        match self.plan.placement {
            Placement::FaultSystemCall => {
                (self.random.exponential(transfer.system_call) * CYCLE) as u64
            }
            Placement::FaultFixedTime => (transfer.fixed_us * 1e3) as u64 * self.clocks[0],
            _ => 0,
        }
    }

    fn time_step(&mut self, task: u32) {
        if self.step(task).timed {
            let began = self.tasks[task as usize].step_began;
            self.times.steps.record(self.now - began);
        }
    }

    // Cores.

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
            timeline.note(
                core,
                self.now,
                shown,
                self.clocks,
                self.cores[core].is_wide(),
            );
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

impl Policy {
    fn of(plan: &Plan) -> Self {
        let clock = plan.clock();
        let transfer = &plan.transfer;
        let (candidates, cores) = (transfer.vector_cores, plan.machine.cores);
        let others = cores.saturating_sub(candidates);
        let ours = plan.placement == Placement::Widelane;
        let placed = batching::place(&clock, candidates, others);
        let ships = ours && placed == batching::Placement::VectorCores;
        let khz = plan.machine.all_active()[0];
        let ns = |cycles: f64| (cycles * CYCLE) as u64 / khz.max(1);
        let costs = TransferCosts {
            pool: Some(2 * ns(transfer.pool) + transfer.wake_ns),
            migrate: Some(2 * ns(transfer.migration)),
        };
        let vector_cores = match ships || plan.placement.needs_vector_cores() {
            true => candidates,
            false => 0,
        };
        Self {
            first_vector: (cores - vector_cores) * plan.machine.threads,
            ships,
            records: match ours {
                true => batching::records(&clock),
                false => Records::Widest,
            },
            form: match ours {
                true => batching::form(&clock, candidates, others, &costs),
                false => Form::Inline,
            },
            clock,
        }
    }
}

/// How often the processor looks how many cores are active: assumed.
const ACTIVITY: u64 = 1_000_000;
/// While so many other cores change their level, a change takes longer.
const CROWD: usize = 2;
