//! Listening sockets under overload: what the kernel says of their queues, the limits of these, and connections
//! that are not worth an answer any more. `overload` decides.
//!
//! While a socket is overloaded, a connection is refused whose client has gone, or that has waited for half a second:
//! the queue was long when overload began, and the server may have done something else since.
//!
//! `accept` and `close` may be called where nothing may wait, as `registrations` says. No memory is asked for here, and
//! a lock that is held is not waited for: another thread looks at that socket, and one look is enough. Forks do
//! not wait for these locks either: a child in which one stayed locked leaves that socket alone.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};

use widelane_openssl_tables::Overload as News;

use crate::errno::{errno, set_errno};
use crate::originals;
use crate::overload::{INTERVAL, LATE, Overload, Queue};
use crate::process;
use crate::provider;

/// A listening socket.
struct Socket {
    /// Connections that were accepted since the last look.
    accepted: AtomicU32,
    /// The time of the next look.
    due: AtomicU64,
    is_on: AtomicBool,
    overload: Mutex<Overload>,
}

/// The server listens on the socket: the limit of its queue is the usual one.
pub(crate) fn listens(fd: c_int) {
    keeping_errno(|| {
        if let Some(queue) = queue(fd)
            && let Some(socket) = find(fd).or_else(|| claim(fd))
        {
            socket.restart(queue.limit);
        }
    });
}

/// The server has accepted a connection of this listening socket.
pub(crate) fn accepted(listener: c_int) {
    let Some(socket) = find(listener).or_else(|| claim(listener)) else {
        return;
    };
    socket.accepted.fetch_add(1, Relaxed);
    let (now, due) = (now(), socket.due.load(Relaxed));
    let is_mine = || {
        let next = now + INTERVAL;
        (socket.due.compare_exchange(due, next, Relaxed, Relaxed)).is_ok()
    };
    if now >= due && is_mine() && is_allowed(listener) {
        keeping_errno(|| socket.look(listener, now));
    }
}

/// Returns whether connections of this listening socket may be refused.
pub(crate) fn chooses(listener: c_int) -> bool {
    find(listener).is_some_and(|socket| socket.is_on.load(Relaxed))
        && provider::passes().is_some()
        && process::owns_memory()
}

/// Returns whether a connection that was just accepted is to be closed, and another one accepted. It is reset then.
pub(crate) fn refuses(listener: c_int, fd: c_int) -> bool {
    if fd < 0 {
        return false;
    }
    keeping_errno(|| {
        let Some(info) = info(fd) else {
            return false;
        };
        let waited = info[LAST_DATA_RECEIVED];
        let mut news = match state(&info) {
            ESTABLISHED if waited > LATE => News::Refused,
            ESTABLISHED => News::Served,
            _ => News::Gone,
        };
        if news != News::Served && !is_nonblocking(listener) {
            // This would wait for a connection that may never come.
            news = News::Served;
        }
        count(news, waited);
        let refused = news != News::Served;
        if refused {
            let at_once = libc::linger {
                l_onoff: 1,
                l_linger: 0,
            };
            // SAFETY: the value is of the size that is given, and outlives the call.
            unsafe {
                libc::setsockopt(
                    fd,
                    libc::SOL_SOCKET,
                    libc::SO_LINGER,
                    (&raw const at_once).cast(),
                    size_of_val(&at_once) as libc::socklen_t,
                )
            };
        }
        refused
    })
}

/// The server closes the descriptor. The socket may live on in other processes, with its usual limit.
pub(crate) fn close(fd: c_int) {
    if let Some(socket) = find(fd)
        && process::owns_memory()
    {
        if socket.is_on.load(Relaxed)
            && let Ok(overload) = socket.overload.try_lock()
        {
            keeping_errno(|| set_limit(fd, overload.usual()));
        }
        forget(fd);
    }
}

/// The descriptor has become another file.
pub(crate) fn forget(fd: c_int) {
    if let Some(at) = position(fd)
        && process::owns_memory()
    {
        SOCKETS[at].restart(0);
        let _ = DESCRIPTORS[at].compare_exchange(fd + 1, 0, AcqRel, Relaxed);
    }
}

/// Forgets all descriptors from `first` to `last`.
pub(crate) fn forget_all(first: c_uint, last: c_uint) {
    for descriptor in &DESCRIPTORS {
        let fd = descriptor.load(Relaxed) - 1;
        if fd >= 0 && (first..=last).contains(&(fd as c_uint)) {
            forget(fd);
        }
    }
}

/// Empties all that the parent knew: called in the child of a fork.
pub(crate) fn forked() {
    for socket in &SOCKETS {
        socket.restart(socket.usual());
    }
}

impl Socket {
    fn look(&self, fd: c_int, now: u64) {
        let Ok(mut overload) = self.overload.try_lock() else {
            return;
        };
        let Some(queue) = queue(fd) else {
            return;
        };
        let accepted = self.accepted.swap(0, Relaxed);
        if let Some(limit) = overload.look(now, accepted, queue) {
            set_limit(fd, limit);
        }
        self.turn(overload.is_on());
    }

    fn turn(&self, is_on: bool) {
        match (self.is_on.swap(is_on, Relaxed), is_on) {
            (false, true) => count(News::Begins, 0),
            (true, false) => count(News::Ends, 0),
            _ => {}
        }
    }

    fn restart(&self, usual: u32) {
        self.turn(false);
        self.accepted.store(0, Relaxed);
        self.due.store(0, Relaxed);
        if let Ok(mut overload) = self.overload.try_lock() {
            *overload = Overload::new(usual);
        }
    }

    fn usual(&self) -> u32 {
        (self.overload.try_lock()).map_or(0, |overload| overload.usual())
    }
}

/// Has the provider count it.
fn count(news: News, waited: u32) {
    if let Some(passes) = provider::passes() {
        (passes.overload)(news, waited);
    }
}

/// Returns whether the socket's queue may be shortened. Without the provider nothing is known of what the configuration
/// wants.
fn is_allowed(fd: c_int) -> bool {
    let is_wanted = provider::passes().is_some_and(|passes| (passes.shortens_queues)() == 1);
    is_wanted && process::owns_memory() && is_nonblocking(fd)
}

fn find(fd: c_int) -> Option<&'static Socket> {
    position(fd).map(|at| &SOCKETS[at])
}

fn position(fd: c_int) -> Option<usize> {
    let is_it = |known: &AtomicI32| known.load(Relaxed) == fd.wrapping_add(1);
    (fd >= 0).then(|| DESCRIPTORS.iter().position(is_it))?
}

/// A place for a listening socket, if one is free.
fn claim(fd: c_int) -> Option<&'static Socket> {
    let is_free = |place: &AtomicI32| (place.compare_exchange(0, fd.checked_add(1)?, AcqRel, Relaxed).ok()).map(drop);
    let at = DESCRIPTORS.iter().position(|place| is_free(place).is_some());
    at.filter(|_| fd >= 0).map(|at| &SOCKETS[at])
}

/// Milliseconds of a clock that costs nearly nothing, and is a few behind.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Queue of a socket that listens for TCP, as the kernel reports it; `None` for any other file.
fn queue(fd: c_int) -> Option<Queue> {
    let info = info(fd).filter(|info| state(info) == LISTEN)?;
    let memory: [u32; DROPS + 1] = option(fd, libc::SOL_SOCKET, libc::SO_MEMINFO)?;
    Some(Queue {
        length: info[UNACKED],
        limit: info[SACKED],
        drops: memory[DROPS],
    })
}

/// The beginning of the kernel's `tcp_info`, in words.
type Info = [u32; LAST_DATA_RECEIVED + 1];

fn info(fd: c_int) -> Option<Info> {
    option(fd, libc::IPPROTO_TCP, libc::TCP_INFO)
}

/// `tcpi_state`, the first byte.
fn state(info: &Info) -> u8 {
    info[0].to_ne_bytes()[0]
}

/// Words of [`Info`]. Of a listening socket, the first two are the length of its queue and the limit.
const UNACKED: usize = 6;
const SACKED: usize = 7;
const LAST_DATA_RECEIVED: usize = 13;
/// `SK_MEMINFO_DROPS`.
const DROPS: usize = 8;
/// `TCP_ESTABLISHED`: neither side has ended it.
const ESTABLISHED: u8 = 1;
/// `TCP_LISTEN`.
const LISTEN: u8 = 10;

/// An option of a socket, of so many words; `None` if it has none or a shorter one.
fn option<const WORDS: usize>(fd: c_int, level: c_int, name: c_int) -> Option<[u32; WORDS]> {
    let mut value = [0; WORDS];
    let size = size_of_val(&value) as libc::socklen_t;
    let mut len = size;
    let place: *mut c_void = value.as_mut_ptr().cast();
    // SAFETY: a place of `len` bytes, which any bytes may fill.
    let result = unsafe { libc::getsockopt(fd, level, name, place, &mut len) };
    (result == 0 && len == size).then_some(value)
}

fn set_limit(fd: c_int, limit: u32) {
    // SAFETY: a function of numbers; the socket listens already.
    unsafe { originals::listen(fd, c_int::try_from(limit).unwrap_or(c_int::MAX)) };
}

fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: a function of numbers.
    let flags = unsafe { originals::fcntl(fd, libc::F_GETFL, 0) };
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}

/// The caller sees the original's `errno`.
fn keeping_errno<R>(work: impl FnOnce() -> R) -> R {
    let before = errno();
    let result = work();
    set_errno(before);
    result
}

/// Most listening sockets that are watched. The others keep the queues that the server has set.
const MOST: usize = 32;

/// The descriptors of [`SOCKETS`], each plus one; 0: a free place.
static DESCRIPTORS: [AtomicI32; MOST] = [const { AtomicI32::new(0) }; MOST];

static SOCKETS: [Socket; MOST] = [const {
    Socket {
        accepted: AtomicU32::new(0),
        due: AtomicU64::new(0),
        is_on: AtomicBool::new(false),
        overload: Mutex::new(Overload::new(0)),
    }
}; MOST];
