//! Requests that wait for passes in one place, and the engine's policy about them.

use std::collections::VecDeque;

use widelane_batching::{Idle, Waiting, next_pass};

use crate::plan::Operation;

/// The jobs that wait in one place.
pub(crate) struct Gatherer {
    queues: Vec<VecDeque<(u64, u32)>>,
    waiting: Vec<Waiting>,
    /// Jobs that ever came here.
    count: u64,
}

impl Gatherer {
    pub(crate) fn new(operations: &[Operation]) -> Self {
        let waiting = operations.iter().map(|operation| Waiting {
            lanes: operation.costs.lanes,
            worth: operation.costs.worth(),
            jobs: 0,
            oldest: 0,
            cost: operation.costs.first,
        });
        Self {
            queues: vec![VecDeque::new(); operations.len()],
            waiting: waiting.collect(),
            count: 0,
        }
    }

    pub(crate) fn push(&mut self, operation: usize, task: u32) {
        self.queues[operation].push_back((self.count, task));
        self.count += 1;
        self.refresh(operation);
    }

    /// The next pass: its operation and the tasks in it.
    pub(crate) fn next(&mut self, idle: Idle) -> Option<(usize, Vec<u32>)> {
        let pass = next_pass(&self.waiting, idle, self.count)?;
        let queue = &mut self.queues[pass.operation];
        let tasks = queue.drain(..pass.jobs).map(|(_, task)| task).collect();
        self.refresh(pass.operation);
        Some((pass.operation, tasks))
    }

    /// Passes that an idle core would run for what waits.
    pub(crate) fn passes(&self) -> usize {
        self.waiting.iter().map(widelane_batching::passes).sum()
    }

    fn refresh(&mut self, operation: usize) {
        let queue = &self.queues[operation];
        let waiting = &mut self.waiting[operation];
        waiting.jobs = queue.len();
        waiting.oldest = queue.front().map_or(0, |(sequence, _)| *sequence);
    }
}
