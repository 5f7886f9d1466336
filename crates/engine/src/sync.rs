//! The primitives that loom models, under one name for both builds.
//!
//! Counters use `std` atomics in both builds: they order nothing, and a model of them would only
//! multiply the interleavings.

pub(crate) use imp::*;

#[cfg(not(loom))]
mod imp {
    use std::cell;
    use std::time::{Duration, Instant};

    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence};
    pub(crate) use std::sync::{Arc, Mutex, MutexGuard};
    pub(crate) use std::thread;

    /// [`std::cell::UnsafeCell`] with loom's interface.
    pub(crate) struct UnsafeCell<T>(cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }

    /// Place where a thread sleeps. Keeps a wake-up that comes before the sleep; ignores spurious ones.
    pub(crate) struct Parker {
        woken: AtomicBool,
        thread: thread::Thread,
    }

    impl Parker {
        /// A new parker for the calling thread; only that thread may call [`park`](Self::park).
        pub(crate) fn new() -> Self {
            Self {
                woken: AtomicBool::new(false),
                thread: thread::current(),
            }
        }

        /// The calling thread's own parker. Late wake-ups for earlier sleeps may reach it.
        pub(crate) fn current() -> std::sync::Arc<Self> {
            thread_local! {
                static PARKER: std::sync::Arc<Parker> = std::sync::Arc::new(Parker::new());
            }
            // A destructor of another thread-local may call when this one is gone.
            let of_thread = PARKER.try_with(std::sync::Arc::clone);
            of_thread.unwrap_or_else(|_| std::sync::Arc::new(Self::new()))
        }

        pub(crate) fn park(&self) {
            while !self.woken.swap(false, Ordering::Acquire) {
                thread::park();
            }
        }

        /// Parks for at most `time`; false if no wake-up came.
        pub(crate) fn park_timeout(&self, time: Duration) -> bool {
            let end = Instant::now().checked_add(time);
            while !self.woken.swap(false, Ordering::Acquire) {
                let left = match end {
                    Some(end) => end.saturating_duration_since(Instant::now()),
                    None => time,
                };
                if left.is_zero() {
                    return false;
                }
                thread::park_timeout(left);
            }
            true
        }

        pub(crate) fn unpark(&self) {
            self.woken.store(true, Ordering::Release);
            self.thread.unpark();
        }
    }

    pub(crate) fn spin_hint() {
        std::hint::spin_loop();
    }
}

#[cfg(loom)]
mod imp {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence};
    pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};
    pub(crate) use loom::thread;

    /// Loom lets `unpark` disturb a thread that is blocked on a mutex, so this one sleeps on a
    /// condition variable.
    pub(crate) struct Parker {
        woken: Mutex<bool>,
        changed: loom::sync::Condvar,
    }

    impl Parker {
        pub(crate) fn new() -> Self {
            Self {
                woken: Mutex::new(false),
                changed: loom::sync::Condvar::new(),
            }
        }

        pub(crate) fn current() -> std::sync::Arc<Self> {
            std::sync::Arc::new(Self::new())
        }

        pub(crate) fn park(&self) {
            let mut woken = self.woken.lock().unwrap();
            while !*woken {
                woken = self.changed.wait(woken).unwrap();
            }
            *woken = false;
        }

        /// The time is over at once: a model may use any moment, and a wake-up may have come first.
        pub(crate) fn park_timeout(&self, _time: std::time::Duration) -> bool {
            std::mem::take(&mut *self.woken.lock().unwrap())
        }

        pub(crate) fn unpark(&self) {
            *self.woken.lock().unwrap() = true;
            self.changed.notify_one();
        }
    }

    pub(crate) fn spin_hint() {
        loom::thread::yield_now();
    }
}

impl std::task::Wake for Parker {
    fn wake(self: std::sync::Arc<Self>) {
        self.unpark();
    }

    fn wake_by_ref(self: &std::sync::Arc<Self>) {
        self.unpark();
    }
}

/// Runs code of the caller and stops a panic in it. In a model every panic is a finding.
pub(crate) fn contain(foreign: impl FnOnce()) {
    #[cfg(not(loom))]
    drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(foreign)));
    #[cfg(loom)]
    foreign();
}

/// Locks a mutex even if a holder panicked: each holder in this crate leaves the data whole before
/// it calls code of others.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
