//! The server: how it starts, reloads its configuration and stops.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use rustls::time_provider::DefaultTimeProvider;
use rustls_pki_types::UnixTime;
use widelane_affinity::Cpus;

use crate::observe::access_log::{self, Sink};
use crate::back::backend_tls::Speech;
use crate::back::checks::Checks;
use crate::config::{Backend, Config, ConfigError, Document, Fault, Listener};
use crate::cores::{Cores, Machine, Workers};
use crate::observe::endpoint::Endpoint;
use crate::lending::Borrowers;
use crate::material::files::{self, Material};
use crate::back::names::{FIRST_ANSWER, Names, Resolver, Wanted};
use crate::material::ocsp::{Renewal, Staples};
use crate::material::resumption::TicketKeys;
use crate::back::routes::Routes;
use crate::shared::{Shared, Site, Slot, ticket_key_notes};
use crate::signing::SigningSource;
use crate::front::sockets::{self, Inherited};
use crate::front::sources::SourceLimits;
use crate::material::tls;
use crate::back::upstream::{NoAnswer, Upstreams};
use crate::material::watch::Fingerprint;
use crate::worker::{self, Command, RunOn, Spare, Worker};
use crate::material::stapling;
use crate::{privileges, resources};

/// A running terminator. Dropping it cuts all connections; [`Server::stop`] lets them end first.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    workers: Vec<Worker>,
    /// The first `regular` workers always accept; the others only while vector cores are lent.
    regular: usize,
    state: Mutex<State>,
    endpoint: Option<Endpoint>,
    /// The configuration at the start. A reload cannot change all of it.
    started: Config,
}

/// Why a server did not start or a signal loop could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The configuration has a fault.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The system refuses something that every server needs.
    #[error("cannot {doing}: {source}; {remedy}")]
    Machine {
        /// What the server tried to do.
        doing: String,
        /// The system's error.
        source: std::io::Error,
        /// What the operator can do.
        remedy: &'static str,
    },
}

impl ServerError {
    /// Whether it may be over in a while, with nothing corrected.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Config(error) => error.is_passing(),
            Self::Machine { .. } => true,
        }
    }
}

impl Server {
    /// Starts a server: reads files, binds, drops privileges, starts the threads.
    pub fn start(document: &Document) -> Result<Self, ServerError> {
        Self::start_with(document, Resolver::system())
    }

    /// As [`Self::start`], but `look_up` finds the addresses of host names, not the system. An error of the kind
    /// `NotFound` says that waiting does not help.
    #[doc(hidden)]
    pub fn start_looking_up(
        document: &Document,
        look_up: impl Fn(&str) -> std::io::Result<Vec<IpAddr>> + Send + Sync + 'static,
    ) -> Result<Self, ServerError> {
        Self::start_with(document, Resolver::new(look_up))
    }

    fn start_with(document: &Document, resolver: Resolver) -> Result<Self, ServerError> {
        let config = document.config();
        let locate = |fault| ServerError::Config(document.locate(fault));
        resources::raise_descriptor_limit();
        if !config.core_files {
            resources::forbid_core_files();
        }
        let files = Fingerprint::of(config);
        let material = files::read(config).map_err(locate)?;
        let account = privileges::lookup(config).map_err(locate)?;
        let machine = Machine::here();
        let cores = Cores::decide(config, &machine).map_err(locate)?;
        let vector = cores.placement.vector_cores();
        let left_out = |key, named: &Cpus, used: &Cpus| {
            if !named.is_empty() && !used.is_empty() && used != named {
                tracing::warn!(cpus = %used, "of the CPUs in `{key}`, this process may use these only");
            }
        };
        if let Workers::Pinned(cpus) = &cores.workers {
            left_out("cpus", &config.cpus, cpus);
        }
        left_out("vector_cpus", &config.batching.vector_cpus, &vector);
        let borrowers = match cores.workers {
            Workers::Beside(scalar) => Some(Arc::new(Borrowers::new(scalar, machine.allowed))),
            Workers::Anywhere | Workers::Pinned(_) => None,
        };
        let workers = worker_count(config, &cores, &machine);
        let regular = cores.regular_workers(workers);
        let inherited = Inherited::from_environment().map_err(locate)?;
        let mut bound = Vec::new();
        for (place, address) in places(config) {
            bound.push(
                sockets::listen(address, regular, workers, &inherited)
                    .map_err(|error| locate(listen_fault(&place, address, &error, &inherited)))?,
            );
        }
        for address in inherited.addresses() {
            if !places(config).iter().any(|(_, used)| used == address) {
                tracing::warn!(%address, "no listener uses this socket of the service manager");
            }
        }
        let endpoint = match config.metrics.listen {
            Some(address) => Some(
                Endpoint::bind(address)
                    .map_err(|error| locate(bind_fault("metrics.listen", address, &error)))?,
            ),
            None => None,
        };
        stapling::prepare(config, account.as_ref());
        if let Some(account) = &account {
            privileges::become_account(account).map_err(locate)?;
            tracing::info!("now {}", privileges::current());
        }
        // Nothing above started a thread; everything below may.
        let signing = SigningSource::start(
            &config.batching,
            cores.placement,
            borrowers.clone(),
            config.chacha20poly1305,
        )
        .map_err(locate)?;
        if !vector.is_empty() {
            tracing::info!(cpus = %vector, "vector cores");
        }
        signing.begin_page(&config.batching);
        signing.calibrate();
        let shared = Arc::new(Shared::new(workers, signing, &config.limits));
        let mut keys = TicketKeys::default();
        let log = shared.access_log.prepare(config).map_err(locate)?;
        let mut staples = Staples::default();
        let sites = build_sites(
            config,
            material,
            &shared,
            log.sink.as_ref(),
            (&TicketKeys::default(), &mut keys),
            (&Staples::default(), &mut staples),
        )
        .map_err(locate)?;
        let followed = follow_names(config, &shared, resolver)?;
        tell_missing_later(document, &shared)?;
        shared.access_log.adopt(log, config);
        staples.take_waiting(UnixTime::now());
        shared.note_files(&sites);
        shared.ticket_keys.send_replace(keys.all());
        let run_on = |index: usize| match (&cores.workers, &borrowers) {
            (Workers::Pinned(cpus), _) => {
                let cpu = cpus.iter().cycle().nth(index);
                cpu.map_or(RunOn::Any, RunOn::Cpu)
            }
            (_, Some(borrowers)) => {
                let rank = index.checked_sub(regular);
                let lent = borrowers.lent();
                let spare = rank.map(|rank| Spare { lent, rank });
                RunOn::Beside(borrowers.clone(), spare)
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
                names: followed,
                checks: Checks::default(),
                keys,
                staples,
                renewal: Renewal::default(),
                document: document.clone(),
                files,
                refused: Refused::default(),
                slots: HashMap::new(),
                next_slot: 0,
                inherited,
            }),
            endpoint: None,
            started: config.clone(),
        };
        {
            let mut state = server.state.lock().unwrap_or_else(PoisonError::into_inner);
            for ((name, site), (bound, sockets)) in names(config, &sites).zip(bound) {
                state.open(&server.workers, name, site, bound, sockets);
            }
            state.renew(config);
            state.check(config, &server.shared)?;
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

    /// Checks a configuration as [`Server::start`] does, without binding or serving.
    pub fn check(document: &Document) -> Result<(), ServerError> {
        Self::check_with(document, Resolver::system())
    }

    fn check_with(document: &Document, resolver: Resolver) -> Result<(), ServerError> {
        let config = document.config();
        let locate = |fault| ServerError::Config(document.locate(fault));
        let material = files::read(config).map_err(locate)?;
        let account = privileges::lookup(config).map_err(locate)?;
        let is_final = account.is_none_or(|account| account.is_current());
        access_log::check(config, is_final).map_err(locate)?;
        let cores = Cores::decide(config, &Machine::here()).map_err(locate)?;
        let signing = SigningSource::start(
            &config.batching,
            cores.placement,
            None,
            config.chacha20poly1305,
        )
        .map_err(locate)?;
        let shared = Shared::new(1, signing, &config.limits);
        let mut keys = TicketKeys::default();
        let mut staples = Staples::default();
        let sites = build_sites(
            config,
            material,
            &shared,
            None,
            (&TicketKeys::default(), &mut keys),
            (&Staples::default(), &mut staples),
        )
        .map_err(locate)?;
        staples.take_waiting(UnixTime::now());
        shared.note_files(&sites);
        let _followed = follow_names(config, &shared, resolver)?;
        let then = "a start would go on, and look it up again";
        tell_missing(document, &shared.upstreams, then);
        Ok(())
    }

    /// The addresses of the listening sockets. Port 0 is replaced by the port that the system
    /// chose.
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

    /// The address of the metrics endpoint, if there is one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.endpoint.as_ref().map(Endpoint::address)
    }

    /// Live connections, over all workers.
    pub fn connections(&self) -> usize {
        self.shared.live_connections()
    }

    /// Has each worker call `give_back` when half of its connections, and many, have gone. Memory
    /// that they needed stays with the allocator of the program otherwise, because a quiet worker
    /// does not allocate. Only the first call counts.
    pub fn give_back_memory_by(&self, give_back: fn()) {
        let _ = self.shared.give_back_memory.set(give_back);
    }

    /// Uses a new configuration for connections that are accepted from now on. Live connections
    /// keep the old one. If the new one has a fault, nothing changes.
    ///
    /// Sockets whose address is in both configurations stay open, and the connections that wait in
    /// them are served. Workers, CPUs, batching, the form of ChaCha20-Poly1305, metrics address,
    /// user and group need a restart.
    pub fn reload(&self, document: &Document) -> Result<(), ServerError> {
        self.reload_unless(document, &mut || false)
    }

    /// As [`Self::reload`], but the wait for names, without which the reload fails, ends when `is_cut_off` says so.
    pub(crate) fn reload_unless(
        &self,
        document: &Document,
        is_cut_off: &mut dyn FnMut() -> bool,
    ) -> Result<(), ServerError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let reloaded = self.try_reload(&mut state, document, Some(is_cut_off));
        let fails = reloaded.is_err();
        let of_files = *document.config() == *state.document.config();
        let refused = Refused {
            configuration: fails && !of_files,
            files: if of_files { fails } else { state.refused.files },
        };
        self.note_reload(&mut state, !fails, refused);
        reloaded
    }

    /// Reads the files of the configuration in use again.
    pub(crate) fn reload_files(&self) -> Result<(), ServerError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let document = state.document.clone();
        let reloaded = self.try_reload(&mut state, &document, None);
        let refused = Refused {
            files: reloaded.is_err(),
            ..state.refused
        };
        self.note_reload(&mut state, reloaded.is_ok(), refused);
        reloaded
    }

    /// Takes note of a configuration that cannot be read.
    pub(crate) fn refuse(&self, error: ConfigError) -> ServerError {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = Refused {
            configuration: true,
            ..state.refused
        };
        self.note_reload(&mut state, false, refused);
        error.into()
    }

    /// Opens the access log's file anew, after it was renamed. If that fails, the log goes on in the
    /// old file and says so.
    pub fn reopen_access_log(&self) {
        if !self.shared.access_log.reopen() {
            tracing::info!("there is no access log to open anew");
        }
    }

    /// The configuration in use.
    pub(crate) fn document(&self) -> Document {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.document.clone()
    }

    /// Whether a new configuration was refused, so that the one in use is not what the operator wants.
    pub(crate) fn has_refused_configuration(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.refused.configuration
    }

    /// What the files of the configuration in use are like now, if they have changed since they were
    /// read last.
    pub(crate) fn changed_files(&self) -> Option<Fingerprint> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Fingerprint::of(state.document.config());
        (state.files != now).then_some(now)
    }

    /// Stops the server: accepts the connections that already wait in the sockets, closes the
    /// sockets, and cuts the connections that have not ended after `timeout`. Returns how many it
    /// cut.
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

    /// With `whole`, which can cut off the wait for names: not only files that have changed, but also the log's, and
    /// names are looked up at once.
    fn try_reload(
        &self,
        state: &mut State,
        document: &Document,
        whole: Option<&mut dyn FnMut() -> bool>,
    ) -> Result<(), ServerError> {
        let is_whole = whole.is_some();
        let learned = match whole {
            Some(is_cut_off) => self.learn_names(state, document, is_cut_off),
            None => Ok(()),
        };
        let replaced = |()| self.replace(state, document, is_whole);
        let reloaded = learned.and_then(replaced);
        // The new ones, or those from before if it was refused.
        let wanted = Wanted::by(state.document.config());
        state.names.follow(wanted).map_err(no_names_thread)?;
        reloaded
    }

    /// Looks up the names of a new configuration, beside those in use. A name without an address is a
    /// fault here, because the configuration in use may have one.
    fn learn_names(
        &self,
        state: &mut State,
        document: &Document,
        is_cut_off: &mut dyn FnMut() -> bool,
    ) -> Result<(), ServerError> {
        let upstreams = &self.shared.upstreams;
        let before = Wanted::by(state.document.config());
        let mut wanted = Wanted::by(document.config());
        let new: BTreeSet<String> = wanted.hosts.difference(&before.hosts).cloned().collect();
        wanted.hosts.extend(before.hosts);
        wanted.anew = true;
        state.names.follow(wanted).map_err(no_names_thread)?;
        let missing = upstreams.wait_for(&new, FIRST_ANSWER, is_cut_off);
        match missing.first() {
            Some((host, fault)) => {
                let fault = name_fault(document.config(), host, fault);
                Err(ServerError::Config(document.locate(fault)))
            }
            None => Ok(()),
        }
    }

    fn replace(
        &self,
        state: &mut State,
        document: &Document,
        whole: bool,
    ) -> Result<(), ServerError> {
        let config = document.config();
        let locate = |fault| ServerError::Config(document.locate(fault));
        // From before they are read, so that a change meanwhile is noticed.
        let files = Fingerprint::of(config);
        if config == state.document.config() {
            // Also if they are refused: they are read again when they have changed again.
            state.files = files.clone();
        }
        check_next_start(&self.started, config).map_err(locate)?;
        let material = files::read(config).map_err(locate)?;
        let mut keys = TicketKeys::default();
        let log = &self.shared.access_log;
        let prepared = match whole {
            true => log.prepare(config).map_err(locate)?,
            false => log.same(),
        };
        let mut staples = Staples::default();
        let sites = build_sites(
            config,
            material,
            &self.shared,
            prepared.sink.as_ref(),
            (&state.keys, &mut keys),
            (&state.staples, &mut staples),
        )
        .map_err(locate)?;
        if let Some(fault) = staples.passing_fault() {
            return Err(locate(fault.clone()));
        }
        // New sockets first: binding is the last thing that can fail.
        let mut fresh = HashMap::new();
        for ((place, address), (name, _)) in places(config).into_iter().zip(names(config, &sites)) {
            if !state.slots.contains_key(&name) {
                let (regular, all) = (self.regular, self.workers.len());
                let inherited = &state.inherited;
                let sockets = sockets::listen(address, regular, all, inherited)
                    .map_err(|error| locate(listen_fault(&place, address, &error, inherited)))?;
                fresh.insert(name, sockets);
            }
        }
        // Before the certificates to which they belong: one that demands a response is never without it.
        staples.take_waiting(UnixTime::now());
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
            if state.inherited.has(&closed.bound) {
                tracing::warn!(
                    address = %closed.bound,
                    "the service manager holds this socket: clients wait there until its socket unit is changed and \
                     restarted",
                );
            }
            for worker in &self.workers {
                let _ = worker.commands.send(Command::Close {
                    slot: closed.slot.clone(),
                });
            }
        }
        log.adopt(prepared, config);
        self.shared.ticket_keys.send_replace(keys.all());
        keys.succeed(std::mem::take(&mut state.keys));
        state.keys = keys;
        state.staples = staples;
        state.renew(config);
        if let Err(error) = state.check(config, &self.shared) {
            tracing::error!("backends are not checked: {error}");
        }
        state.document = document.clone();
        state.files = files;
        self.shared.note_files(&sites);
        for key in fixed_keys_changed(&self.started, config) {
            tracing::warn!("`{key}` has changed; the change takes effect at the next start");
        }
        Ok(())
    }

    fn note_reload(&self, state: &mut State, ok: bool, refused: Refused) {
        let counter = match ok {
            true => &self.shared.reloads_ok,
            false => &self.shared.reloads_failed,
        };
        counter.fetch_add(1, Relaxed);
        state.refused = refused;
        self.shared
            .is_current
            .store(refused == Refused::default(), Relaxed);
    }

    pub(crate) fn begin_drain(&self) {
        self.shared.draining.store(true, Relaxed);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.checks.end();
        // Each descriptor of a socket keeps it open.
        state.inherited = Inherited::default();
        drop(state);
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
        self.shared.access_log.hurry();
        for worker in &self.workers {
            let _ = worker.commands.send(Command::Abort);
        }
        for worker in self.workers.drain(..) {
            if worker.thread.join().is_err() {
                tracing::error!("a worker thread has panicked");
            }
        }
        // All connections have ended, and all their lines are in the queue.
        self.shared.access_log.stop();
        self.endpoint = None;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.abort();
    }
}

/// What a reload changes.
#[derive(Debug)]
struct State {
    names: Names,
    checks: Checks,
    keys: TicketKeys,
    staples: Staples,
    renewal: Renewal,
    /// The configuration in use.
    document: Document,
    /// Its files, as they were before they were read last, with success or without.
    files: Fingerprint,
    refused: Refused,
    slots: HashMap<SlotName, Open>,
    next_slot: usize,
    inherited: Inherited,
}

/// What is not in use although it is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Refused {
    /// A new configuration. Files that have become good do not change that.
    configuration: bool,
    /// New files of the configuration in use.
    files: bool,
}

/// An address as configured, and its number among those that are written the same: port 0 may occur
/// several times.
type SlotName = (SocketAddr, usize);

#[derive(Debug)]
struct Open {
    slot: Arc<Slot>,
    bound: SocketAddr,
}

impl State {
    /// Has OCSP responses renewed and watched.
    fn renew(&mut self, config: &Config) {
        self.renewal
            .follow(self.staples.wanted(), stapling::store(config).as_ref());
    }

    /// Has backends checked, if any are to be.
    fn check(&mut self, config: &Config, shared: &Shared) -> Result<(), ServerError> {
        let has_check = |listener: &Listener| {
            let mut routes = listener.routes.iter();
            listener.health_check.is_some() || routes.any(|route| route.health_check.is_some())
        };
        if !config.listeners.iter().any(has_check) {
            self.checks.end();
            return Ok(());
        }
        let begun = self.checks.begin(&shared.upstreams);
        begun.map_err(|source| ServerError::Machine {
            doing: "start the thread that checks backends".into(),
            source,
            remedy: "raise the limits of threads and descriptors",
        })
    }

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
            address: bound,
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
    access_log: Option<&Arc<Sink>>,
    (keys, next): (&TicketKeys, &mut TicketKeys),
    (staples, next_staples): (&Staples, &mut Staples),
) -> Result<Vec<Arc<Site>>, Fault> {
    let most_connections = resources::connection_limit(&config.limits);
    let source = &config.limits.source;
    let places = config.limits.handshakes.min(most_connections);
    let source = SourceLimits {
        ipv4_prefix: source.ipv4_prefix,
        ipv6_prefix: source.ipv6_prefix,
        handshakes: source.handshakes_of(places) as u64,
        connections: source.connections.map(|most| most as u64),
        rate: source.connections_per_second.map(u64::from),
    };
    let mut sites = Vec::new();
    for (index, (listener, mut material)) in config.listeners.iter().zip(material).enumerate() {
        let key = format!("listener[{index}]");
        let pairs = material.certificates.iter_mut();
        let store = stapling::store(config);
        let notes = pairs.map(|pair| stapling::find(pair, store.as_ref(), staples, next_staples));
        let notes: Vec<_> = notes.flatten().collect();
        let clock = Arc::new(DefaultTimeProvider);
        let speeches = speeches(&key, listener, &mut material, shared)?;
        let built = tls::build(&key, listener, material, &shared.signing, clock, keys, next)?;
        let certificates = built.certificates.into_iter();
        let certificates = certificates
            .map(|(file, facts)| {
                (
                    file.display().to_string(),
                    facts.names.join(","),
                    facts.not_after,
                )
            })
            .collect();
        sites.push(Arc::new(Site {
            tls: built.config,
            backends: Routes::new(listener, &shared.upstreams, &speeches),
            proxies: listener.proxy_protocol_from.clone(),
            proxy_header: listener.proxy_protocol_to,
            speaks_first: listener.backend_speaks_first,
            access_log: access_log.cloned(),
            limits: config.limits.clone(),
            most_connections,
            source,
            certificates,
            ticket_keys: ticket_key_notes(&built.ticket_keys),
            staples: notes,
        }));
    }
    Ok(sites)
}

/// How the backends of a listener are spoken to: its own, and then those of its routes.
fn speeches(
    key: &str,
    listener: &Listener,
    material: &mut Material,
    shared: &Shared,
) -> Result<Vec<Option<Arc<Speech>>>, Fault> {
    let own = (format!("{key}.backend_tls"), &listener.backend_tls);
    let routes = listener.routes.iter().enumerate();
    let routes = routes.map(|(index, route)| {
        (
            format!("{key}.route[{index}].backend_tls"),
            &route.backend_tls,
        )
    });
    let files = std::iter::once(material.backend_tls.take());
    let files = files.chain(std::mem::take(&mut material.route_tls));
    let all = std::iter::once(own).chain(routes).zip(files);
    all.map(|((key, wanted), files)| {
        let wanted = wanted.as_ref().zip(files);
        let speech = wanted.map(|(wanted, files)| {
            Speech::build(&key, wanted, files, &shared.signing, shared.stats.len())
        });
        speech.transpose()
    })
    .collect()
}

/// The keys that differ although a reload cannot change them.
fn fixed_keys_changed(before: &Config, after: &Config) -> Vec<&'static str> {
    let same = [
        ("workers", before.workers == after.workers),
        ("cpus", before.cpus == after.cpus),
        ("user", before.user == after.user),
        ("group", before.group == after.group),
        ("core_files", before.core_files == after.core_files),
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

/// Checks what has changed and takes effect at the next start only: a fault in it would not be noticed until then.
fn check_next_start(before: &Config, after: &Config) -> Result<(), Fault> {
    if (&before.user, &before.group) != (&after.user, &after.group) {
        privileges::find(after)?;
    }
    if (&before.cpus, &before.batching) != (&after.cpus, &after.batching) {
        Cores::decide(after, &Machine::here())?;
    }
    // At a port of our own, only the next start can tell.
    let own = places(before).into_iter().map(|(_, address)| address);
    let own: Vec<u16> = own
        .chain(before.metrics.listen)
        .map(|one| one.port())
        .collect();
    let metrics = after
        .metrics
        .listen
        .filter(|one| !own.contains(&one.port()));
    if let Some(address) = metrics {
        Endpoint::bind(address).map_err(|error| bind_fault("metrics.listen", address, &error))?;
    }
    Ok(())
}

/// All addresses in order, with their keys in the configuration.
fn places(config: &Config) -> Vec<(String, SocketAddr)> {
    let listeners = config.listeners.iter().enumerate();
    let all = listeners.flat_map(|(index, listener)| {
        let addresses = listener.listen.iter().enumerate();
        addresses
            .map(move |(place, address)| (format!("listener[{index}].listen[{place}]"), *address))
    });
    all.collect()
}

/// The names of all addresses with the sites of their listeners, in the order of [`places`].
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

fn name_fault(config: &Config, host: &str, fault: &NoAnswer) -> Fault {
    let is_it = |one: &Backend| matches!(one, Backend::Name(name) if name.host == host);
    let in_listener = |(index, listener): (usize, &Listener)| {
        let key = format!("listener[{index}]");
        if listener.backend.iter().any(is_it) {
            return Some(format!("{key}.backend"));
        }
        let mut routes = listener.routes.iter();
        let route = routes.position(|route| route.backend.iter().any(is_it))?;
        Some(format!("{key}.route[{route}].backend"))
    };
    let key = config.listeners.iter().enumerate().find_map(in_listener);
    Fault {
        passing: fault.passing,
        ..Fault::new(
            key.unwrap_or_default(),
            format!("cannot look up `{host}`: {fault}"),
            "correct the name, /etc/hosts or /etc/resolv.conf (`getent ahosts` asks for a name)",
        )
    }
}

/// Has the host names of backends looked up from now on.
fn follow_names(
    config: &Config,
    shared: &Shared,
    resolver: Resolver,
) -> Result<Names, ServerError> {
    let mut names = Names::new(shared.upstreams.clone(), resolver);
    names.follow(Wanted::by(config)).map_err(no_names_thread)?;
    Ok(names)
}

/// As [`tell_missing`], in a thread of its own: listeners need not wait for a DNS server that is silent.
fn tell_missing_later(document: &Document, shared: &Shared) -> Result<(), ServerError> {
    if Wanted::by(document.config()).hosts.is_empty() {
        return Ok(());
    }
    let (document, upstreams) = (document.clone(), shared.upstreams.clone());
    let then = "it is looked up again until it has one";
    std::thread::Builder::new()
        .name("widelane-first".into())
        .spawn(move || tell_missing(&document, &upstreams, then))
        .map_err(no_names_thread)?;
    Ok(())
}

/// Waits for the first answers. A name without an address is told, with what becomes of it then.
fn tell_missing(document: &Document, upstreams: &Upstreams, then: &str) {
    let hosts = Wanted::by(document.config()).hosts;
    for (host, fault) in upstreams.wait_for(&hosts, FIRST_ANSWER, &mut || false) {
        let fault = document.locate(name_fault(document.config(), &host, &fault));
        tracing::warn!("{fault}; {then}");
    }
}

fn no_names_thread(source: std::io::Error) -> ServerError {
    ServerError::Machine {
        doing: "start the thread that looks up names".into(),
        source,
        remedy: "raise the limits of threads and descriptors",
    }
}

/// A socket cannot be opened where a listener is to be.
fn listen_fault(
    key: &str,
    address: SocketAddr,
    error: &std::io::Error,
    inherited: &Inherited,
) -> Fault {
    let mut passed = inherited.addresses();
    match passed.find(|passed| passed.port() == address.port()) {
        Some(passed) if error.kind() == std::io::ErrorKind::AddrInUse => Fault::new(
            key,
            format!(
                "cannot listen on {address}: the service manager has passed a socket for {passed}"
            ),
            format!("write {passed} here, or {address} as ListenStream= in the socket unit"),
        )
        .because_of(error),
        _ => bind_fault(key, address, error),
    }
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
    Fault::new(key, format!("cannot listen on {address}: {error}"), remedy).because_of(error)
}

/// As configured, else as many as there are CPUs for them: of the process's cpuset, and not more than the
/// quota of its cgroup pays for (`cpu.max`). Threads beyond the quota would be stopped together, each in
/// the middle of its handshakes.
fn worker_count(config: &Config, cores: &Cores, machine: &Machine) -> usize {
    let paid = machine.paid;
    let suited = || {
        cores
            .suited_workers(&machine.allowed)
            .filter(|suited| *suited > 0)
    };
    config.workers.map_or_else(
        || suited().map_or(paid, |suited| suited.min(paid)),
        NonZeroUsize::get,
    )
}

/// How often a server that stops checks whether all connections have ended.
pub(crate) const DRAIN_LOOK: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::config::{Backend, Certificate, Listener};
    use crate::material::ticket_files::TicketDirectory;

    /// One listener and one worker, with a certificate that is made in the directory.
    fn config_in(directory: &TempDir) -> Config {
        let path = |name: &str| directory.path().join(name);
        let made = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
        fs::write(path("a.pem"), made.cert.pem()).unwrap();
        fs::write(path("a.key"), made.signing_key.serialize_pem()).unwrap();
        let backend = Backend::Tcp("127.0.0.1:9".parse().unwrap());
        let mut listener = Listener::new(vec!["127.0.0.1:0".parse().unwrap()], backend);
        listener.certificates = vec![Certificate::new(path("a.pem"), path("a.key"))];
        Config {
            workers: NonZeroUsize::new(1),
            listeners: vec![listener],
            ..Config::default()
        }
    }

    /// A connection that lives long keeps the site that it began with.
    #[test]
    fn old_ticket_keys_are_erased_while_an_old_site_is_in_use() {
        let directory = TempDir::new().unwrap();
        let mut config = config_in(&directory);
        let tickets = directory.path().join("tickets");
        let keys = TicketDirectory::create(&tickets).unwrap();
        config.listeners[0].tickets.keys = vec![tickets];
        let document = Document::from_flags(config).unwrap();
        let server = Server::start(&document).unwrap();
        let site = || -> Arc<Site> {
            let state = server.state.lock().unwrap();
            let open = state.slots.values().next().unwrap();
            open.slot.site.load_full()
        };
        let old = site();
        let first = server.shared.ticket_keys.borrow()[0].encrypting();
        let first = Arc::downgrade(&first.unwrap());
        assert!(first.upgrade().is_some());
        keys.rotate(Duration::ZERO).unwrap();
        server.reload(&document).unwrap();
        assert!(!Arc::ptr_eq(&old, &site()));
        assert!(first.upgrade().is_none(), "the key is still in memory");
    }

    /// A lookup cannot be cut off: the reload, the server and this process go on without it.
    #[test]
    fn a_reload_that_is_cut_off_and_a_stop_do_not_wait_for_a_lookup() {
        let directory = TempDir::new().unwrap();
        let mut config = config_in(&directory);
        let document = |config: &Config| Document::from_flags(config.clone()).unwrap();
        let (asked, questions) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = Mutex::new(released);
        let resolver = Resolver::new(move |_| {
            asked.send(()).unwrap();
            let _ = released.lock().unwrap().recv();
            Ok(Vec::new())
        });
        let server = Server::start_with(&document(&config), resolver).unwrap();
        config.listeners[0].backend = vec!["slow.test:1".parse().unwrap()];
        let mut is_cut_off = || questions.try_recv().is_ok();
        let error = server
            .reload_unless(&document(&config), &mut is_cut_off)
            .unwrap_err();
        assert!(error.is_passing(), "{error}");
        assert!(error.to_string().contains("no answer in time"), "{error}");
        drop(server);
        drop(release);
    }

    /// The unit of systemd calls it before each start.
    #[test]
    fn a_check_only_warns_of_a_name_without_an_address() {
        let directory = TempDir::new().unwrap();
        let mut config = config_in(&directory);
        config.listeners[0].backend = vec!["none.test:1".parse().unwrap()];
        let document = Document::from_flags(config).unwrap();
        let none = Resolver::new(|_| Err(std::io::ErrorKind::NotFound.into()));
        Server::check_with(&document, none).unwrap();
    }

    /// So that a reload is tried again by itself.
    #[test]
    fn a_name_that_may_be_found_later_is_a_passing_fault() {
        let config = Config::default();
        for passing in [true, false] {
            let fault = NoAnswer {
                reason: "no answer".into(),
                passing,
            };
            let fault = name_fault(&config, "app.test", &fault);
            assert_eq!(fault.passing, passing);
        }
    }

    #[test]
    fn what_would_stop_the_next_start_is_refused_in_a_reload() {
        let before = Config::default();
        let key = |change: fn(&mut Config)| {
            let mut after = before.clone();
            change(&mut after);
            check_next_start(&before, &after).map_err(|fault| fault.key)
        };
        assert_eq!(
            key(|config| config.user = Some("no user".into())),
            Err("user".into())
        );
        let group = |config: &mut Config| {
            (config.user, config.group) = (Some("root".into()), Some("no group".into()));
        };
        assert_eq!(key(group), Err("group".into()));
        let cpus = |config: &mut Config| config.cpus = "1023".parse().unwrap();
        assert_eq!(key(cpus), Err("cpus".into()));
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = other.local_addr().unwrap();
        let metrics = |before: &Config| {
            let mut after = before.clone();
            after.metrics.listen = Some(taken);
            check_next_start(before, &after).map_err(|fault| fault.key)
        };
        assert_eq!(metrics(&before), Err("metrics.listen".into()));
        let mut own = before.clone();
        own.metrics.listen = Some(taken);
        assert_eq!(metrics(&own), Ok(()));
        // Also if this process is not root any more.
        assert_eq!(key(|config| config.user = Some("daemon".into())), Ok(()));
        assert_eq!(key(|config| config.workers = NonZeroUsize::new(9)), Ok(()));
    }

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
