//! Where passes run, and how a call of wide code reaches a vector core.

use std::fmt;
use std::str::FromStr;

use crate::clock::{Clock, Core};

/// Where passes run: one type and one spelling for configurations, flags, decisions and reports.
///
/// As text: `auto`, `inline`, `vector-cores`. With the feature `serde` it is read and written so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Placement {
    /// Not decided yet: [`place`] chooses one of the other two. Never the result of a decision.
    #[default]
    Auto,
    /// On the threads that submit.
    Inline,
    /// On cores of their own.
    VectorCores,
}

impl Placement {
    /// All placements, in the order in which help texts list them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Inline, Self::VectorCores];

    /// The name, as configurations and flags spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Inline => "inline",
            Self::VectorCores => "vector-cores",
        }
    }

    /// This placement, with [`Auto`](Self::Auto) decided by [`place`].
    pub fn decided(self, clock: &Clock, candidates: usize, others: usize) -> Self {
        match self {
            Self::Auto => place(clock, candidates, others),
            fixed => fixed,
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Placement {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Self, PlacementError> {
        let mut all = Self::ALL.into_iter();
        let found = all.find(|placement| placement.name() == text);
        found.ok_or_else(|| PlacementError(text.to_owned()))
    }
}

/// The text names no placement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no placement; use `auto`, `inline` or `vector-cores`")]
pub struct PlacementError(pub String);

/// How one call of wide code runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In place, on the calling thread.
    Inline,
    /// On a thread that waits on a vector core.
    Pool,
    /// On the calling thread, which migrates to a vector core and back.
    Migrate,
}

/// What a call on a vector core costs in each form, in nanoseconds, beyond the call itself: the way
/// there and the way of the value back. `None`: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferCosts {
    /// [`Form::Pool`], when the thread on the vector core sleeps.
    pub pool: Option<u64>,
    /// [`Form::Migrate`].
    pub migrate: Option<u64>,
}

/// Decides where passes run on a machine where `candidates` cores may become vector cores and
/// `others` remain. Returns [`Placement::Inline`] or [`Placement::VectorCores`].
pub fn place(clock: &Clock, candidates: usize, others: usize) -> Placement {
    if clock.wide.is_free() || candidates == 0 || others == 0 {
        Placement::Inline
    } else {
        Placement::VectorCores
    }
}

/// Decides how calls of arbitrary wide code run.
///
/// Compares what one isolated call costs: the transfer to a vector core, or the stall and the tail
/// that the call leaves on the caller's core. Takes the cheapest form; takes none that costs more
/// than it saves.
pub fn form(clock: &Clock, candidates: usize, others: usize, transfer: &TransferCosts) -> Form {
    if place(clock, candidates, others) == Placement::Inline {
        return Form::Inline;
    }
    let saved = clock.wide.cost(0, &Core::default());
    let forms = [
        (transfer.pool, Form::Pool),
        (transfer.migrate, Form::Migrate),
    ];
    let known = forms
        .into_iter()
        .filter_map(|(cost, form)| Some((cost?, form)));
    known
        .filter(|(cost, _)| *cost < saved)
        .min_by_key(|(cost, _)| *cost)
        .map_or(Form::Inline, |(_, form)| form)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clock::ClockPenalty;

    const GOLD_6130: Clock = Clock::GOLD_6130;

    #[test]
    fn each_placement_is_read_as_it_is_written() {
        for placement in Placement::ALL {
            assert_eq!(placement.to_string().parse(), Ok(placement));
        }
        let error = "vector_cores".parse::<Placement>().unwrap_err();
        assert!(error.to_string().contains("`vector-cores`"), "{error}");
    }

    #[cfg(feature = "serde")]
    #[test]
    fn serde_spells_as_display_does() {
        for placement in Placement::ALL {
            let text = serde_json::to_string(&placement).unwrap();
            assert_eq!(text, format!("\"{placement}\""));
            assert_eq!(serde_json::from_str::<Placement>(&text).unwrap(), placement);
        }
    }

    #[test]
    fn without_a_penalty_passes_run_inline() {
        assert_eq!(place(&Clock::default(), 4, 4), Placement::Inline);
    }

    #[test]
    fn a_gold_6130_gets_vector_cores_if_a_core_remains_to_protect() {
        assert_eq!(place(&GOLD_6130, 1, 1), Placement::VectorCores);
        assert_eq!(place(&GOLD_6130, 0, 2), Placement::Inline, "no candidate");
        assert_eq!(place(&GOLD_6130, 1, 0), Placement::Inline, "no other core");
    }

    #[test]
    fn only_auto_is_decided() {
        let decide = |placement: Placement, clock| placement.decided(clock, 1, 1);
        let (free, slow) = (&Clock::default(), &GOLD_6130);
        assert_eq!(decide(Placement::Auto, slow), Placement::VectorCores);
        assert_eq!(decide(Placement::Auto, free), Placement::Inline);
        assert_eq!(decide(Placement::Inline, slow), Placement::Inline);
        assert_eq!(decide(Placement::VectorCores, free), Placement::VectorCores);
    }

    #[test]
    fn a_call_takes_the_cheaper_transfer_if_it_saves_anything() {
        let form = |clock, pool, migrate| form(clock, 1, 1, &TransferCosts { pool, migrate });
        // An isolated burst stalls its core for 51 µs and costs 214 µs in the tail.
        let gold = &GOLD_6130;
        assert_eq!(form(gold, Some(24_000), Some(48_000)), Form::Pool);
        assert_eq!(form(gold, Some(60_000), Some(48_000)), Form::Migrate);
        assert_eq!(form(gold, None, Some(48_000)), Form::Migrate);
        assert_eq!(form(gold, Some(300_000), Some(300_000)), Form::Inline);
        assert_eq!(form(gold, None, None), Form::Inline, "nothing is known");
        let free = &Clock::default();
        assert_eq!(form(free, Some(1), Some(1)), Form::Inline);
        let no_candidate = super::form(gold, 0, 2, &TransferCosts::default());
        assert_eq!(no_candidate, Form::Inline);
    }

    proptest! {
        #[test]
        fn no_form_would_be_cheaper(
            depth in 0.0f64..1.0,
            stall in 0u64..200_000,
            tail in 0u64..4_000_000,
            pool in 0u64..1_000_000,
            migrate in proptest::option::of(0u64..5_000_000),
        ) {
            let wide = ClockPenalty { depth, stall, tail };
            let clock = Clock { wide, ..Clock::default() };
            let transfer = TransferCosts { pool: Some(pool), migrate };
            let inline = wide.cost(0, &Core::default());
            let migrate = migrate.unwrap_or(u64::MAX);
            let cost = match form(&clock, 1, 1, &transfer) {
                Form::Inline => inline,
                Form::Pool => pool,
                Form::Migrate => migrate,
            };
            prop_assert_eq!(cost, inline.min(pool).min(migrate));
        }
    }
}
