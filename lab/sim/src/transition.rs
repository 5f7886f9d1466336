//! Transitions of one core, measured as their publications did: again and again from the full clock.

use widelane_cpu::licence::machine::{Grant, Machine, Request};

use crate::outcome::Figure;
use crate::plan::{Plan, Transition};

/// The figures of a transition.
pub(crate) fn figures(plan: &Plan, transition: Transition) -> Vec<(Figure, f64)> {
    let Some(rules) = &plan.machine.rules else {
        // Without licences the clock is that of level 0.
        return vec![(Figure::Steady, ghz(plan, Grant::Base))];
    };
    let goal = transition.request.in_time;
    let (mut down, mut tails) = (Vec::new(), Vec::new());
    let mut steady = Grant::Base;
    for run in 0..RUNS {
        let mut core = Machine::new(rules.clone(), plan.seed.wrapping_mul(RUNS) + run);
        core.run(0, transition.request, transition.crowded);
        down.extend(until(&mut core, |grant| grant == goal));
        core.advance(LONG);
        steady = core.state().grant;
        core.run(LONG, Request::NOTHING, false);
        let slow = steady.level() > Grant::Base.level();
        let end = until(&mut core, |grant| grant.level() == Grant::Base.level());
        tails.extend(end.filter(|_| slow).map(|end| {
            // The halt on the way up is no part of the tail.
            (end - LONG).saturating_sub(rules.halt_up)
        }));
    }
    down.sort_unstable();
    tails.sort_unstable();
    let mean = tails.iter().sum::<u64>() as f64 / tails.len().max(1) as f64 / 1e3;
    let all = [
        (Figure::DownP50, at(&down, 0.5)),
        (Figure::DownP95, at(&down, 0.95)),
        (Figure::TailP50, at(&tails, 0.5)),
        (Figure::TailMean, (!tails.is_empty()).then_some(mean)),
        (Figure::Steady, Some(ghz(plan, steady))),
    ];
    let known = all.into_iter().filter_map(|(figure, value)| Some((figure, value?)));
    known.collect()
}

/// Time at which a core first has such a grant.
fn until(core: &mut Machine, is_goal: impl Fn(Grant) -> bool) -> Option<u64> {
    while let Some(next) = core.next_change() {
        core.advance(next);
        if is_goal(core.state().grant) {
            return Some(next);
        }
        if next > 2 * LONG {
            break;
        }
    }
    None
}

fn ghz(plan: &Plan, grant: Grant) -> f64 {
    plan.machine.all_active()[grant.level() as usize] as f64 / 1e6
}

fn at(sorted: &[u64], share: f64) -> Option<f64> {
    let index = (sorted.len() as f64 * share) as usize;
    sorted.get(index).map(|ns| *ns as f64 / 1e3)
}

/// Number of runs, that of Khalil (2019).
const RUNS: u64 = 1000;
/// Nanoseconds: longer than any transition or tail.
const LONG: u64 = 10_000_000;
