//! Stand-ins for the C library's functions that wait for descriptors.

use std::ffi::c_int;
use std::{ptr, slice};

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use widelane_status::Way;

use super::macros::stand_ins;
use crate::event_loop::wait;
use crate::wait_calls::{EpollWait, Poll, SELECTABLE, Select};
use crate::{originals, registrations, waits};

stand_ins! {
    /// `epoll_wait(2)`.
    epoll_wait(epoll: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int
        = epoll_wait,
        plain { waits::is_plain(epoll) },
        waits {
            // SAFETY: the caller's promise.
            let look = || unsafe { originals::epoll_wait(epoll, events, max, 0) };
            // SAFETY: the same.
            unsafe { wait(|| epoll_call(epoll, events, max), timeout != 0, look) }
        };

    /// `epoll_pwait(2)`.
    epoll_pwait(
        epoll: c_int, events: *mut epoll_event, max: c_int, timeout: c_int, mask: *const sigset_t
    ) -> c_int = epoll_pwait,
        plain { waits::is_plain(epoll) },
        waits {
            // SAFETY: the caller's promise.
            let look = || unsafe { originals::epoll_pwait(epoll, events, max, 0, mask) };
            // SAFETY: the same.
            unsafe { wait(|| epoll_call(epoll, events, max), timeout != 0, look) }
        };

    /// `epoll_pwait2(2)`.
    epoll_pwait2(
        epoll: c_int, events: *mut epoll_event, max: c_int, timeout: *const timespec,
        mask: *const sigset_t
    ) -> c_int = epoll_pwait2,
        plain { waits::is_plain(epoll) },
        waits {
            // SAFETY: the caller's promise.
            let look = || unsafe { originals::epoll_pwait2(epoll, events, max, &NOW, mask) };
            // SAFETY: the same.
            unsafe { wait(|| epoll_call(epoll, events, max), can_last(timeout), look) }
        };

    /// `poll(2)`.
    poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int = poll,
        plain { waits::is_plain_for_set(Way::Poll) },
        waits {
            // SAFETY: the caller's promise.
            let look = || unsafe { originals::poll(fds, count, 0) };
            // SAFETY: the same.
            unsafe { wait(|| poll_call(fds, count, usize::MAX), timeout != 0, look) }
        };

    /// `poll(2)` under the name that the C library keeps for itself.
    __poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int = poll,
        // SAFETY: the caller's promise.
        waits { Some(unsafe { poll(fds, count, timeout) }) };

    /// `poll(2)` of programs that are built with checks.
    __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, len: usize) -> c_int = poll_chk,
        plain { waits::is_plain_for_set(Way::Poll) },
        waits {
            // SAFETY: the caller's promise.
            let look = || unsafe { originals::poll_chk(fds, count, 0, len) };
            // SAFETY: the same.
            unsafe { wait(|| poll_call(fds, count, len), timeout != 0, look) }
        };

    /// `ppoll(2)`.
    ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int
        = ppoll,
        plain { waits::is_plain_for_set(Way::Poll) },
        waits {
            // SAFETY: the caller's promise.
            let look = || unsafe { originals::ppoll(fds, count, &NOW, mask) };
            // SAFETY: the same.
            unsafe { wait(|| poll_call(fds, count, usize::MAX), can_last(timeout), look) }
        };

    /// `ppoll(2)` of programs that are built with checks.
    __ppoll_chk(
        fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, len: usize
    ) -> c_int = ppoll_chk,
        plain { waits::is_plain_for_set(Way::Poll) },
        waits {
            // SAFETY: the caller's promise.
            let look = || unsafe { originals::ppoll_chk(fds, count, &NOW, mask, len) };
            // SAFETY: the same.
            unsafe { wait(|| poll_call(fds, count, len), can_last(timeout), look) }
        };

    /// `select(2)`.
    select(
        count: c_int, read: *mut fd_set, write: *mut fd_set, other: *mut fd_set, timeout: *mut timeval
    ) -> c_int = select,
        plain { waits::is_plain_for_set(Way::Select) },
        waits {
            let sets = [read, write, other];
            // SAFETY: the caller's promise.
            let look = || unsafe { look_at_sets(count, sets, ptr::null()) };
            // SAFETY: the same.
            let time = unsafe { timeout.as_ref() };
            let can_last = time.is_none_or(|time| time.tv_sec != 0 || time.tv_usec != 0);
            // SAFETY: the same.
            unsafe { wait(|| select_call(count, sets), can_last, look) }
        };

    /// `select(2)` under the name that the C library keeps for itself.
    __select(
        count: c_int, read: *mut fd_set, write: *mut fd_set, other: *mut fd_set, timeout: *mut timeval
    ) -> c_int = select,
        // SAFETY: the caller's promise.
        waits { Some(unsafe { select(count, read, write, other, timeout) }) };

    /// `pselect(2)`.
    pselect(
        count: c_int, read: *mut fd_set, write: *mut fd_set, other: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t
    ) -> c_int = pselect,
        plain { waits::is_plain_for_set(Way::Select) },
        waits {
            let sets = [read, write, other];
            // SAFETY: the caller's promise.
            let look = || unsafe { look_at_sets(count, sets, mask) };
            // SAFETY: the same.
            unsafe { wait(|| select_call(count, sets), can_last(timeout), look) }
        };
}

/// A wait in an epoll instance.
///
/// # Safety
///
/// As `epoll_wait`. What this returns must be gone when the caller goes on.
unsafe fn epoll_call<'a>(epoll: c_int, events: *mut epoll_event, max: c_int) -> Option<EpollWait<'a>> {
    let instance = registrations::instance(epoll)?;
    let room = match usize::try_from(max) {
        Ok(room) if !events.is_null() => room,
        _ => 0,
    };
    let events = match room {
        0 => &mut [],
        // SAFETY: the server gives room for this number of events.
        _ => unsafe { slice::from_raw_parts_mut(events, room) },
    };
    Some(EpollWait {
        instance,
        events,
        reported: 0,
    })
}

/// A wait for descriptors, whose array has at least this number of bytes.
///
/// # Safety
///
/// As `poll`. What this returns must be gone when the caller goes on.
unsafe fn poll_call<'a>(fds: *mut pollfd, count: nfds_t, bytes: usize) -> Option<Poll<'a>> {
    let count = count as usize;
    let fits = count <= bytes / size_of::<pollfd>() && count <= MOST_POLLED;
    let fits = fits && !fds.is_null() && fds.is_aligned();
    fits.then(|| Poll {
        // SAFETY: the server passes this number of entries, and the array is aligned and not null.
        fds: unsafe { slice::from_raw_parts_mut(fds, count) },
        has_reports: false,
    })
}

/// More descriptors than a process has: the kernel refuses such a call.
const MOST_POLLED: usize = 1 << 20;

/// A wait for sets of descriptors. None where two of them are the same memory.
///
/// # Safety
///
/// As `select`. What this returns must be gone when the caller goes on.
unsafe fn select_call<'a>(count: c_int, sets: [*mut fd_set; 3]) -> Option<Select<'a>> {
    let count = usize::try_from(count).ok().filter(|count| *count <= SELECTABLE)?;
    let [read, write, other] = sets;
    let are_same = |one: *mut fd_set, other| !one.is_null() && one == other;
    if are_same(read, write) || are_same(read, other) || are_same(write, other) {
        return None;
    }
    let words = |set: *mut fd_set| {
        // SAFETY: the sets that the server passes have a bit for each number below `count`, in words.
        (!set.is_null()).then(|| unsafe { slice::from_raw_parts_mut(set.cast(), count.div_ceil(64)) })
    };
    Some(Select {
        count,
        sets: sets.map(words),
        reported: [0; SELECTABLE / 64],
    })
}

/// `pselect` without waiting, which leaves the sets as they are if there is nothing. Nothing here is dropped: a thread
/// may be cancelled in the original.
///
/// # Safety
///
/// As `pselect`.
unsafe fn look_at_sets(count: c_int, sets: [*mut fd_set; 3], mask: *const sigset_t) -> c_int {
    const WORDS: usize = SELECTABLE / 64;
    let words = usize::try_from(count).unwrap_or(0).div_ceil(64);
    if words > WORDS {
        return 0;
    }
    let mut copies = [[0_u64; WORDS]; 3];
    let mut places = [ptr::null_mut::<u64>(); 3];
    for i in 0..3 {
        if !sets[i].is_null() {
            places[i] = copies[i].as_mut_ptr();
            // SAFETY: the caller's promise; the copy has at least as many words.
            unsafe { ptr::copy_nonoverlapping(sets[i].cast(), places[i], words) };
        }
    }
    let [read, write, other] = places.map(|place| place.cast());
    // SAFETY: copies of the server's sets, and its mask.
    let found = unsafe { originals::pselect(count, read, write, other, &NOW, mask) };
    if found > 0 {
        for i in 0..3 {
            if !sets[i].is_null() {
                // SAFETY: the caller's promise; the copy has at least as many words.
                unsafe { ptr::copy_nonoverlapping(places[i], sets[i].cast(), words) };
            }
        }
    }
    found
}

pub(super) const NOW: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

/// Returns whether a wait may last for a while; null stands for ever.
fn can_last(timeout: *const timespec) -> bool {
    // SAFETY: the server passes a time or null.
    let time = unsafe { timeout.as_ref() };
    time.is_none_or(|time| time.tv_sec != 0 || time.tv_nsec != 0)
}
