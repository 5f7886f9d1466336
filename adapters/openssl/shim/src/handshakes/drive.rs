//! Calls that would do a part of a handshake: on which stack they run.

use std::ffi::c_int;
use std::ptr;

use widelane_status::Way;

use super::callback::listen;
use super::endings::finish;
use super::handshake::{Handshake, State, Step};
use super::retries::{TRY_AGAIN, clear_want_of_another, is_anothers, try_again};
use super::socket::{inode, socket_of};
use super::stacks::{CURRENT, STACKS, on_stack, resume, run_all_passes, run_pass};
use super::store::{begin, find, unready, with_table};
use super::unasked::returned;
use crate::errno::set_errno;
use crate::originals::{self, Ssl};
use crate::{connections, provider, registrations, rings, runtimes, waits};

/// Returns the result of a call that would do a part of a handshake; `None` if the original does it. A server's first
/// handshake runs on its own stack until OpenSSL returns or it is suspended.
pub(crate) fn drive(ssl: Ssl, step: Step) -> Option<c_int> {
    let passes = provider::passes()?;
    if ssl.is_null() {
        return None;
    }
    clear_want_of_another(ssl);
    if let Some(result) = returned(ssl) {
        return Some(result);
    }
    // Not whether the handshake has ended: while early data is read or written it has not, but calls do no
    // part of it.
    // SAFETY: the server passes a connection to a function that takes one.
    if unsafe { originals::ssl_in_init(ssl) } == 0 {
        return None;
    }
    // SAFETY: rule 2 (`mod.rs`): it is in the table.
    let found = find(ssl).map(|found| unsafe { &*found });
    if let Some(handshake) = found {
        handshake.wants_read.set(false);
        match handshake.state.get() {
            // Its own callback calls. What that would do without us is OpenSSL's to say.
            State::Running => return None,
            State::Suspended if handshake.is_own() => {
                if handshake.asks_in_vain() {
                    run_all_passes(handshake);
                }
                return Some(match handshake.state.get() {
                    State::Ready => go_on(handshake),
                    _ => try_again(handshake),
                });
            }
            State::Suspended | State::Ready => return Some(go_on(handshake)),
            State::Postponed | State::Idle | State::Returned => {}
        }
    } else if is_anothers(ssl) {
        provider::count_way(Way::Moved);
        set_errno(libc::EAGAIN);
        return Some(TRY_AGAIN);
    } else if (passes.lanes_are_off)() != 0 {
        // Nothing waits, and a stack would only cost time. One that has begun goes on.
        return None;
    }
    let fd = socket_of(ssl)?;
    let handshake = found.filter(|one| one.fd == fd).map(ptr::from_ref);
    // SAFETY: rule 2 (`mod.rs`): it is in the table.
    let handshake = unsafe { &*handshake.or_else(|| begin(ssl, fd))? };
    let was = handshake.state.get();
    handshake.set_state(State::Idle);
    if was == State::Idle && registrations::take_new(fd) && waits::has_waited() {
        // SAFETY: the server passes a connection. One that does nothing yet may learn again what it is.
        unsafe {
            if step == Step::Accept && originals::ssl_in_before(ssl) == 1 {
                originals::ssl_set_accept_state(ssl);
            }
        }
        handshake.set_state(State::Postponed);
        return Some(try_again(handshake));
    }
    start(handshake, step)?;
    Some(go_on(handshake))
}

/// Puts the call onto a stack of its own, if a wait of the server can report that it goes on.
fn start(handshake: &Handshake, step: Step) -> Option<()> {
    // On another handshake's stack: that one could not go on before this one has.
    if !CURRENT.get().is_null() {
        return None;
    }
    handshake.file.set(registrations::hold(handshake.fd)?);
    handshake.inode.set(inode(handshake.fd)?);
    let way = match way(handshake) {
        _ if connections::were_moved() => Way::Moved,
        // It looks at descriptors: not in threads of which none shares.
        way if way.waits() && runtimes::are_there() => Way::Runtime,
        way if way.waits() && rings::are_there() => Way::IoUring,
        way => way,
    };
    provider::count_way(way);
    if !way.waits() {
        return None;
    }
    if originals::may_have_threads() && !waits::has_passed_trials() {
        return None;
    }
    // Once the client has ended a handshake, data of the server may come in the middle of the next, which a call
    // that only does the handshake refuses.
    // SAFETY: the server passes a connection; no place is needed for nothing.
    if unsafe { originals::ssl_get_peer_finished(handshake.ssl, ptr::null_mut(), 0) } > 0 {
        return None;
    }
    let stack = STACKS.try_with(|stacks| stacks.take().ok()).ok().flatten()?;
    handshake.process.set(std::process::id());
    handshake.asked.set((waits::number_of_waits(), 0));
    connections::begin(handshake.ssl, handshake.number);
    listen(handshake);
    let coroutine = on_stack(stack, handshake, step);
    handshake.coroutine.set(Some(coroutine));
    Some(())
}

/// Way in which its thread learns that it can go on, or why it shares no pass. A thread that waits by `poll` may serve
/// one connection only: it shares passes with other threads while it blocks.
fn way(handshake: &Handshake) -> Way {
    let is_other = |one: &Handshake| one.ssl != handshake.ssl && waits::is_in_last_set(one.fd);
    let beside = || with_table(|table| table.values().any(|one| is_other(one))).unwrap_or(false);
    let socket = handshake.socket();
    if socket.is_in_known_instance() {
        Way::Epoll
    } else if !socket.is_in_last_set() {
        socket.why_not_reported()
    } else if beside() {
        waits::way_of_last_set()
    } else {
        Way::OneConnection
    }
}

/// Goes on with the call until OpenSSL returns or it is suspended.
fn go_on(handshake: &Handshake) -> c_int {
    loop {
        unready(handshake.ssl);
        if let Some(result) = resume(handshake, true) {
            return finish(handshake, result);
        }
        // A pass that is full need not wait for a look at the sockets. It may have the answer for this
        // very handshake.
        while run_pass(0) > 0 {}
        if handshake.state.get() != State::Ready && !handshake.can_be_reported() {
            run_all_passes(handshake);
        }
        if handshake.state.get() != State::Ready {
            return try_again(handshake);
        }
    }
}
