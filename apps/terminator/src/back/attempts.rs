//! Attempts of one connection to reach a backend: which of its addresses comes next.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustls_pki_types::ServerName;

use crate::back::backend::Missed;
use crate::back::health::{Observation, State};
use crate::back::tls_failure::Reason;
use crate::back::upstream::{ConnectionCount, Member, whole_milliseconds};

/// Attempts of one connection to reach a backend, at the addresses that it had at the beginning.
#[derive(Debug)]
pub(crate) struct ConnectAttempts {
    upstreams: Arc<Vec<Member>>,
    /// Place at which the search begins, so that equal addresses are taken in turn.
    turn: usize,
    /// The longest time for one address.
    limit: Duration,
    /// The millisecond at which all of them have had their time.
    ends: u64,
    /// A bit for each address that was tried.
    tried: u64,
}

impl ConnectAttempts {
    pub(super) fn new(upstreams: Arc<Vec<Member>>, turn: usize, limit: Duration, now: u64) -> Self {
        let whole = whole_milliseconds(limit.saturating_mul(ALL_ATTEMPTS));
        Self {
            upstreams,
            turn,
            limit,
            ends: now.saturating_add(whole),
            tried: 0,
        }
    }

    /// The next address to try, each once: one whose pause is over, if no other connection tries it
    /// now; else the one with the fewest connections; else, if all are left out, the one that is tried
    /// again first. `None`: all have been tried, or the time is over.
    pub(crate) fn next(&mut self) -> Option<ConnectAttempt> {
        self.next_at(self.upstreams.first()?.now())
    }

    pub(super) fn next_at(&mut self, now: u64) -> Option<ConnectAttempt> {
        let left = Duration::from_millis(self.ends.saturating_sub(now));
        if left.is_zero() && self.tried != 0 {
            return None;
        }
        let trial = self.trial();
        let mut best: Option<((u8, u64), usize, Option<Observation>)> = None;
        let count = self.upstreams.len();
        for step in 0..count {
            let index = (self.turn + step) % count;
            let upstream = self.upstreams.get(index)?;
            if self.tried & bit(index) != 0 {
                continue;
            }
            let (state, observed) = upstream.health.state(now);
            let (rank, observed) = match state {
                // The last of all, and no attempt is lost on it while others are up.
                _ if upstream.is_down() => ((2, upstream.connections() as u64), Some(observed)),
                State::Good => ((0, upstream.connections() as u64), Some(observed)),
                State::Due => match upstream.health.claim(now, whole_milliseconds(trial)) {
                    Some(observed) => {
                        return Some(self.attempt(index, Some(observed), (trial, left)));
                    }
                    None => ((1, u64::MAX), None),
                },
                State::Paused(until) => ((1, until), None),
            };
            if best.is_none_or(|(before, ..)| rank < before) {
                best = Some((rank, index, observed));
            }
        }
        let (_, index, observed) = best?;
        Some(self.attempt(index, observed, (self.limit, left)))
    }

    /// Time for which an address is tried that has failed before: not as long if another one remains.
    fn trial(&self) -> Duration {
        match self.tried.count_ones() as usize + 1 < self.upstreams.len() {
            true => self.limit.min(TRIAL),
            false => self.limit,
        }
    }

    /// An attempt that may take so long, of the time that is left.
    fn attempt(
        &mut self,
        index: usize,
        observed: Option<Observation>,
        (patience, left): (Duration, Duration),
    ) -> ConnectAttempt {
        self.tried |= bit(index);
        let Member { upstream, name, .. } = &self.upstreams[index];
        upstream.connections.fetch_add(1, Relaxed);
        ConnectAttempt {
            counted: ConnectionCount(upstream.clone()),
            name: name.clone(),
            observed,
            patience: patience.min(left),
            is_cut: left < patience,
            is_only: self.upstreams.len() == 1,
        }
    }
}

/// An attempt to connect to one address.
#[derive(Debug)]
pub(crate) struct ConnectAttempt {
    pub(crate) counted: ConnectionCount,
    /// Name that its certificate must have, if it has one.
    pub(crate) name: Option<ServerName<'static>>,
    /// `None`: the address is left out, and a failure now does not prolong that.
    observed: Option<Observation>,
    /// Time that it may take.
    pub(crate) patience: Duration,
    /// True if that is less than an address has. Then it is not said to be down.
    is_cut: bool,
    /// True if the pool has no other address.
    is_only: bool,
}

impl ConnectAttempt {
    pub(crate) fn succeeded(self) -> ConnectionCount {
        let upstream = &self.counted.0;
        upstream.connected.fetch_add(1, Relaxed);
        let now = upstream.now();
        if upstream.health.succeeded()
            && let Some(untold) = upstream.answers.may_log_at(now)
        {
            let backend = &upstream.address;
            tracing::info!(%backend, untold, "it answers again");
        }
        self.counted
    }

    pub(crate) fn failed(self, why: &Missed) {
        let now = self.counted.0.now();
        self.failed_at(now, why);
    }

    fn failed_at(self, now: u64, why: &Missed) {
        let upstream = &self.counted.0;
        let (is_late, is_ours) = match why {
            Missed::Late => (true, false),
            Missed::Tls(failure) => (failure.is_late(), failure.reason == Reason::Internal),
            Missed::Socket(error) => (false, is_ours(error)),
        };
        let counter = match is_late {
            false => &upstream.refused,
            true => &upstream.timed_out,
        };
        counter.fetch_add(1, Relaxed);
        if let Missed::Tls(failure) = why {
            upstream.handshakes.failed(failure.reason);
        }
        if is_ours || (is_late && self.is_cut) {
            return;
        }
        let is_good = self.observed.is_some_and(Observation::is_good);
        if matches!(why, Missed::Tls(failure) if is_good && failure.may_be_the_clients()) {
            let is_left_out = self.counted.broke_at(now);
            if let (false, Some(untold)) = (is_left_out, upstream.fails.may_log_at(now)) {
                let (backend, reason) = (&upstream.address, why.to_string());
                tracing::warn!(
                    %backend,
                    %reason,
                    untold,
                    "a connection is broken in its handshake; after ten of these in sequence, the address is left out"
                );
            }
            return;
        }
        let pause = self.observed.and_then(|observed| upstream.health.failed(observed, now));
        let Some(pause) = pause else { return };
        let Some(untold) = upstream.fails.may_log_at(now) else {
            return;
        };
        let (backend, reason) = (&upstream.address, why.to_string());
        let what = match self.is_only {
            true => "cannot connect; each new connection tries again, since there is no other address".into(),
            false => format!(
                "cannot connect; tried again in {} s, or at once if no other address is left",
                pause.as_secs()
            ),
        };
        tracing::warn!(%backend, %reason, untold, "{what}");
    }
}

/// Returns whether this machine lacks something, or the queue of a UNIX socket is full. Neither says that the
/// backend is down.
fn is_ours(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let shortages = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOBUFS,
        Errno::NOMEM,
        Errno::ADDRNOTAVAIL,
        Errno::AGAIN,
    ];
    Errno::from_io_error(error).is_some_and(|errno| shortages.contains(&errno))
}

/// A configuration has at most [`Backend::MOST`] addresses in a pool.
fn bit(index: usize) -> u64 {
    1 << (index % 64)
}

/// Time that all addresses together may take, as a multiple of that of one.
const ALL_ATTEMPTS: u32 = 3;
/// The longest time for an address that has failed before, while others answer.
const TRIAL: Duration = Duration::from_secs(1);

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::back::pool::{Pool, Upstreams};
    use crate::back::upstream::MOST_BROKEN;
    use crate::config::Backend;

    pub(in crate::back) const LIMIT: Duration = Duration::from_secs(5);

    pub(in crate::back) fn pool(upstreams: &Upstreams, ports: &[u16]) -> Arc<Pool> {
        let address = |port: &u16| Backend::Tcp(([127, 0, 0, 1], *port).into());
        upstreams.pool(&ports.iter().map(address).collect::<Vec<_>>(), None, None)
    }

    fn port(counted: &ConnectionCount) -> u16 {
        match counted.address() {
            Backend::Tcp(address) => address.port(),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn the_address_with_the_fewest_connections_comes_first_and_equal_ones_in_turn() {
        let upstreams = Upstreams::default();
        let pool = pool(&upstreams, &[1, 2, 3]);
        let take = |turn: usize| pool.attempts(turn, LIMIT).next().expect("an address").succeeded();
        let first: Vec<ConnectionCount> = (0..3).map(take).collect();
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
        let mut attempts = pool.attempts(0, LIMIT);
        let mut observed = Vec::new();
        while let Some(attempt) = attempts.next() {
            observed.push(port(&attempt.counted));
            if observed.len() < 3 {
                attempt.failed(&Missed::Socket(std::io::ErrorKind::ConnectionRefused.into()));
            }
        }
        assert_eq!(observed, [1, 2, 3]);
        for turn in 0..3 {
            let attempt = pool.attempts(turn, LIMIT).next().expect("an address");
            assert_eq!(port(&attempt.counted), 3, "the others have failed");
        }
        let mut attempts = pool.attempts(0, LIMIT);
        let order: Vec<_> = std::iter::from_fn(|| attempts.next())
            .map(|one| port(&one.counted))
            .collect();
        assert_eq!(order, [3, 1, 2], "but none is given up");
        let all = upstreams.in_use();
        let up = all.iter().map(|one| one.is_up());
        assert_eq!(up.collect::<Vec<_>>(), [false, false, true]);
    }

    #[test]
    fn the_pauses_of_an_address_that_does_not_answer_grow_under_load() {
        let upstreams = Upstreams::default();
        let pool = pool(&upstreams, &[1, 2]);
        let mut now = 0;
        pool.attempts_at(0, LIMIT, now)
            .next_at(now)
            .expect("an address")
            .failed_at(now, &Missed::Late);
        now = 1000;
        for pause in [2000, 4000, 8000, 16_000, 30_000] {
            let trial = pool.attempts_at(0, LIMIT, now).next_at(now).expect("an address");
            assert_eq!(port(&trial.counted), 1, "{now}");
            let lasts = whole_milliseconds(trial.patience);
            for later in [now, now + lasts] {
                let other = pool.attempts_at(0, LIMIT, now).next_at(later).expect("an address");
                assert_eq!(port(&other.counted), 2, "one tries it");
                other.succeeded();
            }
            now += lasts;
            trial.failed_at(now, &Missed::Late);
            let state = pool.upstreams.load()[0].health.state(now).0;
            assert_eq!(state, State::Paused(now + pause));
            now += pause;
        }
    }

    #[test]
    fn a_search_ends_when_its_time_is_over_and_does_not_blame_its_last_address() {
        let upstreams = Upstreams::default();
        let pool = pool(&upstreams, &[1, 2, 3, 4, 5]);
        let mut attempts = pool.attempts_at(0, LIMIT, 0);
        let mut now = 1000;
        let mut patience = Vec::new();
        while let Some(attempt) = attempts.next_at(now) {
            let lasts = whole_milliseconds(attempt.patience);
            patience.push(lasts);
            now += lasts;
            attempt.failed_at(now, &Missed::Late);
        }
        assert_eq!(patience, [5000, 5000, 4000]);
        let upstreams = pool.upstreams.load();
        let states = upstreams.iter().map(|one| one.health.state(now).0);
        let good: Vec<_> = states.map(|state| state == State::Good).collect();
        assert_eq!(good, [false, false, true, true, true]);
        let timed_out = upstreams.iter().map(|one| one.timed_out.load(Relaxed));
        assert_eq!(timed_out.collect::<Vec<_>>(), [1, 1, 1, 0, 0]);
    }

    #[test]
    fn a_search_without_time_still_has_one_attempt() {
        let upstreams = Upstreams::default();
        let pool = pool(&upstreams, &[1, 2]);
        for limit in [Duration::ZERO, Duration::MAX] {
            let mut attempts = pool.attempts(0, limit);
            assert!(attempts.next().is_some(), "{limit:?}");
        }
        let mut attempts = pool.attempts_at(0, LIMIT, 0);
        assert!(attempts.next_at(20_000).is_some());
        assert!(attempts.next_at(20_000).is_none());
    }

    #[test]
    fn what_this_machine_lacks_is_not_held_against_the_backend() {
        let upstreams = Upstreams::default();
        let pool = pool(&upstreams, &[1, 2]);
        let attempt = pool.attempts(0, LIMIT).next().expect("an address");
        let code = rustix::io::Errno::MFILE.raw_os_error();
        attempt.failed(&Missed::Socket(std::io::Error::from_raw_os_error(code)));
        assert_eq!(port(&pool.attempts(0, LIMIT).next().expect("an address").counted), 1);
    }

    #[test]
    fn an_address_that_flaps_is_logged_once_in_an_interval() {
        let upstreams = Upstreams::default();
        let pool = pool(&upstreams, &[1]);
        let next = || pool.attempts_at(0, LIMIT, 0).next_at(0).expect("an address");
        for _ in 0..5 {
            next().failed_at(0, &Missed::Late);
            next().succeeded();
        }
        assert_eq!(pool.upstreams.load()[0].fails.may_log_at(1000), Some(4));
    }

    #[test]
    fn an_address_that_failed_is_up_again_with_a_success_and_not_before() {
        let upstreams = Upstreams::default();
        let pool = pool(&upstreams, &[1, 2]);
        let one = &pool.upstreams.load()[0].clone();
        let first = pool.attempts_at(0, LIMIT, 0).next_at(0).expect("an address");
        first.failed_at(0, &Missed::Late);
        assert!(!one.is_up());
        assert_eq!(one.health.state(1000).0, State::Due);
        let trial = pool.attempts_at(0, LIMIT, 1000).next_at(1000).expect("due");
        assert!(!one.is_up());
        trial.succeeded();
        assert!(one.is_up());
    }

    #[test]
    fn an_address_that_breaks_connections_is_left_out_and_one_that_answers_is_not() {
        let upstreams = Upstreams::default();
        let pool = pool(&upstreams, &[1, 2]);
        let one = &pool.upstreams.load()[0].clone();
        let counted = |now| {
            let mut attempts = pool.attempts_at(0, LIMIT, now);
            attempts.next_at(now).expect("an address").succeeded()
        };
        let first = counted(0);
        for _ in 1..MOST_BROKEN {
            first.broke_at(0);
        }
        first.answered();
        for _ in 1..MOST_BROKEN {
            first.broke_at(0);
        }
        assert!(one.is_up());
        first.broke_at(0);
        assert!(!one.is_up());
        assert_eq!(port(&counted(0)), 2, "it is left out");
        // The next one is tried there, and no ten more are needed.
        let again = counted(1000);
        assert_eq!(port(&again), 1);
        assert!(one.is_up());
        again.broke_at(1000);
        assert_eq!(one.health.state(1000).0, State::Paused(3000));
    }
}
