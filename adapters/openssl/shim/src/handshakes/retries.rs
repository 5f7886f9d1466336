//! Calls whose server is told to try again, and what it asks about them afterwards.

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
    handshake.is_told.set(true);
    set_errno(libc::EAGAIN);
    TRY_AGAIN
}

/// Returns whether another thread is in the middle of a call for the connection: then the server is told to try again.
pub(crate) fn is_anothers(ssl: Ssl) -> bool {
    let is_anothers = connections::is_under_way(ssl) && find(ssl).is_none();
    if is_anothers {
        connections::moved();
        TOLD_OF_ANOTHERS.set(ssl);
    }
    is_anothers
}

/// Returns whether the last call for this connection was told to try again.
pub(crate) fn is_told(ssl: Ssl) -> bool {
    if suspended() > 0
        && let Some(handshake) = find(ssl)
    {
        // SAFETY: rule 2.
        let handshake = unsafe { &*handshake };
        return handshake.state.get().waits() && handshake.is_told.get();
    }
    // Not whether that call is still under way: it may have ended since.
    !ssl.is_null() && TOLD_OF_ANOTHERS.get() == ssl
}

/// Forgets that this thread was told of another thread's call.
pub(super) fn is_told_no_more_of_anothers(ssl: Ssl) {
    if TOLD_OF_ANOTHERS.get() == ssl {
        TOLD_OF_ANOTHERS.set(ptr::null_mut());
    }
}

/// A call that has an error of its own: the next question is about that one.
pub(crate) fn is_told_no_more(ssl: Ssl) {
    is_told_no_more_of_anothers(ssl);
    if let Some(handshake) = find(ssl) {
        // SAFETY: rule 2.
        unsafe { (*handshake).is_told.set(false) };
    }
}

/// A new connection has this address: what is known is of one that went away unseen.
pub(crate) fn is_new(ssl: Ssl) {
    established::remove(ssl);
    connections::forget(ssl);
    is_told_no_more_of_anothers(ssl);
}

thread_local! {
    /// The connection of which this thread was last told to try again because its call is another thread's.
    static TOLD_OF_ANOTHERS: Cell<Ssl> = const { Cell::new(ptr::null_mut()) };
}
