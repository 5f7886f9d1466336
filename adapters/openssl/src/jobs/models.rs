//! Loom models: the queue of paused jobs while another thread frees their connections.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p widelane-openssl --lib --release`

use std::sync::Arc;

use loom::thread;
use rustix::event::{EventfdFlags, eventfd};

use crate::jobs::queue::{Queue, Signal};

/// A leader's wait context vanishes ∥ another job is paused: some job that waits leads, and its
/// application was told.
#[test]
fn a_job_leads_while_others_vanish_and_come() {
    loom::model(|| {
        let queue = Arc::default();
        let [first, second] = [signal(&queue), signal(&queue)];
        queue.enter(&first, 1);
        let freed = Arc::clone(&first);
        let other = thread::spawn(move || freed.vanish());
        queue.enter(&second, 2);
        other.join().unwrap();
        assert_eq!(queue.waiting(), 1);
        assert!(!first.leads() && second.leads() && second.clear());
        first.raise();
        assert!(!first.clear(), "nothing is left to be told");
    });
}

/// A leader's wait context vanishes ∥ the next job is resumed by its answer, looks whether it leads, and
/// waits again: it is woken after it has waited, or knows before.
#[test]
fn a_job_that_is_appointed_while_it_runs_learns_of_it() {
    loom::model(|| {
        let queue = Arc::default();
        let [first, second] = [signal(&queue), signal(&queue)];
        queue.enter(&first, 1);
        queue.enter(&second, 2);
        let freed = Arc::clone(&first);
        let other = thread::spawn(move || freed.vanish());
        // As `paused::run` does after a pause: take the event back, lead or wait again.
        second.clear();
        let led = second.leads() && {
            assert!(!queue.lead(&second, 2), "a look is due");
            second.clear();
            assert!(queue.lead(&second, 2));
            queue.led(&second);
            true
        };
        queue.enter(&second, 2);
        other.join().unwrap();
        assert!(second.leads(), "after it led: {led}");
        assert!(second.clear(), "it leads and was not told; it led: {led}");
        assert_eq!(queue.waiting(), 1);
    });
}

/// A leader that has run the passes leaves ∥ the next one's wait context vanishes: the third leads.
#[test]
fn leadership_passes_over_a_job_that_vanishes() {
    loom::model(|| {
        let queue = Arc::default();
        let [first, second, third] = [signal(&queue), signal(&queue), signal(&queue)];
        for (number, one) in [&first, &second, &third].into_iter().enumerate() {
            queue.enter(one, number as u64);
        }
        let freed = Arc::clone(&second);
        let other = thread::spawn(move || freed.vanish());
        first.clear();
        assert!(first.leads());
        assert!(!queue.lead(&first, 3), "a look is due");
        first.clear();
        assert!(queue.lead(&first, 3));
        queue.led(&first);
        queue.leave(&first);
        other.join().unwrap();
        assert_eq!(queue.waiting(), 1);
        assert!(!first.leads() && !second.leads() && third.leads() && third.clear());
    });
}

/// A pass wakes a job ∥ its wait context vanishes ∥ another's vanishes, which lets it lead: nothing is
/// told of a context that is gone, and the queue is empty.
#[test]
fn a_job_may_vanish_while_it_is_woken() {
    loom::model(|| {
        let queue = Arc::default();
        let [first, second] = [signal(&queue), signal(&queue)];
        queue.enter(&first, 1);
        queue.enter(&second, 2);
        let others = [Arc::clone(&first), Arc::clone(&second)].map(|freed| thread::spawn(move || freed.vanish()));
        second.raise();
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(queue.waiting(), 0);
        assert!(!first.leads() && !second.leads());
        assert!(!first.clear() && !second.clear());
    });
}

fn signal(queue: &Arc<Queue>) -> Arc<Signal> {
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    Arc::new(Signal::new(queue, event, None))
}
