//! What all threads know of connections: whose handshake runs or waits on a stack of ours, and which have
//! more than one reference.
//!
//! A thread knows its own handshakes. A connection that it does not know may still be in the middle
//! of a call of another thread's, if the server has moved it: OpenSSL must not be called for it then,
//! and its memory must stay. If it is freed on such a thread, it is abandoned: the thread whose
//! call it is frees it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::originals::Ssl;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    call: Call,
    /// References beyond the first.
    more: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Call {
    #[default]
    None,
    /// It runs or waits on a stack of ours.
    UnderWay,
    /// So it does, and all other owners have freed the connection.
    Abandoned,
}

/// A call begins on a stack of ours.
pub(crate) fn begin(ssl: Ssl) {
    change(ssl, |known| known.call = Call::UnderWay);
}

/// The call has returned. Whether the connection was abandoned meanwhile: then the caller frees it.
pub(crate) fn end(ssl: Ssl) -> bool {
    change(ssl, |known| std::mem::take(&mut known.call)) == Call::Abandoned
}

/// Whether a thread is in the middle of such a call.
pub(crate) fn is_under_way(ssl: Ssl) -> bool {
    look(ssl).is_some_and(|known| known.call != Call::None)
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

/// Whether any connection was ever abandoned: few programs do that.
pub(crate) fn were_abandoned() -> bool {
    ABANDONED.load(Relaxed) > 0
}

/// Whether the connection was abandoned.
pub(crate) fn is_abandoned(ssl: Ssl) -> bool {
    were_abandoned() && look(ssl).is_some_and(|known| known.call == Call::Abandoned)
}

/// Whether any connection was ever used on a thread that does not have its call.
pub(crate) fn were_moved() -> bool {
    MOVED.load(Relaxed) > 0
}

/// A thread has used a connection in the middle of another thread's call.
pub(crate) fn moved() {
    MOVED.fetch_add(1, Relaxed);
}

/// The program has taken one more reference.
pub(crate) fn refer(ssl: Ssl) {
    change(ssl, |known| known.more += 1);
}

/// The program gives a reference back. Whether others remain.
pub(crate) fn release(ssl: Ssl) -> bool {
    look(ssl).is_some()
        && change(ssl, |known| {
            let remain = known.more > 0;
            known.more = known.more.saturating_sub(1);
            remain
        })
}

/// A new connection has this address: what is known is of one that went away unseen.
pub(crate) fn forget(ssl: Ssl) {
    if look(ssl).is_some() {
        change(ssl, |known| *known = Known::default());
    }
}

pub(crate) type Locked = MutexGuard<'static, HashMap<usize, Known>>;

/// Keeps everything as it is while a process forks.
pub(crate) fn lock() -> Locked {
    static ALL: LazyLock<Mutex<HashMap<usize, Known>>> = LazyLock::new(Mutex::default);
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn look(ssl: Ssl) -> Option<Known> {
    // A program that moves a connection passes it from thread to thread in some order, in which the
    // count comes too.
    if COUNT.load(Relaxed) == 0 {
        return None;
    }
    lock().get(&ssl.addr()).copied()
}

fn change<R>(ssl: Ssl, change: impl FnOnce(&mut Known) -> R) -> R {
    let mut all = lock();
    let known = all.entry(ssl.addr()).or_default();
    let result = change(known);
    if *known == Known::default() {
        all.remove(&ssl.addr());
    }
    COUNT.store(all.len(), Relaxed);
    result
}

static COUNT: AtomicUsize = AtomicUsize::new(0);
static ABANDONED: AtomicUsize = AtomicUsize::new(0);
static MOVED: AtomicUsize = AtomicUsize::new(0);

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    fn ssl(address: usize) -> Ssl {
        ptr::without_provenance_mut(address)
    }

    fn elsewhere<R: Send + 'static>(ask: impl FnOnce() -> R + Send + 'static) -> R {
        std::thread::spawn(ask).join().unwrap()
    }

    #[test]
    fn a_connection_is_known_to_all_threads_until_its_call_returns() {
        begin(ssl(0x1000));
        assert!(elsewhere(
            || is_under_way(ssl(0x1000)) && !is_under_way(ssl(0x2000))
        ));
        assert!(!end(ssl(0x1000)));
        assert!(!elsewhere(|| is_under_way(ssl(0x1000))));
    }

    #[test]
    fn what_is_freed_in_the_middle_of_a_call_is_the_calls_to_free() {
        assert!(!abandon(ssl(0x3000)), "no call is under way");
        begin(ssl(0x3000));
        assert!(!is_abandoned(ssl(0x3000)));
        assert!(elsewhere(|| abandon(ssl(0x3000))));
        assert!(is_abandoned(ssl(0x3000)) && is_under_way(ssl(0x3000)));
        assert!(end(ssl(0x3000)), "its caller frees it");
        assert!(!is_abandoned(ssl(0x3000)) && !end(ssl(0x3000)));
    }

    #[test]
    fn only_the_last_reference_ends_a_connection() {
        refer(ssl(0x4000));
        refer(ssl(0x4000));
        assert!(release(ssl(0x4000)) && release(ssl(0x4000)));
        assert!(!release(ssl(0x4000)), "the last one");
        refer(ssl(0x4000));
        forget(ssl(0x4000));
        assert!(
            !release(ssl(0x4000)),
            "another connection at the same address"
        );
    }
}
