//! The whole server: start, reload, stop.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use rustls::ServerConfig;

use crate::config::{Backend, Config, ConfigError, Document, Fault, Limits};
use crate::cores::{self, Cores, Workers};
use crate::endpoint::Endpoint;
use crate::material::{self, Material};
use crate::signing::SigningSource;
use crate::sockets::{self, Inherited};
use crate::stats::{Refusal, Stats};
use crate::tenants::Tenants;
use crate::tls::{self, TicketKeys};
use crate::worker::{self, Command, RunOn, Spare, Worker};
use crate::{privileges, resources};

/// A running terminator. Dropping it stops it at once; see [`Server::stop`] for the orderly way.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    workers: Vec<Worker>,
    /// So many of them, the first ones, always accept.
    regular: usize,
    state: Mutex<State>,
    endpoint: Option<Endpoint>,
    /// The configuration at the start, whose fixed parts stay in force.
    started: Config,
}

/// Why a server did not start or a signal loop could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The operator's configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The machine refuses something that every server needs.
    #[error("cannot {doing}: {source}; {remedy}")]
    Machine {
        /// What was attempted.
        doing: String,
        /// The system's answer.
        source: std::io::Error,
        /// What to do about it.
        remedy: &'static str,
    },
}

impl Server {
    /// Starts a server: reads files, binds, drops privileges, starts the threads.
    pub fn start(document: &Document) -> Result<Self, ServerError> {
        let config = document.config();
        let locate = |fault| ServerError::Config(document.locate(fault));
        resources::raise_descriptor_limit();
        let material = material::read(config).map_err(locate)?;
        let account = privileges::lookup(config).map_err(locate)?;
        let allowed = cores::allowed();
        let cores = Cores::decide(config, &allowed);
        let tenants = match &cores.workers {
            Workers::Beside(scalar) => Some(Arc::new(Tenants::new(scalar, &allowed))),
            Workers::Anywhere | Workers::Pinned(_) => None,
        };
        let workers = worker_count(config, &cores, &allowed);
        let regular = cores.regular_workers(workers);
        let mut inherited = Inherited::from_environment().map_err(locate)?;
        let mut bound = Vec::new();
        for (place, address) in places(config) {
            bound.push(
                sockets::listen(address, regular, workers, &mut inherited)
                    .map_err(|error| locate(bind_fault(&place, address, &error)))?,
            );
        }
        for address in inherited.left_over() {
            tracing::warn!(%address, "a socket of the service manager is named by no listener");
        }
        let endpoint = match config.metrics.listen {
            Some(address) => Some(
                Endpoint::bind(address)
                    .map_err(|error| locate(bind_fault("metrics.listen", address, &error)))?,
            ),
            None => None,
        };
        if let Some(account) = &account {
            privileges::become_account(account).map_err(locate)?;
            tracing::info!("now {}", privileges::current());
        }
        // Nothing above started a thread; everything below may.
        let signing = SigningSource::start(
            &config.batching,
            &cores.vector,
            tenants.clone(),
            config.chacha20poly1305,
        )
        .map_err(locate)?;
        if !cores.vector.is_empty() {
            tracing::info!(cpus = ?cores.vector, "vector cores");
        }
        signing.calibrate();
        let shared = Arc::new(Shared::new(workers, signing));
        let mut keys = TicketKeys::default();
        let sites = build_sites(config, material, &shared, &TicketKeys::default(), &mut keys)
            .map_err(locate)?;
        shared.note_certificates(&sites);
        let run_on = |index: usize| match (&cores.workers, &tenants) {
            (Workers::Pinned(cpus), _) => RunOn::Cpu(cpus[index % cpus.len()]),
            (_, Some(tenants)) => {
                let rank = index.checked_sub(regular);
                let lent = tenants.lent();
                let spare = rank.map(|rank| Spare { lent, rank });
                RunOn::Beside(tenants.clone(), spare)
            }
            (_, None) => RunOn::Any,
        };
        let started: Result<Vec<Worker>, _> = (0..workers)
            .map(|index| worker::start(index, run_on(index), shared.clone()))
            .collect();
        let started = started.map_err(|source| ServerError::Machine {
            doing: "start a worker thread".into(),
            source,
            remedy: "raise the limits of threads and descriptors",
        })?;
        let mut server = Self {
            shared,
            workers: started,
            regular,
            state: Mutex::new(State {
                keys,
                slots: HashMap::new(),
                next_slot: 0,
            }),
            endpoint: None,
            started: config.clone(),
        };
        {
            let mut state = server.state.lock().unwrap_or_else(PoisonError::into_inner);
            for ((name, site), (bound, sockets)) in names(config, &sites).zip(bound) {
                state.open(&server.workers, name, site, bound, sockets);
            }
        }
        if let Some(mut endpoint) = endpoint {
            endpoint
                .start(server.shared.clone())
                .map_err(|source| ServerError::Machine {
                    doing: "start the metrics thread".into(),
                    source,
                    remedy: "raise the limits of threads and descriptors",
                })?;
            server.endpoint = Some(endpoint);
        }
        for address in server.addresses() {
            tracing::info!(%address, workers, "listening");
        }
        Ok(server)
    }

    /// Does everything that [`Server::start`] does to a configuration, without binding or serving.
    pub fn check(document: &Document) -> Result<(), ServerError> {
        let config = document.config();
        let locate = |fault| ServerError::Config(document.locate(fault));
        let material = material::read(config).map_err(locate)?;
        privileges::lookup(config).map_err(locate)?;
        let cores = Cores::decide(config, &cores::allowed());
        let signing = SigningSource::start(
            &config.batching,
            &cores.vector,
            None,
            config.chacha20poly1305,
        )
        .map_err(locate)?;
        let shared = Shared::new(1, signing);
        let mut keys = TicketKeys::default();
        build_sites(config, material, &shared, &TicketKeys::default(), &mut keys)
            .map_err(locate)?;
        Ok(())
    }

    /// The addresses listened on, with the port that port 0 became.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut open: Vec<_> = state
            .slots
            .values()
            .map(|open| (open.slot.number, open.bound))
            .collect();
        open.sort_unstable();
        open.into_iter().map(|(_, bound)| bound).collect()
    }

    /// The address of the metrics, if they are served.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.endpoint.as_ref().map(Endpoint::address)
    }

    /// Live connections, over all workers.
    pub fn connections(&self) -> usize {
        self.shared.live_connections()
    }

    /// Takes a new configuration for connections accepted from now on. Live connections go on as
    /// they are. If anything is wrong with it, nothing changes.
    ///
    /// Sockets whose address is in both configurations are kept, with all that waits in them.
    /// Workers, CPUs, batching, the form of ChaCha20-Poly1305, metrics address, user and group need
    /// a restart.
    pub fn reload(&self, document: &Document) -> Result<(), ServerError> {
        let reloaded = self.try_reload(document);
        let counter = if reloaded.is_ok() {
            &self.shared.reloads_ok
        } else {
            &self.shared.reloads_failed
        };
        counter.fetch_add(1, Relaxed);
        reloaded
    }

    /// Stops: accepts what already waits in the sockets, closes them, and lets connections end by
    /// themselves for as long as `timeout`. Says how many had to be cut off.
    pub fn stop(mut self, timeout: Duration) -> usize {
        self.begin_drain();
        let deadline = Instant::now() + timeout;
        while !self.drained() && Instant::now() < deadline {
            std::thread::sleep(DRAIN_LOOK);
        }
        let left = self.shared.live_connections();
        self.abort();
        left
    }

    fn try_reload(&self, document: &Document) -> Result<(), ServerError> {
        let config = document.config();
        let locate = |fault| ServerError::Config(document.locate(fault));
        let material = material::read(config).map_err(locate)?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut keys = TicketKeys::default();
        let sites =
            build_sites(config, material, &self.shared, &state.keys, &mut keys).map_err(locate)?;
        // New sockets first: binding is the last thing that can fail.
        let mut fresh = HashMap::new();
        for ((place, address), (name, _)) in places(config).into_iter().zip(names(config, &sites)) {
            if !state.slots.contains_key(&name) {
                let (regular, all) = (self.regular, self.workers.len());
                let sockets = sockets::listen(address, regular, all, &mut Inherited::default())
                    .map_err(|error| locate(bind_fault(&place, address, &error)))?;
                fresh.insert(name, sockets);
            }
        }
        let mut before = std::mem::take(&mut state.slots);
        for (name, site) in names(config, &sites) {
            if let Some(open) = before.remove(&name) {
                open.slot.site.store(site);
                state.slots.insert(name, open);
            } else if let Some((bound, sockets)) = fresh.remove(&name) {
                tracing::info!(address = %bound, "listening");
                state.open(&self.workers, name, site, bound, sockets);
            }
        }
        for closed in before.into_values() {
            tracing::info!(address = %closed.bound, "no longer listening");
            for worker in &self.workers {
                let _ = worker.commands.send(Command::Close {
                    slot: closed.slot.clone(),
                });
            }
        }
        state.keys = keys;
        self.shared.note_certificates(&sites);
        for key in fixed_keys_changed(&self.started, config) {
            tracing::warn!("`{key}` has changed and stays as it was until the next start");
        }
        Ok(())
    }

    /// A configuration that could not even be read counts as well.
    pub(crate) fn note_failed_reload(&self) {
        self.shared.reloads_failed.fetch_add(1, Relaxed);
    }

    pub(crate) fn begin_drain(&self) {
        self.shared.draining.store(true, Relaxed);
        for worker in &self.workers {
            let _ = worker.commands.send(Command::Drain);
        }
    }

    pub(crate) fn drained(&self) -> bool {
        self.workers
            .iter()
            .all(|worker| worker.thread.is_finished())
    }

    pub(crate) fn abort(&mut self) {
        for worker in &self.workers {
            let _ = worker.commands.send(Command::Abort);
        }
        for worker in self.workers.drain(..) {
            if worker.thread.join().is_err() {
                tracing::error!("a worker thread had panicked");
            }
        }
        self.endpoint = None;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.abort();
    }
}

/// What all threads of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) stats: Vec<Arc<Stats>>,
    pub(crate) signing: SigningSource,
    pub(crate) reloads_ok: AtomicU64,
    pub(crate) reloads_failed: AtomicU64,
    connections: AtomicUsize,
    handshakes: AtomicUsize,
    draining: AtomicBool,
    certificates: ArcSwap<Vec<CertificateNote>>,
}

/// What is told about a certificate: its file, its names, when it expires.
pub(crate) type CertificateNote = (String, String, i64);

/// What new connections of one listener get. Replaced as a whole by a reload.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) tls: Arc<ServerConfig>,
    pub(crate) backend: Backend,
    pub(crate) proxy_protocol: bool,
    pub(crate) limits: Limits,
    /// `limits.connections`, or what stands for it.
    pub(crate) most_connections: usize,
    certificates: Vec<CertificateNote>,
}

/// The place of one listening address, which outlives the sites that fill it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) number: usize,
    pub(crate) site: ArcSwap<Site>,
}

/// A connection's share of the limits, given back when dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    shared: Arc<Shared>,
    shaking: bool,
}

impl Shared {
    fn new(workers: usize, signing: SigningSource) -> Self {
        Self {
            stats: (0..workers).map(|_| Arc::default()).collect(),
            signing,
            reloads_ok: AtomicU64::new(0),
            reloads_failed: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
            handshakes: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            certificates: ArcSwap::default(),
        }
    }

    pub(crate) fn live_connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    pub(crate) fn live_handshakes(&self) -> usize {
        self.handshakes.load(Relaxed)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    pub(crate) fn certificates(&self) -> Vec<CertificateNote> {
        self.certificates.load().as_ref().clone()
    }

    fn note_certificates(&self, sites: &[Arc<Site>]) {
        let mut notes: Vec<_> = sites
            .iter()
            .flat_map(|site| site.certificates.iter().cloned())
            .collect();
        // One file in several listeners is one series.
        notes.sort();
        notes.dedup_by(|one, other| one.0 == other.0);
        self.certificates.store(Arc::new(notes));
    }
}

impl Admission {
    pub(crate) fn ask(shared: &Arc<Shared>, site: &Site) -> Result<Self, Refusal> {
        if shared.connections.fetch_add(1, Relaxed) >= site.most_connections {
            shared.connections.fetch_sub(1, Relaxed);
            return Err(Refusal::Connections);
        }
        if shared.handshakes.fetch_add(1, Relaxed) >= site.limits.handshakes {
            shared.handshakes.fetch_sub(1, Relaxed);
            shared.connections.fetch_sub(1, Relaxed);
            return Err(Refusal::Handshakes);
        }
        Ok(Self {
            shared: shared.clone(),
            shaking: true,
        })
    }

    pub(crate) fn handshake_done(&mut self) {
        if std::mem::take(&mut self.shaking) {
            self.shared.handshakes.fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.handshake_done();
        self.shared.connections.fetch_sub(1, Relaxed);
    }
}

/// What a reload changes.
#[derive(Debug)]
struct State {
    keys: TicketKeys,
    slots: HashMap<SlotName, Open>,
    next_slot: usize,
}

/// An address as configured, and which one of those that are written the same: port 0 may be
/// asked for several times.
type SlotName = (SocketAddr, usize);

#[derive(Debug)]
struct Open {
    slot: Arc<Slot>,
    bound: SocketAddr,
}

impl State {
    fn open(
        &mut self,
        workers: &[Worker],
        name: SlotName,
        site: Arc<Site>,
        bound: SocketAddr,
        sockets: Vec<Vec<std::net::TcpListener>>,
    ) {
        let slot = Arc::new(Slot {
            number: self.next_slot,
            site: ArcSwap::new(site),
        });
        self.next_slot += 1;
        for (worker, sockets) in workers.iter().zip(sockets) {
            for socket in sockets {
                let _ = worker.commands.send(Command::Listen {
                    socket,
                    slot: slot.clone(),
                });
            }
        }
        self.slots.insert(name, Open { slot, bound });
    }
}

fn build_sites(
    config: &Config,
    material: Vec<Material>,
    shared: &Shared,
    keys: &TicketKeys,
    next: &mut TicketKeys,
) -> Result<Vec<Arc<Site>>, Fault> {
    let most_connections = resources::connection_limit(&config.limits);
    let mut sites = Vec::new();
    for (index, (listener, material)) in config.listeners.iter().zip(material).enumerate() {
        let key = format!("listener[{index}]");
        let built = tls::build(&key, listener, material, &shared.signing, keys, next)?;
        let files = listener
            .certificates
            .iter()
            .map(|one| one.cert.display().to_string());
        let certificates = files
            .zip(built.certificates)
            .map(|(file, facts)| (file, facts.names.join(","), facts.not_after))
            .collect();
        sites.push(Arc::new(Site {
            tls: built.config,
            backend: listener.backend.clone(),
            proxy_protocol: listener.proxy_protocol,
            limits: config.limits.clone(),
            most_connections,
            certificates,
        }));
    }
    Ok(sites)
}

/// The keys that a reload cannot change and that are different.
fn fixed_keys_changed(before: &Config, after: &Config) -> Vec<&'static str> {
    let same = [
        ("workers", before.workers == after.workers),
        ("cpus", before.cpus == after.cpus),
        ("user", before.user == after.user),
        ("group", before.group == after.group),
        ("batching", before.batching == after.batching),
        (
            "chacha20poly1305",
            before.chacha20poly1305 == after.chacha20poly1305,
        ),
        ("metrics", before.metrics == after.metrics),
    ];
    same.into_iter()
        .filter(|(_, same)| !same)
        .map(|(key, _)| key)
        .collect()
}

/// Every address with its key, in order.
fn places(config: &Config) -> Vec<(String, SocketAddr)> {
    let listeners = config.listeners.iter().enumerate();
    let all = listeners.flat_map(|(index, listener)| {
        let addresses = listener.listen.iter().enumerate();
        addresses
            .map(move |(place, address)| (format!("listener[{index}].listen[{place}]"), *address))
    });
    all.collect()
}

/// Every address's name with its listener's site, in the order of [`places`].
fn names(config: &Config, sites: &[Arc<Site>]) -> impl Iterator<Item = (SlotName, Arc<Site>)> {
    let mut seen: HashMap<SocketAddr, usize> = HashMap::new();
    let mut all = Vec::new();
    for (listener, site) in config.listeners.iter().zip(sites) {
        for address in &listener.listen {
            let ordinal = seen.entry(*address).or_default();
            all.push(((*address, *ordinal), site.clone()));
            *ordinal += 1;
        }
    }
    all.into_iter()
}

fn bind_fault(key: &str, address: SocketAddr, error: &std::io::Error) -> Fault {
    let remedy = match error.kind() {
        std::io::ErrorKind::PermissionDenied => format!(
            "ports below 1024 need root, CAP_NET_BIND_SERVICE or a socket unit (this is {})",
            privileges::current()
        ),
        std::io::ErrorKind::AddrInUse => {
            format!(
                "stop what listens there (`ss -ltnp 'sport = :{}'`)",
                address.port()
            )
        }
        std::io::ErrorKind::AddrNotAvailable => "use an address of this machine".into(),
        _ => "correct the address".into(),
    };
    Fault::new(key, format!("cannot listen on {address}: {error}"), remedy)
}

fn worker_count(config: &Config, cores: &Cores, allowed: &[usize]) -> usize {
    let one = NonZeroUsize::MIN;
    let count = config
        .workers
        .or_else(|| cores.suited_workers(allowed).and_then(NonZeroUsize::new));
    count
        .unwrap_or_else(|| std::thread::available_parallelism().unwrap_or(one))
        .get()
}

/// How often a stopping server looks whether it is done.
pub(crate) const DRAIN_LOOK: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_keys_are_noticed() {
        let before = Config::default();
        let mut after = before.clone();
        assert_eq!(fixed_keys_changed(&before, &after), [""; 0]);
        after.limits.handshakes = 7;
        after.workers = NonZeroUsize::new(7);
        after.batching.queue = 7;
        assert_eq!(fixed_keys_changed(&before, &after), ["workers", "batching"]);
    }
}
