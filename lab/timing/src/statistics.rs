//! Welch's t over all times, over the times below percentiles, and over squared deviations.

use crate::subjects::Class;

/// Collects times of two classes.
#[derive(Clone, Debug, Default)]
pub struct Test {
    /// Times until there are enough to choose percentiles from.
    calibration: Vec<(Class, f64)>,
    /// Times from here on are left out, one limit for each cropped test.
    limits: Vec<f64>,
    all: Welch,
    /// Times below each limit.
    cropped: Vec<Welch>,
    /// Squared deviations of times below the largest limit from the mean of those of the class.
    second: Welch,
}

/// Finding of the times so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Measurements of both classes.
    pub measurements: u64,
    /// The largest |t| of all tests.
    pub t: f64,
    /// Name of the test that has the largest t.
    pub test: String,
    /// Mean time of each class in nanoseconds, of all measurements.
    pub means: [f64; 2],
}

/// Verdict on a value of t.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// |t| is below 4.5.
    NothingSeen,
    /// A value from 4.5 on. One test of equal classes reaches it once in 100,000 times, the largest of a
    /// hundred tests and of disturbed machines more often: measure longer, and see whether it grows.
    Suspicious,
    /// A value from 10 on: the time depends on the class.
    Depends,
}

impl Finding {
    /// Verdict on `t`.
    pub fn verdict(&self) -> Verdict {
        match self.t {
            t if t < SUSPICIOUS => Verdict::NothingSeen,
            t if t < DEPENDS => Verdict::Suspicious,
            _ => Verdict::Depends,
        }
    }
}

impl Test {
    /// Statistics without any time.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a time in nanoseconds.
    pub fn add(&mut self, class: Class, time: f64) {
        if !self.limits.is_empty() {
            self.count(class, time);
            return;
        }
        self.calibration.push((class, time));
        if self.calibration.len() == CALIBRATION {
            self.limits = limits(self.calibration.iter().map(|(_, time)| *time).collect());
            self.cropped = vec![Welch::default(); self.limits.len()];
            // These have chosen the limits: counting them as well would favour the test.
            self.calibration.clear();
        }
    }

    fn count(&mut self, class: Class, time: f64) {
        self.all.add(class, time);
        for (limit, test) in self.limits.iter().zip(&mut self.cropped) {
            if time < *limit {
                test.add(class, time);
            }
        }
        let (Some(limit), Some(below)) = (self.limits.last(), self.cropped.last()) else {
            return;
        };
        // Deviation from the mean of the values below the same limit: each pause moves the mean of all times, in one
        // class more than in the other. That mean must have settled first.
        let seen = below.of(class);
        if seen.count > SETTLED && time < *limit {
            let deviation = time - seen.mean;
            self.second.add(class, deviation * deviation);
        }
    }

    /// The largest |t| so far; 0 while there are too few times.
    pub fn finding(&self) -> Finding {
        let names = |index: usize| format!("{:.1} % of times", 100.0 * percentile(index));
        let cropped = self.cropped.iter().enumerate();
        let cropped = cropped.map(|(index, test)| (test, names(index)));
        let all = [
            (&self.all, "all times".to_owned()),
            (&self.second, "squared deviations".to_owned()),
        ];
        let mut largest = (0.0, "too few times".to_owned());
        for (test, name) in all.into_iter().chain(cropped) {
            if let Some(t) = test.t().map(f64::abs)
                && t > largest.0
            {
                largest = (t, name);
            }
        }
        Finding {
            measurements: self.all.a.count + self.all.b.count,
            t: largest.0,
            test: largest.1,
            means: [self.all.a.mean, self.all.b.mean],
        }
    }
}

/// Mean and variance of each class (B. P. Welford, Technometrics 4, 1962).
#[derive(Clone, Copy, Debug, Default)]
struct Welch {
    a: Moments,
    b: Moments,
}

#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    count: u64,
    mean: f64,
    /// Sum of squared deviations.
    squares: f64,
}

impl Welch {
    fn add(&mut self, class: Class, value: f64) {
        let moments = match class {
            Class::A => &mut self.a,
            Class::B => &mut self.b,
        };
        moments.count += 1;
        let before = value - moments.mean;
        moments.mean += before / moments.count as f64;
        moments.squares += before * (value - moments.mean);
    }

    fn of(&self, class: Class) -> &Moments {
        match class {
            Class::A => &self.a,
            Class::B => &self.b,
        }
    }

    /// B. L. Welch, Biometrika 34, 1947. `None` for too few values, or values that are all alike.
    fn t(&self) -> Option<f64> {
        let spread = |moments: &Moments| {
            let count = moments.count as f64;
            moments.squares / (count - 1.0) / count
        };
        if self.a.count < LEAST || self.b.count < LEAST {
            return None;
        }
        let spread = spread(&self.a) + spread(&self.b);
        (spread > 0.0).then(|| (self.a.mean - self.b.mean) / spread.sqrt())
    }
}

/// The share of times that a cropped test keeps: dense near all of them, as slow times are noise.
fn percentile(index: usize) -> f64 {
    1.0 - 0.5_f64.powf(10.0 * (index + 1) as f64 / CROPS as f64)
}

/// The times at the percentiles, increasing.
fn limits(mut times: Vec<f64>) -> Vec<f64> {
    times.sort_by(f64::total_cmp);
    let at = |index| {
        let rank = percentile(index) * times.len() as f64;
        times[(rank as usize).min(times.len() - 1)]
    };
    (0..CROPS).map(at).collect()
}

/// Threshold for leakage of hardware: G. Goodwill and others, "A testing methodology for side-channel resistance
/// validation", NIST workshop 2011.
const SUSPICIOUS: f64 = 4.5;
const DEPENDS: f64 = 10.0;
/// Times that choose the percentiles.
const CALIBRATION: usize = 500;
const CROPS: usize = 100;
/// Times of a class before its mean is used.
const SETTLED: u64 = 1000;
/// Values of a class before a t counts.
const LEAST: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn t_is_that_of_welch() {
        let mut test = Welch::default();
        // Means 20.5 and 22, variances 1.25 * 200/199 and 10 * 200/199.
        for _ in 0..50 {
            for value in [19.0, 20.0, 21.0, 22.0] {
                test.add(Class::A, value);
            }
            for value in [18.0, 20.0, 24.0, 26.0] {
                test.add(Class::B, value);
            }
        }
        let variance = |mean_square: f64| mean_square * 200.0 / 199.0;
        let expected = -1.5 / ((variance(1.25) + variance(10.0)) / 200.0).sqrt();
        let t = test.t().expect("enough values");
        assert!((t - expected).abs() < 1e-9, "{t} {expected}");
        assert_eq!(Welch::default().t(), None);
    }

    #[test]
    fn percentiles_grow_towards_all_times() {
        let times: Vec<f64> = (0..1000).rev().map(f64::from).collect();
        let limits = limits(times);
        assert!(limits.is_sorted() && limits.len() == CROPS);
        assert_eq!((limits[9], limits[99]), (500.0, 999.0));
    }

    /// Times with the noise of a machine: a spread, and one in fifty much longer.
    fn noisy(random: &mut Random, time: f64) -> f64 {
        let spread = (0..12).map(|_| (random.number() >> 40) as f64 / f64::from(1 << 24));
        let time = time + 50.0 * (spread.sum::<f64>() - 6.0);
        match random.number() % 50 {
            0 => time + (random.number() % 100_000) as f64,
            _ => time,
        }
    }

    fn found(seed: u64, time: impl Fn(Class, &mut Random) -> f64) -> Finding {
        let mut random = Random::from_seed(seed);
        let mut test = Test::new();
        for _ in 0..100_000 {
            let class = random.class();
            let time = time(class, &mut random);
            test.add(class, time);
        }
        test.finding()
    }

    #[test]
    fn equal_classes_show_nothing() {
        for seed in 1..4 {
            let finding = found(seed, |_, random| noisy(random, 1000.0));
            assert_eq!(finding.verdict(), Verdict::NothingSeen, "{finding:?}");
            assert_eq!(finding.measurements, 99_500);
        }
    }

    /// Pauses that are too rare to be among the times that choose the limits, as on a machine with
    /// other work: the mean times of both classes differ by them.
    #[test]
    fn long_pauses_do_not_make_equal_classes_differ() {
        for seed in 1..6 {
            let finding = found(seed, |_, random| match random.number() % 3000 {
                0 => 4e6 + (random.number() % 20_000_000) as f64,
                _ => noisy(random, 1000.0),
            });
            assert_eq!(finding.verdict(), Verdict::NothingSeen, "{finding:?}");
        }
    }

    #[test]
    fn a_comparison_that_stops_at_the_first_difference_is_found() {
        // The steps are the time: two nanoseconds each.
        let finding = found(1, |class, random| {
            let steps = crate::subjects::steps_until_difference(class);
            noisy(random, 1000.0 + 2.0 * f64::from(steps))
        });
        assert_eq!(finding.verdict(), Verdict::Depends, "{finding:?}");
        assert!(finding.means[1] > finding.means[0]);
    }

    #[test]
    fn a_tiny_difference_under_much_noise_is_found_by_cropping() {
        let finding = found(2, |class, random| {
            let more = f64::from(u8::from(class == Class::B)) * 6.0;
            noisy(random, 1000.0 + more)
        });
        assert_eq!(finding.verdict(), Verdict::Depends, "{finding:?}");
        assert!(finding.test.contains('%'), "{finding:?}");
    }

    #[test]
    fn an_equal_mean_with_another_spread_is_found() {
        let finding = found(3, |class, random| {
            let wide = if class == Class::B { 60.0 } else { 0.0 };
            let sign = if random.number() >> 63 == 0 { 1.0 } else { -1.0 };
            noisy(random, 1000.0 + sign * wide)
        });
        assert_eq!(finding.verdict(), Verdict::Depends, "{finding:?}");
    }
}
