//! Connections, as all threads see them: whose handshake runs or waits on a stack of ours, and which have
//! more than one reference.
//!
//! A thread knows its own handshakes. A connection that it does not know may still be in the middle
//! of a call of another thread's, if the server has moved it: OpenSSL must not be called for it then,
//! and its memory must stay. If it is freed on such a thread, it is abandoned: the thread whose
//! call it is frees it.

use std::cell::Cell;
use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::established;
use crate::originals::Ssl;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    call: Call,
    /// Number of the handshake whose call it is.
    handshake: usize,
    /// References beyond the first.
    more: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Call {
    #[default]
    None,
    /// The call runs or waits on a stack of ours.
    UnderWay,
    /// So it does, and all other owners have freed the connection.
    Abandoned,
    /// The call has ended before the server asked again. The connection may be freed at any time.
    Returned,
    /// It was on a thread that a fork has not copied. The connection can only be freed.
    Orphaned,
}

/// A call of this handshake begins on a stack of ours.
pub(crate) fn begin(ssl: Ssl, handshake: usize) {
    change(ssl, |known| {
        known.call = Call::UnderWay;
        known.handshake = handshake;
    });
}

impl Known {
    fn end(&mut self) -> Call {
        self.handshake = 0;
        std::mem::take(&mut self.call)
    }
}

/// The call has returned. Whether the connection was abandoned meanwhile: then the caller frees it.
pub(crate) fn end(ssl: Ssl) -> bool {
    change(ssl, Known::end) == Call::Abandoned
}

/// The call has returned what the server did not ask for, and its result is kept. True if the connection was abandoned
/// meanwhile: then the caller frees it, and nothing is kept. Nor is anything of one that OpenSSL has freed meanwhile.
pub(crate) fn returned(ssl: Ssl) -> bool {
    change(ssl, |known| {
        let call = known.call;
        match call {
            Call::UnderWay => known.call = Call::Returned,
            Call::Abandoned => _ = known.end(),
            Call::None | Call::Returned | Call::Orphaned => {}
        }
        call == Call::Abandoned
    })
}

/// The server has what the call had returned, or never gets it.
pub(crate) fn taken(ssl: Ssl, handshake: usize) {
    change_known(ssl, |known| {
        if known.call == Call::Returned && known.handshake == handshake {
            known.end();
        }
    });
}

/// OpenSSL frees a connection of which we were not asked: a call of this handshake's never goes on. Its thread drops the
/// handshake, unless no thread has it.
pub(crate) fn is_freed(ssl: Ssl, handshake: usize) {
    if COUNT.load(Relaxed) == 0 {
        return;
    }
    with_all(|all| {
        let is_it = |known: &Known| known.call != Call::None && known.handshake == handshake;
        if all.known.get(&ssl.addr()).is_some_and(is_it) && all.change(ssl, Known::end) != Call::Orphaned {
            all.lost.push(handshake);
            all.show();
        }
    });
}

/// Returns whether any connection was freed so. Few programs manage that.
pub(crate) fn are_lost() -> bool {
    LOST.load(Relaxed) > 0
}

/// Returns whether the connection of this handshake was freed in the middle of its call, or before the server had its
/// result.
pub(crate) fn is_lost(handshake: usize) -> bool {
    are_lost() && with_all(|all| all.lost.contains(&handshake))
}

/// Nothing is left of this handshake.
pub(crate) fn is_dropped(handshake: usize) {
    if !are_lost() {
        return;
    }
    with_all(|all| {
        all.lost.retain(|lost| *lost != handshake);
        all.show();
    });
}

/// Returns whether a thread is in the middle of such a call.
pub(crate) fn is_under_way(ssl: Ssl) -> bool {
    let is_it = |known: Known| matches!(known.call, Call::UnderWay | Call::Abandoned | Call::Orphaned);
    look(ssl).is_some_and(is_it)
}

/// This is the child of a fork: calls of handshakes that are not this thread's never go on, what they have returned is
/// never asked for, and no thread drops those that are lost.
pub(crate) fn forked(is_own: impl Fn(usize) -> bool) {
    with_all(|all| {
        let others: Vec<_> = (all.known.iter())
            .filter(|(_, known)| known.call != Call::None && !is_own(known.handshake))
            .map(|(address, _)| *address)
            .collect();
        for address in others {
            all.change(ptr::without_provenance_mut(address), |known| match known.call {
                Call::Returned => _ = known.end(),
                _ => known.call = Call::Orphaned,
            });
        }
        all.lost.retain(|lost| is_own(*lost));
        all.show();
    });
}

/// The last owner but the call has freed the connection. False if there is no such call any more: then
/// the caller frees it.
pub(crate) fn abandon(ssl: Ssl) -> bool {
    change(ssl, |known| {
        if known.call == Call::UnderWay {
            known.call = Call::Abandoned;
            ABANDONED.fetch_add(1, Relaxed);
        }
        known.call == Call::Abandoned
    })
}

/// Returns whether any connection was ever abandoned: few programs do that.
pub(crate) fn were_abandoned() -> bool {
    ABANDONED.load(Relaxed) > 0
}

/// Returns whether the connection was abandoned.
pub(crate) fn is_abandoned(ssl: Ssl) -> bool {
    were_abandoned() && look(ssl).is_some_and(|known| known.call == Call::Abandoned)
}

/// Returns whether any connection was ever used on a thread that does not have its call.
pub(crate) fn were_moved() -> bool {
    MOVED.load(Relaxed)
}

/// A thread has used a connection in the middle of another thread's call.
pub(crate) fn moved() {
    with_all(|all| {
        all.moved = true;
        all.show();
    });
}

/// The program has taken one more reference.
pub(crate) fn refer(ssl: Ssl) {
    change(ssl, |known| known.more += 1);
}

/// The program gives a reference back. Whether others remain.
pub(crate) fn release(ssl: Ssl) -> bool {
    let release = |known: &mut Known| {
        let remain = known.more > 0;
        known.more = known.more.saturating_sub(1);
        remain
    };
    change_known(ssl, release) == Some(true)
}

/// A new connection has this address: what is known is of one that went away unseen.
pub(crate) fn forget(ssl: Ssl) {
    change_known(ssl, |known| *known = Known::default());
}

#[derive(Debug, Default)]
pub(crate) struct All {
    /// By the address of the connection.
    known: HashMap<usize, Known>,
    /// Connections with a call that is under way, or has ended unasked.
    calls: usize,
    /// Handshakes whose connections are gone.
    lost: Vec<usize>,
    moved: bool,
}

impl All {
    fn change<R>(&mut self, ssl: Ssl, change: impl FnOnce(&mut Known) -> R) -> R {
        let known = self.known.entry(ssl.addr()).or_default();
        let had_a_call = known.call != Call::None;
        let result = change(known);
        let has_a_call = known.call != Call::None;
        if *known == Known::default() {
            self.known.remove(&ssl.addr());
        }
        self.calls = self.calls + usize::from(has_a_call) - usize::from(had_a_call);
        self.show();
        result
    }

    /// Shows to all threads what they look at without the lock.
    fn show(&self) {
        COUNT.store(self.known.len(), Relaxed);
        CALLS.store(self.calls, Relaxed);
        LOST.store(self.lost.len(), Relaxed);
        LEFT.store(self.calls + self.lost.len(), Relaxed);
        MOVED.store(self.moved, Relaxed);
        established::show(self.calls, self.moved);
    }
}

pub(crate) type Locked = MutexGuard<'static, All>;

/// Keeps everything as it is while a process forks.
pub(crate) fn lock() -> Locked {
    static ALL: LazyLock<Mutex<All>> = LazyLock::new(Mutex::default);
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether a call of any connection is under way, or has ended unasked. A program that moves a connection
/// passes it from thread to thread in some order, in which this comes, too.
pub(crate) fn are_under_way() -> bool {
    CALLS.load(Relaxed) > 0
}

/// Returns whether a wait could have anything to do, for a call that is under way or for a connection that is gone.
#[inline(always)]
pub(crate) fn are_left() -> bool {
    LEFT.load(Relaxed) > 0
}

/// Returns whether a call of this connection is under way, or has ended unasked.
pub(crate) fn has_a_call(ssl: Ssl) -> bool {
    are_under_way() && look(ssl).is_some_and(|known| known.call != Call::None)
}

fn look(ssl: Ssl) -> Option<Known> {
    if COUNT.load(Relaxed) == 0 {
        return None;
    }
    with_all(|all| all.known.get(&ssl.addr()).copied())
}

fn change<R>(ssl: Ssl, change: impl FnOnce(&mut Known) -> R) -> R {
    with_all(|all| all.change(ssl, change))
}

/// As [`change`], of a connection of which anything is known.
fn change_known<R>(ssl: Ssl, change: impl FnOnce(&mut Known) -> R) -> Option<R> {
    if COUNT.load(Relaxed) == 0 {
        return None;
    }
    with_all(|all| (all.known.contains_key(&ssl.addr())).then(|| all.change(ssl, change)))
}

/// Nothing else of this library's is locked in `work`.
fn with_all<R>(work: impl FnOnce(&mut All) -> R) -> R {
    // Dropped after the lock.
    let _busy = Busy::begin();
    work(&mut lock())
}

/// Does work that takes a lock of the C library's which a fork leaves as it is: no thread forks meanwhile.
pub(crate) fn apart_from_forks<R>(work: impl FnOnce() -> R) -> R {
    with_all(|_| work())
}

#[cfg(test)]
pub(crate) fn while_locked(work: impl FnOnce()) {
    with_all(|_| work());
}

/// Whether this thread has the lock, or is about to: a signal handler may have interrupted it.
pub(crate) fn is_busy() -> bool {
    BUSY.get()
}

struct Busy;

impl Busy {
    fn begin() -> Self {
        BUSY.set(true);
        Self
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.set(false);
    }
}

thread_local! {
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

static LOST: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);
/// Calls under way or ended unasked, and handshakes whose connections are gone.
static LEFT: AtomicUsize = AtomicUsize::new(0);
static ABANDONED: AtomicUsize = AtomicUsize::new(0);
static MOVED: AtomicBool = AtomicBool::new(false);

#[cfg(test)]
mod tests {
    use super::*;

    fn ssl(address: usize) -> Ssl {
        ptr::without_provenance_mut(address)
    }

    fn elsewhere<R: Send + 'static>(ask: impl FnOnce() -> R + Send + 'static) -> R {
        std::thread::spawn(ask).join().unwrap()
    }

    #[test]
    fn a_connection_is_known_to_all_threads_until_its_call_returns() {
        begin(ssl(0x1000), 1);
        assert!(elsewhere(|| is_under_way(ssl(0x1000)) && !is_under_way(ssl(0x2000))));
        assert!(!end(ssl(0x1000)));
        assert!(!elsewhere(|| is_under_way(ssl(0x1000))));
    }

    #[test]
    fn what_is_freed_in_the_middle_of_a_call_is_the_calls_to_free() {
        assert!(!abandon(ssl(0x3000)), "no call is under way");
        begin(ssl(0x3000), 1);
        assert!(!is_abandoned(ssl(0x3000)));
        assert!(elsewhere(|| abandon(ssl(0x3000))));
        assert!(is_abandoned(ssl(0x3000)) && is_under_way(ssl(0x3000)));
        assert!(end(ssl(0x3000)), "its caller frees it");
        begin(ssl(0x3000), 2);
        assert!(abandon(ssl(0x3000)) && returned(ssl(0x3000)), "nothing is kept for it");
        assert!(!is_abandoned(ssl(0x3000)) && !end(ssl(0x3000)));
    }

    #[test]
    fn a_connection_that_is_freed_in_the_middle_is_lost() {
        begin(ssl(0x5000), 77);
        is_freed(ssl(0x5000), 76);
        assert!(is_under_way(ssl(0x5000)) && !is_lost(77));
        is_freed(ssl(0x5000), 77);
        assert!(!is_under_way(ssl(0x5000)) && is_lost(77));
        assert!(!returned(ssl(0x5000)) && !has_a_call(ssl(0x5000)), "no result is kept");
        is_freed(ssl(0x5000), 78);
        assert!(!is_lost(78), "its call had ended");
    }

    #[test]
    fn a_connection_that_is_freed_before_its_result_is_taken_is_lost() {
        begin(ssl(0x6000), 87);
        assert!(!returned(ssl(0x6000)));
        assert!(!is_under_way(ssl(0x6000)) && !abandon(ssl(0x6000)));
        assert!(elsewhere(|| {
            is_freed(ssl(0x6000), 87);
            is_lost(87)
        }));
        is_dropped(87);
        assert!(!is_lost(87));
        begin(ssl(0x6000), 88);
        assert!(!returned(ssl(0x6000)));
        taken(ssl(0x6000), 87);
        taken(ssl(0x6000), 88);
        is_freed(ssl(0x6000), 88);
        assert!(!is_lost(88), "the server had its result");
    }

    #[test]
    fn the_child_of_a_fork_frees_what_was_another_threads() {
        begin(ssl(0x7000), 97);
        begin(ssl(0x8000), 98);
        forked(|handshake| handshake != 98);
        assert!(is_under_way(ssl(0x7000)) && is_under_way(ssl(0x8000)));
        assert!(!abandon(ssl(0x8000)) && abandon(ssl(0x7000)));
        is_freed(ssl(0x8000), 98);
        assert!(!is_under_way(ssl(0x8000)) && !is_lost(98), "no thread has it to drop");
        assert!(end(ssl(0x7000)));
    }

    #[test]
    fn the_child_of_a_fork_keeps_nothing_that_no_thread_of_it_ends() {
        let (returned_once, freed_once) = (ssl(0x9000), ssl(0xa000));
        for (one, handshake) in [
            (returned_once, 21),
            (freed_once, 22),
            (ssl(0xb000), 23),
            (ssl(0xc000), 24),
        ] {
            refer(one);
            begin(one, handshake);
        }
        assert!(!returned(returned_once) && abandon(freed_once));
        for (one, handshake) in [(ssl(0xb000), 23), (ssl(0xc000), 24)] {
            is_freed(one, handshake);
        }
        forked(|handshake| ![21, 22, 23].contains(&handshake));
        assert!(
            !has_a_call(returned_once) && release(returned_once),
            "its references stay"
        );
        assert!(!is_abandoned(freed_once) && is_under_way(freed_once) && !abandon(freed_once));
        assert!(!is_lost(23) && is_lost(24));
        is_freed(freed_once, 22);
        is_dropped(24);
        assert!(!has_a_call(freed_once) && !is_lost(22));
    }

    #[test]
    fn only_the_last_reference_ends_a_connection() {
        refer(ssl(0x4000));
        refer(ssl(0x4000));
        assert!(release(ssl(0x4000)) && release(ssl(0x4000)));
        assert!(!release(ssl(0x4000)), "the last one");
        refer(ssl(0x4000));
        forget(ssl(0x4000));
        assert!(!release(ssl(0x4000)), "another connection at the same address");
    }
}
