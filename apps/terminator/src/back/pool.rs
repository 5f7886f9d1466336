//! The addresses of each backend, also those that its host names have now.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::watch;
use widelane_names::NoAnswer;

use crate::back::attempts::ConnectAttempts;
use crate::back::backend_tls::BackendTlsConfig;
use crate::back::upstream::{Member, Upstream};
use crate::config::{Backend, HealthCheck, ProxyVersion};

/// All addresses and host names that are in use.
#[derive(Debug)]
pub(crate) struct Upstreams {
    began: Instant,
    registry: Mutex<Registry>,
    /// Changes when a lookup has ended, and when names are forgotten.
    lookups: watch::Sender<()>,
}

impl Default for Upstreams {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            registry: Mutex::default(),
            lookups: watch::Sender::new(()),
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
            all.extend(pool.upstreams.load().iter().map(|member| Subject {
                member: member.clone(),
                check: check.clone(),
                tls_config: pool.tls_config.clone(),
            }));
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
        drop(known);
        self.lookups.send_replace(());
    }

    /// All host names that are followed.
    pub(crate) fn names(&self) -> BTreeMap<String, Name> {
        self.lock().names.clone()
    }

    /// Returns whether the first lookup of any of these names has not ended.
    fn awaits_any(&self, hosts: &BTreeSet<String>) -> bool {
        let known = self.lock();
        hosts
            .iter()
            .any(|host| known.names.get(host).is_some_and(Name::is_open))
    }

    /// Waits until the first lookup of each of these names has ended, or the name is forgotten.
    pub(crate) async fn first_answers(&self, hosts: &BTreeSet<String>) {
        let mut lookups = self.lookups.subscribe();
        while self.awaits_any(hosts) && lookups.changed().await.is_ok() {}
    }

    /// Names among these that have no address, with what was wrong.
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
        let mut known = self.lock();
        let Some(name) = known.names.get_mut(host) else {
            return;
        };
        match answer {
            Ok(addresses) => {
                if name.learns(host, addresses) {
                    known.renew(host, self.began);
                }
            }
            Err(fault) => {
                name.keeps(host, fault);
                for pool in known.pools.iter().filter_map(Weak::upgrade) {
                    known.note_waiting(&pool);
                }
            }
        }
        drop(known);
        self.lookups.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct Registry {
    addresses: HashMap<String, Arc<Upstream>>,
    names: BTreeMap<String, Name>,
    /// Pools with names, or with checks.
    pools: Vec<Weak<Pool>>,
}

impl Registry {
    /// Returns these addresses, with those of the names among them, each once, and what is known of it.
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

/// Facts about a host name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Name {
    /// From the last lookup with success.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    /// Fault of the last lookup.
    pub(crate) fault: Option<NoAnswer>,
}

impl Name {
    /// Takes the addresses that the name has now. Returns whether they are others.
    fn learns(&mut self, host: &str, mut addresses: Vec<IpAddr>) -> bool {
        let found = addresses.len();
        addresses.truncate(Backend::MOST);
        let used = addresses.len();
        if found > used && addresses != self.addresses {
            tracing::warn!(
                name = host,
                found,
                used,
                "too many addresses, and the last are not used"
            );
        }
        self.succeeded += 1;
        let failed = self.fault.take().is_some();
        let differ = self.addresses != addresses;
        if differ || failed {
            tracing::info!(name = host, ?addresses, "looked up");
        }
        self.addresses = addresses;
        differ
    }

    /// Takes note of a failed lookup. The name keeps the addresses that it has.
    fn keeps(&mut self, host: &str, fault: NoAnswer) {
        match self.addresses.len() {
            0 => tracing::warn!(name = host, %fault, "cannot look up a backend, and has no address of it"),
            kept => tracing::warn!(
                name = host,
                %fault,
                kept,
                "cannot look up a backend; goes on with the addresses that it had"
            ),
        }
        self.failed += 1;
        self.fault = Some(fault);
    }

    /// Returns whether its first lookup has not ended.
    fn is_open(&self) -> bool {
        self.addresses.is_empty() && self.fault.is_none()
    }
}

/// The addresses of one backend.
#[derive(Debug)]
pub(crate) struct Pool {
    written: Vec<Backend>,
    /// TLS with all of them, if there is any.
    pub(crate) tls_config: Option<Arc<BackendTlsConfig>>,
    /// Check of all of them, if there is one.
    check: Option<Check>,
    /// Replaced as a whole when a name gets other addresses.
    pub(super) upstreams: ArcSwap<Vec<Member>>,
    /// True if it has no address, and may get one by the first lookup of a name.
    awaits: watch::Sender<bool>,
}

impl Pool {
    /// Returns whether it has no address, and a name of it was never looked up.
    pub(crate) fn awaits_address(&self) -> bool {
        *self.awaits.borrow()
    }

    /// Waits until that is over, but not for longer than `limit`.
    pub(crate) async fn first_address(&self, limit: Duration) {
        let mut awaits = self.awaits.subscribe();
        let known = awaits.wait_for(|awaits| !awaits);
        let _ = tokio::time::timeout(limit, known).await;
    }

    /// Attempts of one connection. `turn` differs from one connection of a worker to the next. `limit`: the
    /// longest time for one address.
    pub(crate) fn attempts(&self, turn: usize, limit: Duration) -> ConnectAttempts {
        let upstreams = self.upstreams.load_full();
        // Without an address there is no attempt, at any time.
        let now = upstreams.first().map_or(0, |upstream| upstream.now());
        ConnectAttempts::new(upstreams, turn, limit, now)
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

/// Check of the addresses of a pool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Check {
    pub(crate) wanted: HealthCheck,
    /// The header that the backend gets first.
    pub(crate) proxy_header: Option<ProxyVersion>,
}

/// An address that is to be checked.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) member: Member,
    pub(crate) check: Check,
    pub(crate) tls_config: Option<Arc<BackendTlsConfig>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::back::attempts::tests::{LIMIT, pool};
    use crate::back::backend::Missed;

    impl Pool {
        pub(crate) fn attempts_at(&self, turn: usize, limit: Duration, now: u64) -> ConnectAttempts {
            ConnectAttempts::new(self.upstreams.load_full(), turn, limit, now)
        }
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
        assert!(!before.upstreams.load()[0].is_up(), "it has failed");
        drop(counted);
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
        upstreams.looked_up("a.test", Ok(ips(&["10.0.0.2", "fd00::1"])));
        upstreams.looked_up("b.test", Ok(ips(&["10.0.0.1", "10.0.0.2"])));
        let all = ["10.0.0.2:1", "[fd00::1]:1", "10.0.0.1:1"];
        assert_eq!(addresses_in_turn(&pool), all, "each address once");

        // A connection goes on with the addresses that it began with.
        let mut attempts = pool.attempts(0, LIMIT);
        let counted = attempts.next().unwrap().succeeded();
        upstreams.looked_up("a.test", Ok(ips(&["fd00::1", "fd00::2"])));
        upstreams.looked_up("b.test", Ok(ips(&["10.0.0.1"])));
        assert_eq!(attempts.next().unwrap().counted.address().to_string(), all[1]);
        let now = ["[fd00::1]:1", "[fd00::2]:1", "10.0.0.1:1"];
        assert_eq!(addresses_in_turn(&pool), now);
        drop(attempts);
        assert_eq!(upstreams.in_use().len(), 4, "one has a connection only");
        drop(counted);
        assert_eq!(upstreams.in_use().len(), 3);

        // What is known of an address stays while it is in an answer.
        let before = pool.upstreams.load_full();
        upstreams.looked_up("a.test", Err(NoAnswer::lasting("NXDOMAIN")));
        upstreams.looked_up("b.test", Ok(ips(&["10.0.0.1", "10.0.0.9"])));
        let after = pool.upstreams.load_full();
        assert_eq!(after.len(), 4);
        let kept = before.iter().zip(after.iter());
        assert!(kept.clone().count() == 3 && kept.clone().all(|(one, other)| Arc::ptr_eq(one, other)));

        let many: Vec<IpAddr> = (0..100).map(|last| [10, 0, 1, last].into()).collect();
        upstreams.looked_up("b.test", Ok(many.clone()));
        assert_eq!(addresses_in_turn(&pool).len(), Backend::MOST);
        assert_eq!(upstreams.names()["b.test"].addresses, many[..Backend::MOST]);
        upstreams.looked_up("b.test", Err(NoAnswer::passing("no answer")));
        let b = &upstreams.names()["b.test"];
        assert_eq!(
            (b.addresses.len(), b.failed, b.fault.is_some()),
            (Backend::MOST, 1, true)
        );
    }

    /// The clock of the runtime stands still: nothing polls.
    #[test]
    fn first_answers_are_waited_for_without_a_timer() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let upstreams = Upstreams::default();
        let hosts = BTreeSet::from(["a.test", "b.test", "c.test"].map(str::to_owned));
        upstreams.follow(&hosts);
        runtime.block_on(async {
            let start = tokio::time::Instant::now();
            let answers = async {
                upstreams.looked_up("a.test", Ok(vec![[10, 0, 0, 1].into()]));
                tokio::task::yield_now().await;
                upstreams.looked_up("b.test", Err(NoAnswer::passing("no answer")));
                tokio::task::yield_now().await;
                upstreams.follow(&["a.test".to_owned()].into());
            };
            tokio::join!(upstreams.first_answers(&hosts), answers);
            upstreams.first_answers(&hosts).await;
            assert_eq!(start.elapsed(), Duration::ZERO);
        });
    }

    #[test]
    fn addresses_that_change_often_are_not_kept() {
        let upstreams = Upstreams::default();
        upstreams.follow(&["a.test".to_owned()].into());
        let pool = upstreams.pool(&["a.test:1".parse().unwrap()], None, None);
        for last in 0..50 {
            upstreams.looked_up("a.test", Ok(vec![[10, 0, 0, last].into()]));
        }
        assert_eq!(upstreams.lock().addresses.len(), 1);
        drop(pool);
        upstreams.looked_up("a.test", Ok(vec![[10, 0, 0, 99].into()]));
        assert!(upstreams.lock().pools.is_empty());
        upstreams.looked_up("other.test", Ok(vec![[10, 0, 0, 99].into()]));
        assert_eq!(upstreams.names().len(), 1, "it was not asked for");
    }

    fn after_display(upstreams: &Upstreams) -> String {
        pool(upstreams, &[7, 8]).to_string()
    }
}
