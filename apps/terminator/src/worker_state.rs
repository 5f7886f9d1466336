//! State that the connections of one worker share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::back::pace::{MOST_READ, PLAIN_BYTES};
use crate::buffer::Buffer;
use crate::front::gate::Gate;
use crate::front::idle_queue::IdleQueue;
use crate::front::read_ahead::ReadAhead;
use crate::handshaker::Handshaker;
use crate::observe::log_limiter::LogLimiter;
use crate::observe::stats::Stats;
use crate::shared::Shared;
use crate::turn::Probe;

/// State that the connections of one worker share, on its thread only.
pub(crate) struct WorkerState {
    pub(crate) handshaker: Handshaker,
    /// All reads of sockets go in here; it is free again at the end of a poll.
    pub(crate) scratch: RefCell<Buffer>,
    /// Decrypted bytes on their way to a backend, within one poll.
    pub(crate) plain: RefCell<Buffer>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) read_ahead: ReadAhead,
    pub(crate) probe: Probe,
    /// Connections that can make room for others.
    pub(crate) idle: Rc<IdleQueue>,
    /// The place where handshakes wait for their turn.
    pub(crate) gate: Rc<Gate>,
    /// Backends and load balancers that fail: an outage must not flood the log. The metrics count each case.
    pub(crate) outages: LogLimiter,
    /// Clients that were refused for their certificates.
    pub(crate) certificates: LogLimiter,
    /// Index of the worker.
    pub(crate) index: usize,
    /// Counts searches for a backend, so that equal addresses are taken in turn.
    turn: Cell<usize>,
    pub(crate) live: Cell<usize>,
    pub(crate) emptied: Notify,
    /// The most tasks since memory was last given back.
    pub(crate) peak: Cell<usize>,
    /// Signals that half of that many have ended.
    pub(crate) shrunk: Notify,
}

impl WorkerState {
    pub(crate) fn new(shared: &Shared, index: usize) -> Self {
        let stats = &shared.stats[index];
        Self {
            handshaker: Handshaker::new(&shared.crypto),
            scratch: RefCell::new(Buffer::for_plaintext(MOST_READ)),
            plain: RefCell::new(Buffer::for_decrypted(PLAIN_BYTES)),
            stats: stats.clone(),
            read_ahead: ReadAhead::default(),
            probe: Probe::default(),
            idle: Rc::default(),
            gate: Gate::new(
                shared.handshake_wait,
                shared.most_patient,
                shared.crypto.together(),
                stats.clone(),
            ),
            outages: LogLimiter::default(),
            certificates: LogLimiter::default(),
            index,
            turn: Cell::new(index),
            live: Cell::new(0),
            emptied: Notify::new(),
            peak: Cell::new(0),
            shrunk: Notify::new(),
        }
    }

    pub(crate) fn next_turn(&self) -> usize {
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        turn
    }
}

/// A task that keeps its worker from ending.
pub(crate) struct Alive(pub(crate) Rc<WorkerState>);

impl Alive {
    pub(crate) fn new(worker: &Rc<WorkerState>) -> Self {
        let live = worker.live.get() + 1;
        worker.live.set(live);
        worker.peak.set(worker.peak.get().max(live));
        Self(worker.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        let live = self.0.live.get() - 1;
        self.0.live.set(live);
        if live == 0 {
            self.0.emptied.notify_one();
        }
        let peak = self.0.peak.get();
        if peak >= MANY && live <= peak / 2 {
            self.0.peak.set(live);
            self.0.shrunk.notify_one();
        }
    }
}

/// Fewer connections leave too little memory to care about: 10 kB each.
const MANY: usize = 128;
