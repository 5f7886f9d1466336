//! What one core does for a moment.

use widelane_cpu::licence::machine::Pace;

/// The level, pace and code of one core between two moments.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    core: usize,
    from: u64,
    until: u64,
    changes: Vec<Change>,
}

/// A time in which a core does the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Its beginning, in microseconds.
    pub from_us: f64,
    /// Its end, in microseconds.
    pub until_us: f64,
    /// The licence level, from 0.
    pub level: usize,
    /// How fast the core works at that level's clock.
    pub pace: Pace,
    /// That clock, in GHz.
    pub ghz: f64,
    /// Whether wide code runs.
    pub wide: bool,
}

/// What a core does from a moment on.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Change {
    at: u64,
    level: usize,
    pace: Pace,
    khz: u64,
    wide: bool,
}

impl Timeline {
    pub(crate) fn new(core: usize, from: u64, until: u64) -> Self {
        Self {
            core,
            from,
            until,
            changes: Vec::new(),
        }
    }

    /// A core does something else.
    pub(crate) fn note(
        &mut self,
        core: usize,
        at: u64,
        (level, pace): (usize, Pace),
        clocks: [u64; 3],
        wide: bool,
    ) {
        if core != self.core || at > self.until || self.changes.len() >= MOST_CHANGES {
            return;
        }
        let change = Change {
            at: at.max(self.from),
            level,
            pace,
            khz: clocks[level],
            wide,
        };
        // Of what happens before the beginning, only the last counts; of two changes at a time, too.
        match self.changes.last_mut() {
            Some(last) if last.at == change.at => *last = change,
            Some(last)
                if Change {
                    at: change.at,
                    ..*last
                } == change => {}
            _ => self.changes.push(change),
        }
    }

    /// What it does, one span after the other.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let us = |at: u64| (at - self.from) as f64 / 1e3;
        let ends = self.changes.iter().skip(1).map(|change| change.at);
        let spans = self.changes.iter().zip(ends.chain([self.until]));
        spans
            .map(|(change, end)| Span {
                from_us: us(change.at),
                until_us: us(end),
                level: change.level,
                pace: change.pace,
                ghz: change.khz as f64 / 1e6,
                wide: change.wide,
            })
            .collect()
    }
}

/// More spans than this no picture shows.
const MOST_CHANGES: usize = 20_000;
