//! Measures the effect of wide code on one hyperthread on scalar code on the other of the same core.
//!
//! The two share a clock, ports and the front end. On one runs scalar code: the chain, whose pace
//! is the clock's, or as many additions as the core takes, whose pace is what is left of the core.
//! On the other runs each class in turn, or nothing, which is what paces are shares of.

use crate::clocks::{Schedule, slot};
use crate::estimate::{Estimate, median};
use crate::spin::{additions, runs, spin, ticks};
use serde::{Deserialize, Serialize};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use widelane_affinity::pin;
use widelane_cpu::licence::Class;

/// Measurements on two hyperthreads of one core.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Siblings {
    /// The two: where scalar code ran, and where the other code did.
    pub cpus: Option<(usize, usize)>,
    /// The pace of scalar code by class of the code beside it.
    pub pace: Vec<Beside>,
    /// Reason why nothing was measured.
    pub why_not: Option<String>,
}

/// The pace of scalar code beside one class, as shares of its pace beside an idle hyperthread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// The class on the other hyperthread.
    pub class: String,
    /// Pace of code that waits for its own results: the clock.
    pub clock: Estimate,
    /// Pace of code that takes all that the core has for one.
    pub throughput: Estimate,
}

/// Measures the first two of `cpus` that are hyperthreads of one core, by what `siblings` says of
/// each.
pub(crate) fn interplay(
    cpus: &[usize],
    siblings: impl Fn(usize) -> Vec<usize>,
    hertz: f64,
    schedule: Schedule,
    progress: &(dyn Fn(f64) + Sync),
) -> Siblings {
    let unable = |why: &str| Siblings {
        why_not: Some(why.to_owned()),
        ..Siblings::default()
    };
    let pair = |&cpu: &usize| {
        let other = siblings(cpu).into_iter().find(|cpu| cpus.contains(cpu))?;
        Some((cpu, other))
    };
    let Some((scalar, other)) = cpus.iter().find_map(pair) else {
        return unable(match cpus.iter().any(|&cpu| !siblings(cpu).is_empty()) {
            true => "this process may use one hyperthread of each core only",
            false => "each core has one thread, as far as the kernel (or a hypervisor) tells",
        });
    };
    match measure(scalar, other, hertz, schedule, progress) {
        Some(pace) if !pace.is_empty() => Siblings {
            cpus: Some((scalar, other)),
            pace,
            why_not: None,
        },
        _ => unable("the two hyperthreads could not be had"),
    }
}

fn measure(
    scalar: usize,
    other: usize,
    hertz: f64,
    schedule: Schedule,
    progress: &(dyn Fn(f64) + Sync),
) -> Option<Vec<Beside>> {
    // Nothing first, then each class, in every round.
    let conditions: Vec<_> = std::iter::once(None)
        .chain(Class::ALL.into_iter().filter(|&class| runs(class)).map(Some))
        .collect();
    let start = Barrier::new(2);
    let measured = AtomicBool::new(false);
    let paces = std::thread::scope(|scope| {
        scope.spawn(|| {
            // Without the pin, two cores are measured; the caller has seen both.
            let _ = pin(other);
            for _ in 0..schedule.rounds {
                for class in &conditions {
                    start.wait();
                    let _marked = class.map(widelane_marks::wide);
                    while let Some(class) = class
                        && !measured.load(Relaxed)
                    {
                        spin(*class, BURST);
                    }
                    start.wait();
                }
            }
        });
        let scalar = scope.spawn(|| {
            let here = pin(scalar).is_ok();
            let mut paces = Vec::new();
            for round in 0..schedule.rounds {
                for _ in &conditions {
                    measured.store(false, Relaxed);
                    start.wait();
                    let pace = || {
                        let chain = slot(Class::Scalar, hertz, schedule)?.ghz;
                        Some((chain, throughput(hertz, schedule)?))
                    };
                    paces.push(pace());
                    measured.store(true, Relaxed);
                    start.wait();
                }
                progress((round + 1) as f64 / schedule.rounds as f64);
            }
            here.then_some(paces)
        });
        scalar.join().ok().flatten()
    })?;

    let shares = |condition: usize, of: fn((f64, f64)) -> f64| {
        let round = |round: &[Option<(f64, f64)>]| Some(of(round[condition]?) / of(round[0]?));
        let shares: Vec<_> = paces.chunks(conditions.len()).filter_map(round).collect();
        Estimate::of(&shares)
    };
    let beside = |(at, class): (usize, &Option<Class>)| {
        Some(Beside {
            class: (*class)?.name().to_owned(),
            clock: shares(at, |pace| pace.0)?,
            throughput: shares(at, |pace| pace.1)?,
        })
    };
    Some(conditions.iter().enumerate().filter_map(beside).collect())
}

/// Additions a tick in one slot, without the windows in which the core was taken away.
fn throughput(hertz: f64, schedule: Schedule) -> Option<f64> {
    let end = ticks() + (schedule.slot.as_secs_f64() * hertz) as u64;
    let mut windows = Vec::new();
    while ticks() < end {
        windows.push(additions(WINDOW) as f64);
    }
    Some(WINDOW as f64 / median(&windows)?)
}

/// Rounds between two looks at whether the slot is over.
const BURST: u64 = 1500;
/// Rounds of additions in a window, some ten microseconds.
const WINDOW: u64 = 4000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{allowed_cpus, ticks_per_second};
    use std::time::Duration;

    const SHORT: Schedule = Schedule {
        rounds: crate::estimate::FEWEST,
        settle: Duration::ZERO,
        slot: Duration::from_micros(300),
        between: false,
    };

    #[test]
    fn a_pair_is_measured_beside_every_class() {
        // Two CPUs that are said to be one core's; one CPU with itself where there is one only.
        let cpus = allowed_cpus();
        let (first, last) = (cpus[0], *cpus.last().unwrap());
        let told = |cpu| vec![if cpu == first { last } else { first }];
        let found = interplay(&cpus, told, ticks_per_second(), SHORT, &|_| ());
        assert_eq!((found.cpus, found.why_not), (Some((first, last)), None));
        let classes: Vec<_> = found.pace.iter().map(|beside| beside.class.as_str()).collect();
        let here = Class::ALL.into_iter().filter(|&class| runs(class));
        assert_eq!(classes, here.map(Class::name).collect::<Vec<_>>());
        for beside in found.pace {
            for pace in [beside.clock, beside.throughput] {
                assert!(pace.low > 0.0 && pace.contains(pace.value), "{pace:?}");
            }
        }
    }

    #[test]
    fn the_reason_tells_missing_siblings_from_forbidden_ones() {
        let why = |siblings: fn(usize) -> Vec<usize>| {
            let found = interplay(&[0, 1], siblings, 1e9, SHORT, &|_| ());
            assert_eq!((found.cpus, found.pace), (None, Vec::new()));
            found.why_not.unwrap()
        };
        assert!(why(|_| Vec::new()).contains("one thread"));
        assert!(why(|cpu| vec![cpu + 2]).contains("one hyperthread of each core only"));
    }
}
