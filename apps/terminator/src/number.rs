//! Numbers that threads share, changed by one atomic step.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that threads share. The model checker brings its own.
pub(crate) trait Number {
    fn now(&self) -> u64;
    fn exchange(&self, current: u64, new: u64) -> Result<u64, u64>;
}

impl Number for AtomicU64 {
    fn now(&self) -> u64 {
        self.load(Relaxed)
    }

    fn exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.compare_exchange_weak(current, new, Relaxed, Relaxed)
    }
}

/// Replaces a number by what `next` makes of it, if that is something, and returns that.
pub(crate) fn update(number: &impl Number, mut next: impl FnMut(u64) -> Option<u64>) -> Option<u64> {
    let mut current = number.now();
    while let Some(new) = next(current) {
        match number.exchange(current, new) {
            Ok(_) => return Some(new),
            Err(other) => current = other,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::Number;

    impl Number for AtomicU64 {
        fn now(&self) -> u64 {
            self.load(Relaxed)
        }

        fn exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
            self.compare_exchange(current, new, Relaxed, Relaxed)
        }
    }
}
