//! The server: how it starts, reloads its configuration and stops.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use rustls_pki_types::UnixTime;
use widelane_access_log::{LogError, Prepared as PreparedLog};
use widelane_affinity::Cpus;
use widelane_names::{Names, Resolver};
use widelane_ocsp::Renewal;

use crate::back::checks;
use crate::back::host_names::{self, CutOff};
use crate::back::pool::Upstreams;
use crate::config::{Config, ConfigError, Document, Fault};
use crate::cores::{Cores, Machine, Workers};
use crate::crypto::Crypto;
use crate::front::site::{Site, Slot};
use crate::front::sockets::{self, Accepting, Inherited, SlotName, Sockets};
use crate::housekeeping::{Housekeeping, Task};
use crate::lending::Borrowers;
use crate::material::resumption::roll_in_time;
use crate::material::watch::Fingerprint;
use crate::material::{files, stapling};
use crate::observe::endpoint;
use crate::prepared::{Kept, Prepared};
use crate::server_error::ServerError;
use crate::shared::Shared;
use crate::worker::{self, Command, RunOn, Spare, Worker};
use crate::{next_start, privileges, resources};

/// A running terminator. Dropping it cuts all connections; [`Server::stop`] lets them end first.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    workers: Vec<Worker>,
    accepting: Accepting,
    state: Mutex<State>,
    metrics_address: Option<SocketAddr>,
    housekeeping: Housekeeping,
    /// The configuration at the start. A reload cannot change all of it.
    started: Config,
}

impl Server {
    /// Starts a server: reads files, binds, drops privileges, starts the threads.
    pub fn start(document: &Document) -> Result<Self, ServerError> {
        Self::start_with(document, Resolver::system())
    }

    /// Starts a server as [`Self::start`] does, but `look_up` finds the addresses of host names, not the system. An
    /// error of the kind `NotFound` says that waiting does not help.
    #[doc(hidden)]
    pub fn start_looking_up(
        document: &Document,
        look_up: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
    ) -> Result<Self, ServerError> {
        Self::start_with(document, Resolver::new(look_up))
    }

    fn start_with(document: &Document, resolver: Resolver) -> Result<Self, ServerError> {
        let config = document.config();
        let locate = |fault| document.locate(fault);
        resources::raise_descriptor_limit();
        if !config.core_files {
            resources::forbid_core_files();
        }
        // All that may need the rights of root.
        let fingerprint = Fingerprint::of(config);
        let files = files::read(config).map_err(locate)?;
        let account = privileges::lookup(config).map_err(locate)?;
        let machine = Machine::here(&document.environment);
        let cores = Cores::decide(config, &machine).map_err(locate)?;
        let all = cores.worker_count(config, &machine);
        let accepting = Accepting {
            regular: cores.regular_workers(all),
            all,
        };
        let inherited = Inherited::from_environment().map_err(locate)?;
        let sockets = sockets::open(config, accepting, &inherited, |_| false).map_err(locate)?;
        warn_of_left_out(config, &cores, &inherited);
        let metrics = endpoint::bind_for(config).map_err(locate)?;
        stapling::prepare(document, account.as_ref());
        if let Some(account) = &account {
            privileges::become_account(account).map_err(locate)?;
            tracing::info!("now {}", widelane_files::this_user());
        }
        // Nothing above started a thread; everything below may.
        let borrowers = match cores.workers {
            Workers::Beside(scalar) => Some(Arc::new(Borrowers::new(scalar, machine.allowed))),
            Workers::Anywhere | Workers::Pinned(_) => None,
        };
        let environment = &document.environment;
        let crypto = Crypto::start(config, environment, cores.placement, borrowers.clone());
        let crypto = crypto.map_err(locate)?;
        crypto.begin(config.batching.backend);
        let shared = Arc::new(Shared::new(all, crypto, &config.limits));
        let log = open_log(&shared, config).map_err(locate)?;
        let prepared = Prepared::new(document, files, log, &Kept::default(), &shared)?;
        let housekeeping = start_housekeeping()?;
        let names = host_names::look_up(&housekeeping, shared.upstreams.clone(), resolver);
        let run_on = |index: usize| match (&cores.workers, &borrowers) {
            (Workers::Pinned(cpus), _) => cpus.iter().cycle().nth(index).map_or(RunOn::Any, RunOn::Cpu),
            (_, Some(borrowers)) => {
                let rank = index.checked_sub(accepting.regular);
                let lent = borrowers.lent();
                let spare = rank.map(|rank| Spare { lent, rank });
                RunOn::Beside(borrowers.clone(), spare)
            }
            (_, None) => RunOn::Any,
        };
        let workers = (0..all).map(|index| worker::start(index, run_on(index), shared.clone()));
        let workers: io::Result<_> = workers.collect();
        let server = Self {
            shared,
            workers: workers.map_err(ServerError::no_thread("start a worker thread"))?,
            accepting,
            state: Mutex::new(State {
                names,
                checks: None,
                kept: Kept::default(),
                renewal: Renewal::default(),
                document: document.clone(),
                files: fingerprint,
                refused: Refused::default(),
                slots: HashMap::new(),
                next_slot: 0,
                inherited,
            }),
            metrics_address: metrics.as_ref().and_then(|socket| socket.local_addr().ok()),
            housekeeping,
            started: config.clone(),
        };
        let mut state = server.state();
        state.follow_names(&server.shared.upstreams, host_names::all(config), false);
        server.commit(&mut state, prepared, sockets);
        drop(state);
        server.begin_tasks(document, metrics);
        Ok(server)
    }

    /// Checks a configuration as [`Server::start`] does, without binding or serving.
    pub fn check(document: &Document) -> Result<(), ServerError> {
        Self::check_with(document, Resolver::system())
    }

    fn check_with(document: &Document, resolver: Resolver) -> Result<(), ServerError> {
        let config = document.config();
        let locate = |fault| document.locate(fault);
        let files = files::read(config).map_err(locate)?;
        let account = privileges::lookup(config).map_err(locate)?;
        let is_final = account.is_none_or(|account| account.is_current());
        widelane_access_log::check(&config.access_log, is_final)
            .map_err(log_fault)
            .map_err(locate)?;
        let environment = &document.environment;
        let cores = Cores::decide(config, &Machine::here(environment)).map_err(locate)?;
        let crypto = Crypto::start(config, environment, cores.placement, None).map_err(locate)?;
        let shared = Shared::new(1, crypto, &config.limits);
        let log = shared.access_log.same();
        let mut prepared = Prepared::new(document, files, log, &Kept::default(), &shared)?;
        prepared.kept.staples.take_waiting(UnixTime::now());
        shared.set_files(&prepared.sites);
        let hosts = host_names::all(config);
        if !hosts.is_empty() {
            let housekeeping = start_housekeeping()?;
            let names = host_names::look_up(&housekeeping, shared.upstreams.clone(), resolver);
            shared.upstreams.follow(&hosts);
            names.follow(hosts.clone(), false);
            host_names::wait_for(&housekeeping, &shared.upstreams, &hosts, None).map_err(cannot_wait)?;
            let then = "a start would go on, and look it up again";
            host_names::log_missing(document, &shared.upstreams, then);
        }
        Ok(())
    }

    /// The addresses of the listening sockets. Port 0 is replaced by the port that the system
    /// chose.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let state = self.state();
        let mut open: Vec<_> = state.slots.values().map(|slot| (slot.number, slot.address)).collect();
        open.sort_unstable();
        open.into_iter().map(|(_, address)| address).collect()
    }

    /// The address of the metrics endpoint, if there is one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Live connections, over all workers.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Relaxed)
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
        self.reload_unless(document, None)
    }

    /// Reloads as [`Self::reload`] does, but the wait for names, without which the reload fails, ends when `cut_off`
    /// says so.
    pub(crate) fn reload_unless(
        &self,
        document: &Document,
        cut_off: Option<&mut dyn CutOff>,
    ) -> Result<(), ServerError> {
        let mut state = self.state();
        let learned = self.learn_names(&mut state, document, cut_off);
        let reloaded = self.try_reload(&mut state, document, learned, true);
        let fails = reloaded.is_err();
        let of_files = document.is_same(&state.document);
        let refused = Refused {
            configuration: fails && !of_files,
            files: if of_files { fails } else { state.refused.files },
        };
        self.note_reload(&mut state, !fails, refused);
        reloaded
    }

    /// Reads the files of the configuration in use again.
    pub(crate) fn reload_files(&self) -> Result<(), ServerError> {
        let mut state = self.state();
        let document = state.document.clone();
        let reloaded = self.try_reload(&mut state, &document, Ok(()), false);
        let refused = Refused {
            files: reloaded.is_err(),
            ..state.refused
        };
        self.note_reload(&mut state, reloaded.is_ok(), refused);
        reloaded
    }

    /// Takes note of a configuration that cannot be read.
    pub(crate) fn refuse(&self, error: ConfigError) -> ServerError {
        let mut state = self.state();
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
        self.state().document.clone()
    }

    /// Returns whether a new configuration was refused, so that the one in use is not what the operator wants.
    pub(crate) fn has_refused_configuration(&self) -> bool {
        self.state().refused.configuration
    }

    /// State of the files of the configuration in use now, if they have changed since they were
    /// read last.
    pub(crate) fn changed_files(&self) -> Option<Fingerprint> {
        let state = self.state();
        let now = Fingerprint::of(state.document.config());
        (state.files != now).then_some(now)
    }

    /// Stops the server: accepts the connections that already wait in the sockets, closes the
    /// sockets, and cuts the connections that have not ended after `timeout`. Returns how many it
    /// cut.
    pub fn stop(mut self, timeout: Duration) -> usize {
        self.drain(timeout, || false);
        let left = self.shared.connections.load(Relaxed);
        self.abort();
        left
    }

    /// Reloads if the names are `learned`. With `whole`, not only files that have changed are read, but also the log's.
    fn try_reload(
        &self,
        state: &mut State,
        document: &Document,
        learned: Result<(), ServerError>,
        whole: bool,
    ) -> Result<(), ServerError> {
        let reloaded = learned.and_then(|()| self.replace(state, document, whole));
        // The new ones, or those from before if it was refused.
        let wanted = host_names::all(state.document.config());
        state.follow_names(&self.shared.upstreams, wanted, false);
        reloaded
    }

    /// Looks up the names of a new configuration, beside those in use. A name without an address is a
    /// fault here, because the configuration in use may have one.
    fn learn_names(
        &self,
        state: &mut State,
        document: &Document,
        cut_off: Option<&mut dyn CutOff>,
    ) -> Result<(), ServerError> {
        let upstreams = &self.shared.upstreams;
        let before = host_names::all(state.document.config());
        let wanted = host_names::all(document.config());
        let new: BTreeSet<String> = wanted.difference(&before).cloned().collect();
        state.follow_names(upstreams, &wanted | &before, true);
        if !new.is_empty() {
            host_names::wait_for(&self.housekeeping, upstreams, &new, cut_off).map_err(cannot_wait)?;
        }
        match upstreams.without_address(&new).first() {
            Some((host, fault)) => {
                let fault = host_names::fault(document.config(), host, fault);
                Err(ServerError::Config(document.locate(fault)))
            }
            None => Ok(()),
        }
    }

    fn replace(&self, state: &mut State, document: &Document, whole: bool) -> Result<(), ServerError> {
        let config = document.config();
        let locate = |fault| document.locate(fault);
        // From before they are read, so that a change meanwhile is noticed.
        let fingerprint = Fingerprint::of(config);
        if document.is_same(&state.document) {
            // Also if they are refused: they are read again when they have changed again.
            state.files = fingerprint.clone();
        }
        next_start::check(&self.started, config, &document.environment).map_err(locate)?;
        let files = files::read(config).map_err(locate)?;
        if let Some(fault) = files::unread_response(&files) {
            return Err(locate(fault.clone()).into());
        }
        let log = match whole {
            true => open_log(&self.shared, config).map_err(locate)?,
            false => self.shared.access_log.same(),
        };
        let prepared = Prepared::new(document, files, log, &state.kept, &self.shared)?;
        // The last thing that can fail: no client waits at a socket that is closed again.
        let is_open = |name: &SlotName| state.slots.contains_key(name);
        let sockets = sockets::open(config, self.accepting, &state.inherited, is_open);
        let sockets = sockets.map_err(locate)?;
        self.commit(state, prepared, sockets);
        state.files = fingerprint;
        for key in next_start::keys_changed(&self.started, config) {
            tracing::warn!("`{key}` has changed; the change takes effect at the next start");
        }
        Ok(())
    }

    /// Uses a configuration from now on, with these sockets for its new addresses. Cannot fail.
    fn commit(&self, state: &mut State, prepared: Prepared, mut sockets: HashMap<SlotName, Sockets>) {
        let Prepared {
            document,
            sites,
            mut kept,
            log,
        } = prepared;
        let config = document.config();
        // Before the certificates to which they belong: one that demands a response is never without it.
        kept.staples.take_waiting(UnixTime::now());
        let mut before = std::mem::take(&mut state.slots);
        for place in sockets::places(config) {
            let site = sites[place.listener].clone();
            if let Some(slot) = before.remove(&place.name) {
                slot.site.store(site);
                state.slots.insert(place.name, slot);
            } else if let Some(sockets) = sockets.remove(&place.name) {
                let workers = self.workers.len();
                tracing::info!(address = %sockets.bound, workers, "listening");
                state.open(&self.workers, place.name, site, sockets);
            }
        }
        for slot in before.into_values() {
            tracing::info!(address = %slot.address, "no longer listening");
            if state.inherited.has(&slot.address) {
                tracing::warn!(
                    address = %slot.address,
                    "the service manager holds this socket: clients wait there until its socket unit is changed and \
                     restarted",
                );
            }
            for worker in &self.workers {
                let _ = worker.commands.send(Command::Close { slot: slot.clone() });
            }
        }
        self.shared.access_log.adopt(log);
        self.shared.ticket_keys.send_replace(kept.keys.all());
        kept.keys.succeed(std::mem::take(&mut state.kept.keys));
        state.kept = kept;
        let store = stapling::store(&document);
        let wanted = state.kept.staples.wanted();
        if let Some(mut work) = state.renewal.follow(wanted, store.as_ref()) {
            let renew = async move || work.run().await;
            self.housekeeping.run("the renewal of OCSP responses", renew);
        }
        match (config.has_checks(), state.checks.is_some()) {
            (true, false) => {
                let upstreams = self.shared.upstreams.clone();
                let check = async move || checks::run(&upstreams).await;
                state.checks = Some(self.housekeeping.run("checks of backends", check));
            }
            (false, _) => state.end_checks(),
            (true, true) => {}
        }
        state.document = document;
        self.shared.set_files(&sites);
    }

    /// Begins the tasks that last as long as the server.
    fn begin_tasks(&self, document: &Document, metrics: Option<TcpListener>) {
        let (document, shared) = (document.clone(), self.shared.clone());
        let keys = shared.ticket_keys.subscribe();
        self.housekeeping
            .run("ticket keys", async move || roll_in_time(keys.clone()).await);
        let upstreams = shared.upstreams.clone();
        let later = async move || host_names::log_missing_later(&document, &upstreams).await;
        self.housekeeping.run("first answers about names", later);
        if let Some(socket) = metrics {
            let serve = async move || endpoint::serve(&socket, &shared).await;
            self.housekeeping.run("metrics", serve);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_reload(&self, state: &mut State, ok: bool, refused: Refused) {
        let counter = match ok {
            true => &self.shared.reloads_ok,
            false => &self.shared.reloads_failed,
        };
        counter.fetch_add(1, Relaxed);
        state.refused = refused;
        self.shared.is_current.store(refused == Refused::default(), Relaxed);
    }

    /// Accepts the connections that already wait in the sockets, closes the sockets, and waits until all connections
    /// have ended, `timeout` is over, or `is_to_end` says so.
    pub(crate) fn drain(&self, timeout: Duration, mut is_to_end: impl FnMut() -> bool) {
        self.shared.draining.store(true, Relaxed);
        let mut state = self.state();
        state.end_checks();
        // Each descriptor of a socket keeps it open.
        state.inherited = Inherited::default();
        drop(state);
        for worker in &self.workers {
            let _ = worker.commands.send(Command::Drain);
        }
        let deadline = Instant::now() + timeout;
        let has_ended = || self.workers.iter().all(|worker| worker.thread.is_finished());
        while !has_ended() && Instant::now() < deadline && !is_to_end() {
            std::thread::sleep(DRAIN_LOOK);
        }
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
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.abort();
    }
}

/// The part of a server that a reload changes.
#[derive(Debug)]
struct State {
    names: Names,
    checks: Option<Task>,
    kept: Kept,
    renewal: Renewal,
    /// The configuration in use.
    document: Document,
    /// State of its files, as they were before they were read last, with success or without.
    files: Fingerprint,
    refused: Refused,
    slots: HashMap<SlotName, Arc<Slot>>,
    next_slot: usize,
    inherited: Inherited,
}

/// Refused changes, which the operator wants and which are not in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Refused {
    /// A new configuration. Files that have become good do not change that.
    configuration: bool,
    /// New files of the configuration in use.
    files: bool,
}

impl State {
    /// Has these names looked up from now on, and no others.
    fn follow_names(&mut self, upstreams: &Upstreams, hosts: BTreeSet<String>, anew: bool) {
        upstreams.follow(&hosts);
        self.names.follow(hosts, anew);
    }

    fn end_checks(&mut self) {
        if let Some(checks) = self.checks.take() {
            checks.end();
        }
    }

    fn open(&mut self, workers: &[Worker], name: SlotName, site: Arc<Site>, sockets: Sockets) {
        let slot = Arc::new(Slot {
            number: self.next_slot,
            address: sockets.bound,
            site: ArcSwap::new(site),
        });
        self.next_slot += 1;
        for (worker, sockets) in workers.iter().zip(sockets.of_workers) {
            for socket in sockets {
                let _ = worker.commands.send(Command::Listen {
                    socket,
                    slot: slot.clone(),
                });
            }
        }
        self.slots.insert(name, slot);
    }
}

/// Warns of CPUs and sockets that are named or passed and not used.
fn warn_of_left_out(config: &Config, cores: &Cores, inherited: &Inherited) {
    let left_out = |key, named: &Cpus, used: &Cpus| {
        if !named.is_empty() && !used.is_empty() && used != named {
            tracing::warn!(cpus = %used, "of the CPUs in `{key}`, this process may use these only");
        }
    };
    if let Workers::Pinned(cpus) = &cores.workers {
        left_out("cpus", &config.cpus, cpus);
    }
    let vector = cores.placement.vector_cores();
    left_out("vector_cpus", &config.batching.vector_cpus, &vector);
    if !vector.is_empty() {
        tracing::info!(cpus = %vector, "vector cores");
    }
    let places = sockets::places(config);
    for address in inherited.addresses() {
        if !places.iter().any(|place| place.name.0 == *address) {
            tracing::warn!(%address, "no listener uses this socket of the service manager");
        }
    }
}

fn open_log(shared: &Shared, config: &Config) -> Result<PreparedLog, Fault> {
    let log = shared.access_log.prepare(&config.access_log, config.access_log_format);
    log.map_err(log_fault)
}

fn log_fault(error: LogError) -> Fault {
    let fault = Fault::new("access_log", error.problem, error.remedy);
    match error.source {
        Some(source) => fault.because_of(&source),
        None => fault,
    }
}

fn start_housekeeping() -> Result<Housekeeping, ServerError> {
    Housekeeping::start().map_err(ServerError::no_thread("start the housekeeping thread"))
}

fn cannot_wait(source: io::Error) -> ServerError {
    ServerError::cannot("wait for lookups of host names")(source)
}

/// Time between two looks of a server that stops at whether all connections have ended.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Write};
    use std::num::NonZeroUsize;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::net::UnixStream;

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
            let slot = state.slots.values().next().unwrap();
            slot.site.load_full()
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

    /// Cuts a wait off when a lookup has begun.
    struct Asked(UnixStream);

    impl CutOff for Asked {
        fn event(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        fn is_cut_off(&mut self) -> bool {
            self.0.read(&mut [0]).is_ok()
        }
    }

    /// A lookup cannot be cut off: the reload, the server and this process go on without it.
    #[test]
    fn a_reload_that_is_cut_off_and_a_stop_do_not_wait_for_a_lookup() {
        let directory = TempDir::new().unwrap();
        let mut config = config_in(&directory);
        let document = |config: &Config| Document::from_flags(config.clone()).unwrap();
        let (question, asked) = UnixStream::pair().unwrap();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = Mutex::new(released);
        let resolver = Resolver::new(move |_| {
            (&question).write_all(b"?").unwrap();
            let _ = released.lock().unwrap().recv();
            Ok(Vec::new())
        });
        let server = Server::start_with(&document(&config), resolver).unwrap();
        config.listeners[0].backend = vec!["slow.test:1".parse().unwrap()];
        asked.set_nonblocking(true).unwrap();
        let mut cut_off = Asked(asked);
        let error = server
            .reload_unless(&document(&config), Some(&mut cut_off))
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
}
