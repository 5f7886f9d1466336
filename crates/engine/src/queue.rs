//! The bounded queue from all workers to the vector cores.

pub(crate) use imp::Queue;

#[cfg(not(loom))]
mod imp {
    use crossbeam_queue::ArrayQueue;

    /// Lock-free, first in first out, for any number of producers and consumers.
    pub(crate) struct Queue<T>(ArrayQueue<T>);

    impl<T> Queue<T> {
        pub(crate) fn new(capacity: usize) -> Self {
            Self(ArrayQueue::new(capacity))
        }

        /// Appends, or gives the item back if the queue is full.
        pub(crate) fn push(&self, item: T) -> Result<(), T> {
            self.0.push(item)
        }

        pub(crate) fn pop(&self) -> Option<T> {
            self.0.pop()
        }

        pub(crate) fn len(&self) -> usize {
            self.0.len()
        }
    }
}

#[cfg(loom)]
mod imp {
    use std::collections::VecDeque;

    use crate::sync::{AtomicUsize, Mutex, Ordering, lock};

    /// Replaces crossbeam's queue, which loom cannot model. Its length is read without the lock and
    /// with no more ordering than crossbeam gives, so a missing fence in the parking protocol
    /// shows.
    pub(crate) struct Queue<T> {
        items: Mutex<VecDeque<T>>,
        len: AtomicUsize,
        capacity: usize,
    }

    impl<T> Queue<T> {
        pub(crate) fn new(capacity: usize) -> Self {
            let items = Mutex::new(VecDeque::new());
            Self {
                items,
                len: AtomicUsize::new(0),
                capacity,
            }
        }

        pub(crate) fn push(&self, item: T) -> Result<(), T> {
            let mut items = lock(&self.items);
            if items.len() == self.capacity {
                return Err(item);
            }
            items.push_back(item);
            self.len.fetch_add(1, Ordering::Release);
            Ok(())
        }

        pub(crate) fn pop(&self) -> Option<T> {
            if self.len() == 0 {
                return None;
            }
            let mut items = lock(&self.items);
            let item = items.pop_front()?;
            self.len.fetch_sub(1, Ordering::Relaxed);
            Some(item)
        }

        pub(crate) fn len(&self) -> usize {
            self.len.load(Ordering::Acquire)
        }
    }
}
