//! A statistical test of the laboratory: does an operation's time depend on its secrets?
//!
//! Two classes of secrets or inputs are measured in random order. If their times have different
//! means, Welch's t grows with the square root of the number of measurements; if not, it stays
//! small. The method is that of O. Reparaz, J. Balasch, I. Verbauwhede, "Dude, is my code constant
//! time?", DATE 2017: besides all times, the test looks at times below many percentiles, since
//! interrupts make the slow ones noisy, and at squared deviations, which show a different spread.
//!
//! What it is not: a proof. The kernels are proved constant in time elsewhere, from their machine
//! code; this looks at whole operations, with the glue around the kernels, on a real machine. Nor is
//! it a check that passes or fails in CI: times belong to one machine at one moment.
//!
//! Start with [`measure`]; the [`subjects`] say what is measured, [`Test`] computes.

#![forbid(unsafe_code)]

mod random;
mod statistics;
mod subjects;

pub use random::Random;
pub use statistics::{Finding, Test, Verdict};
pub use subjects::{Class, Subject, Unavailable, subjects};

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Measures `subject` for `span`, and calls `report` each time the number of measurements has
/// doubled, and at the end.
pub fn measure(
    subject: &mut dyn Subject,
    span: Duration,
    random: &mut Random,
    mut report: impl FnMut(&Finding),
) -> Finding {
    let start = Instant::now();
    let mut test = Test::new();
    let mut due = FIRST_REPORT;
    // The first run of a batch takes longer.
    batch(subject, random);
    while start.elapsed() < span {
        for (class, time) in batch(subject, random) {
            test.add(class, time);
        }
        let finding = test.finding();
        if finding.measurements >= due {
            report(&finding);
            due = finding.measurements * 2;
        }
    }
    let finding = test.finding();
    report(&finding);
    finding
}

/// Times of one batch. Inputs of both classes are made before, so that making them does not leave
/// the caches in a state that depends on the class.
fn batch(subject: &mut dyn Subject, random: &mut Random) -> Vec<(Class, f64)> {
    let classes: Vec<_> = (0..BATCH).map(|_| random.class()).collect();
    subject.prepare(&classes, random);
    let time = |(index, class)| {
        let before = Instant::now();
        black_box(black_box(&mut *subject).run(black_box(index)));
        (class, before.elapsed().as_nanos() as f64)
    };
    classes.into_iter().enumerate().map(time).collect()
}

/// Measurements for which inputs are made at once.
const BATCH: usize = 64;
const FIRST_REPORT: u64 = 1000;
