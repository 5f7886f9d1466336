//! What the connections of one worker share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::back::pace::{MOST_READ, PLAIN_BYTES};
use crate::buffer::Buffer;
use crate::front::evictable::Evictable;
use crate::front::gate::Gate;
use crate::front::nearby::Nearby;
use crate::handshaker::Handshaker;
use crate::observe::complaints::Complaints;
use crate::observe::stats::Stats;
use crate::shared::Shared;
use crate::turn::Probe;

/// What the connections of one worker share, on its thread only.
pub(crate) struct Local {
    pub(crate) handshaker: Handshaker,
    /// All reads of sockets go in here; it is free again at the end of a poll.
    pub(crate) scratch: RefCell<Buffer>,
    /// Decrypted bytes on their way to a backend, within one poll.
    pub(crate) plain: RefCell<Buffer>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) nearby: Nearby,
    pub(crate) probe: Probe,
    /// Connections that can make room for others.
    pub(crate) evictable: Rc<Evictable>,
    /// Where handshakes wait for their turn.
    pub(crate) gate: Rc<Gate>,
    /// When this worker last complained about a backend or a load balancer: an outage must not flood
    /// the log.
    complained: Cell<Option<Instant>>,
    /// Clients that were refused for their certificates.
    pub(crate) certificates: Complaints,
    /// Its number.
    pub(crate) worker: usize,
    /// Counts searches for a backend, so that equal addresses are taken in turn.
    turn: Cell<usize>,
    pub(crate) live: Cell<usize>,
    pub(crate) emptied: Notify,
    /// As many tasks as there were since memory was last given back.
    pub(crate) peak: Cell<usize>,
    /// Half of that many have ended.
    pub(crate) shrunk: Notify,
}

impl Local {
    pub(crate) fn new(shared: &Shared, worker: usize) -> Self {
        let stats = &shared.stats[worker];
        Self {
            handshaker: Handshaker::new(&shared.crypto),
            scratch: RefCell::new(Buffer::for_plaintext(MOST_READ)),
            plain: RefCell::new(Buffer::for_decrypted(PLAIN_BYTES)),
            stats: stats.clone(),
            nearby: Nearby::new(),
            probe: Probe::default(),
            evictable: Rc::default(),
            gate: Gate::new(
                shared.handshake_wait,
                shared.most_patient,
                shared.crypto.together(),
                stats.clone(),
            ),
            complained: Cell::new(None),
            certificates: Complaints::default(),
            worker,
            turn: Cell::new(worker),
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

    /// Whether a complaint about other programs may be logged: at most one a second. The metrics count
    /// each case.
    pub(crate) fn may_complain(&self) -> bool {
        let now = Instant::now();
        let before = self.complained.get();
        let may = before.is_none_or(|before| now.duration_since(before) >= COMPLAINT_INTERVAL);
        if may {
            self.complained.set(Some(now));
        }
        may
    }
}

/// A task that keeps its worker from ending.
pub(crate) struct Alive(pub(crate) Rc<Local>);

impl Alive {
    pub(crate) fn new(local: &Rc<Local>) -> Self {
        let live = local.live.get() + 1;
        local.live.set(live);
        local.peak.set(local.peak.get().max(live));
        Self(local.clone())
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
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(1);
