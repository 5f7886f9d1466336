//! The clock by class of code, on one and on more cores.
//!
//! Each condition (a class, a number of active cores) is measured in many short slots, in rounds
//! through all conditions: what a neighbour or the temperature does to the clock falls on all of
//! them alike, and what differs between conditions of one round is the code's doing.

use crate::estimate::{Estimate, median};
use crate::spin::{ROUND_CYCLES, runs, spin, ticks};
use serde::{Deserialize, Serialize};
use std::sync::Barrier;
use std::time::Duration;
use widelane_affinity::pin;
use widelane_cpu::licence::Class;

/// Clock of one class on a number of cores at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// The class, as [`Class::name`] spells it.
    pub class: String,
    /// Cores that ran it at once.
    pub cores: usize,
    /// The clock in GHz while the code ran.
    pub ghz: Estimate,
    /// Clock as a share of that of scalar code in the same round, on as many cores.
    pub of_scalar: Estimate,
    /// The share of the time in which the cores were taken away: by the hypervisor, by interrupts,
    /// by other programs.
    pub vanished: Estimate,
}

/// Schedule of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) rounds: usize,
    /// Time before each slot in which the clock forgets the condition before.
    pub(crate) settle: Duration,
    pub(crate) slot: Duration,
    /// True to measure on numbers of cores between one and all.
    pub(crate) between: bool,
}

/// Measures every class that runs here on one, two, four … and all of `cpus` at once (or on one and
/// all), and calls `progress` with the share that is done.
pub(crate) fn clocks(cpus: &[usize], hertz: f64, schedule: Schedule, progress: &(dyn Fn(f64) + Sync)) -> Vec<Clock> {
    let classes: Vec<_> = Class::ALL.into_iter().filter(|&class| runs(class)).collect();
    let conditions: Vec<_> = counts(cpus.len())
        .into_iter()
        .filter(|&cores| schedule.between || cores == 1 || cores == cpus.len())
        .flat_map(|cores| classes.iter().map(move |&class| (class, cores)))
        .collect();
    clocks_of(&conditions, cpus, hertz, schedule, progress)
}

/// Clocks of these classes on these numbers of cores.
fn clocks_of(
    conditions: &[(Class, usize)],
    cpus: &[usize],
    hertz: f64,
    schedule: Schedule,
    progress: &(dyn Fn(f64) + Sync),
) -> Vec<Clock> {
    let slots = measure(cpus, hertz, schedule, conditions, progress);
    let mut found = Vec::new();
    for (at, &(class, cores)) in conditions.iter().enumerate() {
        let scalar = conditions.iter().position(|&other| other == (Class::Scalar, cores));
        let rounds = || (0..schedule.rounds).filter_map(|round| Some((round, slots[at][round]?)));
        let ghz: Vec<_> = rounds().map(|(_, slot)| slot.ghz).collect();
        let vanished: Vec<_> = rounds().map(|(_, slot)| slot.vanished).collect();
        let ratio = |(round, slot): (usize, Slot)| Some(slot.ghz / slots[scalar?][round]?.ghz);
        let ratios: Vec<_> = rounds().filter_map(ratio).collect();
        if let (Some(ghz), Some(of_scalar), Some(vanished)) =
            (Estimate::of(&ghz), Estimate::of(&ratios), share(&vanished))
        {
            found.push(Clock {
                class: class.name().to_owned(),
                cores,
                ghz,
                of_scalar,
                vanished,
            });
        }
    }
    found
}

/// Measurement of one slot.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) ghz: f64,
    vanished: f64,
}

/// Every condition's slots, by round.
fn measure(
    cpus: &[usize],
    hertz: f64,
    schedule: Schedule,
    conditions: &[(Class, usize)],
    progress: &(dyn Fn(f64) + Sync),
) -> Vec<Vec<Option<Slot>>> {
    let barrier = Barrier::new(cpus.len());
    // By thread, then in the order of time.
    let by_thread: Vec<Vec<Option<Slot>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .enumerate()
            .map(|(place, &cpu)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    // A CPU that went away meanwhile has no slots.
                    let here = pin(cpu).is_ok();
                    let mut slots = Vec::new();
                    for round in 0..schedule.rounds {
                        for &(class, cores) in conditions {
                            barrier.wait();
                            let part = here && place < cores;
                            slots.push(part.then(|| slot(class, hertz, schedule)).flatten());
                        }
                        if place == 0 {
                            progress((round + 1) as f64 / schedule.rounds as f64);
                        }
                    }
                    slots
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_default())
            .collect()
    });
    let merged = |condition: usize, round: usize| {
        let at = round * conditions.len() + condition;
        let slots = by_thread.iter().filter_map(|slots| *slots.get(at)?);
        let (ghz, vanished): (Vec<_>, Vec<_>) = slots.map(|s| (s.ghz, s.vanished)).unzip();
        Some(Slot {
            ghz: median(&ghz)?,
            vanished: vanished.iter().sum::<f64>() / vanished.len() as f64,
        })
    };
    let rounds = |condition| (0..schedule.rounds).map(|r| merged(condition, r)).collect();
    (0..conditions.len()).map(rounds).collect()
}

/// One slot on one core. Under a brake (`widelane-lab emulate`) a lower clock comes in pieces: what it took,
/// by its own account, counts as clock.
pub(crate) fn slot(class: Class, hertz: f64, schedule: Schedule) -> Option<Slot> {
    let span = |time: Duration| (time.as_secs_f64() * hertz) as u64;
    let _marked = widelane_marks::wide(class);
    let brake = widelane_marks::here();
    let taken = || brake.map_or(0.0, |brake| brake.taken() as f64 * hertz / 1e9);
    let settled = ticks() + span(schedule.settle);
    while ticks() < settled {
        spin(class, WINDOW);
    }
    let start = ticks();
    let before = taken();
    let end = start + span(schedule.slot);
    let mut windows = Vec::new();
    let mut now = start;
    while now < end {
        windows.push(spin(class, WINDOW) as f64);
        now = ticks();
    }
    // A window without interruption is the rule; its time is the clock's.
    let usual = median(&windows)?;
    let cycles = (WINDOW * ROUND_CYCLES) as f64;
    let undisturbed = usual * windows.len() as f64;
    // Time that a brake took is missing in the clock; time that others took of the rest has vanished.
    let left = (now - start) as f64 - (taken() - before);
    Some(Slot {
        ghz: cycles / usual * hertz / 1e9 * left / (now - start) as f64,
        vanished: (1.0 - undisturbed / left).max(0.0),
    })
}

/// A mean share of time over the rounds, with the interval of the mean: what takes a core away
/// comes seldom and long, so that the median of few slots would not see it.
fn share(samples: &[f64]) -> Option<Estimate> {
    let n = samples.len() as f64;
    let value = samples.iter().sum::<f64>() / n;
    let variance = samples.iter().map(|x| (x - value).powi(2)).sum::<f64>() / (n - 1.0);
    let spread = 1.96 * (variance / n).sqrt();
    (samples.len() >= crate::estimate::FEWEST).then_some(Estimate {
        value,
        low: (value - spread - RESOLUTION).max(0.0),
        high: value + spread + RESOLUTION,
    })
}

/// One, two, four … and all.
fn counts(all: usize) -> Vec<usize> {
    let mut counts: Vec<_> = std::iter::successors(Some(1), |n| Some(2 * n))
        .take_while(|&n| n < all)
        .collect();
    if all > 0 {
        counts.push(all);
    }
    counts
}

/// Rounds of the chain in a window: some ten microseconds, short beside what interrupts a core and
/// long beside the reading of the counter.
const WINDOW: u64 = 1500;
/// Share of the time that the reading of the counter between windows takes by itself.
const RESOLUTION: f64 = 0.005;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{allowed_cpus, ticks_per_second};
    use std::fmt::Write as _;
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::Instant;

    #[test]
    fn cores_are_doubled_until_all_are_active() {
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(2), [1, 2]);
        assert_eq!(counts(6), [1, 2, 4, 6]);
        assert_eq!(counts(8), [1, 2, 4, 8]);
        assert!(counts(0).is_empty());
    }

    /// A thread on the same CPU takes a known share of it away, in bursts much shorter than a slot.
    #[test]
    fn what_is_taken_away_is_found_within_the_interval() {
        let hertz = ticks_per_second();
        let cpu = *allowed_cpus().last().unwrap();
        let alone = || vanishing(cpu, hertz, None).0;
        for share in [0.1, 0.25] {
            let (mut held, mut quiet, mut heard) = (0, 0, String::new());
            for _ in 0..2 * INJECTIONS {
                // Measures before and after what others take from this CPU: it is not the injector's.
                let before = alone();
                let (found, truth) = vanishing(cpu, hertz, Some(share));
                let after = alone();
                let most = before.high.max(after.high);
                let least = before.low.min(after.low);
                let _ = writeln!(heard, "{truth:.4} in {found:?}, others {least} to {most}");
                if most <= QUIET && found.high - found.low <= QUIET {
                    quiet += 1;
                    let held_in = found.low - most..=found.high - least;
                    held += usize::from(held_in.contains(&truth));
                }
                if quiet == INJECTIONS {
                    break;
                }
            }
            if quiet < INJECTIONS {
                println!("SKIP: CPU {cpu} is too busy for a controlled load:\n{heard}");
                return;
            }
            assert!(2 * held > INJECTIONS, "{held} of {INJECTIONS}:\n{heard}");
            println!("{heard}");
        }
    }

    /// Share that vanishes from `cpu` while an injector takes `share` of it, and the share that it took by the kernel's
    /// account. Both are real-time threads where that is allowed, so that the load of the machine is not measured with
    /// them.
    fn vanishing(cpu: usize, hertz: f64, share: Option<f64>) -> (Estimate, f64) {
        let done = AtomicBool::new(false);
        let ready = Barrier::new(2);
        std::thread::scope(|scope| {
            let injector = scope.spawn(|| {
                pin(cpu).unwrap();
                make_real_time(2);
                ready.wait();
                let (start, used) = (Instant::now(), widelane_affinity::thread_time());
                while !done.load(Relaxed) {
                    let until = widelane_affinity::thread_time() + PERIOD.mul_f64(share.unwrap_or(0.0));
                    while share.is_some() && widelane_affinity::thread_time() < until {}
                    std::thread::sleep(PERIOD.mul_f64(1.0 - share.unwrap_or(0.0)));
                }
                (widelane_affinity::thread_time() - used).as_secs_f64() / start.elapsed().as_secs_f64()
            });
            let probe = scope.spawn(|| {
                // The threads of the measurement inherit it.
                make_real_time(1);
                ready.wait();
                clocks_of(&[(Class::Scalar, 1)], &[cpu], hertz, INJECTED, &|_| ())
            });
            let found = probe.join().unwrap();
            done.store(true, Relaxed);
            let truth = injector.join().unwrap();
            // The kernel takes the CPU from real-time threads that want more than nineteen
            // twentieths of a second.
            std::thread::sleep(Duration::from_millis(150));
            (found[0].vanished, truth)
        })
    }

    /// Makes the thread real-time; without the right to do so, it stays as it was.
    fn make_real_time(priority: u32) {
        let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
        let _ = Command::new("chrt")
            .args(["-f", "-p", &priority.to_string(), &thread])
            .stderr(Stdio::null())
            .status();
    }

    /// Each time that the injector wakes costs some 25 µs besides, which `alone` sees too.
    const PERIOD: Duration = Duration::from_millis(3);
    const INJECTIONS: usize = 3;
    /// Bounds above which nothing can be said: the share that others take, and the width of the interval.
    const QUIET: f64 = 0.05;
    const INJECTED: Schedule = Schedule {
        rounds: 24,
        settle: Duration::from_millis(1),
        slot: Duration::from_millis(15),
        between: false,
    };

    #[test]
    fn shares_of_time_are_means() {
        let share = share(&[0.0, 0.0, 0.0, 0.8, 0.0, 0.0, 0.0, 0.8]).unwrap();
        assert!((share.value - 0.2).abs() < 1e-9);
        assert!(share.low < 0.2 && share.high > 0.2 && share.low >= 0.0);
    }
}
