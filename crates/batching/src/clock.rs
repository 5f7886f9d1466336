//! Effect of wide code on a core's clock, and the width of a pass.
//!
//! When a core starts to multiply in wide registers, it may stand still for a moment (the *stall*),
//! run everything more slowly while the wide code lasts (the *depth*), and stay slow for a time
//! afterwards (the *tail*). All other code on that core pays for it. [`Clock`] holds the measured
//! or published figures of a machine, by [`Width`]. The default is a machine without a penalty.

/// Registers of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// 512 bits.
    Wide,
    /// 256 bits: half the lanes.
    Narrow,
}

/// Cost of multiplications in registers of one width for the clock of a core. All zero: none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClockPenalty {
    /// The lost share of the clock, from 0 to 1.
    pub depth: f64,
    /// Nanoseconds during which the core stands still when wide code starts after a pause.
    pub stall: u64,
    /// Nanoseconds for which the clock stays low after the last wide instruction.
    pub tail: u64,
}

/// Effect of wide code on the clock of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Clock {
    /// Multiplications in 512-bit registers.
    pub wide: ClockPenalty,
    /// Multiplications in 256-bit registers.
    pub narrow: ClockPenalty,
}

/// The state of a core just before a pass starts on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Core {
    /// True if the core runs only passes, so that a low clock slows no other code.
    pub dedicated: bool,
    /// Nanoseconds since its last pass ended, of either width; `None`: no pass so far.
    pub since: Option<u64>,
}

/// Registers of the record cipher. It always runs in short bursts between scalar code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// The registers in which it is fastest by itself.
    Widest,
    /// 256-bit registers.
    Narrow,
    /// 256-bit registers and no vector multiplication.
    Light,
}

impl Clock {
    /// Clock as passes in registers of at most `bits` bits see it: without 512-bit registers all are narrow.
    pub fn of_registers(self, bits: u32) -> Self {
        let wide = if bits < 512 { self.narrow } else { self.wide };
        Self { wide, ..self }
    }
}

impl ClockPenalty {
    /// Returns whether wide code of this kind costs nothing.
    pub fn is_free(&self) -> bool {
        (self.depth <= 0.0 || self.depth.is_nan()) && self.stall == 0
    }

    /// Cost of a pass of `busy` nanoseconds on `core`, in nanoseconds.
    ///
    /// A pass that starts within the tail of the last one pays no stall, and only for the low clock
    /// since then: passes of this kind are assumed to go on at this rate. Every other pass pays for
    /// one stall and one whole tail.
    pub(crate) fn cost(&self, busy: u64, core: &Core) -> u64 {
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
    /// A machine with a large penalty, for tests: the published figures of a Xeon Gold 6130 with
    /// all cores active. 2.8 GHz, 2.4 GHz with 256-bit multiplications, 1.9 GHz with 512-bit ones;
    /// stalls and tail of its generation.
    pub const GOLD_6130: Self = Self {
        wide: ClockPenalty {
            depth: 0.32,
            stall: 51_400,
            tail: 670_000,
        },
        narrow: ClockPenalty {
            depth: 0.14,
            stall: 24_600,
            tail: 670_000,
        },
    };

    /// Returns whether wide code costs nothing here.
    pub fn is_free(&self) -> bool {
        self.wide.is_free() && self.narrow.is_free()
    }

    /// Nanoseconds for which the clock may stay low after a pass.
    pub fn tail(&self) -> u64 {
        self.wide.tail.max(self.narrow.tail)
    }
}

/// Decides the registers of a pass that takes `wide` nanoseconds in wide registers and `narrow` in
/// narrow ones. Chooses the lower total cost to the core; if both cost the same, wide registers.
pub fn width(clock: &Clock, core: &Core, wide: u64, narrow: u64) -> Width {
    if clock.narrow.cost(narrow, core) < clock.wide.cost(wide, core) {
        Width::Narrow
    } else {
        Width::Wide
    }
}

/// Decides the registers of the record cipher.
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
    fn passes_without_wide_registers_pay_for_narrow_ones() {
        let clock = GOLD_6130.of_registers(256);
        assert_eq!((clock.wide, clock.narrow), (GOLD_6130.narrow, GOLD_6130.narrow));
        assert_eq!(GOLD_6130.of_registers(512), GOLD_6130);
    }

    #[test]
    fn a_machine_without_penalty_runs_wide() {
        let free = Clock::default();
        assert_eq!(width(&free, &QUIET, 100, 200), Width::Wide);
        assert_eq!(records(&free), Records::Widest);
    }

    #[test]
    fn a_gold_6130_encrypts_records_without_wide_multiplications() {
        assert_eq!(records(&GOLD_6130), Records::Light);
    }

    #[test]
    fn an_isolated_short_pass_is_narrow_and_those_in_quick_succession_are_wide() {
        // Wide costs 265 µs of penalty, narrow 118 µs: more than the 100 µs that wide saves.
        assert_eq!(width(&GOLD_6130, &QUIET, 100_000, 200_000), Width::Narrow);
        // A long pass saves more than the penalty.
        assert_eq!(width(&GOLD_6130, &QUIET, 400_000, 800_000), Width::Wide);
        // When passes follow quickly, the low clock costs only during the pauses.
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
        let core = |since| Core { dedicated: true, since };
        let short = |since| width(&GOLD_6130, &core(since), 25_000, 40_000);
        assert_eq!(short(Some(600_000)), Width::Wide);
        assert_eq!(short(Some(700_000)), Width::Narrow);
        assert_eq!(short(None), Width::Narrow);
        let long = width(&GOLD_6130, &core(None), 100_000, 200_000);
        assert_eq!(long, Width::Wide);
    }

    #[test]
    fn absurd_figures_still_give_a_decision() {
        let absurd = Clock {
            wide: ClockPenalty {
                depth: f64::NAN,
                stall: u64::MAX,
                tail: u64::MAX,
            },
            narrow: ClockPenalty::default(),
        };
        assert_eq!(width(&absurd, &QUIET, u64::MAX, 1), Width::Narrow);
        assert!(!absurd.is_free());
    }

    fn penalty() -> impl Strategy<Value = ClockPenalty> {
        (0.0f64..1.0, 0u64..200_000, 0u64..4_000_000).prop_map(|(depth, stall, tail)| ClockPenalty {
            depth,
            stall,
            tail,
        })
    }

    proptest! {
        #[test]
        fn the_cheaper_width_is_chosen(
            wide in penalty(),
            narrow in penalty(),
            dedicated: bool,
            since in proptest::option::of(0u64..5_000_000),
            busy in 1u64..1_000_000,
        ) {
            let clock = Clock { wide, narrow };
            let core = Core { dedicated, since };
            let chosen = width(&clock, &core, busy, 2 * busy);
            // A deeper loss in wide registers never makes them more attractive.
            let depth = (wide.depth + 0.1).min(1.0);
            let deeper = Clock { wide: ClockPenalty { depth, ..wide }, narrow };
            if chosen == Width::Narrow {
                prop_assert_eq!(width(&deeper, &core, busy, 2 * busy), Width::Narrow);
            }
            // Without a pause only the time of the pass counts.
            let at_work = Core { since: Some(0), ..core };
            if wide.tail > 0 && narrow.tail > 0 {
                prop_assert_eq!(width(&clock, &at_work, busy, 2 * busy), Width::Wide);
            }
            // Where wide code is free, it is always chosen.
            let free = Clock { wide: ClockPenalty::default(), narrow };
            prop_assert_eq!(width(&free, &core, busy, 2 * busy), Width::Wide);
        }
    }
}
