//! How vector cores go to sleep, are given back, and are woken, without ever missing a job.
//!
//! ```text
//! awake ──sleep──> resting ──rest is over──> given back
//!   ^                 │                           │
//!   └──────woken──────┴────woken, then taken──────┘
//! ```
//!
//! Producer: publish the job; fence; if nobody searches and somebody sleeps, ask the policy whom to
//! wake. Consumer: announce that it sleeps and no longer searches; fence; look once more; sleep.
//! The two fences are in one total order, so either the producer sees the sleeper or the sleeper
//! sees the job. Going on from *resting* to *given back* is a single store of the same word, so
//! that nobody can take such a core for one that is awake.
//!
//! A woken core counts as searching from the moment it is chosen, so that a burst of jobs does not
//! wake every core for the first one. In return, the last searching core that finds work looks
//! again (behind a fence) and calls for another core if it leaves enough behind.
//!
//! A core gives and takes its CPU itself, on its own thread: so the two alternate, and no pass can
//! come between them. It may be woken while it gives; then it takes right afterwards.

use std::sync::Arc;
use std::time::{Duration, Instant};

use widelane_batching::{self as batching, Clock, Idleness, Sleeper, VectorCores};

use crate::counters::nanoseconds;
use crate::sync::{AtomicUsize, Mutex, Ordering, Parker, fence, lock};
use crate::tenancy::Landlord;
use crate::{GiveBack, VectorCoreCounters};

/// The idle vector cores of one engine.
pub(crate) struct Sleepers {
    /// All vector cores.
    cores: usize,
    /// Cores that are awake and look for work.
    searching: AtomicUsize,
    /// The [`Count`] of `asleep`, readable without the lock.
    count: AtomicUsize,
    asleep: Mutex<Vec<Asleep>>,
    landlord: Option<Landlord>,
}

/// One vector core, on its own thread.
pub(crate) struct Core {
    cpu: usize,
    parker: Arc<Parker>,
    idleness: Idleness,
}

struct Asleep {
    parker: Arc<Parker>,
    given_back: bool,
}

/// How many sleep, packed into one word.
#[derive(Clone, Copy)]
struct Count {
    resting: usize,
    given_back: usize,
}

/// What a core finds when it has slept for some time.
enum Rest {
    /// For so much longer.
    Goes(Duration),
    /// It has been chosen, and is about to be unparked.
    IsDisturbed,
    /// The core is given back.
    IsOver,
}

impl Core {
    /// For the calling thread, which runs passes on `cpu`.
    pub(crate) fn new(cpu: usize, give_back: Option<&GiveBack>, clock: &Clock) -> Self {
        let rest = give_back.and_then(|give_back| give_back.rest);
        let rest = rest.map_or_else(|| batching::usual_rest(clock), nanoseconds);
        Self {
            cpu,
            parker: Arc::new(Parker::new()),
            idleness: Idleness::new(rest, clock),
        }
    }

    /// It ran passes for so long.
    pub(crate) fn worked(&mut self, busy: Duration) {
        self.idleness.worked(nanoseconds(busy));
    }
}

impl Sleepers {
    /// For so many cores, all awake and not yet searching.
    pub(crate) fn new(cores: usize, give_back: Option<&GiveBack>) -> Self {
        Self {
            cores,
            searching: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            asleep: Mutex::new(Vec::new()),
            landlord: give_back.map(|give_back| Landlord::new(Arc::clone(&give_back.to))),
        }
    }

    /// Called after a job was published; `passes` counts the passes that wait.
    pub(crate) fn notify(&self, passes: impl Fn() -> usize) {
        fence(Ordering::SeqCst);
        // A core that was seen to rest may have been given back since: then the policy decides
        // anew.
        while let Some(sleeper) = batching::wake(&self.view(), &passes) {
            if self.wake_one(sleeper) {
                break;
            }
        }
    }

    /// Wakes every core, to let it see that the engine closes. Called after that was published.
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

    /// A searching core found work and is about to run it; `passes` counts the passes that it left
    /// behind.
    pub(crate) fn found(&self, passes: impl Fn() -> usize) {
        self.stop_searching();
        fence(Ordering::SeqCst);
        if self.count().all() > 0 && passes() > 0 {
            self.notify(passes);
        }
    }

    /// Puts a searching core to sleep until it is woken, unless `stay_awake` finds a reason not
    /// to once the core has been announced as asleep. It searches again, and its CPU is its own,
    /// when this returns.
    pub(crate) fn sleep(&self, core: &mut Core, stay_awake: impl Fn() -> bool) {
        {
            let mut asleep = lock(&self.asleep);
            asleep.push(Asleep {
                parker: Arc::clone(&core.parker),
                given_back: false,
            });
            self.publish(&asleep);
        }
        self.stop_searching();
        fence(Ordering::SeqCst);
        if stay_awake() && self.withdraw(core) {
            self.start_searching();
            return;
        }
        // Whoever takes the core off the list counts it as searching, and unparks it.
        match &self.landlord {
            None => core.parker.park(),
            Some(landlord) => self.rest(core, landlord),
        }
    }

    /// How many cores there are, and what became of them.
    pub(crate) fn counters(&self) -> VectorCoreCounters {
        match &self.landlord {
            Some(landlord) => landlord.counters(self.cores),
            None => VectorCoreCounters {
                active: self.cores,
                ..VectorCoreCounters::default()
            },
        }
    }

    fn rest(&self, core: &mut Core, landlord: &Landlord) {
        let fell_asleep = Instant::now();
        let disturbed = loop {
            match self.rest_left(core, fell_asleep.elapsed()) {
                Rest::Goes(time) if core.parker.park_timeout(time) => break true,
                Rest::Goes(_) => {}
                Rest::IsDisturbed => {
                    core.parker.park();
                    break true;
                }
                Rest::IsOver => break false,
            }
        };
        if disturbed {
            core.idleness.slept(nanoseconds(fell_asleep.elapsed()));
            return;
        }
        landlord.give(core.cpu);
        let given_back = Instant::now();
        core.parker.park();
        landlord.take(core.cpu);
        core.idleness.taken(nanoseconds(given_back.elapsed()));
    }

    /// Counts a resting core as given back if the policy says that its rest is over.
    fn rest_left(&self, core: &Core, slept: Duration) -> Rest {
        let mut asleep = lock(&self.asleep);
        let Some(place) = place_of(core, &asleep) else {
            return Rest::IsDisturbed;
        };
        let spare = self.view().has_spare();
        match core.idleness.rest_left(nanoseconds(slept), spare) {
            0 => {
                asleep[place].given_back = true;
                self.publish(&asleep);
                Rest::IsOver
            }
            left => Rest::Goes(Duration::from_nanos(left)),
        }
    }

    /// What the policy needs to know. Only the numbers of sleepers are of one moment.
    fn view(&self) -> VectorCores {
        let searching = self.searching.load(Ordering::Relaxed);
        let count = self.count();
        VectorCores {
            searching,
            busy: self.cores.saturating_sub(searching + count.all()),
            resting: count.resting,
            given_back: count.given_back,
        }
    }

    fn count(&self) -> Count {
        Count::unpacked(self.count.load(Ordering::Relaxed))
    }

    fn publish(&self, asleep: &[Asleep]) {
        let given_back = asleep.iter().filter(|core| core.given_back).count();
        let count = Count {
            resting: asleep.len() - given_back,
            given_back,
        };
        self.count.store(count.packed(), Ordering::Relaxed);
    }

    fn stop_searching(&self) {
        let before = self.searching.fetch_sub(1, Ordering::Relaxed);
        debug_assert_ne!(before, 0, "a core stopped searching that had not started");
    }

    /// Takes a core off the list again; false if somebody else did and is waking it.
    fn withdraw(&self, core: &Core) -> bool {
        let mut asleep = lock(&self.asleep);
        let place = place_of(core, &asleep);
        if let Some(place) = place {
            asleep.swap_remove(place);
            self.publish(&asleep);
        }
        place.is_some()
    }

    /// Wakes one that rests, or else one that was given back, if that was asked for; false if there
    /// is none any more.
    fn wake_one(&self, sleeper: Sleeper) -> bool {
        let woken = {
            let mut asleep = lock(&self.asleep);
            // The one that slept least has the warmest caches.
            let place = match asleep.iter().rposition(|core| !core.given_back) {
                None if sleeper == Sleeper::GivenBack => asleep.len().checked_sub(1),
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
        self.given_back << HALF | self.resting
    }

    fn unpacked(word: usize) -> Self {
        Self {
            resting: word & ((1 << HALF) - 1),
            given_back: word >> HALF,
        }
    }

    fn all(self) -> usize {
        self.resting + self.given_back
    }
}

fn place_of(core: &Core, asleep: &[Asleep]) -> Option<usize> {
    let is_it = |other: &Asleep| Arc::ptr_eq(&other.parker, &core.parker);
    asleep.iter().position(is_it)
}

/// Bits of a word for one of two numbers.
const HALF: u32 = usize::BITS / 2;
