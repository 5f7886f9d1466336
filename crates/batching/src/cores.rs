//! Number of vector cores at work: which sleeping core to wake, and when a core lends its CPU to
//! scalar work.
//!
//! A vector core is awake (*searching* for passes or *busy* with them), *resting* (asleep, its CPU
//! still free of scalar work) or *lent* (asleep, and scalar work may run there). Any job wakes a
//! resting core. A lent core must first be reclaimed from other threads, so it is woken only if the
//! awake cores cannot soon run what waits, or if no core is awake.
//!
//! Two rules keep cores from changing state too often: it takes much work to wake a lent core and a
//! long idle time to lend one, and a core that was reclaimed too soon rests longer the next time
//! ([`Idleness`]).

use crate::clock::Clock;
use crate::passes::Waiting;

/// The vector cores of an engine, counted by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VectorCores {
    /// Awake and looking for work, or about to look.
    pub searching: usize,
    /// Awake and running passes.
    pub busy: usize,
    /// Asleep, with a CPU that is free of scalar work.
    pub resting: usize,
    /// Asleep, and scalar work may run there.
    pub lent: usize,
}

/// A sleeping vector core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleeper {
    /// A resting core.
    Resting,
    /// A lent core.
    Lent,
}

/// Time for which one vector core has had little work, and for which it must before it is lent.
/// All times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idleness {
    /// The first rest, and the rest after a long loan.
    shortest: u64,
    /// For how long the clock stays low after a pass.
    tail: u64,
    rest: u64,
    /// Time asleep, less a multiple of the time in passes.
    idle: u64,
}

/// Names a core to wake after a job has arrived or was left; `None`: the awake cores are enough.
///
/// `passes` returns how many passes wait (see [`passes`]), at least one if any job does. It is
/// called only if the answer depends on it.
///
/// A searching core will find the job, and asks again if it leaves other jobs. If no core searches,
/// a resting core is woken, even if a busy one would soon have time: the resting core's CPU has no
/// other work.
///
/// Guarantees:
/// * while a job waits and a core sleeps, a core is named unless another core is awake;
/// * more waiting passes never wake fewer cores;
/// * a lent core is never named before a resting one.
pub fn wake(cores: &VectorCores, passes: impl FnOnce() -> usize) -> Option<Sleeper> {
    if cores.searching > 0 {
        None
    } else if cores.resting > 0 {
        Some(Sleeper::Resting)
    } else if cores.lent > 0 && passes() > cores.busy.saturating_mul(PASSES_SOON) {
        Some(Sleeper::Lent)
    } else {
        None
    }
}

/// The passes that an idle core would run for the waiting jobs of one operation.
pub fn passes(waiting: &Waiting) -> usize {
    let lanes = waiting.lanes.max(1);
    if waiting.worth > lanes {
        return waiting.jobs;
    }
    match waiting.jobs % lanes {
        0 => waiting.jobs / lanes,
        few if few < waiting.worth => waiting.jobs / lanes + few,
        _ => waiting.jobs / lanes + 1,
    }
}

/// The default time that a vector core rests before it is lent: long enough that the cost of a
/// reclaim does not matter, and that a low clock has recovered.
pub fn usual_rest(clock: &Clock) -> u64 {
    clock.tail().saturating_mul(8).max(USUAL_REST)
}

impl VectorCores {
    /// Returns whether a resting core is not needed, because another core is not lent.
    pub fn has_spare(&self) -> bool {
        let kept = self.searching.saturating_add(self.busy);
        kept.saturating_add(self.resting) > 1
    }
}

impl Idleness {
    /// For a core that first rests for `rest`, or for as long as the clock is low if that is
    /// longer.
    pub fn new(rest: u64, clock: &Clock) -> Self {
        let rest = rest.max(clock.tail());
        Self {
            shortest: rest,
            tail: clock.tail(),
            rest,
            idle: 0,
        }
    }

    /// The core ran passes for `busy`.
    pub fn worked(&mut self, busy: u64) {
        self.idle = self.idle.saturating_sub(busy.saturating_mul(WORTH_A_CORE));
    }

    /// The core slept for `asleep` and was woken before it was lent.
    pub fn slept(&mut self, asleep: u64) {
        self.idle = self.idle.saturating_add(asleep).min(self.rest);
    }

    /// For how much longer a core that has slept for `asleep` rests; 0: it is lent now.
    ///
    /// The last core rests for the whole time without an interruption, because the next job will
    /// need it. A [spare](VectorCores::has_spare) core is lent earlier if it had little work: the
    /// other cores do that work. No core is lent before its clock has recovered.
    pub fn rest_left(&self, asleep: u64, spare: bool) -> u64 {
        let rest = if spare {
            self.rest.saturating_sub(self.idle).max(self.tail)
        } else {
            self.rest
        };
        rest.saturating_sub(asleep)
    }

    /// The core was reclaimed after a loan of `away`.
    ///
    /// A loan shorter than the rest before it came too soon: the core rests twice as long the next
    /// time.
    pub fn reclaimed(&mut self, away: u64) {
        self.idle = 0;
        if away < self.rest {
            let longest = self.shortest.saturating_mul(LONGEST_REST);
            self.rest = self.rest.saturating_mul(2).min(longest);
        } else if away / LONG_AWAY >= self.rest {
            self.rest = self.shortest;
        }
    }
}

/// Passes that one busy core runs soon: usually less than a millisecond. To reclaim a core, move
/// its threads away and pay for its stall takes a tenth of that.
const PASSES_SOON: usize = 4;

/// 50 milliseconds. A core that is lent and reclaimed no more often spends less than a thousandth
/// of its time on that.
const USUAL_REST: u64 = 50_000_000;

/// A spare core is kept if it runs passes for more than one part in `WORTH_A_CORE + 1` of its time.
const WORTH_A_CORE: u64 = 4;

/// The longest rest, in first rests.
const LONGEST_REST: u64 = 32;

/// After a loan of this many rests, a core starts with the first rest again.
const LONG_AWAY: u64 = 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clock::ClockPenalty;
    use crate::costs::NEVER;

    const MILLISECOND: u64 = 1_000_000;

    fn clock(tail: u64) -> Clock {
        let wide = ClockPenalty {
            depth: 0.3,
            stall: 50_000,
            tail,
        };
        Clock {
            wide,
            narrow: ClockPenalty::default(),
        }
    }

    #[test]
    fn resting_cores_are_woken_first_and_by_any_job() {
        let mut cores = VectorCores {
            resting: 1,
            lent: 1,
            ..VectorCores::default()
        };
        assert_eq!(wake(&cores, || 1), Some(Sleeper::Resting));
        cores.busy = 1;
        assert_eq!(wake(&cores, || 1), Some(Sleeper::Resting));
        cores.searching = 1;
        assert_eq!(wake(&cores, || 100), None, "the searching core finds it");
    }

    #[test]
    fn a_lent_core_is_woken_by_much_work_or_if_no_core_is_awake() {
        let mut cores = VectorCores {
            lent: 2,
            ..VectorCores::default()
        };
        assert_eq!(wake(&cores, || 1), Some(Sleeper::Lent));
        cores.busy = 2;
        assert_eq!(wake(&cores, || 2 * PASSES_SOON), None);
        let more = 2 * PASSES_SOON + 1;
        assert_eq!(wake(&cores, || more), Some(Sleeper::Lent));
    }

    #[test]
    fn passes_are_counted_as_they_would_run() {
        let line = |jobs, worth| Waiting {
            lanes: 8,
            worth,
            jobs,
            oldest: 0,
            cost: 0,
        };
        assert_eq!(passes(&line(0, 1)), 0);
        assert_eq!(passes(&line(17, 1)), 3);
        assert_eq!(passes(&line(17, 2)), 3, "two full ones, and one job alone");
        assert_eq!(passes(&line(18, 3)), 4, "two full ones, and two jobs alone");
        assert_eq!(passes(&line(5, NEVER)), 5);
    }

    #[test]
    fn a_rest_outlasts_the_low_clock() {
        assert_eq!(usual_rest(&Clock::default()), USUAL_REST);
        let slow = clock(20 * MILLISECOND);
        assert_eq!(usual_rest(&slow), 160 * MILLISECOND);
        let hasty = Idleness::new(0, &slow);
        assert_eq!(hasty.rest_left(0, true), 20 * MILLISECOND);
        assert_eq!(hasty.rest_left(20 * MILLISECOND, false), 0);
    }

    #[test]
    fn a_spare_core_with_little_work_is_lent_before_the_last_one() {
        let mut core = Idleness::new(50 * MILLISECOND, &clock(MILLISECOND));
        for _ in 0..20 {
            core.slept(5 * MILLISECOND);
            core.worked(MILLISECOND);
        }
        assert_eq!(core.rest_left(0, false), 50 * MILLISECOND);
        assert!(core.rest_left(0, true) <= 31 * MILLISECOND);
        for _ in 0..20 {
            core.slept(5 * MILLISECOND);
            core.worked(2 * MILLISECOND);
        }
        assert_eq!(core.rest_left(0, true), 50 * MILLISECOND, "a busy one");
    }

    fn any_cores() -> impl Strategy<Value = VectorCores> {
        (0usize..5, 0usize..5, 0usize..5, 0usize..5).prop_map(|(searching, busy, resting, lent)| VectorCores {
            searching,
            busy,
            resting,
            lent,
        })
    }

    /// Vector cores under a load, in steps of some microseconds: what the engine does, without
    /// threads.
    struct Machine {
        cores: Vec<Core>,
        now: u64,
        /// Passes that have not begun.
        waiting: usize,
        /// Number of times that a core was reclaimed soon after it was lent.
        soon_missed: u64,
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum State {
        Busy { until: u64 },
        Resting { since: u64 },
        Lent { since: u64 },
    }

    struct Core {
        state: State,
        idleness: Idleness,
        began: u64,
    }

    impl Machine {
        fn new(cores: usize, rest: u64) -> Self {
            let core = || Core {
                state: State::Resting { since: 0 },
                idleness: Idleness::new(rest, &Clock::default()),
                began: 0,
            };
            Self {
                cores: (0..cores).map(|_| core()).collect(),
                now: 0,
                waiting: 0,
                soon_missed: 0,
            }
        }

        fn count(&self, of: impl Fn(State) -> bool) -> usize {
            self.cores.iter().filter(|core| of(core.state)).count()
        }

        fn view(&self) -> VectorCores {
            VectorCores {
                searching: 0,
                busy: self.count(|state| matches!(state, State::Busy { .. })),
                resting: self.count(|state| matches!(state, State::Resting { .. })),
                lent: self.count(|state| matches!(state, State::Lent { .. })),
            }
        }

        /// One step: `arrived` passes arrive, each takes a core for `pass`.
        fn step(&mut self, step: u64, arrived: usize, pass: u64) {
            self.now += step;
            let now = self.now;
            self.waiting += arrived;
            for core in &mut self.cores {
                if let State::Busy { until } = core.state
                    && until <= now
                {
                    if self.waiting > 0 {
                        self.waiting -= 1;
                        core.state = State::Busy { until: now + pass };
                    } else {
                        core.idleness.worked(now - core.began);
                        core.state = State::Resting { since: now };
                    }
                }
            }
            while self.waiting > 0
                && let Some(sleeper) = wake(&self.view(), || self.waiting)
            {
                let chosen = self.cores.iter_mut().find(|core| match sleeper {
                    Sleeper::Resting => matches!(core.state, State::Resting { .. }),
                    Sleeper::Lent => matches!(core.state, State::Lent { .. }),
                });
                let core = chosen.expect("only cores that exist are named");
                match core.state {
                    State::Resting { since } => core.idleness.slept(now - since),
                    State::Lent { since } => {
                        core.idleness.reclaimed(now - since);
                        let long = LONG_AWAY * core.idleness.shortest;
                        self.soon_missed += u64::from(now - since < long);
                    }
                    State::Busy { .. } => unreachable!("it slept"),
                }
                self.waiting -= 1;
                core.began = now;
                core.state = State::Busy { until: now + pass };
            }
            for index in 0..self.cores.len() {
                let spare = self.view().has_spare();
                let core = &mut self.cores[index];
                if let State::Resting { since } = core.state
                    && core.idleness.rest_left(now - since, spare) == 0
                {
                    core.state = State::Lent { since: now };
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_core_is_woken_if_all_sleep(cores in any_cores(), passes in 1usize..100) {
            let awake = cores.searching + cores.busy;
            let asleep = cores.resting + cores.lent;
            if awake == 0 && asleep > 0 {
                prop_assert!(wake(&cores, || passes).is_some());
            }
        }

        #[test]
        fn only_existing_cores_are_woken_and_resting_ones_first(
            cores in any_cores(), passes in 0usize..100,
        ) {
            match wake(&cores, || passes) {
                None => {}
                Some(Sleeper::Resting) => prop_assert!(cores.resting > 0),
                Some(Sleeper::Lent) => {
                    prop_assert!(cores.lent > 0);
                    prop_assert_eq!(cores.resting, 0);
                    prop_assert!(passes > 0);
                }
            }
        }

        #[test]
        fn more_work_never_wakes_fewer(cores in any_cores(), passes in 0usize..100) {
            if wake(&cores, || passes).is_some() {
                prop_assert!(wake(&cores, || passes + 1).is_some());
                // Fewer awake cores never wake fewer, either.
                let fewer = VectorCores { busy: cores.busy.saturating_sub(1), ..cores };
                prop_assert!(wake(&fewer, || passes).is_some());
            }
        }

        #[test]
        fn the_last_rests_at_least_as_long_as_a_spare_one(
            rest in any::<u64>(), tail in any::<u64>(),
            slept in any::<u64>(), worked in any::<u64>(), asleep in any::<u64>(),
        ) {
            let mut core = Idleness::new(rest, &clock(tail));
            core.slept(slept);
            core.worked(worked);
            let (last, spare) = (core.rest_left(asleep, false), core.rest_left(asleep, true));
            prop_assert!(spare <= last);
            prop_assert!(spare > 0 || asleep >= tail, "the clock is still low");
        }

        /// With a job at regular intervals, the core is soon either kept, or lent for at least half
        /// of the time, so lending costs next to nothing.
        #[test]
        fn a_steady_rhythm_does_not_lend_a_core_again_and_again(
            rest in MILLISECOND..100 * MILLISECOND,
            gap in MILLISECOND..3_000 * MILLISECOND,
            long in any::<u32>(),
        ) {
            let mut core = Idleness::new(rest, &clock(MILLISECOND));
            // After a loan of any length.
            core.reclaimed(u64::from(long));
            let mut regrets = 0;
            for _ in 0..100 {
                let rested = core.rest_left(0, false);
                if gap < rested {
                    core.slept(gap);
                } else {
                    regrets += u64::from(gap - rested < rested);
                    core.reclaimed(gap - rested);
                }
            }
            prop_assert!(regrets <= 5, "{regrets}");
        }

        /// Under a constant load all passes run, and cores are lent and reclaimed a few times until
        /// the right number is at work. Only a load that exceeds what some cores can do by less
        /// than a hundredth still wakes one more, after long loans.
        #[test]
        fn a_constant_load_is_served_by_a_steady_number_of_cores(
            cores in 1usize..5,
            // Thousandths of a pass in each step; a step is a quarter of a pass. With fewer, a
            // single core is rightly lent most of the time.
            load in 6u64..1_200,
        ) {
            let (step, pass, rest) = (50_000, 200_000, 5 * MILLISECOND);
            let mut machine = Machine::new(cores, rest);
            let mut owed = 0;
            let mut missed_early = 0;
            for number in 0..12_000 {
                owed += load;
                machine.step(step, (owed / 1000) as usize, pass);
                owed %= 1000;
                let all = machine.view();
                prop_assert_eq!(all.busy + all.resting + all.lent, cores);
                prop_assert!(machine.waiting == 0 || all.busy > 0);
                if number == 6_000 {
                    missed_early = machine.soon_missed;
                }
            }
            let missed_late = machine.soon_missed - missed_early;
            prop_assert!(missed_early <= 5 * cores as u64, "{missed_early}");
            prop_assert!(missed_late <= cores as u64, "{missed_late}");
            if load * 4 < 200 {
                let kept = cores - machine.view().lent;
                prop_assert!(kept <= 1, "{kept} cores for a fifth of one");
            }
        }

        /// A load for `wanted` cores wakes that many.
        #[test]
        fn the_number_of_cores_grows_with_the_load(cores in 1usize..5, wanted in 1usize..5) {
            let (step, pass) = (50_000, 200_000);
            let mut machine = Machine::new(cores, 10 * MILLISECOND);
            for _ in 0..4_000 {
                machine.step(step, 0, pass);
            }
            prop_assert_eq!(machine.view().lent, cores, "all are idle");
            // One pass for each core in the time of a pass.
            for number in 0..4_000usize {
                machine.step(step, if number % 4 == 0 { wanted } else { 0 }, pass);
            }
            let awake = cores - machine.view().lent;
            prop_assert!(awake >= wanted.min(cores), "{awake} of {cores} for {wanted}");
        }
    }
}
