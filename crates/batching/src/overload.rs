//! Policy for handshakes that arrive faster than a worker can finish them: which of them it begins.
//!
//! A worker that begins handshakes in the order in which they came finishes all of them too late as soon as more
//! come than it can do: clients give up while they wait, and the work for them is lost. The worker is busy and
//! serves no client. Serving the newest first keeps those that are served quick, and the rest give up as they would
//! have anyway (Maurer, "Fail at Scale", ACM Queue 13(8), 2015: adaptive LIFO).
//!
//! A queue alone is no overload: a burst passes, and clients that each wait for their answer before they ask again
//! keep a queue of constant length. So [`Overload`] begins when a queue *stands*, by CoDel's rule (Nichols and
//! Jacobson, "Controlling Queue Delay", ACM Queue 10(5), 2012; RFC 8289, section 4): the wait was never below a
//! target for a whole interval; and when, beyond that, it has grown for some intervals. It also begins when clients
//! give up while they wait. Once it has begun, arrivals are held back, so growth says nothing any more; it ends when
//! the queue has been empty once in each interval of a second.
//!
//! [`Line`](crate::Line) is the queue: oldest first in calm; under overload newest first, the sources of connections in
//! turn. Once so few are accepted that all of them can be served in time, each source's oldest goes first: otherwise
//! some would be accepted, wait until they are late, and be refused, which costs a tenth of a handshake each.

/// Detector of overload: do more handshakes arrive than are finished? All times are in nanoseconds of one clock.
#[derive(Clone, Debug)]
pub struct Overload {
    target: u64,
    is_on: bool,
    /// The begin of the interval under way.
    since: u64,
    /// The shortest that the oldest has waited at any look of this interval.
    shortest: u64,
    arrived: u64,
    served: u64,
    gave_up: u64,
    /// Intervals in a row in which a standing queue has grown.
    growing: u32,
    /// Intervals in a row in which more than a few clients have given up.
    losing: u32,
    /// True if the queue was empty at a look of this interval.
    was_empty: bool,
    /// Intervals in a row in which the queue was empty once.
    emptied: u32,
    most_patient: u64,
    patience: u64,
}

/// Result of a look at the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// From now on the newest come first.
    Begins,
    /// From now on the oldest come first.
    Ends,
}

impl Overload {
    /// The longest that handshakes wait for their worker in calm, by default: 20 milliseconds. CoDel's
    /// target is a tenth of its interval at most (RFC 8289, section 4.3), of packets; a handshake also waits for
    /// those with which it shares passes.
    pub const TARGET: u64 = 20 * MILLISECOND;

    /// CoDel's interval (RFC 8289, section 4.2).
    pub const INTERVAL: u64 = 100 * MILLISECOND;

    /// Longest time for which handshakes may keep a worker from its sockets in calm, for [`under_way`]: larger groups
    /// fill passes better.
    pub const CALM_LOOK: u64 = 4 * MILLISECOND;

    /// Longest such time under overload, which must not slow down connections that are established.
    pub const LOOK: u64 = MILLISECOND * 3 / 2;

    /// Length of the kernel's queue under overload, in targets, for [`worth_queueing`].
    pub const QUEUED_TARGETS: u64 = 2;

    /// Calm, at `now`. `target`: how long the oldest may wait in a queue that does not stand; `most_patient`: for how
    /// long a client waits if none is known to have given up.
    pub fn new(now: u64, target: u64, most_patient: u64) -> Self {
        Self {
            target,
            is_on: false,
            since: now,
            shortest: u64::MAX,
            arrived: 0,
            served: 0,
            gave_up: 0,
            growing: 0,
            losing: 0,
            was_empty: false,
            emptied: 0,
            most_patient,
            patience: most_patient,
        }
    }

    /// Returns whether the newest come first.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Time that clients wait before they give up, as far as is known: four fifths of the shortest wait after which
    /// one has, in this overload or just before it. One that has waited for longer is likely to be lost.
    pub fn patience(&self) -> u64 {
        self.patience
    }

    /// A handshake has arrived.
    pub fn arrived(&mut self) {
        self.arrived += 1;
    }

    /// A handshake has had its turn.
    pub fn served(&mut self) {
        self.served += 1;
    }

    /// A client has gone away after it had waited for `wait`.
    pub fn gave_up(&mut self, wait: u64) {
        self.gave_up += 1;
        // A client that goes away early has another reason, and says nothing of others.
        if wait >= self.least_patience() {
            self.patience = self.patience.min((wait / 5 * 4).max(self.least_patience()));
        }
    }

    /// A look at the queue, of which the oldest arrival has waited for `oldest`; `None`: it is empty.
    pub fn look(&mut self, now: u64, oldest: Option<u64>) -> Option<Turn> {
        self.shortest = self.shortest.min(oldest.unwrap_or(0));
        self.was_empty |= oldest.is_none();
        let lasted = now.saturating_sub(self.since);
        if lasted < Self::INTERVAL {
            return None;
        }
        let stands = self.shortest >= self.target.max(1);
        let has_grown = self.arrived > self.served + self.served / 8;
        let is_lost = self.gave_up > self.served / 8;
        self.growing = if stands && has_grown { self.growing + 1 } else { 0 };
        self.losing = if is_lost { self.losing + 1 } else { 0 };
        if !self.is_on && self.growing == 0 && self.losing == 0 {
            // One that gave up in calm says nothing of the next crowd.
            self.patience = self.most_patient;
        }
        // A worker that had nothing to do did not look.
        let intervals = u32::try_from(lasted / Self::INTERVAL).unwrap_or(u32::MAX);
        self.emptied = match core::mem::take(&mut self.was_empty) {
            true => self.emptied.saturating_add(intervals),
            false => 0,
        };
        (self.arrived, self.served, self.gave_up) = (0, 0, 0);
        (self.since, self.shortest) = (now, u64::MAX);
        let before = self.is_on;
        if !self.is_on {
            self.is_on = self.growing >= GROWING || self.losing >= LOSING;
        } else if self.emptied >= EMPTIED {
            self.is_on = false;
        }
        match (before, self.is_on) {
            (false, true) => {
                self.emptied = 0;
                Some(Turn::Begins)
            }
            (true, false) => {
                (self.growing, self.losing) = (0, 0);
                // The next crowd may be another one.
                self.patience = self.most_patient;
                Some(Turn::Ends)
            }
            _ => None,
        }
    }

    fn least_patience(&self) -> u64 {
        self.target.saturating_mul(LEAST_PATIENCE)
    }
}

/// Most handshakes of a worker that may be under way at once, if one takes `cost` nanoseconds of it (0: not known): as
/// many as keep its event loop from its sockets for `look` nanoseconds, but as many as fill passes of `lanes`.
pub fn under_way(cost: u64, look: u64, lanes: usize) -> usize {
    let most = match cost {
        0 => UNKNOWN_UNDER_WAY,
        cost => usize::try_from(look / cost).unwrap_or(usize::MAX),
    };
    let lanes = lanes.max(1);
    let full = most.min(MOST_UNDER_WAY) / lanes * lanes;
    full.max(lanes)
}

/// Number of connections that are worth a place in a queue of at most `wait` nanoseconds, if a handshake takes `cost`.
pub fn worth_queueing(cost: u64, wait: u64) -> usize {
    let most = wait.checked_div(cost).unwrap_or(u64::MAX);
    usize::try_from(most)
        .unwrap_or(usize::MAX)
        .clamp(LEAST_QUEUED, MOST_QUEUED)
}

/// Time that one may wait before it is late, for [`Line::age`](crate::Line::age), if a handshake takes `cost`
/// nanoseconds and may wait for `target`: some targets, and longer than a queue takes that [`worth_queueing`] allows.
pub fn late(cost: u64, target: u64) -> u64 {
    let queue = cost.saturating_mul(worth_queueing(cost, target) as u64);
    target.saturating_mul(LATE_TARGETS).max(queue.saturating_mul(2))
}

const MILLISECOND: u64 = 1_000_000;
/// Half a second of growth: a crowd that comes back after a restart has arrived by then.
const GROWING: u32 = 5;
/// A monitor that closes what it has opened is no client that gives up.
const LOSING: u32 = 2;
/// A second without a standing queue.
const EMPTIED: u32 = 10;
/// CoDel's interval has so many of its targets, and some.
const LATE_TARGETS: u64 = 5;
/// A client that gives up before it has waited for this many targets has another reason.
const LEAST_PATIENCE: u64 = 10;
/// Few enough that some wait as soon as there are many, so that the cost is measured.
const UNKNOWN_UNDER_WAY: usize = 16;
/// More handshakes at once fill no pass better.
const MOST_UNDER_WAY: usize = 64;
/// Fewer would leave a worker idle between two looks.
const LEAST_QUEUED: usize = 32;
const MOST_QUEUED: usize = 4096;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Line;

    const PATIENT: u64 = 10_000 * MILLISECOND;

    /// A worker that finishes one handshake in each of these steps, with a queue of its own.
    struct Worker {
        overload: Overload,
        line: Line<u8, u64>,
        now: u64,
        step: u64,
        turns: Vec<Turn>,
    }

    impl Worker {
        fn new(step: u64) -> Self {
            Self {
                overload: Overload::new(0, Overload::TARGET, PATIENT),
                line: Line::new(),
                now: 0,
                step,
                turns: Vec::new(),
            }
        }

        /// One step, in which so many arrive. Clients give up after `patience`. Returns how long the one that was
        /// served has waited.
        fn step(&mut self, arrived: usize, patience: u64) -> Option<u64> {
            self.now += self.step;
            for _ in 0..arrived {
                self.overload.arrived();
                self.line.push(self.now, 0, self.now);
            }
            let oldest = self.line.oldest().map(|since| self.now - since);
            self.turns.extend(self.overload.look(self.now, oldest));
            loop {
                let next = match self.overload.is_on() {
                    true => self.line.pop_fresh(0),
                    false => self.line.pop_oldest(),
                };
                let (since, _) = next?;
                let wait = self.now - since;
                if wait <= patience {
                    self.overload.served();
                    return Some(wait);
                }
                self.overload.gave_up(patience);
            }
        }
    }

    #[test]
    fn a_burst_is_no_overload() {
        let mut worker = Worker::new(MILLISECOND);
        worker.step(1000, PATIENT);
        for _ in 0..1000 {
            worker.step(0, PATIENT);
        }
        assert_eq!(worker.turns, []);
        assert!(worker.line.is_empty());
    }

    #[test]
    fn clients_that_each_wait_for_their_answer_are_no_overload() {
        let mut worker = Worker::new(MILLISECOND);
        worker.step(1000, PATIENT);
        for _ in 0..20_000 {
            // Who is served comes again.
            worker.step(1, PATIENT);
        }
        assert_eq!(worker.turns, []);
        assert_eq!(worker.line.len(), 999);
    }

    #[test]
    fn more_than_can_be_served_is_overload_after_half_a_second() {
        let mut worker = Worker::new(MILLISECOND);
        while worker.turns.is_empty() {
            worker.step(2, PATIENT);
        }
        assert_eq!(worker.turns, [Turn::Begins]);
        let since = worker.now / MILLISECOND;
        assert!((500..=800).contains(&since), "{since} ms");
        // The newest come first now.
        assert_eq!(worker.step(2, PATIENT), Some(0));
    }

    #[test]
    fn clients_that_give_up_again_and_again_are_an_overload() {
        let mut overload = Overload::new(0, Overload::TARGET, PATIENT);
        let mut turns = Vec::new();
        for interval in 1..=4 {
            for _ in 0..80 {
                overload.arrived();
                overload.served();
            }
            // Once they are too few.
            for _ in 0..if interval == 2 { 10 } else { 11 } {
                overload.gave_up(900 * MILLISECOND);
            }
            turns.push(overload.look(interval * Overload::INTERVAL, None));
        }
        assert_eq!(turns, [None, None, None, Some(Turn::Begins)]);
        assert_eq!(overload.patience(), 720 * MILLISECOND);
    }

    #[test]
    fn a_queue_that_is_empty_again_and_again_ends_the_overload() {
        let mut worker = Worker::new(MILLISECOND);
        while worker.turns.is_empty() {
            worker.step(3, PATIENT);
        }
        let began = worker.now;
        while worker.turns.len() == 1 {
            worker.step(0, PATIENT);
        }
        assert_eq!(worker.turns[1], Turn::Ends);
        assert!(worker.line.is_empty());
        assert!(worker.now - began >= 1000 * MILLISECOND);
    }

    #[test]
    fn one_that_goes_away_early_says_nothing_of_patience() {
        let mut overload = Overload::new(0, Overload::TARGET, PATIENT);
        overload.gave_up(0);
        overload.gave_up(199 * MILLISECOND);
        assert_eq!(overload.patience(), PATIENT);
        overload.gave_up(220 * MILLISECOND);
        assert_eq!(overload.patience(), 200 * MILLISECOND);
    }

    #[test]
    fn one_that_gives_up_in_calm_says_nothing_of_the_next_crowd() {
        let mut overload = Overload::new(0, Overload::TARGET, PATIENT);
        for _ in 0..80 {
            overload.served();
        }
        overload.gave_up(500 * MILLISECOND);
        assert_eq!(overload.patience(), 400 * MILLISECOND);
        assert_eq!(overload.look(Overload::INTERVAL, None), None);
        assert_eq!(overload.patience(), PATIENT);
    }

    #[test]
    fn a_queue_that_is_allowed_is_never_late() {
        assert_eq!(late(100_000, Overload::TARGET), 100 * MILLISECOND);
        assert_eq!(late(0, Overload::TARGET), 100 * MILLISECOND);
        assert_eq!(late(10_000_000, Overload::TARGET), 640 * MILLISECOND);
        assert_eq!(late(u64::MAX, 1), u64::MAX);
    }

    #[test]
    fn places_are_bounded_on_both_sides() {
        assert_eq!(under_way(170_000, 2_000_000, 8), 8);
        assert_eq!(under_way(70_000, 2_000_000, 8), 24);
        assert_eq!(under_way(1, 2_000_000, 128), 128);
        assert_eq!(under_way(1_200_000, 2_000_000, 8), 8);
        assert_eq!(under_way(1_200_000, 2_000_000, 1), 1);
        assert_eq!(under_way(0, 2_000_000, 1), UNKNOWN_UNDER_WAY);
        assert_eq!(under_way(1, 2_000_000, 1), MOST_UNDER_WAY);
        assert_eq!(worth_queueing(0, 1), MOST_QUEUED);
        assert_eq!(worth_queueing(1_000_000, Overload::TARGET), LEAST_QUEUED);
        assert_eq!(worth_queueing(100_000, Overload::TARGET), 200);
    }

    proptest! {
        /// In calm none starves: each is served after those that came earlier, whatever comes later.
        #[test]
        fn in_calm_each_is_served_in_its_turn(arrivals in proptest::collection::vec(0usize..3, 1..300)) {
            let mut worker = Worker::new(MILLISECOND);
            let mut served = Vec::new();
            for arrived in arrivals {
                if let Some(wait) = worker.step(arrived, PATIENT) {
                    served.push(worker.now - wait);
                }
                if worker.overload.is_on() {
                    break;
                }
            }
            prop_assert!(served.is_sorted());
        }

        /// Under any load the one that is served under overload has waited less than the least patient client does.
        #[test]
        fn under_overload_who_is_served_has_not_waited_long(factor in 2usize..10) {
            let mut worker = Worker::new(MILLISECOND);
            let (mut waits, mut steps) = (Vec::new(), 0);
            while steps < 3000 {
                let wait = worker.step(factor, 1000 * MILLISECOND);
                if worker.overload.is_on() {
                    steps += 1;
                    waits.extend(wait);
                }
            }
            prop_assert_eq!(waits.len(), 3000);
            prop_assert!(waits.iter().all(|wait| *wait < Overload::TARGET));
        }
    }
}
