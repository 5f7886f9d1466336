//! Calls that wait for sockets, and how each of them reports that a handshake can go on.

use std::ffi::c_int;

use libc::{epoll_event, pollfd};
use widelane_status::Way;

use crate::descriptor_set::place;
use crate::process::this_thread;
use crate::registrations::{self, Instance, Registration};
use crate::waits::{Socket, remember_instance, remember_set};

/// The descriptor that a call has reported as readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reported {
    Socket,
    /// The epoll instance in which the socket is registered: the server asks that for the socket.
    EpollInstance,
}

/// A call that waits.
pub(crate) trait WaitCall {
    /// Keeps what a wait is for that can last: it shows how this thread learns of events. A set of descriptors is kept
    /// only while the thread has handshakes.
    fn remember(&self, has_handshakes: fn() -> bool);
    /// Returns whether the call can report the socket as readable.
    fn can_report(&self, socket: Socket) -> bool;
    /// Reports the socket as readable, if the call can.
    fn report(&mut self, socket: Socket) -> Option<Reported>;
    /// What the call returns after these reports.
    fn return_value(self) -> c_int;
}

/// `epoll_wait` and its siblings.
pub(crate) struct EpollWait<'a> {
    pub(crate) instance: Instance,
    /// The room for events.
    pub(crate) events: &'a mut [epoll_event],
    /// Events that are reported, from the first on.
    pub(crate) reported: usize,
}

impl WaitCall for EpollWait<'_> {
    fn remember(&self, _: fn() -> bool) {
        if registrations::is_kept(self.instance.descriptor() as c_int, this_thread())
            || !registrations::waits(self.instance, this_thread())
        {
            return;
        }
        remember_instance(self.instance);
    }

    fn can_report(&self, socket: Socket) -> bool {
        let is_here = |found: Registration| found.epoll == self.instance;
        self.reported < self.events.len() && socket.registration().is_some_and(is_here)
    }

    fn report(&mut self, socket: Socket) -> Option<Reported> {
        let registration = socket.registration().filter(|found| found.epoll == self.instance)?;
        let event = self.events.get_mut(self.reported)?;
        *event = epoll_event {
            events: libc::EPOLLIN as u32,
            u64: registration.data,
        };
        self.reported += 1;
        Some(Reported::Socket)
    }

    fn return_value(self) -> c_int {
        self.reported as c_int
    }
}

/// `poll` and `ppoll`.
pub(crate) struct Poll<'a> {
    pub(crate) fds: &'a mut [pollfd],
    /// True if a socket was reported: the entries of the others are empty then.
    pub(crate) has_reports: bool,
}

/// Events of a server that waits until a socket is readable.
const READABLE: i16 = libc::POLLIN | libc::POLLRDNORM;

impl Poll<'_> {
    fn has(&self, fd: c_int) -> bool {
        (self.fds.iter()).any(|one| one.fd == fd && one.events & READABLE != 0)
    }
}

impl WaitCall for Poll<'_> {
    fn remember(&self, has_handshakes: fn() -> bool) {
        remember_set(Way::Poll, has_handshakes(), |set| {
            let readable = self.fds.iter().filter(|one| one.events & READABLE != 0);
            readable.for_each(|one| set.add(one.fd));
        });
    }

    fn can_report(&self, socket: Socket) -> bool {
        readable_fd(socket, |fd| self.has(fd)).is_some()
    }

    fn report(&mut self, socket: Socket) -> Option<Reported> {
        let fd = readable_fd(socket, |fd| self.has(fd))?;
        for one in &mut *self.fds {
            if !self.has_reports {
                one.revents = 0;
            }
            if one.fd == fd {
                one.revents = one.events & READABLE;
            }
        }
        self.has_reports = true;
        Some(reported_by(socket, fd))
    }

    fn return_value(self) -> c_int {
        self.fds.iter().filter(|one| one.revents != 0).count() as c_int
    }
}

/// `select` and `pselect`: the three sets, in words, as far as the server gives any.
pub(crate) struct Select<'a> {
    /// Descriptors from this number on are not asked for.
    pub(crate) count: usize,
    pub(crate) sets: [Option<&'a mut [u64]>; 3],
    /// Bits of the sockets that are reported as readable.
    pub(crate) reported: [u64; SELECTABLE / 64],
}

/// Descriptors that the C library's sets have room for.
pub(crate) const SELECTABLE: usize = libc::FD_SETSIZE;

impl Select<'_> {
    fn has(&self, fd: c_int) -> bool {
        let (word, bit) = place(fd);
        let readable = self.sets[0].as_deref();
        (fd as u32 as usize) < self.count
            && readable.is_some_and(|words| words.get(word).is_some_and(|word| word & bit != 0))
    }
}

impl WaitCall for Select<'_> {
    fn remember(&self, has_handshakes: fn() -> bool) {
        remember_set(Way::Select, has_handshakes(), |set| {
            let words = self.sets[0].as_deref().unwrap_or_default();
            set.fill(words, self.count);
        });
    }

    fn can_report(&self, socket: Socket) -> bool {
        readable_fd(socket, |fd| self.has(fd)).is_some()
    }

    fn report(&mut self, socket: Socket) -> Option<Reported> {
        let fd = readable_fd(socket, |fd| self.has(fd))?;
        let (word, bit) = place(fd);
        self.reported[word] |= bit;
        Some(reported_by(socket, fd))
    }

    fn return_value(self) -> c_int {
        let [readable, writable, other] = self.sets;
        for set in [writable, other].into_iter().flatten() {
            set.fill(0);
        }
        for (word, reported) in readable.into_iter().flatten().zip(self.reported) {
            *word = reported;
        }
        self.reported.iter().map(|word| word.count_ones()).sum::<u32>() as c_int
    }
}

/// The descriptor in a set of descriptors that is reported as readable for the socket: its own, or that of the instance
/// in which it is registered, which the server asks then.
fn readable_fd(socket: Socket, has: impl Fn(c_int) -> bool) -> Option<c_int> {
    if has(socket.fd) && socket.is_open() {
        return Some(socket.fd);
    }
    let instance = socket.registration()?.epoll.descriptor() as c_int;
    has(instance).then_some(instance)
}

/// What this descriptor is to the socket.
fn reported_by(socket: Socket, fd: c_int) -> Reported {
    match fd == socket.fd {
        true => Reported::Socket,
        false => Reported::EpollInstance,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::process;
    use crate::waits::waits_in;

    fn socket(fd: c_int) -> Socket {
        let file = registrations::hold(fd).unwrap();
        Socket { fd, file }
    }

    fn poll(fds: &mut [pollfd]) -> Poll<'_> {
        Poll {
            fds,
            has_reports: false,
        }
    }

    fn entry(fd: c_int, events: i16) -> pollfd {
        let revents = libc::POLLHUP;
        pollfd { fd, events, revents }
    }

    #[test]
    fn poll_reports_the_sockets_that_it_is_for() {
        let (one, other, writes) = (socket(230_000), socket(230_001), socket(230_002));
        let mut fds = [
            entry(-1, libc::POLLIN),
            entry(one.fd, libc::POLLIN | libc::POLLOUT),
            entry(writes.fd, libc::POLLOUT),
            entry(one.fd, libc::POLLIN),
        ];
        let mut call = poll(&mut fds);
        assert!(call.can_report(one) && !call.can_report(other) && !call.can_report(writes));
        assert_eq!(call.report(one), Some(Reported::Socket));
        assert!(call.report(other).is_none() && call.report(writes).is_none());
        assert_eq!(call.return_value(), 2);
        assert_eq!(fds.map(|one| one.revents), [0, libc::POLLIN, 0, libc::POLLIN]);
    }

    #[test]
    fn select_reports_the_sockets_that_it_is_for() {
        let (one, other) = (socket(70), socket(71));
        let (mut readable, mut writable) = ([1, 1 << 6 | 1 << 9], [7, 7]);
        let mut call = Select {
            count: 73,
            sets: [Some(&mut readable), Some(&mut writable), None],
            reported: [0; SELECTABLE / 64],
        };
        assert!(call.can_report(one) && !call.can_report(other) && !call.can_report(socket(900)));
        assert!(!call.can_report(socket(73)), "not asked for");
        assert!(call.report(one).is_some() && call.report(other).is_none());
        assert_eq!(call.return_value(), 1);
        assert_eq!((readable, writable), ([0, 1 << 6], [0, 0]));
    }

    #[test]
    fn epoll_reports_as_long_as_there_is_room() {
        let instance = registrations::instance(230_100).unwrap();
        for fd in [230_101, 230_102] {
            registrations::set(fd, 230_100, true, libc::EPOLLIN as u32, fd as u64);
        }
        let mut room = [epoll_event { events: 0, u64: 0 }];
        let mut call = EpollWait {
            instance,
            events: &mut room,
            reported: 0,
        };
        assert_eq!(call.report(socket(230_101)), Some(Reported::Socket));
        assert_eq!(call.report(socket(230_102)), None);
        assert!(!call.can_report(socket(230_102)));
        assert_eq!(call.return_value(), 1);
        let data = room[0].u64;
        assert_eq!(data, 230_101);
    }

    #[test]
    fn poll_reports_the_instance_of_a_socket() {
        registrations::instance(230_400).expect("an instance");
        registrations::set(230_401, 230_400, true, libc::EPOLLIN as u32, 7);
        let mut fds = [entry(230_400, libc::POLLIN)];
        let reported = poll(&mut fds).report(socket(230_401));
        assert_eq!(reported, Some(Reported::EpollInstance));
        assert_eq!(fds[0].revents, libc::POLLIN);
    }

    #[test]
    fn a_number_that_is_another_file_is_not_reported() {
        process::claim_memory();
        let before = socket(230_200);
        registrations::close(before.fd);
        let mut fds = [entry(before.fd, libc::POLLIN)];
        assert!(!poll(&mut fds).can_report(before));
        assert!(poll(&mut fds).can_report(socket(before.fd)));
    }

    #[test]
    fn an_instance_in_which_several_threads_wait_is_no_threads_own() {
        let instance = registrations::instance(230_300).unwrap();
        let wait = move || {
            let events = &mut [];
            let call = EpollWait {
                instance,
                events,
                reported: 0,
            };
            call.remember(|| false);
            waits_in(instance)
        };
        assert!(wait() && wait());
        assert!(!std::thread::spawn(wait).join().unwrap());
        assert!(!wait());
    }
}
