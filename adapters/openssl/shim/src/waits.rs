//! Sockets that a thread waits for: in the call at hand, and in those before it.
//!
//! A handshake is suspended only where its server is told that it can go on: a wait of the same thread names its
//! socket (`poll`, `select`) or the epoll instance in which the socket is registered, or it names that instance. Each
//! kind of wait is a [`Watch`].
//!
//! `poll` and `select` may be called in signal handlers: what is kept of them needs no memory then. While handshakes are
//! suspended, nothing is kept of calls in handlers (`signals`).

use std::cell::{Cell, RefCell};
use std::ffi::c_int;

use libc::{epoll_event, pollfd};
use widelane_status::Way;

use crate::connections;
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
    fn registration(self) -> Option<Registration> {
        registrations::get(self.fd).filter(|found| found.file == self.file)
    }

    /// Returns whether the descriptor is still that of the file that it was.
    pub(crate) fn is_open(self) -> bool {
        registrations::file(self.fd) == Some(self.file)
    }

    fn told_by(self, fd: c_int) -> Told {
        match fd == self.fd {
            true => Told::ItsSocket,
            false => Told::ItsInstance,
        }
    }

    /// Returns whether this thread waits in the epoll instance of the socket, or in the one that it has just left.
    pub(crate) fn is_in_an_instance(self) -> bool {
        let registered = self.registration().map(|found| found.epoll);
        let left = || registrations::left(self.fd).filter(|_| self.is_open());
        registered.or_else(left).is_some_and(waits_in)
    }

    /// Why this thread's waits are not for the socket.
    pub(crate) fn why_in_no_wait(self) -> Way {
        let instance = self.registration().map(|found| found.epoll);
        match instance.is_some_and(registrations::is_shared) {
            true => Way::SharedEpoll,
            false => Way::NoLoop,
        }
    }

    /// Returns whether this thread's last `poll` or `select` was for the socket.
    pub(crate) fn is_in_the_set(self) -> bool {
        self.is_open() && is_in_the_set(self.fd)
    }
}

/// The descriptor that a wait has reported as readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    ItsSocket,
    /// The epoll instance in which the socket is registered: the server asks that for the socket.
    ItsInstance,
}

/// One call that waits.
pub(crate) trait Watch {
    /// Keeps what a wait is for that can last: it shows how this thread learns of events. A set of descriptors is kept
    /// only while the thread has handshakes.
    fn remember(&self, has_handshakes: fn() -> bool);
    /// Returns whether the call can tell that the socket is readable.
    fn tells(&self, socket: Socket) -> bool;
    /// Tells that the socket is readable, if the call can.
    fn tell(&mut self, socket: Socket) -> Option<Told>;
    /// Result of the call after that.
    fn answer(self) -> c_int;
}

/// `epoll_wait` and its siblings.
pub(crate) struct InInstance<'a> {
    pub(crate) instance: Instance,
    /// The room for events, of which the first are taken.
    pub(crate) events: &'a mut [epoll_event],
    pub(crate) taken: usize,
}

impl Watch for InInstance<'_> {
    fn remember(&self, _: fn() -> bool) {
        if registrations::is_kept(self.instance.descriptor() as c_int, this_thread())
            || !registrations::waits(self.instance, this_thread())
        {
            return;
        }
        let mut known = INSTANCES.get();
        if !known.contains(&Some(self.instance)) {
            known.rotate_right(1);
            if let Some(oldest) = known[0].replace(self.instance) {
                registrations::forget_waiter(oldest, this_thread());
            }
            INSTANCES.set(known);
            TRIALS.set(0);
        }
    }

    fn tells(&self, socket: Socket) -> bool {
        let is_here = |found: Registration| found.epoll == self.instance;
        self.taken < self.events.len() && socket.registration().is_some_and(is_here)
    }

    fn tell(&mut self, socket: Socket) -> Option<Told> {
        let registration = socket.registration().filter(|found| found.epoll == self.instance)?;
        let event = self.events.get_mut(self.taken)?;
        *event = epoll_event {
            events: libc::EPOLLIN as u32,
            u64: registration.data,
        };
        self.taken += 1;
        Some(Told::ItsSocket)
    }

    fn answer(self) -> c_int {
        self.taken as c_int
    }
}

/// `poll` and `ppoll`.
pub(crate) struct Polled<'a> {
    pub(crate) fds: &'a mut [pollfd],
    /// True if the answers are ours.
    pub(crate) is_answered: bool,
}

/// Events of a server that waits until a socket is readable.
const READABLE: i16 = libc::POLLIN | libc::POLLRDNORM;

impl Polled<'_> {
    fn has(&self, fd: c_int) -> bool {
        (self.fds.iter()).any(|one| one.fd == fd && one.events & READABLE != 0)
    }
}

impl Watch for Polled<'_> {
    fn remember(&self, has_handshakes: fn() -> bool) {
        remember_set(Way::Poll, has_handshakes(), |set| {
            let readable = self.fds.iter().filter(|one| one.events & READABLE != 0);
            readable.for_each(|one| set.add(one.fd));
        });
    }

    fn tells(&self, socket: Socket) -> bool {
        watched_by(socket, |fd| self.has(fd)).is_some()
    }

    fn tell(&mut self, socket: Socket) -> Option<Told> {
        let fd = watched_by(socket, |fd| self.has(fd))?;
        for one in &mut *self.fds {
            if !self.is_answered {
                one.revents = 0;
            }
            if one.fd == fd {
                one.revents = one.events & READABLE;
            }
        }
        self.is_answered = true;
        Some(socket.told_by(fd))
    }

    fn answer(self) -> c_int {
        self.fds.iter().filter(|one| one.revents != 0).count() as c_int
    }
}

/// `select` and `pselect`: the three sets, in words, as far as the server gives any.
pub(crate) struct Selected<'a> {
    /// Descriptors from this number on are not asked for.
    pub(crate) count: usize,
    pub(crate) sets: [Option<&'a mut [u64]>; 3],
    pub(crate) told: [u64; SELECTABLE / 64],
}

/// Descriptors that the C library's sets have room for.
pub(crate) const SELECTABLE: usize = libc::FD_SETSIZE;

impl Selected<'_> {
    fn has(&self, fd: c_int) -> bool {
        let (word, bit) = place(fd);
        let readable = self.sets[0].as_deref();
        (fd as u32 as usize) < self.count
            && readable.is_some_and(|words| words.get(word).is_some_and(|word| word & bit != 0))
    }
}

impl Watch for Selected<'_> {
    fn remember(&self, has_handshakes: fn() -> bool) {
        remember_set(Way::Select, has_handshakes(), |set| {
            let words = self.sets[0].as_deref().unwrap_or_default();
            set.bits[..words.len()].copy_from_slice(words);
            set.used = words.len();
            if let (Some(last), rest @ 1..) = (words.len().checked_sub(1), self.count % 64) {
                set.bits[last] &= (1 << rest) - 1;
            }
        });
    }

    fn tells(&self, socket: Socket) -> bool {
        watched_by(socket, |fd| self.has(fd)).is_some()
    }

    fn tell(&mut self, socket: Socket) -> Option<Told> {
        let fd = watched_by(socket, |fd| self.has(fd))?;
        let (word, bit) = place(fd);
        self.told[word] |= bit;
        Some(socket.told_by(fd))
    }

    fn answer(self) -> c_int {
        let [readable, writable, other] = self.sets;
        for set in [writable, other].into_iter().flatten() {
            set.fill(0);
        }
        for (word, told) in readable.into_iter().flatten().zip(self.told) {
            *word = told;
        }
        self.told.iter().map(|word| word.count_ones()).sum::<u32>() as c_int
    }
}

/// The descriptor by which a set of descriptors tells of the socket: its own, or that of the instance in which it is
/// registered, which the server asks then.
fn watched_by(socket: Socket, has: impl Fn(c_int) -> bool) -> Option<c_int> {
    if has(socket.fd) && socket.is_open() {
        return Some(socket.fd);
    }
    let instance = socket.registration()?.epoll.descriptor() as c_int;
    has(instance).then_some(instance)
}

/// Returns whether a wait in the epoll instance needs nothing but the original.
#[inline(always)]
pub(crate) fn is_plain(epoll: c_int) -> bool {
    !connections::are_left() && registrations::is_kept(epoll, this_thread())
}

/// Returns whether a wait for a set of descriptors needs nothing but the original.
#[inline(always)]
pub(crate) fn is_plain_for_a_set(way: Way) -> bool {
    !connections::are_left() && NOTHING_KEPT.get() && POLLS.get() == Some(way)
}

/// Counts one more wait of this thread. Waits in which nothing is to be done for handshakes are not counted.
pub(crate) fn count() {
    COUNT.set(COUNT.get() + 1);
}

/// Number of waits of this thread.
pub(crate) fn counted() -> u64 {
    COUNT.get()
}

/// Returns whether this thread has waited in the instance, by a function that we stand in for, and no other thread has.
/// Threads that take turns at one instance sleep elsewhere, too, where nothing is known of them.
fn waits_in(instance: Instance) -> bool {
    let is_known = INSTANCES.get().contains(&Some(instance));
    if !is_known {
        registrations::forget_waiter(instance, this_thread());
    }
    is_known && !registrations::is_shared(instance) || is_in_the_set(instance.descriptor() as c_int)
}

/// Returns whether handshakes of a process with threads may be suspended here. The first are not: if threads take turns at
/// waiting, another one waits in the instance while this one is busy with them, and the instance is known to be shared. A
/// handshake that was suspended before would stay so until its thread has its next turn.
pub(crate) fn is_tried() -> bool {
    let trials = TRIALS.get();
    if trials < NEEDED {
        TRIALS.set(trials + 1);
    }
    trials == NEEDED
}

/// Calls that OpenSSL does alone for that.
const NEEDED: u32 = 8;

/// Returns whether this thread waits in that instance.
pub(crate) fn is_waited_in(epoll: c_int) -> bool {
    registrations::instance(epoll).is_some_and(waits_in)
}

/// Returns whether this thread has ever waited.
pub(crate) fn any() -> bool {
    INSTANCES.get()[0].is_some() || POLLS.get().is_some()
}

/// The call by which this thread has waited for a set of descriptors last.
pub(crate) fn way_of_the_set() -> Way {
    POLLS.get().unwrap_or(Way::NoLoop)
}

pub(crate) fn is_in_the_set(fd: c_int) -> bool {
    with_set(|set| set.as_ref().is_some_and(|set| set.has(fd))).unwrap_or(false)
}

/// Makes room for what this thread's waits are for, from now on.
pub(crate) fn begin() {
    NOTHING_KEPT.set(false);
    with_set(|set| {
        set.get_or_insert_default();
    });
}

/// Keeps that this thread has waited in this way, and for which set if it is asked to.
fn remember_set(way: Way, keeps: bool, fill: impl FnOnce(&mut Set)) {
    POLLS.set(Some(way));
    NOTHING_KEPT.set(!keeps);
    with_set(|set| {
        if let Some(set) = set {
            set.clear();
            if keeps {
                fill(set);
            }
        }
    });
}

fn with_set<R>(work: impl FnOnce(&mut Option<Set>) -> R) -> Option<R> {
    let done = SET.try_with(|set| Some(work(&mut *set.try_borrow_mut().ok()?)));
    done.ok().flatten()
}

/// Descriptors of a `poll` or `select`.
struct Set {
    bits: Box<[u64; WORDS]>,
    /// Words that may have bits.
    used: usize,
}

/// Words of a set: handshakes with descriptors from 65,536 on are not suspended in `poll`.
const WORDS: usize = 1024;

impl Default for Set {
    fn default() -> Self {
        Self {
            bits: Box::new([0; WORDS]),
            used: 0,
        }
    }
}

impl Set {
    fn clear(&mut self) {
        self.bits[..self.used].fill(0);
        self.used = 0;
    }

    fn add(&mut self, fd: c_int) {
        let (word, bit) = place(fd);
        if let Some(bits) = self.bits.get_mut(word) {
            *bits |= bit;
            self.used = self.used.max(word + 1);
        }
    }

    fn has(&self, fd: c_int) -> bool {
        let (word, bit) = place(fd);
        self.bits.get(word).is_some_and(|bits| bits & bit != 0)
    }
}

/// The word and the bit of a descriptor. A negative one has a word that no set has.
fn place(fd: c_int) -> (usize, u64) {
    (fd as u32 as usize / 64, 1 << (fd as u32 % 64))
}

/// Number of epoll instances that are kept of a thread.
const KEPT: usize = 4;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    /// Calls that were not suspended since this thread began to wait in its newest instance, up to [`NEEDED`].
    static TRIALS: Cell<u32> = const { Cell::new(0) };
    /// Epoll instances in which this thread has waited, the newest first.
    static INSTANCES: Cell<[Option<Instance>; KEPT]> = const { Cell::new([None; KEPT]) };
    /// The last of `poll` and `select` by which it has waited.
    static POLLS: Cell<Option<Way>> = const { Cell::new(None) };
    /// True if this thread has no handshakes, and an empty set or none.
    static NOTHING_KEPT: Cell<bool> = const { Cell::new(false) };
    static SET: RefCell<Option<Set>> = const { RefCell::new(None) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn socket(fd: c_int) -> Socket {
        let file = registrations::hold(fd).unwrap();
        Socket { fd, file }
    }

    fn polled(fds: &mut [pollfd]) -> Polled<'_> {
        Polled {
            fds,
            is_answered: false,
        }
    }

    fn entry(fd: c_int, events: i16) -> pollfd {
        let revents = libc::POLLHUP;
        pollfd { fd, events, revents }
    }

    #[test]
    fn poll_tells_of_the_sockets_that_it_is_for() {
        let (one, other, writes) = (socket(230_000), socket(230_001), socket(230_002));
        let mut fds = [
            entry(-1, libc::POLLIN),
            entry(one.fd, libc::POLLIN | libc::POLLOUT),
            entry(writes.fd, libc::POLLOUT),
            entry(one.fd, libc::POLLIN),
        ];
        let mut watch = polled(&mut fds);
        assert!(watch.tells(one) && !watch.tells(other) && !watch.tells(writes));
        assert_eq!(watch.tell(one), Some(Told::ItsSocket));
        assert!(watch.tell(other).is_none() && watch.tell(writes).is_none());
        assert_eq!(watch.answer(), 2);
        assert_eq!(fds.map(|one| one.revents), [0, libc::POLLIN, 0, libc::POLLIN]);
    }

    #[test]
    fn select_tells_of_the_sockets_that_it_is_for() {
        let (one, other) = (socket(70), socket(71));
        let (mut readable, mut writable) = ([1, 1 << 6 | 1 << 9], [7, 7]);
        let mut watch = Selected {
            count: 73,
            sets: [Some(&mut readable), Some(&mut writable), None],
            told: [0; SELECTABLE / 64],
        };
        assert!(watch.tells(one) && !watch.tells(other) && !watch.tells(socket(900)));
        assert!(!watch.tells(socket(73)), "not asked for");
        assert!(watch.tell(one).is_some() && watch.tell(other).is_none());
        assert_eq!(watch.answer(), 1);
        assert_eq!((readable, writable), ([0, 1 << 6], [0, 0]));
    }

    #[test]
    fn epoll_tells_as_long_as_there_is_room() {
        let instance = registrations::instance(230_100).unwrap();
        for fd in [230_101, 230_102] {
            registrations::set(fd, 230_100, true, libc::EPOLLIN as u32, fd as u64);
        }
        let mut room = [epoll_event { events: 0, u64: 0 }];
        let mut watch = InInstance {
            instance,
            events: &mut room,
            taken: 0,
        };
        assert_eq!(watch.tell(socket(230_101)), Some(Told::ItsSocket));
        assert_eq!(watch.tell(socket(230_102)), None);
        assert!(!watch.tells(socket(230_102)));
        assert_eq!(watch.answer(), 1);
        let data = room[0].u64;
        assert_eq!(data, 230_101);
    }

    #[test]
    fn poll_tells_of_the_instance_of_a_socket() {
        registrations::instance(230_400).expect("an instance");
        registrations::set(230_401, 230_400, true, libc::EPOLLIN as u32, 7);
        let mut fds = [entry(230_400, libc::POLLIN)];
        let told = polled(&mut fds).tell(socket(230_401));
        assert_eq!(told, Some(Told::ItsInstance));
        assert_eq!(fds[0].revents, libc::POLLIN);
    }

    #[test]
    fn a_number_that_is_another_file_is_not_told_of() {
        crate::process::claim_memory();
        let before = socket(230_200);
        registrations::close(before.fd);
        let mut fds = [entry(before.fd, libc::POLLIN)];
        assert!(!polled(&mut fds).tells(before));
        assert!(polled(&mut fds).tells(socket(before.fd)));
    }

    #[test]
    fn a_set_forgets_what_was_in_it() {
        let mut set = Set::default();
        for fd in [0, 63, 64, 65_535] {
            set.add(fd);
            assert!(set.has(fd) && !set.has(fd + 1));
        }
        set.add(-1);
        set.add(65_536);
        assert!(!set.has(-1) && !set.has(65_536));
        set.clear();
        assert!(!set.has(0) && !set.has(65_535));
    }

    #[test]
    fn an_instance_in_which_several_threads_wait_is_nobodys() {
        let instance = registrations::instance(230_300).unwrap();
        let wait = move || {
            let events = &mut [];
            let watch = InInstance {
                instance,
                events,
                taken: 0,
            };
            watch.remember(|| false);
            waits_in(instance)
        };
        assert!(wait() && wait());
        assert!(!std::thread::spawn(wait).join().unwrap());
        assert!(!wait());
    }
}
