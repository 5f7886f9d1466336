//! The functions that stand in for OpenSSL's and the C library's. Each does what the original does,
//! except for handshakes that are suspended.
//!
//! A stand-in calls the original itself, outside of everything that this library does before and after: what
//! fails here is left to the original, and a thread that is cancelled in the original unwinds through
//! functions that allow it.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::{mem, ptr, slice};

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, sockaddr, socklen_t, timespec, timeval};
use widelane_status::Way;

use crate::backlog;
use crate::boundary::guarded;
use crate::connections;
use crate::established;
use crate::events::{Loop, Next, Seen};
use crate::handshakes::{self, Needs, Step};
use crate::imports;
use crate::originals::{self, InfoCallback, Ssl};
use crate::provider;
use crate::registrations;
use crate::runtimes;
use crate::signals::{self, Place};
use crate::waits::{self, InInstance, Polled, SELECTABLE, Selected, Watch};

/// `SSL_ERROR_WANT_READ`.
const WANT_READ: c_int = 2;
/// `SSL_READING`.
const READING: c_int = 3;

/// Does the rest of a handshake that a call of another kind would do first, so that no buffer of the
/// server is held while it is suspended. `Some` with what the server gets if the handshake has not
/// ended well.
fn handshake_first(ssl: Ssl) -> Option<c_int> {
    handshakes::drive(ssl, Step::Do).filter(|result| *result != 1)
}

/// Does what [`handshake_first`] does, for functions that return 0 where others return -1.
fn handshake_first_or_0(ssl: Ssl) -> Option<c_int> {
    handshake_first(ssl).map(|_| 0)
}

/// Functions that OpenSSL and the C library export, each with its original. `instead` may say what the
/// caller gets without the original, `apart` and `ended` of which connection the call is, `ended` where nothing is to be
/// done for one whose handshake has ended, and `then` takes notice of the result. `waits` is as `instead`, outside of the
/// boundary: a thread may be cancelled there. Where `plain` is true, and for connections that [`established`] has,
/// the call is the original's from the beginning: this costs a few instructions and no frame.
macro_rules! stand_ins {
    ($(
        $(#[$meta:meta])*
        $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $original:ident
        $(, plain $plain:block)?
        $(, ended $ended:ident)?
        $(, apart $ssl:ident)?
        $(, instead $instead:block)?
        $(, then |$done:ident| $then:block)?
        $(, waits $waits:block)?
        ;
    )*) => {
        /// The address of the function that stands in for the one with this name.
        pub(crate) fn stand_in(name: &CStr) -> Option<*const c_void> {
            match name.to_str().ok()? {
                $(stringify!($name) => Some($name as *const c_void),)*
                _ => None,
            }
        }

        $(
        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// As the original.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, unreachable_pub)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) $(-> $result)? {
            const HAS_PLAIN_CALLS: bool = false $(|| is_given(stringify!($plain)))? $(|| is_given(stringify!($ended)))?;
            /// The original, once a whole call has found it; until then that call.
            static ORIGINAL: AtomicPtr<c_void> = AtomicPtr::new(match HAS_PLAIN_CALLS {
                true => whole as *mut c_void,
                false => ptr::null_mut(),
            });
            if false $(|| $plain)? $(|| established::is_alone($ended))? {
                let original = ORIGINAL.load(Relaxed);
                // SAFETY: the type is that of both; the caller's promise.
                return unsafe {
                    mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($type),*) $(-> $result)?>(original)(
                        $($argument),*
                    )
                };
            }
            #[inline(never)]
            unsafe extern "C-unwind" fn whole($($argument: $type),*) $(-> $result)? {
                let _needs = Needs::Everything;
                $(let _needs = guarded(|| handshakes::needs($ended)).unwrap_or(Needs::Nothing);)?
                $(
                if _needs == Needs::Everything && let Some(answer) = guarded(|| $instead).flatten() {
                    return answer;
                }
                )?
                $(
                if let Some(answer) = $waits {
                    return answer;
                }
                )?
                $(let _apart = (_needs != Needs::Nothing).then(|| handshakes::apart($ssl));)?
                if HAS_PLAIN_CALLS
                    && let Some(found) = originals::found::$original.get()
                    // A store would have other CPUs fetch it anew.
                    && ORIGINAL.load(Relaxed) != found.as_ptr()
                {
                    ORIGINAL.store(found.as_ptr(), Relaxed);
                }
                // SAFETY: the caller's promise.
                let result = unsafe { originals::$original($($argument),*) };
                $(
                guarded(|| {
                    let $done = result;
                    $then
                });
                )?
                result
            }
            // SAFETY: the caller's promise.
            unsafe { whole($($argument),*) }
        }
        )*
    };
}

stand_ins! {
    /// `SSL_new(3)`.
    SSL_new(context: *mut c_void) -> Ssl = ssl_new, then |ssl| { handshakes::is_new(ssl) };

    /// `SSL_do_handshake(3)`.
    SSL_do_handshake(ssl: Ssl) -> c_int = ssl_do_handshake,
        apart ssl, instead { handshakes::drive(ssl, Step::Do) },
        then |result| { has_ended(ssl, result) };

    /// `SSL_accept(3)`, which makes a connection a server's that does not know yet what it is.
    SSL_accept(ssl: Ssl) -> c_int = ssl_accept,
        apart ssl, instead { handshakes::drive(ssl, Step::Accept) },
        then |result| { has_ended(ssl, result) };

    /// `SSL_connect(3)`.
    SSL_connect(ssl: Ssl) -> c_int = ssl_connect, apart ssl;

    /// `SSL_read(3)`.
    SSL_read(ssl: Ssl, to: *mut c_void, len: c_int) -> c_int = ssl_read,
        ended ssl, apart ssl, instead { handshake_first(ssl) };

    /// `SSL_read_ex(3)`.
    SSL_read_ex(ssl: Ssl, to: *mut c_void, len: usize, read: *mut usize) -> c_int = ssl_read_ex,
        ended ssl, apart ssl, instead { handshake_first_or_0(ssl) };

    /// `SSL_peek(3)`.
    SSL_peek(ssl: Ssl, to: *mut c_void, len: c_int) -> c_int = ssl_peek,
        ended ssl, apart ssl, instead { handshake_first(ssl) };

    /// `SSL_peek_ex(3)`.
    SSL_peek_ex(ssl: Ssl, to: *mut c_void, len: usize, read: *mut usize) -> c_int = ssl_peek_ex,
        ended ssl, apart ssl, instead { handshake_first_or_0(ssl) };

    /// `SSL_write(3)`.
    SSL_write(ssl: Ssl, from: *const c_void, len: c_int) -> c_int = ssl_write,
        ended ssl, apart ssl, instead { handshake_first(ssl) };

    /// `SSL_write_ex(3)`.
    SSL_write_ex(ssl: Ssl, from: *const c_void, len: usize, written: *mut usize) -> c_int
        = ssl_write_ex,
        ended ssl, apart ssl, instead { handshake_first_or_0(ssl) };

    /// `SSL_shutdown(3)`, which in the middle of a handshake only says so. The middle of another thread's
    /// call is not to be looked at.
    SSL_shutdown(ssl: Ssl) -> c_int = ssl_shutdown, apart ssl, instead {
        handshakes::is_told_no_more(ssl);
        handshakes::is_anothers(ssl).then_some(-1)
    };

    /// `SSL_free(3)`.
    SSL_free(ssl: Ssl) = ssl_free, instead {
        if ssl.is_null() || connections::release(ssl) || handshakes::end(ssl) {
            return None;
        }
        // It is in the middle of another thread's call, which frees it.
        connections::abandon(ssl).then_some(())
    };

    /// `SSL_up_ref(3)`.
    SSL_up_ref(ssl: Ssl) -> c_int = ssl_up_ref, then |done| {
        if done == 1 {
            connections::refer(ssl);
        }
    };

    /// `SSL_dup(3)`: in the middle of a handshake one more reference.
    SSL_dup(ssl: Ssl) -> Ssl = ssl_dup, then |copy| {
        if copy == ssl && !ssl.is_null() {
            connections::refer(ssl);
        }
    };

    /// `SSL_clear(3)`.
    SSL_clear(ssl: Ssl) -> c_int = ssl_clear,
        instead { (!ssl.is_null() && !handshakes::end(ssl)).then_some(0) };

    /// `SSL_stateless(3)`, which begins as `SSL_clear`.
    SSL_stateless(ssl: Ssl) -> c_int = ssl_stateless,
        instead { (!ssl.is_null() && !handshakes::end(ssl)).then_some(-1) };

    /// `SSL_get_error(3)`.
    SSL_get_error(ssl: Ssl, result: c_int) -> c_int = ssl_get_error,
        plain { established::is_unmoved(ssl) },
        ended ssl, instead { (result <= 0 && handshakes::is_told(ssl)).then_some(WANT_READ) };

    /// `SSL_want(3)`.
    SSL_want(ssl: Ssl) -> c_int = ssl_want,
        plain { established::is_unmoved(ssl) },
        ended ssl, instead { handshakes::is_told(ssl).then_some(READING) };

    /// `SSL_get_info_callback(3)`.
    SSL_get_info_callback(ssl: Ssl) -> Option<InfoCallback> = ssl_get_info_callback,
        instead { handshakes::info_callback(ssl) };

    /// `SSL_set_info_callback(3)`.
    SSL_set_info_callback(ssl: Ssl, callback: Option<InfoCallback>) = ssl_set_info_callback,
        instead { handshakes::keep_info_callback(ssl, callback).then_some(()) };

    /// `SSL_set_fd(3)`.
    SSL_set_fd(ssl: Ssl, fd: c_int) -> c_int = ssl_set_fd, instead { settled(ssl, 0) };

    /// `SSL_set_rfd(3)`.
    SSL_set_rfd(ssl: Ssl, fd: c_int) -> c_int = ssl_set_rfd, instead { settled(ssl, 0) };

    /// `SSL_set_wfd(3)`.
    SSL_set_wfd(ssl: Ssl, fd: c_int) -> c_int = ssl_set_wfd, instead { settled(ssl, 0) };

    /// `SSL_set_bio(3)`.
    SSL_set_bio(ssl: Ssl, read: *mut c_void, write: *mut c_void) = ssl_set_bio,
        instead { settled(ssl, ()) };

    /// `SSL_set0_rbio(3)`.
    SSL_set0_rbio(ssl: Ssl, bio: *mut c_void) = ssl_set0_rbio, instead { settled(ssl, ()) };

    /// `SSL_set0_wbio(3)`.
    SSL_set0_wbio(ssl: Ssl, bio: *mut c_void) = ssl_set0_wbio, instead { settled(ssl, ()) };

    /// `SSL_set_accept_state(3)`.
    SSL_set_accept_state(ssl: Ssl) = ssl_set_accept_state, instead { settled(ssl, ()) };

    /// `SSL_set_connect_state(3)`.
    SSL_set_connect_state(ssl: Ssl) = ssl_set_connect_state, instead { settled(ssl, ()) };

    /// `SSL_set_session(3)`.
    SSL_set_session(ssl: Ssl, session: *mut c_void) -> c_int = ssl_set_session,
        instead { settled(ssl, 0) };

    /// `SSL_set_SSL_CTX(3)`.
    SSL_set_SSL_CTX(ssl: Ssl, context: *mut c_void) -> *mut c_void = ssl_set_ssl_ctx,
        instead { settled(ssl, ptr::null_mut()) };

    /// `SSL_use_certificate(3)`.
    SSL_use_certificate(ssl: Ssl, certificate: *mut c_void) -> c_int = ssl_use_certificate,
        instead { settled(ssl, 0) };

    /// `SSL_use_PrivateKey(3)`.
    SSL_use_PrivateKey(ssl: Ssl, key: *mut c_void) -> c_int = ssl_use_private_key,
        instead { settled(ssl, 0) };

    /// `SSL_use_cert_and_key(3)`.
    SSL_use_cert_and_key(
        ssl: Ssl, certificate: *mut c_void, key: *mut c_void, chain: *mut c_void, again: c_int
    ) -> c_int = ssl_use_cert_and_key, instead { settled(ssl, 0) };

    /// `SSL_use_certificate_file(3)`, in an OpenSSL that calls its own functions directly.
    SSL_use_certificate_file(ssl: Ssl, file: *const c_char, kind: c_int) -> c_int
        = ssl_use_certificate_file, instead { settled(ssl, 0) };

    /// `SSL_use_certificate_chain_file(3)`.
    SSL_use_certificate_chain_file(ssl: Ssl, file: *const c_char) -> c_int
        = ssl_use_certificate_chain_file, instead { settled(ssl, 0) };

    /// `SSL_use_PrivateKey_file(3)`.
    SSL_use_PrivateKey_file(ssl: Ssl, file: *const c_char, kind: c_int) -> c_int
        = ssl_use_private_key_file, instead { settled(ssl, 0) };

    /// `SSL_set_ssl_method(3)`.
    SSL_set_ssl_method(ssl: Ssl, method: *const c_void) -> c_int = ssl_set_ssl_method,
        instead { settled(ssl, 0) };

    /// `SSL_set_cipher_list(3)`.
    SSL_set_cipher_list(ssl: Ssl, list: *const c_char) -> c_int = ssl_set_cipher_list,
        instead { settled(ssl, 0) };

    /// `SSL_set_ciphersuites(3)`.
    SSL_set_ciphersuites(ssl: Ssl, list: *const c_char) -> c_int = ssl_set_ciphersuites,
        instead { settled(ssl, 0) };

    /// `SSL_copy_session_id(3)`.
    SSL_copy_session_id(to: Ssl, from: Ssl) -> c_int = ssl_copy_session_id,
        instead { settled(to, 0) };

    /// `SSL_free_buffers(3)`.
    SSL_free_buffers(ssl: Ssl) -> c_int = ssl_free_buffers, instead { settled(ssl, 0) };

    /// `SSL_ctrl(3)`: what many macros of OpenSSL's call to set something.
    SSL_ctrl(ssl: Ssl, command: c_int, number: c_long, value: *mut c_void) -> c_long = ssl_ctrl,
        instead {
            let replaces = CONTROLS_THAT_REPLACE.iter().any(|range| range.contains(&command));
            replaces.then(|| settled(ssl, 0)).flatten()
        };

    /// `SSL_certs_clear(3)`.
    SSL_certs_clear(ssl: Ssl) = ssl_certs_clear, instead { settled(ssl, ()) };

    /// `SSL_CTX_use_PrivateKey(3)`. Servers load their keys before they fork: what the first signature
    /// with a key has to prepare is prepared here, once for all workers.
    SSL_CTX_use_PrivateKey(context: *mut c_void, key: *mut c_void) -> c_int
        = ssl_ctx_use_private_key, then |used| {
            imports::take_new();
            if used == 1 {
                // SAFETY: the key is the caller's, and whole.
                unsafe { prepare(key) };
            }
        };

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

    /// `epoll_wait(2)`.
    epoll_wait(epoll: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int
        = epoll_wait,
        plain { waits::is_plain(epoll) },
        waits {
            // SAFETY: the caller's promise.
            let look = || unsafe { originals::epoll_wait(epoll, events, max, 0) };
            // SAFETY: the same.
            unsafe { wait(|| in_instance(epoll, events, max), timeout != 0, look) }
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
            unsafe { wait(|| in_instance(epoll, events, max), timeout != 0, look) }
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
            unsafe { wait(|| in_instance(epoll, events, max), can_last(timeout), look) }
        };

    /// `poll(2)`.
    poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int = poll,
        plain { waits::is_plain_for_a_set(Way::Poll) },
        waits {
            // SAFETY: the caller's promise.
            let look = || unsafe { originals::poll(fds, count, 0) };
            // SAFETY: the same.
            unsafe { wait(|| polled(fds, count, usize::MAX), timeout != 0, look) }
        };

    /// `poll(2)` under the name that the C library keeps for itself.
    __poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int = poll,
        // SAFETY: the caller's promise.
        waits { Some(unsafe { poll(fds, count, timeout) }) };

    /// `poll(2)` of programs that are built with checks.
    __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, len: usize) -> c_int = poll_chk,
        plain { waits::is_plain_for_a_set(Way::Poll) },
        waits {
            // SAFETY: the caller's promise.
            let look = || unsafe { originals::poll_chk(fds, count, 0, len) };
            // SAFETY: the same.
            unsafe { wait(|| polled(fds, count, len), timeout != 0, look) }
        };

    /// `ppoll(2)`.
    ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int
        = ppoll,
        plain { waits::is_plain_for_a_set(Way::Poll) },
        waits {
            // SAFETY: the caller's promise.
            let look = || unsafe { originals::ppoll(fds, count, &NOW, mask) };
            // SAFETY: the same.
            unsafe { wait(|| polled(fds, count, usize::MAX), can_last(timeout), look) }
        };

    /// `ppoll(2)` of programs that are built with checks.
    __ppoll_chk(
        fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, len: usize
    ) -> c_int = ppoll_chk,
        plain { waits::is_plain_for_a_set(Way::Poll) },
        waits {
            // SAFETY: the caller's promise.
            let look = || unsafe { originals::ppoll_chk(fds, count, &NOW, mask, len) };
            // SAFETY: the same.
            unsafe { wait(|| polled(fds, count, len), can_last(timeout), look) }
        };

    /// `select(2)`.
    select(
        count: c_int, read: *mut fd_set, write: *mut fd_set, other: *mut fd_set, timeout: *mut timeval
    ) -> c_int = select,
        plain { waits::is_plain_for_a_set(Way::Select) },
        waits {
            let sets = [read, write, other];
            // SAFETY: the caller's promise.
            let look = || unsafe { look_at_sets(count, sets, ptr::null()) };
            // SAFETY: the same.
            let time = unsafe { timeout.as_ref() };
            let can_last = time.is_none_or(|time| time.tv_sec != 0 || time.tv_usec != 0);
            // SAFETY: the same.
            unsafe { wait(|| selected(count, sets), can_last, look) }
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
        plain { waits::is_plain_for_a_set(Way::Select) },
        waits {
            let sets = [read, write, other];
            // SAFETY: the caller's promise.
            let look = || unsafe { look_at_sets(count, sets, mask) };
            // SAFETY: the same.
            unsafe { wait(|| selected(count, sets), can_last(timeout), look) }
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

/// Before a function that changes what a suspended call uses: `Some` with what a failure returns, if the call is
/// another thread's. A function that returns nothing changes nothing then.
fn settled<R>(ssl: Ssl, refused: R) -> Option<R> {
    (!ssl.is_null() && !handshakes::settle(ssl)).then_some(refused)
}

/// Commands of `SSL_ctrl` that free what a call may use: keys and groups, texts, chains, lists and stores.
const CONTROLS_THAT_REPLACE: [RangeInclusive<c_int>; 5] = [3..=4, 55..=55, 70..=71, 88..=107, 116..=117];

fn has_ended(ssl: Ssl, result: c_int) {
    if result == 1 {
        handshakes::has_ended(ssl);
    }
}

/// A wait in an epoll instance.
///
/// # Safety
///
/// As `epoll_wait`. What this returns must be gone when the caller goes on.
unsafe fn in_instance<'a>(epoll: c_int, events: *mut epoll_event, max: c_int) -> Option<InInstance<'a>> {
    let instance = registrations::instance(epoll)?;
    let room = match usize::try_from(max) {
        Ok(room) if !events.is_null() => room,
        _ => 0,
    };
    let events = match room {
        0 => &mut [],
        // SAFETY: the server gives room for so many.
        _ => unsafe { slice::from_raw_parts_mut(events, room) },
    };
    Some(InInstance {
        instance,
        events,
        taken: 0,
    })
}

/// A wait for descriptors, whose array has at least so many bytes.
///
/// # Safety
///
/// As `poll`. What this returns must be gone when the caller goes on.
unsafe fn polled<'a>(fds: *mut pollfd, count: nfds_t, bytes: usize) -> Option<Polled<'a>> {
    let count = count as usize;
    let fits = count <= bytes / size_of::<pollfd>() && count <= MOST_POLLED;
    let fits = fits && !fds.is_null() && fds.is_aligned();
    fits.then(|| Polled {
        // SAFETY: the server passes so many.
        fds: unsafe { slice::from_raw_parts_mut(fds, count) },
        is_answered: false,
    })
}

/// More descriptors than a process has: the kernel refuses such a call.
const MOST_POLLED: usize = 1 << 20;

/// A wait for sets of descriptors. None where two of them are the same memory.
///
/// # Safety
///
/// As `select`. What this returns must be gone when the caller goes on.
unsafe fn selected<'a>(count: c_int, sets: [*mut fd_set; 3]) -> Option<Selected<'a>> {
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
    Some(Selected {
        count,
        sets: sets.map(words),
        told: [0; SELECTABLE / 64],
    })
}

/// `pselect` without waiting, which leaves the sets as they are if there is nothing. Nothing here is dropped: a thread may
/// be cancelled in the original.
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

const NOW: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

/// Returns whether a wait may last for a while; null stands for ever.
fn can_last(timeout: *const timespec) -> bool {
    // SAFETY: the server passes a time or null.
    let time = unsafe { timeout.as_ref() };
    time.is_none_or(|time| time.tv_sec != 0 || time.tv_nsec != 0)
}

/// Makes a part of a stand-in's definition count.
const fn is_given(_: &str) -> bool {
    true
}

/// What is needed where nothing may be looked up is looked up while this library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = look_up;

extern "C" fn look_up() {
    guarded(originals::look_up);
    guarded(runtimes::look_up);
}

/// Begins a signature and drops it. What the provider has prepared for it stays with the key.
///
/// # Safety
///
/// `key` must be a key of OpenSSL's.
unsafe fn prepare(key: *mut c_void) {
    let Some(passes) = provider::passes() else {
        return;
    };
    let (none, no_text) = (ptr::null_mut(), ptr::null());
    (passes.prepare_keys)(1);
    // SAFETY: OpenSSL's functions with a context of their own and the caller's key; null stands for
    // what OpenSSL chooses by itself. Errors that it meets are taken from the queue again.
    unsafe {
        originals::err_set_mark();
        let context = originals::evp_md_ctx_new();
        if !context.is_null() {
            originals::evp_digest_sign_init(context, ptr::null_mut(), no_text, none, no_text, key, ptr::null());
            originals::evp_md_ctx_free(context);
        }
        originals::err_pop_to_mark();
    }
    (passes.prepare_keys)(0);
    (passes.prepare)();
}

/// What a call does before it waits as the server wants: runs passes, looks at the sockets, and tells the server of
/// handshakes that can go on (`Some`). A signal handler's call may have interrupted anything, and is the original's.
///
/// # Safety
///
/// Stand-ins alone may call this.
#[inline(always)]
unsafe fn wait<W: Watch>(watch: impl Fn() -> Option<W>, can_last: bool, look: impl Fn() -> c_int) -> Option<c_int> {
    let passes = provider::passes()?;
    let are_left = handshakes::are_left();
    let frame = match are_left {
        // SAFETY: this is inlined into the whole call of a stand-in, which has not returned. Its caller is the program,
        // because the stand-in jumps there in an optimized build. In another one it is the stand-in, and a call that was
        // seen is known by its depth alone.
        true => unsafe { signals::end_of_frame(Place::here()) }?,
        false => 0,
    };
    if can_last {
        guarded(|| watch().inspect(|watch| watch.remember(handshakes::are_under_way)));
    }
    if !are_left {
        return None;
    }
    waits::count();
    guarded(handshakes::free_abandoned);
    let may_go_on = can_last && !handshakes::is_in_a_call(frame);
    while handshakes::suspended() > 0 {
        let next = guarded(|| {
            let watch = watch();
            let seen = Seen {
                is_ready: watch.as_ref().is_some_and(handshakes::are_ready),
                waiting: (passes.waiting)(),
                submitted: (passes.submitted)(),
            };
            let next = LOOP.try_with(|state| state.borrow_mut().next(seen));
            match next.unwrap_or(Next::Wait) {
                Next::Deliver => Turn::Answer(watch.map_or(0, handshakes::deliver)),
                Next::Look => Turn::Look,
                Next::Run if handshakes::run_pass(1) > 0 => Turn::Answer(0),
                Next::Run | Next::Wait if may_go_on && handshakes::go_on_unasked() => Turn::Answer(0),
                Next::Run | Next::Wait => Turn::Wait,
            }
        });
        // Outside of what is guarded: a thread may be cancelled here.
        let found = match next {
            Some(Turn::Answer(found)) => found,
            Some(Turn::Look) => look(),
            Some(Turn::Wait) | None => return None,
        };
        if found != 0 {
            return Some(found);
        }
    }
    None
}

/// One turn of a wait.
enum Turn {
    /// So many events are there; with none it goes on.
    Answer(c_int),
    Look,
    Wait,
}

thread_local! {
    static LOOP: RefCell<Loop> = const { RefCell::new(Loop::new()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::tests::failing;

    #[test]
    fn a_stand_in_that_fails_leaves_the_call_to_the_original() {
        let mut event = epoll_event {
            events: libc::EPOLLOUT as u32,
            u64: 7,
        };
        let place = &raw mut event;
        // SAFETY: descriptors of the test's own, and places for what is answered.
        unsafe {
            let instance = libc::epoll_create1(0);
            let pipe = libc::eventfd(0, 0);
            failing(|| {
                assert_eq!(epoll_ctl(instance, libc::EPOLL_CTL_ADD, pipe, place), 0);
                assert_eq!(epoll_wait(instance, place, 1, 0), 1);
                assert_eq!(epoll_pwait(instance, place, 1, 0, ptr::null()), 1);
                assert_eq!(epoll_pwait2(instance, place, 1, &NOW, ptr::null()), 1);
                let mut watched = pollfd {
                    fd: pipe,
                    events: libc::POLLOUT,
                    revents: 0,
                };
                assert_eq!(poll(&raw mut watched, 1, 0), 1);
                let copy = dup(pipe);
                assert!(copy >= 0 && fcntl(copy, libc::F_GETFD, 0) == 0);
                assert_eq!((close(copy), close(copy)), (0, -1));
                SSL_free(ptr::null_mut());
            });
            assert_eq!((close(pipe), close(instance)), (0, 0));
        }
    }
}
