//! Calls that return that they want to read, so that the server tries again, and what the server asks afterwards.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;

use super::handshake::{Handshake, suspended};
use super::store::find;
use crate::errno::set_errno;
use crate::originals::Ssl;
use crate::{connections, established};

/// Result of a call whose handshake was suspended.
pub(super) const TRY_AGAIN: c_int = -1;

pub(super) fn try_again(handshake: &Handshake) -> c_int {
    handshake.wants_read.set(true);
    set_errno(libc::EAGAIN);
    TRY_AGAIN
}

/// Returns whether another thread is in the middle of a call for the connection: then the server is to try again.
pub(crate) fn is_anothers(ssl: Ssl) -> bool {
    let is_anothers = connections::is_under_way(ssl) && find(ssl).is_none();
    if is_anothers {
        connections::moved();
        WANTS_READ_FOR_ANOTHERS.set(ssl);
    }
    is_anothers
}

/// Returns whether the last call for this connection returned that it wants to read.
pub(crate) fn wants_read(ssl: Ssl) -> bool {
    if suspended() > 0
        && let Some(handshake) = find(ssl)
    {
        // SAFETY: rule 2 (`mod.rs`): it is in the table.
        let handshake = unsafe { &*handshake };
        return handshake.state.get().waits() && handshake.wants_read.get();
    }
    // Not whether that call is still under way: it may have ended since.
    !ssl.is_null() && WANTS_READ_FOR_ANOTHERS.get() == ssl
}

/// Forgets that this thread's last call was for a connection whose call is another thread's.
pub(super) fn clear_want_of_another(ssl: Ssl) {
    if WANTS_READ_FOR_ANOTHERS.get() == ssl {
        WANTS_READ_FOR_ANOTHERS.set(ptr::null_mut());
    }
}

/// A call that has an error of its own: the next question is about that one.
pub(crate) fn clear_want(ssl: Ssl) {
    clear_want_of_another(ssl);
    if let Some(handshake) = find(ssl) {
        // SAFETY: rule 2 (`mod.rs`): it is in the table.
        unsafe { (*handshake).wants_read.set(false) };
    }
}

/// A new connection has this address: what is known is of one that went away unseen.
pub(crate) fn is_new(ssl: Ssl) {
    established::remove(ssl);
    connections::forget(ssl);
    clear_want_of_another(ssl);
}

thread_local! {
    /// The connection for which this thread's last call returned so, because its handshake's call is another thread's.
    static WANTS_READ_FOR_ANOTHERS: Cell<Ssl> = const { Cell::new(ptr::null_mut()) };
}
