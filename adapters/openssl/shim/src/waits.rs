//! Sockets that a thread waits for: in the call at hand, and in those before it.
//!
//! A handshake is suspended only where a wait of the same thread can report that it goes on: the wait names the socket
//! (`poll`, `select`), or the epoll instance in which the socket is registered (`wait_calls`).
//!
//! `poll` and `select` may be called in signal handlers: what is kept of them needs no memory then. While handshakes
//! are suspended, nothing is kept of calls in handlers (`signals`).

use std::cell::{Cell, RefCell};
use std::ffi::c_int;

use widelane_status::Way;

use crate::connections;
use crate::descriptor_set::DescriptorSet;
use crate::process::this_thread;
use crate::registrations::{self, Instance, Registration};

/// The socket of a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Socket {
    pub(crate) fd: c_int,
    /// Generation of the descriptor: tells apart the files that had its number.
    pub(crate) file: u32,
}

impl Socket {
    pub(crate) fn registration(self) -> Option<Registration> {
        registrations::get(self.fd).filter(|found| found.file == self.file)
    }

    /// Returns whether the descriptor is still that of the file that it was.
    pub(crate) fn is_open(self) -> bool {
        registrations::file(self.fd) == Some(self.file)
    }

    /// Returns whether this thread waits in the epoll instance of the socket, or in the one that it has just left.
    pub(crate) fn is_in_known_instance(self) -> bool {
        let registered = self.registration().map(|found| found.epoll);
        let left = || registrations::left(self.fd).filter(|_| self.is_open());
        registered.or_else(left).is_some_and(waits_in)
    }

    /// Why no wait of this thread reports the socket.
    pub(crate) fn why_not_reported(self) -> Way {
        let instance = self.registration().map(|found| found.epoll);
        match instance.is_some_and(registrations::is_shared) {
            true => Way::SharedEpoll,
            false => Way::NoLoop,
        }
    }

    /// Returns whether this thread's last `poll` or `select` was for the socket.
    pub(crate) fn is_in_last_set(self) -> bool {
        self.is_open() && is_in_last_set(self.fd)
    }
}

/// Returns whether a wait in the epoll instance needs nothing but the original.
#[inline(always)]
pub(crate) fn is_plain(epoll: c_int) -> bool {
    !connections::are_left() && registrations::is_kept(epoll, this_thread())
}

/// Returns whether a wait for a set of descriptors needs nothing but the original.
#[inline(always)]
pub(crate) fn is_plain_for_set(way: Way) -> bool {
    !connections::are_left() && SET_IS_EMPTY.get() && LAST_SET_CALL.get() == Some(way)
}

/// Counts one more wait of this thread. Waits in which nothing is to be done for handshakes are not counted.
pub(crate) fn count_wait() {
    WAITS.set(WAITS.get() + 1);
}

/// Number of waits of this thread.
pub(crate) fn number_of_waits() -> u64 {
    WAITS.get()
}

/// Returns whether this thread has waited in the instance, by a function that we stand in for, and no other thread has.
/// Threads that take turns at one instance sleep elsewhere, too, where nothing is known of them.
pub(crate) fn waits_in(instance: Instance) -> bool {
    let is_known = INSTANCES.get().contains(&Some(instance));
    if !is_known {
        registrations::forget_waiter(instance, this_thread());
    }
    is_known && !registrations::is_shared(instance) || is_in_last_set(instance.descriptor() as c_int)
}

/// Returns whether handshakes of a process with threads may be suspended here. The first are not: if threads take turns
/// at waiting, another one waits in the instance while this one is busy with them, and the instance is known to be
/// shared. A handshake that was suspended before would stay so until its thread has its next turn.
pub(crate) fn has_passed_trials() -> bool {
    let trials = TRIALS.get();
    if trials < MOST_TRIALS {
        TRIALS.set(trials + 1);
    }
    trials == MOST_TRIALS
}

/// Handshakes that OpenSSL does alone before.
const MOST_TRIALS: u32 = 8;

/// Returns whether this thread waits in that instance.
pub(crate) fn waits_in_epoll(epoll: c_int) -> bool {
    registrations::instance(epoll).is_some_and(waits_in)
}

/// Returns whether this thread has ever waited.
pub(crate) fn has_waited() -> bool {
    INSTANCES.get()[0].is_some() || LAST_SET_CALL.get().is_some()
}

/// The call by which this thread has waited for a set of descriptors last.
pub(crate) fn way_of_last_set() -> Way {
    LAST_SET_CALL.get().unwrap_or(Way::NoLoop)
}

/// Returns whether this thread's last `poll` or `select` was for the descriptor.
pub(crate) fn is_in_last_set(fd: c_int) -> bool {
    with_set(|set| set.as_ref().is_some_and(|set| set.has(fd))).unwrap_or(false)
}

/// Makes room for the set of descriptors that this thread waits for.
pub(crate) fn make_room() {
    SET_IS_EMPTY.set(false);
    with_set(|set| {
        set.get_or_insert_default();
    });
}

/// Keeps that this thread waits in the instance, among the newest.
pub(crate) fn remember_instance(instance: Instance) {
    let mut known = INSTANCES.get();
    if !known.contains(&Some(instance)) {
        known.rotate_right(1);
        if let Some(oldest) = known[0].replace(instance) {
            registrations::forget_waiter(oldest, this_thread());
        }
        INSTANCES.set(known);
        TRIALS.set(0);
    }
}

/// Keeps that this thread has waited in this way, and for which set if it is asked to.
pub(crate) fn remember_set(way: Way, keeps: bool, fill: impl FnOnce(&mut DescriptorSet)) {
    LAST_SET_CALL.set(Some(way));
    SET_IS_EMPTY.set(!keeps);
    with_set(|set| {
        if let Some(set) = set {
            set.clear();
            if keeps {
                fill(set);
            }
        }
    });
}

fn with_set<R>(work: impl FnOnce(&mut Option<DescriptorSet>) -> R) -> Option<R> {
    let done = SET.try_with(|set| Some(work(&mut *set.try_borrow_mut().ok()?)));
    done.ok().flatten()
}

/// Most epoll instances that are kept of a thread.
const MOST_INSTANCES: usize = 4;

thread_local! {
    static WAITS: Cell<u64> = const { Cell::new(0) };
    /// Handshakes that were not suspended since this thread began to wait in its newest instance, up to
    /// [`MOST_TRIALS`].
    static TRIALS: Cell<u32> = const { Cell::new(0) };
    /// Epoll instances in which this thread has waited, the newest first.
    static INSTANCES: Cell<[Option<Instance>; MOST_INSTANCES]> = const { Cell::new([None; MOST_INSTANCES]) };
    /// The last of `poll` and `select` by which it has waited.
    static LAST_SET_CALL: Cell<Option<Way>> = const { Cell::new(None) };
    /// True if this thread has no handshakes, and an empty set or none.
    static SET_IS_EMPTY: Cell<bool> = const { Cell::new(false) };
    static SET: RefCell<Option<DescriptorSet>> = const { RefCell::new(None) };
}
