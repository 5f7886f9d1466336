//! The measurement itself: few trials, by turns.

use std::error::Error;
use std::time::Duration;

use widelane_affinity::thread_time;
use widelane_batching::Costs;
use widelane_crypto::{Operation, Request};

use crate::background;

/// An operation to be measured, whatever its requests are: so the measurement is compiled once, and
/// not for each operation.
pub(super) trait Subject {
    fn name(&self) -> &'static str;

    fn lanes(&self) -> usize;

    fn methods(&self) -> &'static [&'static str];

    /// The time of a pass with so many new specimens, in nanoseconds of this thread's CPU time;
    /// `None` if an answer fails.
    fn pass(&self, method: usize, specimens: usize) -> Option<u64>;

    /// Measures one specimen's answer by itself.
    fn alone(&self) -> Option<u64>;
}

/// An operation, measured by its specimens. New ones each time: the same request may be cheaper the
/// second time.
pub(super) struct Specimens<'a, R: Request>(pub(super) &'a dyn Operation<Request = R>);

impl<R: Request> Subject for Specimens<'_, R> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn lanes(&self) -> usize {
        self.0.lanes()
    }

    fn methods(&self) -> &'static [&'static str] {
        self.0.methods()
    }

    fn pass(&self, method: usize, specimens: usize) -> Option<u64> {
        let specimens: Vec<R> = (0..specimens).map(|_| self.0.specimen()).collect();
        time::<R>(|| self.0.pass_by(method, &specimens))
    }

    fn alone(&self) -> Option<u64> {
        let specimen = self.0.specimen();
        time::<R>(|| vec![self.0.alone(&specimen)])
    }
}

/// Measures what answers to specimens cost, in nanoseconds of this thread's CPU time.
///
/// `None` if an answer fails: a failure may be quick, and says nothing about its way. And if the
/// process ends.
///
/// A single pass, a single job and a full pass take turns, so a change of the clock affects all
/// three. The median counts, not the minimum: some signatures (ML-DSA) take a random number of
/// attempts, and the luckiest trial says little about the next one.
pub(super) fn costs(subject: &dyn Subject, method: usize) -> Option<Costs> {
    let lanes = subject.lanes();
    let mut trials = [const { Vec::new() }; 3];
    let start = thread_time();
    // The first round is not counted: it derives what operations keep after their first use.
    for round in 0..=MOST_ROUNDS {
        if background::is_ending() {
            return None;
        }
        let taken = [subject.pass(method, 1)?, subject.alone()?, subject.pass(method, lanes)?];
        if round == 0 {
            continue;
        }
        for (trials, taken) in trials.iter_mut().zip(taken) {
            trials.push(taken);
        }
        let [first, alone, _] = &trials;
        if is_enough(first, alone, thread_time().saturating_sub(start)) {
            break;
        }
    }
    let [first, alone, full] = trials.map(median);
    let further = full.saturating_sub(first) / (lanes.max(2) as u64 - 1);
    Some(Costs {
        lanes,
        first,
        further: further.min(first),
        alone,
    })
}

/// Returns whether these trials of a pass with one job, and of one job alone, which took `spent` together, say
/// which of the two is faster.
///
/// ML-DSA takes a random number of attempts, and five trials are too few to tell the faster of the two.
fn is_enough(first: &[u64], alone: &[u64], spent: Duration) -> bool {
    let [first_quartiles, alone_quartiles] = [first, alone].map(quartiles);
    let overlap = first_quartiles.0 <= alone_quartiles.1 && alone_quartiles.0 <= first_quartiles.1;
    let span = if overlap { LONG_SPAN } else { SPAN };
    first.len() >= LEAST_ROUNDS && spent >= span
}

/// The medians of one specimen's answer by itself, and of what `theirs` does, by turns: the other library's
/// answer, and ours.
///
/// `None` if one fails, and if the process ends.
pub(super) fn beside(subject: &dyn Subject, theirs: &mut dyn FnMut() -> bool) -> Option<[u64; 2]> {
    let mut trials = [const { Vec::new() }; 2];
    let start = thread_time();
    for round in 0..=MOST_ROUNDS {
        if background::is_ending() {
            return None;
        }
        let before = thread_time();
        let succeeded = theirs();
        let taken = thread_time().saturating_sub(before).as_nanos();
        let taken = u64::try_from(taken).unwrap_or(u64::MAX).max(1);
        let taken = [succeeded.then_some(taken)?, subject.alone()?];
        // The first round is not counted, as in `costs`.
        if round == 0 {
            continue;
        }
        for (trials, taken) in trials.iter_mut().zip(taken) {
            trials.push(taken);
        }
        if round >= LEAST_COMPARED && thread_time().saturating_sub(start) >= SPAN {
            break;
        }
    }
    Some(trials.map(median))
}

/// The places of an operation's methods, the fastest first, by the medians of full passes that take
/// turns.
///
/// `None` if an answer fails, and if the process ends.
pub(super) fn methods(subject: &dyn Subject) -> Option<Vec<usize>> {
    let count = subject.methods().len();
    let mut order: Vec<usize> = (0..count).collect();
    if count <= 1 {
        return Some(order);
    }
    let mut trials = vec![Vec::new(); count];
    // The first round is not counted, as in `costs`.
    for round in 0..=METHOD_ROUNDS {
        if background::is_ending() {
            return None;
        }
        for (method, trials) in trials.iter_mut().enumerate() {
            let taken = subject.pass(method, subject.lanes())?;
            if round > 0 {
                trials.push(taken);
            }
        }
    }
    let medians: Vec<u64> = trials.into_iter().map(median).collect();
    order.sort_by_key(|&method| medians[method]);
    Some(order)
}

/// Measures how long the answers take; `None` if one of them fails.
fn time<R: Request>(answer: impl FnOnce() -> Vec<R::Output>) -> Option<u64> {
    let before = thread_time();
    let outputs = std::hint::black_box(answer());
    let taken = thread_time().saturating_sub(before).as_nanos();
    if let Some(error) = outputs.iter().find_map(R::failure) {
        tell_failure(error);
        return None;
    }
    Some(u64::try_from(taken).unwrap_or(u64::MAX).max(1))
}

fn tell_failure(error: &(dyn Error + 'static)) {
    tracing::debug!(error, "a specimen failed");
}

fn median(mut trials: Vec<u64>) -> u64 {
    trials.sort_unstable();
    trials[trials.len() / 2]
}

/// The first and the third quartile.
fn quartiles(trials: &[u64]) -> (u64, u64) {
    let mut trials = trials.to_vec();
    trials.sort_unstable();
    let last = trials.len() - 1;
    (trials[last / 4], trials[last - last / 4])
}

/// The slowest operation, RSA-4096, takes ten milliseconds a round.
const LEAST_ROUNDS: usize = 5;
/// Two libraries differ by more than the clock does.
const LEAST_COMPARED: usize = 3;
/// Full passes by each method. Of three methods for three sizes of RSA they take 0.15 seconds.
const METHOD_ROUNDS: usize = 5;
const MOST_ROUNDS: usize = 64;

/// Includes making the specimens. All operations together take 0.2 to 0.4 seconds.
const SPAN: Duration = Duration::from_millis(3);
/// Time for trials where a pass with one job and a job alone take nearly the same, or random times.
const LONG_SPAN: Duration = Duration::from_millis(30);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_close_is_measured_longer() {
        let (first, clear, close) = ([11, 10, 12, 10, 11], [21, 20, 22, 20, 21], [10, 30, 9, 40, 12]);
        assert!(is_enough(&first, &clear, SPAN));
        assert!(is_enough(&clear, &first, SPAN));
        assert!(!is_enough(&first[..4], &clear[..4], SPAN), "too few");
        assert!(!is_enough(&first, &clear, SPAN - Duration::from_nanos(1)));
        for trials in [[&first, &close], [&close, &first]] {
            assert!(!is_enough(trials[0], trials[1], SPAN));
            assert!(is_enough(trials[0], trials[1], LONG_SPAN));
        }
    }
}
