//! The threads behind `vector-cores`: each pinned to a CPU, fed by the queues of all workers.

use std::sync::Arc;
use std::time::Instant;

use widelane_batching::{self as batching, Idle, Waiting};

use crate::StartError;
use crate::core;
use crate::engine::Shared;
use crate::line::{AnyLine, ReadyPass};
use crate::sync::{contain, spin_hint, thread};

/// Starts a thread for CPU `cpu` and returns once it is pinned.
#[cfg(not(loom))]
pub(crate) fn start(cpu: usize, shared: Arc<Shared>) -> Result<thread::JoinHandle<()>, StartError> {
    let (report, pinned) = std::sync::mpsc::sync_channel(1);
    let thread = thread::Builder::new()
        .name(format!("vector-{cpu}"))
        .spawn(move || {
            let result = widelane_affinity::pin(cpu);
            let failed = result.is_err();
            // The starter waits for this one message, so it cannot have gone.
            let _ = report.send(result);
            if !failed {
                serve(cpu, &shared);
            }
        })
        .map_err(|source| StartError::Spawn { cpu, source })?;
    match pinned.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(source)) => Err(StartError::Pin { cpu, source }),
        Err(_) => Err(StartError::Spawn {
            cpu,
            source: std::io::Error::other("it died at once"),
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
                // What may panic is contained where it is called; this keeps the core alive if
                // dropping a request or an unread output panics.
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
/// call, and in a busy server the next job is only microseconds away.
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

/// What one vector core knows of the queues.
///
/// A lock-free queue does not tell how long its first job has waited, so each core orders
/// operations by when it first saw them waiting since it last served them. Its sequence counts the
/// jobs it ran.
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
            }
            let pass = batching::next_pass(&self.waiting, Idle::Yes, self.ran)?;
            // Served: what is left counts as newly seen.
            self.waiting[pass.operation].jobs = 0;
            if let Some(ready) = Arc::clone(&self.lines[pass.operation]).take_queued(pass.jobs) {
                self.ran += pass.jobs as u64;
                return Some(ready);
            }
            // Another core was faster, or the jobs were cancelled: look again.
        }
    }
}

/// Some ten microseconds of pause instructions in all, a fraction of any pass.
#[cfg(not(loom))]
const SPIN_ROUNDS: usize = 32;
#[cfg(loom)]
const SPIN_ROUNDS: usize = 0;
const SPINS_A_ROUND: usize = 16;
