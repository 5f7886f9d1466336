//! The addresses of backends, and which of them the next connection goes to.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::complaints::Complaints;
use crate::config::Backend;
use crate::health::{Health, Seen, State};

/// One address of a backend, with what all workers know of it. It is the same for all listeners and
/// routes, and outlives reloads.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) address: Backend,
    /// Connections that are open there or being opened.
    connections: AtomicUsize,
    health: Health,
    fails: Complaints,
    answers: Complaints,
    pub(crate) connected: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) timed_out: AtomicU64,
}

/// All addresses that are in use.
#[derive(Debug)]
pub(crate) struct Upstreams {
    began: Instant,
    known: Mutex<HashMap<String, Arc<Upstream>>>,
}

/// The addresses of one backend.
#[derive(Debug)]
pub(crate) struct Pool {
    began: Instant,
    upstreams: Vec<Arc<Upstream>>,
}

/// The attempts of one connection to reach a backend.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    pool: &'a Pool,
    /// Where equal addresses are taken in turn.
    turn: usize,
    /// The longest time for one address.
    limit: Duration,
    /// The millisecond at which all of them have had their time.
    ends: u64,
    /// A bit for each address that was tried.
    tried: u64,
}

/// An attempt to connect to one address.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) lease: Lease,
    began: Instant,
    /// `None`: the address is left out, and a failure now does not prolong that.
    seen: Option<Seen>,
    /// How long it may take.
    pub(crate) patience: Duration,
    /// Whether that is less than an address has. Then it is not said to be down.
    is_cut: bool,
    /// Whether the pool has no other address.
    is_only: bool,
}

/// A connection that counts for its address until this is dropped.
#[derive(Debug)]
pub(crate) struct Lease(Arc<Upstream>);

impl Default for Upstreams {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            known: Mutex::default(),
        }
    }
}

impl Upstreams {
    /// The pool of these addresses, of which those that are known keep what is known of them. Forgets those
    /// that nothing uses.
    pub(crate) fn pool(&self, addresses: &[Backend]) -> Arc<Pool> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let upstreams = addresses.iter().map(|address| {
            let upstream = known
                .entry(address.to_string())
                .or_insert_with(|| Arc::new(Upstream::new(address.clone())));
            upstream.clone()
        });
        let upstreams = upstreams.collect();
        forget_unused(&mut known);
        Arc::new(Pool {
            began: self.began,
            upstreams,
        })
    }

    /// All addresses in use, in the order of their names. Forgets those that are not.
    pub(crate) fn in_use(&self) -> Vec<Arc<Upstream>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        forget_unused(&mut known);
        let mut all: Vec<_> = known.values().cloned().collect();
        all.sort_by_cached_key(|upstream| upstream.address.to_string());
        all
    }

    /// Whether the last attempt that was counted has reached an address, or there was none. It may be due for
    /// another one.
    pub(crate) fn is_up(&self, upstream: &Upstream) -> bool {
        upstream.health.state(milliseconds(self.began)).0 == State::Good
    }
}

fn forget_unused(known: &mut HashMap<String, Arc<Upstream>>) {
    known.retain(|_, upstream| Arc::strong_count(upstream) > 1);
}

impl Upstream {
    fn new(address: Backend) -> Self {
        Self {
            address,
            connections: AtomicUsize::new(0),
            health: Health::default(),
            fails: Complaints::default(),
            answers: Complaints::default(),
            connected: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
        }
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }
}

impl Pool {
    /// For one connection. `turn` differs from one connection of a worker to the next. `limit`: the
    /// longest time for one address.
    pub(crate) fn search(&self, turn: usize, limit: Duration) -> Search<'_> {
        self.search_at(turn, limit, milliseconds(self.began))
    }

    fn search_at(&self, turn: usize, limit: Duration, now: u64) -> Search<'_> {
        let whole = whole_milliseconds(limit.saturating_mul(WHOLE_SEARCH));
        Search {
            pool: self,
            turn,
            limit,
            ends: now.saturating_add(whole),
            tried: 0,
        }
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, upstream) in self.upstreams.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{}", upstream.address)?;
        }
        Ok(())
    }
}

impl Search<'_> {
    /// The next address to try, each once: one whose pause is over, if no other connection tries it
    /// now; else the one with the fewest connections; else, if all are left out, the one that is tried
    /// again first. `None`: all have been tried, or the time is over.
    pub(crate) fn next(&mut self) -> Option<Attempt> {
        self.next_at(milliseconds(self.pool.began))
    }

    fn next_at(&mut self, now: u64) -> Option<Attempt> {
        let left = Duration::from_millis(self.ends.saturating_sub(now));
        if left.is_zero() && self.tried != 0 {
            return None;
        }
        let trial = self.trial();
        let mut best: Option<((u8, u64), usize, Option<Seen>)> = None;
        let count = self.pool.upstreams.len();
        for step in 0..count {
            let index = (self.turn + step) % count;
            let upstream = self.pool.upstreams.get(index)?;
            if self.tried & bit(index) != 0 {
                continue;
            }
            let (state, seen) = upstream.health.state(now);
            let (rank, seen) = match state {
                State::Good => ((0, upstream.connections() as u64), Some(seen)),
                State::Due => match upstream.health.claim(now, whole_milliseconds(trial)) {
                    Some(seen) => return Some(self.attempt(index, Some(seen), (trial, left))),
                    None => ((1, u64::MAX), None),
                },
                State::Paused(until) => ((1, until), None),
            };
            if best.is_none_or(|(before, ..)| rank < before) {
                best = Some((rank, index, seen));
            }
        }
        let (_, index, seen) = best?;
        Some(self.attempt(index, seen, (self.limit, left)))
    }

    /// How long an address is tried that has failed before: not as long if another one remains.
    fn trial(&self) -> Duration {
        match self.tried.count_ones() as usize + 1 < self.pool.upstreams.len() {
            true => self.limit.min(TRIAL),
            false => self.limit,
        }
    }

    /// An attempt that may take so long, of the time that is left.
    fn attempt(
        &mut self,
        index: usize,
        seen: Option<Seen>,
        (patience, left): (Duration, Duration),
    ) -> Attempt {
        self.tried |= bit(index);
        let upstream = &self.pool.upstreams[index];
        upstream.connections.fetch_add(1, Relaxed);
        Attempt {
            lease: Lease(upstream.clone()),
            began: self.pool.began,
            seen,
            patience: patience.min(left),
            is_cut: left < patience,
            is_only: self.pool.upstreams.len() == 1,
        }
    }
}

impl Attempt {
    pub(crate) fn succeeded(self) -> Lease {
        let upstream = &self.lease.0;
        upstream.connected.fetch_add(1, Relaxed);
        let now = milliseconds(self.began);
        if upstream.health.succeeded()
            && let Some(untold) = upstream.answers.tell(now)
        {
            let backend = &upstream.address;
            tracing::info!(%backend, untold, "it answers again");
        }
        self.lease
    }

    /// `None`: it took too long.
    pub(crate) fn failed(self, error: Option<&std::io::Error>) {
        let now = milliseconds(self.began);
        self.failed_at(now, error);
    }

    fn failed_at(self, now: u64, error: Option<&std::io::Error>) {
        let upstream = &self.lease.0;
        let counter = match error {
            Some(_) => &upstream.refused,
            None => &upstream.timed_out,
        };
        counter.fetch_add(1, Relaxed);
        if error.map_or(self.is_cut, is_ours) {
            return;
        }
        let pause = self.seen.and_then(|seen| upstream.health.failed(seen, now));
        let Some(pause) = pause else { return };
        let Some(untold) = upstream.fails.tell(now) else {
            return;
        };
        let backend = &upstream.address;
        let reason = error.map_or("no answer in time".into(), ToString::to_string);
        let seconds = pause.as_secs();
        match self.is_only {
            true => tracing::warn!(
                %backend,
                %reason,
                untold,
                "cannot connect; each new connection tries again, since there is no other address"
            ),
            false => tracing::warn!(
                %backend,
                %reason,
                untold,
                "cannot connect; tried again in {seconds} s, or at once if no other address is left"
            ),
        }
    }
}

impl Lease {
    pub(crate) fn address(&self) -> &Backend {
        &self.0.address
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

/// Whether this machine lacks something, or the queue of a UNIX socket is full. Neither says that the
/// backend is down.
fn is_ours(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let code = error.raw_os_error();
    [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOBUFS,
        Errno::NOMEM,
        Errno::ADDRNOTAVAIL,
        Errno::AGAIN,
    ]
    .iter()
    .any(|errno| code == Some(errno.raw_os_error()))
}

/// A configuration has at most [`Backend::MOST`] addresses in a pool.
fn bit(index: usize) -> u64 {
    1 << (index % 64)
}

fn milliseconds(since: Instant) -> u64 {
    whole_milliseconds(since.elapsed())
}

fn whole_milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX >> 8)
}

/// How many times as long as one address all addresses together may take.
const WHOLE_SEARCH: u32 = 3;
/// The longest time for an address that has failed before, while others answer.
const TRIAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    fn pool(upstreams: &Upstreams, ports: &[u16]) -> Arc<Pool> {
        let address = |port: &u16| Backend::Tcp(([127, 0, 0, 1], *port).into());
        upstreams.pool(&ports.iter().map(address).collect::<Vec<_>>())
    }

    fn port(lease: &Lease) -> u16 {
        match lease.address() {
            Backend::Tcp(address) => address.port(),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn the_address_with_the_fewest_connections_comes_first_and_equal_ones_in_turn() {
        let upstreams = Upstreams::default();
        let pool = pool(&upstreams, &[1, 2, 3]);
        let take = |turn: usize| {
            pool.search(turn, LIMIT)
                .next()
                .expect("an address")
                .succeeded()
        };
        let first: Vec<Lease> = (0..3).map(take).collect();
        assert_eq!(first.iter().map(port).collect::<Vec<_>>(), [1, 2, 3]);
        let second = take(1);
        assert_eq!(port(&second), 2);
        drop(first);
        let third = take(1);
        assert_eq!(port(&third), 3, "2 has one");
        let all = upstreams.in_use();
        let connections: Vec<_> = all.iter().map(|one| one.connections()).collect();
        assert_eq!(connections, [0, 1, 1]);
    }

    #[test]
    fn each_address_is_tried_once_and_one_that_failed_last() {
        let upstreams = Upstreams::default();
        let pool = pool(&upstreams, &[1, 2, 3]);
        let mut search = pool.search(0, LIMIT);
        let mut seen = Vec::new();
        while let Some(attempt) = search.next() {
            seen.push(port(&attempt.lease));
            if seen.len() < 3 {
                attempt.failed(Some(&std::io::ErrorKind::ConnectionRefused.into()));
            }
        }
        assert_eq!(seen, [1, 2, 3]);
        for turn in 0..3 {
            let attempt = pool.search(turn, LIMIT).next().expect("an address");
            assert_eq!(port(&attempt.lease), 3, "the others have failed");
        }
        let mut search = pool.search(0, LIMIT);
        let order: Vec<_> = std::iter::from_fn(|| search.next())
            .map(|one| port(&one.lease))
            .collect();
        assert_eq!(order, [3, 1, 2], "but none is given up");
        let all = upstreams.in_use();
        let up = all.iter().map(|one| upstreams.is_up(one));
        assert_eq!(up.collect::<Vec<_>>(), [false, false, true]);
    }

    #[test]
    fn the_pauses_of_an_address_that_does_not_answer_grow_under_load() {
        let upstreams = Upstreams::default();
        let pool = pool(&upstreams, &[1, 2]);
        let mut now = 0;
        pool.search_at(0, LIMIT, now)
            .next_at(now)
            .expect("an address")
            .failed_at(now, None);
        now = 1000;
        for pause in [2000, 4000, 8000, 16_000, 30_000] {
            let trial = pool
                .search_at(0, LIMIT, now)
                .next_at(now)
                .expect("an address");
            assert_eq!(port(&trial.lease), 1, "{now}");
            let lasts = whole_milliseconds(trial.patience);
            for later in [now, now + lasts] {
                let other = pool
                    .search_at(0, LIMIT, now)
                    .next_at(later)
                    .expect("an address");
                assert_eq!(port(&other.lease), 2, "one tries it");
                other.succeeded();
            }
            now += lasts;
            trial.failed_at(now, None);
            let state = pool.upstreams[0].health.state(now).0;
            assert_eq!(state, State::Paused(now + pause));
            now += pause;
        }
    }

    #[test]
    fn a_search_ends_when_its_time_is_over_and_does_not_blame_its_last_address() {
        let upstreams = Upstreams::default();
        let pool = pool(&upstreams, &[1, 2, 3, 4, 5]);
        let mut search = pool.search_at(0, LIMIT, 0);
        let mut now = 1000;
        let mut patience = Vec::new();
        while let Some(attempt) = search.next_at(now) {
            let lasts = whole_milliseconds(attempt.patience);
            patience.push(lasts);
            now += lasts;
            attempt.failed_at(now, None);
        }
        assert_eq!(patience, [5000, 5000, 4000]);
        let states = pool.upstreams.iter().map(|one| one.health.state(now).0);
        let good: Vec<_> = states.map(|state| state == State::Good).collect();
        assert_eq!(good, [false, false, true, true, true]);
        let timed_out = pool.upstreams.iter().map(|one| one.timed_out.load(Relaxed));
        assert_eq!(timed_out.collect::<Vec<_>>(), [1, 1, 1, 0, 0]);
    }

    #[test]
    fn a_search_without_time_still_has_one_attempt() {
        let upstreams = Upstreams::default();
        let pool = pool(&upstreams, &[1, 2]);
        for limit in [Duration::ZERO, Duration::MAX] {
            let mut search = pool.search(0, limit);
            assert!(search.next().is_some(), "{limit:?}");
        }
        let mut search = pool.search_at(0, LIMIT, 0);
        assert!(search.next_at(20_000).is_some());
        assert!(search.next_at(20_000).is_none());
    }

    #[test]
    fn what_this_machine_lacks_is_not_held_against_the_backend() {
        let upstreams = Upstreams::default();
        let pool = pool(&upstreams, &[1, 2]);
        let attempt = pool.search(0, LIMIT).next().expect("an address");
        let code = rustix::io::Errno::MFILE.raw_os_error();
        attempt.failed(Some(&std::io::Error::from_raw_os_error(code)));
        assert_eq!(
            port(&pool.search(0, LIMIT).next().expect("an address").lease),
            1
        );
    }

    #[test]
    fn addresses_stay_known_while_they_are_used() {
        let upstreams = Upstreams::default();
        let before = pool(&upstreams, &[1, 2]);
        let lease = before
            .search(0, LIMIT)
            .next()
            .expect("an address")
            .succeeded();
        let after = pool(&upstreams, &[1, 3]);
        assert!(Arc::ptr_eq(&before.upstreams[0], &after.upstreams[0]));
        drop(before);
        let names = || -> Vec<String> {
            let all = upstreams.in_use();
            all.iter().map(|one| one.address.to_string()).collect()
        };
        assert_eq!(names(), ["127.0.0.1:1", "127.0.0.1:3"]);
        drop(after);
        assert_eq!(names(), ["127.0.0.1:1"], "a connection is still there");
        drop(lease);
        assert!(names().is_empty());
        assert_eq!(after_display(&upstreams), "127.0.0.1:7, 127.0.0.1:8");
    }

    #[test]
    fn an_address_that_flaps_is_told_of_once_in_an_interval() {
        let upstreams = Upstreams::default();
        let pool = pool(&upstreams, &[1]);
        let next = || pool.search_at(0, LIMIT, 0).next_at(0).expect("an address");
        for _ in 0..5 {
            next().failed_at(0, None);
            next().succeeded();
        }
        assert_eq!(pool.upstreams[0].fails.tell(1000), Some(4));
    }

    /// Without a look at the metrics.
    #[test]
    fn reloads_forget_addresses_and_keep_those_that_are_used() {
        let upstreams = Upstreams::default();
        let mut before = pool(&upstreams, &[1, 2]);
        let lease = before.search(1, LIMIT).next().expect("an address");
        let refused = std::io::ErrorKind::ConnectionRefused.into();
        let attempt = before.search(0, LIMIT).next().expect("an address");
        attempt.failed(Some(&refused));
        for other in 3..100 {
            before = pool(&upstreams, &[1, other]);
        }
        let known = upstreams.known.lock().unwrap();
        let mut ports: Vec<_> = known.keys().map(String::as_str).collect();
        ports.sort();
        // One is not used any more, which the next reload notices.
        let left = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:98", "127.0.0.1:99"];
        assert_eq!(ports, left);
        drop(known);
        assert!(!upstreams.is_up(&before.upstreams[0]), "it has failed");
        drop(lease);
    }

    #[test]
    fn an_address_that_failed_is_up_again_with_a_success_and_not_before() {
        let upstreams = Upstreams::default();
        let pool = pool(&upstreams, &[1, 2]);
        let one = &pool.upstreams[0];
        let first = pool.search_at(0, LIMIT, 0).next_at(0).expect("an address");
        first.failed_at(0, None);
        assert!(!upstreams.is_up(one));
        assert_eq!(one.health.state(1000).0, State::Due);
        let trial = pool.search_at(0, LIMIT, 1000).next_at(1000).expect("due");
        assert!(!upstreams.is_up(one));
        trial.succeeded();
        assert!(upstreams.is_up(one));
    }

    fn after_display(upstreams: &Upstreams) -> String {
        pool(upstreams, &[7, 8]).to_string()
    }
}
