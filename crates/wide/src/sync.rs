//! The primitives that loom models, under one name for both builds.

pub(crate) use imp::*;

#[cfg(not(loom))]
mod imp {
    use std::time::{Duration, Instant};

    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
    pub(crate) use std::sync::{Arc, Mutex, MutexGuard};
    use std::thread;

    /// A thread's place to sleep. A wake-up that comes first is kept; spurious ones are swallowed.
    pub(crate) struct Parker {
        woken: AtomicBool,
        thread: thread::Thread,
    }

    impl Parker {
        /// The calling thread's own parker; only that thread may call [`park`](Self::park). Late
        /// wake-ups for earlier sleeps may reach it.
        pub(crate) fn current() -> Arc<Self> {
            thread_local! {
                static PARKER: Arc<Parker> = Parker::new();
            }
            // A destructor of another thread-local may call when this one is gone.
            PARKER.try_with(Arc::clone).unwrap_or_else(|_| Self::new())
        }

        fn new() -> Arc<Self> {
            Arc::new(Self {
                woken: AtomicBool::new(false),
                thread: thread::current(),
            })
        }

        pub(crate) fn park(&self) {
            while !self.woken.swap(false, Ordering::Acquire) {
                thread::park();
            }
        }

        pub(crate) fn unpark(&self) {
            self.woken.store(true, Ordering::Release);
            self.thread.unpark();
        }
    }

    /// Looks until it holds or that much time has passed; whether it held.
    pub(crate) fn spin(time: Duration, holds: impl Fn() -> bool) -> bool {
        if holds() {
            return true;
        }
        if time.is_zero() {
            return false;
        }
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS_A_TIME {
                std::hint::spin_loop();
                if holds() {
                    return true;
                }
            }
            if start.elapsed() >= time {
                return false;
            }
        }
    }

    /// A look at a clock takes as long as some of these.
    const LOOKS_A_TIME: usize = 16;
}

#[cfg(loom)]
mod imp {
    use std::time::Duration;

    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
    pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};

    /// Loom lets `unpark` disturb a thread that is blocked on a mutex, so this one sleeps on a
    /// condition variable.
    pub(crate) struct Parker {
        woken: Mutex<bool>,
        changed: loom::sync::Condvar,
    }

    impl Parker {
        pub(crate) fn current() -> Arc<Self> {
            Arc::new(Self {
                woken: Mutex::new(false),
                changed: loom::sync::Condvar::new(),
            })
        }

        pub(crate) fn park(&self) {
            let mut woken = self.woken.lock().unwrap();
            while !*woken {
                woken = self.changed.wait(woken).unwrap();
            }
            *woken = false;
        }

        pub(crate) fn unpark(&self) {
            *self.woken.lock().unwrap() = true;
            self.changed.notify_one();
        }
    }

    /// One look: what spinning could see later, a model sees in another interleaving.
    pub(crate) fn spin(_time: Duration, holds: impl Fn() -> bool) -> bool {
        holds()
    }
}

/// Locks a mutex even if a holder panicked: each holder in this crate leaves the data whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
