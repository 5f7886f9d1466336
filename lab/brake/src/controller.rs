//! Controller of one CPU: decides when to take how much. Pure: time and the time taken go in, the next step comes out.
//!
//! The deficit is the time that the model has lost and the brake has not taken yet. Taking goes on until there is none.
//! Errors count in the next turn, so that they do not add up. A wake-up takes time from the program by itself.
//! Therefore the controller lets the deficit of a lower clock grow to several times that cost. It takes a stall at its
//! beginning, as a whole, if the stall is worth half a wake-up. The tail before a stall may leave an error. The pieces
//! after the stall correct it, not the stall, so that each stall is as long as the model's.
//!
//! A wake-up costs servers that work together more than the loop by which it was measured, because they lose their
//! caches and their turns. So if the clock was low for most of a long time, the deficit may grow for milliseconds. Then
//! the controller notices the end of a tail late by as much, and takes the rest of the deficit then. After a rest
//! everything is as exact as at first.

use widelane_cpu::licence::machine::Pace;

use crate::account::{Account, WHOLE};

/// Cost of waking and sleeping for the program, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Time from the interrupt of a timer until the brake's thread runs.
    pub timer: u64,
    /// Time from the decision of the brake's thread to sleep until the program runs.
    pub leave: u64,
}

/// Next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Keep the CPU until this time.
    Take {
        /// Nanoseconds of the account's clock.
        until: u64,
        /// True for throttling or a halt, false for the lower clock.
        stall: bool,
        /// Time that the step takes from the program besides, to be counted as taken.
        more: u64,
    },
    /// Give the CPU back, until this time if it is given, or until more is asked for.
    Sleep {
        /// Nanoseconds of the account's clock.
        until: Option<u64>,
        /// True if a stall is taken then.
        stall: bool,
    },
}

/// The controller of one CPU.
#[derive(Clone, Debug)]
pub struct Controller {
    costs: Costs,
    /// The cost of a timer as it was at first.
    timer: u64,
    /// Additional cost of a timer that is due at once, for the second of two stalls.
    at_once: u64,
    /// Additional time that a stall takes if it is taken before it begins.
    ahead: u64,
    taken: u64,
    /// Deficit from before the stalls that are under way; negative if too much was taken.
    carried_deficit: i64,
    /// Time of the last look at the account, and how long its clock had been low until then.
    last_sample: (u64, u64),
    /// Time at a low clock, less the time at the full one, not below nothing.
    low: u64,
}

impl Controller {
    /// Makes a controller that has taken nothing yet.
    pub fn new(costs: Costs) -> Self {
        Self {
            costs,
            timer: costs.timer,
            at_once: 0,
            ahead: 0,
            taken: 0,
            carried_deficit: 0,
            last_sample: (0, 0),
            low: 0,
        }
    }

    /// Counts time as taken, by purpose or by waking up.
    pub fn took(&mut self, ns: u64) {
        self.taken += ns;
    }

    /// Corrects the costs: `more` is added to that of a wake-up by a timer, `at_once` to that of a timer that is due at
    /// once, and `ahead` to the time of a stall that is taken before it begins.
    pub fn tune(&mut self, more: i64, at_once: u64, ahead: u64) {
        self.costs.timer = self.timer.saturating_add_signed(more);
        self.at_once = at_once;
        self.ahead = ahead;
    }

    /// Begins a stall at which a mark has woken the brake. `taken` is the time since the mark, all of it taken;
    /// `stalled` is the time lost by stalls since the last look.
    pub fn begin_stall(&mut self, account: &Account, stalled: u64, taken: u64) {
        // More than the time since the mark is the halt at the end of a tail.
        let own = stalled.min(taken) as i64;
        let before = self.deficit(account) - own + taken as i64;
        // A stall alone, without a lower clock after it, corrects an error of more than a wake-up.
        self.carried_deficit = before.max(-self.cost());
    }

    /// Time that was taken so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Costs of waking and sleeping.
    pub fn costs(&self) -> Costs {
        self.costs
    }

    /// Deficit at which a piece is taken, while the model loses `rate` of each nanosecond, in parts of [`WHOLE`].
    fn threshold(&self, rate: u64) -> i64 {
        let cost = self.cost();
        let of_a_tail = (SHORTEST_TAIL * rate / WHOLE) as i64;
        let exact = of_a_tail.clamp(3 * cost / 2, (WAKE_UPS * cost).max(LEAST_DEFICIT));
        let tolerated = self.tolerated_delay() * rate / WHOLE;
        exact.max(tolerated.min(MOST_DEFICIT) as i64)
    }

    /// Time for which the deficit may grow because the clock has been low for long: 0 at first.
    fn tolerated_delay(&self) -> u64 {
        (self.low.saturating_sub(LONG) / 8).min(MOST_DELAY)
    }

    /// Measures how long the clock stays low.
    fn sample(&mut self, account: &Account) {
        let [_, level1, level2] = account.levels();
        let (now, low) = (account.at(), level1 + level2);
        let time = now.saturating_sub(self.last_sample.0);
        let more = low.saturating_sub(self.last_sample.1).min(time);
        let most = LONG + 8 * MOST_DELAY;
        self.low = (self.low + more).min(most).saturating_sub(time - more);
        self.last_sample = (now, low);
    }

    /// Next step, once the account has come to the present.
    pub fn next(&mut self, account: &Account) -> Step {
        self.sample(account);
        let now = account.at();
        let leave = self.costs.leave as i64;
        if let Some(stall) = account.stall() {
            // Leaves out of the first stall what the wake-up for a second one takes too much.
            let second = second(account, stall.end).filter(|&owed| 2 * owed >= self.cost());
            let surplus = second.map_or(0, |owed| (self.cost() + self.at_once as i64 - owed).max(0));
            let due = self.stall_deficit(account) + stall.owed as i64 - leave - surplus;
            if due > 0 && stall.end > now {
                let until = stall.end.min(now + due as u64);
                return Step::Take {
                    until,
                    stall: true,
                    more: 0,
                };
            }
        } else {
            // The deficit grows while it is taken.
            let rate = account.rate().min(WHOLE - 1);
            let due = (self.deficit(account) - leave).max(0) as u64;
            let mut due = (u128::from(due) * u128::from(WHOLE) / u128::from(WHOLE - rate)) as u64;
            // Leaves enough for a wake-up at the end of the tail, or nothing.
            if let Some(coming) = coming(account) {
                let most = self.deficit(account) - leave + coming - self.cost();
                due = due.min(most.max(0) as u64);
            }
            if due > LEAST_TAKEN {
                let change = account.next_change().filter(|&next| next > now);
                let until = (now + due).min(change.unwrap_or(u64::MAX));
                return Step::Take {
                    until,
                    stall: false,
                    more: 0,
                };
            }
        }
        match self.stall_ahead(account) {
            // Too little for a wake-up of its own, and it comes at once.
            Some((begin, due)) if (LEAST_TAKEN as i64 + 1..self.cost()).contains(&due) && begin < now + SOON => {
                Step::Take {
                    until: now + (due as u64).saturating_sub(self.ahead),
                    stall: true,
                    more: self.ahead.min(due as u64),
                }
            }
            Some((begin, due)) if 2 * due >= self.cost() => Step::Sleep {
                until: Some(begin),
                stall: true,
            },
            _ => {
                self.carried_deficit = 0;
                let until = self.wake_up(account);
                Step::Sleep { until, stall: false }
            }
        }
    }

    /// Deficit: lost time that is not taken yet; negative if more was taken.
    fn deficit(&self, account: &Account) -> i64 {
        account.owed() as i64 - self.taken as i64
    }

    /// Part of the deficit for the stalls that are under way.
    fn stall_deficit(&self, account: &Account) -> i64 {
        self.deficit(account) - self.carried_deficit
    }

    /// Time that a wake-up by a timer takes in all.
    fn cost(&self) -> i64 {
        (self.costs.timer + self.costs.leave) as i64
    }

    /// Beginning of the next stall, and the time to take for it then, if no piece is due before.
    fn stall_ahead(&self, account: &Account) -> Option<(u64, i64)> {
        let mut ahead = account.clone();
        loop {
            let next = ahead.next_change().filter(|&next| next > ahead.at())?;
            ahead.advance(next);
            let leave = self.costs.leave as i64;
            if self.deficit(&ahead) - leave >= self.threshold(WHOLE) {
                return None;
            }
            let is_throttled = ahead.state().pace == Pace::Throttled;
            if let Some(stall) = ahead.stall().filter(|_| is_throttled) {
                let due = self.stall_deficit(&ahead) - leave + stall.owed as i64;
                return Some((next, due));
            }
        }
    }

    /// Time at which a piece is due if bursts keep the present level without waking the brake.
    fn if_it_goes_on(&self, account: &Account) -> Option<u64> {
        let rate = account.rate();
        let lacking = (self.threshold(rate) - self.deficit(account)).max(0) as u128;
        let time = || (lacking * u128::from(WHOLE)).div_ceil(u128::from(rate)) as u64;
        let level_stays = rate > 0 && account.state().pace == Pace::Full;
        level_stays.then(|| account.at() + time())
    }

    /// Time at which a wake-up is worth its cost, if the same code goes on; `None` if never.
    fn wake_up(&self, account: &Account) -> Option<u64> {
        let cost = self.cost();
        // The way into sleep is over before anything else happens.
        let deficit = |ahead: &Account| self.deficit(ahead) - self.costs.leave as i64;
        let mut ahead = account.clone();
        // Equal code may come again before its tail has run out.
        let settle = account.at() + self.tolerated_delay();
        let (mut full, mut least) = (None, 0);
        loop {
            let (now, rate) = (ahead.at(), ahead.rate());
            let next = ahead.next_change().filter(|&next| next > now);
            let lacking = (self.threshold(rate) - deficit(&ahead)).max(0) as u128;
            if rate > 0 && full.is_none() {
                let at = now + (lacking * u128::from(WHOLE)).div_ceil(u128::from(rate)) as u64;
                full = next.is_none_or(|next| at <= next).then_some(at);
                least = self.threshold(rate);
            }
            match next {
                Some(next) => ahead.advance(next),
                None if rate > 0 => return full,
                // The full clock for as long as nothing else is asked for. If the last piece would be
                // too small to be taken, it is taken with the one before, so that nothing is left.
                None if full.is_some() && deficit(&ahead) >= least + cost => return full,
                None if 8 * deficit(&ahead) >= 7 * cost => return Some(now.max(settle)),
                None => return self.if_it_goes_on(account).map(|at| at.max(now)),
            }
        }
    }
}

/// Time lost by the stall that begins where this one ends, if there is one.
fn second(account: &Account, end: u64) -> Option<i64> {
    let mut ahead = account.clone();
    ahead.advance(end);
    ahead.stall().map(|stall| stall.owed as i64)
}

/// Time that the model loses until the core is back at its full clock for good; `None` if that is not known, or the
/// core is there already.
fn coming(account: &Account) -> Option<i64> {
    let mut ahead = account.clone();
    while let Some(next) = ahead.next_change() {
        ahead.advance(next);
    }
    let coming = (ahead.owed() - account.owed()) as i64;
    (ahead.rate() == 0 && ahead.at() > account.at()).then_some(coming)
}

/// Least length of a piece, in wake-ups: so the wake-up itself never takes more than the deficit, and few caches are
/// lost to it.
const WAKE_UPS: i64 = 4;
/// Shortest piece in nanoseconds, however cheap a wake-up is.
const LEAST_DEFICIT: i64 = 50_000;
/// Time in which the brake must notice that a program has ended its wide code, in nanoseconds: before its tail is over.
const SHORTEST_TAIL: u64 = 600_000;
/// Time after which a low clock counts as lasting, in nanoseconds.
const LONG: u64 = 100_000_000;
/// Longest time that a deficit grows, and its greatest size: clients wait while it is taken.
const MOST_DELAY: u64 = 10_000_000;
const MOST_DEFICIT: u64 = 1_000_000;
/// Least time that is taken, in nanoseconds: reading the clock takes as long.
const LEAST_TAKEN: u64 = 200;
/// Time within which a stall must begin to be taken now, in nanoseconds.
const SOON: u64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::tests::{HEAVY, rules};
    use proptest::prelude::*;
    use widelane_cpu::licence::Class;
    use widelane_cpu::licence::machine::{Machine, Request, Rules};

    const COSTS: Costs = Costs {
        timer: 20_000,
        leave: 3_000,
    };

    /// A machine in which a brake runs: programs ask for something at given times; wake-ups take
    /// what they take, which is not exactly what the brake believes.
    struct World {
        account: Account,
        controller: Controller,
        now: u64,
        truly_taken: u64,
        wake_ups: u64,
        /// Time of the last wake-up.
        last: u64,
        /// True costs of waking and sleeping.
        true_costs: Costs,
    }

    impl World {
        fn new(rules: Rules, clocks: [f64; 3], true_costs: Costs) -> Self {
            Self {
                account: Account::new(Machine::new(rules, 3), clocks, 0),
                controller: Controller::new(true_costs),
                now: 0,
                truly_taken: 0,
                wake_ups: 0,
                last: 0,
                true_costs,
            }
        }

        /// Lets the brake go on until `end`; where it has the CPU then, a little longer.
        fn until(&mut self, end: u64) {
            loop {
                self.account.advance(self.now);
                match self.controller.next(&self.account) {
                    Step::Take { until, .. } => {
                        assert!(until > self.now, "it takes nothing");
                        self.controller.took(until - self.now);
                        self.truly_taken += until - self.now;
                        self.now = until;
                    }
                    Step::Sleep { until, .. } => {
                        let leave = self.true_costs.leave;
                        self.controller.took(leave);
                        self.truly_taken += leave;
                        self.now += leave;
                        let wake = until.unwrap_or(u64::MAX).max(self.now);
                        if wake >= end {
                            self.now = self.now.max(end);
                            self.account.advance(self.now);
                            return;
                        }
                        self.now = wake + self.true_costs.timer;
                        self.truly_taken += self.true_costs.timer;
                        self.controller.took(self.true_costs.timer);
                        self.wake_ups += 1;
                        self.last = wake;
                    }
                }
            }
        }

        fn ask(&mut self, request: Request) {
            self.account.run(self.now, request, false);
        }

        fn deficit(&self) -> i64 {
            self.account.owed() as i64 - self.truly_taken as i64
        }
    }

    #[test]
    fn idle_cpus_are_left_alone() {
        let mut world = World::new(rules(), [2.0, 1.5, 1.0], COSTS);
        world.account.advance(1_000);
        assert_eq!(
            world.controller.next(&world.account),
            Step::Sleep {
                until: None,
                stall: false
            }
        );
        world.until(10_000_000_000);
        assert!(world.wake_ups == 0 && world.truly_taken <= COSTS.leave);
        // Light 256-bit code costs nothing but its throttled beginning.
        world.ask(Request::of(Class::Light256, false));
        world.until(20_000_000_000);
        assert!(world.wake_ups == 0 && world.truly_taken < 15_000);
    }

    #[test]
    fn stalls_are_taken_as_a_whole_and_the_second_only_if_it_comes() {
        let mut world = World::new(rules(), [2.0, 1.5, 1.0], COSTS);
        world.ask(HEAVY);
        // The first stall loses 17.5 us: they are taken first, less the way back.
        let first = Step::Take {
            until: 14_500,
            stall: true,
            more: 0,
        };
        assert_eq!(world.controller.next(&world.account), first);
        world.controller.took(14_500);
        world.account.advance(14_500);
        assert_eq!(
            world.controller.next(&world.account),
            Step::Sleep {
                until: Some(20_000),
                stall: true,
            }
        );
        // The program has ended its burst before level 1 was granted: no second stall.
        world.controller.took(3_000);
        world.account.run(19_000, Request::NOTHING, false);
        world.now = 20_000;
        let before = world.account.owed();
        world.until(619_000 + 12_000);
        assert_eq!(world.account.levels()[2], 0);
        // The clock of level 1 is a quarter lower.
        let tail = world.account.owed() - before;
        assert!((140_000..170_000).contains(&tail), "{tail}");
    }

    /// A tail ends with a wake-up that takes a little too much or too little.
    #[test]
    fn what_a_tail_has_left_is_settled_by_pieces_and_not_by_the_next_stall() {
        let light = Request::of(Class::Light512, true);
        let woken = |taken_too_much: i64| {
            let mut world = World::new(rules(), [2.4, 2.17, 1.4], COSTS);
            world.account.advance(1_000_000);
            world.account.run(1_000_000, light, false);
            world.now = 1_005_000;
            world.account.advance(world.now);
            let taken = 5_000u64.saturating_add_signed(taken_too_much);
            world.controller.took(taken);
            world.truly_taken += taken;
            let stalled = world.account.stalled();
            world.controller.begin_stall(&world.account, stalled, 5_000);
            world
        };
        let mut usual = woken(0);
        let first = usual.controller.next(&usual.account);
        assert!(matches!(first, Step::Take { stall: true, .. }), "{first:?}");
        for taken_too_much in [-5_000, 4_000, 15_000] {
            let mut world = woken(taken_too_much);
            assert_eq!(world.controller.next(&world.account), first, "{taken_too_much}");
            world.until(5_000_000);
            world.ask(Request::NOTHING);
            world.until(50_000_000);
            let left = world.deficit();
            assert!(left.abs() <= 4_000, "{taken_too_much}: {left}");
        }
    }

    #[test]
    fn the_long_run_share_is_exact() {
        for (clocks, share) in [([2.4, 2.17, 1.4], 1.0 - 1.4 / 2.4), ([2.8, 2.75, 2.7], 0.1 / 2.8)] {
            let mut world = World::new(rules(), clocks, COSTS);
            world.ask(HEAVY);
            world.until(1_000_000);
            let (from, taken) = (world.now, world.truly_taken);
            world.until(100_000_000);
            let period = (world.now - from) / world.wake_ups;
            assert!((200_000..3_000_000).contains(&period), "at first, {period} ns");
            let (settled, wake_ups) = (world.now, world.wake_ups);
            world.until(10_001_000_000);
            let found = (world.truly_taken - taken) as f64 / (world.now - from) as f64;
            // A piece more or less, in ten seconds.
            assert!((found - share).abs() < 2e-4, "{found} is not {share}");
            let period = (world.now - settled) / (world.wake_ups - wake_ups);
            // The deficit grows while it is taken.
            let most = MOST_DEFICIT as f64 / (share * (1.0 - share));
            let most = most.min(MOST_DELAY as f64);
            let period = period as f64 / most;
            assert!((0.8..1.2).contains(&period), "{period} of {most} ns");
        }
    }

    /// Short bursts that keep a level, without which the brake must wake up at the end of each tail.
    #[test]
    fn bursts_that_keep_a_level_cost_few_wake_ups_and_after_a_rest_it_is_exact_again() {
        let mut world = World::new(rules(), [2.4, 2.17, 1.4], COSTS);
        let light = Request::of(Class::Light512, true);
        let bursts = |world: &mut World, until: u64| {
            while world.now < until {
                world.ask(light);
                world.until(world.now + 5_000);
                world.ask(Request::NOTHING);
                world.until(world.now + 300_000);
            }
        };
        bursts(&mut world, 1_000_000_000);
        let (from, taken, wake_ups) = (world.now, world.truly_taken, world.wake_ups);
        bursts(&mut world, 11_000_000_000);
        let time = (world.now - from) as f64;
        let found = (world.truly_taken - taken) as f64 / time;
        assert!((found - (1.0 - 2.17 / 2.4)).abs() < 5e-4, "{found}");
        let wake_ups = (world.wake_ups - wake_ups) as f64 * 1e9 / time;
        assert!(wake_ups < 250.0, "{wake_ups} a second");
        // The brake notices the last tail late, and takes the rest of its deficit.
        world.until(world.now + 300_000_000);
        assert!(world.deficit().abs() <= 4_000, "{}", world.deficit());
        world.ask(light);
        world.until(world.now + 600_000);
        let ended = world.now;
        world.ask(Request::NOTHING);
        world.until(world.now + 50_000_000);
        let tail = world.last - ended;
        assert!((611_000..700_000).contains(&tail), "{tail}");
    }

    /// A tail that is worth no wake-up can be set again and again unheard.
    #[test]
    fn a_level_that_costs_little_is_taken_if_bursts_keep_it() {
        let mut world = World::new(rules(), [2.8, 2.76, 2.7], COSTS);
        world.ask(Request::of(Class::Light512, true));
        world.until(30_000);
        world.ask(Request::NOTHING);
        world.account.advance(world.now);
        let sleeps = loop {
            match world.controller.next(&world.account) {
                Step::Take { until, .. } => {
                    world.controller.took(until - world.now);
                    world.now = until;
                    world.account.advance(until);
                }
                Step::Sleep { until, .. } => break until,
            }
        };
        let sleeps = sleeps.expect("not for ever: the level may be kept");
        assert!(sleeps < world.now + 10_000_000, "{}", sleeps - world.now);
    }

    #[test]
    fn nothing_is_left_after_a_tail() {
        for (class, time) in [(Class::Heavy512, 5_000_000), (Class::Light512, 600_000)] {
            for late in (0..600_000).step_by(37_000) {
                let mut world = World::new(rules(), [2.4, 2.17, 1.4], COSTS);
                world.ask(Request::of(class, true));
                world.until(time + late);
                let ended = world.now;
                world.ask(Request::NOTHING);
                world.until(50_000_000);
                assert_eq!(world.account.next_change(), None);
                assert!(world.deficit().abs() <= 4_000, "{class} {late}: {}", world.deficit());
                let tail = world.last - ended;
                assert!((611_000..700_000).contains(&tail), "{class} {late}: {tail}");
            }
        }
    }

    proptest! {
        /// For all requests at all times the brake takes what the model loses, within a piece, and never more than that
        /// by over a stall and a wake-up.
        #[test]
        fn what_is_taken_is_what_is_owed(
            asked in proptest::collection::vec((0usize..6, 1_000u64..3_000_000), 1..60),
            depth in (0.0f64..0.3, 0.0f64..0.3),
            timer in 0u64..40_000,
            leave in 0u64..6_000,
        ) {
            let clocks = [3.0, 3.0 * (1.0 - depth.0), 3.0 * (1.0 - depth.0 - depth.1)];
            let costs = Costs { timer, leave };
            let rules = Rules::of(widelane_cpu::licence::Generation::Skylake).unwrap();
            let mut world = World::new(rules, clocks, costs);
            let piece = (4 * (timer + leave) as i64).max(50_000);
            for (class, time) in asked {
                world.ask(Request::of(Class::ALL[class], true));
                world.until(world.now + time);
                let wake_up = (timer + leave) as i64;
                let tolerated = world.controller.tolerated_delay().min(MOST_DELAY) as i64;
                let piece = piece.max(tolerated.min(MOST_DEFICIT as i64));
                prop_assert!(world.deficit() <= piece + wake_up + 120_000, "{} owed", world.deficit());
                prop_assert!(world.deficit() >= -2 * wake_up - 120_000, "{} too much", -world.deficit());
                prop_assert_eq!(world.truly_taken, world.controller.taken());
            }
            world.ask(Request::NOTHING);
            world.until(world.now + 50_000_000);
            prop_assert!(world.deficit().abs() <= 3 * (timer + leave) as i64 + 30_000);
        }
    }
}
