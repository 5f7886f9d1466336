//! Measures the edges of wide code: the stall after its first instruction, and how long a lower clock outlives its last
//! one.
//!
//! Both are looked for with slices of the chain about a microsecond long. What slows a slice now
//! and then (an interrupt, the hypervisor) is found at any place; what belongs to the edge is found
//! at the edge in most repetitions: hence distributions.
//!
//! Under a brake (`widelane-lab emulate`) the clock itself never changes: slices are as short as ever, and
//! some are very long. There a tail ends when the brake takes something for the last time, and what
//! it takes for the lower clock, by its own account, is no stall.

use crate::estimate::{Distribution, median};
use crate::spin::{ROUND_CYCLES, runs, spin, ticks};
use serde::{Deserialize, Serialize};
use widelane_affinity::pin;
use widelane_cpu::licence::Class;

/// The edges of one class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transition {
    /// The class.
    pub class: String,
    /// Microseconds of work lost after the first wide instruction, by halts and slow dispatch.
    pub stall_us: Distribution,
    /// Microseconds of work lost at the same point if the code goes on as it was, for comparison: what this machine
    /// loses anyhow.
    pub control_us: Distribution,
    /// The clock of scalar code right after wide code, as a share of its clock otherwise.
    pub after: f64,
    /// Microseconds until the clock is back; `None` where it is not lower.
    pub tail_us: Option<Distribution>,
}

/// Measures every wide class that runs here on `cpu`.
pub(crate) fn transitions(
    cpu: usize,
    hertz: f64,
    repetitions: usize,
    progress: &(dyn Fn(f64) + Sync),
) -> Vec<Transition> {
    let wide = |class: &Class| *class > Class::Vector128 && runs(*class);
    let classes: Vec<_> = Class::ALL.into_iter().filter(wide).collect();
    // A thread of its own, as it will be pinned.
    std::thread::scope(|scope| {
        let measured = scope.spawn(|| {
            pin(cpu).ok()?;
            let mut edges: Vec<Vec<Edge>> = vec![Vec::new(); classes.len()];
            for repetition in 0..repetitions {
                for (class, edges) in classes.iter().zip(&mut edges) {
                    edges.push(edge(*class, hertz));
                }
                progress((repetition + 1) as f64 / repetitions as f64);
            }
            Some(edges)
        });
        let edges = measured.join().ok().flatten().unwrap_or_default();
        let summed = classes.iter().zip(edges);
        summed.filter_map(|(&class, edges)| summary(class, &edges)).collect()
    })
}

/// One way into wide code and out of it.
#[derive(Clone, Copy)]
struct Edge {
    stall_us: f64,
    control_us: f64,
    after: f64,
    tail_us: f64,
}

fn edge(class: Class, hertz: f64) -> Edge {
    // Long enough for every known licence to be forgotten.
    slices(Class::Scalar, hertz, FORGET_US);
    let control = slices(Class::Scalar, hertz, EDGE_US);
    let wide = slices(class, hertz, BURST_US);
    let after = slices(Class::Scalar, hertz, FORGET_US);
    let lost = |slices: &Slices| {
        let excess = slices.excess(typical(&slices.ticks[slices.ticks.len() / 2..]));
        excess.iter().take(EDGE).sum::<f64>() / hertz * 1e6
    };
    let edge = Edge {
        stall_us: lost(&wide),
        control_us: lost(&control),
        after: 1.0,
        tail_us: 0.0,
    };
    match widelane_marks::here() {
        Some(_) => edge.after_a_brake(&after, hertz),
        None => edge.after_a_burst(&after.ticks, hertz),
    }
}

impl Edge {
    /// Adds the times of scalar code that ran after the burst.
    fn after_a_burst(self, after: &[u64], hertz: f64) -> Self {
        // Steady is how scalar code goes long after it.
        let steady = typical(&after[after.len() / 2..]);
        let first = typical(&after[..AFTER]);
        // Back when a run of slices is nearer to the full clock than to the lowered one.
        let middle = (first + steady) / 2.0;
        let back = after
            .windows(RUN)
            .position(|run| run.iter().all(|&slice| (slice as f64) < middle))
            .unwrap_or(after.len());
        Self {
            after: steady / first,
            tail_us: after[..back].iter().sum::<u64>() as f64 / hertz * 1e6,
            ..self
        }
    }

    /// Corrects the figures if the clock is a brake's.
    fn after_a_brake(self, after: &Slices, hertz: f64) -> Self {
        let us = |ticks: f64| ticks / hertz * 1e6;
        let Some(last) = after.taken.iter().rposition(|&taken| taken > 0) else {
            return self;
        };
        // The last piece lies around the end: a little before it, if it was not worth two.
        let before = us(after.ticks[..last].iter().sum::<u64>() as f64);
        let tail_us = before + after.taken[last] as f64 / 2e3;
        let taken_us = after.taken.iter().sum::<u64>() as f64 / 1e3;
        Self {
            after: 1.0 - (taken_us / tail_us.max(taken_us)).min(1.0),
            tail_us,
            ..self
        }
    }
}

/// Consecutive slices.
struct Slices {
    /// Length of each slice.
    ticks: Vec<u64>,
    /// Time that a brake took in each slice, in nanoseconds; and the part of it for the lower clock.
    taken: Vec<u64>,
    clock: Vec<u64>,
    ticks_per_ns: f64,
}

impl Slices {
    /// Time of each slice beyond `usual`, without what a brake took for a lower clock.
    fn excess(&self, usual: f64) -> Vec<f64> {
        let excess = |(&slice, &clock): (&u64, &u64)| {
            let clock = clock as f64 * self.ticks_per_ns;
            (slice as f64 - clock - usual).max(0.0)
        };
        self.ticks.iter().zip(&self.clock).map(excess).collect()
    }
}

/// Times of consecutive slices over about `us` microseconds.
fn slices(class: Class, hertz: f64, us: f64) -> Slices {
    // At no clock above this is a slice shorter than it should be.
    let rounds = (SLICE_US * 1e3 * NOMINAL_GHZ / ROUND_CYCLES as f64) as u64;
    let most = 2 * (us / SLICE_US) as usize;
    let mut slices = Slices {
        ticks: Vec::with_capacity(most),
        taken: Vec::with_capacity(most),
        clock: Vec::with_capacity(most),
        ticks_per_ns: hertz / 1e9,
    };
    let brake = widelane_marks::here();
    let account = || brake.map_or((0, 0), |brake| (brake.taken(), brake.taken_as_clock()));
    let mut before = account();
    let end = ticks() + (us / 1e6 * hertz) as u64;
    let mut mark = None;
    while ticks() < end || slices.ticks.len() < 2 * RUN {
        let begin = ticks();
        // The effects of the mark are in the first slice.
        mark.get_or_insert_with(|| widelane_marks::wide(class));
        let time = spin(class, rounds);
        let whole = ticks() - begin;
        let now = account();
        slices.ticks.push(if brake.is_some() { whole } else { time });
        slices.taken.push(now.0 - before.0);
        slices.clock.push(now.1 - before.1);
        before = now;
    }
    slices
}

fn typical(slices: &[u64]) -> f64 {
    let times: Vec<_> = slices.iter().map(|&slice| slice as f64).collect();
    median(&times).unwrap_or(0.0)
}

fn summary(class: Class, edges: &[Edge]) -> Option<Transition> {
    let of = |value: fn(&Edge) -> f64| edges.iter().map(value).collect::<Vec<_>>();
    let after = median(&of(|edge| edge.after))?;
    Some(Transition {
        class: class.name().to_owned(),
        stall_us: Distribution::of(&of(|edge| edge.stall_us))?,
        control_us: Distribution::of(&of(|edge| edge.control_us))?,
        after,
        tail_us: (after < LOWER)
            .then(|| Distribution::of(&of(|edge| edge.tail_us)))
            .flatten(),
    })
}

const SLICE_US: f64 = 1.0;
const NOMINAL_GHZ: f64 = 3.0;
/// The known licences are forgotten after 4 ms.
const FORGET_US: f64 = 5000.0;
const BURST_US: f64 = 600.0;
/// Time, and slices, after which both halts of the known licences are over.
const EDGE_US: f64 = 200.0;
const EDGE: usize = (EDGE_US / SLICE_US) as usize;
/// Slices after the burst at which the lowered clock is read.
const AFTER: usize = 100;
/// Slices in a row that make a clock.
const RUN: usize = 8;
/// A clock that is lower by less than this share is not lower.
const LOWER: f64 = 0.98;
