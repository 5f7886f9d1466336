//! Lost time of a core: the time that the model would have lost by now.

use widelane_cpu::licence::machine::{Machine, Pace, Request, State};

/// Licence of a core, and the time lost by it. Times are in nanoseconds.
#[derive(Clone, Debug)]
pub struct Account {
    machine: Machine,
    /// The share of the clock that is missing at each level, of [`WHOLE`].
    missing: [u64; 3],
    at: u64,
    request: Request,
    /// Lost time in parts of a nanosecond, of which [`WHOLE`] make one.
    owed: u128,
    /// Part of the lost time for throttling and halts.
    stalled: u128,
    levels: [u64; 3],
}

/// Rest of a stall: its end, and the time that is lost until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stall {
    pub(crate) end: u64,
    pub(crate) owed: u64,
}

impl Account {
    /// The account of a core with these clocks by level, from now on. The clocks fall.
    pub fn new(machine: Machine, clocks: [f64; 3], now: u64) -> Self {
        let missing = |clock: f64| ((1.0 - clock / clocks[0]) * WHOLE as f64).round() as u64;
        Self {
            machine,
            missing: clocks.map(missing),
            at: now,
            request: Request::NOTHING,
            owed: 0,
            stalled: 0,
            levels: [0; 3],
        }
    }

    /// Runs code that asks for `request` on the core from `now` on.
    pub fn run(&mut self, now: u64, request: Request, crowded: bool) {
        self.advance(now);
        self.request = request;
        self.machine.run(self.at, request, crowded);
    }

    /// Lets time pass until `now`.
    pub fn advance(&mut self, now: u64) {
        while let Some(next) = self.machine.next_change().filter(|&next| next <= now) {
            self.accrue(next);
            self.machine.advance(next);
        }
        self.accrue(now);
        self.machine.advance(self.at);
    }

    /// Time that the model has lost since the beginning.
    pub fn owed(&self) -> u64 {
        (self.owed / u128::from(WHOLE)) as u64
    }

    /// Part of the lost time that is due to throttling and halts.
    pub fn stalled(&self) -> u64 {
        (self.stalled / u128::from(WHOLE)) as u64
    }

    /// State of the core.
    pub fn state(&self) -> State {
        self.machine.state()
    }

    /// Last request to the core.
    pub fn request(&self) -> Request {
        self.request
    }

    /// Time up to which the account is computed.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Time of the next change of state that comes by itself.
    pub fn next_change(&self) -> Option<u64> {
        self.machine.next_change()
    }

    /// Time spent at each level.
    pub fn levels(&self) -> [u64; 3] {
        self.levels
    }

    /// Time that the model loses of each nanosecond now, in parts of [`WHOLE`].
    pub(crate) fn rate(&self) -> u64 {
        let state = self.machine.state();
        let missing = self.missing[state.grant.level() as usize];
        match state.pace {
            Pace::Full => missing,
            Pace::Throttled => WHOLE - (WHOLE - missing) / self.machine.rules().throttle.max(1),
            Pace::Halted => WHOLE,
        }
    }

    /// Rest of the stall that is under way; `None` if the core works at its clock. Two stalls in a row, on the way to
    /// level 2, count as two: a program that has ended its wide code between them does not get the second.
    pub(crate) fn stall(&self) -> Option<Stall> {
        let is_over = |one: &Self| {
            let state = one.state();
            state.pace == Pace::Full || state.grant != self.state().grant
        };
        let mut ahead = self.clone();
        while !is_over(&ahead) {
            let next = ahead.next_change()?;
            ahead.advance(next);
        }
        (ahead.at > self.at || ahead.state() != self.state()).then(|| Stall {
            end: ahead.at,
            owed: ahead.owed() - self.owed(),
        })
    }

    fn accrue(&mut self, now: u64) {
        let time = now.saturating_sub(self.at);
        let owed = u128::from(time) * u128::from(self.rate());
        self.owed += owed;
        if self.state().pace != Pace::Full {
            self.stalled += owed;
        }
        self.levels[self.state().grant.level() as usize] += time;
        self.at += time;
    }
}

/// Share of one.
pub(crate) const WHOLE: u64 = 1 << 20;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use widelane_cpu::licence::machine::{Rules, Spread};
    use widelane_cpu::licence::{Class, Generation};

    /// Rules with round figures, of a processor that halts and throttles.
    pub(crate) fn rules() -> Rules {
        let mut rules = Rules::of(Generation::Skylake).expect("it has licences");
        rules.voltage = Some(Spread::exactly(8_000));
        rules.to_level1 = Spread::exactly(20_000);
        rules.to_level1_crowded = Spread::exactly(20_000);
        rules.to_level2 = Spread::exactly(30_000);
        rules.halt_down = 10_000;
        rules.tail = Spread::exactly(600_000);
        rules.halt_up = 12_000;
        rules
    }

    pub(crate) const HEAVY: Request = Request::of(Class::Heavy512, true);

    fn account() -> Account {
        Account::new(Machine::new(rules(), 1), [2.0, 1.5, 1.0], 0)
    }

    #[test]
    fn a_trace_made_by_hand_comes_out() {
        let mut account = account();
        account.advance(100_000);
        assert_eq!(account.owed(), 0);
        account.run(100_000, HEAVY, false);
        let stall = account.stall().expect("it is under way");
        // Throttled for 10 us at a quarter, halted for 10.
        assert_eq!((stall.end, stall.owed), (120_000, 17_500));
        account.advance(120_000);
        assert_eq!(account.owed(), 17_500);
        // Throttled for 20 us at a quarter of three quarters, halted for 10.
        let stall = account.stall().expect("the next");
        assert_eq!((stall.end, stall.owed), (150_000, 16_250 + 10_000));
        account.advance(150_000);
        assert_eq!(account.stall(), None);
        account.advance(250_000);
        assert_eq!(account.owed(), 43_750 + 50_000);
        account.run(250_000, Request::NOTHING, false);
        account.advance(2_000_000);
        // The tail at half the clock, and the halt at its end.
        assert_eq!(account.owed(), 93_750 + 300_000 + 12_000);
        assert_eq!(account.stalled(), 43_750 + 12_000);
        assert_eq!(account.levels()[1], 30_000);
        assert_eq!(account.levels().iter().sum::<u64>(), 2_000_000);
        assert_eq!(account.next_change(), None);
    }

    #[test]
    fn time_in_pieces_is_owed_as_in_one() {
        let (mut whole, mut pieces) = (account(), account());
        for one in [&mut whole, &mut pieces] {
            one.run(1_000, HEAVY, false);
        }
        whole.advance(500_000);
        (1_000..=500_000).step_by(7).for_each(|now| pieces.advance(now));
        pieces.advance(500_000);
        assert_eq!((whole.owed(), whole.levels()), (pieces.owed(), pieces.levels()));
    }
}
