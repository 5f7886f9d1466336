//! Measures at the start what waking up costs on this machine, and how exact the brake is.
//!
//! A thread on the same CPU, below the brake and above all others, looks at the clock all the time
//! and sees when it did not run.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use widelane_affinity::pin;
use widelane_marks::{Kind, Slot, nanoseconds};

use crate::controller::Costs;
use crate::realtime::prioritise;
use crate::thread::{PRIORITY, Tuning};

/// Costs and exactness of a brake on one CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exactness {
    /// The CPU.
    pub cpu: usize,
    /// Time that a wake-up by a timer takes from the program in all, in microseconds.
    pub timer_us: f64,
    /// Time that a wake-up by a mark takes from the program in all, in microseconds.
    pub mark_us: f64,
    /// The share of the CPU that was to be taken.
    pub asked: f64,
    /// The share that was found missing.
    pub took: f64,
}

/// Measures what waking up costs on `cpu`, on which the calling thread is with its priority: what the
/// controller needs, and the microseconds of a whole wake-up by a mark.
pub(crate) fn costs(cpu: usize) -> io::Result<(Costs, f64)> {
    let bench = Bench::default();
    thread::scope(|scope| {
        let victim = scope.spawn(|| bench.watch(cpu));
        // The victim begins without priority, and waits for its turn on a busy machine.
        while !bench.watches.load(Relaxed) && !victim.is_finished() {
            thread::sleep(Duration::from_micros(200));
        }
        bench.wake_by_timer();
        bench.timers_done.store(true, Relaxed);
        bench.wake_by_mark();
        let found = victim.join();
        found.unwrap_or_else(|_| Err(io::Error::other("the measurement failed")))
    })
}

/// Runs wide code on `slot`, that of `cpu`, twice: after the first time `tuning` is set so that as much
/// is missing as was `asked` for. Then runs short bursts that should lose `lost_us` each: of level 1 by
/// 512-bit code, of level 2, of level 1 by 256-bit code. Gives the share that was missing in the second
/// time.
pub(crate) fn rehearse(cpu: usize, slot: &Slot, tuning: &Tuning, asked: f64, lost_us: [f64; 3]) -> io::Result<f64> {
    pin(cpu)?;
    prioritise(VICTIM)?;
    // Time that is missing without a brake is not to be balanced.
    let besides = gaps(ALONE) * (1.0 - asked);
    let before = tuning.wake_ups.load(Relaxed);
    let took = missing(slot) - besides;
    let wake_ups = tuning.wake_ups.load(Relaxed) - before;
    if wake_ups > 0 {
        let each = (took - asked) * REHEARSAL as f64 / wake_ups as f64;
        tuning.more.store(each.clamp(-MOST_MORE, MOST_MORE) as i64, Relaxed);
    }
    let took = missing(slot) - besides;
    let wakes = [
        (Kind::Light512, &tuning.more_by_mark),
        (Kind::Heavy512, &tuning.more_at_once),
        (Kind::Heavy256, &tuning.more_ahead),
    ];
    // The less time the brake keeps the CPU, the more coming and going takes. The loop approaches the answer, at first
    // in whole steps, then in halves, against noise.
    for round in 0..ROUNDS {
        for ((kind, more), lost_us) in wakes.into_iter().zip(lost_us) {
            let bursts = (0..BURSTS).map(|_| burst(slot, kind)).collect();
            let off = median(bursts) as f64 - lost_us * 1e3;
            let step = if round < ROUNDS / 2 { off } else { off / 2.0 };
            let found = more.load(Relaxed) as f64 + step;
            more.store(found.clamp(0.0, MOST_MORE) as u64, Relaxed);
        }
    }
    Ok(took)
}

/// Time that a single burst loses at its beginning, long after any other, in a program that has the CPU; less what the
/// time before it loses without it.
fn burst(slot: &Slot, kind: Kind) -> u64 {
    let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    thread::sleep(FORGOTTEN);
    gaps(AWAKE);
    let control = (gaps(EDGE) * EDGE as f64) as u64;
    let begin = nanoseconds();
    if slot.begin(kind, nanoseconds(), own) {
        slot.wake();
    }
    let lost = nanoseconds() - begin;
    let lost = lost + (gaps(EDGE) * EDGE as f64) as u64;
    slot.end(kind, nanoseconds());
    lost.saturating_sub(control)
}

/// The share of the time that the calling thread misses while it marks wide code.
fn missing(slot: &Slot) -> f64 {
    let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    if slot.begin(Kind::Heavy512, nanoseconds(), own) {
        slot.wake();
    }
    gaps(SETTLE);
    let missing = gaps(REHEARSAL);
    slot.end(Kind::Heavy512, nanoseconds());
    missing
}

/// The share of the time that scalar code on `cpu` loses, over two seconds, by whatever: to be
/// compared with and without a brake.
///
/// # Errors
///
/// When the CPU or a real-time thread cannot be had.
pub fn lost_when_idle(cpu: usize) -> io::Result<f64> {
    let look = || {
        pin(cpu)?;
        prioritise(VICTIM)?;
        // In parts, because the kernel takes the CPU from real-time threads that have all of it.
        let mut parts = [0.0; 20];
        for part in &mut parts {
            *part = gaps(REHEARSAL - SETTLE);
            thread::sleep(Duration::from_millis(50));
        }
        // The system takes as much of each part; few parts meet anything else.
        parts.sort_unstable_by(f64::total_cmp);
        Ok(parts[..15].iter().sum::<f64>() / 15.0)
    };
    let failed = |_| Err(io::Error::other("the measurement failed"));
    thread::scope(|scope| scope.spawn(look).join().unwrap_or_else(failed))
}

/// Share of `span` nanoseconds in which the calling thread does not run.
fn gaps(span: u64) -> f64 {
    let begin = nanoseconds();
    let (mut last, mut missed) = (begin, 0);
    while last < begin + span {
        let now = nanoseconds();
        if now - last > GAP {
            missed += now - last;
        }
        last = now;
    }
    missed as f64 / (last - begin) as f64
}

/// Times and turns that brake and victim exchange.
#[derive(Default)]
struct Bench {
    slot: Slot,
    turns: AtomicU64,
    start: AtomicU64,
    stop: AtomicU64,
    watches: AtomicBool,
    timers_done: AtomicBool,
    done: AtomicBool,
}

impl Bench {
    fn turn(&self) {
        self.start.store(nanoseconds(), Relaxed);
        // Does what a turn does besides sleeping and taking.
        let seen = self.slot.look();
        let _ = self.slot.prepare_sleep(widelane_marks::Quiet::Never, &seen);
        self.turns.fetch_add(1, Relaxed);
        self.stop.store(nanoseconds(), Relaxed);
    }

    fn wake_by_timer(&self) {
        for _ in 0..TURNS {
            let woken = self.slot.woken().load(Relaxed);
            self.slot.sleep(woken, Some(nanoseconds() + PAUSE));
            self.turn();
        }
    }

    fn wake_by_mark(&self) {
        let end = nanoseconds() + LONGEST;
        while !self.done.load(Relaxed) && nanoseconds() < end {
            let woken = self.slot.woken().load(Relaxed);
            // With a timer, as in the middle of a tail; it is never due.
            self.slot.sleep(woken, Some(nanoseconds() + 1000 * PAUSE));
            self.turn();
        }
    }

    /// Watches on the victim's thread.
    fn watch(&self, cpu: usize) -> io::Result<(Costs, f64)> {
        pin(cpu)?;
        prioritise(VICTIM)?;
        let (mut enter, mut leave, mut marks) = (Vec::new(), Vec::new(), Vec::new());
        self.watches.store(true, Relaxed);
        let (mut last, mut turns) = (nanoseconds(), self.turns.load(Relaxed));
        while !self.timers_done.load(Relaxed) {
            let now = nanoseconds();
            let after = self.turns.load(Relaxed);
            let (start, stop) = (self.start.load(Relaxed), self.stop.load(Relaxed));
            if after == turns + 1 {
                // The interrupt came before the look at the clock, or after it.
                let before = if now < start { now } else { last };
                let resumed = if now < start { nanoseconds() } else { now };
                if before <= start && stop <= resumed {
                    enter.push(start - before);
                    leave.push(resumed - stop);
                }
            }
            (last, turns) = (now, after);
        }
        for _ in 0..TURNS {
            let pause = nanoseconds() + PAUSE;
            while nanoseconds() < pause {}
            let (turns, before) = (self.turns.load(Relaxed), nanoseconds());
            self.slot.wake();
            let now = nanoseconds();
            let stop = self.stop.load(Relaxed);
            if self.turns.load(Relaxed) == turns + 1 && (before..=now).contains(&stop) {
                marks.push(now - before);
                leave.push(now - stop);
            }
        }
        self.done.store(true, Relaxed);
        self.slot.wake();
        let few = || io::Error::other("the wake-ups were not seen: the CPU is too busy");
        let costs = Costs {
            timer: usual(enter).ok_or_else(few)?,
            leave: usual(leave).ok_or_else(few)?,
        };
        let mark = usual(marks).ok_or_else(few)?;
        Ok((costs, mark as f64 / 1e3))
    }
}

/// The mean without the least and the largest tenths; `None` of too few.
fn usual(mut times: Vec<u64>) -> Option<u64> {
    times.sort_unstable();
    let tenth = times.len() / 10;
    let middle = &times[tenth..times.len() - tenth];
    (middle.len() >= FEWEST).then(|| middle.iter().sum::<u64>() / middle.len() as u64)
}

/// Median, as `probe` computes it.
pub(crate) fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Priority of the victim, below the brake's.
const VICTIM: i32 = PRIORITY - 1;
const TURNS: usize = 200;
const FEWEST: usize = 20;
const PAUSE: u64 = 100_000;
const LONGEST: u64 = 1_000_000_000;
/// Nanoseconds until the level is reached.
const SETTLE: u64 = 2_000_000;
const REHEARSAL: u64 = 150_000_000;
const ALONE: u64 = 50_000_000;
const BURSTS: usize = 10;
const ROUNDS: usize = 8;
/// Time after which both stalls are over.
const EDGE: u64 = 120_000;
/// Longer than every tail of a processor that halts.
const FORGOTTEN: Duration = Duration::from_millis(2);
/// A CPU that has just left its idle state takes longer to wake a thread.
const AWAKE: u64 = 1_000_000;
/// Tuning by more would be an answer to something else.
const MOST_MORE: f64 = 15_000.0;
/// A thread that does not see the clock for so long did not run.
const GAP: u64 = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_time_is_the_mean_of_the_middle() {
        assert_eq!(usual(vec![1; 10]), None);
        let mut times = vec![10; 40];
        times.extend([1_000_000; 4]);
        assert_eq!(usual(times), Some(10));
    }
}
