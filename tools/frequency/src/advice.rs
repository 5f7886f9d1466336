//! What follows from a profile, or from what is published about a machine.

use crate::clocks::class_name;
use crate::profile::{Penalty, Profile};
use serde::Serialize;
use widelane_cpu::licence::{Class, Generation, Level, Range, Turbo};

/// What the advice is about.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// A machine that was measured.
    Measured(&'a Profile),
    /// A machine that is only known from published figures.
    Published(&'a Turbo),
}

/// Advice, in words and for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The machine.
    pub machine: String,
    /// Where its figures are from.
    pub basis: String,
    /// Whether wide code lowers its clock; `None` where that is not known.
    pub penalty: Option<bool>,
    /// Where passes should run.
    pub placement: Placement,
    /// Bits of the registers to use for kernels that multiply (public-key operations), and for
    /// those that do not (hashes).
    pub heavy_width: u32,
    /// See [`heavy_width`](Self::heavy_width).
    pub light_width: u32,
    /// From which share of a core's time on wide code should have a core of its own; `None` where
    /// the share does not matter.
    pub share: Option<f64>,
    /// Scalar time that an isolated burst destroys, in microseconds.
    pub burst_us: Option<[f64; 2]>,
    /// The same for people, a statement a line.
    pub words: Vec<String>,
}

/// Where passes should run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// On the threads that submit.
    Inline,
    /// On cores of their own.
    VectorCores,
}

/// Advice about a machine.
pub fn advise(subject: Subject<'_>) -> Advice {
    match subject {
        Subject::Measured(profile) => measured(profile),
        Subject::Published(turbo) => published(turbo),
    }
}

fn measured(profile: &Profile) -> Advice {
    let generation = {
        let machine = &profile.machine;
        Generation::of(
            &machine.vendor,
            machine.family,
            machine.model,
            machine.stepping,
        )
    };
    let figures = Figures {
        machine: profile.machine.name.clone(),
        basis: match profile.quick {
            true => "measured here, in a hurry".to_owned(),
            false => "measured here".to_owned(),
        },
        heavy512: deepest(profile, Class::Heavy512),
        heavy256: deepest(profile, Class::Heavy256),
        light512: deepest(profile, Class::Light512),
        burst: tail(profile).or_else(|| {
            let full = 1.0;
            let lowered = 1.0 - deepest(profile, Class::Heavy512)?;
            Some(generation.transition(Level::L2)?.burst_cost(full, lowered))
        }),
    };
    let mut advice = figures.advice();
    if let Penalty::None { at_most } = profile.penalty() {
        advice.words.push(format!(
            "The measurement leaves room for a loss of at most {:.1} %.",
            100.0 * at_most
        ));
    }
    advice
}

fn published(turbo: &Turbo) -> Advice {
    let depth = |class| {
        let level = turbo.generation.level(class)?;
        Some((1.0 - turbo.clock(level)? / turbo.clock(Level::L0)?).max(0.0))
    };
    let burst = || {
        let transition = turbo.generation.transition(Level::L2)?;
        Some(transition.burst_cost(turbo.clock(Level::L0)?, turbo.clock(Level::L2)?))
    };
    Figures {
        machine: format!("{}, active cores: {}", turbo.cpu, turbo.cores),
        basis: format!("published: {}", turbo.source),
        heavy512: depth(Class::Heavy512),
        heavy256: depth(Class::Heavy256),
        light512: depth(Class::Light512),
        burst: burst(),
    }
    .advice()
}

/// The deepest loss of a class on any number of cores; `None` if it was not measured, 0 if it could
/// be noise.
pub(crate) fn deepest(profile: &Profile, class: Class) -> Option<f64> {
    let name = class_name(class);
    if !profile.clocks.iter().any(|clock| clock.class == name) {
        return None;
    }
    let depths = match profile.penalty() {
        Penalty::Some(depths) => depths,
        Penalty::None { .. } | Penalty::Unknown => Vec::new(),
    };
    let of_class = depths.iter().filter(|depth| depth.class == name);
    Some(of_class.map(|depth| depth.depth.value).fold(0.0, f64::max))
}

/// What a burst of 512-bit heavy code costs by the measured edges.
fn tail(profile: &Profile) -> Option<Range> {
    let name = class_name(Class::Heavy512);
    let edge = profile.transitions.iter().find(|edge| edge.class == name)?;
    let depth = 1.0 - edge.after;
    let cost = |stall: f64, tail: f64| stall + tail * depth;
    let tail = edge.tail_us?;
    Some(Range {
        low: cost(edge.stall_us.p5, tail.p5),
        high: cost(edge.stall_us.p95, tail.p95),
    })
}

/// What advice is made of: losses of clock as shares, by class.
struct Figures {
    machine: String,
    basis: String,
    heavy512: Option<f64>,
    heavy256: Option<f64>,
    light512: Option<f64>,
    burst: Option<Range>,
}

impl Figures {
    fn advice(self) -> Advice {
        let mut words = Vec::new();
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let penalty = match (self.heavy512, self.light512, self.heavy256) {
            (None, None, None) => None,
            (a, b, c) => Some([a, b, c].into_iter().flatten().any(|depth| depth > 0.0)),
        };
        let heavy512 = self.heavy512.unwrap_or(0.0);
        let heavy256 = self.heavy256.unwrap_or(0.0);
        let light512 = self.light512.unwrap_or(0.0);
        match penalty {
            None => words.push(
                "Nothing is known about what wide code costs here: run `widelane probe`."
                    .to_owned(),
            ),
            Some(false) => words.push(
                "Wide code costs no clock here. Use the widest registers, on the threads that \
                 submit; nothing is to be gained from cores of their own."
                    .to_owned(),
            ),
            Some(true) => {
                for (name, depth) in [
                    ("512-bit multiplications", heavy512),
                    ("256-bit multiplications", heavy256),
                    ("512-bit code without multiplications", light512),
                ] {
                    if depth > 0.0 {
                        words.push(format!(
                            "With {name}, {} of the clock is missing.",
                            percent(depth)
                        ));
                    }
                }
            }
        }
        // Twice the lanes at a clock that is lower by less than half are still ahead.
        let worthwhile = |wide: f64, narrow: f64| 2.0 * (1.0 - wide) > 1.0 - narrow;
        let heavy_width = if worthwhile(heavy512, heavy256) {
            512
        } else {
            256
        };
        let light_width = if worthwhile(light512, 0.0) { 512 } else { 256 };
        let costs = penalty == Some(true);
        let placement = match costs {
            true => Placement::VectorCores,
            false => Placement::Inline,
        };
        // A core that spends the share s of its time on wide code of double speed, and the rest at
        // the lowered clock, gains s and loses (1 - s) times the depth.
        let share = (costs && heavy512 > 0.0).then(|| heavy512 / (1.0 + heavy512));
        if let Some(share) = share {
            words.push(format!(
                "Run wide code on cores of its own, unless more than about {} of a core's time is \
                 wide code: there it gains more than the scalar code beside it loses.",
                percent(share)
            ));
        }
        let burst_us = self.burst.filter(|burst| burst.high > 0.0);
        if let Some(burst) = burst_us {
            let [low, high] = [burst.low, burst.high].map(|us| format!("{us:.0}"));
            let burst = match low == high {
                true => low,
                false => format!("{low} to {high}"),
            };
            words.push(format!(
                "An isolated burst of 512-bit multiplications destroys {burst} µs of scalar time on \
                 its core: it pays only if it saves more. A burst while the clock is low already \
                 costs nothing more."
            ));
        }
        Advice {
            machine: self.machine,
            basis: self.basis,
            penalty,
            placement,
            heavy_width,
            light_width,
            share,
            burst_us: burst_us.map(|burst| [burst.low, burst.high]),
            words,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::profile;
    use widelane_cpu::licence::turbo_of;

    #[test]
    fn a_machine_without_penalty_is_left_alone() {
        let advice = advise(Subject::Measured(&profile(3.7, 3.7)));
        assert_eq!(
            (advice.penalty, advice.placement),
            (Some(false), Placement::Inline)
        );
        assert_eq!((advice.heavy_width, advice.share), (512, None));
    }

    #[test]
    fn a_gold_6130_gets_vector_cores() {
        let rows = turbo_of("Gold 6130");
        let advice = advise(Subject::Published(rows.last().unwrap()));
        assert_eq!(
            (advice.penalty, advice.placement),
            (Some(true), Placement::VectorCores)
        );
        let [low, high] = advice.burst_us.unwrap();
        assert!((250.0..300.0).contains(&low) && (250.0..300.0).contains(&high));
        assert!(
            advice
                .words
                .iter()
                .any(|line| line.contains("32 % of the clock")),
            "{advice:?}"
        );
        // The same figures, if somebody had measured them.
        let measured = advise(Subject::Measured(&profile(2.8, 1.9)));
        assert_eq!(measured.placement, Placement::VectorCores);
    }

    #[test]
    fn where_nothing_is_known_nothing_is_claimed() {
        let mut unknown = profile(3.0, 3.0);
        unknown.clocks.clear();
        let advice = advise(Subject::Measured(&unknown));
        assert_eq!(
            (advice.penalty, advice.placement),
            (None, Placement::Inline)
        );
        assert!(advice.words[0].contains("widelane probe"));
    }
}
