//! Descriptors that this process has registered with epoll, and their data: a suspended
//! connection is woken with the server's own.
//!
//! `close` may be called where nothing may wait: in signal handlers, and in the child of a process with
//! threads. So there is no lock here, and no memory is asked for: each descriptor has a place in a table.
//! Only the parts of the table that are used cost memory. A writer empties the place before it changes it,
//! and a reader looks twice: what is read belongs together, and a fork in between leaves an
//! empty place, whose handshakes OpenSSL does at once.

use std::ffi::c_int;
use std::sync::atomic::AtomicUsize;

use crate::process;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicU32, AtomicU64, fence};

/// A descriptor in an epoll instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    /// The epoll instance.
    pub(crate) epoll: Instance,
    /// The server's data, which comes with each event.
    pub(crate) data: u64,
    /// Generation of the descriptor: tells apart the files that had its number.
    pub(crate) file: u32,
}

/// An epoll instance: its descriptor, and which of the files that had this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instance(u64);

impl Instance {
    fn new(descriptor: usize, file: u32) -> Self {
        Self((u64::from(file) << 32) | (descriptor as u64 + 1))
    }

    /// Number of the epoll instance's descriptor, as an index.
    pub(crate) fn descriptor(self) -> usize {
        (self.0 as u32 - 1) as usize
    }
}

/// State of the descriptor with a number.
struct Place {
    /// The epoll instance; 0: not registered.
    epoll: AtomicU64,
    data: AtomicU64,
    /// The instance from which it was removed, if it is in none; 0: another one, or none.
    left: AtomicU64,
    /// Number of files with this number that were closed.
    file: AtomicU32,
    marks: AtomicU32,
    /// Of an instance: the thread that waits in it, perhaps with [`FORGOTTEN`], or [`SEVERAL`]; 0: none does.
    waiter: AtomicU64,
}

/// Threads.
const SEVERAL: u64 = u64::MAX;

/// The thread does not keep the instance among those in which it waits. The number of a thread is even: it is an
/// address.
const FORGOTTEN: u64 = 1;

/// The descriptor was accepted and is not registered yet.
const NEW: u32 = 1;
/// The descriptor is an epoll instance.
const EPOLL: u32 = 2;
/// A handshake is or was suspended on it.
const HELD: u32 = 4;

/// A place of which nothing is known; not a function, because loom's values are no constants.
macro_rules! empty {
    () => {
        Place {
            epoll: AtomicU64::new(0),
            data: AtomicU64::new(0),
            left: AtomicU64::new(0),
            file: AtomicU32::new(0),
            marks: AtomicU32::new(0),
            waiter: AtomicU64::new(0),
        }
    };
}

impl Place {
    fn set(&self, epoll: Instance, data: u64) {
        self.epoll.store(0, Relaxed);
        fence(Release);
        self.data.store(data, Relaxed);
        self.epoll.store(epoll.0, Release);
    }

    fn get(&self) -> Option<(Instance, u64)> {
        let epoll = self.epoll.load(Acquire);
        let data = self.data.load(Relaxed);
        fence(Acquire);
        let same = epoll != 0 && self.epoll.load(Relaxed) == epoll;
        same.then_some((Instance(epoll), data))
    }

    fn end(&self) {
        self.epoll.store(0, Relaxed);
        self.left.store(0, Relaxed);
        self.marks.store(0, Relaxed);
        self.waiter.store(0, Relaxed);
        self.file.fetch_add(1, Release);
    }
}

/// The server has added the descriptor to an instance, or changed it. One that wakes once, or one of several threads,
/// gets no events of ours, nor does a server that does not wait until the descriptor is readable.
pub(crate) fn set(fd: c_int, epoll: c_int, added: bool, events: u32, data: u64) {
    let (Some(place), Some(instance)) = (place(fd), place(epoll)) else {
        return;
    };
    HIGHEST.fetch_max(fd.max(epoll) as usize, Relaxed);
    instance.marks.fetch_or(EPOLL, Relaxed);
    let epoll = Instance::new(epoll as usize, instance.file.load(Acquire));
    if added && place.epoll.load(Relaxed) == epoll.0 {
        // The file that had the number before was closed unseen.
        place.end();
    }
    place.marks.fetch_and(!NEW, Relaxed);
    place.left.store(0, Relaxed);
    let (readable, once) = (libc::EPOLLIN, libc::EPOLLONESHOT | libc::EPOLLEXCLUSIVE);
    if events & (readable | once) as u32 == readable as u32 {
        place.set(epoll, data);
    } else {
        place.epoll.store(0, Release);
    }
}

/// The server has removed the descriptor from the instance.
pub(crate) fn remove(fd: c_int, epoll: c_int) {
    if let (Some(place), Some(epoll)) = (place(fd), instance(epoll)) {
        let is_removed = (place.epoll.compare_exchange(epoll.0, 0, Release, Relaxed)).is_ok();
        if is_removed {
            place.left.store(epoll.0, Relaxed);
        }
    }
}

/// The server has accepted a connection.
pub(crate) fn accepted(fd: c_int) {
    if let Some(place) = place(fd) {
        HIGHEST.fetch_max(fd as usize, Relaxed);
        place.end();
        place.marks.store(NEW, Relaxed);
    }
}

/// The descriptor's file got another number too, with which it may be registered unseen.
pub(crate) fn duplicated(fd: c_int) {
    if let Some(place) = place(fd) {
        place.marks.fetch_and(!NEW, Relaxed);
    }
}

/// The server closes the descriptor: the kernel removes it from every instance, and an instance
/// forgets all of its descriptors, because it is another one from now on.
pub(crate) fn close(fd: c_int) {
    if let Some(place) = place(fd)
        && place.epoll.load(Relaxed) | u64::from(place.marks.load(Relaxed)) | place.left.load(Relaxed) != 0
        && process::owns_memory()
    {
        place.end();
    }
}

/// The server closes all descriptors from `first` to `last`.
pub(crate) fn close_all(first: u32, last: u32) {
    let highest = HIGHEST.load(Relaxed).min(last as usize);
    for fd in first as usize..=highest {
        close(fd as c_int);
    }
}

/// Registration of the descriptor.
pub(crate) fn get(fd: c_int) -> Option<Registration> {
    let place = place(fd)?;
    let file = place.file.load(Acquire);
    let (epoll, data) = place.get()?;
    is_alive(epoll).then_some(Registration { epoll, data, file })
}

/// The instance from which the descriptor was removed, and has been in none since: some event loops register it anew
/// for each event.
pub(crate) fn left(fd: c_int) -> Option<Instance> {
    let epoll = Instance(place(fd)?.left.load(Relaxed));
    (epoll.0 != 0 && is_alive(epoll)).then_some(epoll)
}

fn is_alive(epoll: Instance) -> bool {
    let place = SLOTS.get(epoll.descriptor());
    place.is_some_and(|place| Instance::new(epoll.descriptor(), place.file.load(Acquire)) == epoll)
}

/// Current generation of this number. From now on its end is noticed.
pub(crate) fn hold(fd: c_int) -> Option<u32> {
    let place = place(fd)?;
    HIGHEST.fetch_max(fd as usize, Relaxed);
    place.marks.fetch_or(HELD, Relaxed);
    file(fd)
}

/// Current generation of this number.
pub(crate) fn file(fd: c_int) -> Option<u32> {
    place(fd).map(|place| place.file.load(Acquire))
}

/// The thread waits in the instance. Whether it is the only one that ever did.
pub(crate) fn waits(epoll: Instance, thread: u64) -> bool {
    let Some(place) = SLOTS.get(epoll.descriptor()) else {
        return false;
    };
    let known = place.waiter.load(Relaxed);
    if known == thread {
        return true;
    }
    if known == SEVERAL {
        return false;
    }
    if known == thread | FORGOTTEN {
        return (place.waiter.compare_exchange(known, thread, Relaxed, Relaxed)).is_ok();
    }
    HIGHEST.fetch_max(epoll.descriptor(), Relaxed);
    place.marks.fetch_or(EPOLL, Relaxed);
    let is_first = (place.waiter.compare_exchange(0, thread, Relaxed, Relaxed)).is_ok();
    if !is_first {
        place.waiter.store(SEVERAL, Relaxed);
    }
    is_first
}

/// The thread does not keep the instance, in which it may have waited: its next wait there is as its first. A thread
/// may have the number of one that has ended.
pub(crate) fn forget_waiter(epoll: Instance, thread: u64) {
    if let Some(place) = SLOTS.get(epoll.descriptor()) {
        let _ = (place.waiter).compare_exchange(thread, thread | FORGOTTEN, Relaxed, Relaxed);
    }
}

/// Returns whether a wait of the thread in the instance with this descriptor shows nothing new: it keeps the instance,
/// or several threads wait there.
#[inline(always)]
pub(crate) fn is_kept(epoll: c_int, thread: u64) -> bool {
    let waiter = |place: &Place| place.waiter.load(Relaxed);
    let waiter = SLOTS.get(epoll as u32 as usize).map(waiter);
    waiter == Some(thread) || waiter == Some(SEVERAL)
}

/// Returns whether several threads wait in the instance.
pub(crate) fn is_shared(epoll: Instance) -> bool {
    let place = SLOTS.get(epoll.descriptor());
    place.is_none_or(|place| place.waiter.load(Relaxed) == SEVERAL)
}

/// This is the child of a fork, which has only this thread: no other one waits any more.
pub(crate) fn forked(thread: u64) {
    for place in SLOTS.iter().take(HIGHEST.load(Relaxed) + 1) {
        // A store would have the child copy the page.
        if ![0, thread, thread | FORGOTTEN, SEVERAL].contains(&place.waiter.load(Relaxed)) {
            place.waiter.store(0, Relaxed);
        }
    }
}

/// The instance that has this descriptor now.
pub(crate) fn instance(epoll: c_int) -> Option<Instance> {
    let file = place(epoll)?.file.load(Acquire);
    Some(Instance::new(epoll as usize, file))
}

/// Returns whether the descriptor was accepted and neither registered nor duplicated since. It is no longer new
/// afterwards.
pub(crate) fn take_new(fd: c_int) -> bool {
    place(fd).is_some_and(|place| place.marks.fetch_and(!NEW, Relaxed) & NEW != 0)
}

fn place(fd: c_int) -> Option<&'static Place> {
    SLOTS.get(usize::try_from(fd).ok()?)
}

/// Descriptors from this one on are not known, and their handshakes are not suspended.
const MOST: usize = 1 << 18;

#[cfg(not(loom))]
static SLOTS: [Place; MOST] = [const { empty!() }; MOST];
#[cfg(loom)]
static SLOTS: [Place; 0] = [];

/// The highest number that was ever used.
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const IN: u32 = libc::EPOLLIN as u32;

    fn data(fd: c_int) -> Option<u64> {
        get(fd).map(|found| found.data)
    }

    /// Numbers that no descriptor of the test has.
    #[test]
    fn a_closed_descriptor_is_forgotten() {
        process::claim_memory();
        let (epoll, other) = (200_000, 200_001);
        for fd in [201_000, 201_001] {
            set(fd, epoll, true, IN, 7);
        }
        assert_eq!(get(201_000).unwrap().epoll, instance(epoll).unwrap());
        assert_eq!(data(201_000), Some(7));
        remove(201_000, other);
        assert!(data(201_000).is_some(), "it is not in that instance");
        assert!(left(201_000).is_none());
        remove(201_000, epoll);
        assert!(data(201_000).is_none());
        assert_eq!(left(201_000), instance(epoll));
        close(epoll);
        assert!(data(201_001).is_none() && left(201_000).is_none());
        set(201_001, epoll, true, IN, 8);
        assert_eq!(data(201_001), Some(8));
        close_all(201_001, u32::MAX);
        assert!(data(201_001).is_none());
    }

    #[test]
    fn files_that_had_a_number_one_after_the_other_are_told_apart() {
        process::claim_memory();
        let (fd, epoll) = (210_000, 210_001);
        set(fd, epoll, true, IN, 1);
        let first = get(fd).unwrap();
        set(fd, epoll, false, IN, 2);
        assert_eq!(get(fd).unwrap().file, first.file, "changed, not closed");
        set(fd, epoll, true, IN, 3);
        assert_ne!(get(fd).unwrap().file, first.file, "closed unseen");
        close(fd);
        accepted(fd);
        assert!(get(fd).is_none() && take_new(fd) && !take_new(fd));
        accepted(fd);
        duplicated(fd);
        assert!(!take_new(fd));
    }

    #[test]
    fn what_wakes_once_gets_no_events_of_ours() {
        let (fd, epoll) = (220_000, 220_001);
        for flag in [libc::EPOLLONESHOT, libc::EPOLLEXCLUSIVE] {
            set(fd, epoll, true, IN, 1);
            set(fd, epoll, false, IN | flag as u32, 2);
            assert!(get(fd).is_none());
        }
    }

    #[test]
    fn a_wait_shows_something_new_until_its_thread_keeps_the_instance() {
        let (fd, one, other) = (225_000, 16, 32);
        let instance = instance(fd).unwrap();
        assert!(!is_kept(fd, one));
        assert!(waits(instance, one) && is_kept(fd, one) && !is_kept(fd, other));
        forget_waiter(instance, other);
        assert!(is_kept(fd, one), "not the other's to forget");
        forget_waiter(instance, one);
        assert!(!is_kept(fd, one) && !is_shared(instance));
        assert!(waits(instance, one) && is_kept(fd, one));
        forget_waiter(instance, one);
        assert!(!waits(instance, other) && is_shared(instance));
        assert!(is_kept(fd, one) && is_kept(fd, other), "nothing is new any more");
        process::claim_memory();
        close(fd);
        assert!(!is_kept(fd, one) && !is_kept(-1, one) && !is_kept(MOST as c_int, one));
    }

    #[test]
    fn numbers_out_of_range_are_not_known() {
        for fd in [-1, MOST as c_int, c_int::MAX] {
            set(fd, 200_000, true, IN, 1);
            accepted(fd);
            close(fd);
            assert!(get(fd).is_none() && instance(fd).is_none() && !take_new(fd));
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;

    /// A reader gets parts of one registration, while another thread closes the descriptor and registers the
    /// next file with its number in another instance.
    #[test]
    fn a_registration_is_read_whole() {
        loom::model(|| {
            let (one, other) = (Instance::new(1, 0), Instance::new(2, 0));
            let place = Arc::new(empty!());
            place.set(one, 10);
            let writer = {
                let place = Arc::clone(&place);
                loom::thread::spawn(move || {
                    place.end();
                    place.set(other, 20);
                    place.set(other, 30);
                })
            };
            let read = place.get();
            let whole = match read {
                None => true,
                Some((epoll, data)) if epoll == one => data == 10,
                Some((_, data)) => data == 20 || data == 30,
            };
            assert!(whole, "{read:?}");
            writer.join().unwrap();
            assert_eq!(place.get(), Some((other, 30)));
        });
    }
}
