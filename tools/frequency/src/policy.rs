//! A profile, or what is published about a machine, as the engine's policy wants it.

use crate::profile::Profile;
use crate::subject::{Subject, deepest};
use widelane::Form;
use widelane_affinity::Cpus;
use widelane_batching::{self as batching, Clock, ClockPenalty, PlacementChoice, Topology, TransferCosts};
use widelane_cpu::licence::{Class, Level, Turbo};

/// Effect of wide code on the clock, for the engine. Figures that were not measured, or are not published, count as
/// free; so do those that could be noise.
pub fn clock(subject: Subject<'_>) -> Clock {
    let penalty = |class| match subject {
        Subject::Measured(profile) => measured(profile, class),
        Subject::Published(turbo) => published(turbo, class),
    };
    Clock {
        wide: penalty(Class::Heavy512).unwrap_or_default(),
        narrow: penalty(Class::Heavy256).unwrap_or_default(),
    }
}

/// Form in which `widelane::run_wide` should run calls, with `cpus` for vector cores: its text is the value of the
/// environment variable.
pub fn run_wide(profile: &Profile, cpus: Cpus) -> Form {
    let clock = clock(Subject::Measured(profile));
    let all = cpus.or(&profile.cpus.iter().copied().collect());
    let topology = Topology::new(all, cpus);
    let placement = batching::placement(PlacementChoice::Auto, &clock, &topology);
    match batching::form(&placement, &clock, &transfer_costs(profile)) {
        batching::Form::Inline => Form::Inline,
        batching::Form::Pool => Form::Pool { cpus },
        batching::Form::Migrate => Form::Migrate { cpus },
    }
}

fn transfer_costs(profile: &Profile) -> TransferCosts {
    let Some(ways) = &profile.hand_over else {
        return TransferCosts::default();
    };
    // The measured calls are of a thread that looks for them; one that sleeps is to be woken first.
    let pool = ways.sleeping_ns.p50 + (ways.pool_call_ns.p50 - ways.spinning_ns.p50).max(0.0);
    TransferCosts {
        pool: Some(pool as u64),
        migrate: Some(ways.migration_ns.p50 as u64),
    }
}

fn measured(profile: &Profile, class: Class) -> Option<ClockPenalty> {
    let depth = deepest(profile, class).filter(|depth| *depth > 0.0)?;
    let name = class.name();
    let edge = profile.transitions.iter().find(|edge| edge.class == name);
    // Subtracts what the machine loses without an edge.
    let stall = edge.map_or(0.0, |edge| edge.stall_us.p50 - edge.control_us.p50);
    let tail = edge.and_then(|edge| edge.tail_us);
    Some(ClockPenalty {
        depth,
        stall: nanoseconds(stall),
        tail: tail.map_or(0, |tail| nanoseconds(tail.p50)),
    })
}

fn published(turbo: &Turbo, class: Class) -> Option<ClockPenalty> {
    let level = turbo.generation.level(class)?;
    let lowered = turbo.clock(level)? / turbo.clock(Level::L0)?;
    let edge = turbo.generation.transition(level).unwrap_or_default();
    let middle = |range: widelane_cpu::licence::Range| f64::midpoint(range.low, range.high);
    Some(ClockPenalty {
        depth: (1.0 - lowered).max(0.0),
        stall: nanoseconds(middle(edge.down_us) + middle(edge.up_us)),
        tail: nanoseconds(middle(edge.tail_us)),
    })
}

/// Nanoseconds of microseconds; 0 if they are negative or no number.
fn nanoseconds(us: f64) -> u64 {
    (us * 1e3) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Distribution;
    use crate::handover::HandOver;
    use crate::profile::tests::profile;
    use crate::transitions::Transition;
    use widelane_cpu::licence::turbo_of;

    #[test]
    fn calls_go_to_a_vector_core_where_that_is_cheaper_than_what_they_leave_behind() {
        let always = |value: f64| Distribution::of(&[value]).unwrap();
        let mut slow = profile(2.8, 1.9);
        let (one, two) = (Cpus::from_iter([1]), Cpus::from_iter([0, 1]));
        assert_eq!(run_wide(&slow, one), Form::Inline, "not measured");
        slow.hand_over = Some(HandOver {
            spinning_ns: always(900.0),
            sleeping_ns: always(23_000.0),
            pool_call_ns: always(1_100.0),
            migration_ns: always(48_000.0),
        });
        slow.transitions = vec![Transition {
            class: "512-heavy".to_owned(),
            stall_us: always(51.4),
            control_us: always(0.1),
            after: 0.68,
            tail_us: Some(always(670.0)),
        }];
        assert_eq!(run_wide(&slow, one).to_string(), "pool:1");
        assert_eq!(run_wide(&slow, two), Form::Inline, "no other");
        slow.hand_over.as_mut().unwrap().sleeping_ns = always(90_000.0);
        assert_eq!(run_wide(&slow, one).to_string(), "migrate:1");
        let free = Profile {
            clocks: profile(3.7, 3.69).clocks,
            ..slow
        };
        assert_eq!(run_wide(&free, one), Form::Inline);
    }

    #[test]
    fn no_penalty_is_free_and_a_gold_6130_is_not() {
        assert!(clock(Subject::Measured(&profile(3.7, 3.69))).is_free());
        let rows = turbo_of("Gold 6130");
        let gold = clock(Subject::Published(rows.last().unwrap()));
        assert!((0.3..0.35).contains(&gold.wide.depth), "{gold:?}");
        assert!(
            gold.narrow.depth > 0.0 && gold.narrow.depth < gold.wide.depth,
            "{gold:?}"
        );
        assert_eq!(gold.wide.tail, 670_000);
        let topology = Topology::new(Cpus::from_iter([0, 1]), Cpus::default());
        let placement = batching::placement(PlacementChoice::Auto, &gold, &topology);
        assert_eq!(placement.choice(), PlacementChoice::VectorCores);
        // Gives the same figures as measured ones.
        let measured = clock(Subject::Measured(&profile(2.8, 1.9)));
        assert!((measured.wide.depth - gold.wide.depth).abs() < 0.02);
    }
}
