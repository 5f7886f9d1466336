//! Measures here and now how much time the programs in the kernel take from a thread that switches.
//!
//! Two threads on one CPU pass a byte to and fro through pipes, so that each byte is a switch. What
//! they take is counted in CPU time of this process: what other programs take of the CPU meanwhile
//! is not in it, but they do disturb the caches. Runs without the programs alternate with runs with
//! them, so that a drift of the machine meets both.

use std::io::{self, Read, Write, pipe};
use std::thread;

use widelane_affinity::{allowed, pin, process_time};
use widelane_threads::Proc;

use crate::ebpf::Watch;
use crate::error::UsageError;

/// Result of the measurement. Times are in nanoseconds a switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overhead {
    /// Pairs of runs.
    pub rounds: usize,
    /// A switch while nothing is watched.
    pub without: Spread,
    /// A switch while the programs are attached.
    pub with: Spread,
    /// The difference within a pair of runs.
    pub cost: Spread,
}

impl Overhead {
    /// The share of a CPU that a process loses which switches so often in a second.
    pub fn share(&self, switches: f64) -> f64 {
        self.cost.median * switches / 1e9
    }
}

/// The middle of several values, and between which the middle half of them lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// A quarter is below.
    pub low: f64,
    /// Half is below.
    pub median: f64,
    /// A quarter is above.
    pub high: f64,
}

impl Spread {
    /// Spread of at least one value.
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<_> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let at = |quarter: usize| sorted[(sorted.len() - 1) * quarter / 4];
        Self {
            low: at(1),
            median: at(2),
            high: at(3),
        }
    }
}

/// Measures the overhead in `rounds` pairs of runs, at least one; some milliseconds each.
///
/// # Errors
///
/// When programs cannot be attached, or two threads cannot be put on one CPU.
pub fn overhead(rounds: usize) -> Result<Overhead, UsageError> {
    let run = || switching(ROUND_TRIPS).map_err(|cause| UsageError::Switching { cause });
    // The first run takes longer.
    drop(Watch::open()?);
    run()?;
    let mut pairs = Vec::new();
    for _ in 0..rounds.max(1) {
        let without = run()?;
        let watch = Watch::open()?;
        let with = run()?;
        drop(watch);
        pairs.push((without, with));
    }
    Ok(summary(&pairs))
}

fn summary(pairs: &[(f64, f64)]) -> Overhead {
    Overhead {
        rounds: pairs.len(),
        without: Spread::of(pairs.iter().map(|(without, _)| *without)),
        with: Spread::of(pairs.iter().map(|(_, with)| *with)),
        cost: Spread::of(pairs.iter().map(|(without, with)| with - without)),
    }
}

/// CPU time a switch in nanoseconds.
fn switching(round_trips: u64) -> io::Result<f64> {
    let (mut heard, mut say) = pipe()?;
    let (mut answered, mut answer) = pipe()?;
    // The last is the least likely to be busy with interrupts.
    let cpu = allowed(None)?.iter().last().unwrap_or(0);
    thread::scope(|scope| {
        scope.spawn(move || -> io::Result<()> {
            pin(cpu)?;
            let mut byte = [0];
            // Until the other end is closed.
            while heard.read(&mut byte)? > 0 {
                answer.write_all(&byte)?;
            }
            Ok(())
        });
        let asking = scope.spawn(move || {
            pin(cpu)?;
            let mut pass = |times| {
                for _ in 0..times {
                    say.write_all(&[0])?;
                    answered.read_exact(&mut [0])?;
                }
                Ok(())
            };
            // Until both are there and awake.
            pass(WARM_UP).and_then(|()| {
                let (began, before) = (process_time(), waits()?);
                pass(round_trips)?;
                let (ended, after) = (process_time(), waits()?);
                // Each wait of this thread is a switch to the other one, which waits in its turn.
                let switches = 2 * after.saturating_sub(before).max(1);
                Ok((ended - began).as_nanos() as f64 / switches as f64)
            })
        });
        let failed = |_| Err(io::Error::other("a thread that measures has panicked"));
        asking.join().unwrap_or_else(failed)
    })
}

/// Number of times that the calling thread has waited.
fn waits() -> io::Result<u64> {
    let waits = Proc::here().own_waits();
    waits.ok_or_else(|| io::Error::other("the kernel does not count switches"))
}

/// About fifty milliseconds.
const ROUND_TRIPS: u64 = 20_000;
const WARM_UP: u64 = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_follow_from_pairs_of_runs() {
        let pairs = [(1000.0, 1500.0), (900.0, 1300.0), (1100.0, 1700.0), (800.0, 1250.0)];
        let overhead = summary(&[&pairs[..], &[(5000.0, 4000.0)]].concat());
        assert_eq!(overhead.rounds, 5);
        assert_eq!(overhead.without.median, 1000.0);
        let Spread { low, median, high } = overhead.cost;
        assert_eq!((low, median, high), (400.0, 450.0, 500.0));
        assert_eq!(overhead.share(100_000.0), 0.045);
        assert_eq!(summary(&pairs[..1]).cost.high, 500.0);
    }

    #[test]
    fn two_threads_switch_at_every_byte() {
        let nanoseconds = switching(200).expect("threads and pipes");
        assert!(nanoseconds > 0.0 && nanoseconds.is_finite(), "{nanoseconds}");
    }

    #[test]
    fn it_is_measured_here_or_says_why_not() {
        match overhead(2) {
            Ok(overhead) => {
                assert_eq!(overhead.rounds, 2);
                assert!(overhead.with.median > 0.0, "{overhead:?}");
            }
            Err(error @ UsageError::Switching { .. }) => panic!("{error}"),
            Err(error) => eprintln!("SKIP: {error}"),
        }
    }
}
