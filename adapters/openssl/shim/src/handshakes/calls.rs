//! What a call needs beside the original, and what keeps it apart from other handshakes of its thread.

use std::cell::Cell;
use std::ptr;

use super::handshake::{Handshake, suspended};
use super::retries::clear_want_of_another;
use super::stacks::CURRENT;
use crate::originals::{self, Ssl};
use crate::signals::Place;
use crate::{connections, established, provider};

/// What a call for a connection needs beside the original.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// To be kept apart from other handshakes of this thread ([`apart`]): its own has ended.
    Apart,
    Everything,
}

/// What a call needs that could do a part of a handshake, or that is about the call before.
pub(crate) fn needs(ssl: Ssl) -> Needs {
    if ssl.is_null() || connections::were_moved() {
        return Needs::Everything;
    }
    let is_established = established::has(ssl) || {
        // SAFETY: the server passes a connection.
        let is_it = unsafe { originals::ssl_in_init(ssl) } == 0 && !connections::has_a_call(ssl);
        if is_it {
            established::insert(ssl);
        }
        is_it
    };
    let are_others = connections::are_under_way();
    let are_others_here = || suspended() > 0 || !CURRENT.get().is_null();
    match is_established {
        true if are_others && are_others_here() => Needs::Apart,
        true => Needs::Nothing,
        // Nothing is suspended without a provider.
        false if !are_others && provider::passes().is_none() => Needs::Nothing,
        false => Needs::Everything,
    }
}

/// Whether a wait of this thread has anything to do.
pub(crate) fn are_left() -> bool {
    connections::are_left() && (connections::are_under_way() && suspended() > 0 || connections::are_lost())
}

/// Until this is dropped, the thread is in a call of libssl's, and calls for `ssl` are not taken for calls of the
/// handshake on whose stack they are made: a callback may use other connections.
#[inline(always)]
pub(crate) fn apart(ssl: Ssl) -> Apart {
    // What the original is asked is the server's last call.
    clear_want_of_another(ssl);
    let current = CURRENT.get();
    // SAFETY: rule 2 (`mod.rs`): a handshake that is current is in the table.
    let is_other = unsafe { current.as_ref() }.is_some_and(|current| current.ssl != ssl);
    if is_other {
        CURRENT.set(ptr::null());
    }
    let stack = Place::here().stack();
    // A callback has left an outer call that lies below by a jump.
    let outer = Some(CALL.get()).filter(|outer| *outer > stack);
    CALL.set(outer.unwrap_or(stack));
    Apart {
        current: is_other.then_some(current),
        outer: outer.unwrap_or(0),
    }
}

pub(crate) struct Apart {
    current: Option<*const Handshake>,
    outer: usize,
}

impl Drop for Apart {
    fn drop(&mut self) {
        CALL.set(self.outer);
        if let Some(current) = self.current {
            CURRENT.set(current);
        }
    }
}

/// Whether a stand-in whose frame ends there was called in a call of libssl's: in a callback. The program may hold
/// locks there that callbacks of other handshakes want.
pub(crate) fn is_in_a_call(frame: usize) -> bool {
    !CURRENT.get().is_null() || CALL.get() >= frame
}

thread_local! {
    /// The stack pointer in the outermost stand-in whose original this thread is in; 0: it is in none.
    static CALL: Cell<usize> = const { Cell::new(0) };
}
