//! How many vector cores there are at the moment: which sleeper to wake, and when one that sleeps
//! is given back to scalar work.
//!
//! A vector core is awake (*searching* for passes or *busy* with them), *resting* (asleep, and its
//! CPU still kept free of scalar work) or *given back* (asleep, and scalar work may run there).
//! Resting cores are woken for anything. One that was given back has to be taken from others, so
//! it is woken only for more than those awake will soon have run, or if none is awake.
//!
//! Two things keep cores from going to and fro. It takes much to wake one that was given back and
//! long to give back one that is awake; and a core that was needed again too soon rests longer
//! the next time ([`Idleness`]).

use crate::{Clock, Waiting};

/// The vector cores of an engine, by what they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VectorCores {
    /// Awake and looking for work, or about to.
    pub searching: usize,
    /// Awake and running passes.
    pub busy: usize,
    /// Asleep, and kept free of scalar work.
    pub resting: usize,
    /// Asleep, and scalar work may run there.
    pub given_back: usize,
}

/// A vector core that sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleeper {
    /// One that rests.
    Resting,
    /// One that was given back.
    GivenBack,
}

/// How long one vector core has been of little use, and how long that must be before it is given
/// back. All times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idleness {
    /// The rest to begin with, and again after a long time as scalar core.
    shortest: u64,
    /// For how long the low clock outlives a pass.
    tail: u64,
    rest: u64,
    /// Sleep, less what passes outweighed.
    idle: u64,
}

/// Names a core to wake after a job has arrived or was left behind; `None`: those awake suffice.
///
/// `passes` tells how many passes wait (see [`passes`]), at least one if anything does; it is asked
/// only if the answer depends on it.
///
/// A core that searches will find the job, and asks again if it leaves something behind. While
/// nobody searches, a core that rests is woken, even if a busy one would have the time: its CPU
/// does nothing else.
///
/// Guarantees:
/// * while anything waits and a core sleeps, one is named unless another one is awake;
/// * more that waits never means fewer that are woken;
/// * a core that was given back is never named before one that rests.
pub fn wake(cores: &VectorCores, passes: impl FnOnce() -> usize) -> Option<Sleeper> {
    if cores.searching > 0 {
        None
    } else if cores.resting > 0 {
        Some(Sleeper::Resting)
    } else if cores.given_back > 0 && passes() > cores.busy.saturating_mul(PASSES_SOON) {
        Some(Sleeper::GivenBack)
    } else {
        None
    }
}

/// The passes that an idle core would make of what waits for one operation.
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

/// How long a vector core rests before it is given back, unless somebody knows better: long enough
/// that what taking it back costs does not count, and that a low clock has recovered.
pub fn usual_rest(clock: &Clock) -> u64 {
    clock.tail().saturating_mul(8).max(USUAL_REST)
}

impl VectorCores {
    /// Whether a resting core could go without being missed: another one is not given back.
    pub fn has_spare(&self) -> bool {
        let kept = self.searching.saturating_add(self.busy);
        kept.saturating_add(self.resting) > 1
    }
}

impl Idleness {
    /// A core that rests for `rest` at first, but for as long as the clock is low in any case.
    pub fn new(rest: u64, clock: &Clock) -> Self {
        let rest = rest.max(clock.tail());
        Self {
            shortest: rest,
            tail: clock.tail(),
            rest,
            idle: 0,
        }
    }

    /// It ran passes for so long.
    pub fn worked(&mut self, busy: u64) {
        self.idle = self.idle.saturating_sub(busy.saturating_mul(WORTH_A_CORE));
    }

    /// It slept for so long and was needed again before it was given back.
    pub fn slept(&mut self, asleep: u64) {
        self.idle = self.idle.saturating_add(asleep).min(self.rest);
    }

    /// For how much longer a core that has slept for `asleep` rests; 0: it is to be given back.
    ///
    /// The last one rests undisturbed for the whole time, since the next job will need it. A
    /// [spare](VectorCores::has_spare) one goes as well if it was disturbed for little: others do
    /// that in its place. None goes before its clock has recovered.
    pub fn rest_left(&self, asleep: u64, spare: bool) -> u64 {
        let rest = if spare {
            self.rest.saturating_sub(self.idle).max(self.tail)
        } else {
            self.rest
        };
        rest.saturating_sub(asleep)
    }

    /// It is needed again after having been given back for `away`.
    ///
    /// Whoever is needed again before having been away for as long as it rested was given back too
    /// soon, and rests twice as long the next time.
    pub fn taken(&mut self, away: u64) {
        self.idle = 0;
        if away < self.rest {
            let longest = self.shortest.saturating_mul(LONGEST_REST);
            self.rest = self.rest.saturating_mul(2).min(longest);
        } else if away / LONG_AWAY >= self.rest {
            self.rest = self.shortest;
        }
    }
}

/// Passes that one busy core will soon have run: as a rule less than a millisecond of them. To take
/// a core back, move its threads away and pay for its stall takes a tenth of that.
const PASSES_SOON: usize = 4;

/// 50 milliseconds. A core that is taken and given back at most so often spends less than a
/// thousandth of its time on that.
const USUAL_REST: u64 = 50_000_000;

/// A spare core is kept if it runs passes for more than one part of its time in one more than so
/// many.
const WORTH_A_CORE: u64 = 4;

/// No rest is longer than so many of the first.
const LONGEST_REST: u64 = 32;

/// A core that was away for so many rests starts afresh.
const LONG_AWAY: u64 = 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{NEVER, Toll};

    const MILLISECOND: u64 = 1_000_000;

    fn clock(tail: u64) -> Clock {
        let wide = Toll {
            depth: 0.3,
            stall: 50_000,
            tail,
        };
        Clock {
            wide,
            narrow: Toll::default(),
        }
    }

    #[test]
    fn those_that_rest_are_woken_first_and_for_anything() {
        let mut cores = VectorCores {
            resting: 1,
            given_back: 1,
            ..VectorCores::default()
        };
        assert_eq!(wake(&cores, || 1), Some(Sleeper::Resting));
        cores.busy = 1;
        assert_eq!(wake(&cores, || 1), Some(Sleeper::Resting));
        cores.searching = 1;
        assert_eq!(wake(&cores, || 100), None, "somebody will find it");
    }

    #[test]
    fn one_given_back_is_woken_for_much_or_if_nobody_is_awake() {
        let mut cores = VectorCores {
            given_back: 2,
            ..VectorCores::default()
        };
        assert_eq!(wake(&cores, || 1), Some(Sleeper::GivenBack));
        cores.busy = 2;
        assert_eq!(wake(&cores, || 2 * PASSES_SOON), None);
        let more = 2 * PASSES_SOON + 1;
        assert_eq!(wake(&cores, || more), Some(Sleeper::GivenBack));
    }

    #[test]
    fn passes_are_counted_as_they_would_run() {
        let line = |jobs, worth| Waiting {
            lanes: 8,
            worth,
            jobs,
            oldest: 0,
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
    fn a_spare_core_with_little_to_do_goes_and_the_last_one_stays() {
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
        (0usize..5, 0usize..5, 0usize..5, 0usize..5).prop_map(
            |(searching, busy, resting, given_back)| VectorCores {
                searching,
                busy,
                resting,
                given_back,
            },
        )
    }

    /// Vector cores under a load, in steps of some microseconds: what the engine does, without
    /// threads.
    struct Machine {
        cores: Vec<Core>,
        now: u64,
        /// Passes that nobody has begun.
        waiting: usize,
        /// How often a core was taken back that had not been away for long.
        soon_missed: u64,
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum State {
        Busy { until: u64 },
        Resting { since: u64 },
        Away { since: u64 },
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
                given_back: self.count(|state| matches!(state, State::Away { .. })),
            }
        }

        /// One step: `arrived` passes, each of which takes a core for `pass`.
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
                    Sleeper::GivenBack => matches!(core.state, State::Away { .. }),
                });
                let core = chosen.expect("only cores that exist are named");
                match core.state {
                    State::Resting { since } => core.idleness.slept(now - since),
                    State::Away { since } => {
                        core.idleness.taken(now - since);
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
                    core.state = State::Away { since: now };
                }
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_waits_while_all_sleep(cores in any_cores(), passes in 1usize..100) {
            let awake = cores.searching + cores.busy;
            let asleep = cores.resting + cores.given_back;
            if awake == 0 && asleep > 0 {
                prop_assert!(wake(&cores, || passes).is_some());
            }
        }

        #[test]
        fn only_cores_that_are_there_and_those_that_rest_first(
            cores in any_cores(), passes in 0usize..100,
        ) {
            match wake(&cores, || passes) {
                None => {}
                Some(Sleeper::Resting) => prop_assert!(cores.resting > 0),
                Some(Sleeper::GivenBack) => {
                    prop_assert!(cores.given_back > 0);
                    prop_assert_eq!(cores.resting, 0);
                    prop_assert!(passes > 0);
                }
            }
        }

        #[test]
        fn more_work_never_wakes_fewer(cores in any_cores(), passes in 0usize..100) {
            if wake(&cores, || passes).is_some() {
                prop_assert!(wake(&cores, || passes + 1).is_some());
                // And never fewer for want of others that are awake.
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

        /// A job every so often: the core is soon either kept, or away for at least half of the
        /// time, so that coming and going costs next to nothing.
        #[test]
        fn a_steady_rhythm_does_not_make_a_core_go_to_and_fro(
            rest in MILLISECOND..100 * MILLISECOND,
            gap in MILLISECOND..3_000 * MILLISECOND,
            long in any::<u32>(),
        ) {
            let mut core = Idleness::new(rest, &clock(MILLISECOND));
            // However long it was away before.
            core.taken(u64::from(long));
            let mut regrets = 0;
            for _ in 0..100 {
                let rested = core.rest_left(0, false);
                if gap < rested {
                    core.slept(gap);
                } else {
                    regrets += u64::from(gap - rested < rested);
                    core.taken(gap - rested);
                }
            }
            prop_assert!(regrets <= 5, "{regrets}");
        }

        /// Constant load on some cores: all passes run, and cores go to and fro a few times at
        /// first and no more once the right number has been found. Only a load that is by less than
        /// a hundredth more than some cores can do goes on calling for one more, after long
        /// absences.
        #[test]
        fn a_constant_load_is_served_by_a_steady_number_of_cores(
            cores in 1usize..5,
            // Thousandths of a pass in each step, which is a quarter of one. With fewer, a single
            // core is away for most of the time, and rightly so.
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
                prop_assert_eq!(all.busy + all.resting + all.given_back, cores);
                prop_assert!(machine.waiting == 0 || all.busy > 0);
                if number == 6_000 {
                    missed_early = machine.soon_missed;
                }
            }
            let missed_late = machine.soon_missed - missed_early;
            prop_assert!(missed_early <= 5 * cores as u64, "{missed_early}");
            prop_assert!(missed_late <= cores as u64, "{missed_late}");
            if load * 4 < 200 {
                let kept = cores - machine.view().given_back;
                prop_assert!(kept <= 1, "{kept} cores for a fifth of one");
            }
        }

        /// As much as `busy` cores can do needs so many, and they come.
        #[test]
        fn the_number_of_cores_grows_with_the_load(cores in 1usize..5, wanted in 1usize..5) {
            let (step, pass) = (50_000, 200_000);
            let mut machine = Machine::new(cores, 10 * MILLISECOND);
            for _ in 0..4_000 {
                machine.step(step, 0, pass);
            }
            prop_assert_eq!(machine.view().given_back, cores, "all are idle");
            // A pass a core in each time that one takes.
            for number in 0..4_000usize {
                machine.step(step, if number % 4 == 0 { wanted } else { 0 }, pass);
            }
            let awake = cores - machine.view().given_back;
            prop_assert!(awake >= wanted.min(cores), "{awake} of {cores} for {wanted}");
        }
    }
}
