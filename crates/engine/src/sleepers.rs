//! Protocol by which vector cores go to sleep, are lent, and wake up, without missing a job.
//!
//! ```text
//! awake ──sleep──> resting ──rest is over──> lent
//!   ^                 │                        │
//!   └──────woken──────┴──woken, then reclaimed─┘
//! ```
//!
//! Producer: publish the job; fence; if no core searches and one sleeps, ask the policy which core
//! to wake. Consumer: announce that it sleeps and no longer searches; fence; look once more; sleep.
//! The two fences have one total order, so the producer sees the sleeper or the sleeper sees the
//! job. The step from *resting* to *lent* is a single store of the same word, so no producer can
//! mistake such a core for one that is awake.
//!
//! A woken core counts as searching from the moment it is chosen, so a burst of jobs does not wake
//! all cores for its first job. In return, the last searching core that finds work looks again
//! (after a fence) and wakes another core if enough work is left.
//!
//! A core lends and reclaims its CPU on its own thread. So the two alternate, and no pass can run
//! between them. If a core is woken while it lends its CPU, it reclaims the CPU right afterwards.

use std::sync::Arc;
use std::time::{Duration, Instant};

use widelane_batching::{self as batching, Clock, Idleness, Sleeper, VectorCores};

use crate::counters::nanoseconds;
use crate::lending::{CoreLending, Lender, VectorCoreCounters};
use crate::sync::{AtomicUsize, Mutex, Ordering, Parker, fence, lock};

/// The idle vector cores of one engine.
pub(crate) struct Sleepers {
    /// All vector cores.
    cores: usize,
    /// Cores that are awake and look for work.
    searching: AtomicUsize,
    /// The [`Count`] of `asleep`, readable without the lock.
    count: AtomicUsize,
    asleep: Mutex<Vec<Asleep>>,
    lender: Option<Lender>,
}

/// One vector core, on its own thread.
pub(crate) struct Core {
    cpu: usize,
    parker: Arc<Parker>,
    idleness: Idleness,
}

struct Asleep {
    parker: Arc<Parker>,
    lent: bool,
}

/// Number of cores that sleep, packed into one word.
#[derive(Clone, Copy)]
struct Count {
    resting: usize,
    lent: usize,
}

/// Next step of a sleeping core.
enum Rest {
    /// Rests for this time.
    Continues(Duration),
    /// Ends its rest: the core was chosen, and is about to be unparked.
    Interrupted,
    /// Ends its rest and lends its CPU.
    Over,
}

impl Core {
    /// For the calling thread, which runs passes on `cpu`.
    pub(crate) fn new(cpu: usize, lending: Option<&CoreLending>, clock: &Clock) -> Self {
        let rest = lending.and_then(|lending| lending.rest);
        let rest = rest.map_or_else(|| batching::usual_rest(clock), nanoseconds);
        Self {
            cpu,
            parker: Arc::new(Parker::new()),
            idleness: Idleness::new(rest, clock),
        }
    }

    /// The core ran passes for this time.
    pub(crate) fn worked(&mut self, busy: Duration) {
        self.idleness.worked(nanoseconds(busy));
    }
}

impl Sleepers {
    /// For this number of cores, all awake and not yet searching.
    pub(crate) fn new(cores: usize, lending: Option<&CoreLending>) -> Self {
        Self {
            cores,
            searching: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            asleep: Mutex::new(Vec::new()),
            lender: lending.map(|lending| Lender::new(Arc::clone(&lending.to))),
        }
    }

    /// Called after a job was published; `passes` counts the passes that wait.
    pub(crate) fn notify(&self, passes: impl Fn() -> usize) {
        fence(Ordering::SeqCst);
        // A core that rested a moment ago may be lent now: then the policy decides again.
        while let Some(sleeper) = batching::wake(&self.view(), &passes) {
            if self.wake_one(sleeper) {
                break;
            }
        }
    }

    /// Wakes all cores, so that they see that the engine closes. Called after that was published.
    pub(crate) fn wake_all(&self) {
        fence(Ordering::SeqCst);
        let woken = {
            let mut asleep = lock(&self.asleep);
            let woken = std::mem::take(&mut *asleep);
            self.publish(&asleep);
            self.searching.fetch_add(woken.len(), Ordering::Relaxed);
            woken
        };
        for core in woken {
            core.parker.unpark();
        }
    }

    /// A core starts to search.
    pub(crate) fn start_searching(&self) {
        self.searching.fetch_add(1, Ordering::Relaxed);
    }

    /// A searching core found work and is about to run it; `passes` counts the passes that are
    /// left.
    pub(crate) fn found(&self, passes: impl Fn() -> usize) {
        self.stop_searching();
        fence(Ordering::SeqCst);
        if self.count().all() > 0 && passes() > 0 {
            self.notify(passes);
        }
    }

    /// Puts a searching core to sleep until it is woken, unless `stay_awake` says no after the core
    /// was announced as asleep. When this returns, the core searches again and owns its CPU.
    pub(crate) fn sleep(&self, core: &mut Core, stay_awake: impl Fn() -> bool) {
        {
            let mut asleep = lock(&self.asleep);
            asleep.push(Asleep {
                parker: Arc::clone(&core.parker),
                lent: false,
            });
            self.publish(&asleep);
        }
        self.stop_searching();
        fence(Ordering::SeqCst);
        if stay_awake() && self.withdraw(core) {
            self.start_searching();
            return;
        }
        // The thread that takes the core off the list counts it as searching and unparks it.
        match &self.lender {
            None => core.parker.park(),
            Some(lender) => self.rest(core, lender),
        }
    }

    /// Number of cores, and of their loans.
    pub(crate) fn counters(&self) -> VectorCoreCounters {
        match &self.lender {
            Some(lender) => lender.counters(self.cores),
            None => VectorCoreCounters {
                active: self.cores,
                ..VectorCoreCounters::default()
            },
        }
    }

    fn rest(&self, core: &mut Core, lender: &Lender) {
        let fell_asleep = Instant::now();
        let interrupted = loop {
            match self.rest_left(core, fell_asleep.elapsed()) {
                Rest::Continues(time) if core.parker.park_timeout(time) => break true,
                Rest::Continues(_) => {}
                Rest::Interrupted => {
                    core.parker.park();
                    break true;
                }
                Rest::Over => break false,
            }
        };
        if interrupted {
            core.idleness.slept(nanoseconds(fell_asleep.elapsed()));
            return;
        }
        lender.lend(core.cpu);
        let lent_at = Instant::now();
        core.parker.park();
        lender.reclaim(core.cpu);
        core.idleness.reclaimed(nanoseconds(lent_at.elapsed()));
    }

    /// Counts a resting core as lent if the policy says that its rest is over.
    fn rest_left(&self, core: &Core, slept: Duration) -> Rest {
        let mut asleep = lock(&self.asleep);
        let Some(place) = place_of(core, &asleep) else {
            return Rest::Interrupted;
        };
        let spare = self.view().has_spare();
        match core.idleness.rest_left(nanoseconds(slept), spare) {
            0 => {
                asleep[place].lent = true;
                self.publish(&asleep);
                Rest::Over
            }
            left => Rest::Continues(Duration::from_nanos(left)),
        }
    }

    /// The state for the policy. Only the numbers of sleepers are of one moment.
    fn view(&self) -> VectorCores {
        let searching = self.searching.load(Ordering::Relaxed);
        let count = self.count();
        VectorCores {
            searching,
            busy: self.cores.saturating_sub(searching + count.all()),
            resting: count.resting,
            lent: count.lent,
        }
    }

    fn count(&self) -> Count {
        Count::unpacked(self.count.load(Ordering::Relaxed))
    }

    fn publish(&self, asleep: &[Asleep]) {
        let lent = asleep.iter().filter(|core| core.lent).count();
        let count = Count {
            resting: asleep.len() - lent,
            lent,
        };
        self.count.store(count.packed(), Ordering::Relaxed);
    }

    fn stop_searching(&self) {
        let before = self.searching.fetch_sub(1, Ordering::Relaxed);
        debug_assert_ne!(before, 0, "a core stopped searching that had not started");
    }

    /// Takes a core off the list; false if another thread did and is waking it.
    fn withdraw(&self, core: &Core) -> bool {
        let mut asleep = lock(&self.asleep);
        let place = place_of(core, &asleep);
        if let Some(place) = place {
            asleep.swap_remove(place);
            self.publish(&asleep);
        }
        place.is_some()
    }

    /// Wakes a resting core, or else a lent one if `sleeper` asks for it; false if there is none
    /// any more.
    fn wake_one(&self, sleeper: Sleeper) -> bool {
        let woken = {
            let mut asleep = lock(&self.asleep);
            // The core with the shortest sleep has the warmest caches.
            let place = match asleep.iter().rposition(|core| !core.lent) {
                None if sleeper == Sleeper::Lent => asleep.len().checked_sub(1),
                resting => resting,
            };
            let Some(place) = place else {
                return false;
            };
            let woken = asleep.remove(place);
            self.publish(&asleep);
            self.searching.fetch_add(1, Ordering::Relaxed);
            woken
        };
        woken.parker.unpark();
        true
    }
}

impl Count {
    fn packed(self) -> usize {
        self.lent << HALF | self.resting
    }

    fn unpacked(word: usize) -> Self {
        Self {
            resting: word & ((1 << HALF) - 1),
            lent: word >> HALF,
        }
    }

    fn all(self) -> usize {
        self.resting + self.lent
    }
}

fn place_of(core: &Core, asleep: &[Asleep]) -> Option<usize> {
    let is_it = |other: &Asleep| Arc::ptr_eq(&other.parker, &core.parker);
    asleep.iter().position(is_it)
}

/// Bits of a word for each of two numbers.
const HALF: u32 = usize::BITS / 2;
