//! One address of a backend, with what all workers know of it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustls_pki_types::ServerName;

use crate::back::health::{Health, State};
use crate::back::tls_failure::Handshakes;
use crate::config::Backend;
use crate::observe::log_limiter::LogLimiter;

/// One address of a backend, with what all workers know of it. It is the same for all listeners and
/// routes, and outlives reloads.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) address: Backend,
    /// Moment from which pauses are counted, the same for all addresses.
    began: Instant,
    /// Connections that are open there or being opened.
    pub(super) connections: AtomicUsize,
    pub(super) health: Health,
    pub(super) fails: LogLimiter,
    pub(super) answers: LogLimiter,
    pub(crate) connected: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    /// True if any backend with this address is spoken to in TLS.
    pub(crate) speaks_tls: AtomicBool,
    pub(crate) handshakes: Handshakes,
    /// Connections in sequence that it has broken before it sent a byte.
    broken: AtomicU64,
    /// True if checks have found that it is down. One thread writes it.
    is_down: AtomicBool,
    /// Checks that have succeeded, and that have failed.
    checks: [AtomicU64; 2],
}

impl Upstream {
    pub(super) fn new(address: Backend, began: Instant) -> Self {
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

    /// Milliseconds since the beginning.
    pub(super) fn now(&self) -> u64 {
        whole_milliseconds(self.began.elapsed())
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// Returns whether the last attempt that was counted has reached the address, or there was none. It may be due for
    /// another one.
    pub(crate) fn is_up(&self) -> bool {
        !self.is_down() && self.health.state(self.now()).0 == State::Good
    }
}

/// An address of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(super) upstream: Arc<Upstream>,
    /// Name that its certificate must have, if it has one.
    pub(super) name: Option<ServerName<'static>>,
    /// The host name of which it is an address, as checks say it.
    pub(super) host: Option<String>,
}

impl Deref for Member {
    type Target = Arc<Upstream>;

    fn deref(&self) -> &Arc<Upstream> {
        &self.upstream
    }
}

/// A connection that counts for its address until this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionCount(pub(super) Arc<Upstream>);

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

    /// Returns whether that is logged.
    pub(super) fn broke_at(&self, now: u64) -> bool {
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

    pub(crate) fn address(&self) -> &Backend {
        &self.0.address
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

pub(super) fn whole_milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX >> 8)
}

/// So many connections in sequence that an address has broken leave it out.
pub(super) const MOST_BROKEN: u64 = 10;
