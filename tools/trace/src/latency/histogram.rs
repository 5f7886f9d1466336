//! Counts of times in buckets of about 6 %.
//!
//! The bucket of a time of `ns` nanoseconds, in C:
//!
//! ```c
//! if (ns < 16) {
//!     bucket = ns;
//! } else if (ns >> 36) {
//!     bucket = 528;
//! } else {
//!     e = 0, t = ns;
//!     if (t >> 32) { e += 32; t >>= 32; }
//!     if (t >> 16) { e += 16; t >>= 16; }
//!     if (t >> 8) { e += 8; t >>= 8; }
//!     if (t >> 4) { e += 4; t >>= 4; }
//!     if (t >> 2) { e += 2; t >>= 2; }
//!     e += t >> 1;
//!     bucket = ((e - 3) << 4) | ((ns >> (e - 4)) & 15);
//! }
//! ```
//!
//! `e` is the number of the highest bit that is set: 4 for 16 to 31. So each power of two has 16
//! buckets, and the last bucket is for everything from 2^36 ns, 68.7 s.

/// The number of buckets.
pub const BUCKETS: usize = 529;

/// The bucket of a time in nanoseconds.
pub fn bucket_of(ns: u64) -> usize {
    if ns < 16 {
        return ns as usize;
    }
    if ns >> 36 != 0 {
        return BUCKETS - 1;
    }
    let e = 63 - ns.leading_zeros();
    (((e as usize) - 3) << 4) | ((ns >> (e - 4)) & 15) as usize
}

/// The shortest time of a bucket, in nanoseconds. That of [`BUCKETS`] is the longest time there is.
pub fn beginning_of(bucket: usize) -> u64 {
    match bucket {
        0..16 => bucket as u64,
        16..BUCKETS => (16 + (bucket as u64 & 15)) << ((bucket >> 4) - 1),
        _ => u64::MAX,
    }
}

/// Times, counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            count: 0,
            total: 0,
            max: 0,
        }
    }
}

impl Histogram {
    /// Adds `n` times of a bucket, whose sum is `total` nanoseconds. The longest counts as the end of the
    /// bucket.
    pub fn add(&mut self, bucket: usize, n: u64, total: u64) {
        let bucket = bucket.min(BUCKETS - 1);
        let max = match bucket == BUCKETS - 1 {
            // The last bucket has no end.
            true => beginning_of(bucket),
            false => beginning_of(bucket + 1) - 1,
        };
        if let Some(count) = self.counts.get_mut(bucket)
            && n > 0
        {
            *count = count.saturating_add(n);
            self.count = self.count.saturating_add(n);
            self.total = self.total.saturating_add(total);
            self.max = self.max.max(max);
        }
    }

    /// Number of times in the histogram.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of the times in nanoseconds.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The longest, exact to a bucket.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Mean of the times; 0 if there are none.
    pub fn mean(&self) -> u64 {
        self.total.checked_div(self.count).unwrap_or(0)
    }

    /// The time that a share of all times does not exceed: 0.5 for the median. It is exact to a bucket;
    /// 0 if there are none.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut sum = 0u64;
        for (bucket, count) in self.counts.iter().enumerate() {
            sum = sum.saturating_add(*count);
            if sum >= rank {
                let end = beginning_of(bucket + 1).saturating_sub(1);
                return end.min(self.max);
            }
        }
        0
    }

    /// Number of times shorter than this power of two of nanoseconds, of 4 to 36.
    pub fn below_power(&self, power: u32) -> u64 {
        let end = bucket_of(1 << power.clamp(4, 36));
        let below = self.counts.get(..end).unwrap_or_default();
        below.iter().fold(0, |sum: u64, n| sum.saturating_add(*n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_follow_each_other() {
        assert_eq!((bucket_of(0), bucket_of(15), bucket_of(16)), (0, 15, 16));
        assert_eq!((bucket_of(31), bucket_of(32), bucket_of(33)), (31, 32, 32));
        assert_eq!(bucket_of((1 << 36) - 1), BUCKETS - 2);
        assert_eq!((bucket_of(1 << 36), bucket_of(u64::MAX)), (BUCKETS - 1, BUCKETS - 1));
        for bucket in 0..BUCKETS {
            let (first, next) = (beginning_of(bucket), beginning_of(bucket + 1));
            assert!(first < next);
            assert_eq!((bucket_of(first), bucket_of(next - 1)), (bucket, bucket));
        }
    }

    /// The formula for C, step by step.
    fn in_c(ns: u64) -> u64 {
        if ns < 16 {
            return ns;
        }
        if ns >> 36 != 0 {
            return 528;
        }
        let (mut e, mut t) = (0, ns);
        for shift in [32, 16, 8, 4, 2] {
            if t >> shift != 0 {
                e += shift;
                t >>= shift;
            }
        }
        e += t >> 1;
        ((e - 3) << 4) | ((ns >> (e - 4)) & 15)
    }

    #[test]
    fn the_formula_for_c_gives_the_same() {
        for bit in 0..64 {
            for near in 0..40 {
                for ns in [(1 << bit) + near, (1u64 << bit).saturating_sub(near)] {
                    assert_eq!(in_c(ns), bucket_of(ns) as u64, "{ns}");
                }
            }
        }
    }

    #[test]
    fn nothing_and_too_much_are_counted() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.quantile(0.5), histogram.mean()), (0, 0));
        histogram.add(3, 0, 100);
        assert_eq!(histogram, Histogram::default());
        histogram.add(usize::MAX, u64::MAX, u64::MAX);
        histogram.add(3, u64::MAX, 1);
        assert_eq!((histogram.count(), histogram.max()), (u64::MAX, 1 << 36));
        assert_eq!((histogram.total(), histogram.mean()), (u64::MAX, 1));
    }

    proptest! {
        #[test]
        fn quantiles_are_exact_to_a_bucket(mut times in proptest::collection::vec(0..1u64 << 36, 1..200)) {
            let mut histogram = Histogram::default();
            times.iter().for_each(|time| histogram.add(bucket_of(*time), 1, *time));
            times.sort_unstable();
            prop_assert_eq!(histogram.count(), times.len() as u64);
            prop_assert_eq!(histogram.total(), times.iter().sum::<u64>());
            prop_assert_eq!(histogram.quantile(1.0), histogram.max());
            for (share, index) in [(0.5, times.len().div_ceil(2) - 1), (1.0, times.len() - 1)] {
                let (exact, found) = (times[index], histogram.quantile(share));
                prop_assert!(found >= exact && found - exact <= exact / 16, "{} {}", exact, found);
            }
            for power in 4..=36 {
                let below = times.iter().filter(|time| **time < 1 << power).count();
                prop_assert_eq!(histogram.below_power(power), below as u64);
            }
        }
    }
}
