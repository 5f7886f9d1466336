//! State that the threads of a server share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls_pki_types::UnixTime;
use tokio::sync::watch;
use widelane_access_log::AccessLog;

use crate::back::pool::Upstreams;
use crate::config::Limits;
use crate::crypto::Crypto;
use crate::front::site::Site;
use crate::front::sources::Sources;
use crate::material::in_use::FilesInUse;
use crate::material::resumption::Keys;
use crate::observe::stats::Stats;

/// State that all threads of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) stats: Vec<Arc<Stats>>,
    pub(crate) crypto: Crypto,
    /// Longest wait of handshakes for their worker in calm; zero: there is no defence against overload.
    pub(crate) handshake_wait: Duration,
    /// The longest time for which a client may wait.
    pub(crate) most_patient: Duration,
    pub(crate) reloads_ok: AtomicU64,
    pub(crate) reloads_failed: AtomicU64,
    /// The configuration in use is the one that was given last, with the files of now.
    pub(crate) is_current: AtomicBool,
    pub(crate) connections: AtomicUsize,
    pub(crate) handshakes: AtomicUsize,
    pub(crate) sources: Sources,
    pub(crate) access_log: AccessLog,
    pub(crate) upstreams: Arc<Upstreams>,
    /// Gives free memory of the calling thread back to the system.
    pub(crate) give_back_memory: OnceLock<fn()>,
    pub(crate) draining: AtomicBool,
    /// Keys in use, for the task that rolls them.
    pub(crate) ticket_keys: watch::Sender<Vec<Arc<Keys>>>,
    /// Files of all sites.
    pub(crate) files: ArcSwap<FilesInUse>,
}

impl Shared {
    pub(crate) fn new(workers: usize, crypto: Crypto, limits: &Limits) -> Self {
        Self {
            handshake_wait: limits.handshake_wait,
            most_patient: limits.handshake,
            stats: (0..workers).map(|_| Arc::default()).collect(),
            crypto,
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
            files: ArcSwap::default(),
        }
    }

    pub(crate) fn overloaded_workers(&self) -> usize {
        let overloaded = self.stats.iter().filter(|stats| stats.overloaded.load(Relaxed));
        overloaded.count()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// Shows the files of these sites in the metrics, and logs which certificates lack an OCSP response
    /// that they demand.
    pub(crate) fn set_files(&self, sites: &[Arc<Site>]) {
        let files = FilesInUse::of_all(sites.iter().map(|site| &site.files));
        for staple in &files.staples {
            staple.log_unmet_demand(UnixTime::now());
        }
        self.files.store(Arc::new(files));
    }
}
