//! Decides when the kernel's queue of connections is kept short, and how short.
//!
//! A server takes connections from the kernel's queue oldest first. Once more of them come than it can serve, the
//! queue is full for as long as that lasts, and each client waits through all of it. Where that takes longer than
//! clients do, every handshake is for one that has gone, and the server does nothing else. A short queue costs no
//! client anything then: as many are served, and they are served at once.
//!
//! Overload has begun when, three times in a row, connections were left in the queue and the kernel has dropped
//! others since the time before, and the queue takes this process longer than a tenth of a second. Then the queue
//! may be as long as what the process accepts in that time. It has ended, and the queue may be as long as ever,
//! when it was empty ten times in a row, or when nothing was accepted for a second.
//!
//! Processes that share a listening socket (nginx's workers) share its queue and its limit, while each knows only
//! how many connections it accepts itself. With several of them the limit is too low by their number at first. So
//! a limit is doubled when the queue is found empty, and a process raises what another one has set, but does not
//! lower it: the highest wish holds. The first one whose overload ends restores the limit; others that see that
//! take it for the end, too, and begin anew if it is not so. A limit that a process has left behind when it died
//! is restored in the same way.
//!
//! The decisions are functions of numbers and of the time, so that they are tested without sockets.

/// Queue of a listening socket, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    /// Connections that wait.
    pub(crate) length: u32,
    /// Most connections that may wait.
    pub(crate) limit: u32,
    /// Connections that were dropped in all.
    pub(crate) drops: u32,
}

/// State of a listening socket. Times are in milliseconds.
#[derive(Debug)]
pub(crate) struct Overload {
    /// The limit without overload.
    usual: u32,
    /// The last look: its time, the drops until then, and whether connections waited. `None` before the first.
    last: Option<(u64, u32, bool)>,
    /// Connections that the process accepts each second while others wait; 0: not known.
    rate: u32,
    /// Looks in a row at which connections waited and others had been dropped.
    overflows: u32,
    /// Looks in a row at which none waited.
    empty: u32,
    /// Looks in a row, under overload, at which connections waited.
    standing: u32,
    /// During overload.
    on: Option<On>,
}

#[derive(Clone, Copy, Debug)]
struct On {
    /// The limit that this process wishes.
    wish: u32,
    /// By how much the limit is above the process's own rate, because others accept, too.
    factor: u32,
}

/// Time between two looks.
pub(crate) const INTERVAL: u64 = 100;
/// Time that a connection may wait under overload. The limit of the queue is for less: the rest is for
/// times when the server does something else.
pub(crate) const LATE: u32 = 500;

/// Time that the queue may take under overload.
const QUEUE: u32 = 100;
const OVERFLOWS: u32 = 3;
const EMPTY: u32 = 10;
/// Looks at which the queue stood, after which a limit that was doubled is halved.
const STANDING: u32 = 30;
const MOST_FACTOR: u32 = 64;
/// No limit is lower: a few clients that come at the same time are no overload.
const LEAST: u32 = 32;
/// Time without connections after which overload has ended.
const PAUSE: u64 = 1000;

impl Overload {
    /// Of a socket whose limit is usually `usual`; 0: not known.
    pub(crate) const fn new(usual: u32) -> Self {
        Self {
            usual,
            last: None,
            rate: 0,
            overflows: 0,
            empty: 0,
            standing: 0,
            on: None,
        }
    }

    /// The limit without overload.
    pub(crate) fn usual(&self) -> u32 {
        self.usual
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.is_some()
    }

    /// Looks at the queue; `accepted` connections since the last look. Returns the limit that is to be set.
    pub(crate) fn look(&mut self, now: u64, accepted: u32, queue: Queue) -> Option<u32> {
        self.usual = self.usual.max(queue.limit);
        let stands = queue.length > 0;
        let last = self.last.replace((now, queue.drops, stands));
        let (at, drops, stood) = last?;
        let elapsed = now.saturating_sub(at).max(1);
        if elapsed >= PAUSE {
            self.rate = 0;
            let is_over = self.is_on() || !stands;
            return is_over.then(|| self.end(queue)).flatten();
        }
        self.count(elapsed, accepted, stands, stood, queue.drops != drops);
        if self.empty >= EMPTY {
            return self.end(queue);
        }
        match self.on {
            None => self.begin(queue),
            Some(on) if queue.limit == self.usual && on.wish != self.usual => {
                // Another process has found that overload is over.
                self.end(queue)
            }
            Some(on) => self.go_on(on, queue),
        }
    }

    fn count(&mut self, elapsed: u64, accepted: u32, stands: bool, stood: bool, dropped: bool) {
        if stands && stood {
            let rate = (u64::from(accepted) * 1000 / elapsed).min(1_000_000) as u32;
            self.rate = match self.rate {
                0 => rate,
                known => (3 * known + rate) / 4,
            };
        } else if !self.is_on() {
            self.rate = 0;
        }
        let next = |count: u32, holds| if holds { count + 1 } else { 0 };
        self.overflows = next(self.overflows, stands && stood && dropped);
        self.empty = next(self.empty, !stands);
        self.standing = next(self.standing, stands);
    }

    fn begin(&mut self, queue: Queue) -> Option<u32> {
        // A limit below the usual one is another process's, which has found the queue to take long.
        let is_usual = queue.limit == self.usual;
        let takes_long = u64::from(queue.length) * 1000 > u64::from(self.rate * QUEUE);
        if self.overflows < OVERFLOWS || (is_usual && !takes_long) {
            return None;
        }
        let wish = self.wish(1);
        self.standing = 0;
        self.on = Some(On { wish, factor: 1 });
        let set = if is_usual {
            wish < queue.limit
        } else {
            wish > queue.limit
        };
        set.then_some(wish)
    }

    fn go_on(&mut self, on: On, queue: Queue) -> Option<u32> {
        let factor = if self.empty > 0 {
            (on.factor * 2).min(MOST_FACTOR)
        } else if self.standing >= STANDING {
            self.standing = 0;
            (on.factor / 2).max(1)
        } else {
            on.factor
        };
        let wish = self.wish(factor);
        let quarter = queue.limit / 4;
        let is_higher = wish.saturating_sub(queue.limit) > quarter;
        let is_lower = queue.limit == on.wish && queue.limit.saturating_sub(wish) > quarter;
        let set = is_higher || is_lower;
        let wish = if set { wish } else { on.wish };
        self.on = Some(On { wish, factor });
        set.then_some(wish)
    }

    fn wish(&self, factor: u32) -> u32 {
        let wish = u64::from(self.rate) * u64::from(factor * QUEUE) / 1000;
        let wish = wish.min(u64::from(self.usual)) as u32;
        wish.max(LEAST).min(self.usual)
    }

    fn end(&mut self, queue: Queue) -> Option<u32> {
        self.on = None;
        self.overflows = 0;
        self.empty = 0;
        (queue.limit < self.usual).then_some(self.usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listening socket's queue, of which looks are taken each tenth of a second.
    struct Kernel {
        now: u64,
        queue: Queue,
    }

    impl Kernel {
        fn new() -> Self {
            let (length, limit, drops) = (0, 511, 0);
            let queue = Queue { length, limit, drops };
            Self { now: 5000, queue }
        }

        /// The next look, at which so many wait and were accepted and dropped since the last.
        fn look(&mut self, overload: &mut Overload, length: u32, accepted: u32, dropped: u32) -> Option<u32> {
            self.now += INTERVAL;
            self.queue.length = length;
            self.queue.drops = self.queue.drops.wrapping_add(dropped);
            let set = overload.look(self.now, accepted, self.queue);
            self.queue.limit = set.unwrap_or(self.queue.limit);
            set
        }

        /// Looks until overload has begun.
        fn overload(&mut self, overload: &mut Overload, accepted: u32) -> Option<u32> {
            for _ in 0..10 {
                let set = self.look(overload, self.queue.limit, accepted, 50);
                if overload.is_on() {
                    return set;
                }
            }
            panic!("no overload: {overload:?}");
        }
    }

    #[test]
    fn a_queue_that_overflows_becomes_as_short_as_a_tenth_of_a_second() {
        let (mut kernel, mut overload) = (Kernel::new(), Overload::new(0));
        assert_eq!(kernel.look(&mut overload, 0, 70, 0), None, "the first look");
        for _ in 0..3 {
            assert_eq!(kernel.look(&mut overload, 511, 70, 50), None);
        }
        assert!(!overload.is_on(), "the first stood after one that did not");
        assert_eq!(kernel.look(&mut overload, 511, 70, 50), Some(70));
        assert!(overload.is_on());
        assert_eq!(kernel.look(&mut overload, 70, 75, 50), None, "nearly the same");
    }

    #[test]
    fn a_queue_without_drops_is_left_alone() {
        let (mut kernel, mut overload) = (Kernel::new(), Overload::new(511));
        for i in 0..100 {
            let drops = u32::from(i % 3 > 0);
            assert_eq!(kernel.look(&mut overload, 511, 70, drops), None);
        }
        assert!(!overload.is_on());
    }

    #[test]
    fn a_queue_that_is_served_fast_is_left_alone() {
        let (mut kernel, mut overload) = (Kernel::new(), Overload::new(511));
        for _ in 0..100 {
            assert_eq!(kernel.look(&mut overload, 511, 600, 50), None);
        }
        assert!(!overload.is_on());
    }

    #[test]
    fn a_slow_server_keeps_a_few_places() {
        let (mut kernel, mut overload) = (Kernel::new(), Overload::new(511));
        assert_eq!(kernel.overload(&mut overload, 2), Some(LEAST));
        // One whose own limit is lower keeps it.
        let (mut kernel, mut overload) = (Kernel::new(), Overload::new(0));
        kernel.queue.limit = 8;
        assert_eq!(kernel.overload(&mut overload, 0), None);
    }

    #[test]
    fn it_ends_when_the_queue_stays_empty() {
        let (mut kernel, mut overload) = (Kernel::new(), Overload::new(511));
        kernel.overload(&mut overload, 70);
        for _ in 0..EMPTY - 1 {
            kernel.look(&mut overload, 0, 70, 0);
        }
        assert!(overload.is_on());
        kernel.look(&mut overload, 1, 70, 0);
        for _ in 0..EMPTY - 1 {
            kernel.look(&mut overload, 0, 70, 0);
        }
        assert!(overload.is_on(), "not in a row");
        kernel.look(&mut overload, 0, 70, 0);
        assert!(!overload.is_on());
        assert_eq!(kernel.queue.limit, 511);
    }

    #[test]
    fn it_ends_after_a_pause() {
        let (mut kernel, mut overload) = (Kernel::new(), Overload::new(511));
        kernel.overload(&mut overload, 70);
        kernel.now += PAUSE;
        assert_eq!(kernel.look(&mut overload, 70, 1, 50), Some(511));
        assert!(!overload.is_on());
        assert_eq!(kernel.look(&mut overload, 511, 70, 50), None, "it begins anew");
    }

    #[test]
    fn the_limit_follows_the_rate() {
        let (mut kernel, mut overload) = (Kernel::new(), Overload::new(511));
        kernel.overload(&mut overload, 100);
        for _ in 0..30 {
            kernel.look(&mut overload, 40, 50, 50);
        }
        assert!((45..=66).contains(&kernel.queue.limit), "{:?}", kernel.queue);
        for _ in 0..30 {
            kernel.look(&mut overload, 40, 200, 50);
        }
        assert!((160..=250).contains(&kernel.queue.limit), "{:?}", kernel.queue);
    }

    #[test]
    fn an_empty_queue_doubles_the_limit_for_a_while() {
        let (mut kernel, mut overload) = (Kernel::new(), Overload::new(511));
        kernel.overload(&mut overload, 70);
        assert_eq!(kernel.look(&mut overload, 0, 70, 0), Some(140));
        assert_eq!(kernel.look(&mut overload, 0, 70, 0), Some(280));
        for _ in 0..5 {
            kernel.look(&mut overload, 0, 70, 0);
        }
        assert_eq!(kernel.queue.limit, 511, "never above the usual");
        assert!(overload.is_on());
        for _ in 0..10 * STANDING {
            kernel.look(&mut overload, 30, 70, 50);
        }
        assert_eq!(kernel.queue.limit, 70);
    }

    #[test]
    fn the_highest_wish_of_several_processes_holds() {
        let (mut kernel, mut slow, mut fast) = (Kernel::new(), Overload::new(511), Overload::new(511));
        kernel.overload(&mut slow, 40);
        assert_eq!(kernel.queue.limit, 40);
        kernel.overload(&mut fast, 100);
        assert_eq!(kernel.queue.limit, 100);
        for _ in 0..20 {
            assert_eq!(kernel.look(&mut slow, 40, 40, 50), None);
        }
        // The first that ends restores the limit, and the other sees it.
        for _ in 0..EMPTY {
            kernel.look(&mut fast, 0, 100, 0);
        }
        assert_eq!(kernel.queue.limit, 511);
        assert_eq!(kernel.look(&mut slow, 40, 40, 50), None);
        assert!(!slow.is_on());
        assert!(kernel.overload(&mut slow, 40).is_some(), "it was not over");
    }

    #[test]
    fn what_a_dead_process_left_is_restored() {
        let (mut kernel, mut overload) = (Kernel::new(), Overload::new(511));
        kernel.queue.limit = 40;
        for _ in 0..EMPTY {
            assert_eq!(kernel.look(&mut overload, 0, 10, 0), None);
        }
        assert_eq!(kernel.look(&mut overload, 0, 10, 0), Some(511));
    }

    /// Whatever the kernel says: limits stay in bounds, and nothing overflows.
    #[test]
    fn no_numbers_are_too_large() {
        let mut overload = Overload::new(0);
        let mut random = 1_u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            [0, 1, 40, 511, u32::MAX][(random % 5) as usize]
        };
        let mut now = 0;
        for _ in 0..100_000 {
            now += u64::from(next().min(400));
            let queue = Queue {
                length: next(),
                limit: next(),
                drops: next(),
            };
            let set = overload.look(now, next(), queue);
            assert!(set.is_none_or(|limit| limit <= overload.usual()));
        }
    }
}
