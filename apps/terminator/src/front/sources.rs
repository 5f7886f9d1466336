//! Limits of one source of connections: places for handshakes and for connections, and new connections a second.
//!
//! A source is one network of clients: an IPv4 address or an IPv6 /64 by default. The table has a
//! fixed size and no lock. A hash with a secret key gives each source two cells, and each cell has
//! half of the limit. A connection takes a place in the first cell if that has one, else in the
//! second. So one source never holds more than its limit, and a source that shares one cell with
//! an attacker still has the other one. Who shares both is a matter of chance: with two sources at
//! their limits, one in sixteen million.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use crate::config::Limits;
use crate::number::{Number, update};

/// The limits of one source, for the connections of one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceLimits {
    /// Leading bits of an IPv4 address that name a source.
    pub(crate) ipv4_prefix: u8,
    /// Leading bits of an IPv6 address that name a source.
    pub(crate) ipv6_prefix: u8,
    /// Connections inside their handshake.
    pub(crate) handshakes: u64,
    /// Connections, from accept to their end. `None`: any number.
    pub(crate) connections: Option<u64>,
    /// New connections a second. `None`: any number.
    pub(crate) rate: Option<u64>,
}

impl SourceLimits {
    /// The configured limits, with values for those that are left out, on a server of so many connections.
    pub(crate) fn new(limits: &Limits, most_connections: usize) -> Self {
        let source = &limits.source;
        let places = limits.handshakes.min(most_connections);
        Self {
            ipv4_prefix: source.ipv4_prefix,
            ipv6_prefix: source.ipv6_prefix,
            handshakes: source.handshakes_of(places) as u64,
            connections: source.connections.map(|most| most as u64),
            rate: source.connections_per_second.map(u64::from),
        }
    }
}

/// The table of all sources, shared by all workers.
#[derive(Debug)]
pub(crate) struct Sources {
    hasher: RandomState,
    started: Instant,
    /// Connections inside their handshake, by cell.
    pending: Box<[AtomicU64]>,
    /// Connections whose sources have a limit of them, by cell.
    open: Box<[AtomicU64]>,
    /// Time at which the connections accepted so far would have come at the permitted rate, in nanoseconds
    /// since `started`, by cell.
    due: Box<[AtomicU64]>,
}

/// The cells of one source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    first: u16,
    second: u16,
}

/// The cell in which a connection holds a place. Has to be given back.
#[derive(Debug)]
pub(crate) struct Place {
    of: PlaceOf,
    pub(crate) cell: u16,
}

/// Purpose of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceOf {
    Handshake,
    Connection,
}

impl Sources {
    pub(crate) fn new() -> Self {
        let cells = || (0..CELLS).map(|_| AtomicU64::new(0)).collect();
        Self {
            hasher: RandomState::new(),
            started: Instant::now(),
            pending: cells(),
            open: cells(),
            due: cells(),
        }
    }

    /// The source that `peer` belongs to.
    pub(crate) fn source(&self, peer: IpAddr, limits: &SourceLimits) -> Source {
        let (kind, prefix, bits) = match peer.to_canonical() {
            IpAddr::V4(address) => {
                let bits = u128::from(address.to_bits()) << 96;
                (4, limits.ipv4_prefix, bits)
            }
            IpAddr::V6(address) => (6, limits.ipv6_prefix, address.to_bits()),
        };
        let rest = u128::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
        let hash = self.hasher.hash_one((kind, prefix, bits & !rest));
        let first = (hash % CELLS) as u16;
        // Never the same cell twice.
        let distance = 1 + (hash / CELLS) % (CELLS - 1);
        let second = ((u64::from(first) + distance) % CELLS) as u16;
        Source { first, second }
    }

    /// Returns whether a new connection of `source` is within its rate. If so, it counts.
    pub(crate) fn within_rate(&self, source: Source, limits: &SourceLimits) -> bool {
        let Some(rate) = limits.rate else {
            return true;
        };
        let now = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let [one, other] = halves(rate);
        passes(&self.due[usize::from(source.first)], now, one)
            || passes(&self.due[usize::from(source.second)], now, other)
    }

    /// A place for a handshake or a connection of `source`, if it has one of `limit` left.
    pub(crate) fn place(&self, source: Source, of: PlaceOf, limit: u64) -> Option<Place> {
        let [one, other] = halves(limit);
        [(source.first, one), (source.second, other)]
            .into_iter()
            .find(|&(cell, limit)| take(&self.table(of)[usize::from(cell)], limit))
            .map(|(cell, _)| Place { of, cell })
    }

    pub(crate) fn give_back(&self, place: Place) {
        give(&self.table(place.of)[usize::from(place.cell)]);
    }

    fn table(&self, of: PlaceOf) -> &[AtomicU64] {
        match of {
            PlaceOf::Handshake => &self.pending,
            PlaceOf::Connection => &self.open,
        }
    }
}

/// The limits of the two cells of a source.
fn halves(limit: u64) -> [u64; 2] {
    [limit.div_ceil(2), limit / 2]
}

/// Takes one of `limit` places. Never more than `limit` are taken, and none is refused while fewer
/// are.
fn take(taken: &impl Number, limit: u64) -> bool {
    update(taken, |taken| (taken < limit).then(|| taken + 1)).is_some()
}

fn give(taken: &impl Number) {
    update(taken, |taken| Some(taken.saturating_sub(1)));
}

/// Returns whether one more event at `now` (nanoseconds) keeps to `rate` a second, one second's worth of
/// which may come at once. This is the generic cell rate algorithm (ITU-T I.371, annex A): `due` is
/// when the next event would come if all came evenly.
fn passes(due: &impl Number, now: u64, rate: u64) -> bool {
    let Some(interval) = SECOND.checked_div(rate) else {
        return false;
    };
    update(due, |due| {
        let next = due.max(now).saturating_add(interval);
        (next - now <= SECOND).then_some(next)
    })
    .is_some()
}

/// Three tables of 128 KiB. A power of two: the hash is cut without a bias.
const CELLS: u64 = 1 << 14;
const SECOND: u64 = Duration::from_secs(1).as_nanos() as u64;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;

    use loom::sync::atomic::AtomicU64 as ModelU64;
    use loom::sync::atomic::Ordering;

    use super::*;

    const LIMITS: SourceLimits = SourceLimits {
        ipv4_prefix: 32,
        ipv6_prefix: 64,
        handshakes: 5,
        connections: None,
        rate: Some(5),
    };

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn same(one: &str, other: &str, limits: &SourceLimits) -> bool {
        let sources = Sources::new();
        let [one, other] = [one, other].map(|text| sources.source(address(text), limits));
        (one.first, one.second) == (other.first, other.second)
    }

    #[test]
    fn a_source_holds_its_limit_and_another_one_is_not_touched() {
        let sources = Sources::new();
        let one = sources.source(address("192.0.2.1"), &LIMITS);
        let mut held: Vec<Place> = (0..5)
            .map(|_| sources.place(one, PlaceOf::Handshake, 5).expect("a place"))
            .collect();
        assert!(sources.place(one, PlaceOf::Handshake, 5).is_none(), "a sixth place");
        let other = sources.source(address("192.0.2.2"), &LIMITS);
        assert!(sources.place(other, PlaceOf::Handshake, 5).is_some());
        sources.give_back(held.pop().expect("a place"));
        held.push(sources.place(one, PlaceOf::Handshake, 5).expect("the place given back"));
        assert!(sources.place(one, PlaceOf::Handshake, 5).is_none());
        for place in held {
            sources.give_back(place);
        }
        let open = sources.place(one, PlaceOf::Connection, 1);
        sources.give_back(open.expect("places of connections are others"));
        let left: u64 = sources.pending.iter().map(|cell| cell.load(Relaxed)).sum();
        assert_eq!(left, 1, "the other source's");
    }

    #[test]
    fn a_source_that_shares_one_cell_has_the_other() {
        let sources = Sources::new();
        let one = Source { first: 1, second: 2 };
        while let Some(place) = sources.place(one, PlaceOf::Handshake, 5) {
            // Held for good.
            let _ = place;
        }
        let shares_one = Source { first: 2, second: 3 };
        assert!(sources.place(shares_one, PlaceOf::Handshake, 5).is_some());
        let shares_both = Source { first: 2, second: 1 };
        assert!(sources.place(shares_both, PlaceOf::Handshake, 5).is_none());
    }

    #[test]
    fn prefixes_say_what_one_source_is() {
        assert!(same("2001:db8::1", "2001:db8::ffff:1", &LIMITS));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1", &LIMITS));
        assert!(!same("192.0.2.1", "192.0.2.2", &LIMITS));
        assert!(same("192.0.2.1", "::ffff:192.0.2.1", &LIMITS), "mapped");
        let wide = SourceLimits {
            ipv4_prefix: 24,
            ipv6_prefix: 128,
            ..LIMITS
        };
        assert!(same("192.0.2.1", "192.0.2.254", &wide));
        assert!(!same("192.0.2.1", "192.0.3.1", &wide));
        assert!(!same("2001:db8::1", "2001:db8::2", &wide));
    }

    #[test]
    fn the_two_cells_of_a_source_are_different() {
        let sources = Sources::new();
        for last in 0..=255 {
            for other in 0..=255 {
                let source = sources.source([10, 0, other, last].into(), &LIMITS);
                assert_ne!(source.first, source.second);
            }
        }
    }

    #[test]
    fn a_rate_allows_one_second_at_once_and_then_its_pace() {
        for (rate, at_once) in [(5, 5), (1, 1), (1000, 1000)] {
            let due = [AtomicU64::new(0), AtomicU64::new(0)];
            let ask = |now: u64| {
                let [one, other] = halves(rate);
                passes(&due[0], now, one) || passes(&due[1], now, other)
            };
            let start = 7 * SECOND;
            let count = (0..2 * rate).filter(|_| ask(start)).count();
            assert_eq!(count, at_once, "at once");
            // Asked far too often, ten seconds long.
            let steps = 40 * rate;
            let count = (1..=steps)
                .filter(|step| ask(start + step * 10 * SECOND / steps))
                .count() as u64;
            let slack = 2;
            assert!(count.abs_diff(10 * rate) <= slack, "{count} at {rate} a second");
        }
    }

    #[test]
    fn no_rate_is_no_limit() {
        let sources = Sources::new();
        let limits = SourceLimits { rate: None, ..LIMITS };
        let source = sources.source(address("192.0.2.1"), &limits);
        assert!((0..1000).all(|_| sources.within_rate(source, &limits)));
        let allowed = (0..1000).filter(|_| sources.within_rate(source, &LIMITS)).count();
        assert!(allowed < 1000, "{allowed} at a rate of 5 a second");
    }

    /// Three threads, two places: never three at once, never refused while one is free, and none
    /// is lost. Every interleaving with up to two pre-emptions.
    #[test]
    fn model_places_are_never_exceeded_or_lost() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let taken = Arc::new(ModelU64::new(0));
            let holders = Arc::new(ModelU64::new(0));
            let visit = |taken: &ModelU64, holders: &ModelU64| {
                let has = take(taken, 2);
                if has {
                    assert!(holders.fetch_add(1, Ordering::SeqCst) < 2, "three at once");
                    holders.fetch_sub(1, Ordering::SeqCst);
                    give(taken);
                }
                has
            };
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let (taken, holders) = (taken.clone(), holders.clone());
                    loom::thread::spawn(move || visit(&taken, &holders))
                })
                .collect();
            visit(&taken, &holders);
            let others = threads.into_iter().map(|thread| thread.join().unwrap());
            let results: Vec<bool> = others.collect();
            assert!(results.contains(&true), "two others, two places");
            assert_eq!(taken.load(Ordering::SeqCst), 0, "a place is lost");
        });
    }

    /// Two threads ask at the same time for the one event that is left.
    #[test]
    fn model_a_rate_is_never_exceeded() {
        loom::model(|| {
            let due = Arc::new(ModelU64::new(0));
            let other = due.clone();
            let thread = loom::thread::spawn(move || passes(&*other, SECOND, 1));
            let mine = passes(&*due, SECOND, 1);
            let other = thread.join().unwrap();
            assert!(mine ^ other, "one of two");
        });
    }
}
