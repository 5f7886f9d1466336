//! The threads of the placement `vector-cores`: each is pinned to a CPU and serves the queues of
//! all workers.

use std::sync::Arc;
use std::time::Instant;

#[cfg(not(loom))]
use widelane_affinity::without_signals;
use widelane_batching::{self as batching, Idle, Waiting};

use crate::core;
use crate::error::StartError;
use crate::line::{AnyLine, ReadyPass};
use crate::shared::Shared;
use crate::sync::{contain, spin_hint, thread};

/// Starts a thread for CPU `cpu` and returns once it is pinned.
#[cfg(not(loom))]
pub(crate) fn start(cpu: usize, shared: Arc<Shared>) -> Result<thread::JoinHandle<()>, StartError> {
    let (report, pinned) = std::sync::mpsc::sync_channel(1);
    let body = move || {
        let result = widelane_affinity::pin(cpu);
        let failed = result.is_err();
        // The starter waits for this message, so the channel is open.
        let _ = report.send(result);
        if !failed {
            serve(cpu, &shared);
        }
    };
    let thread = thread::Builder::new().name(format!("vector-{cpu}"));
    let thread = without_signals(|| thread.spawn(body));
    let thread = thread.map_err(|source| StartError::Spawn { cpu, source })?;
    match pinned.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(source)) => Err(StartError::Pin { cpu, source }),
        Err(_) => Err(StartError::Spawn {
            cpu,
            source: std::io::Error::other("the thread ended at once"),
        }),
    }
}

#[cfg(loom)]
pub(crate) fn start(cpu: usize, shared: Arc<Shared>) -> Result<thread::JoinHandle<()>, StartError> {
    Ok(thread::spawn(move || serve(cpu, &shared)))
}

/// Runs passes until the engine closes and nothing is left in the queues.
fn serve(cpu: usize, shared: &Shared) {
    core::dedicate();
    let mut core = shared.vector_core(cpu);
    let sleepers = &shared.sleepers;
    let mut view = View::new(&shared.registry.lines);
    sleepers.start_searching();
    loop {
        if let Some(pass) = view.next_pass() {
            sleepers.found(|| shared.passes_queued());
            let began = Instant::now();
            let mut next = Some(pass);
            while let Some(pass) = next {
                // Panics of operations and wakers are contained where they are called. This keeps
                // the core alive if dropping a request or an unread output panics.
                contain(|| {
                    pass();
                });
                next = view.next_pass();
            }
            core.worked(began.elapsed());
            sleepers.start_searching();
        } else if shared.is_closed() {
            break;
        } else if !spin(shared) {
            sleepers.sleep(&mut core, || shared.is_closed() || shared.anything_queued());
        }
    }
    sleepers.found(|| 0);
}

/// Looks for work a little longer before the core sleeps: a wake-up costs the submitter a system
/// call, and on a busy server the next job comes within microseconds.
fn spin(shared: &Shared) -> bool {
    for _ in 0..SPIN_ROUNDS {
        for _ in 0..SPINS_A_ROUND {
            spin_hint();
        }
        if shared.anything_queued() || shared.is_closed() {
            return true;
        }
    }
    false
}

/// View that one vector core has of the queues.
///
/// A lock-free queue does not tell for how long its first job has waited. So each core orders
/// operations by the moment at which it first saw them waiting after it last served them. Its
/// sequence numbers count the jobs that it ran.
struct View<'a> {
    lines: &'a [Arc<dyn AnyLine>],
    waiting: Vec<Waiting>,
    ran: u64,
}

impl<'a> View<'a> {
    fn new(lines: &'a [Arc<dyn AnyLine>]) -> Self {
        Self {
            lines,
            waiting: lines.iter().map(|line| line.waiting()).collect(),
            ran: 0,
        }
    }

    /// Takes the next pass out of the queues.
    fn next_pass(&mut self) -> Option<ReadyPass> {
        loop {
            for (line, waiting) in self.lines.iter().zip(&mut self.waiting) {
                let jobs = line.queued();
                if waiting.jobs == 0 {
                    waiting.oldest = self.ran;
                }
                waiting.jobs = jobs;
                waiting.worth = line.worth();
                waiting.cost = line.cost();
            }
            let pass = batching::next_pass(&self.waiting, Idle::Yes, self.ran)?;
            // Served: the jobs that are left count as newly seen.
            self.waiting[pass.operation].jobs = 0;
            if let Some(ready) = Arc::clone(&self.lines[pass.operation]).take_queued(pass.jobs) {
                self.ran += pass.jobs as u64;
                return Some(ready);
            }
            // Another core took the jobs, or they were cancelled: look again.
        }
    }
}

/// About ten microseconds of pause instructions in total, a fraction of any pass.
#[cfg(not(loom))]
const SPIN_ROUNDS: usize = 32;
#[cfg(loom)]
const SPIN_ROUNDS: usize = 0;
const SPINS_A_ROUND: usize = 16;
