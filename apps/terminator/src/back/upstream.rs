//! The addresses of backends, and which of them the next connection goes to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use rustls::ClientConnection;
use rustls_pki_types::ServerName;
use tokio::sync::watch;
use widelane_names::NoAnswer;

use crate::back::backend::Missed;
use crate::back::backend_tls::BackendTlsConfig;
use crate::back::health::{Health, Observation, State};
use crate::back::tls_failure::{Handshakes, Reason};
use crate::config::{Backend, HealthCheck, ProxyVersion};
use crate::observe::log_limiter::LogLimiter;

/// One address of a backend, with what all workers know of it. It is the same for all listeners and
/// routes, and outlives reloads.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) address: Backend,
    /// The same moment for all, from which their pauses are counted.
    began: Instant,
    /// Connections that are open there or being opened.
    connections: AtomicUsize,
    health: Health,
    fails: LogLimiter,
    answers: LogLimiter,
    pub(crate) connected: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    /// Whether any backend with this address is spoken to in TLS.
    pub(crate) speaks_tls: AtomicBool,
    pub(crate) handshakes: Handshakes,
    /// Connections in sequence that it has broken before it sent a byte.
    broken: AtomicU64,
    /// Whether checks have found that it is down. One thread writes it.
    is_down: AtomicBool,
    /// Checks that have succeeded, and that have failed.
    checks: [AtomicU64; 2],
}

/// An address of a pool.
#[derive(Debug)]
pub(crate) struct Member {
    upstream: Arc<Upstream>,
    /// What its certificate must name, if it has one.
    name: Option<ServerName<'static>>,
    /// The host name of which it is an address, as checks say it.
    host: Option<String>,
}

/// How the addresses of a pool are checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Check {
    pub(crate) wanted: HealthCheck,
    /// The header that the backend gets first.
    pub(crate) proxy_header: Option<ProxyVersion>,
}

/// An address that is to be checked.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) check: Check,
    pub(crate) tls_config: Option<Arc<BackendTlsConfig>>,
    pub(crate) name: Option<ServerName<'static>>,
    /// The host name of which it is an address.
    pub(crate) host: Option<String>,
}

/// All addresses and host names that are in use.
#[derive(Debug)]
pub(crate) struct Upstreams {
    began: Instant,
    registry: Mutex<Registry>,
}

#[derive(Debug, Default)]
struct Registry {
    addresses: HashMap<String, Arc<Upstream>>,
    names: BTreeMap<String, Name>,
    /// Those with names, or with checks.
    pools: Vec<Weak<Pool>>,
}

/// What is known of a host name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Name {
    /// From the last lookup with success.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    /// What was wrong with the last lookup.
    pub(crate) fault: Option<NoAnswer>,
}

impl Name {
    /// Whether its first lookup has not ended.
    fn is_open(&self) -> bool {
        self.addresses.is_empty() && self.fault.is_none()
    }
}

/// The addresses of one backend.
#[derive(Debug)]
pub(crate) struct Pool {
    written: Vec<Backend>,
    /// How all of them are spoken to, if not in plain.
    pub(crate) tls_config: Option<Arc<BackendTlsConfig>>,
    /// Whether and how they are checked.
    check: Option<Check>,
    /// Replaced as a whole when a name gets other addresses.
    upstreams: ArcSwap<Vec<Member>>,
    /// Whether it has no address, and may get one by the first lookup of a name.
    awaits: watch::Sender<bool>,
}

/// Attempts of one connection to reach a backend, at the addresses that it had at the beginning.
#[derive(Debug)]
pub(crate) struct ConnectAttempts {
    upstreams: Arc<Vec<Member>>,
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
pub(crate) struct ConnectAttempt {
    pub(crate) counted: ConnectionCount,
    /// What its certificate must name, if it has one.
    pub(crate) name: Option<ServerName<'static>>,
    /// `None`: the address is left out, and a failure now does not prolong that.
    observed: Option<Observation>,
    /// How long it may take.
    pub(crate) patience: Duration,
    /// Whether that is less than an address has. Then it is not said to be down.
    is_cut: bool,
    /// Whether the pool has no other address.
    is_only: bool,
}

/// A connection that counts for its address until this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionCount(Arc<Upstream>);

impl Default for Upstreams {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            registry: Mutex::default(),
        }
    }
}

impl Upstreams {
    /// The pool of these addresses, of which those that are known keep what is known of them. It follows
    /// the names among them, and forgets addresses that nothing uses.
    pub(crate) fn pool(
        &self,
        written: &[Backend],
        tls_config: Option<Arc<BackendTlsConfig>>,
        check: Option<Check>,
    ) -> Arc<Pool> {
        let mut known = self.lock();
        let pool = Arc::new(Pool {
            written: written.to_vec(),
            upstreams: ArcSwap::new(known.upstreams(written, tls_config.as_deref(), self.began)),
            awaits: watch::Sender::new(false),
            tls_config,
            check,
        });
        known.note_waiting(&pool);
        let has_name = written.iter().any(|one| matches!(one, Backend::Name(_)));
        if has_name || pool.check.is_some() {
            known.pools.push(Arc::downgrade(&pool));
        }
        known.forget();
        pool
    }

    /// All addresses in use, in the order of their names. Forgets those that are not.
    pub(crate) fn in_use(&self) -> Vec<Arc<Upstream>> {
        let mut known = self.lock();
        known.forget();
        let mut all: Vec<_> = known.addresses.values().cloned().collect();
        all.sort_by_cached_key(|upstream| upstream.address.to_string());
        all
    }

    /// All addresses that are to be checked, those of the newest pool last.
    pub(crate) fn checked(&self) -> Vec<Subject> {
        let known = self.lock();
        let pools: Vec<_> = known.pools.iter().filter_map(Weak::upgrade).collect();
        drop(known);
        let mut all = Vec::new();
        for pool in &pools {
            let Some(check) = &pool.check else { continue };
            let subjects = pool.upstreams.load();
            let subjects = subjects.iter().map(|member| Subject {
                upstream: member.upstream.clone(),
                check: check.clone(),
                tls_config: pool.tls_config.clone(),
                name: member.name.clone(),
                host: member.host.clone(),
            });
            all.extend(subjects);
        }
        all
    }

    /// Host names whose addresses are asked for from now on. Others are forgotten.
    pub(crate) fn follow(&self, hosts: &BTreeSet<String>) {
        let mut known = self.lock();
        known.names.retain(|host, _| hosts.contains(host));
        for host in hosts {
            known.names.entry(host.clone()).or_default();
        }
    }

    /// All host names that are followed.
    pub(crate) fn names(&self) -> BTreeMap<String, Name> {
        self.lock().names.clone()
    }

    /// Whether the first lookup of any of these names has not ended.
    pub(crate) fn awaits_any(&self, hosts: &BTreeSet<String>) -> bool {
        let known = self.lock();
        hosts
            .iter()
            .any(|host| known.names.get(host).is_some_and(Name::is_open))
    }

    /// Those of these names that have no address, with what was wrong.
    pub(crate) fn without_address(&self, hosts: &BTreeSet<String>) -> Vec<(String, NoAnswer)> {
        let known = self.lock();
        let without = known
            .names
            .iter()
            .filter(|(host, name)| hosts.contains(*host) && name.addresses.is_empty());
        let fault = |name: &Name| {
            let fault = name.fault.clone();
            fault.unwrap_or_else(|| NoAnswer::passing("no answer in time"))
        };
        without.map(|(host, name)| (host.clone(), fault(name))).collect()
    }

    /// A lookup has ended.
    pub(crate) fn looked_up(&self, host: &str, answer: Result<Vec<IpAddr>, NoAnswer>) {
        match answer {
            Ok(addresses) => self.learned(host, addresses),
            Err(fault) => self.not_learned(host, fault),
        }
    }

    /// The addresses that a name has now.
    fn learned(&self, host: &str, mut addresses: Vec<IpAddr>) {
        let mut known = self.lock();
        let Some(name) = known.names.get_mut(host) else {
            return;
        };
        let found = addresses.len();
        addresses.truncate(Backend::MOST);
        let used = addresses.len();
        if found > used && addresses != name.addresses {
            tracing::warn!(
                name = host,
                found,
                used,
                "too many addresses, and the last are not used"
            );
        }
        name.succeeded += 1;
        let failed = name.fault.take().is_some();
        let differ = name.addresses != addresses;
        if differ || failed {
            tracing::info!(name = host, ?addresses, "looked up");
        }
        name.addresses = addresses;
        if differ {
            known.renew(host, self.began);
        }
    }

    /// A lookup has failed: the name keeps the addresses that it has.
    fn not_learned(&self, host: &str, fault: NoAnswer) {
        let mut known = self.lock();
        let Some(name) = known.names.get_mut(host) else {
            return;
        };
        let kept = name.addresses.len();
        match kept {
            0 => {
                tracing::warn!(name = host, %fault, "cannot look up a backend, and has no address of it")
            }
            _ => {
                tracing::warn!(name = host, %fault, kept, "cannot look up a backend; goes on with the \
                                addresses that it had")
            }
        }
        name.failed += 1;
        name.fault = Some(fault);
        for pool in known.pools.iter().filter_map(Weak::upgrade) {
            known.note_waiting(&pool);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the last attempt that was counted has reached an address, or there was none. It may be due for
    /// another one.
    pub(crate) fn is_up(&self, upstream: &Upstream) -> bool {
        !upstream.is_down() && upstream.health.state(upstream.now()).0 == State::Good
    }
}

impl Registry {
    /// What is known of these addresses, and of those of the names among them. Each address is there once.
    fn upstreams(
        &mut self,
        written: &[Backend],
        tls_config: Option<&BackendTlsConfig>,
        began: Instant,
    ) -> Arc<Vec<Member>> {
        let mut addresses: Vec<(Backend, &Backend)> = Vec::new();
        for one in written {
            let found = match one {
                Backend::Name(written) => {
                    let name = self.names.get(&written.host);
                    let found = name.map_or(&[][..], |name| &name.addresses);
                    let port = written.port;
                    let found = found.iter().map(|ip| Backend::Tcp(SocketAddr::new(*ip, port)));
                    found.collect()
                }
                other => vec![other.clone()],
            };
            let new: Vec<_> = found
                .into_iter()
                .filter(|one| addresses.iter().all(|(other, _)| one != other))
                .map(|address| (address, one))
                .collect();
            addresses.extend(new);
        }
        if addresses.len() > Backend::MOST {
            let (found, used) = (addresses.len(), Backend::MOST);
            tracing::warn!(
                found,
                used,
                "a backend has too many addresses, and the last are not used"
            );
            addresses.truncate(used);
        }
        let upstreams = addresses.into_iter().map(|(address, written)| {
            let upstream = self
                .addresses
                .entry(address.to_string())
                .or_insert_with(|| Arc::new(Upstream::new(address, began)));
            if tls_config.is_some() {
                upstream.speaks_tls.store(true, Relaxed);
            }
            Member {
                upstream: upstream.clone(),
                name: tls_config.and_then(|tls_config| tls_config.name_of(written)),
                host: written.host().map(str::to_owned),
            }
        });
        Arc::new(upstreams.collect())
    }

    /// Gives the pools with this name the addresses that it has now.
    fn renew(&mut self, host: &str, began: Instant) {
        let has = |one: &Backend| matches!(one, Backend::Name(name) if name.host == host);
        let pools: Vec<_> = self.pools.iter().filter_map(Weak::upgrade).collect();
        for pool in &pools {
            if pool.written.iter().any(has) {
                let members = self.upstreams(&pool.written, pool.tls_config.as_deref(), began);
                pool.upstreams.store(members);
                self.note_waiting(pool);
            }
        }
        self.forget();
    }

    /// Wakes the connections that wait for an address of this pool when there is one, or none to wait for.
    fn note_waiting(&self, pool: &Pool) {
        let is_open = |one: &Backend| match one {
            // One that is not followed yet will be.
            Backend::Name(written) => self.names.get(&written.host).is_none_or(Name::is_open),
            _ => false,
        };
        let awaits = pool.upstreams.load().is_empty() && pool.written.iter().any(is_open);
        pool.awaits.send_replace(awaits);
    }

    /// Forgets addresses and pools that are not used any more.
    fn forget(&mut self) {
        self.pools.retain(|pool| pool.strong_count() > 0);
        self.addresses.retain(|_, upstream| Arc::strong_count(upstream) > 1);
    }
}

impl Upstream {
    fn new(address: Backend, began: Instant) -> Self {
        Self {
            address,
            began,
            connections: AtomicUsize::new(0),
            health: Health::default(),
            fails: LogLimiter::default(),
            answers: LogLimiter::default(),
            connected: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
            speaks_tls: AtomicBool::new(false),
            handshakes: Handshakes::default(),
            broken: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
            checks: Default::default(),
        }
    }

    pub(crate) fn is_down(&self) -> bool {
        self.is_down.load(Relaxed)
    }

    pub(crate) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Relaxed);
    }

    /// A check has ended.
    pub(crate) fn checked(&self, ok: bool) {
        self.checks[usize::from(!ok)].fetch_add(1, Relaxed);
    }

    /// Checks that have succeeded, and that have failed.
    pub(crate) fn checks(&self) -> [u64; 2] {
        [0, 1].map(|of: usize| self.checks[of].load(Relaxed))
    }

    /// In milliseconds.
    fn now(&self) -> u64 {
        whole_milliseconds(self.began.elapsed())
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }
}

impl Pool {
    /// Whether it has no address, and a name of it was never looked up.
    pub(crate) fn awaits_address(&self) -> bool {
        *self.awaits.borrow()
    }

    /// Waits until that is over, but not for longer than `limit`.
    pub(crate) async fn first_address(&self, limit: Duration) {
        let mut awaits = self.awaits.subscribe();
        let known = awaits.wait_for(|awaits| !awaits);
        let _ = tokio::time::timeout(limit, known).await;
    }

    /// For one connection. `turn` differs from one connection of a worker to the next. `limit`: the
    /// longest time for one address.
    pub(crate) fn attempts(&self, turn: usize, limit: Duration) -> ConnectAttempts {
        let upstreams = self.upstreams.load_full();
        // Without an address there is no attempt, at any time.
        let now = upstreams.first().map_or(0, |upstream| upstream.now());
        ConnectAttempts::new(upstreams, turn, limit, now)
    }

    #[cfg(test)]
    fn attempts_at(&self, turn: usize, limit: Duration, now: u64) -> ConnectAttempts {
        ConnectAttempts::new(self.upstreams.load_full(), turn, limit, now)
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, written) in self.written.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{written}")?;
        }
        Ok(())
    }
}

impl ConnectAttempts {
    fn new(upstreams: Arc<Vec<Member>>, turn: usize, limit: Duration, now: u64) -> Self {
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

    fn next_at(&mut self, now: u64) -> Option<ConnectAttempt> {
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

    /// How long an address is tried that has failed before: not as long if another one remains.
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
        let is_late = match why {
            Missed::Late => true,
            Missed::Tls(failure) => failure.is_late(),
            Missed::Socket(_) => false,
        };
        let counter = match is_late {
            false => &upstream.refused,
            true => &upstream.timed_out,
        };
        counter.fetch_add(1, Relaxed);
        if let Missed::Tls(failure) = why {
            upstream.handshakes.failed(failure.reason);
        }
        let is_ours = match why {
            Missed::Socket(error) => is_ours(error),
            Missed::Tls(failure) => failure.reason == Reason::Internal,
            Missed::Late => false,
        };
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

impl Deref for Member {
    type Target = Arc<Upstream>;

    fn deref(&self) -> &Arc<Upstream> {
        &self.upstream
    }
}

impl ConnectionCount {
    /// The first byte of a connection has come.
    pub(crate) fn answered(&self) {
        // Most of the time there is nothing to write.
        if self.0.broken.load(Relaxed) > 0 {
            self.0.broken.store(0, Relaxed);
        }
    }

    /// The connection has broken, and no byte has come. One is no reason to leave the address out, since a client
    /// can be the cause: a server that closes without having read everything sends a reset.
    pub(crate) fn broke(&self) {
        self.broke_at(self.0.now());
    }

    /// Returns whether that is told.
    fn broke_at(&self, now: u64) -> bool {
        let upstream = &self.0;
        let in_sequence = upstream.broken.fetch_add(1, Relaxed).saturating_add(1);
        let Some(times) = in_sequence.checked_sub(MOST_BROKEN - 1).filter(|times| *times > 0) else {
            return false;
        };
        let Some(pause) = upstream.health.broke(times, now) else {
            return false;
        };
        if let Some(untold) = upstream.fails.may_log_at(now) {
            let backend = &upstream.address;
            let seconds = pause.as_secs();
            tracing::warn!(
                %backend,
                in_sequence,
                untold,
                "it takes connections and breaks them before it sends a byte; tried again in {seconds} s, or \
                 at once if no other address is left. Its log may say why"
            );
        }
        true
    }

    pub(crate) fn shaken(&self, tls: &ClientConnection) {
        self.0.handshakes.succeeded(tls);
    }

    pub(crate) fn address(&self) -> &Backend {
        &self.0.address
    }
}

impl Drop for ConnectionCount {
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

fn whole_milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX >> 8)
}

/// So many connections in sequence that an address has broken leave it out.
const MOST_BROKEN: u64 = 10;
/// How many times as long as one address all addresses together may take.
const ALL_ATTEMPTS: u32 = 3;
/// The longest time for an address that has failed before, while others answer.
const TRIAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    fn pool(upstreams: &Upstreams, ports: &[u16]) -> Arc<Pool> {
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
        let up = all.iter().map(|one| upstreams.is_up(one));
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
    fn addresses_stay_known_while_they_are_used() {
        let upstreams = Upstreams::default();
        let before = pool(&upstreams, &[1, 2]);
        let counted = before.attempts(0, LIMIT).next().expect("an address").succeeded();
        let after = pool(&upstreams, &[1, 3]);
        assert!(Arc::ptr_eq(&before.upstreams.load()[0], &after.upstreams.load()[0]));
        drop(before);
        let names = || -> Vec<String> {
            let all = upstreams.in_use();
            all.iter().map(|one| one.address.to_string()).collect()
        };
        assert_eq!(names(), ["127.0.0.1:1", "127.0.0.1:3"]);
        drop(after);
        assert_eq!(names(), ["127.0.0.1:1"], "a connection is still there");
        drop(counted);
        assert!(names().is_empty());
        assert_eq!(after_display(&upstreams), "127.0.0.1:7, 127.0.0.1:8");
    }

    #[test]
    fn an_address_that_flaps_is_told_of_once_in_an_interval() {
        let upstreams = Upstreams::default();
        let pool = pool(&upstreams, &[1]);
        let next = || pool.attempts_at(0, LIMIT, 0).next_at(0).expect("an address");
        for _ in 0..5 {
            next().failed_at(0, &Missed::Late);
            next().succeeded();
        }
        assert_eq!(pool.upstreams.load()[0].fails.may_log_at(1000), Some(4));
    }

    /// Without a look at the metrics.
    #[test]
    fn reloads_forget_addresses_and_keep_those_that_are_used() {
        let upstreams = Upstreams::default();
        let mut before = pool(&upstreams, &[1, 2]);
        let counted = before.attempts(1, LIMIT).next().expect("an address");
        let refused = std::io::ErrorKind::ConnectionRefused.into();
        let attempt = before.attempts(0, LIMIT).next().expect("an address");
        attempt.failed(&Missed::Socket(refused));
        for other in 3..100 {
            before = pool(&upstreams, &[1, other]);
        }
        let known = upstreams.lock();
        let mut ports: Vec<_> = known.addresses.keys().map(String::as_str).collect();
        ports.sort();
        // One is not used any more, which the next reload notices.
        let left = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:98", "127.0.0.1:99"];
        assert_eq!(ports, left);
        drop(known);
        assert!(!upstreams.is_up(&before.upstreams.load()[0]), "it has failed");
        drop(counted);
    }

    #[test]
    fn an_address_that_failed_is_up_again_with_a_success_and_not_before() {
        let upstreams = Upstreams::default();
        let pool = pool(&upstreams, &[1, 2]);
        let one = &pool.upstreams.load()[0].clone();
        let first = pool.attempts_at(0, LIMIT, 0).next_at(0).expect("an address");
        first.failed_at(0, &Missed::Late);
        assert!(!upstreams.is_up(one));
        assert_eq!(one.health.state(1000).0, State::Due);
        let trial = pool.attempts_at(0, LIMIT, 1000).next_at(1000).expect("due");
        assert!(!upstreams.is_up(one));
        trial.succeeded();
        assert!(upstreams.is_up(one));
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
        assert!(upstreams.is_up(one));
        first.broke_at(0);
        assert!(!upstreams.is_up(one));
        assert_eq!(port(&counted(0)), 2, "it is left out");
        // The next one is tried there, and no ten more are needed.
        let again = counted(1000);
        assert_eq!(port(&again), 1);
        assert!(upstreams.is_up(one));
        again.broke_at(1000);
        assert_eq!(one.health.state(1000).0, State::Paused(3000));
    }

    fn addresses_in_turn(pool: &Pool) -> Vec<String> {
        let mut attempts = pool.attempts(0, LIMIT);
        let all = std::iter::from_fn(|| attempts.next());
        all.map(|one| one.counted.address().to_string()).collect()
    }

    #[test]
    fn pools_follow_the_addresses_of_names() {
        let upstreams = Upstreams::default();
        let hosts = ["a.test".to_owned(), "b.test".to_owned()].into();
        upstreams.follow(&hosts);
        let written = ["a.test:1", "10.0.0.1:1", "b.test:1"].map(|one| one.parse().unwrap());
        let pool = upstreams.pool(&written, None, None);
        assert_eq!(pool.to_string(), "a.test:1, 10.0.0.1:1, b.test:1");
        assert_eq!(addresses_in_turn(&pool), ["10.0.0.1:1"]);
        let empty = upstreams.pool(&written[..1], None, None);
        assert!(empty.attempts(0, LIMIT).next().is_none());
        let ips = |texts: &[&str]| texts.iter().map(|one| one.parse().unwrap()).collect();
        upstreams.learned("a.test", ips(&["10.0.0.2", "fd00::1"]));
        upstreams.learned("b.test", ips(&["10.0.0.1", "10.0.0.2"]));
        let all = ["10.0.0.2:1", "[fd00::1]:1", "10.0.0.1:1"];
        assert_eq!(addresses_in_turn(&pool), all, "each address once");

        // A connection goes on with the addresses that it began with.
        let mut attempts = pool.attempts(0, LIMIT);
        let counted = attempts.next().unwrap().succeeded();
        upstreams.learned("a.test", ips(&["fd00::1", "fd00::2"]));
        upstreams.learned("b.test", ips(&["10.0.0.1"]));
        assert_eq!(attempts.next().unwrap().counted.address().to_string(), all[1]);
        let now = ["[fd00::1]:1", "[fd00::2]:1", "10.0.0.1:1"];
        assert_eq!(addresses_in_turn(&pool), now);
        drop(attempts);
        assert_eq!(upstreams.in_use().len(), 4, "one has a connection only");
        drop(counted);
        assert_eq!(upstreams.in_use().len(), 3);

        // What is known of an address stays while it is in an answer.
        let before = pool.upstreams.load_full();
        upstreams.not_learned("a.test", NoAnswer::lasting("NXDOMAIN"));
        upstreams.learned("b.test", ips(&["10.0.0.1", "10.0.0.9"]));
        let after = pool.upstreams.load_full();
        assert_eq!(after.len(), 4);
        let kept = before.iter().zip(after.iter());
        assert!(kept.clone().count() == 3 && kept.clone().all(|(one, other)| Arc::ptr_eq(one, other)));

        let many: Vec<IpAddr> = (0..100).map(|last| [10, 0, 1, last].into()).collect();
        upstreams.learned("b.test", many.clone());
        assert_eq!(addresses_in_turn(&pool).len(), Backend::MOST);
        assert_eq!(upstreams.names()["b.test"].addresses, many[..Backend::MOST]);
        upstreams.not_learned("b.test", NoAnswer::passing("no answer"));
        let b = &upstreams.names()["b.test"];
        assert_eq!(
            (b.addresses.len(), b.failed, b.fault.is_some()),
            (Backend::MOST, 1, true)
        );
    }

    #[test]
    fn addresses_that_change_often_are_not_kept() {
        let upstreams = Upstreams::default();
        upstreams.follow(&["a.test".to_owned()].into());
        let pool = upstreams.pool(&["a.test:1".parse().unwrap()], None, None);
        for last in 0..50 {
            upstreams.learned("a.test", vec![[10, 0, 0, last].into()]);
        }
        assert_eq!(upstreams.lock().addresses.len(), 1);
        drop(pool);
        upstreams.learned("a.test", vec![[10, 0, 0, 99].into()]);
        assert!(upstreams.lock().pools.is_empty());
        upstreams.learned("other.test", vec![[10, 0, 0, 99].into()]);
        assert_eq!(upstreams.names().len(), 1, "it was not asked for");
    }

    fn after_display(upstreams: &Upstreams) -> String {
        pool(upstreams, &[7, 8]).to_string()
    }
}
