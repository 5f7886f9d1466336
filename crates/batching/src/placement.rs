//! Placement of passes, and the form in which a call of wide code reaches a vector core.

use core::fmt;
use core::str::FromStr;

use widelane_affinity::Cpus;

use crate::clock::{Clock, Core};

/// Place where passes run, as [`placement`] has decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// On the threads that submit.
    #[default]
    Inline,
    /// On these CPUs, each of which has a thread for them.
    VectorCores(Cpus),
}

/// Placement as an operator writes it: `auto`, `inline` or `vector-cores`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementChoice {
    /// By the clock and the CPUs of this machine.
    #[default]
    Auto,
    /// [`Placement::Inline`].
    Inline,
    /// [`Placement::VectorCores`], on the CPUs that the operator names.
    VectorCores,
}

/// The CPUs of a process whose placement is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// CPUs that it may use.
    pub allowed: Cpus,
    /// Number of CPUs that its quota pays for.
    pub paid: usize,
    /// CPUs to which its submitting threads are pinned. Empty: they are not pinned.
    pub pinned: Cpus,
    /// CPUs that are named for vector cores, and that it may use.
    pub named: Cpus,
}

/// Decides where passes run.
///
/// [`Auto`](PlacementChoice::Auto) keeps wide code off the other CPUs if it lowers the clock, a CPU remains for
/// the other code, and the quota pays for both. Vector cores are then the CPUs that are named, else those to which
/// nothing is pinned, else the last quarter.
pub fn placement(choice: PlacementChoice, clock: &Clock, topology: &Topology) -> Placement {
    let candidates = match choice {
        PlacementChoice::Inline => return Placement::Inline,
        PlacementChoice::VectorCores => return Placement::VectorCores(topology.named),
        PlacementChoice::Auto => topology.candidates(),
    };
    let others = topology.allowed.without(&candidates);
    // With less than two CPUs paid for, vector cores and other threads would stop each other.
    let apart = topology.paid >= 2 && !candidates.is_empty() && !others.is_empty();
    match apart && !clock.wide.is_free() {
        true => Placement::VectorCores(candidates),
        false => Placement::Inline,
    }
}

impl Topology {
    /// The CPUs `allowed` without a quota, of which `named` are for vector cores; no thread is pinned.
    pub fn new(allowed: Cpus, named: Cpus) -> Self {
        Self {
            allowed,
            paid: allowed.count(),
            pinned: Cpus::default(),
            named,
        }
    }

    fn candidates(&self) -> Cpus {
        let (allowed, paid) = (self.allowed.count(), self.paid);
        // With RSA, passes take more of a core than the rest of a handshake on three others.
        let quarter = (allowed.min(paid) / 4).max(1);
        if !self.named.is_empty() {
            self.named
        } else if self.pinned.is_empty() {
            let before = allowed.saturating_sub(quarter);
            self.allowed.iter().skip(before).collect()
        } else {
            let left = self.allowed.without(&self.pinned);
            let most = if paid < allowed { quarter } else { allowed };
            left.iter().take(most).collect()
        }
    }
}

impl Placement {
    /// The vector cores. None if passes run inline.
    pub fn vector_cores(&self) -> Cpus {
        match self {
            Self::Inline => Cpus::default(),
            Self::VectorCores(cpus) => *cpus,
        }
    }

    /// Word that an operator writes for it.
    pub fn choice(&self) -> PlacementChoice {
        match self {
            Self::Inline => PlacementChoice::Inline,
            Self::VectorCores(_) => PlacementChoice::VectorCores,
        }
    }
}

impl PlacementChoice {
    /// All choices, in the order in which help texts list them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Inline, Self::VectorCores];

    /// The name, as configurations and flags spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Inline => "inline",
            Self::VectorCores => "vector-cores",
        }
    }
}

impl fmt::Display for PlacementChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for PlacementChoice {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Self, PlacementError> {
        let mut all = Self::ALL.into_iter();
        let found = all.find(|choice| choice.name() == text);
        found.ok_or(PlacementError)
    }
}

/// The text names no placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such placement; use `auto`, `inline` or `vector-cores`")]
pub struct PlacementError;

/// Form in which one call of wide code runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In place, on the calling thread.
    Inline,
    /// On a thread that waits on a vector core.
    Pool,
    /// On the calling thread, which migrates to a vector core and back.
    Migrate,
}

/// Cost of a call on a vector core in each form, in nanoseconds, beyond the call itself: the way
/// there and the way of the value back. `None`: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferCosts {
    /// [`Form::Pool`], when the thread on the vector core sleeps.
    pub pool: Option<u64>,
    /// [`Form::Migrate`].
    pub migrate: Option<u64>,
}

/// Decides how calls of arbitrary wide code run where passes would run by `placement`.
///
/// Compares what one isolated call costs: the transfer to a vector core, or the stall and the tail
/// that the call leaves on the caller's core. Takes the cheapest form; takes none that costs more
/// than it saves.
pub fn form(placement: &Placement, clock: &Clock, transfer: &TransferCosts) -> Form {
    if *placement == Placement::Inline {
        return Form::Inline;
    }
    let saved = clock.wide.cost(0, &Core::default());
    let forms = [(transfer.pool, Form::Pool), (transfer.migrate, Form::Migrate)];
    let known = forms.into_iter().filter_map(|(cost, form)| Some((cost?, form)));
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
        for choice in PlacementChoice::ALL {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        let error = "vector_cores".parse::<PlacementChoice>().unwrap_err();
        assert!(error.to_string().contains("`vector-cores`"), "{error}");
    }

    #[test]
    fn serde_spells_as_display_does() {
        for choice in PlacementChoice::ALL {
            let text = serde_json::to_string(&choice).unwrap();
            assert_eq!(text, format!("\"{choice}\""));
            let read: PlacementChoice = serde_json::from_str(&text).unwrap();
            assert_eq!(read, choice);
        }
    }

    /// By the clock, among the CPUs `allowed`, of which `named` are for vector cores.
    fn auto(clock: &Clock, allowed: &str, named: &str) -> Placement {
        let topology = Topology::new(cpus(allowed), cpus(named));
        placement(PlacementChoice::Auto, clock, &topology)
    }

    fn cpus(text: &str) -> Cpus {
        text.parse().unwrap()
    }

    fn on(vector: &str) -> Placement {
        Placement::VectorCores(cpus(vector))
    }

    #[test]
    fn without_a_penalty_passes_run_inline() {
        assert_eq!(auto(&Clock::default(), "0-7", ""), Placement::Inline);
        assert_eq!(auto(&Clock::default(), "0-7", "4-7"), Placement::Inline);
    }

    #[test]
    fn a_gold_6130_gets_vector_cores_if_a_core_remains_to_protect() {
        assert_eq!(auto(&GOLD_6130, "0-1", "0"), on("0"));
        assert_eq!(auto(&GOLD_6130, "0-1", ""), on("1"));
        assert_eq!(auto(&GOLD_6130, "0-7", ""), on("6-7"), "a quarter");
        assert_eq!(auto(&GOLD_6130, "", ""), Placement::Inline, "no candidate");
        assert_eq!(auto(&GOLD_6130, "5", ""), Placement::Inline, "no other core");
        assert_eq!(auto(&GOLD_6130, "0-1", "0-1"), Placement::Inline, "no other core");
    }

    #[test]
    fn only_auto_is_decided() {
        let topology = Topology::new(cpus("0-1"), cpus("1"));
        let decide = |choice, clock| placement(choice, clock, &topology);
        let (free, slow) = (&Clock::default(), &GOLD_6130);
        assert_eq!(decide(PlacementChoice::Auto, slow), on("1"));
        assert_eq!(decide(PlacementChoice::Auto, free), Placement::Inline);
        assert_eq!(decide(PlacementChoice::Inline, slow), Placement::Inline);
        assert_eq!(decide(PlacementChoice::VectorCores, free), on("1"));
        for choice in [PlacementChoice::Inline, PlacementChoice::VectorCores] {
            assert_eq!(decide(choice, free).choice(), choice);
        }
    }

    #[test]
    fn the_quota_pays_for_vector_cores_too() {
        let mut topology = Topology::new(cpus("0-63"), cpus(""));
        let mut count = |pinned: &str, paid| {
            (topology.pinned, topology.paid) = (cpus(pinned), paid);
            placement(PlacementChoice::Auto, &GOLD_6130, &topology)
                .vector_cores()
                .count()
        };
        assert_eq!(count("", 64), 16);
        assert_eq!(count("", 9), 2);
        assert_eq!(count("", 2), 1);
        assert_eq!(count("", 1), 0, "half a CPU, or one");
        assert_eq!(count("0-1", 64), 62);
        assert_eq!(count("0-1", 4), 1);
        assert_eq!(count("0-63", 64), 0, "none is left");
    }

    #[test]
    fn a_call_takes_the_cheaper_transfer_if_it_saves_anything() {
        let form = |clock, pool, migrate| form(&on("1"), clock, &TransferCosts { pool, migrate });
        // An isolated burst stalls its core for 51 µs and costs 214 µs in the tail.
        let gold = &GOLD_6130;
        assert_eq!(form(gold, Some(24_000), Some(48_000)), Form::Pool);
        assert_eq!(form(gold, Some(60_000), Some(48_000)), Form::Migrate);
        assert_eq!(form(gold, None, Some(48_000)), Form::Migrate);
        assert_eq!(form(gold, Some(300_000), Some(300_000)), Form::Inline);
        assert_eq!(form(gold, None, None), Form::Inline, "nothing is known");
        let free = &Clock::default();
        assert_eq!(form(free, Some(1), Some(1)), Form::Inline);
        let cheap = TransferCosts {
            pool: Some(1),
            migrate: Some(1),
        };
        assert_eq!(super::form(&Placement::Inline, gold, &cheap), Form::Inline);
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
            let cost = match form(&on("1"), &clock, &transfer) {
                Form::Inline => inline,
                Form::Pool => pool,
                Form::Migrate => migrate,
            };
            prop_assert_eq!(cost, inline.min(pool).min(migrate));
        }
    }
}
