//! Stand-ins for the C library's functions that open, close, copy and register descriptors.

use std::ffi::{c_int, c_uint};

use libc::{epoll_event, sockaddr, socklen_t};

use super::macros::stand_ins;
use crate::boundary::guarded;
use crate::{backlog, handshakes, originals, provider, registrations};

stand_ins! {
    /// `epoll_ctl(2)`.
    epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int
        = epoll_ctl,
        instead {
            if operation != libc::EPOLL_CTL_DEL {
                handshakes::settle_before_move(fd, epoll);
            }
            None
        },
        then |result| {
            // Connections come after the provider, which OpenSSL loads before it knows any.
            if result == 0 && provider::passes().is_some() {
                match operation {
                    libc::EPOLL_CTL_DEL => registrations::remove(fd, epoll),
                    _ => {
                        // SAFETY: the kernel has read it.
                        let event = unsafe { *event };
                        let added = operation == libc::EPOLL_CTL_ADD;
                        registrations::set(fd, epoll, added, event.events, event.u64);
                    }
                }
            }
        };

    /// `accept(2)`.
    accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int = accept,
        then |accepted| { is_accepted(fd, accepted) },
        waits {
            // SAFETY: the caller's promise.
            let accept = || unsafe { originals::accept(fd, address, len) };
            // SAFETY: the same.
            unsafe { accept_in_time(fd, len, accept) }
        };

    /// `accept4(2)`.
    accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int = accept4,
        then |accepted| { is_accepted(fd, accepted) },
        waits {
            // SAFETY: the caller's promise.
            let accept = || unsafe { originals::accept4(fd, address, len, flags) };
            // SAFETY: the same.
            unsafe { accept_in_time(fd, len, accept) }
        };

    /// `listen(2)`.
    listen(fd: c_int, limit: c_int) -> c_int = listen, then |done| {
        if done == 0 {
            backlog::listens(fd);
        }
    };

    /// `close(2)`.
    close(fd: c_int) -> c_int = close, instead {
        if provider::passes().is_some() {
            registrations::close(fd);
            backlog::close(fd);
        }
        None
    };

    /// `close(2)` under the name that the C library keeps for itself.
    __close(fd: c_int) -> c_int = close,
        // SAFETY: the caller's promise.
        waits { Some(unsafe { close(fd) }) };

    /// `close_range(2)`.
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = close_range,
        then |closed| {
            if closed == 0 && flags as c_uint & libc::CLOSE_RANGE_CLOEXEC == 0 {
                registrations::close_all(first, last);
                backlog::forget_all(first, last);
            }
        };

    /// `closefrom(3)`.
    closefrom(first: c_int) = closefrom,
        then |_done| {
            registrations::close_all(first.max(0) as c_uint, c_uint::MAX);
            backlog::forget_all(first.max(0) as c_uint, c_uint::MAX);
        };

    /// `dup(2)`.
    dup(fd: c_int) -> c_int = dup, then |to| { is_duplicated(fd, to) };

    /// `dup2(2)`.
    dup2(fd: c_int, to: c_int) -> c_int = dup2, then |result| {
        if fd != to {
            is_duplicated(fd, result);
        }
    };

    /// `dup2(2)` under the name that the C library keeps for itself.
    __dup2(fd: c_int, to: c_int) -> c_int = dup2,
        // SAFETY: the caller's promise.
        waits { Some(unsafe { dup2(fd, to) }) };

    /// `dup3(2)`.
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int = dup3,
        then |result| { is_duplicated(fd, result) };

    /// `fcntl(2)`: a call has room for the one value that it may have.
    fcntl(fd: c_int, command: c_int, value: usize) -> c_int = fcntl, then |result| {
        if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
            is_duplicated(fd, result);
        }
    };

    /// `fcntl(2)` under the name that the C library keeps for itself.
    __fcntl(fd: c_int, command: c_int, value: usize) -> c_int = fcntl,
        // SAFETY: the caller's promise.
        waits { Some(unsafe { fcntl(fd, command, value) }) };

    /// `fcntl(2)` of programs for large files.
    fcntl64(fd: c_int, command: c_int, value: usize) -> c_int = fcntl64, then |result| {
        if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
            is_duplicated(fd, result);
        }
    };
}

fn is_accepted(listener: c_int, fd: c_int) {
    if provider::passes().is_some() {
        registrations::accepted(fd);
        if fd >= 0 {
            backlog::accepted(listener);
        }
    }
}

/// Accepts a connection that is worth an answer, where the listening socket is overloaded. `None` leaves the call
/// to the original: there is no overload, or too many in a row were not worth one.
///
/// # Safety
///
/// As `accept`, which fills in the caller's address, and `len` is that address's length or null.
unsafe fn accept_in_time(listener: c_int, len: *mut socklen_t, accept: impl Fn() -> c_int) -> Option<c_int> {
    if !guarded(|| backlog::chooses(listener)).unwrap_or(false) {
        return None;
    }
    // SAFETY: the caller's promise.
    let room = unsafe { len.as_ref() }.copied();
    for _ in 0..MOST_REFUSED {
        // Outside of what is guarded: a thread may be cancelled here and in `close`.
        let fd = accept();
        if !guarded(|| backlog::refuses(listener, fd)).unwrap_or(false) {
            guarded(|| is_accepted(listener, fd));
            return Some(fd);
        }
        // SAFETY: the descriptor is new, and the caller has not seen it.
        unsafe { originals::close(fd) };
        if let Some(room) = room {
            // SAFETY: the caller's promise; it is the length that the caller gave.
            unsafe { *len = room };
        }
    }
    None
}

/// Connections that one call may refuse: others wait for the caller meanwhile.
const MOST_REFUSED: usize = 64;

/// `to` is `fd`'s file from now on, whatever it was before.
fn is_duplicated(fd: c_int, to: c_int) {
    if to >= 0 && provider::passes().is_some() {
        registrations::duplicated(fd);
        registrations::close(to);
        backlog::forget(to);
    }
}
