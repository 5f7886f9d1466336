//! The functions that stand in for OpenSSL's and the C library's. Each does what the original does,
//! except for handshakes that are suspended.

use std::ffi::{CStr, c_int, c_void};
use std::{ptr, slice};

use libc::{epoll_event, sigset_t};

use crate::events::{Loop, Next, Seen};
use crate::handshakes::{self, Outcome};
use crate::imports;
use crate::originals::{self, Ssl};
use crate::registrations::{self, Registration};
use crate::table;

/// `SSL_ERROR_WANT_READ`.
const WANT_READ: c_int = 2;

/// Does the rest of a handshake that a call of another kind would do first, so that no buffer of the
/// server is held while it is suspended. `Some` with what the server gets if the handshake has not
/// ended well.
fn handshake_first(ssl: Ssl) -> Option<c_int> {
    if !handshakes::concerns(ssl) {
        return None;
    }
    match handshakes::drive(ssl) {
        Outcome::Done(1) => None,
        Outcome::Done(result) => Some(result),
        Outcome::Suspended => Some(-1),
    }
}

/// Functions that OpenSSL exports.
macro_rules! stand_ins {
    ($($(#[$meta:meta])* $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? $body:block)*) => {
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
        pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? $body
        )*
    };
}

stand_ins! {
    /// `SSL_do_handshake(3)`.
    SSL_do_handshake(ssl: Ssl) -> c_int {
        if !handshakes::concerns(ssl) {
            // SAFETY: the caller's promise.
            return unsafe { originals::ssl_do_handshake(ssl) };
        }
        match handshakes::drive(ssl) {
            Outcome::Done(result) => result,
            Outcome::Suspended => -1,
        }
    }

    /// `SSL_CTX_use_PrivateKey(3)`. Servers load their keys before they fork: what the first signature
    /// with a key has to prepare is prepared here, once for all workers.
    SSL_CTX_use_PrivateKey(context: *mut c_void, key: *mut c_void) -> c_int {
        // SAFETY: the caller's promise.
        let used = unsafe { originals::ssl_ctx_use_private_key(context, key) };
        imports::take_new();
        if used == 1 {
            // SAFETY: the key is the caller's, and whole.
            unsafe { prepare(key) };
        }
        used
    }

    /// `SSL_accept(3)`.
    SSL_accept(ssl: Ssl) -> c_int {
        // SAFETY: the caller's promise. A connection that does not know yet that it is a server's is
        // told so by the original, which then begins the handshake by `SSL_do_handshake`.
        unsafe {
            match originals::ssl_is_server(ssl) {
                1 => SSL_do_handshake(ssl),
                _ => originals::ssl_accept(ssl),
            }
        }
    }

    /// `SSL_read(3)`.
    SSL_read(ssl: Ssl, to: *mut c_void, len: c_int) -> c_int {
        // SAFETY: the caller's promise.
        handshake_first(ssl).unwrap_or_else(|| unsafe { originals::ssl_read(ssl, to, len) })
    }

    /// `SSL_read_ex(3)`.
    SSL_read_ex(ssl: Ssl, to: *mut c_void, len: usize, read: *mut usize) -> c_int {
        match handshake_first(ssl) {
            Some(_) => 0,
            // SAFETY: the caller's promise.
            None => unsafe { originals::ssl_read_ex(ssl, to, len, read) },
        }
    }

    /// `SSL_peek(3)`.
    SSL_peek(ssl: Ssl, to: *mut c_void, len: c_int) -> c_int {
        // SAFETY: the caller's promise.
        handshake_first(ssl).unwrap_or_else(|| unsafe { originals::ssl_peek(ssl, to, len) })
    }

    /// `SSL_peek_ex(3)`.
    SSL_peek_ex(ssl: Ssl, to: *mut c_void, len: usize, read: *mut usize) -> c_int {
        match handshake_first(ssl) {
            Some(_) => 0,
            // SAFETY: the caller's promise.
            None => unsafe { originals::ssl_peek_ex(ssl, to, len, read) },
        }
    }

    /// `SSL_write(3)`.
    SSL_write(ssl: Ssl, from: *const c_void, len: c_int) -> c_int {
        // SAFETY: the caller's promise.
        handshake_first(ssl).unwrap_or_else(|| unsafe { originals::ssl_write(ssl, from, len) })
    }

    /// `SSL_write_ex(3)`.
    SSL_write_ex(ssl: Ssl, from: *const c_void, len: usize, written: *mut usize) -> c_int {
        match handshake_first(ssl) {
            Some(_) => 0,
            // SAFETY: the caller's promise.
            None => unsafe { originals::ssl_write_ex(ssl, from, len, written) },
        }
    }

    /// `SSL_shutdown(3)`.
    SSL_shutdown(ssl: Ssl) -> c_int {
        if handshakes::is_suspended(ssl) {
            // As during any handshake: there is nothing to shut down.
            return -1;
        }
        // SAFETY: the caller's promise.
        unsafe { originals::ssl_shutdown(ssl) }
    }

    /// `SSL_free(3)`.
    SSL_free(ssl: Ssl) {
        // A connection in the middle of another thread's call is never freed.
        if handshakes::end(ssl) {
            // SAFETY: the caller's promise.
            unsafe { originals::ssl_free(ssl) }
        }
    }

    /// `SSL_clear(3)`.
    SSL_clear(ssl: Ssl) -> c_int {
        if !handshakes::end(ssl) {
            return 0;
        }
        // SAFETY: the caller's promise.
        unsafe { originals::ssl_clear(ssl) }
    }

    /// `SSL_get_error(3)`.
    SSL_get_error(ssl: Ssl, result: c_int) -> c_int {
        if result <= 0 && handshakes::is_suspended(ssl) {
            return WANT_READ;
        }
        // SAFETY: the caller's promise.
        unsafe { originals::ssl_get_error(ssl, result) }
    }

    /// `epoll_ctl(2)`.
    epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        // SAFETY: the caller's promise.
        let result = unsafe { originals::epoll_ctl(epoll, operation, fd, event) };
        // Connections come after the provider, which OpenSSL loads before it knows any.
        if result == 0 && table::passes().is_some() {
            match operation {
                libc::EPOLL_CTL_DEL => registrations::remove(fd, epoll),
                // SAFETY: the kernel has read it.
                _ => registrations::set(fd, Registration { epoll, data: unsafe { (*event).u64 } }),
            }
        }
        result
    }

    /// `close(2)`.
    close(fd: c_int) -> c_int {
        if table::passes().is_some() {
            registrations::close(fd);
        }
        // SAFETY: the caller's promise.
        unsafe { originals::close(fd) }
    }

    /// `epoll_wait(2)`.
    epoll_wait(epoll: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int {
        // SAFETY: the caller's promise.
        wait(epoll, events, max, timeout, |timeout| unsafe {
            originals::epoll_wait(epoll, events, max, timeout)
        })
    }

    /// `epoll_pwait(2)`.
    epoll_pwait(
        epoll: c_int,
        events: *mut epoll_event,
        max: c_int,
        timeout: c_int,
        mask: *const sigset_t
    ) -> c_int {
        // SAFETY: the caller's promise.
        wait(epoll, events, max, timeout, |timeout| unsafe {
            originals::epoll_pwait(epoll, events, max, timeout, mask)
        })
    }
}

/// Begins a signature and drops it. What the provider has prepared for it stays with the key.
///
/// # Safety
///
/// `key` must be a key of OpenSSL's.
unsafe fn prepare(key: *mut c_void) {
    let Some(passes) = table::passes() else {
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
            originals::evp_digest_sign_init(
                context,
                ptr::null_mut(),
                no_text,
                none,
                no_text,
                key,
                ptr::null(),
            );
            originals::evp_md_ctx_free(context);
        }
        originals::err_pop_to_mark();
    }
    (passes.prepare_keys)(0);
    (passes.prepare)();
}

/// Waits for events as `original` does, or gives the server those of handshakes that can go on.
fn wait(
    epoll: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
    original: impl Fn(c_int) -> c_int,
) -> c_int {
    let Some(passes) = table::passes() else {
        return original(timeout);
    };
    if max <= 0 || events.is_null() {
        return original(timeout);
    }
    while handshakes::suspended() > 0 {
        let seen = Seen {
            ready: handshakes::ready(epoll),
            waiting: (passes.waiting)(),
            submitted: (passes.submitted)(),
        };
        match LOOP.with_borrow_mut(|state| state.next(seen)) {
            Next::Deliver => {
                // SAFETY: the server gives room for `max` events.
                let events = unsafe { slice::from_raw_parts_mut(events, max as usize) };
                let written = handshakes::deliver(epoll, events);
                if written > 0 {
                    return written as c_int;
                }
            }
            Next::Look => {
                let found = original(0);
                if found != 0 {
                    return found;
                }
            }
            Next::Run if (passes.turn)(1) > 0 => {}
            Next::Run | Next::Wait => break,
        }
    }
    original(timeout)
}

thread_local! {
    static LOOP: std::cell::RefCell<Loop> = std::cell::RefCell::default();
}
