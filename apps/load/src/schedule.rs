//! Decides when the next connection starts: closed and open loops, without clocks or sockets.

use crate::plan::{Arrivals, Plan, Spacing, Storm};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Schedule by which one thread starts connections.
#[derive(Debug)]
pub(crate) enum Schedule {
    Closed(Closed),
    Open(Open),
}

/// A fixed number of places, one connection in each. A place is free when its connection has ended.
#[derive(Debug)]
pub(crate) struct Closed {
    ready: usize,
    /// Times at which places are free again whose last connection failed. Without this wait, a
    /// server that refuses every connection would make the generator use a whole core.
    waiting: VecDeque<Instant>,
}

/// Starts by the clock, whether or not earlier connections have ended.
#[derive(Debug)]
pub(crate) struct Open {
    origin: Instant,
    rate: Rate,
    /// Number of starts of all threads before the next one of this thread. Times are computed from `origin` each time,
    /// so rounding errors do not add up.
    position: f64,
    threads: f64,
    /// `None`: even gaps.
    random: Option<Random>,
}

/// Starts a second, over the time since the origin.
#[derive(Clone, Copy, Debug)]
struct Rate {
    calm: f64,
    storm: Option<Storm>,
}

impl Rate {
    /// Time at which `position` starts are due, in seconds after the origin.
    fn time_of(&self, position: f64) -> f64 {
        let Some(storm) = &self.storm else {
            return position / self.calm;
        };
        let (from, length) = (storm.from.as_secs_f64(), storm.length.as_secs_f64());
        let before = from * self.calm;
        if position <= before {
            return position / self.calm;
        }
        let first = if storm.ramp { self.calm } else { storm.per_second };
        let within = (first + storm.per_second) / 2.0 * length;
        let position = position - before;
        if position >= within {
            return from + length + (position - within) / self.calm;
        }
        // The time t with `first * t + slope / 2 * t * t = position`, without the cancellation of the usual formula.
        let slope = (storm.per_second - first) / length;
        let root = (first * first + 2.0 * slope * position).max(0.0).sqrt();
        from + 2.0 * position / (first + root)
    }
}

impl Schedule {
    /// The starts of thread `index` of a plan whose clock starts at `origin`.
    pub(crate) fn new(plan: &Plan, index: usize, origin: Instant) -> Self {
        match plan.arrivals {
            Arrivals::Concurrency(n) => Self::Closed(Closed {
                ready: plan.share(n, index),
                waiting: VecDeque::new(),
            }),
            Arrivals::Rate {
                per_second,
                spacing,
                storm,
            } => {
                let storm = storm.map(|storm| Storm {
                    from: plan.warmup + storm.from,
                    ..storm
                });
                let random = (spacing == Spacing::Poisson).then(|| Random::seeded(index as u64));
                let mut open = Open {
                    origin,
                    rate: Rate {
                        calm: per_second,
                        storm,
                    },
                    // Threads start in turn.
                    position: index as f64,
                    threads: plan.threads as f64,
                    random,
                };
                if let Some(random) = &mut open.random {
                    open.position = random.exponential(open.threads);
                }
                Self::Open(open)
            }
        }
    }

    /// Takes the next start if it is due, and returns its intended time.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Instant> {
        match self {
            Self::Closed(closed) => {
                while closed.waiting.pop_front_if(|until| *until <= now).is_some() {
                    closed.ready += 1;
                }
                closed.ready = closed.ready.checked_sub(1)?;
                Some(now)
            }
            Self::Open(open) => {
                let due = Some(open.next()).filter(|due| *due <= now)?;
                open.position += match &mut open.random {
                    None => open.threads,
                    Some(random) => random.exponential(open.threads),
                };
                Some(due)
            }
        }
    }

    /// Time of the next start. `None`: not before a connection ends.
    pub(crate) fn next_due(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::Closed(closed) if closed.ready > 0 => Some(now),
            Self::Closed(closed) => closed.waiting.front().copied(),
            Self::Open(open) => Some(open.next()),
        }
    }

    /// Call it when a connection has ended.
    pub(crate) fn ended(&mut self, now: Instant, failed: bool) {
        if let Self::Closed(closed) = self {
            if failed {
                closed.waiting.push_back(now + RETRY_DELAY);
            } else {
                closed.ready += 1;
            }
        }
    }
}

impl Open {
    fn next(&self) -> Instant {
        self.origin + Duration::from_secs_f64(self.rate.time_of(self.position))
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): good enough for arrival times, and the same plan gives the
/// same schedule every time.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly distributed in (0, 1], so that there is no logarithm of zero.
    pub(crate) fn uniform(&mut self) -> f64 {
        // 53 random bits.
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// An exponentially distributed gap with this mean.
    fn exponential(&mut self, mean: f64) -> f64 {
        -self.uniform().ln() * mean
    }
}

/// Time that a place waits after a failure.
const RETRY_DELAY: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(arrivals: Arrivals, threads: usize) -> Plan {
        let mut plan = Plan::new("127.0.0.1:1").expect("an address");
        plan.arrivals = arrivals;
        plan.threads = threads;
        plan
    }

    fn rate(per_second: f64, spacing: Spacing) -> Arrivals {
        Arrivals::Rate {
            per_second,
            spacing,
            storm: None,
        }
    }

    #[test]
    fn a_storm_has_its_own_rate_and_a_ramp_rises_to_it() {
        let origin = Instant::now();
        for (ramp, in_storm) in [(false, [500, 500]), (true, [200, 400])] {
            let mut plan = plan(rate(100.0, Spacing::Even), 2);
            plan.warmup = Duration::from_secs(1);
            if let Arrivals::Rate { storm, .. } = &mut plan.arrivals {
                *storm = Some(Storm {
                    per_second: 500.0,
                    from: Duration::from_secs(1),
                    length: Duration::from_secs(2),
                    ramp,
                });
            }
            let mut starts = [0; 5];
            for index in 0..2 {
                let mut schedule = Schedule::new(&plan, index, origin);
                let end = origin + Duration::from_secs(5) - Duration::from_micros(1);
                while let Some(due) = schedule.take_due(end) {
                    // Half a gap of the fastest rate: rounding moves no start into another second.
                    let at = due - origin + Duration::from_millis(1);
                    starts[at.as_secs() as usize] += 1;
                }
            }
            assert_eq!(starts, [100, 100, in_storm[0], in_storm[1], 100]);
        }
    }

    #[test]
    fn a_closed_loop_starts_one_for_each_that_ended() {
        let now = Instant::now();
        let mut schedule = Schedule::new(&plan(Arrivals::Concurrency(3), 2), 0, now);
        assert_eq!(schedule.take_due(now), Some(now));
        assert_eq!(schedule.take_due(now), Some(now));
        assert_eq!(schedule.take_due(now), None);
        assert_eq!(schedule.next_due(now), None);
        schedule.ended(now, false);
        assert_eq!(schedule.next_due(now), Some(now));
        assert!(schedule.take_due(now).is_some());
        schedule.ended(now, true);
        assert_eq!(schedule.take_due(now), None);
        assert_eq!(schedule.next_due(now), Some(now + RETRY_DELAY));
        assert!(schedule.take_due(now + RETRY_DELAY).is_some());
    }

    #[test]
    fn an_open_loop_keeps_its_schedule_when_it_is_late() {
        let origin = Instant::now();
        let mut schedule = Schedule::new(&plan(rate(1000.0, Spacing::Even), 1), 0, origin);
        let late = origin + Duration::from_millis(5);
        let due: Vec<_> = std::iter::from_fn(|| schedule.take_due(late)).collect();
        let meant: Vec<_> = (0..6).map(|k| origin + Duration::from_millis(k)).collect();
        assert_eq!(due, meant);
        assert_eq!(schedule.next_due(late), Some(origin + Duration::from_millis(6)));
    }

    #[test]
    fn threads_share_an_even_schedule() {
        let origin = Instant::now();
        let plan = plan(rate(300.0, Spacing::Even), 3);
        let end = origin + Duration::from_secs(1) - Duration::from_micros(1);
        let mut due: Vec<_> = (0..3)
            .flat_map(|index| {
                let mut schedule = Schedule::new(&plan, index, origin);
                std::iter::from_fn(move || schedule.take_due(end)).collect::<Vec<_>>()
            })
            .collect();
        due.sort();
        assert_eq!(due.len(), 300);
        for (k, at) in due.iter().enumerate() {
            let meant = k as f64 / 300.0;
            assert!((at.duration_since(origin).as_secs_f64() - meant).abs() < 1e-6);
        }
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_spread_they_should() {
        let origin = Instant::now();
        let mut schedule = Schedule::new(&plan(rate(1000.0, Spacing::Poisson), 1), 0, origin);
        let end = origin + Duration::from_secs(100);
        let mut gaps = Vec::new();
        let mut last = origin;
        while let Some(due) = schedule.take_due(end) {
            gaps.push((due - last).as_secs_f64());
            last = due;
        }
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((0.00098..0.00102).contains(&mean), "{mean}");
        // An exponential distribution's deviation equals its mean.
        assert!((0.95..1.05).contains(&(variance.sqrt() / mean)));
    }
}
