//! Looks at queues from a thread of its own: not when the tracer has time, which depends on what it sees.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use widelane_affinity::thread_time;
use widelane_threads::Proc;

use super::queues::{Answer, Queues};
use super::ready::Looks;
use crate::clock::Clock;

/// The thread, and what it has seen. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// State that the sampler's thread and the tracer share.
#[derive(Debug, Default)]
pub(super) struct QueueSamples {
    pub(super) queues: Queues,
    pub(super) looks: Looks,
}

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<QueueSamples>,
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

    /// State so far, and queues to look up later.
    pub(super) fn seen(&self) -> MutexGuard<'_, QueueSamples> {
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
    fn lock(&self) -> MutexGuard<'_, QueueSamples> {
        // Each change leaves it whole.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, proc: &Proc) {
        let mut pace = AskingPace::default();
        loop {
            thread::park_timeout(PAUSE);
            if self.ended.load(Ordering::Acquire) {
                return;
            }
            let now = Clock::monotonic();
            let asks = pace.is_due(now);
            // The look is there before the calls that were under way arrive.
            let (look, question) = {
                let mut seen = self.lock();
                let look = seen.looks.add(now);
                (look, asks.then(|| seen.queues.take_read()))
            };
            let Some(question) = question else { continue };
            let before = thread_time();
            let answer = Answer::to(&question, proc);
            let took = thread_time().saturating_sub(before);
            pace.asked(now, took, question.is_empty());
            let mut seen = self.lock();
            seen.looks.waited_at(look, answer.waiting.clone());
            seen.queues.learn(answer);
        }
    }
}

/// Pace at which to ask what waits: seldom if the answer takes long, because there are many sockets. The looks in
/// between show what is computed.
#[derive(Debug, Default)]
struct AskingPace {
    /// Nanoseconds of the monotonic clock.
    due: u64,
    pause: u64,
}

impl AskingPace {
    fn is_due(&self, now: u64) -> bool {
        now >= self.due
    }

    /// A question that was empty took no time, but keeps the pause: else a server would be asked more often while it
    /// has nothing to do.
    fn asked(&mut self, now: u64, took: Duration, empty: bool) {
        if !empty {
            self.pause = u64::try_from(took.as_nanos()).map_or(u64::MAX, |took| took.saturating_mul(PAUSES));
        }
        self.due = now.saturating_add(self.pause);
    }
}

const PAUSE: Duration = Duration::from_millis(13);
/// Answers take a fiftieth of a CPU at most.
const PAUSES: u64 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with many sockets answers slowly: the sampler asks as seldom while the server is busy as while it is
    /// idle.
    #[test]
    fn a_slow_answer_makes_questions_rare_until_a_quick_one() {
        let mut pace = AskingPace::default();
        assert!(pace.is_due(0));
        pace.asked(1_000, Duration::from_nanos(30), false);
        assert!(!pace.is_due(2_499) && pace.is_due(2_500));
        pace.asked(2_500, Duration::from_nanos(1), true);
        assert!(!pace.is_due(3_999) && pace.is_due(4_000));
        pace.asked(4_000, Duration::from_nanos(1), false);
        assert!(pace.is_due(4_050));
    }
}
