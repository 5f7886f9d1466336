//! Converts the monotonic clock of the events to the time of day.

use std::time::{SystemTime, UNIX_EPOCH};

/// Distance between the two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Nanoseconds since 1970 when the monotonic clock began.
    origin: u64,
}

impl Clock {
    /// Distance on this machine, now.
    pub fn now() -> Self {
        let monotonic = Self::monotonic();
        let real = SystemTime::now().duration_since(UNIX_EPOCH);
        let real = real.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
        Self::at(monotonic, real)
    }

    /// The time of the events, in nanoseconds.
    pub fn monotonic() -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
    }

    /// Makes a clock from one moment on both clocks: nanoseconds of the monotonic clock, and since 1970.
    pub fn at(monotonic: u64, real: u64) -> Self {
        Self {
            origin: real.saturating_sub(monotonic),
        }
    }

    /// Nanoseconds since 1970.
    pub fn real(self, monotonic: u64) -> u64 {
        self.origin.saturating_add(monotonic)
    }

    /// Seconds since 1970, to the microsecond.
    pub fn seconds(self, monotonic: u64) -> f64 {
        (self.real(monotonic) / 1_000) as f64 / 1e6
    }
}
