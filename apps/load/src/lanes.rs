//! The client's own public-key operations, several a pass.
//!
//! A generator that derives keys one by one is slower than a server that does not. With several
//! connections in flight, each step of a handshake runs on a small stack of its own and is
//! suspended while its operations gather with those of other connections (`widelane_rustls`).

use crate::error::LoadError;
use crate::slots::Key;
use rustls::crypto::CryptoProvider;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use widelane_engine::{Config, Engine};
use widelane_rustls::{Driver, Turns};

/// What the threads of a run have in common. Dropping it ends the engine.
pub(crate) struct Batching {
    engine: Engine,
    pub(crate) provider: CryptoProvider,
}

impl Batching {
    /// For so many connections in flight.
    pub(crate) fn start(most: usize) -> Result<Self, LoadError> {
        let mut config = Config::default();
        // Every connection may have some jobs of one kind waiting: a share for each group.
        config.queue_limit = config.queue_limit.max(most.saturating_mul(JOBS_EACH));
        let engine = Engine::start(config).map_err(|error| LoadError::System {
            what: "start batching",
            source: std::io::Error::other(error),
        })?;
        // Not beside the handshakes that are measured.
        engine.calibrate();
        let provider = CryptoProvider {
            kx_groups: widelane_rustls::kx_groups(&engine),
            ..widelane_rustls::provider(&engine)
        };
        Ok(Self { engine, provider })
    }
}

impl Drop for Batching {
    fn drop(&mut self) {
        self.engine.shutdown();
    }
}

/// One thread's way to the engine.
pub(crate) struct Lanes {
    driver: Rc<Driver>,
    turns: Turns,
    woken: Arc<Woken>,
    /// By the index of a connection's slot.
    wakers: Vec<Waker>,
}

/// What a connection needs in order to suspend a step.
#[derive(Clone, Copy)]
pub(crate) struct Lane<'a> {
    pub(crate) driver: &'a Rc<Driver>,
    pub(crate) waker: &'a Waker,
}

impl Lanes {
    /// For the calling thread.
    pub(crate) fn new(batching: &Batching) -> Self {
        let driver = Driver::new(&batching.engine);
        Self {
            turns: driver.turns(),
            driver,
            woken: Arc::default(),
            wakers: Vec::new(),
        }
    }

    pub(crate) fn lane(&mut self, key: Key) -> Lane<'_> {
        for index in self.wakers.len()..=key.index() {
            self.wakers.push(Waker::from(Arc::new(Bell {
                woken: Arc::clone(&self.woken),
                index,
            })));
        }
        Lane {
            driver: &self.driver,
            waker: &self.wakers[key.index()],
        }
    }

    /// Whether any step is suspended.
    pub(crate) fn is_busy(&self) -> bool {
        self.driver.stacks_in_use() > 0
    }

    /// Runs one pass, full or not. For when there is nothing else to do.
    pub(crate) fn turn(&self) {
        self.turns.turn();
    }

    /// Indices of the slots whose connections may go on, into an empty vector.
    pub(crate) fn take_woken(&self, indices: &mut Vec<usize>) {
        std::mem::swap(indices, &mut *self.woken.lock());
    }
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lanes").finish_non_exhaustive()
    }
}

/// Hardly ever contended: inline passes wake on the thread that takes.
#[derive(Default)]
struct Woken(Mutex<Vec<usize>>);

impl Woken {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes whatever connection is in one slot; one that has come since is woken in vain.
struct Bell {
    woken: Arc<Woken>,
    index: usize,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.lock().push(self.index);
    }
}

const JOBS_EACH: usize = 4;
