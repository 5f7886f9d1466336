//! Measures the cost of one thread that waits for another on this machine.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use rustix::thread::sched_getcpu;
use widelane_affinity::{pin, thread_time};

/// CPU time, in nanoseconds, that a thread and the one that wakes it need when it sleeps once: measured on
/// this machine in some milliseconds, with two threads that take turns on one CPU.
pub fn hand_over() -> f64 {
    let (turn, start) = (AtomicUsize::new(0), Barrier::new(2));
    let here = sched_getcpu();
    let take_turns = |own: usize, other: &Thread| {
        // Elsewhere they would wake up CPUs. Where that is not allowed, it is measured so.
        let _ = pin(here);
        start.wait();
        let before = thread_time();
        for _ in 0..TURNS {
            while turn.load(Ordering::Acquire) != own {
                thread::park();
            }
            turn.store(1 - own, Ordering::Release);
            other.unpark();
        }
        thread_time() - before
    };
    let (sender, receiver) = std::sync::mpsc::channel();
    let take_turns = &take_turns;
    let spent = thread::scope(|scope| {
        let first = scope.spawn(move || {
            let second: Thread = receiver.recv().expect("the thread that starts both lives");
            take_turns(0, &second)
        });
        let to_first = first.thread().clone();
        let second = scope.spawn(move || take_turns(1, &to_first));
        sender
            .send(second.thread().clone())
            .expect("the first thread waits for it");
        let spent = [first.join(), second.join()];
        spent.into_iter().flatten().sum::<Duration>()
    });
    spent.as_nanos() as f64 / (2 * TURNS) as f64
}

/// Turns of each thread.
const TURNS: usize = 2000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_sleep_costs_something() {
        let cost = hand_over();
        assert!(cost > 0.0, "{cost}");
    }
}
