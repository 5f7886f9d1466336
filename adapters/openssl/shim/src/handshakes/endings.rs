//! How handshakes end: their calls return, or their connections go away.

use std::collections::HashMap;
use std::ffi::c_int;

use super::handshake::{Handshake, State};
use super::stacks::cancel;
use super::store::{find, forget, own, with_table};
use crate::errno::{errno, set_errno};
use crate::originals::{self, Ssl};
use crate::{connections, established};

/// The connection goes away, or starts anew. A suspended call is brought to its end first: it fails,
/// and neither touches the socket nor calls the server back. False if the call is another
/// thread's: then the connection must stay as it is.
pub(crate) fn end(ssl: Ssl) -> bool {
    established::remove(ssl);
    let Some(handshake) = find(ssl) else {
        return !connections::is_under_way(ssl);
    };
    // SAFETY: rule 2 (`mod.rs`): it is removed only below.
    let handshake = unsafe { &*handshake };
    match handshake.state.get() {
        // OpenSSL itself calls `SSL_clear` as it begins. If it frees the connection, it says so.
        State::Running | State::Idle => return true,
        State::Suspended | State::Ready => {
            cancel(handshake);
            connections::end(ssl);
        }
        State::Postponed | State::Returned => {}
    }
    forget(ssl);
    true
}

/// The call has returned.
pub(super) fn finish(handshake: &Handshake, result: c_int) -> c_int {
    let (errno, ssl) = (errno(), handshake.ssl);
    if connections::end(ssl) {
        forget(ssl);
        // SAFETY: all other owners have freed it meanwhile.
        unsafe { originals::ssl_free(ssl) };
    } else if result == 1 {
        forget(ssl);
    }
    set_errno(errno);
    result
}

/// Frees the connections that other threads have freed meanwhile, and drops what is left of those that OpenSSL has
/// freed.
pub(crate) fn free_abandoned() {
    if connections::are_lost() {
        let is_lost = |one: &Handshake| one.state.get() != State::Running && connections::is_lost(one.number);
        let lost = with_table(|table| -> Vec<_> {
            let lost = table.values().filter(|one| is_lost(one));
            lost.map(|one| one.ssl).collect()
        });
        lost.unwrap_or_default().into_iter().for_each(forget);
    }
    if !connections::were_abandoned() {
        return;
    }
    for ssl in own(|one| one.is_left() && connections::is_abandoned(one.ssl)) {
        end(ssl);
        // SAFETY: all other owners have freed it.
        unsafe { originals::ssl_free(ssl) };
    }
}

/// The original has ended a handshake that was not suspended.
pub(crate) fn has_ended(ssl: Ssl) {
    let is_known = |table: &mut HashMap<usize, Box<Handshake>>| {
        (table.get(&ssl.addr())).is_some_and(|one| one.state.get() == State::Idle)
    };
    if with_table(is_known) == Some(true) {
        forget(ssl);
    }
}
