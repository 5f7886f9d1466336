//! Batches the client's own public-key operations.
//!
//! Without batching, the generator would be slower than a server that batches. With several
//! connections in flight, each step of a handshake runs on its own small stack
//! (`widelane_rustls`). The step is suspended until its operations run in one pass with those of
//! other connections.

use crate::error::LoadError;
use rustls::crypto::CryptoProvider;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use widelane_engine::{Config, Engine};
use widelane_rustls::{Driver, Turns};

/// The engine that the threads of a run share. Dropping it ends the engine.
pub(crate) struct Batching {
    engine: Engine,
    pub(crate) provider: CryptoProvider,
}

impl Batching {
    /// Starts an engine for at most `most` connections in flight.
    pub(crate) fn start(most: usize) -> Result<Self, LoadError> {
        let mut config = Config::default();
        // A connection may have several waiting jobs of one kind: one key share for each group.
        config.queue_limit = config.queue_limit.max(most.saturating_mul(JOBS_EACH));
        let engine = Engine::start(config).map_err(std::io::Error::other);
        let engine = engine.map_err(LoadError::system("start batching"))?;
        // Before the measurement, so that it does not disturb it.
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

/// Submits one thread's operations to the engine.
pub(crate) struct Batcher {
    driver: Rc<Driver>,
    /// Runs one pass, even if it is not full: for when there is nothing else to do.
    pub(crate) turns: Turns,
    woken: Woken,
}

/// Numbers of connections to wake. The lock is rarely contended: inline passes wake connections on the
/// thread that takes the numbers.
type Woken = Arc<Mutex<Vec<u64>>>;

/// Context that a connection needs to suspend a step and to be woken.
#[derive(Clone, Copy)]
pub(crate) struct StepContext<'a> {
    pub(crate) driver: &'a Rc<Driver>,
    pub(crate) waker: &'a Waker,
}

impl Batcher {
    /// Makes a batcher for the calling thread.
    pub(crate) fn new(batching: &Batching) -> Self {
        let driver = Driver::new(&batching.engine);
        Self {
            turns: driver.turns(),
            driver,
            woken: Woken::default(),
        }
    }

    /// Waker of a connection, by the number that [`Batcher::take_woken`] gives.
    pub(crate) fn waker(&self, connection: u64) -> Waker {
        Waker::from(Arc::new(ConnectionWaker(self.woken.clone(), connection)))
    }

    pub(crate) fn context<'a>(&'a self, waker: &'a Waker) -> StepContext<'a> {
        StepContext {
            driver: &self.driver,
            waker,
        }
    }

    /// Returns whether any step is suspended.
    pub(crate) fn is_busy(&self) -> bool {
        self.driver.stacks_in_use() > 0
    }

    /// Puts the numbers of connections that can go on into an empty vector.
    pub(crate) fn take_woken(&self, connections: &mut Vec<u64>) {
        std::mem::swap(connections, &mut *lock(&self.woken));
    }
}

fn lock(woken: &Woken) -> MutexGuard<'_, Vec<u64>> {
    woken.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes one connection, of this number.
struct ConnectionWaker(Woken, u64);

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        lock(&self.0).push(self.1);
    }
}

const JOBS_EACH: usize = 4;
