//! How vector cores go to sleep and are woken, without ever missing a job.
//!
//! Producer: publish the job; fence; if nobody searches and somebody is parked, wake one.
//! Consumer: announce that it is parked and no longer searches; fence; look once more; sleep.
//! The two fences are in one total order, so either the producer sees the sleeper or
//! the sleeper sees the job.
//!
//! A woken core counts as searching from the moment it is chosen, so that a burst of jobs does not
//! wake every core for the first one. In return, the last searching core that finds work looks
//! again (behind a fence) and calls for another core if it leaves something behind.

use std::sync::Arc;

use widelane_batching as batching;

use crate::sync::{AtomicUsize, Mutex, Ordering, Parker, fence, lock};

/// The idle vector cores of one engine.
pub(crate) struct Sleepers {
    /// Cores that are awake and look for work.
    searching: AtomicUsize,
    /// Length of `parked`, readable without the lock.
    parked_count: AtomicUsize,
    parked: Mutex<Vec<Arc<Parker>>>,
}

impl Sleepers {
    pub(crate) fn new() -> Self {
        Self {
            searching: AtomicUsize::new(0),
            parked_count: AtomicUsize::new(0),
            parked: Mutex::new(Vec::new()),
        }
    }

    /// Called after a job was published.
    pub(crate) fn notify(&self) {
        fence(Ordering::SeqCst);
        let searching = self.searching.load(Ordering::Relaxed);
        let parked = self.parked_count.load(Ordering::Relaxed);
        if batching::wake(searching, parked) {
            self.wake(1);
        }
    }

    /// Wakes every core, to let it see that the engine closes. Called after that was published.
    pub(crate) fn wake_all(&self) {
        fence(Ordering::SeqCst);
        self.wake(usize::MAX);
    }

    /// A core starts to search.
    pub(crate) fn start_searching(&self) {
        self.searching.fetch_add(1, Ordering::Relaxed);
    }

    /// A searching core found work and is about to run it.
    pub(crate) fn found(&self, work_left: impl Fn() -> bool) {
        self.stop_searching();
        fence(Ordering::SeqCst);
        if self.parked_count.load(Ordering::Relaxed) > 0 && work_left() {
            self.notify();
        }
    }

    /// Puts a searching core to sleep until it is woken, unless `stay_awake` finds a reason not
    /// to once the core has been announced as parked. It searches again when this returns.
    pub(crate) fn sleep(&self, parker: &Arc<Parker>, stay_awake: impl Fn() -> bool) {
        {
            let mut parked = lock(&self.parked);
            parked.push(Arc::clone(parker));
            self.parked_count.store(parked.len(), Ordering::Relaxed);
        }
        self.stop_searching();
        fence(Ordering::SeqCst);
        if stay_awake() && self.withdraw(parker) {
            self.start_searching();
            return;
        }
        // Whoever takes the core off the list counts it as searching, and unparks it.
        parker.park();
    }

    fn stop_searching(&self) {
        let before = self.searching.fetch_sub(1, Ordering::Relaxed);
        debug_assert_ne!(before, 0, "a core stopped searching that had not started");
    }

    /// Takes a core off the list again; false if somebody else did and is waking it.
    fn withdraw(&self, parker: &Arc<Parker>) -> bool {
        let mut parked = lock(&self.parked);
        let place = parked.iter().position(|other| Arc::ptr_eq(other, parker));
        if let Some(place) = place {
            parked.swap_remove(place);
            self.parked_count.store(parked.len(), Ordering::Relaxed);
        }
        place.is_some()
    }

    fn wake(&self, cores: usize) {
        let woken = {
            let mut parked = lock(&self.parked);
            // The one that slept least has the warmest caches.
            let awake = parked.len().saturating_sub(cores);
            let woken = parked.split_off(awake);
            self.parked_count.store(parked.len(), Ordering::Relaxed);
            self.searching.fetch_add(woken.len(), Ordering::Relaxed);
            woken
        };
        for parker in woken {
            parker.unpark();
        }
    }
}
