//! A profile, or what is published about a machine, as the engine's policy wants it.

use crate::advice::{Subject, deepest};
use crate::clocks::class_name;
use crate::profile::Profile;
use widelane_batching::{Clock, Toll};
use widelane_cpu::licence::{Class, Level, Turbo};

/// What wide code does to the clock, for the engine. What was not measured, or is not published,
/// counts as free; so does what could be noise.
pub fn clock(subject: Subject<'_>) -> Clock {
    let toll = |class| match subject {
        Subject::Measured(profile) => measured(profile, class),
        Subject::Published(turbo) => published(turbo, class),
    };
    Clock {
        wide: toll(Class::Heavy512).unwrap_or_default(),
        narrow: toll(Class::Heavy256).unwrap_or_default(),
    }
}

fn measured(profile: &Profile, class: Class) -> Option<Toll> {
    let depth = deepest(profile, class).filter(|depth| *depth > 0.0)?;
    let name = class_name(class);
    let edge = profile.transitions.iter().find(|edge| edge.class == name);
    // What the machine does anyhow is not the edge's doing.
    let stall = edge.map_or(0.0, |edge| edge.stall_us.p50 - edge.control_us.p50);
    let tail = edge.and_then(|edge| edge.tail_us);
    Some(Toll {
        depth,
        stall: nanoseconds(stall),
        tail: tail.map_or(0, |tail| nanoseconds(tail.p50)),
    })
}

fn published(turbo: &Turbo, class: Class) -> Option<Toll> {
    let level = turbo.generation.level(class)?;
    let lowered = turbo.clock(level)? / turbo.clock(Level::L0)?;
    let edge = turbo.generation.transition(level).unwrap_or_default();
    let middle = |range: widelane_cpu::licence::Range| f64::midpoint(range.low, range.high);
    Some(Toll {
        depth: (1.0 - lowered).max(0.0),
        stall: nanoseconds(middle(edge.down_us) + middle(edge.up_us)),
        tail: nanoseconds(middle(edge.tail_us)),
    })
}

/// Of microseconds; nothing if they are negative or no number.
fn nanoseconds(us: f64) -> u64 {
    (us * 1e3) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::profile;
    use widelane_batching::{Place, place};
    use widelane_cpu::licence::turbo_of;

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
        assert_eq!(place(&gold, 1, 1), Place::VectorCores);
        // The same figures, if somebody had measured them.
        let measured = clock(Subject::Measured(&profile(2.8, 1.9)));
        assert!((measured.wide.depth - gold.wide.depth).abs() < 0.02);
    }
}
