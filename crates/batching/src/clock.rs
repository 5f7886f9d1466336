//! What wide code does to a core's clock, and what follows for passes: where, and how wide.
//!
//! A core that begins to multiply in wide registers may stand still for a moment (the *stall*), run
//! everything more slowly while it does (the *depth*), and go on so for a while after (the *tail*).
//! Whatever else runs on that core pays. [`Clock`] holds what was measured on a machine or
//! published about it, by [`Width`]; the default is a machine where wide code costs nothing.

/// Registers of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// 512 bits.
    Wide,
    /// 256 bits: half the lanes.
    Narrow,
}

/// What multiplying in registers of one width does to a core. All zero: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Toll {
    /// The share of the clock that is missing, from 0 to 1.
    pub depth: f64,
    /// Nanoseconds that are lost when it begins after a time without.
    pub stall: u64,
    /// For how many nanoseconds the lower clock outlives it.
    pub tail: u64,
}

/// What wide code does to the clock of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Clock {
    /// Multiplications in 512-bit registers.
    pub wide: Toll,
    /// Multiplications in 256-bit registers.
    pub narrow: Toll,
}

/// Where passes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the threads that submit.
    Inline,
    /// On cores of their own.
    VectorCores,
}

/// A core, as a pass is about to begin on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Core {
    /// Whether it runs passes only, so that nobody else pays for its clock.
    pub dedicated: bool,
    /// Nanoseconds since its last pass ended, in registers of either width; `None` if there was
    /// none.
    pub since: Option<u64>,
}

/// What it costs to have a call run on a vector core and its value back, in nanoseconds, beyond
/// what the call itself takes; `None` if that is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Handed to a thread that waits there, asleep.
    pub pool: Option<u64>,
    /// The calling thread goes there itself and comes back.
    pub migration: Option<u64>,
}

/// How a call of anybody's wide code runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In place.
    InPlace,
    /// On a thread that waits on a vector core.
    Pool,
    /// On the calling thread, which goes to a vector core and comes back.
    Migration,
}

/// Form of the cipher of records, which always runs among scalar code, in short bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// Whatever is fastest by itself.
    Widest,
    /// 256-bit registers.
    Narrow,
    /// 256-bit registers and no vector multiplication.
    Light,
}

impl Toll {
    /// Whether there is nothing to pay.
    pub fn is_free(&self) -> bool {
        (self.depth <= 0.0 || self.depth.is_nan()) && self.stall == 0
    }

    /// What a pass of `busy` nanoseconds costs on `core`, in nanoseconds.
    ///
    /// Passes that follow one another within a tail are taken for a rhythm that goes on, with every
    /// pass of this kind: the clock stays low, from one pass to the next, and nothing stalls. Any
    /// other pass pays for a stall and a whole tail by itself.
    fn cost(&self, busy: u64, core: &Core) -> u64 {
        let pause = core.since.filter(|since| *since < self.tail);
        let stall = if pause.is_some() { 0 } else { self.stall };
        let own = busy.saturating_add(stall);
        if core.dedicated {
            return own;
        }
        let lowered = pause.unwrap_or(self.tail);
        own.saturating_add((lowered as f64 * self.depth.clamp(0.0, 1.0)) as u64)
    }
}

impl Clock {
    /// A machine with much to lose, for tests and trials: what is published of a Xeon Gold 6130
    /// with all cores active. 2.8 GHz, 2.4 with 256-bit multiplications, 1.9 with 512-bit ones;
    /// halts and tail of its generation.
    pub const GOLD_6130: Self = Self {
        wide: Toll {
            depth: 0.32,
            stall: 51_400,
            tail: 670_000,
        },
        narrow: Toll {
            depth: 0.14,
            stall: 24_600,
            tail: 670_000,
        },
    };

    /// Whether wide code costs nothing here.
    pub fn is_free(&self) -> bool {
        self.wide.is_free() && self.narrow.is_free()
    }

    /// For how many nanoseconds a lower clock may outlive a pass.
    pub fn tail(&self) -> u64 {
        self.wide.tail.max(self.narrow.tail)
    }
}

/// Decides where passes run on a machine, of whose cores `candidates` may become vector cores, and
/// `others` remain.
pub fn place(clock: &Clock, candidates: usize, others: usize) -> Place {
    if clock.wide.is_free() || candidates == 0 || others == 0 {
        Place::Inline
    } else {
        Place::VectorCores
    }
}

/// Decides how calls of wide code of which nothing is known run, by what an isolated one costs: the
/// way to a vector core, or the stall and the tail that it leaves on the caller's. The cheaper way
/// is taken, and none that costs more than it spares.
pub fn form(clock: &Clock, candidates: usize, others: usize, moves: &Moves) -> Form {
    if place(clock, candidates, others) == Place::Inline {
        return Form::InPlace;
    }
    let spared = clock.wide.cost(0, &Core::default());
    let ways = [(moves.pool, Form::Pool), (moves.migration, Form::Migration)];
    let known = ways
        .into_iter()
        .filter_map(|(cost, form)| Some((cost?, form)));
    known
        .filter(|(cost, _)| *cost < spared)
        .min_by_key(|(cost, _)| *cost)
        .map_or(Form::InPlace, |(_, form)| form)
}

/// Decides the registers of a pass that takes `wide` nanoseconds in wide ones and `narrow` in
/// narrow ones, by what it costs the core altogether. What costs the same is done in wide ones.
pub fn width(clock: &Clock, core: &Core, wide: u64, narrow: u64) -> Width {
    if clock.narrow.cost(narrow, core) < clock.wide.cost(wide, core) {
        Width::Narrow
    } else {
        Width::Wide
    }
}

/// Decides the form of the cipher of records.
pub fn records(clock: &Clock) -> Records {
    if clock.wide.is_free() {
        Records::Widest
    } else if clock.narrow.is_free() {
        Records::Narrow
    } else {
        Records::Light
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOLD_6130: Clock = Clock::GOLD_6130;
    const QUIET: Core = Core {
        dedicated: false,
        since: None,
    };

    #[test]
    fn a_machine_without_penalty_runs_wide_and_inline() {
        let free = Clock::default();
        assert_eq!(place(&free, 4, 4), Place::Inline);
        assert_eq!(width(&free, &QUIET, 100, 200), Width::Wide);
        assert_eq!(records(&free), Records::Widest);
    }

    #[test]
    fn a_gold_6130_keeps_wide_code_on_cores_of_its_own() {
        assert_eq!(place(&GOLD_6130, 1, 1), Place::VectorCores);
        assert_eq!(place(&GOLD_6130, 0, 2), Place::Inline, "no core to spare");
        assert_eq!(place(&GOLD_6130, 1, 0), Place::Inline, "nobody to protect");
        assert_eq!(records(&GOLD_6130), Records::Light);
    }

    #[test]
    fn a_call_takes_the_cheaper_way_to_a_vector_core_if_that_spares_anything() {
        let form = |clock, pool, migration| form(clock, 1, 1, &Moves { pool, migration });
        // An isolated burst costs its core 51 µs of standing still and 214 µs of the tail.
        let gold = &GOLD_6130;
        assert_eq!(form(gold, Some(24_000), Some(48_000)), Form::Pool);
        assert_eq!(form(gold, Some(60_000), Some(48_000)), Form::Migration);
        assert_eq!(form(gold, None, Some(48_000)), Form::Migration);
        assert_eq!(form(gold, Some(300_000), Some(300_000)), Form::InPlace);
        assert_eq!(form(gold, None, None), Form::InPlace, "nothing is known");
        let free = &Clock::default();
        assert_eq!(form(free, Some(1), Some(1)), Form::InPlace);
        let nowhere = super::form(gold, 0, 2, &Moves::default());
        assert_eq!(nowhere, Form::InPlace);
    }

    #[test]
    fn an_isolated_short_pass_is_narrow_and_those_in_quick_succession_are_wide() {
        // 265 µs against 118 µs of damage: 100 µs saved do not make up for it.
        assert_eq!(width(&GOLD_6130, &QUIET, 100_000, 200_000), Width::Narrow);
        // Long work pays for the damage.
        assert_eq!(width(&GOLD_6130, &QUIET, 400_000, 800_000), Width::Wide);
        // In a rhythm, the pauses are what the lower clock costs.
        let after = |since| Core {
            since: Some(since),
            ..QUIET
        };
        let short = |since| width(&GOLD_6130, &after(since), 25_000, 40_000);
        assert_eq!(short(20_000), Width::Wide);
        assert_eq!(short(200_000), Width::Narrow);
    }

    #[test]
    fn a_vector_core_at_work_is_wide_and_one_that_wakes_up_for_little_is_not() {
        let core = |since| Core {
            dedicated: true,
            since,
        };
        let short = |since| width(&GOLD_6130, &core(since), 25_000, 40_000);
        assert_eq!(short(Some(600_000)), Width::Wide);
        assert_eq!(short(Some(700_000)), Width::Narrow);
        assert_eq!(short(None), Width::Narrow);
        let long = width(&GOLD_6130, &core(None), 100_000, 200_000);
        assert_eq!(long, Width::Wide);
    }

    #[test]
    fn absurd_figures_decide_something_all_the_same() {
        let absurd = Clock {
            wide: Toll {
                depth: f64::NAN,
                stall: u64::MAX,
                tail: u64::MAX,
            },
            narrow: Toll::default(),
        };
        assert_eq!(width(&absurd, &QUIET, u64::MAX, 1), Width::Narrow);
        assert!(!absurd.is_free());
    }

    fn toll() -> impl Strategy<Value = Toll> {
        (0.0f64..1.0, 0u64..200_000, 0u64..4_000_000).prop_map(|(depth, stall, tail)| Toll {
            depth,
            stall,
            tail,
        })
    }

    proptest! {
        #[test]
        fn nothing_but_the_cheaper_way(
            wide in toll(),
            narrow in toll(),
            dedicated: bool,
            since in proptest::option::of(0u64..5_000_000),
            busy in 1u64..1_000_000,
        ) {
            let clock = Clock { wide, narrow };
            let core = Core { dedicated, since };
            let chosen = width(&clock, &core, busy, 2 * busy);
            // A deeper loss in wide registers never makes them more attractive.
            let depth = (wide.depth + 0.1).min(1.0);
            let deeper = Clock { wide: Toll { depth, ..wide }, narrow };
            if chosen == Width::Narrow {
                prop_assert_eq!(width(&deeper, &core, busy, 2 * busy), Width::Narrow);
            }
            // Without a pause nothing is lost but time.
            let at_work = Core { since: Some(0), ..core };
            if wide.tail > 0 && narrow.tail > 0 {
                prop_assert_eq!(width(&clock, &at_work, busy, 2 * busy), Width::Wide);
            }
            // Where wide code is free, nothing else is ever chosen, and nothing is moved.
            let free = Clock { wide: Toll::default(), narrow };
            prop_assert_eq!(width(&free, &core, busy, 2 * busy), Width::Wide);
            prop_assert_eq!(place(&free, 1, 1), Place::Inline);
            // Nothing else would have cost less: not to stay, and neither way to a vector core.
            let moves = Moves { pool: Some(busy), migration: since };
            let stays = clock.wide.cost(0, &Core::default());
            let migration = since.unwrap_or(u64::MAX);
            let cost = match form(&clock, 1, 1, &moves) {
                Form::InPlace => stays,
                Form::Pool => busy,
                Form::Migration => migration,
            };
            prop_assert_eq!(cost, stays.min(busy).min(migration));
        }
    }
}
