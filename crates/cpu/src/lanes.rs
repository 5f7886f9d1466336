//! The lanes in which passes compute here, in words and figures.
//!
//! Every message about them is made from this, so that one more set of instructions changes this file
//! and no sentence elsewhere.

use crate::licence::Generation;
use crate::{DISABLE_VARIABLE, Features, features, hardware};
use std::fmt;

/// The lanes that Widelane uses on a CPU, or why there are none.
///
/// It is a description and proves nothing: kernels take tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Bits of the registers, the widest first; none without lanes.
    widths: &'static [u32],
    /// Whether only [`DISABLE_VARIABLE`] keeps this process from using them.
    disabled: bool,
}

/// The lanes of this CPU, as this process may use them.
pub fn lanes() -> Lanes {
    Lanes::of(features(), hardware())
}

impl Lanes {
    /// The instructions that lanes take.
    const INSTRUCTIONS: &str = "AVX-512 IFMA";

    /// The value of [`DISABLE_VARIABLE`] that takes all lanes away.
    pub const ALL_DISABLED: &str = "avx512ifma";

    /// Those of a CPU that has all of them.
    pub const ALL: Self = Self {
        widths: &[512, 256],
        disabled: false,
    };

    /// Those of a CPU that has only the widest.
    pub const WIDEST: Self = Self {
        widths: &[512],
        disabled: false,
    };

    /// Those of a CPU that has none.
    pub const NONE: Self = Self {
        widths: &[],
        disabled: false,
    };

    fn of(here: Features, hardware: Features) -> Self {
        Self {
            widths: match (here.ifma, here.vl) {
                (false, _) => Self::NONE.widths,
                (true, false) => Self::WIDEST.widths,
                (true, true) => Self::ALL.widths,
            },
            disabled: hardware.ifma && !here.ifma,
        }
    }

    /// Those of the processors of a generation; `None` where the generation is not known.
    pub fn of_generation(generation: Generation) -> Option<Self> {
        match generation {
            Generation::Skylake | Generation::CascadeLake => Some(Self::NONE),
            Generation::IceLake
            | Generation::SapphireRapids
            | Generation::EmeraldRapids
            | Generation::GraniteRapids
            | Generation::Zen4
            | Generation::Zen5 => Some(Self::ALL),
            Generation::Unknown => None,
        }
    }

    /// Whether there are any.
    pub fn exist(self) -> bool {
        !self.widths.is_empty()
    }

    /// Bits of the registers in which passes can compute, the widest first.
    pub fn widths(self) -> &'static [u32] {
        self.widths
    }

    /// Why there are none, as a clause for people; `None` if there are some.
    pub fn why_none(self) -> Option<String> {
        (!self.exist()).then(|| self.to_string())
    }

    /// A sentence that another CPU, known by its model, has none.
    pub fn none_in_model() -> String {
        let lacking = Self::INSTRUCTIONS;
        format!("This model has no lanes that Widelane uses: it lacks {lacking}.")
    }

    /// The same as [`Display`](fmt::Display), as a sentence.
    pub fn sentence(self) -> String {
        let clause = self.to_string();
        let (first, rest) = clause.split_at(1);
        format!("{}{rest}.", first.to_uppercase())
    }
}

/// A clause for people, like "this CPU has lanes that Widelane uses: …".
impl fmt::Display for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { widths: [], .. } if self.disabled => write!(
                f,
                "this CPU has no lanes that Widelane uses: {DISABLE_VARIABLE} takes {} away",
                Self::INSTRUCTIONS
            ),
            Self { widths: [], .. } => write!(
                f,
                "this CPU has no lanes that Widelane uses: it lacks {}, or the hypervisor or the \
                 operating system hides it",
                Self::INSTRUCTIONS
            ),
            Self { widths, .. } => {
                let widths: Vec<_> = widths.iter().map(u32::to_string).collect();
                write!(
                    f,
                    "this CPU has lanes that Widelane uses: {} in registers of {} bits",
                    Self::INSTRUCTIONS,
                    widths.join(" and ")
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Avx512Ifma, Avx512IfmaVl, disable};

    /// Every machine that [`DISABLE_VARIABLE`] can play, by its list.
    fn played(list: &str) -> Lanes {
        let (here, unknown) = disable(Features::ALL, list);
        assert!(unknown.is_empty(), "{unknown:?}");
        Lanes::of(here, Features::ALL)
    }

    #[test]
    fn lanes_are_described_as_tokens_are_given() {
        let lanes = lanes();
        assert_eq!(lanes.exist(), Avx512Ifma::detect().is_some());
        assert_eq!(
            lanes.widths().contains(&256),
            Avx512IfmaVl::detect().is_some()
        );
        assert_eq!(lanes.why_none().is_some(), !lanes.exist());
    }

    #[test]
    fn a_clause_names_what_there_is_or_what_is_missing() {
        let all =
            "this CPU has lanes that Widelane uses: AVX-512 IFMA in registers of 512 and 256 bits";
        assert_eq!(played("").to_string(), all);
        assert_eq!(played("").sentence(), format!("T{}.", &all[1..]));
        let wide = played("avx512vl").to_string();
        assert!(wide.ends_with("in registers of 512 bits"), "{wide}");
        for list in ["avx512ifma", "avx512f", "avx2"] {
            let none = played(list).why_none().expect("no lanes");
            let expected = "this CPU has no lanes that Widelane uses: WIDELANE_CPU_DISABLE takes";
            assert!(none.starts_with(expected), "{none}");
        }
        assert!(!played(Lanes::ALL_DISABLED).exist());
        let lacking = Lanes::of(Features::NONE, Features::NONE).to_string();
        assert!(lacking.contains("it lacks AVX-512 IFMA"), "{lacking}");
    }

    #[test]
    fn a_processor_without_the_instructions_has_no_lanes() {
        let of = Lanes::of_generation;
        assert_eq!(of(Generation::Skylake), Some(Lanes::NONE));
        assert_eq!(of(Generation::Zen4), Some(Lanes::ALL));
        assert_eq!(of(Generation::Unknown), None);
    }
}
