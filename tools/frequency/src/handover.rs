//! Measures the cost of having work done on another core, in nanoseconds: the forms of `run_wide`.

use crate::estimate::Distribution;
use crate::spin::ticks;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use widelane::{Config, Form, Wide};
use widelane_affinity::{Cpus, pin};

/// The forms, by a closure that does nothing but look at the clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HandOver {
    /// Time from the call until the closure runs on a thread of the pool that looks for calls.
    pub spinning_ns: Distribution,
    /// Time from the call until the closure runs on a thread of the pool that sleeps.
    pub sleeping_ns: Distribution,
    /// A whole call of the pool, whose thread looks for calls.
    pub pool_call_ns: Distribution,
    /// A whole call of the migrating form: the calling thread to the other core and back.
    pub migration_ns: Distribution,
}

/// Measures hand-over from one CPU to another; `None` if they cannot be had.
pub(crate) fn hand_over(from: usize, to: usize, hertz: f64, times: usize) -> Option<HandOver> {
    let ns = |ticks: &dyn Fn(&Call) -> u64, calls: &[Call]| {
        let samples: Vec<_> = calls.iter().map(|call| ticks(call) as f64 / hertz * 1e9).collect();
        Distribution::of(&samples)
    };
    let measure = || {
        pin(from).ok()?;
        let cpus = Cpus::from_iter([to]);
        let spinning = calls(&pool(to, Duration::MAX)?, Duration::ZERO, times);
        let sleeping = calls(&pool(to, Duration::ZERO)?, UNTIL_ASLEEP, times / 4 + 1);
        let migrating = Wide::new(Form::Migrate { cpus }.into()).ok()?;
        let migrations = calls(&migrating, Duration::ZERO, times / 4 + 1);
        Some(HandOver {
            spinning_ns: ns(&Call::until_it_runs, &spinning)?,
            sleeping_ns: ns(&Call::until_it_runs, &sleeping)?,
            pool_call_ns: ns(&Call::until_it_is_back, &spinning)?,
            migration_ns: ns(&Call::until_it_is_back, &migrations)?,
        })
    };
    std::thread::scope(|scope| scope.spawn(measure).join().ok().flatten())
}

fn pool(cpu: usize, vector_spin: Duration) -> Option<Wide> {
    let cpus = Cpus::from_iter([cpu]);
    let form = Form::Pool { cpus };
    let caller_spin = Duration::MAX;
    Wide::new(Config {
        form,
        vector_spin,
        caller_spin,
    })
    .ok()
}

/// One call, by the time-stamp counter that the cores share.
struct Call {
    start: u64,
    ran: u64,
    end: u64,
}

impl Call {
    fn until_it_runs(&self) -> u64 {
        // The counters of two cores may differ by some ticks.
        self.ran.saturating_sub(self.start)
    }

    fn until_it_is_back(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

fn calls(wide: &Wide, pause: Duration, times: usize) -> Vec<Call> {
    // The first finds cold caches, and a thread that has just started.
    wide.run(|| ());
    let call = |_| {
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
        let start = ticks();
        let ran = wide.run(ticks);
        let end = ticks();
        Call { start, ran, end }
    };
    (0..times).map(call).collect()
}

const UNTIL_ASLEEP: Duration = Duration::from_micros(200);
