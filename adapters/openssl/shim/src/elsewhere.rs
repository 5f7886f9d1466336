//! The connections whose handshake runs or waits on a stack of ours, of all threads.
//!
//! A thread knows its own handshakes. A connection that it does not know may still be in the middle
//! of a call of another thread's, if the server has moved it: OpenSSL must not be called for it then,
//! and its memory must stay.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::originals::Ssl;

/// A call has begun on a stack of ours.
pub(crate) fn begin(ssl: Ssl) {
    let mut all = all();
    all.insert(ssl.addr());
    COUNT.store(all.len(), Relaxed);
}

/// The call has returned.
pub(crate) fn end(ssl: Ssl) {
    let mut all = all();
    all.remove(&ssl.addr());
    COUNT.store(all.len(), Relaxed);
}

/// Whether a thread is in the middle of such a call.
pub(crate) fn has(ssl: Ssl) -> bool {
    // A server that moves a connection passes it from thread to thread in some order, in which the
    // count comes too.
    COUNT.load(Relaxed) > 0 && all().contains(&ssl.addr())
}

fn all() -> MutexGuard<'static, HashSet<usize>> {
    static ALL: LazyLock<Mutex<HashSet<usize>>> = LazyLock::new(Mutex::default);
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

static COUNT: AtomicUsize = AtomicUsize::new(0);

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn a_connection_is_known_to_all_threads_until_its_call_returns() {
        let (one, other) = (0x1000_usize, 0x2000_usize);
        let has = |ssl: usize| {
            let asked = std::thread::spawn(move || has(ptr::without_provenance_mut(ssl)));
            asked.join().unwrap()
        };
        begin(ptr::without_provenance_mut(one));
        assert!(has(one) && !has(other));
        end(ptr::without_provenance_mut(one));
        assert!(!has(one));
    }
}
