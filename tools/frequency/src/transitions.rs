//! What happens at the edges of wide code: the stall after its first instruction, and for how long
//! a lower clock outlives its last one.
//!
//! Both are looked for with slices of the chain about a microsecond long. What slows a slice now
//! and then (an interrupt, the hypervisor) is found at any place; what belongs to the edge is found
//! at the edge in most repetitions: hence distributions.

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
    /// The same where the code goes on as it was, for comparison: what this machine does anyhow.
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
        summed
            .filter_map(|(&class, edges)| summary(class, &edges))
            .collect()
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
    let us = |ticks: u64| ticks as f64 / hertz * 1e6;
    // Long enough for every known licence to be forgotten.
    slices(Class::Scalar, hertz, FORGET_US);
    let control = slices(Class::Scalar, hertz, EDGE_US);
    let wide = slices(class, hertz, BURST_US);
    let after = slices(Class::Scalar, hertz, FORGET_US);

    let edge = (EDGE_US / SLICE_US) as usize;
    let lost = |slices: &[u64], usual: f64| {
        let excess = slices.iter().take(edge).map(|&slice| slice as f64 - usual);
        us(excess.filter(|&excess| excess > 0.0).sum::<f64>() as u64)
    };
    // Steady is how the burst ends, and how scalar code goes long after it.
    let steady_wide = typical(&wide[wide.len() / 2..]);
    let steady_scalar = typical(&after[after.len() / 2..]);
    let first = typical(&after[..(AFTER_US / SLICE_US) as usize]);
    // Back when a run of slices is nearer to the full clock than to the lowered one.
    let middle = (first + steady_scalar) / 2.0;
    let back = after
        .windows(RUN)
        .position(|run| run.iter().all(|&slice| (slice as f64) < middle))
        .unwrap_or(after.len());
    Edge {
        stall_us: lost(&wide, steady_wide),
        control_us: lost(&control, typical(&control)),
        after: steady_scalar / first,
        tail_us: us(after[..back].iter().sum()),
    }
}

/// Times of consecutive slices over about `us` microseconds.
fn slices(class: Class, hertz: f64, us: f64) -> Vec<u64> {
    // At no clock above this is a slice shorter than it should be.
    let rounds = (SLICE_US * 1e3 * NOMINAL_GHZ / ROUND_CYCLES as f64) as u64;
    let end = ticks() + (us / 1e6 * hertz) as u64;
    let mut slices = Vec::with_capacity(2 * (us / SLICE_US) as usize);
    while ticks() < end || slices.len() < 2 * RUN {
        slices.push(spin(class, rounds));
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
/// Both halts of the known licences are over after this.
const EDGE_US: f64 = 200.0;
/// The lowered clock is read off this long after the burst.
const AFTER_US: f64 = 100.0;
/// Slices in a row that make a clock.
const RUN: usize = 8;
/// A clock that is lower by less than this share is not lower.
const LOWER: f64 = 0.98;
