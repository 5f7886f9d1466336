//! The lanes in which passes compute here, in words and figures.
//!
//! Every message about them is made from this and from [`Target`], so that one more set of instructions
//! changes no sentence elsewhere.

use crate::licence::Generation;
use crate::{DISABLE_VARIABLE, Features, Target, features, hardware};
use std::fmt;

/// The lanes that Widelane uses on a CPU, or why there are none.
///
/// It is a description and proves nothing: kernels take tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Targets that exist, in the order of [`Target::ALL`].
    targets: [bool; Target::ALL.len()],
    /// True if [`DISABLE_VARIABLE`] alone keeps this process from using the lanes.
    disabled: bool,
}

/// The lanes of this CPU, as this process may use them.
pub fn lanes() -> Lanes {
    Lanes::of(features(), hardware())
}

/// Caveats of the targets that `text` names, a line each. Most targets have none.
pub fn caveats(text: &str) -> String {
    let words: Vec<&str> = text
        .split(|end: char| !end.is_ascii_alphanumeric() && end != '-')
        .collect();
    let lines = Target::ALL.into_iter().filter_map(|target| {
        let caveat = target.caveat()?;
        let is_named = words.contains(&target.name());
        is_named.then(|| format!("{target}: {caveat}\n"))
    });
    lines.collect()
}

impl Lanes {
    /// The value of [`DISABLE_VARIABLE`] that takes all lanes away.
    pub const ALL_DISABLED: &str = "avx2";

    /// The instructions without which there are none.
    const LEAST: &str = Target::LEAST.instructions();

    /// All lanes, which no CPU has.
    pub const ALL: Self = Self {
        targets: [true; Target::ALL.len()],
        disabled: false,
    };

    /// Lanes of a CPU with AVX-512 of the first generation, which has no IFMA.
    pub const WITHOUT_IFMA: Self = Self::with(Features {
        ifma: false,
        vl: false,
        ..Features::SERVER
    });

    /// Lanes of a CPU that has only the preferred ones.
    pub const PREFERRED: Self = {
        let mut lanes = Self::NONE;
        lanes.targets[Target::ALL.len() - 1] = true;
        lanes
    };

    /// Lanes of a CPU that has none.
    pub const NONE: Self = Self {
        targets: [false; Target::ALL.len()],
        disabled: false,
    };

    const fn with(features: Features) -> Self {
        let mut lanes = Self::NONE;
        let mut place = 0;
        while place < Target::ALL.len() {
            lanes.targets[place] = Target::ALL[place].runs_on(features);
            place += 1;
        }
        lanes
    }

    fn of(here: Features, hardware: Features) -> Self {
        let lanes = Self::with(here);
        Self {
            disabled: Self::with(hardware).exist() && !lanes.exist(),
            ..lanes
        }
    }

    /// Lanes of the processors of a generation; `None` for an unknown generation.
    pub fn of_generation(generation: Generation) -> Option<Self> {
        match generation {
            Generation::Skylake | Generation::CascadeLake => Some(Self::WITHOUT_IFMA),
            Generation::IceLake
            | Generation::SapphireRapids
            | Generation::EmeraldRapids
            | Generation::GraniteRapids
            | Generation::Zen4
            | Generation::Zen5 => Some(Self::with(Features::SERVER)),
            Generation::Unknown => None,
        }
    }

    /// Returns whether there are any lanes.
    pub fn exist(self) -> bool {
        self.targets.contains(&true)
    }

    /// The targets that there are, the preferred one first.
    pub fn targets(self) -> impl Iterator<Item = Target> {
        let all = Target::ALL.into_iter().zip(self.targets).rev();
        all.filter_map(|(target, exists)| exists.then_some(target))
    }

    /// Bits of the registers in which passes can compute, the widest first.
    pub fn widths(self) -> Vec<u32> {
        let mut widths: Vec<u32> = self.targets().map(Target::bits).collect();
        widths.sort_unstable_by(|one, other| other.cmp(one));
        widths.dedup();
        widths
    }

    /// Reason why there are no lanes, as a clause for people; `None` if there are some.
    pub fn why_none(self) -> Option<String> {
        (!self.exist()).then(|| self.to_string())
    }

    /// Text of [`Display`](fmt::Display) as a sentence.
    pub fn sentence(self) -> String {
        let clause = self.to_string();
        let (first, rest) = clause.split_at(1);
        format!("{}{rest}.", first.to_uppercase())
    }
}

/// A clause for people, like "this CPU has lanes that Widelane uses: …".
impl fmt::Display for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.exist() && self.disabled {
            return write!(
                f,
                "this CPU has no lanes that Widelane uses: {DISABLE_VARIABLE} takes {} away",
                Self::LEAST
            );
        }
        if !self.exist() {
            return write!(
                f,
                "this CPU has no lanes that Widelane uses: it lacks {}, or the hypervisor or the \
                 operating system hides it",
                Self::LEAST
            );
        }
        let mut sets: Vec<(Target, Vec<String>)> = Vec::new();
        for target in self.targets() {
            let bits = target.bits().to_string();
            match sets.last_mut() {
                Some((last, widths)) if last.instructions() == target.instructions() => {
                    widths.push(bits);
                }
                _ => sets.push((target, vec![bits])),
            }
        }
        let sets: Vec<_> = sets
            .into_iter()
            .map(|(target, widths)| {
                let (set, widths) = (target.instructions(), widths.join(" and "));
                let caveat = target.caveat().map(|caveat| format!(" ({caveat})"));
                let caveat = caveat.unwrap_or_default();
                format!("{set} in registers of {widths} bits{caveat}")
            })
            .collect();
        write!(f, "this CPU has lanes that Widelane uses: {}", sets.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disable;

    /// Every machine that [`DISABLE_VARIABLE`] can play, by its list.
    fn played(list: &str) -> Lanes {
        let (here, unknown) = disable(Features::ALL, list);
        assert!(unknown.is_empty(), "{unknown:?}");
        Lanes::of(here, Features::ALL)
    }

    #[test]
    fn lanes_are_described_as_tokens_are_given() {
        let lanes = lanes();
        let mut available: Vec<_> = Target::available().collect();
        available.reverse();
        assert_eq!(lanes.targets().collect::<Vec<_>>(), available);
        assert_eq!(lanes.why_none().is_some(), !lanes.exist());
    }

    #[test]
    fn a_clause_names_what_there_is_or_what_is_missing() {
        let server = "this CPU has lanes that Widelane uses: AVX-512 IFMA in registers of 512 and 256 bits; AVX-512 \
                      with FMA in registers of 512 bits; AVX2 with FMA in registers of 256 bits";
        assert_eq!(played("avxifma").to_string(), server);
        let all = format!("{server}; AVX-IFMA in registers of 256 bits (tested by emulation, never measured)");
        assert_eq!(played("").to_string(), all);
        assert_eq!(played("").sentence(), format!("T{}.", &all[1..]));
        for (list, expected) in [
            (
                "avx512vl",
                "uses: AVX-512 IFMA in registers of 512 bits; AVX-512 with FMA",
            ),
            (
                "avx512ifma",
                "uses: AVX-512 with FMA in registers of 512 bits; AVX2 with FMA in registers of 256 bits",
            ),
            ("avx512f", "uses: AVX2 with FMA in registers of 256 bits"),
        ] {
            let described = played(list).to_string();
            assert!(described.contains(expected), "{described}");
        }
        for list in ["avx512ifma,avxifma,fma", "avx2"] {
            let none = played(list).why_none().expect("no lanes");
            let expected = "this CPU has no lanes that Widelane uses: WIDELANE_CPU_DISABLE takes";
            assert!(none.starts_with(expected), "{none}");
        }
        assert!(!played(Lanes::ALL_DISABLED).exist());
        let lacking = Lanes::of(Features::NONE, Features::NONE).to_string();
        assert!(lacking.contains("it lacks AVX2 with FMA"), "{lacking}");
    }

    #[test]
    fn a_text_that_names_what_was_never_measured_says_so() {
        let expected = "avxifma: tested by emulation, never measured\n";
        for text in ["avxifma 8 n/a", "backend avx2\n    x: lanes (avxifma), 1.6"] {
            assert_eq!(caveats(text), expected, "{text}");
        }
        assert_eq!(caveats("avx512ifma, avx512ifma-256, avx2 and aws-lc"), "");
    }

    #[test]
    fn a_processor_without_ifma_multiplies_by_fma() {
        let of = Lanes::of_generation;
        assert_eq!(of(Generation::Skylake), Some(Lanes::WITHOUT_IFMA));
        assert_eq!(played("avx512ifma,avxifma"), Lanes::WITHOUT_IFMA);
        assert_eq!(of(Generation::Zen4), Some(played("avxifma")));
        assert_eq!(of(Generation::Unknown), None);
    }
}
