//! Stand-ins for libssl's calls about a connection: those that may do a part of a handshake, and those that begin, end
//! or ask about it.

use std::ffi::{c_int, c_void};

use super::macros::stand_ins;
use crate::handshakes::{self, Step};
use crate::originals::{InfoCallback, Ssl};
use crate::{connections, established};

/// `SSL_ERROR_WANT_READ`.
const WANT_READ: c_int = 2;

/// `SSL_READING`.
const READING: c_int = 3;

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
        handshakes::clear_want(ssl);
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
        ended ssl, instead { (result <= 0 && handshakes::wants_read(ssl)).then_some(WANT_READ) };

    /// `SSL_want(3)`.
    SSL_want(ssl: Ssl) -> c_int = ssl_want,
        plain { established::is_unmoved(ssl) },
        ended ssl, instead { handshakes::wants_read(ssl).then_some(READING) };

    /// `SSL_get_info_callback(3)`.
    SSL_get_info_callback(ssl: Ssl) -> Option<InfoCallback> = ssl_get_info_callback,
        instead { handshakes::info_callback(ssl) };

    /// `SSL_set_info_callback(3)`.
    SSL_set_info_callback(ssl: Ssl, callback: Option<InfoCallback>) = ssl_set_info_callback,
        instead { handshakes::keep_info_callback(ssl, callback).then_some(()) };
}

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

fn has_ended(ssl: Ssl, result: c_int) {
    if result == 1 {
        handshakes::has_ended(ssl);
    }
}
