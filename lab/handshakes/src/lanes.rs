//! Settings of `widelane serve` that differ on this CPU, and what tables say of it.

use crate::servers::Side;
use widelane_cpu::Lanes;

/// The first line of a comparison: what this CPU can do.
///
/// If `sides` has settings of one program that run the same code here, it says so.
pub(crate) fn introduction(lanes: Lanes, sides: &[Side]) -> String {
    let settings = sides.iter().filter(|side| is_setting(**side)).count();
    match settings > 1 && !lanes.exist() {
        true => format!("{} {SAME_CODE}\n", lanes.sentence()),
        false => format!("{}\n", lanes.sentence()),
    }
}

/// Sides that differ. Without lanes, one setting of `widelane serve` stands for all.
pub(crate) fn distinct(sides: &[Side], lanes: Lanes) -> Vec<Side> {
    let settings = || sides.iter().copied().filter(|side| is_setting(*side));
    let usual = settings().find(|side| *side == Side::Batched);
    let one = usual.or_else(|| settings().next());
    let differs = |side: &Side| lanes.exist() || !is_setting(*side) || Some(*side) == one;
    sides.iter().copied().filter(differs).collect()
}

/// Returns whether the side is `widelane serve` with a setting that matters only to passes with lanes.
fn is_setting(side: Side) -> bool {
    matches!(side, Side::Alone | Side::Batched | Side::Inline)
}

const SAME_CODE: &str = "With batching on and off, Widelane runs the same AWS-LC code here.";

#[cfg(test)]
mod tests {
    use super::*;

    const SIDES: [Side; 4] = [Side::Alone, Side::Batched, Side::Inline, Side::Nginx];

    #[test]
    fn without_lanes_one_setting_stands_for_all() {
        assert_eq!(distinct(&SIDES, Lanes::ALL), SIDES);
        let one = [Side::Batched, Side::Nginx];
        assert_eq!(distinct(&SIDES, Lanes::NONE), one);
        assert_eq!(distinct(&[Side::Alone, Side::Nginx], Lanes::NONE)[0], Side::Alone);
    }

    #[test]
    fn the_introduction_says_what_runs_the_same_code() {
        let text = introduction(Lanes::NONE, &SIDES);
        assert!(text.starts_with("This CPU has no lanes that Widelane uses"), "{text}");
        assert!(text.ends_with("runs the same AWS-LC code here.\n"), "{text}");
        for (lanes, sides) in [(Lanes::ALL, &SIDES[..]), (Lanes::NONE, &SIDES[2..])] {
            let text = introduction(lanes, sides);
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(!text.contains("same"), "{text}");
        }
    }
}
