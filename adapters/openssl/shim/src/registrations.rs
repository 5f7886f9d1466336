//! Which descriptors this process has registered with epoll, and with which data: a suspended
//! connection is woken with the server's own.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// A descriptor in an epoll instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    /// The epoll instance.
    pub(crate) epoll: c_int,
    /// The server's data, which comes with each event.
    pub(crate) data: u64,
}

/// The server has added the descriptor, or changed it.
pub(crate) fn set(fd: c_int, registration: Registration) {
    all().insert(fd, registration);
}

/// The server has removed the descriptor from the instance.
pub(crate) fn remove(fd: c_int, epoll: c_int) {
    let mut all = all();
    if all.get(&fd).is_some_and(|found| found.epoll == epoll) {
        all.remove(&fd);
    }
}

/// The server closes the descriptor: the kernel removes it from every instance, and an instance
/// forgets all of its descriptors.
pub(crate) fn close(fd: c_int) {
    let mut all = all();
    if all.remove(&fd).is_none() && all.values().any(|found| found.epoll == fd) {
        all.retain(|_, found| found.epoll != fd);
    }
}

/// Where the descriptor is registered.
pub(crate) fn get(fd: c_int) -> Option<Registration> {
    all().get(&fd).copied()
}

fn all() -> MutexGuard<'static, HashMap<c_int, Registration>> {
    static ALL: LazyLock<Mutex<HashMap<c_int, Registration>>> = LazyLock::new(Mutex::default);
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_descriptor_is_forgotten() {
        // Numbers that no descriptor of the test has.
        let (epoll, other) = (1_000_000, 1_000_001);
        for fd in [2_000_000, 2_000_001] {
            set(fd, Registration { epoll, data: 7 });
        }
        assert_eq!(get(2_000_000), Some(Registration { epoll, data: 7 }));
        remove(2_000_000, other);
        assert!(get(2_000_000).is_some(), "it is not in that instance");
        remove(2_000_000, epoll);
        assert!(get(2_000_000).is_none());
        close(epoll);
        assert!(get(2_000_001).is_none());
    }
}
