//! A physical core: its clock by its licence, and the work of its hyperthreads.
//!
//! Work is counted in units of a millionth of a cycle: a core of one kHz does one unit in a
//! nanosecond, so that clock times time is work without rounding.

use widelane_cpu::licence::machine::{Machine, Pace, Request};

use crate::plan::Processor;

/// Units of a cycle.
pub(crate) const CYCLE: f64 = 1e6;

pub(crate) struct Core {
    licence: Option<Machine>,
    clocks: [u64; 3],
    sibling_share: u64,
    works: [Option<Work>; 2],
    /// Time until which everything is accounted for.
    since: u64,
    /// Counts the changes: an event that was planned before the last one is out of date.
    pub(crate) stamp: u32,
    pub(crate) account: Account,
}

/// Work of a hyperthread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Units; `None`: it never ends.
    pub(crate) left: Option<u64>,
    pub(crate) request: Request,
    pub(crate) wide: bool,
}

/// Times of a core, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    /// Time with at least one busy hyperthread, by level.
    pub(crate) busy: [u64; 3],
    pub(crate) throttled: u64,
    pub(crate) halted: u64,
    /// Nanoseconds times kHz, while it was not halted.
    pub(crate) clocked: u128,
    /// Summed over hyperthreads.
    pub(crate) threads_busy: u64,
    pub(crate) threads_wide: u64,
    /// Units of work that ends, done.
    pub(crate) done: u128,
}

impl Core {
    pub(crate) fn new(processor: &Processor, clocks: [u64; 3], seed: u64) -> Self {
        let rules = processor.rules.clone();
        Self {
            licence: rules.map(|rules| Machine::new(rules, seed)),
            clocks,
            sibling_share: processor.sibling_share,
            works: [None; 2],
            since: 0,
            stamp: 0,
            account: Account::default(),
        }
    }

    /// Accounts for the time until `now`, which must not be after [`next`](Self::next).
    pub(crate) fn settle(&mut self, now: u64) {
        let passed = now - self.since;
        self.since = now;
        if passed > 0 && self.is_busy() {
            self.count(passed);
        }
        if let Some(licence) = &mut self.licence {
            licence.advance(now);
        }
    }

    /// Gives a hyperthread work, or none. The core must be settled.
    pub(crate) fn set(&mut self, thread: usize, work: Option<Work>, crowded: bool) {
        self.works[thread] = work;
        let asks = |work: &Option<Work>| work.map_or(Request::NOTHING, |work| work.request);
        let request = asks(&self.works[0]).together(asks(&self.works[1]));
        if let Some(licence) = &mut self.licence {
            licence.run(self.since, request, crowded);
        }
    }

    /// Rest of a hyperthread's work.
    pub(crate) fn left(&self, thread: usize) -> Option<u64> {
        self.works[thread].and_then(|work| work.left)
    }

    /// Time at which the first work ends or the speed changes.
    pub(crate) fn next(&self) -> Option<u64> {
        if !self.is_busy() {
            return None;
        }
        let rate = self.rate();
        let ends = self.works.iter().flatten().filter_map(|work| {
            let left = work.left?;
            match (left, rate) {
                (0, _) => Some(self.since),
                (_, 0) => None,
                _ => Some(self.since + left.div_ceil(rate)),
            }
        });
        let changes = self.licence.as_ref().and_then(Machine::next_change);
        ends.chain(changes).min()
    }

    /// Returns whether the core is on its way to another level.
    pub(crate) fn is_changing(&self) -> bool {
        self.pace() != Pace::Full
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.works.iter().any(Option::is_some)
    }

    pub(crate) fn set_clocks(&mut self, clocks: [u64; 3]) {
        self.clocks = clocks;
    }

    /// Returns whether one of the core's hyperthreads runs wide code.
    pub(crate) fn is_wide(&self) -> bool {
        self.works.iter().flatten().any(|work| work.wide)
    }

    /// Level and pace, for pictures.
    pub(crate) fn shown(&self) -> (usize, Pace) {
        (self.level(), self.pace())
    }

    fn count(&mut self, passed: u64) {
        let (rate, level, pace) = (self.rate(), self.level(), self.pace());
        let account = &mut self.account;
        account.busy[level] += passed;
        match pace {
            Pace::Full => {}
            Pace::Throttled => account.throttled += passed,
            Pace::Halted => account.halted += passed,
        }
        if pace != Pace::Halted {
            account.clocked += u128::from(passed) * u128::from(self.clocks[level]);
        }
        for work in self.works.iter_mut().flatten() {
            account.threads_busy += passed;
            // A profiler counts no cycles while the core halts.
            let counts = work.wide && pace != Pace::Halted;
            account.threads_wide += if counts { passed } else { 0 };
            if let Some(left) = &mut work.left {
                let done = (rate * passed).min(*left);
                *left -= done;
                account.done += u128::from(done);
            }
        }
    }

    /// Units a nanosecond for each busy hyperthread.
    fn rate(&self) -> u64 {
        let clock = self.clocks[self.level()];
        let clock = match self.works {
            [Some(_), Some(_)] => clock * self.sibling_share / 1024,
            _ => clock,
        };
        match (self.pace(), &self.licence) {
            (Pace::Halted, _) => 0,
            (Pace::Throttled, Some(licence)) => clock / licence.rules().throttle.max(1),
            _ => clock,
        }
    }

    fn level(&self) -> usize {
        let licence = self.licence.as_ref();
        licence.map_or(0, |licence| licence.state().grant.level() as usize)
    }

    fn pace(&self) -> Pace {
        let licence = self.licence.as_ref();
        licence.map_or(Pace::Full, |licence| licence.state().pace)
    }
}
