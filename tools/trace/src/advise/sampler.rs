//! Looks at queues from a thread of its own: not when the tracer has time, which depends on what it sees.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use widelane_threads::Proc;

use super::queues::Queues;
use super::ready::Looks;
use crate::clock::Clock;

/// The thread, and what it has seen. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and the tracer's share.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) queues: Queues,
    pub(super) looks: Looks,
}

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Seen>,
    ended: AtomicBool,
}

impl Sampler {
    /// Starts to look. Without a thread, nothing is seen.
    pub(super) fn start(proc: Proc) -> Self {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let builder = thread::Builder::new().name("queues".to_owned());
        let thread = builder.spawn(move || of_thread.run(&proc)).ok();
        Self { shared, thread }
    }

    /// What was seen until now, and what is to be seen later.
    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.shared.lock()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // If it has panicked, looks are missing, which the result shows.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        // Each change leaves it whole.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, proc: &Proc) {
        let mut pause = LEAST_PAUSE;
        loop {
            thread::park_timeout(pause);
            if self.ended.load(Ordering::Acquire) {
                return;
            }
            let before = own_time();
            // The look is there before the calls that were under way arrive.
            let (question, look) = {
                let mut seen = self.lock();
                (seen.queues.question(), seen.looks.add(Clock::monotonic()))
            };
            let answer = question.answer(proc);
            let mut seen = self.lock();
            seen.looks.waited_at(look, answer.waiting.clone());
            seen.queues.learn(answer);
            drop(seen);
            pause = LEAST_PAUSE.max(own_time().saturating_sub(before) * PAUSES);
        }
    }
}

/// CPU time of this thread.
fn own_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

const LEAST_PAUSE: Duration = Duration::from_millis(13);
/// Looks take a fiftieth of a CPU at most: where there are many sockets, the list is long.
const PAUSES: u32 = 50;
