//! Chooses the next work of each thread.

use widelane_batching::Idle;
use widelane_cpu::licence::Class;
use widelane_cpu::licence::machine::Request;

use super::{Does, Server, Sleep, Target};
use crate::core::{CYCLE, Work};
use crate::placement::Placement;
use crate::plan::is_wide;

impl Server<'_> {
    /// A thread that does nothing looks for something to do.
    pub(super) fn find(&mut self, thread: usize) {
        let state = &self.threads[thread];
        match (state.is_vector, self.policy.ships) {
            (false, _) => self.find_scalar(thread),
            (true, true) if !matches!(state.sleep, Sleep::Lent { .. }) => self.find_pass(thread),
            (true, ships) => {
                let wide = if ships { None } else { self.wide.pop_front() };
                if let Some(task) = wide {
                    self.start(thread, task);
                } else if !self.plan.transfer.lend {
                    // The thread waits for wide work.
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

    fn find_next(&mut self, thread: usize) {
        // The thread's own step may have given it something to do.
        if matches!(self.threads[thread].does, Does::Nothing) {
            self.find(thread);
        }
    }

    /// Lets a thread run a task's present step, or the part of it that may run there.
    pub(super) fn start(&mut self, thread: usize, task: u32) {
        if let (Placement::Widelane, Some(operation)) = (self.plan.placement, self.step(task).operation) {
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

    pub(super) fn ended(&mut self, thread: usize, does: Does) {
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

    fn step_ended(&mut self, thread: usize, task: u32) {
        let is_vector = self.threads[thread].is_vector;
        let borrowed = self.borrowed.iter().position(|&one| one as usize == thread);
        if let Some(place) = borrowed {
            self.borrowed.swap_remove(place);
        }
        if self.tasks[task as usize].left > 0 {
            // The task may stay no longer.
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
}
