//! What the threads of a server share.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls_pki_types::UnixTime;
use tokio::sync::watch;

use crate::observe::access_log::{AccessLog, Sink};
use crate::config::{Limits, Network, ProxyVersion};
use crate::material::ocsp::{self, Staple};
use crate::material::resumption::Keys;
use crate::back::routes::Routes;
use crate::signing::SigningSource;
use crate::front::sources::{SourceLimits, Sources};
use crate::observe::stats::Stats;
use crate::material::ticket_key::TicketKey;
use crate::back::upstream::Upstreams;

/// What all threads of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) stats: Vec<Arc<Stats>>,
    pub(crate) signing: SigningSource,
    /// How long handshakes wait for their worker in calm; zero: there is no defence against overload.
    pub(crate) handshake_wait: Duration,
    /// The longest time for which a client may wait.
    pub(crate) most_patient: Duration,
    pub(crate) reloads_ok: AtomicU64,
    pub(crate) reloads_failed: AtomicU64,
    /// Whether the configuration in use is what was given last, with the files of now.
    pub(crate) is_current: AtomicBool,
    pub(crate) connections: AtomicUsize,
    pub(crate) handshakes: AtomicUsize,
    pub(crate) sources: Sources,
    pub(crate) access_log: AccessLog,
    pub(crate) upstreams: Arc<Upstreams>,
    /// Gives free memory of the calling thread back to the system.
    pub(crate) give_back_memory: OnceLock<fn()>,
    pub(crate) draining: AtomicBool,
    /// Those in use, for the worker that rolls them.
    pub(crate) ticket_keys: watch::Sender<Vec<Arc<Keys>>>,
    certificates: ArcSwap<Vec<CertificateNote>>,
    ticket_notes: ArcSwap<Vec<TicketKeyNote>>,
    staple_notes: ArcSwap<Vec<StapleNote>>,
}

/// What is told about a certificate: its file, its names, when it expires.
pub(crate) type CertificateNote = (String, String, i64);

/// A certificate for which OCSP responses are wanted.
#[derive(Clone, Debug)]
pub(crate) struct StapleNote {
    /// The certificate's file.
    pub(crate) file: String,
    /// Whether the certificate itself wants one.
    pub(crate) must: bool,
    /// Whether a responder is asked for it.
    pub(crate) fetched: bool,
    /// `None`: the configuration wants none, or it is not possible.
    pub(crate) staple: Option<Arc<Staple>>,
}

/// Whether a certificate has the response that it demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Also if it demands none.
    Met,
    /// There is none, because its responder has not answered for the first time.
    Awaited,
    Unmet,
}

/// What is told about a ticket key from a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TicketKeyNote {
    pub(crate) file: String,
    pub(crate) name: String,
    /// `encrypts` or `decrypts`.
    pub(crate) role: &'static str,
    /// When the file was written, in seconds since 1970.
    pub(crate) written: i64,
}

/// What new connections of one listener get. Replaced as a whole by a reload.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) tls: Arc<ServerConfig>,
    pub(crate) backends: Routes,
    /// Load balancers that say who their clients are.
    pub(crate) proxies: Vec<Network>,
    /// The header that the backend gets.
    pub(crate) proxy_header: Option<ProxyVersion>,
    /// `backend_speaks_first`.
    pub(crate) speaks_first: bool,
    /// Where their lines go when they end. `None`: they have none.
    pub(crate) access_log: Option<Arc<Sink>>,
    pub(crate) limits: Limits,
    /// `limits.connections`, or what stands for it.
    pub(crate) most_connections: usize,
    /// `limits.source`, with what stands for absent values.
    pub(crate) source: SourceLimits,
    pub(crate) certificates: Vec<CertificateNote>,
    /// Of ticket keys from files. Not the keys: a connection that lives long holds its site, and old
    /// keys are to be erased.
    pub(crate) ticket_keys: Vec<TicketKeyNote>,
    pub(crate) staples: Vec<StapleNote>,
}

/// The place of one listening address, which outlives the sites that fill it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) number: usize,
    pub(crate) address: SocketAddr,
    pub(crate) site: ArcSwap<Site>,
}

impl StapleNote {
    /// Whether clients get a response now.
    pub(crate) fn is_stapled(&self, now: UnixTime) -> bool {
        let staple = self.staple.as_ref();
        staple.is_some_and(|staple| staple.current(now).is_some())
    }

    pub(crate) fn demand(&self, now: UnixTime) -> Demand {
        let asked = self.staple.as_ref().map(|staple| staple.fetches());
        match self.must && !self.is_stapled(now) {
            false => Demand::Met,
            true if self.fetched && asked == Some([0, 0]) => Demand::Awaited,
            true => Demand::Unmet,
        }
    }

    /// Says so if the certificate demands a response and there is none.
    pub(crate) fn complain(&self, now: UnixTime) {
        match self.demand(now) {
            Demand::Met => {}
            Demand::Awaited => tracing::info!(
                certificate = self.file,
                "the certificate demands a stapled OCSP response (must-staple); clients get none until \
                 its responder has answered"
            ),
            Demand::Unmet => ocsp::report_unmet_demand(&self.file),
        }
    }
}

impl Site {
    /// Whether connections from there begin with a PROXY header.
    pub(crate) fn has_proxy(&self, peer: IpAddr) -> bool {
        self.proxies.iter().any(|proxy| proxy.contains(peer))
    }
}

impl Shared {
    pub(crate) fn new(workers: usize, signing: SigningSource, limits: &Limits) -> Self {
        Self {
            handshake_wait: limits.handshake_wait,
            most_patient: limits.handshake,
            stats: (0..workers).map(|_| Arc::default()).collect(),
            signing,
            reloads_ok: AtomicU64::new(0),
            reloads_failed: AtomicU64::new(0),
            is_current: AtomicBool::new(true),
            connections: AtomicUsize::new(0),
            handshakes: AtomicUsize::new(0),
            sources: Sources::new(),
            access_log: AccessLog::default(),
            upstreams: Arc::default(),
            give_back_memory: OnceLock::new(),
            draining: AtomicBool::new(false),
            ticket_keys: watch::Sender::default(),
            certificates: ArcSwap::default(),
            ticket_notes: ArcSwap::default(),
            staple_notes: ArcSwap::default(),
        }
    }

    pub(crate) fn live_connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    pub(crate) fn live_handshakes(&self) -> usize {
        self.handshakes.load(Relaxed)
    }

    pub(crate) fn overloaded_workers(&self) -> usize {
        let overloaded = self
            .stats
            .iter()
            .filter(|stats| stats.overloaded.load(Relaxed));
        overloaded.count()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    pub(crate) fn certificates(&self) -> Vec<CertificateNote> {
        self.certificates.load().as_ref().clone()
    }

    pub(crate) fn ticket_notes(&self) -> Vec<TicketKeyNote> {
        self.ticket_notes.load().as_ref().clone()
    }

    pub(crate) fn staple_notes(&self) -> Arc<Vec<StapleNote>> {
        self.staple_notes.load_full()
    }

    /// Takes note of certificates, ticket keys and OCSP responses for the metrics, and says which
    /// certificates lack a response that they demand.
    pub(crate) fn note_files(&self, sites: &[Arc<Site>]) {
        let mut notes: Vec<_> = sites
            .iter()
            .flat_map(|site| site.certificates.iter().cloned())
            .collect();
        // One file in several listeners is one series.
        notes.sort();
        notes.dedup_by(|one, other| one.0 == other.0);
        self.certificates.store(Arc::new(notes));
        let staples = sites.iter().flat_map(|site| site.staples.iter().cloned());
        let mut notes: Vec<StapleNote> = staples.collect();
        notes.sort_by(|one, other| one.file.cmp(&other.file));
        notes.dedup_by(|one, other| {
            let same = one.file == other.file;
            if same && other.staple.is_none() {
                other.staple = one.staple.take();
            }
            other.fetched |= same && one.fetched;
            same
        });
        for note in &notes {
            note.complain(UnixTime::now());
        }
        self.staple_notes.store(Arc::new(notes));
        let keys = sites
            .iter()
            .flat_map(|site| site.ticket_keys.iter().cloned());
        let mut notes: Vec<_> = keys.collect();
        notes.sort();
        notes.dedup();
        self.ticket_notes.store(Arc::new(notes));
    }
}

/// What is told about the ticket keys of one listener, the one that encrypts first.
pub(crate) fn ticket_key_notes(keys: &[Arc<TicketKey>]) -> Vec<TicketKeyNote> {
    let roles = std::iter::once("encrypts").chain(std::iter::repeat("decrypts"));
    let notes = keys.iter().zip(roles).filter_map(|(key, role)| {
        let source = key.source()?;
        let written = source.written.duration_since(SystemTime::UNIX_EPOCH);
        Some(TicketKeyNote {
            file: source.file.display().to_string(),
            name: key.name(),
            role,
            written: written.map_or(0, |since| {
                i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
            }),
        })
    });
    notes.collect()
}
