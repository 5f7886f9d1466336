//! Records the work of one core for a moment.

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
    /// Beginning of the span, in microseconds.
    pub from_us: f64,
    /// End of the span, in microseconds.
    pub until_us: f64,
    /// The licence level, from 0.
    pub level: usize,
    /// Speed of the core at that level's clock.
    pub pace: Pace,
    /// Clock of the level, in GHz.
    pub ghz: f64,
    /// True if wide code runs.
    pub wide: bool,
}

/// Change of a core's state from a moment on.
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
    pub(crate) fn note(&mut self, core: usize, at: u64, (level, pace): (usize, Pace), clocks: [u64; 3], wide: bool) {
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
        // Only the last change counts before the beginning, and at each moment.
        match self.changes.last_mut() {
            Some(last) if last.at == change.at => *last = change,
            Some(last) if Change { at: change.at, ..*last } == change => {}
            _ => self.changes.push(change),
        }
    }

    /// Spans of the core's work, one after the other.
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
