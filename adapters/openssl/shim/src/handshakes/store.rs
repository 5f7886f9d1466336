//! The handshakes of each thread, by their connections, and which of them can go on.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_long, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::Relaxed};

use super::handshake::{Handshake, State, suspended};
use super::stacks::cancel;
use crate::boundary::guarded;
use crate::originals::{self, Ssl};
use crate::{connections, waits};

/// Returns whether this thread has handshakes that have not ended, or may have some: its table is in use, or gone.
pub(crate) fn are_under_way() -> bool {
    LAST.load(Relaxed) > 0 && with_table(|table| !table.is_empty()).unwrap_or(true)
}

/// Takes notice of a server's handshake that can be suspended.
pub(super) fn begin(ssl: Ssl, fd: c_int) -> Option<*const Handshake> {
    let number = LAST.fetch_add(1, Relaxed) + 1;
    // SAFETY: the server passes a connection; the value is a number.
    let is_set = unsafe { originals::ssl_set_ex_data(ssl, index()?, ptr::without_provenance_mut(number)) == 1 };
    if !is_set {
        return None;
    }
    let handshake = Box::new(Handshake::new(ssl, fd, number));
    let address: *const Handshake = &raw const *handshake;
    forget(ssl);
    let inserted = with_table(|table| table.insert(ssl.addr(), handshake));
    waits::make_room();
    inserted.map(|_| address)
}

/// Finds the handshake of this connection. One of an earlier connection with the same address does not count.
pub(super) fn find(ssl: Ssl) -> Option<*const Handshake> {
    let found = with_table(|table| Some(&raw const **table.get(&ssl.addr())?)).flatten()?;
    // SAFETY: rule 2 (`mod.rs`): it is in the table.
    let number = unsafe { (*found).number };
    // SAFETY: the server passes a connection.
    let value = |index| unsafe { originals::ssl_get_ex_data(ssl, index) }.addr();
    if connections::is_lost(number) || index().map(value) != Some(number) {
        forget(ssl);
        return None;
    }
    Some(found)
}

/// The connections of this thread's handshakes that are so.
pub(super) fn own(so: impl Fn(&Handshake) -> bool) -> Vec<Ssl> {
    if suspended() == 0 {
        return Vec::new();
    }
    let handshakes = |table: &mut HashMap<usize, Box<Handshake>>| {
        let found = table
            .values()
            .filter(|one| so(one) && !connections::is_lost(one.number));
        found.map(|one| one.ssl).collect()
    };
    with_table(handshakes).unwrap_or_default()
}

/// Drops a handshake on whose stack nothing runs, or will.
pub(super) fn forget(ssl: Ssl) {
    unready(ssl);
    if let Some(handshake) = with_table(|table| table.remove(&ssl.addr())).flatten() {
        connections::taken(ssl, handshake.number);
        connections::is_dropped(handshake.number);
        handshake.set_state(State::Idle);
        #[cfg(planted_fault = "handshake")]
        {
            let freed = &raw const *handshake;
            drop(handshake);
            // SAFETY: none. The test of the tests finds this.
            std::hint::black_box(unsafe { (*freed).number });
        }
    }
}

pub(super) fn unready(ssl: Ssl) {
    with_ready(|ready| ready.retain(|one| *one != ssl.addr()));
}

/// See [`widelane_openssl_tables::Suspension`]. The handshake may have ended: then there is nothing to wake. So
/// may the thread, whose worker tells its last jobs that they are dropped.
pub(crate) extern "C" fn wake(ssl: *mut c_void) {
    guarded(|| {
        let woken = with_table(|table| {
            let handshake = table.get(&ssl.addr())?;
            let waits = handshake.state.get() == State::Suspended;
            waits.then(|| handshake.set_state(State::Ready))
        });
        if let Some(Some(())) = woken {
            with_ready(|ready| ready.push_back(ssl.addr()));
        }
    });
}

/// The process was forked: jobs of suspended handshakes are its parent's. They go on, and find that. Calls of other
/// threads never do.
pub(crate) fn forked() {
    connections::forked(|number| with_table(|table| table.values().any(|one| one.number == number)) == Some(true));
    let waiting = own(|one| one.state.get() == State::Suspended);
    waiting.into_iter().for_each(|ssl| wake(ssl));
}

pub(super) fn with_table<R>(work: impl FnOnce(&mut HashMap<usize, Box<Handshake>>) -> R) -> Option<R> {
    let done = TABLE.try_with(|table| Some(work(&mut table.try_borrow_mut().ok()?.0)));
    done.ok().flatten()
}

pub(super) fn with_ready<R>(work: impl FnOnce(&mut VecDeque<usize>) -> R) -> Option<R> {
    let done = READY.try_with(|ready| Some(work(&mut *ready.try_borrow_mut().ok()?)));
    done.ok().flatten()
}

/// The index of our value among those of a connection.
fn index() -> Option<c_int> {
    static INDEX: AtomicI32 = AtomicI32::new(-1);
    if INDEX.load(Relaxed) < 0 {
        let (none, no_function) = (ptr::null_mut(), ptr::null());
        // SAFETY: `freed` has the type of such a function, and this library is never unloaded.
        let new = unsafe { originals::crypto_get_ex_new_index(0, 0, none, no_function, no_function, Some(freed)) };
        // Another thread may have been faster; its index is as good.
        let _ = INDEX.compare_exchange(-1, new, Relaxed, Relaxed);
    }
    Some(INDEX.load(Relaxed)).filter(|index| *index >= 0)
}

/// OpenSSL frees a connection. We have ended its handshake before, if we were asked: the last reference may have been
/// in other hands, or a library may have called OpenSSL's function past us.
extern "C" fn freed(ssl: Ssl, number: *mut c_void, _: *mut c_void, _: c_int, _: c_long, _: *mut c_void) {
    guarded(|| {
        if number.is_null() || cfg!(planted_fault = "connection") {
            return;
        }
        connections::is_freed(ssl, number.addr());
        let is_it = |table: &mut HashMap<usize, Box<Handshake>>| {
            let found = table.get(&ssl.addr());
            // One that runs would need it.
            let is_it = |one: &Handshake| one.number == number.addr() && one.state.get() != State::Running;
            found.is_some_and(|one| is_it(one))
        };
        if with_table(is_it) == Some(true) {
            forget(ssl);
        }
    });
}

/// The handshakes of a thread, by the address of the connection.
#[derive(Default)]
struct Table(HashMap<usize, Box<Handshake>>);

impl Drop for Table {
    /// The thread ends. What waits on it fails, so that its stack goes back, and what other threads
    /// have freed is freed. The first thread ends with the process, which leaves everything as it is: so
    /// does a call in the middle of which the thread ends.
    fn drop(&mut self) {
        // SAFETY: asks for the number of this thread.
        let is_first = unsafe { libc::gettid() } as u32 == std::process::id();
        for (_, handshake) in self.0.drain() {
            let is_left = is_first && handshake.is_left();
            if handshake.state.get() == State::Running || is_left || connections::is_lost(handshake.number) {
                connections::is_dropped(handshake.number);
                std::mem::forget(handshake);
                continue;
            }
            let number = handshake.number;
            connections::taken(handshake.ssl, number);
            let ended = handshake.is_left().then(|| guarded(|| cancel(&handshake)));
            handshake.set_state(State::Idle);
            match ended {
                // SAFETY: all other owners have freed it.
                Some(Some(())) if connections::end(handshake.ssl) => unsafe {
                    originals::ssl_free(handshake.ssl);
                },
                // What is on its stack still points to it.
                Some(None) => {
                    std::mem::forget(handshake);
                    continue;
                }
                _ => {}
            }
            // Its call has ended: it is not lost any more from here on.
            connections::is_dropped(number);
        }
    }
}

/// The number of the newest handshake that could have been suspended; 0: there was none in the process.
static LAST: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static TABLE: RefCell<Table> = RefCell::default();
    /// Handshakes that can go on, by the address of the connection, the first first.
    static READY: RefCell<VecDeque<usize>> = const { RefCell::new(VecDeque::new()) };
}
