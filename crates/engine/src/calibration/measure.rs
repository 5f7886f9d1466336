//! The measurement itself: few trials, by turns.

use std::time::Duration;

use widelane_batching::Costs;
use widelane_crypto::{Outcome, Work};

/// Measures what answers to specimens cost, in nanoseconds of this thread's CPU time.
///
/// `None` if answers fail: that may be quick, and is no reason to prefer its way.
///
/// The two ways and the two fillings take turns, so that a change of clock meets all of them. The
/// median of the trials counts and not the fastest: some signatures (ML-DSA) take as many attempts
/// as chance wants, and the luckiest says little about the next.
pub(super) fn costs<W: Work>(work: &W) -> Option<Costs> {
    let lanes = work.lanes();
    let specimens = |count| -> Vec<W::Request> { (0..count).map(|_| work.specimen()).collect() };
    let mut trials = [const { Vec::new() }; 3];
    let start = thread_time();
    // What is derived when it is first used is not what answers cost: the first round is for that.
    for round in 0..=MOST_ROUNDS {
        // New ones each time: a request that was answered once may be cheaper to answer again.
        let (one, another, all) = (specimens(1), specimens(1), specimens(lanes));
        let taken = [
            time(|| work.pass(&one))?,
            time(|| another.iter().map(|request| work.alone(request)).collect())?,
            time(|| work.pass(&all))?,
        ];
        if round == 0 {
            continue;
        }
        for (trials, taken) in trials.iter_mut().zip(taken) {
            trials.push(taken);
        }
        if round >= LEAST_ROUNDS && thread_time().saturating_sub(start) >= SPAN {
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

/// How long the answers take; `None` if one fails.
fn time<O: Outcome>(answer: impl FnOnce() -> Vec<O>) -> Option<u64> {
    let before = thread_time();
    let outputs = std::hint::black_box(answer());
    let taken = thread_time().saturating_sub(before).as_nanos();
    if let Some(error) = outputs.iter().find_map(Outcome::failure) {
        tracing::debug!(error, "a specimen failed");
        return None;
    }
    Some(u64::try_from(taken).unwrap_or(u64::MAX).max(1))
}

/// CPU time that this thread has had: what others do on the CPU does not count.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn median(mut trials: Vec<u64>) -> u64 {
    trials.sort_unstable();
    trials[trials.len() / 2]
}

/// The slowest operation, RSA-4096, takes ten milliseconds a round.
const LEAST_ROUNDS: usize = 5;
const MOST_ROUNDS: usize = 24;

/// Including what makes specimens: all operations together take a tenth of a second or two.
const SPAN: Duration = Duration::from_millis(3);
