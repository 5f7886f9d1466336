//! What it costs to have work done on another core: the ways to hand it over, in nanoseconds.

use crate::estimate::Distribution;
use crate::machine::pin;
use crate::spin::ticks;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// The ways, each one way unless it says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HandOver {
    /// A cache line to a core that looks at it all the time.
    pub spinning_ns: Distribution,
    /// A wake-up of a thread that sleeps.
    pub sleeping_ns: Distribution,
    /// A call of a function on a thread of a pool, until its result is back.
    pub pool_call_ns: Distribution,
    /// The calling thread itself, to the other core and back (`sched_setaffinity` twice).
    pub migration_ns: Distribution,
}

/// Measures hand-over from one CPU to another; `None` if they cannot be had.
pub(crate) fn hand_over(from: usize, to: usize, hertz: f64, times: usize) -> Option<HandOver> {
    let ns = |samples: Vec<u64>| {
        let samples: Vec<_> = samples
            .into_iter()
            .map(|t| t as f64 / hertz * 1e9)
            .collect();
        Distribution::of(&samples)
    };
    std::thread::scope(|scope| {
        let measured = scope.spawn(|| {
            pin(from).ok()?;
            let hand_over = HandOver {
                spinning_ns: ns(spinning(to, times))?,
                sleeping_ns: ns(sleeping(to, times / 4 + 1))?,
                pool_call_ns: ns(pool_calls(to, times / 4 + 1))?,
                migration_ns: ns(migrations(from, to, times / 4 + 1)?)?,
            };
            Some(hand_over)
        });
        measured.join().ok().flatten()
    })
}

/// Half of the way there and back, of a number that both sides count up.
fn spinning(to: usize, times: usize) -> Vec<u64> {
    let turn = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = pin(to);
            for round in 0..times as u64 {
                wait_for(&turn, 2 * round + 1);
                turn.store(2 * round + 2, Ordering::Release);
            }
        });
        let round = |round| {
            let start = ticks();
            turn.store(2 * round + 1, Ordering::Release);
            wait_for(&turn, 2 * round + 2);
            (ticks() - start) / 2
        };
        (0..times as u64).map(round).collect()
    })
}

fn wait_for(turn: &AtomicU64, value: u64) {
    let mut looks = 0u32;
    while turn.load(Ordering::Acquire) != value {
        std::hint::spin_loop();
        looks += 1;
        // Where both threads share one CPU after all, the other must run.
        if looks.is_multiple_of(100_000) {
            std::thread::yield_now();
        }
    }
}

/// From the call that wakes until the thread runs, by the time-stamp counter that the cores share.
fn sleeping(to: usize, times: usize) -> Vec<u64> {
    let (sent, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (reply, replies) = mpsc::channel();
    std::thread::scope(|scope| {
        let (sent, stop) = (&sent, &stop);
        let sleeper = scope.spawn(move || {
            let _ = pin(to);
            loop {
                std::thread::park();
                let now = ticks();
                match sent.swap(0, Ordering::AcqRel) {
                    _ if stop.load(Ordering::Acquire) => return,
                    0 => continue,
                    start => {
                        if reply.send(now.saturating_sub(start)).is_err() {
                            return;
                        }
                    }
                }
            }
        });
        let mut samples = Vec::new();
        for _ in 0..times {
            // Until it sleeps.
            std::thread::sleep(Duration::from_micros(200));
            sent.store(ticks(), Ordering::Release);
            sleeper.thread().unpark();
            samples.extend(replies.recv());
        }
        stop.store(true, Ordering::Release);
        sleeper.thread().unpark();
        samples
    })
}

/// There and back through channels.
fn pool_calls(to: usize, times: usize) -> Vec<u64> {
    let (call, calls) = mpsc::channel::<u64>();
    let (result, results) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = pin(to);
            for argument in calls {
                if result.send(argument + 1).is_err() {
                    return;
                }
            }
        });
        let mut samples = Vec::new();
        for argument in 0..times as u64 {
            let start = ticks();
            if call.send(argument).is_ok() && results.recv().is_ok() {
                samples.push(ticks() - start);
            }
        }
        drop(call);
        samples
    })
}

fn migrations(from: usize, to: usize, times: usize) -> Option<Vec<u64>> {
    let migration = |_| {
        let start = ticks();
        pin(to).ok()?;
        pin(from).ok()?;
        Some(ticks() - start)
    };
    (0..times).map(migration).collect()
}
