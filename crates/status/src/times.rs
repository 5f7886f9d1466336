//! Histograms of durations: counted without a lock, and read as quantiles.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Histogram on a page.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Histogram(pub(crate) [AtomicU64; BUCKETS]);

/// Histogram that was read from a page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Times([u64; BUCKETS]);

impl Histogram {
    pub(crate) fn count(&self, took: Duration) {
        self.0[bucket(took)].fetch_add(1, Relaxed);
    }
}

impl Times {
    pub(crate) fn from_buckets(buckets: [u64; BUCKETS]) -> Self {
        Self(buckets)
    }

    /// Counts one more.
    pub fn count(&mut self, took: Duration) {
        self.add_to(bucket(took), 1);
    }

    /// Returns the counts since an earlier look. Counters that have fallen are those of a process that began anew.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].saturating_sub(earlier.0[i])))
    }

    /// Adds the counts of another process, or of another time.
    pub fn add(&mut self, other: &Self) {
        for (bucket, more) in other.0.iter().enumerate() {
            self.add_to(bucket, *more);
        }
    }

    /// Number of durations.
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Duration that this share of them does not exceed, to about 6 %; `None` of nothing.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let rank = share * self.total() as f64;
        let mut below = 0.0;
        let mut quantile = None;
        for (bucket, &count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (from, to) = (begin(bucket) as f64, begin(bucket + 1) as f64);
            let part = ((rank - below) / count as f64).clamp(0.0, 1.0);
            quantile = Some(Duration::from_nanos((from + (to - from) * part) as u64));
            below += count as f64;
            if below >= rank {
                break;
            }
        }
        quantile
    }

    fn add_to(&mut self, bucket: usize, more: u64) {
        self.0[bucket] = self.0[bucket].saturating_add(more);
    }
}

impl Default for Times {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl fmt::Debug for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        let counted = counted.map(|(bucket, count)| (Duration::from_nanos(begin(bucket)), count));
        f.debug_map().entries(counted).finish()
    }
}

/// Bucket of a duration: eight for each doubling from [`SHORTEST`] on, one for all that are shorter; the last also has
/// those that are too long.
fn bucket(took: Duration) -> usize {
    let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    let Some(doublings) = nanos.max(1).ilog2().checked_sub(SHORTEST) else {
        return 0;
    };
    let eighth = (nanos >> (doublings + SHORTEST - 3)) & 7;
    (1 + 8 * doublings as usize + eighth as usize).min(BUCKETS - 1)
}

/// Nanoseconds at which a bucket begins.
fn begin(bucket: usize) -> u64 {
    match bucket.checked_sub(1) {
        None => 0,
        Some(bucket) => (8 + bucket as u64 % 8) << (bucket as u32 / 8 + SHORTEST - 3),
    }
}

/// The first doubling: from 2¹² ns on, 4 µs.
const SHORTEST: u32 = 12;
/// Up to 2³⁴ ns, 17 s: longer than a client waits.
const DOUBLINGS: usize = 22;
pub(crate) const BUCKETS: usize = 1 + 8 * DOUBLINGS;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn times(all: impl IntoIterator<Item = u64>) -> Times {
        let mut times = Times::default();
        for micros in all {
            times.count(Duration::from_micros(micros));
        }
        times
    }

    #[test]
    fn quantiles_are_near_those_of_the_values() {
        let thousand = times(1..=1000);
        assert_eq!(thousand.total(), 1000);
        for share in [0.1, 0.5, 0.9, 0.99] {
            let found = thousand.quantile(share).unwrap().as_secs_f64() * 1e3;
            assert!((found / share - 1.0).abs() < 0.03, "{share}: {found}");
        }
        assert_eq!(times([]).quantile(0.5), None);
        let one = times([100]).quantile(0.5).unwrap().as_secs_f64();
        assert!((one / 100e-6 - 1.0).abs() < 0.07, "{one}");
    }

    #[test]
    fn what_came_since_is_what_was_counted_since() {
        let before = times([5, 70, 900]);
        let mut after = before;
        after.add(&times([5, 1_000_000]));
        assert_eq!(after.since(&before), times([5, 1_000_000]));
        assert_eq!(before.since(&after), times([]), "it began anew");
    }

    #[test]
    fn no_count_is_too_large() {
        let mut full = Times::from_buckets([u64::MAX; BUCKETS]);
        full.add(&times([1]));
        assert_eq!(full.total(), u64::MAX);
        assert!(full.quantile(0.5).is_some() && full.quantile(1.0).is_some());
    }

    proptest! {
        #[test]
        fn each_time_is_within_its_bucket(nanos: u64) {
            let bucket = bucket(Duration::from_nanos(nanos));
            prop_assert!(begin(bucket) <= nanos);
            prop_assert!(nanos < begin(bucket + 1) || bucket == BUCKETS - 1);
        }

        #[test]
        fn buckets_are_an_eighth_wide_at_most(bucket in 9..BUCKETS) {
            let (from, to) = (begin(bucket), begin(bucket + 1));
            prop_assert!(from < to && to - from <= from / 8);
        }
    }
}
