//! Chooses where the next step of a request runs: ready for any thread, or on a vector core.

use widelane_batching::{self as batching, Form, Sleeper, VectorCores};

use super::{Does, Server, Sleep, Target, Thread};
use crate::core::CYCLE;
use crate::events::Event;
use crate::placement::Placement;

impl Server<'_> {
    /// Puts a task where its present step can be taken up.
    pub(super) fn route(&mut self, task: u32) {
        match self.target(task) {
            Target::Ready => self.make_ready(task),
            Target::Wide => self.send(task),
            // A pass of the thread that will run it: it has to be on one first.
            Target::Job(_) if !self.policy.ships => self.make_ready(task),
            Target::Job(operation) => self.ship(operation, task),
        }
    }

    pub(super) fn make_ready(&mut self, task: u32) {
        self.ready.push_back(task);
        self.serve_ready();
    }

    fn serve_ready(&mut self) {
        if let Some(thread) = self.idle.pop().or_else(|| self.idle_lent.pop()) {
            self.find(thread as usize);
        }
    }

    /// Sends a task to the vector cores.
    pub(super) fn send(&mut self, task: u32) {
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

    /// Units that the way to a vector core costs, and the same back.
    pub(super) fn way(&self) -> u64 {
        let transfer = &self.plan.transfer;
        let cycles = match (self.plan.placement, self.policy.form) {
            (Placement::MarkedPool, _) | (Placement::Widelane, Form::Pool) => transfer.pool,
            _ => transfer.migration,
        };
        (cycles * CYCLE) as u64
    }

    /// Units for which a thread stays on a vector core after its wide work.
    pub(super) fn stay(&mut self) -> u64 {
        let transfer = &self.plan.transfer;
        match self.plan.placement {
            Placement::FaultSystemCall => (self.random.exponential(transfer.system_call) * CYCLE) as u64,
            Placement::FaultFixedTime => (transfer.fixed_us * 1e3) as u64 * self.clocks[0],
            _ => 0,
        }
    }

    /// A vector core that has nothing to do or can be taken from scalar work.
    fn idle_vector(&mut self) -> Option<usize> {
        if !self.plan.transfer.lend {
            let nothing = |thread: &Thread| thread.is_vector && matches!(thread.does, Does::Nothing);
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
    pub(super) fn reclaim(&mut self, thread: usize) {
        let core = self.core_of(thread);
        self.settle(core);
        let left = self.cores[core].left(self.place_in_core(thread)).unwrap_or(0);
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

    pub(super) fn ship(&mut self, operation: usize, task: u32) {
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
        self.events
            .plan(self.now + self.plan.transfer.wake_ns, Event::Awake { thread });
    }

    pub(super) fn rest(&mut self, thread: usize) {
        let state = &mut self.threads[thread];
        state.sleep = Sleep::Resting { since: self.now };
        state.stamp += 1;
        self.plan_rest(thread, 0);
    }

    fn plan_rest(&mut self, thread: usize, asleep: u64) {
        if !self.plan.transfer.lend {
            return;
        }
        let left = self.threads[thread].idleness.rest_left(asleep, self.has_spare());
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

    pub(super) fn rested(&mut self, thread: usize) {
        let Sleep::Resting { since } = self.threads[thread].sleep else {
            return;
        };
        let asleep = self.now - since;
        let left = self.threads[thread].idleness.rest_left(asleep, self.has_spare());
        if left > 0 {
            return self.plan_rest(thread, asleep);
        }
        self.threads[thread].sleep = Sleep::Lent { since: self.now };
        self.find(thread);
    }
}
