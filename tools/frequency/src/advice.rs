//! Advice from a profile, or from the published figures of a machine.

use crate::forms::{self, Form, forms};
use crate::policy::clock;
use crate::profile::{Penalty, Profile};
use crate::subject::{Subject, deepest};
use serde::Serialize;
use widelane_batching::{Clock, Core, PlacementChoice, Topology, Width, placement, width};
use widelane_cpu::licence::{Class, Generation, Level, Range, Turbo, ports};
use widelane_cpu::{Lanes, Product, Registers, Target};

/// Advice, in words and for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The machine.
    pub machine: String,
    /// Source of the figures.
    pub basis: String,
    /// True if wide code lowers the machine's clock; `None` if that is not known.
    pub penalty: Option<bool>,
    /// Place where passes should run.
    pub placement: PlacementChoice,
    /// Bits of the registers to use for kernels that multiply (public-key operations), and for
    /// those that do not (hashes); `None` where Widelane has no lanes.
    pub heavy_width: Option<u32>,
    /// See [`heavy_width`](Self::heavy_width).
    pub light_width: Option<u32>,
    /// Share of a core's time from which on wide code should have a core of its own; `None` if the share does not
    /// matter.
    pub share: Option<f64>,
    /// Scalar time that an isolated burst destroys, in microseconds.
    pub burst_us: Option<[f64; 2]>,
    /// The forms of Widelane's code that a published processor without AVX-512 IFMA could run, predicted.
    pub forms: Vec<Form>,
    /// Advice for people, a statement a line.
    pub words: Vec<String>,
}

/// Advice about a machine. `here` are the lanes of this one, to which a measured profile belongs; those
/// of a published machine are its generation's.
pub fn advise(subject: Subject<'_>, here: Lanes) -> Advice {
    match subject {
        Subject::Measured(profile) => measured(profile, here),
        Subject::Published(turbo) => published(turbo, Lanes::of_generation(turbo.generation).unwrap_or(here)),
    }
}

fn measured(profile: &Profile, lanes: Lanes) -> Advice {
    let generation = {
        let machine = &profile.machine;
        Generation::of(&machine.vendor, machine.family, machine.model, machine.stepping)
    };
    let figures = Figures {
        lanes,
        forms: Vec::new(),
        clock: clock(Subject::Measured(profile)),
        // One of them would be a vector core.
        others: profile.cpus.len().saturating_sub(1),
        machine: profile.machine.name.clone(),
        basis: match profile.quick {
            true => "measured here, in a hurry".to_owned(),
            false => "measured here".to_owned(),
        },
        heavy512: deepest(profile, Class::Heavy512),
        heavy256: deepest(profile, Class::Heavy256),
        light512: deepest(profile, Class::Light512),
        is_measured: !profile.clocks.is_empty(),
        burst: tail(profile).or_else(|| {
            let full = 1.0;
            let lowered = 1.0 - deepest(profile, Class::Heavy512)?;
            Some(generation.transition(Level::L2)?.burst_cost(full, lowered))
        }),
    };
    let mut advice = figures.advice();
    if let (Penalty::None { at_most }, Some(_)) = (profile.penalty(), advice.penalty) {
        advice.words.push(format!(
            "The measurement leaves room for a loss of at most {:.1} %.",
            100.0 * at_most
        ));
    }
    advice
}

fn published(turbo: &Turbo, lanes: Lanes) -> Advice {
    let depth = |class| {
        let level = turbo.generation.level(class)?;
        Some((1.0 - turbo.clock(level)? / turbo.clock(Level::L0)?).max(0.0))
    };
    let burst = || {
        let transition = turbo.generation.transition(Level::L2)?;
        Some(transition.burst_cost(turbo.clock(Level::L0)?, turbo.clock(Level::L2)?))
    };
    Figures {
        lanes,
        forms: forms(turbo),
        clock: clock(Subject::Published(turbo)),
        // The row is about active cores; a machine has more.
        others: turbo.cores as usize,
        machine: format!("{}, active cores: {}", turbo.cpu, turbo.cores),
        basis: format!("published: {}", turbo.source),
        heavy512: depth(Class::Heavy512),
        heavy256: depth(Class::Heavy256),
        light512: depth(Class::Light512),
        is_measured: false,
        burst: burst(),
    }
    .advice()
}

/// Cost of a burst of 512-bit heavy code by the measured edges.
fn tail(profile: &Profile) -> Option<Range> {
    let name = Class::Heavy512.name();
    let edge = profile.transitions.iter().find(|edge| edge.class == name)?;
    let depth = 1.0 - edge.after;
    let cost = |stall: f64, tail: f64| stall + tail * depth;
    let tail = edge.tail_us?;
    Some(Range {
        low: cost(edge.stall_us.p5, tail.p5),
        high: cost(edge.stall_us.p95, tail.p95),
    })
}

/// Figures behind the advice: losses of clock as shares, by class.
struct Figures {
    lanes: Lanes,
    /// Forms of a published processor.
    forms: Vec<Form>,
    clock: Clock,
    /// Cores beside one vector core.
    others: usize,
    machine: String,
    basis: String,
    heavy512: Option<f64>,
    heavy256: Option<f64>,
    light512: Option<f64>,
    /// True if this machine was measured. Classes without a figure are then those that it has no instructions for.
    is_measured: bool,
    burst: Option<Range>,
}

impl Figures {
    fn advice(self) -> Advice {
        let mut words = Vec::new();
        let has_lanes = self.lanes.exist();
        if !has_lanes {
            words.push(format!(
                "{} AWS-LC does Widelane's public-key operations. What follows is about wide code of \
                 other programs.",
                self.lanes.sentence()
            ));
        }
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let penalty = match (self.heavy512, self.light512, self.heavy256) {
            (None, None, None) => None,
            (a, b, c) => Some([a, b, c].into_iter().flatten().any(|depth| depth > 0.0)),
        };
        let heavy512 = self.heavy512.unwrap_or(0.0);
        let heavy256 = self.heavy256.unwrap_or(0.0);
        let light512 = self.light512.unwrap_or(0.0);
        match penalty {
            None if self.is_measured => words.push(
                "There is no code here that could cost clock: this CPU has no instructions in registers of 256 bits \
                 or more that can be used here."
                    .to_owned(),
            ),
            None => words.push("Nothing is known about what wide code costs here: run `widelane probe`.".to_owned()),
            Some(false) if has_lanes => words.push(
                "Wide code costs no clock here. Use the widest registers, on the threads that \
                 submit; nothing is to be gained from cores of their own."
                    .to_owned(),
            ),
            Some(false) => {
                words.push("Wide code costs no clock here: nothing is to be gained from cores of its own.".to_owned())
            }
            Some(true) => {
                for (name, depth) in [
                    ("512-bit multiplications", heavy512),
                    ("256-bit multiplications", heavy256),
                    ("512-bit code without multiplications", light512),
                ] {
                    if depth > 0.0 {
                        words.push(format!("With {name}, {} of the clock is missing.", percent(depth)));
                    }
                }
            }
        }
        words.extend(forms::words(&self.forms));
        // `batching` decides, as it does for a server, on a core that runs only passes.
        let topology = Topology::new((0..=self.others).collect(), (0..1).collect());
        let placement = placement(PlacementChoice::Auto, &self.clock, &topology).choice();
        let time = |passes: f64, depth: f64| (passes * 1e6 / (1.0 - depth.min(0.99))) as u64;
        let dedicated = Core {
            dedicated: true,
            since: Some(0),
        };
        let (wide, narrow) = (time(1.0, heavy512), time(self.narrow_passes(), heavy256));
        let wished = match width(&self.clock, &dedicated, wide, narrow) {
            Width::Wide => 512,
            Width::Narrow => 256,
        };
        // There is no decision about code that does not multiply: the same rule.
        let worthwhile = |wide: f64, narrow: f64| 2.0 * (1.0 - wide) > 1.0 - narrow;
        let light = if worthwhile(light512, 0.0) { 512 } else { 256 };
        let widths = self.lanes.widths();
        // The nearest that there is.
        let available = |wished: u32| {
            let nearest = widths.iter().min_by_key(|width| width.abs_diff(wished));
            nearest.copied()
        };
        let costs = penalty == Some(true);
        // A core that spends the share s of its time on wide code of double speed, and the rest at
        // the lowered clock, gains s and loses (1 - s) times the depth.
        let share = (costs && heavy512 > 0.0).then(|| heavy512 / (1.0 + heavy512));
        if placement != PlacementChoice::VectorCores {
            if costs {
                let why = match self.others {
                    0 => "This machine has no CPU to spare for wide code: it runs on the threads that submit it.",
                    _ => {
                        "What lowers the clock here is not what Widelane's passes use: they run on the threads that \
                         submit them."
                    }
                };
                words.push(why.to_owned());
            }
        } else if let Some(share) = share {
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
            heavy_width: available(wished),
            // The forms of ChaCha20-Poly1305 have AVX-512 IFMA.
            light_width: available(light).filter(|_| {
                let mut targets = self.lanes.targets();
                targets.any(|target| target.registers() == Registers::Avx512 && target.product() == Product::Vpmadd52)
            }),
            share,
            burst_us: burst_us.map(|burst| [burst.low, burst.high]),
            forms: self.forms,
            words,
        }
    }

    /// Ratio of the time of a pass in narrow registers to that in wide ones, at one clock: 2 where both multiply by
    /// VPMADD52, less where products are bound by other ports.
    fn narrow_passes(&self) -> f64 {
        if self.lanes.targets().next() != Some(Target::Avx512F) {
            return 2.0;
        }
        let published = self.forms.first().and_then(|form| form.per_cycle);
        let with_two_units = || ports::speed_up(Target::Avx512F, 2);
        published.or_else(with_two_units).unwrap_or(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::profile;
    use widelane_cpu::Lanes;
    use widelane_cpu::licence::turbo_of;

    #[test]
    fn a_machine_without_penalty_is_left_alone() {
        let advice = advise(Subject::Measured(&profile(3.7, 3.7)), Lanes::ALL);
        assert_eq!(
            (advice.penalty, advice.placement),
            (Some(false), PlacementChoice::Inline)
        );
        assert_eq!((advice.heavy_width, advice.share), (Some(512), None));
    }

    #[test]
    fn a_gold_6130_gets_vector_cores() {
        let rows = turbo_of("Gold 6130");
        let advice = advise(Subject::Published(rows.last().unwrap()), Lanes::ALL);
        assert_eq!(
            (advice.penalty, advice.placement),
            (Some(true), PlacementChoice::VectorCores)
        );
        let [low, high] = advice.burst_us.unwrap();
        assert!((250.0..300.0).contains(&low) && (250.0..300.0).contains(&high));
        assert!(
            advice.words.iter().any(|line| line.contains("32 % of the clock")),
            "{advice:?}"
        );
        // Gives the same figures as measured ones.
        let measured = advise(Subject::Measured(&profile(2.8, 1.9)), Lanes::ALL);
        assert_eq!(measured.placement, PlacementChoice::VectorCores);
    }

    /// For a CPU without 512-bit registers, nothing else is known.
    #[test]
    fn a_penalty_of_other_code_moves_no_passes() {
        let mut lowered = profile(2.8, 1.9);
        lowered.clocks[1].class = "256-heavy".to_owned();
        let advice = advise(Subject::Measured(&lowered), Lanes::ALL);
        assert_eq!(
            (advice.penalty, advice.placement),
            (Some(true), PlacementChoice::Inline)
        );
        let words = advice.words.join("\n");
        assert!(words.contains("With 256-bit multiplications, 32 %"), "{words}");
        assert!(words.contains("not what Widelane's passes use"), "{words}");
        assert!(!words.contains("no CPU to spare"), "{words}");
    }

    #[test]
    fn without_lanes_no_width_is_advised() {
        for measured in [profile(3.7, 3.7), profile(2.8, 1.9)] {
            let advice = advise(Subject::Measured(&measured), Lanes::NONE);
            assert_eq!((advice.heavy_width, advice.light_width), (None, None));
            let words = advice.words.join("\n");
            let beginning = "This CPU has no lanes that Widelane uses: it lacks AVX2 with FMA";
            assert!(words.starts_with(beginning), "{words}");
            assert!(!words.contains("widest registers"), "{words}");
        }
    }

    /// With two 512-bit units wide passes are a third faster at one clock, with one a ninth.
    #[test]
    fn a_processor_without_ifma_is_advised_the_form_that_gains_more() {
        for (name, width, form) in [("Gold 6130", 512, "avx512f"), ("Silver 4116", 256, "avx2")] {
            let rows = turbo_of(name);
            let advice = advise(Subject::Published(rows.last().unwrap()), Lanes::ALL);
            assert_eq!((advice.heavy_width, advice.light_width), (Some(width), None));
            let words = advice.words.join("\n");
            let said = format!("Of these, {form} gains most there");
            assert!(words.contains(&said) && words.contains("Predicted for"), "{words}");
            assert!(!words.contains("no lanes"), "{words}");
        }
        let advice = advise(Subject::Published(turbo_of("8269CY")[0]), Lanes::ALL);
        assert_eq!((advice.penalty, advice.forms.len()), (None, 2));
    }

    #[test]
    fn only_a_width_that_there_is_is_advised() {
        // 512-bit multiplications cost enough clock that 256 bits would be better.
        let slow = profile(4.0, 1.0);
        let advised = |lanes| advise(Subject::Measured(&slow), lanes).heavy_width;
        assert_eq!(advised(Lanes::ALL), Some(256));
        assert_eq!(advised(Lanes::PREFERRED), Some(512));
    }

    /// Advises as `serve` decides there, and never against it.
    #[test]
    fn a_machine_with_one_cpu_has_none_to_spare() {
        let mut lowered = profile(2.8, 1.9);
        lowered.cpus = vec![0];
        let advice = advise(Subject::Measured(&lowered), Lanes::ALL);
        assert_eq!(
            (advice.penalty, advice.placement),
            (Some(true), PlacementChoice::Inline)
        );
        let words = advice.words.join("\n");
        assert!(words.contains("no CPU to spare"), "{words}");
        assert!(!words.contains("cores of its own"), "{words}");
    }

    #[test]
    fn a_machine_without_wide_code_is_not_told_to_measure_it() {
        let mut narrow = profile(3.0, 3.0);
        narrow.clocks.retain(|clock| !clock.class.starts_with(['2', '5']));
        assert!(!narrow.clocks.is_empty());
        let words = advise(Subject::Measured(&narrow), Lanes::NONE).words;
        let words = words.join("\n");
        assert!(words.contains("no code here that could cost clock"), "{words}");
        assert!(!words.contains("probe") && !words.contains("leaves room"), "{words}");
    }

    #[test]
    fn where_nothing_is_known_nothing_is_claimed() {
        let mut unknown = profile(3.0, 3.0);
        unknown.clocks.clear();
        let advice = advise(Subject::Measured(&unknown), Lanes::ALL);
        assert_eq!((advice.penalty, advice.placement), (None, PlacementChoice::Inline));
        assert!(advice.words[0].contains("widelane probe"));
    }
}
