//! Requests: how they come, and what their steps are.

use widelane_batching::{Form, Records};
use widelane_cpu::licence::Class;

use super::{Formed, Server, Target, Task};
use crate::core::CYCLE;
use crate::events::Event;
use crate::placement::Placement;
use crate::plan::{Arrivals, Step, is_wide};

impl<'a> Server<'a> {
    pub(super) fn plan_arrival(&mut self) {
        if let Arrivals::Open { rate, burst } = self.plan.arrivals {
            let pause = self.random.exponential(burst as f64 / rate * 1e9);
            self.events.plan(self.now + pause as u64, Event::Arrival);
        }
    }

    pub(super) fn arrival(&mut self) {
        if let Arrivals::Open { burst, .. } = self.plan.arrivals {
            for _ in 0..burst {
                self.request(0);
            }
        }
        self.plan_arrival();
    }

    pub(super) fn request(&mut self, connection: u32) {
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
        let Task { began, connection, .. } = self.tasks[task as usize];
        self.times.requests.record(self.now - began);
        self.flow.finished += 1;
        self.flow.answered += 1;
        self.free.push(task);
        if let Arrivals::Closed { think, .. } = self.plan.arrivals {
            if think > 0.0 {
                let pause = self.random.exponential(think * 1e9) as u64;
                self.events.plan(self.now + pause, Event::Request { connection });
            } else {
                self.request(connection);
            }
        }
    }

    pub(super) fn step(&self, task: u32) -> &'a Step {
        let task = &self.tasks[task as usize];
        &self.plan.kinds[task.kind].steps[task.step]
    }

    /// Gives a task the units of its present step.
    pub(super) fn prepare(&mut self, task: u32) {
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
    pub(super) fn formed(&self, step: &Step) -> Formed {
        let formed = |class, dense, cycles| Formed { class, dense, cycles };
        if let Some(operation) = step.operation {
            // For one request alone; passes have their own cost.
            let operation = &self.plan.operations[operation];
            return match self.plan.placement {
                Placement::AvxOff | Placement::Light256 => formed(Class::Scalar, false, operation.costs.alone as f64),
                _ => formed(operation.class, operation.dense, operation.costs.first as f64),
            };
        }
        let own = formed(step.class, step.dense, step.cycles);
        let (class, cycles) = match self.plan.placement {
            _ if !is_wide(step.class) => return own,
            Placement::AvxOff => (Class::Scalar, step.scalar),
            Placement::Light256 => (Class::Light256, step.light),
            Placement::Widelane if self.policy.records != Records::Widest => (Class::Light256, step.light),
            _ => return own,
        };
        cycles.map_or(own, |cycles| formed(class, false, cycles))
    }

    pub(super) fn is_wide_step(&self, task: u32) -> bool {
        is_wide(self.formed(self.step(task)).class)
    }

    pub(super) fn target(&self, task: u32) -> Target {
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

    /// Moves a task to its next step. `None`: the request is finished; else whether the step is in
    /// the same round.
    pub(super) fn advance(&mut self, task: u32) -> Option<bool> {
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

    pub(super) fn time_step(&mut self, task: u32) {
        if self.step(task).timed {
            let began = self.tasks[task as usize].step_began;
            self.times.steps.record(self.now - began);
        }
    }
}
