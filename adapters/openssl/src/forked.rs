//! Values that a fork must not hand to the child while a thread of the parent uses them.
//!
//! The child of a fork has a copy of all memory and only the thread that forked. What another thread was
//! changing at that moment stays half changed in the copy, and a lock that it held is never released:
//! AWS-LC's RSA keys end the process then. So each use of a value is counted. A child goes on with a
//! value that was not in use, and otherwise makes another one.

use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicUsize};

use widelane_forks::process_id;

/// A value that each process has for itself. No lock is held while it is made, because a fork could leave
/// that locked: threads that race make the value several times, and one of them stays.
pub(crate) struct Forked<T> {
    first: Place<T>,
}

type Place<T> = OnceLock<Box<Entry<T>>>;

struct Entry<T> {
    value: T,
    /// The process whose threads may use the value.
    process: AtomicU32,
    users: AtomicUsize,
    /// Value that replaces this one in a forked process.
    next: Place<T>,
}

/// A value in use.
pub(crate) struct InUse<'a, T>(&'a Entry<T>);

impl<T> Forked<T> {
    pub(crate) const fn new() -> Self {
        Self { first: Place::new() }
    }

    /// The value, if this process has one or may go on with its parent's.
    pub(crate) fn get(&self) -> Option<InUse<'_, T>> {
        let entry = self.newest()?;
        if !entry.is_own() {
            if entry.users.load(Acquire) != 0 {
                return None;
            }
            entry.process.store(process_id(), Relaxed);
        }
        Some(InUse::of(entry))
    }

    /// The value that was made in this process.
    pub(crate) fn get_own(&self) -> Option<InUse<'_, T>> {
        self.newest().filter(|entry| entry.is_own()).map(InUse::of)
    }

    /// Makes the value this process's, unless another thread was faster: then its value stays.
    pub(crate) fn set(&self, value: T) -> InUse<'_, T> {
        let mut entry = Box::new(Entry {
            value,
            process: AtomicU32::new(process_id()),
            users: AtomicUsize::new(0),
            next: Place::new(),
        });
        loop {
            let place = match self.newest() {
                None => &self.first,
                Some(faster) if faster.is_own() => return InUse::of(faster),
                Some(other) => &other.next,
            };
            match place.set(entry) {
                Ok(()) => return InUse::of(place.get().expect("it was set a line before")),
                Err(back) => entry = back,
            }
        }
    }

    fn newest(&self) -> Option<&Entry<T>> {
        let mut newest = self.first.get()?;
        while let Some(next) = newest.next.get() {
            newest = next;
        }
        Some(newest)
    }
}

impl<T> Drop for Forked<T> {
    fn drop(&mut self) {
        let mut next = self.first.take();
        while let Some(mut entry) = next {
            next = entry.next.take();
            // What a thread of the parent was changing cannot be dropped either.
            if entry.users.load(Acquire) != 0 {
                std::mem::forget(entry);
            }
        }
    }
}

impl<T> Entry<T> {
    fn is_own(&self) -> bool {
        self.process.load(Acquire) == process_id()
    }
}

impl<'a, T> InUse<'a, T> {
    fn of(entry: &'a Entry<T>) -> Self {
        // Before the value is touched: a child that sees the value changing sees the user, too.
        entry.users.fetch_add(1, AcqRel);
        Self(entry)
    }
}

impl<T> Deref for InUse<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T> Drop for InUse<'_, T> {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes the newest entry that of another process, as a fork does.
    fn fork(value: &Forked<u8>) {
        value.newest().unwrap().process.store(0, Relaxed);
    }

    #[test]
    fn a_child_goes_on_with_what_was_not_in_use() {
        let value = Forked::new();
        assert!(value.get().is_none());
        drop(value.set(7));
        fork(&value);
        assert!(value.get_own().is_none());
        assert_eq!(value.get().as_deref(), Some(&7));
    }

    #[test]
    fn the_first_of_two_values_stays() {
        let value = Forked::new();
        drop(value.set(7));
        assert_eq!(*value.set(8), 7);
        fork(&value);
        assert_eq!(*value.set(9), 9);
    }

    #[test]
    fn a_child_does_not_touch_what_was_in_use() {
        let value = Forked::new();
        let used = value.set(7);
        fork(&value);
        assert!(value.get().is_none());
        assert_eq!(*value.set(8), 8);
        assert_eq!(value.get().as_deref(), Some(&8));
        assert_eq!(*used, 7);
    }
}
