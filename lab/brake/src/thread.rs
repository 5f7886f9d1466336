//! The thread of one CPU.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use widelane_marks::{Page, Slot, nanoseconds};

use crate::controller::{Controller, Costs, Step};
use crate::core::Core;

/// State that all threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) page: Page,
    pub(crate) cores: Vec<Mutex<Core>>,
    /// Cores that change their level.
    pub(crate) moving: AtomicUsize,
    pub(crate) stop: AtomicBool,
}

/// Corrections from the rehearsal of one CPU's thread, which reads them after each wake-up.
#[derive(Debug, Default)]
pub(crate) struct Tuning {
    /// Nanoseconds that a wake-up by a timer costs more than was found before: in the real loop
    /// caches are colder.
    pub(crate) more: AtomicI64,
    /// Nanoseconds that a wake-up by a mark costs more, after which this thread has slept for long.
    pub(crate) more_by_mark: AtomicU64,
    /// Nanoseconds that a wake-up by a timer costs more if the timer was due at once.
    pub(crate) more_at_once: AtomicU64,
    /// Nanoseconds that a stall takes more if it is taken before it begins.
    pub(crate) more_ahead: AtomicU64,
    /// Wake-ups by a timer so far.
    pub(crate) wake_ups: AtomicU64,
}

/// CPU of a thread: its core and its place there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) core: usize,
    pub(crate) cpu: usize,
    pub(crate) number: usize,
}

/// Brakes one CPU, on which the calling thread is, until `shared.stop` is set.
pub(crate) fn drive(shared: &Shared, place: Place, costs: Costs, tuning: &Tuning) {
    let Some(slot) = shared.page.slot(place.number) else {
        return;
    };
    let mut controller = Controller::new(costs);
    controller.took(lock(&shared.cores[place.core]).account.owed());
    let mut turn = Turn::begin(0);
    let mut stalled = 0;
    while !shared.stop.load(Relaxed) {
        let now = nanoseconds();
        turn.awake(&mut controller, now);
        let mut core = look(shared, place, now);
        // A stall that was over before this thread ran is what the wake-up was for.
        let before = std::mem::replace(&mut stalled, core.account.stalled());
        if turn.by_mark && stalled > before && turn.stall.is_none() {
            turn.purpose(true);
            controller.begin_stall(&core.account, stalled - before, turn.taken);
        }
        match controller.next(&core.account) {
            Step::Take { until, stall, more } => {
                let rate = core.account.rate();
                drop(core);
                turn.purpose(stall);
                turn.keep(&mut controller, until, rate, &shared.stop);
                controller.took(more);
                turn.taken += more;
            }
            Step::Sleep { until, stall } => {
                turn.purpose(core.is_moving());
                let quiet = core.quiet();
                core.cpus[place.cpu].rests = until.is_none();
                let seen = core.cpus[place.cpu].look;
                drop(core);
                let Some(woken) = slot.prepare_sleep(quiet, &seen) else {
                    continue;
                };
                turn.leave(&mut controller, slot);
                slot.sleep(woken, until);
                let now = nanoseconds();
                let by_mark = slot.woken().load(Relaxed) != woken;
                let at_once = tuning.more_at_once.load(Relaxed);
                let ahead = tuning.more_ahead.load(Relaxed);
                controller.tune(tuning.more.load(Relaxed), at_once, ahead);
                turn = Turn::begin(match by_mark {
                    true => since_mark(slot, now) + tuning.more_by_mark.load(Relaxed),
                    false => {
                        tuning.wake_ups.fetch_add(1, Relaxed);
                        controller.costs().timer + if stall { at_once } else { 0 }
                    }
                });
                turn.by_mark = by_mark;
                if stall && !by_mark {
                    turn.purpose(true);
                }
                turn.woken(&mut controller, now);
            }
        }
    }
    slot.set_braked(false);
}

/// Turn of a thread, from its wake-up until it sleeps.
struct Turn {
    /// Nanoseconds for waking up.
    entered: u64,
    since: u64,
    taken: u64,
    by_mark: bool,
    stall: Option<bool>,
}

impl Turn {
    fn begin(entered: u64) -> Self {
        Self {
            entered,
            since: nanoseconds(),
            taken: 0,
            by_mark: false,
            stall: None,
        }
    }

    fn woken(&mut self, controller: &mut Controller, now: u64) {
        self.since = now;
        controller.took(self.entered);
        self.taken = self.entered;
    }

    /// Counts what has passed since the last time that this thread looked at the clock.
    fn awake(&mut self, controller: &mut Controller, now: u64) {
        let time = now.saturating_sub(self.since);
        controller.took(time);
        self.taken += time;
        self.since = now;
    }

    fn purpose(&mut self, stall: bool) {
        self.stall.get_or_insert(stall);
    }

    /// Keeps the CPU.
    fn keep(&mut self, controller: &mut Controller, until: u64, rate: u64, stop: &AtomicBool) {
        let mut now = nanoseconds();
        while now < until && !stop.load(Relaxed) {
            now = nanoseconds();
        }
        let late = now.saturating_sub(until);
        if late > TAKEN_FROM_US {
            // A hypervisor has taken the CPU from this thread: that is no time of the brake, and the model loses
            // nothing for it.
            self.awake(controller, until);
            controller.took((u128::from(late) * u128::from(rate) / u128::from(crate::account::WHOLE)) as u64);
            self.since = now;
        } else {
            self.awake(controller, now);
        }
    }

    fn leave(&mut self, controller: &mut Controller, slot: &Slot) {
        let now = nanoseconds();
        self.awake(controller, now);
        let leave = controller.costs().leave;
        controller.took(leave);
        slot.add_taken(self.taken + leave, self.stall == Some(true));
    }
}

/// Reads the marks, and wakes the threads of the core's other CPUs if there is something to do.
fn look<'a>(shared: &'a Shared, place: Place, now: u64) -> MutexGuard<'a, Core> {
    let mut core = lock(&shared.cores[place.core]);
    let was_moving = core.is_moving();
    let others = shared.moving.load(Relaxed) - usize::from(was_moving);
    core.look(|cpu| shared.page.slot(cpu), now, others >= CROWD);
    match (was_moving, core.is_moving()) {
        (false, true) => _ = shared.moving.fetch_add(1, Relaxed),
        (true, false) => _ = shared.moving.fetch_sub(1, Relaxed),
        _ => {}
    }
    if core.account.rate() > 0 {
        for (at, cpu) in core.cpus.iter_mut().enumerate() {
            if at != place.cpu && std::mem::take(&mut cpu.rests) {
                shared.page.slot(cpu.number).into_iter().for_each(Slot::wake);
            }
        }
    }
    core
}

/// Time since the mark that has woken this thread.
fn since_mark(slot: &Slot, now: u64) -> u64 {
    match now.saturating_sub(slot.look().newest()) {
        time if time < LONGEST_WAKE_UP => time,
        // Something else has woken it.
        _ => 0,
    }
}

/// Locks, also after a panic elsewhere.
pub(crate) fn lock(core: &Mutex<Core>) -> MutexGuard<'_, Core> {
    core.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Below the kernel's threads for interrupts, above all that programs usually ask for.
pub(crate) const PRIORITY: i32 = 49;
/// Number of other cores in transition from which on a core's own transition takes longer.
const CROWD: usize = 2;
/// Lateness in nanoseconds from which on a spinning thread did not run.
const TAKEN_FROM_US: u64 = 20_000;
const LONGEST_WAKE_UP: u64 = 100_000;
