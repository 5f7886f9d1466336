//! Queue of a thread's paused jobs: which of them leads, and how its application learns that it can go on.
//!
//! All jobs of a queue are paused and resumed by one thread. Another thread takes part in one way only:
//! it frees a connection, and with it the wait context of a paused job ([`Signal::vanish`]). So a
//! signal's event, the sign that it leads and the list of those that wait are shared between threads; the
//! worker and its passes are not. `models.rs` tries all orders of the two.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, PoisonError, Weak};
use std::task::Wake;

use crate::ffi::libcrypto::Callback;
use crate::jobs::sync::{AtomicBool, Mutex, MutexGuard, Ordering::SeqCst};

/// The paused jobs of one thread.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Signals of the jobs that wait, the oldest first.
    waiting: VecDeque<Arc<Signal>>,
    /// Jobs that the worker had accepted when the leader last looked.
    looked_at: u64,
    pauses: Pauses,
}

impl Queue {
    /// A job is about to be paused, when `submitted` jobs have come in all. If there is no leader,
    /// it becomes the leader: its next turn comes after one look at the sockets.
    pub(crate) fn enter(&self, signal: &Arc<Signal>, submitted: u64) {
        let mut state = self.lock();
        if state.waiting.is_empty() {
            state.looked_at = submitted;
        }
        if !state.waiting.iter().any(|one| Arc::ptr_eq(one, signal)) {
            state.waiting.push_back(Arc::clone(signal));
        }
        appoint(state);
    }

    /// True if a job that comes now shall be paused, so that others can join it.
    pub(crate) fn is_pause_worth_while(&self) -> bool {
        let mut state = self.lock();
        !state.waiting.is_empty() || state.pauses.next()
    }

    /// A job does not wait any more.
    pub(crate) fn leave(&self, signal: &Arc<Signal>) {
        let mut state = self.lock();
        state.waiting.retain(|one| !Arc::ptr_eq(one, signal));
        signal.leads.store(false, SeqCst);
        appoint(state);
    }

    /// The leader is back from one look at the sockets, when `submitted` jobs have come in all. False
    /// if the look has brought some: then it looks once more. Otherwise it runs the passes that are
    /// due, and says so by [`Queue::led`].
    pub(crate) fn lead(&self, leader: &Signal, submitted: u64) -> bool {
        let mut state = self.lock();
        let last = std::mem::replace(&mut state.looked_at, submitted);
        if last == submitted {
            return true;
        }
        drop(state);
        leader.raise();
        false
    }

    /// A pass has answered `jobs` paused jobs, and saved this many nanoseconds, as far as that is known.
    pub(crate) fn passed(&self, jobs: usize, saved: Option<u64>) {
        self.lock().pauses.ended(jobs, saved);
    }

    /// The leader has run the passes. The next one is appointed when it waits again or leaves.
    pub(crate) fn led(&self, leader: &Signal) {
        leader.leads.store(false, SeqCst);
    }

    /// Number of jobs that wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// True while the queue is locked.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn is_locked(&self) -> bool {
        self.state.try_lock().is_err()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Record of what the pauses of one thread bring: a pass of several jobs saves time, and each pause costs some. While
/// they lose, only some jobs are paused, to see when enough others come again.
#[derive(Debug, Default)]
struct Pauses {
    /// Mean of what the latest passes have saved, less their pauses, in nanoseconds.
    gain: i64,
    /// Jobs that ran at once since the last pause.
    left_out: u32,
}

impl Pauses {
    /// Nanoseconds of a pause: an event, and two turns of the application's loop, which all jobs of a pass share.
    const COST: u64 = 40_000;
    /// Passes over which the mean is taken, about.
    const PASSES: i64 = 8;
    /// Nanoseconds that a pass counts as saved at the most: a second.
    const MOST: u64 = 1_000_000_000;
    /// Jobs for one pause while pauses lose.
    const ONE_IN: u32 = 8;

    /// True if the next job is paused.
    fn next(&mut self) -> bool {
        if self.gain >= 0 {
            return true;
        }
        self.left_out = (self.left_out + 1) % Self::ONE_IN;
        self.left_out == 0
    }

    /// A pass has answered `jobs` paused jobs. Where costs are not known, a shared pass counts as twice its pause.
    fn ended(&mut self, jobs: usize, saved: Option<u64>) {
        let saved = match saved {
            Some(saved) => saved.min(Self::MOST),
            None if jobs > 1 => 2 * Self::COST,
            None => 0,
        };
        let gain = saved.cast_signed() - Self::COST.cast_signed();
        self.gain += (gain - self.gain) / Self::PASSES;
    }
}

/// Makes the oldest waiting job the leader, unless there is one, and raises its signal without the lock.
fn appoint(state: MutexGuard<'_, State>) {
    if state.waiting.iter().any(|one| one.leads()) {
        return;
    }
    let leader = state.waiting.front().map(Arc::clone);
    if let Some(leader) = &leader {
        leader.leads.store(true, SeqCst);
    }
    drop(state);
    if let Some(leader) = leader {
        leader.raise();
    }
}

/// Event by which the application learns that a job can go on; one for each wait context.
pub(crate) struct Signal {
    event: Mutex<Event>,
    leads: AtomicBool,
    queue: Weak<Queue>,
}

enum Event {
    /// The descriptor that the application polls, and the function that it wants called beside, if any.
    Live(OwnedFd, Option<Callback>),
    /// The wait context is gone.
    Gone,
}

impl Signal {
    /// A signal of this queue, whose event is an event descriptor that does not block.
    pub(crate) fn new(queue: &Arc<Queue>, event: OwnedFd, callback: Option<Callback>) -> Self {
        Self {
            event: Mutex::new(Event::Live(event, callback)),
            leads: AtomicBool::new(false),
            queue: Arc::downgrade(queue),
        }
    }

    /// The application wants something else called, or nothing.
    pub(crate) fn call(&self, callback: Option<Callback>) {
        if let Event::Live(_, wanted) = &mut *self.event() {
            *wanted = callback;
        }
    }

    /// True for a signal of this queue.
    pub(crate) fn is_of(&self, queue: &Arc<Queue>) -> bool {
        self.queue.ptr_eq(&Arc::downgrade(queue))
    }

    /// True while its job leads.
    pub(crate) fn leads(&self) -> bool {
        self.leads.load(SeqCst)
    }

    /// Tells the application to go on with the job. The caller holds no lock: the application may
    /// submit jobs from its callback.
    pub(crate) fn raise(&self) {
        let callback = match &*self.event() {
            Event::Live(descriptor, callback) => {
                // A counter that is full is an event already.
                let _ = rustix::io::write(descriptor, &1_u64.to_ne_bytes());
                *callback
            }
            Event::Gone => None,
        };
        if let Some(callback) = callback {
            callback.run();
        }
    }

    /// Takes the event back; false if there was none.
    pub(crate) fn clear(&self) -> bool {
        match &*self.event() {
            Event::Live(descriptor, _) => rustix::io::read(descriptor.as_fd(), &mut [0; 8]).is_ok(),
            Event::Gone => false,
        }
    }

    /// The wait context is gone: no event is raised any more, and another job leads.
    pub(crate) fn vanish(self: &Arc<Self>) {
        *self.event() = Event::Gone;
        if let Some(queue) = self.queue.upgrade() {
            queue.leave(self);
        }
    }

    fn event(&self) -> MutexGuard<'_, Event> {
        self.event.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.raise();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.raise();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn signal(queue: &Arc<Queue>) -> Arc<Signal> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        Arc::new(Signal::new(queue, event, None))
    }

    #[test]
    fn one_paused_job_leads_and_the_next_one_follows() {
        let queue = Arc::default();
        let [first, second] = [signal(&queue), signal(&queue)];
        queue.enter(&first, 1);
        queue.enter(&second, 2);
        assert!(first.clear() && !second.clear());
        // It is paused again: it stays the leader, and its event comes from `lead`.
        queue.enter(&first, 2);
        assert!(!first.clear() && !second.clear());
        queue.leave(&first);
        assert!(second.clear() && second.leads());
        queue.leave(&second);
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn the_leader_looks_until_a_look_brings_nothing() {
        let queue = Arc::default();
        let leader = signal(&queue);
        queue.enter(&leader, 1);
        assert!(leader.clear());
        assert!(!queue.lead(&leader, 3), "the look has brought two jobs");
        assert!(leader.clear() && leader.leads());
        assert!(queue.lead(&leader, 3));
        assert!(!leader.clear());
        queue.led(&leader);
        assert!(!leader.leads());
    }

    #[test]
    fn jobs_whose_pauses_lose_are_seldom_paused() {
        let mut pauses = Pauses::default();
        assert!(pauses.next());
        pauses.ended(1, Some(0));
        let paused: Vec<_> = (0..24).filter(|_| pauses.next()).collect();
        assert_eq!(paused, [7, 15, 23]);
        // One pass in five is shared, and saves less than five pauses take.
        let mut count = 0;
        for pass in 0..1000 {
            count += u32::from(pauses.next());
            match pass % 5 {
                0 => pauses.ended(2, Some(120_000)),
                _ => pauses.ended(1, Some(0)),
            }
        }
        assert!(count < 500, "{count} of 1000");
        // One full pass, and all are paused again.
        pauses.ended(4, Some(500_000));
        assert!((0..100).all(|_| pauses.next()));
    }

    /// Costs are not known from the start, and never of a backend that was chosen by name.
    #[test]
    fn jobs_are_paused_while_passes_are_shared_whose_costs_are_not_known() {
        let mut pauses = Pauses::default();
        pauses.ended(1, None);
        assert!(!pauses.next());
        pauses.ended(2, None);
        assert!(pauses.next());
    }

    #[test]
    fn a_job_waits_where_another_one_waits() {
        let queue: Arc<Queue> = Arc::default();
        queue.passed(1, Some(0));
        assert!(!queue.is_pause_worth_while());
        let paused = signal(&queue);
        queue.enter(&paused, 1);
        assert!(queue.is_pause_worth_while());
        queue.leave(&paused);
        assert!(!queue.is_pause_worth_while());
    }

    /// A connection that goes away takes its signal with it, and another job leads.
    #[test]
    fn a_wait_context_that_goes_away_appoints_another_leader() {
        let queue = Arc::default();
        let [first, second] = [signal(&queue), signal(&queue)];
        queue.enter(&first, 1);
        queue.enter(&second, 2);
        first.vanish();
        assert!(second.clear());
        first.raise();
        assert!(!first.clear(), "nothing is left to be told");
    }
}
