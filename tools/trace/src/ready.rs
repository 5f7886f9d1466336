//! Keeps the kernel ready to make probes.
//!
//! Before it makes or removes a probe, the kernel waits until each CPU has noticed it (a grace period of
//! RCU, ten milliseconds and more), unless it has done so for another one in the last few milliseconds. A
//! client may be done meanwhile. While such clients come, a probe is made and removed every few
//! milliseconds, in a file that no process has mapped, so that none meets it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use widelane_bpf::{MultiProgram, Point};

/// Threads that make and remove probes for a while.
pub(crate) struct Ready {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Time at which a process was expected last.
    last: Option<Instant>,
}

struct Shared {
    program: Arc<MultiProgram>,
    file: OwnedFd,
    state: Mutex<State>,
}

struct State {
    until: Instant,
    /// True for each thread that will see a later `until`.
    running: [bool; THREADS],
}

impl Ready {
    /// No thread runs yet. None: there is no memory for a file.
    pub(crate) fn new(program: Arc<MultiProgram>) -> Option<Self> {
        let file = memfd_create("widelane", MemfdFlags::CLOEXEC).ok()?;
        ftruncate(&file, 1).ok()?;
        let state = Mutex::new(State {
            until: Instant::now(),
            running: [false; THREADS],
        });
        let shared = Shared { program, file, state };
        Some(Self {
            shared: Arc::new(shared),
            threads: Vec::new(),
            last: None,
        })
    }

    /// Stays ready from now on for a while: another process is expected soon, if the last one was a moment ago.
    pub(crate) fn stay(&mut self) {
        self.threads.retain(|thread| !thread.is_finished());
        let start = Instant::now();
        let before = self.last.replace(start);
        if before.is_none_or(|before| start - before > STAYS) {
            return;
        }
        let mut state = self.shared.state();
        state.until = start + STAYS;
        for (number, running) in state.running.iter_mut().enumerate() {
            if !std::mem::replace(running, true) {
                let shared = Arc::clone(&self.shared);
                let run = move || shared.run(number, start);
                // Without a thread the kernel is less ready, and nothing is lost.
                match thread::Builder::new().spawn(run) {
                    Ok(thread) => self.threads.push(thread),
                    Err(_) => *running = false,
                }
            }
        }
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        self.shared.state().until = Instant::now();
        for thread in self.threads.drain(..) {
            // The thread cannot fail in a way that matters.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Makes probes at its turns, of which each thread has one in [`THREADS`] steps: to remove one takes
    /// several steps.
    fn run(&self, number: usize, start: Instant) {
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        let point = Point { offset: 0, cookie: 0 };
        let mut turn = start + STEP * number as u32;
        loop {
            let now = Instant::now();
            let mut state = self.state();
            if state.until <= now {
                state.running[number] = false;
                return;
            }
            drop(state);
            while turn < now {
                turn += STEP * THREADS as u32;
            }
            thread::sleep(turn.saturating_duration_since(now));
            // If it cannot be made, the kernel is less ready, and nothing is lost.
            drop(self.program.attach(0, &path, &[point]));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shorter than the kernel's shortest grace period at 250 ticks a second.
const STEP: Duration = Duration::from_millis(5);
/// Enough steps for the removal of a probe.
const THREADS: usize = 6;
/// Longer than the pauses between the clients of most loops.
const STAYS: Duration = Duration::from_secs(2);
