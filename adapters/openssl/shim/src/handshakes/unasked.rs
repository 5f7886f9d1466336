//! Handshakes that go on although the server has not asked, and what their calls return.

use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_ulong};
use std::ptr;

use super::endings::finish;
use super::handshake::{Handshake, State, movable, suspended};
use super::retries::TRY_AGAIN;
use super::stacks::{cancel, resume, run_all_passes};
use super::store::{find, forget, own, unready, with_ready, with_table};
use crate::errno::{errno, set_errno};
use crate::originals::{self, Ssl};
use crate::{connections, waits};

/// The server changes what a suspended call uses: the call goes on to its end, or to where it waits for
/// the client, before that. False if the call is another thread's: then nothing may be changed.
pub(crate) fn settle(ssl: Ssl) -> bool {
    while suspended() > 0
        && let Some(handshake) = find(ssl)
    {
        // SAFETY: rule 2 (`mod.rs`): it is in the table.
        let handshake = unsafe { &*handshake };
        if !handshake.is_left() || handshake.is_cancelled.get() {
            return true;
        }
        run_all_passes(handshake);
        let is_stuck = handshake.state.get() == State::Suspended && handshake.is_own();
        if is_stuck || !handshake.has_its_socket() {
            // Nothing runs its job, or the bytes would be another connection's.
            cancel(handshake);
            finish(handshake, TRY_AGAIN);
            return true;
        }
        go_on_by_itself(handshake);
    }
    !connections::is_under_way(ssl) || find(ssl).is_some()
}

/// The server registers the socket where this thread does not wait.
pub(crate) fn settle_before_move(fd: c_int, epoll: c_int) {
    if suspended() == 0 || waits::waits_in_epoll(epoll) {
        return;
    }
    for ssl in own(|one| one.fd == fd && one.is_left() && one.has_its_socket()) {
        settle(ssl);
    }
}

/// Prepares this thread for its sleep: handshakes go on that would stay as they are, and those that have
/// ended unasked are reported again, in case an inner wait has taken the report. Whether there were any.
pub(crate) fn go_on_unasked() -> bool {
    if movable() == 0 {
        return false;
    }
    let ended = own(|one| one.state.get() == State::Returned && one.is_own());
    let again = |ssl: &Ssl| {
        // By the table: another thread may have freed the connection since its handshake has ended here.
        let left = |table: &mut HashMap<usize, Box<Handshake>>| {
            table.get(&ssl.addr()).is_some_and(|one| one.reports_left.get() > 0)
        };
        let can_be = with_table(left) == Some(true);
        let is_new = |ready: &mut VecDeque<usize>| {
            let is_new = can_be && !ready.contains(&ssl.addr());
            if is_new {
                ready.push_back(ssl.addr());
            }
            is_new
        };
        with_ready(is_new) == Some(true)
    };
    let are_reported_again = ended.iter().filter(|ssl| again(ssl)).count() > 0;
    let left = own(Handshake::goes_on_unasked);
    for ssl in &left {
        // SAFETY: rule 2 (`mod.rs`): it is in the table. What goes on may end others.
        let handshake = find(*ssl).map(|found| unsafe { &*found });
        if let Some(handshake) = handshake.filter(|one| one.goes_on_unasked()) {
            go_on_by_itself(handshake);
        }
    }
    are_reported_again || !left.is_empty()
}

/// Goes on with the call although the server has not asked. What it meets is kept for the server's next call, and the
/// server's own errors stay as they are.
fn go_on_by_itself(handshake: &Handshake) {
    let (before, ssl) = (errno(), handshake.ssl);
    unready(ssl);
    // SAFETY: this thread's queue of errors.
    let older = unsafe {
        originals::err_set_mark();
        originals::err_peek_last_error()
    };
    if let Some(result) = resume(handshake, true) {
        // SAFETY: this thread's queue of errors, and a connection on which a call has just returned.
        let (error, waits_for) = unsafe { (originals::err_peek_last_error(), waits_for(ssl)) };
        let is_kept = result == 1 || waits_for != Some(READING);
        let is_abandoned = match is_kept {
            true => connections::returned(ssl),
            false => connections::end(ssl),
        };
        if is_abandoned {
            forget(ssl);
            // SAFETY: all other owners have freed it meanwhile.
            unsafe { originals::ssl_free(ssl) };
        } else if is_kept {
            let has_failed = result != 1 && waits_for.is_none() && error != older;
            let error = if has_failed { error } else { 0 };
            handshake.returned.set((result, error));
            handshake.reports_left.set(MOST_REPORTS);
            handshake.set_state(State::Returned);
            with_ready(|ready| ready.push_back(ssl.addr()));
        }
    }
    // SAFETY: the mark was set above.
    unsafe { originals::err_pop_to_mark() };
    set_errno(before);
}

/// Returns what a call of this connection waits for (`SSL_want(3)`), if it can go on later; [`READING`] for its socket.
///
/// # Safety
///
/// `ssl` must be a connection on which a call has just returned.
unsafe fn waits_for(ssl: Ssl) -> Option<c_int> {
    // SAFETY: the caller's promise.
    unsafe {
        let want = originals::ssl_want(ssl);
        let retries = |bio| originals::bio_test_flags(bio, SHOULD_RETRY) != 0;
        let can_go_on = match want {
            READING => retries(originals::ssl_get_rbio(ssl)),
            WRITING => retries(originals::ssl_get_wbio(ssl)),
            // A callback wants to be called again.
            _ => want > READING,
        };
        can_go_on.then_some(want)
    }
}

/// Returns the result of a call that ended before the server asked again, to the call that asks now.
pub(super) fn returned(ssl: Ssl) -> Option<c_int> {
    if suspended() == 0 {
        return None;
    }
    // SAFETY: rule 2 (`mod.rs`): it is in the table.
    let handshake = unsafe { &*find(ssl)? };
    if handshake.state.get() != State::Returned {
        return None;
    }
    let (result, error) = handshake.returned.get();
    forget(ssl);
    // Otherwise the original finds that the handshake has ended, or goes on.
    (error != 0).then(|| {
        // SAFETY: adds to this thread's queue of errors; null stands for no text.
        unsafe {
            originals::err_new();
            // As `ERR_GET_LIB` and `ERR_GET_REASON` do.
            let (library, reason) = match error >> 31 {
                0 => (error >> 23 & 0xff, error & 0x7f_ffff),
                _ => (SYSTEM, error & 0x7fff_ffff),
            };
            originals::err_set_error(library as c_int, reason as c_int, ptr::null());
        }
        result
    })
}

/// Most times that a server is woken because a handshake has ended: it may never ask.
const MOST_REPORTS: u32 = 1000;

/// `ERR_LIB_SYS`.
const SYSTEM: c_ulong = 2;

/// `SSL_WRITING`, `SSL_READING`.
const WRITING: c_int = 2;
const READING: c_int = 3;

/// `BIO_FLAGS_SHOULD_RETRY`.
const SHOULD_RETRY: c_int = 8;
