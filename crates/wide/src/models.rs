//! Loom models: every interleaving of the hand-over that a scheduler could produce.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p widelane-wide --lib --release`

use std::time::Duration;

use loom::sync::Arc;
use loom::thread;

use crate::job::{Job, lend};
use crate::line::Line;

/// lend ∥ run: the value arrives whole, no wake-up is lost, and no thread touches a frame that is
/// gone.
#[test]
fn a_value_comes_back() {
    loom::model(|| {
        let mut runner = None;
        let seven = Box::new(7);
        let value = lend(
            || Box::new(*seven + 1),
            Duration::ZERO,
            |job| runner = Some(thread::spawn(move || job.run())),
        );
        assert_eq!(*value, 8);
        runner.unwrap().join().unwrap();
    });
}

/// push ∥ look and sleep, then close ∥ sleep: the one core runs the job, and ends.
#[test]
fn a_sleeping_core_runs_the_job_and_ends() {
    loom::model(|| {
        let line = Arc::new(Line::<Job>::new());
        let core = spawn_core(&line);
        let mut borrowed = 1;
        let value = lend(
            || {
                borrowed += 1;
                borrowed
            },
            Duration::ZERO,
            |job| line.push(job),
        );
        assert_eq!((value, borrowed), (2, 2));
        line.close();
        assert_eq!(core.join().unwrap(), 1);
    });
}

/// Two jobs, two cores that each end after one: no core sleeps over a job.
#[test]
fn no_core_sleeps_over_a_job() {
    loom::model(|| {
        let line = Arc::new(Line::new());
        let one = || {
            let line = Arc::clone(&line);
            thread::spawn(move || line.take(Duration::ZERO))
        };
        let cores = [one(), one()];
        line.push(1);
        line.push(2);
        let [a, b] = cores.map(|core| core.join().unwrap());
        assert_eq!(a.unwrap() + b.unwrap(), 3);
    });
}

/// Two callers, one core: each gets the value of its own job.
#[test]
fn two_callers_share_a_core() {
    loom::model(|| {
        let line = Arc::new(Line::<Job>::new());
        let core = spawn_core(&line);
        let other = {
            let line = Arc::clone(&line);
            thread::spawn(move || lend(|| 'b', Duration::ZERO, |job| line.push(job)))
        };
        assert_eq!(lend(|| 'a', Duration::ZERO, |job| line.push(job)), 'a');
        assert_eq!(other.join().unwrap(), 'b');
        line.close();
        assert_eq!(core.join().unwrap(), 2);
    });
}

fn spawn_core(line: &Arc<Line<Job>>) -> thread::JoinHandle<usize> {
    let line = Arc::clone(line);
    thread::spawn(move || {
        let mut ran = 0;
        while let Some(job) = line.take(Duration::ZERO) {
            job.run();
            ran += 1;
        }
        ran
    })
}
