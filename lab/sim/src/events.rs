//! Queue of the next events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A core ends a work or changes its speed; out of date if the stamp is not the core's.
    Core { core: u32, stamp: u32 },
    /// Requests come from outside.
    Arrival,
    /// A connection sends its next request.
    Request { connection: u32 },
    /// A sleeping vector core works.
    Awake { thread: u32 },
    /// A resting vector core may be lent; out of date if the stamp is not the thread's.
    Rested { thread: u32, stamp: u32 },
    /// The processor looks how many cores are active.
    Activity,
    /// The warm-up ends: events from now on count.
    Count,
}

/// Events by time. Of two at the same time the one that was planned first comes first, so that runs
/// are identical.
pub(crate) struct Events<E = Event> {
    heap: BinaryHeap<Reverse<(u64, u64, E)>>,
    planned: u64,
}

impl<E: Ord> Events<E> {
    pub(crate) fn plan(&mut self, time: u64, event: E) {
        self.heap.push(Reverse((time, self.planned, event)));
        self.planned += 1;
    }

    pub(crate) fn next(&mut self) -> Option<(u64, E)> {
        let Reverse((time, _, event)) = self.heap.pop()?;
        Some((time, event))
    }

    pub(crate) fn next_time(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((time, ..))| *time)
    }
}

impl<E: Ord> Default for Events<E> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            planned: 0,
        }
    }
}
