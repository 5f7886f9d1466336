//! The state machine that decides a core's level from the code that runs on it.
//!
//! The owner of a [`Machine`] tells it which code runs ([`Machine::run`]) and asks what the core
//! does meanwhile ([`Machine::state`]) and when that changes by itself ([`Machine::next_change`]).
//! Time is in nanoseconds from any beginning. There is no clock and no thread in here, so that a
//! simulator and a program in real time call the same code.
//!
//! What a core does (Downs, "Gathering Intel on Intel AVX-512 Transitions", 2020; Khalil,
//! bachelor's thesis, KIT, 2019):
//!
//! ```text
//!          wide code                      dense heavy 512-bit code
//!   Base ─────────────▶ throttled, halted ─▶ L1 ─▶ throttled, halted ─▶ L2
//!    ▲ │ 256-bit light code: throttled      │                          │
//!    │ ▼                                    │                          │
//!   Voltage                                 │                          │
//!    ▲                                      │                          │
//!    └─────── halted ◀── no such code for the time of `tail` ──────────┘
//! ```
//!
//! A core reaches L2 through L1 only. Each further wide instruction sets the timer of the tail again.

use super::{Class, Generation, Level};

/// Licence that a core has been granted, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grant {
    /// The full clock, for scalar and 128-bit code.
    Base,
    /// The full clock at the voltage that 256-bit code takes.
    Voltage,
    /// The clock of level 1.
    L1,
    /// The clock of level 2.
    L2,
}

impl Grant {
    /// Every grant, the least first.
    pub const ALL: [Self; 4] = [Self::Base, Self::Voltage, Self::L1, Self::L2];

    /// The column of the turbo schedule that gives its clock.
    pub const fn level(self) -> Level {
        match self {
            Self::Base | Self::Voltage => Level::L0,
            Self::L1 => Level::L1,
            Self::L2 => Level::L2,
        }
    }
}

/// Speed of a core at the clock of its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pace {
    /// Every cycle counts.
    Full,
    /// One cycle in [`Rules::throttle`] counts.
    Throttled,
    /// No cycle counts.
    Halted,
}

/// State of a core at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Licence that the core has.
    pub grant: Grant,
    /// Speed at which the core works.
    pub pace: Pace,
}

/// Licences that running code asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Licence that the code asks for at its first instruction.
    pub at_once: Grant,
    /// Licence that the code asks for once it has been dense for [`Rules::density`].
    pub in_time: Grant,
}

impl Request {
    /// Scalar code, or none.
    pub const NOTHING: Self = Self {
        at_once: Grant::Base,
        in_time: Grant::Base,
    };

    /// Request of code of `class` on processors with licences. `dense` states whether heavy instructions come at about
    /// one in two cycles or more; it means nothing for other classes.
    ///
    /// Intel, "Crypto Processing with 3rd Gen Xeon Scalable Processors" (2021) for the classes;
    /// Downs (2020) and Khalil (2019) for density.
    pub const fn of(class: Class, dense: bool) -> Self {
        let (at_once, in_time) = match (class, dense) {
            (Class::Scalar | Class::Vector128, _) => (Grant::Base, Grant::Base),
            (Class::Light256, _) | (Class::Heavy256, false) => (Grant::Voltage, Grant::Voltage),
            (Class::Heavy256, true) => (Grant::Voltage, Grant::L1),
            (Class::Light512, _) | (Class::Heavy512, false) => (Grant::L1, Grant::L1),
            (Class::Heavy512, true) => (Grant::L1, Grant::L2),
        };
        Self { at_once, in_time }
    }

    /// Request of two hyperthreads to the core that they share.
    ///
    /// Dense 256-bit heavy code on one and 512-bit code on the other ask for level 2 together
    /// (Intel, 2021).
    pub fn together(self, other: Self) -> Self {
        let dense_256 = |one: Self| one.at_once == Grant::Voltage && one.in_time == Grant::L1;
        let wide = |one: Self| one.at_once == Grant::L1;
        let both = (dense_256(self) && wide(other)) || (dense_256(other) && wide(self));
        let in_time = self.in_time.max(other.in_time);
        Self {
            at_once: self.at_once.max(other.at_once),
            in_time: if both { Grant::L2 } else { in_time },
        }
    }
}

/// A distribution of times: points `(per mille, nanoseconds)` of its quantile function, with
/// straight lines between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread(Vec<(u32, u64)>);

impl Spread {
    /// Makes a spread of one time, in nanoseconds.
    pub fn exactly(ns: u64) -> Self {
        Self(vec![(0, ns), (1000, ns)])
    }

    /// Evenly from `low` to `high`.
    pub fn evenly(low: u64, high: u64) -> Self {
        Self(vec![(0, low), (1000, high.max(low))])
    }

    /// Through these points. `None` unless they begin at 0, end at 1000, and rise in both.
    pub fn through(points: &[(u32, u64)]) -> Option<Self> {
        let ends = points.first()?.0 == 0 && points.last()?.0 == 1000;
        let rises = points.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1);
        (ends && rises).then(|| Self(points.to_vec()))
    }

    /// The quantile at `share` of 2^32.
    pub fn at(&self, share: u32) -> u64 {
        let after = |&(mille, _): &(u32, u64)| u64::from(mille) << 32 > u64::from(share) * 1000;
        let last = self.0.len() - 1;
        let upper = self.0.iter().position(after).unwrap_or(last).max(1);
        let ((p0, low), (p1, high)) = (self.0[upper - 1], self.0[upper]);
        let along = u128::from(share) * 1000 - (u128::from(p0) << 32);
        let whole = u128::from(p1 - p0) << 32;
        low + (u128::from(high - low) * along / whole) as u64
    }

    /// The median.
    pub fn median(&self) -> u64 {
        self.at(1 << 31)
    }
}

/// Durations of all transitions, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Divisor of the clock while a core is throttled: one cycle in `throttle` counts.
    pub throttle: u64,
    /// The throttled time before 256-bit light code has its voltage; `None` if there is none.
    pub voltage: Option<Spread>,
    /// Time from the first wide instruction to level 1, [`halt_down`](Self::halt_down) included.
    pub to_level1: Spread,
    /// Time from the first wide instruction to level 1 while two or more other cores change their level.
    pub to_level1_crowded: Spread,
    /// Time from level 1 to level 2, [`halt_down`](Self::halt_down) included.
    pub to_level2: Spread,
    /// The last part of the way down, in which the core halts.
    pub halt_down: u64,
    /// Time that a grant outlives the last instruction that asked for it.
    pub tail: Spread,
    /// Time that a core halts on its way up.
    pub halt_up: u64,
    /// Time that code is dense before it asks for [`Request::in_time`]; 512-bit code that has reached level 1 asks
    /// without delay.
    pub density: Spread,
}

impl Rules {
    /// The rules of a generation; `None` where there are no licences.
    ///
    /// For Sapphire Rapids and later nothing is published but turbo tables by class: they get the
    /// rules of Ice Lake, which is assumed. [`Rules::sources`] says where each figure is from.
    pub fn of(generation: Generation) -> Option<Self> {
        match generation {
            Generation::Skylake | Generation::CascadeLake => Some(Self::skylake()),
            Generation::IceLake
            | Generation::SapphireRapids
            | Generation::EmeraldRapids
            | Generation::GraniteRapids => Some(Self::ice_lake()),
            Generation::Zen4 | Generation::Zen5 | Generation::Unknown => None,
        }
    }

    /// Name and source of each rule of a generation. What no source says is marked `assumed`.
    pub fn sources(generation: Generation) -> &'static [(&'static str, &'static str)] {
        match generation {
            Generation::Skylake | Generation::CascadeLake => SKYLAKE,
            Generation::IceLake => ICE_LAKE,
            Generation::SapphireRapids | Generation::EmeraldRapids | Generation::GraniteRapids => LATER,
            Generation::Zen4 | Generation::Zen5 | Generation::Unknown => &[],
        }
    }

    fn skylake() -> Self {
        Self {
            throttle: 4,
            voltage: Some(Spread::exactly(9_000)),
            to_level1: points(&[(0, 22_500), (50, 23_300), (500, 24_590), (950, 28_800), (1000, 43_600)]),
            to_level1_crowded: points(&[(0, 23_300), (500, 27_400), (950, 62_500), (1000, 88_000)]),
            to_level2: points(&[(0, 22_000), (500, 25_500), (950, 31_000), (1000, 35_400)]),
            halt_down: 11_000,
            tail: points(&[(0, 667_000), (700, 680_000), (1000, 1_333_000)]),
            halt_up: 11_000,
            density: points(&[(0, 7_000), (500, 26_900), (950, 31_400), (1000, 66_000)]),
        }
    }

    fn ice_lake() -> Self {
        Self {
            throttle: 4,
            voltage: None,
            to_level1: Spread::evenly(20_000, 200_000),
            to_level1_crowded: Spread::evenly(20_000, 200_000),
            to_level2: Spread::evenly(20_000, 200_000),
            halt_down: 0,
            tail: Spread::evenly(1_000_000, 4_000_000),
            halt_up: 0,
            density: Spread::exactly(0),
        }
    }
}

/// A core's licence.
#[derive(Clone, Debug)]
pub struct Machine {
    rules: Rules,
    random: SplitMix64,
    now: u64,
    grant: Grant,
    phase: Phase,
    asked: Grant,
    /// Time until which each grant outlives the code that asked for it.
    held: [u64; 4],
    density: Option<Density>,
    crowded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Steady,
    Throttled { until: u64, halt: u64, to: Grant },
    Halted { until: u64, to: Grant },
}

#[derive(Clone, Copy, Debug)]
struct Density {
    due: u64,
    asks: Grant,
}

impl Machine {
    /// The licence of a core that has run nothing wide. Times are drawn from `seed`.
    pub fn new(rules: Rules, seed: u64) -> Self {
        Self {
            rules,
            random: SplitMix64(seed),
            now: 0,
            grant: Grant::Base,
            phase: Phase::Steady,
            asked: Grant::Base,
            held: [0; 4],
            density: None,
            crowded: false,
        }
    }

    /// Runs code that asks for `request` from `now` on. `crowded` states whether two or more other cores change their
    /// level at this moment. A `now` before the last one counts as the last one.
    pub fn run(&mut self, now: u64, request: Request, crowded: bool) {
        self.advance(now);
        self.crowded = crowded;
        let heavier = request.in_time > request.at_once;
        let dense_already =
            self.density.is_some_and(|one| one.asks == request.in_time) || self.asked == request.in_time;
        match (heavier, dense_already) {
            (false, _) => {
                self.density = None;
                self.ask(request.at_once);
            }
            // The request goes on as before.
            (true, true) => {}
            (true, false) => {
                let delay = match request.at_once {
                    Grant::L1 | Grant::L2 => 0,
                    Grant::Base | Grant::Voltage => self.draw(|rules| &rules.density),
                };
                self.density = Some(Density {
                    due: self.now + delay,
                    asks: request.in_time,
                });
                self.ask(request.at_once);
            }
        }
        self.advance(self.now);
    }

    /// Lets time pass until `now`.
    pub fn advance(&mut self, now: u64) {
        while let Some(next) = self.next_change().filter(|&next| next <= now) {
            self.now = self.now.max(next);
            self.change();
        }
        self.now = self.now.max(now);
    }

    /// Time of the next change of state if the same code goes on.
    pub fn next_change(&self) -> Option<u64> {
        let phase = match self.phase {
            Phase::Steady => (self.wanted() != self.grant).then_some(self.now),
            Phase::Throttled { until, .. } | Phase::Halted { until, .. } => Some(until),
        };
        let expiry = match self.phase {
            Phase::Steady if self.grant > self.asked => Some(self.held[self.grant as usize]),
            _ => None,
        };
        let density = self.density.map(|one| one.due);
        let first = [phase, expiry, density].into_iter().flatten().min();
        first.map(|next| next.max(self.now))
    }

    /// State of the core now.
    pub fn state(&self) -> State {
        let pace = match self.phase {
            Phase::Steady => Pace::Full,
            Phase::Throttled { .. } => Pace::Throttled,
            Phase::Halted { .. } => Pace::Halted,
        };
        State {
            grant: self.grant,
            pace,
        }
    }

    /// Rules of the core's transitions.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    fn change(&mut self) {
        if let Some(density) = self.density.filter(|one| one.due <= self.now) {
            self.density = None;
            self.ask(density.asks);
        }
        match self.phase {
            Phase::Throttled { until, halt, to } if until <= self.now => {
                self.phase = Phase::Halted {
                    until: until + halt,
                    to,
                };
                if halt == 0 {
                    self.arrive(to);
                }
            }
            Phase::Halted { until, to } if until <= self.now => self.arrive(to),
            Phase::Steady => self.leave(),
            Phase::Throttled { .. } | Phase::Halted { .. } => {}
        }
    }

    fn arrive(&mut self, to: Grant) {
        self.grant = to;
        self.phase = Phase::Steady;
    }

    /// Sets out for the grant that is wanted, one level at a time on the way down.
    fn leave(&mut self) {
        let wanted = self.wanted();
        if wanted < self.grant {
            let slower = self.grant >= Grant::L1;
            let halt = if slower { self.rules.halt_up } else { 0 };
            self.phase = Phase::Halted {
                until: self.now + halt,
                to: wanted,
            };
            return;
        }
        let (to, time, halt) = match (self.grant, wanted) {
            (Grant::L1 | Grant::L2, _) if wanted > self.grant => {
                let time = self.draw(|rules| &rules.to_level2);
                (Grant::L2, time, self.rules.halt_down)
            }
            (_, Grant::L1 | Grant::L2) if wanted > self.grant => {
                let time = match self.crowded {
                    true => self.draw(|rules| &rules.to_level1_crowded),
                    false => self.draw(|rules| &rules.to_level1),
                };
                (Grant::L1, time, self.rules.halt_down)
            }
            (Grant::Base, Grant::Voltage) => match self.rules.voltage.clone() {
                Some(voltage) => (Grant::Voltage, voltage.at(self.random.next()), 0),
                None => (Grant::Voltage, 0, 0),
            },
            _ => return,
        };
        self.phase = Phase::Throttled {
            until: self.now + time.saturating_sub(halt),
            halt: halt.min(time),
            to,
        };
    }

    /// Running code asks for `grant` from now on. What it asked for before is held for a while.
    fn ask(&mut self, grant: Grant) {
        if grant < self.asked {
            let until = self.now + self.draw(|rules| &rules.tail);
            // Level 2 is decided while level 1 is in force: a burst that ends before does not get it.
            let reached = match self.phase {
                Phase::Throttled { to, .. } | Phase::Halted { to, .. } => self.grant.max(to),
                Phase::Steady => self.grant,
            };
            for held in Grant::ALL {
                if held > grant && held <= self.asked && (held <= Grant::L1 || reached >= held) {
                    self.held[held as usize] = until;
                }
            }
        }
        self.asked = grant;
    }

    /// The highest grant that is asked for or held.
    fn wanted(&self) -> Grant {
        let held = |grant: &Grant| self.held[*grant as usize] > self.now;
        let held = Grant::ALL.into_iter().rev().find(held);
        self.asked.max(held.unwrap_or(Grant::Base))
    }

    fn draw(&mut self, spread: impl FnOnce(&Rules) -> &Spread) -> u64 {
        spread(&self.rules).at(self.random.next())
    }
}

/// Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators" (OOPSLA 2014), figure 16.
#[derive(Clone, Debug)]
struct SplitMix64(u64);

impl SplitMix64 {
    /// The upper half of the next number.
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as u32
    }
}

fn points(points: &[(u32, u64)]) -> Spread {
    Spread(points.to_vec())
}

const SKYLAKE: &[(&str, &str)] = &[
    (
        "throttle",
        "Downs (2020): dispatch at a quarter; Khalil (2019): about the same",
    ),
    ("voltage", "Downs (2020): 8 to 20 us, about 9"),
    (
        "to_level1",
        "Khalil (2019), n = 1000: p5, median, p95, maximum; the minimum is assumed",
    ),
    (
        "to_level1_crowded",
        "Khalil (2019), three cores at once: median, p95, maximum; the minimum is assumed",
    ),
    (
        "to_level2",
        "chosen so that both steps together have the median, p95 and maximum of level 0 to 2 in Khalil (2019)",
    ),
    ("halt_down", "Downs (2020): 8 to 11 us"),
    (
        "tail",
        "Khalil (2019): median 674 us; 30 % of 512-bit runs up to 1333 us, evenly, which is assumed",
    ),
    ("halt_up", "Downs (2020): about 11 us"),
    (
        "density",
        "Khalil (2019), 256-bit heavy code to level 1, less the way of 512-bit code at the median; minimum and maximum from the counts of instructions",
    ),
];
const ICE_LAKE: &[(&str, &str)] = &[
    ("throttle", "assumed: as Skylake"),
    ("voltage", "assumed: none on servers"),
    ("to_level1", "Intel (2021): 20 to 200 us, evenly, which is assumed"),
    ("to_level1_crowded", "assumed: as alone"),
    ("to_level2", "assumed: as to level 1"),
    ("halt_down", "assumed: none, part of the throttled time"),
    ("tail", "Intel (2021): 1 to 4 ms, evenly, which is assumed"),
    ("halt_up", "Intel (2021): none"),
    ("density", "assumed: none"),
];
const LATER: &[(&str, &str)] = &[
    ("throttle", "assumed: as Ice Lake"),
    ("voltage", "assumed: as Ice Lake"),
    ("to_level1", "assumed: as Ice Lake"),
    ("to_level1_crowded", "assumed: as Ice Lake"),
    ("to_level2", "assumed: as Ice Lake"),
    ("halt_down", "assumed: as Ice Lake"),
    ("tail", "assumed: as Ice Lake"),
    ("halt_up", "assumed: as Ice Lake"),
    ("density", "assumed: as Ice Lake"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules with round figures, for traces made by hand.
    fn round() -> Rules {
        Rules {
            throttle: 4,
            voltage: Some(Spread::exactly(9_000)),
            to_level1: Spread::exactly(20_000),
            to_level1_crowded: Spread::exactly(50_000),
            to_level2: Spread::exactly(30_000),
            halt_down: 10_000,
            tail: Spread::exactly(600_000),
            halt_up: 11_000,
            density: Spread::exactly(25_000),
        }
    }

    /// Every change until `end`, as `(time, grant, pace)`.
    fn changes(machine: &mut Machine, end: u64) -> Vec<(u64, Grant, Pace)> {
        let mut found = Vec::new();
        let mut before = machine.state();
        while let Some(next) = machine.next_change().filter(|&next| next <= end) {
            machine.advance(next);
            let state = machine.state();
            if state != before {
                found.push((next, state.grant, state.pace));
            }
            before = state;
        }
        machine.advance(end);
        found
    }

    const HEAVY: Request = Request::of(Class::Heavy512, true);
    const LIGHT: Request = Request::of(Class::Light512, false);
    const HEAVY_256: Request = Request::of(Class::Heavy256, true);

    #[test]
    fn dense_heavy_code_reaches_level_2_through_level_1_and_leaves_it_after_its_tail() {
        let mut machine = Machine::new(round(), 1);
        machine.run(100_000, HEAVY, false);
        assert_eq!(machine.state().pace, Pace::Throttled);
        assert_eq!(
            changes(&mut machine, 200_000),
            [
                (110_000, Grant::Base, Pace::Halted),
                // The core is at once on its way to level 2.
                (120_000, Grant::L1, Pace::Throttled),
                (140_000, Grant::L1, Pace::Halted),
                (150_000, Grant::L2, Pace::Full),
            ]
        );
        machine.run(200_000, Request::NOTHING, false);
        assert_eq!(
            changes(&mut machine, 2_000_000),
            [(800_000, Grant::L2, Pace::Halted), (811_000, Grant::Base, Pace::Full),]
        );
        assert_eq!(machine.next_change(), None);
    }

    #[test]
    fn a_short_burst_costs_level_1_for_a_whole_tail_and_each_further_one_sets_the_timer_again() {
        let mut machine = Machine::new(round(), 1);
        machine.run(0, HEAVY, false);
        machine.run(3_000, Request::NOTHING, false);
        let down = changes(&mut machine, 500_000);
        assert_eq!(
            down,
            [(10_000, Grant::Base, Pace::Halted), (20_000, Grant::L1, Pace::Full),]
        );
        machine.run(500_000, LIGHT, false);
        machine.run(501_000, Request::NOTHING, false);
        assert_eq!(
            changes(&mut machine, 2_000_000),
            [
                (1_101_000, Grant::L1, Pace::Halted),
                (1_112_000, Grant::Base, Pace::Full),
            ]
        );
    }

    #[test]
    fn light_256_bit_code_is_throttled_and_keeps_its_clock() {
        let mut machine = Machine::new(round(), 1);
        machine.run(0, Request::of(Class::Light256, true), false);
        assert_eq!(machine.state().pace, Pace::Throttled);
        let up = [(9_000, Grant::Voltage, Pace::Full)];
        assert_eq!(changes(&mut machine, 50_000), up);
        assert_eq!(machine.state().grant.level(), Level::L0);
        machine.run(50_000, Request::of(Class::Vector128, true), false);
        assert_eq!(
            changes(&mut machine, 1_000_000).last(),
            Some(&(650_000, Grant::Base, Pace::Full))
        );
    }

    #[test]
    fn heavy_256_bit_code_asks_once_it_has_been_dense() {
        let mut machine = Machine::new(round(), 1);
        machine.run(0, HEAVY_256, false);
        // The same code goes on, so this is no new beginning.
        machine.run(20_000, HEAVY_256, false);
        let last = changes(&mut machine, 100_000).pop();
        assert_eq!(last, Some((45_000, Grant::L1, Pace::Full)));
        let mut machine = Machine::new(round(), 1);
        machine.run(0, HEAVY_256, false);
        machine.run(20_000, Request::NOTHING, false);
        changes(&mut machine, 100_000);
        assert_eq!(machine.state().grant, Grant::Voltage);
    }

    #[test]
    fn neighbours_that_change_their_level_make_it_slower() {
        let mut machine = Machine::new(round(), 1);
        machine.run(0, LIGHT, true);
        let last = changes(&mut machine, 100_000).pop();
        assert_eq!(last, Some((50_000, Grant::L1, Pace::Full)));
    }

    #[test]
    fn hyperthreads_ask_together() {
        assert_eq!(LIGHT.together(Request::NOTHING), LIGHT);
        assert_eq!(HEAVY.together(HEAVY_256), HEAVY);
        assert_eq!(LIGHT.together(HEAVY_256), HEAVY);
        assert_eq!(HEAVY_256.together(LIGHT), HEAVY);
    }

    /// Khalil (2019): medians and 95th percentiles of 1,000 transitions and relaxations.
    #[test]
    fn published_times_come_out() {
        let mut times: [Vec<u64>; 4] = Default::default();
        for seed in 0..4000 {
            let way = |request: Request, to: Grant| {
                let mut machine = Machine::new(Rules::skylake(), seed);
                machine.run(0, request, false);
                let ways = changes(&mut machine, 1_000_000);
                ways.iter().find(|way| way.1 == to).map(|way| way.0)
            };
            times[0].push(way(LIGHT, Grant::L1).expect("it gets there"));
            times[1].push(way(HEAVY_256, Grant::L1).expect("it gets there"));
            times[2].push(way(HEAVY, Grant::L2).expect("it gets there"));
            let mut machine = Machine::new(Rules::skylake(), seed);
            machine.run(0, LIGHT, false);
            machine.run(1_000_000, Request::NOTHING, false);
            let (end, ..) = changes(&mut machine, 9_000_000)[0];
            times[3].push(end - 1_000_000);
        }
        let published = [
            (24_590, 28_800, 43_600),
            (51_500, 60_200, u64::MAX),
            (51_430, 61_000, 79_000),
            (674_000, 1_333_000, 1_333_000),
        ];
        for (times, (median, p95, most)) in times.iter_mut().zip(published) {
            times.sort_unstable();
            let near = |found: u64, told: u64| (found as f64 / told as f64 - 1.0).abs();
            assert!(near(times[2000], median) < 0.01, "{} {median}", times[2000]);
            assert!(near(times[3800], p95) < 0.09, "{} {p95}", times[3800]);
            assert!(times[3999] <= most, "{} {most}", times[3999]);
        }
        let later = times[3].iter().filter(|&&time| time > 690_000).count();
        assert!((1000..1400).contains(&later), "30 % take longer: {later}");
    }

    #[test]
    fn spreads_are_checked_and_read_between_their_points() {
        assert_eq!(Spread::through(&[]), None);
        assert_eq!(Spread::through(&[(0, 5)]), None);
        assert_eq!(Spread::through(&[(0, 5), (1000, 4)]), None);
        assert_eq!(Spread::through(&[(1, 5), (1000, 6)]), None);
        let spread = Spread::through(&[(0, 100), (500, 200), (1000, 1000)]).expect("it rises");
        let quarter = 1 << 30;
        assert_eq!(spread.at(0), 100);
        assert_eq!(spread.at(quarter), 150);
        assert_eq!(spread.median(), 200);
        assert_eq!(spread.at(3 * quarter), 600);
        assert!((999..=1000).contains(&spread.at(u32::MAX)));
    }

    #[test]
    fn every_rule_has_a_source() {
        for (generation, _) in Generation::ALL {
            let sources = Rules::sources(generation);
            assert_eq!(Rules::of(generation).is_some(), sources.len() == 9, "{generation}");
        }
    }

    /// Whatever comes, time goes on, a level is reached through the one above it, and a core that
    /// runs nothing wide for long enough is back at its full clock.
    #[test]
    fn no_sequence_of_requests_breaks_it() {
        let mut random = SplitMix64(7);
        for seed in 0..200 {
            let mut machine = Machine::new(Rules::skylake(), seed);
            let mut now = 0;
            let mut before = Grant::Base;
            for _ in 0..200 {
                now += u64::from(random.next() % 200_000);
                for (_, grant, _) in changes(&mut machine, now) {
                    assert!(!(before < Grant::L1 && grant == Grant::L2), "not through L1");
                    before = grant;
                }
                let class = Class::ALL[random.next() as usize % 6];
                let request = Request::of(class, random.next() < 1 << 31);
                machine.run(now, request, random.next() < 1 << 30);
                assert!(machine.next_change().is_none_or(|next| next >= now));
            }
            machine.run(now, Request::NOTHING, false);
            machine.advance(now + 3_000_000);
            assert_eq!(machine.state().grant, Grant::Base);
            assert_eq!(machine.next_change(), None);
        }
    }
}
