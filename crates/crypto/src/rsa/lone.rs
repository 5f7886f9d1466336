//! Who signs a lone request: a pass of one, or aws-lc-rs.
//!
//! A pass of two or more beats signing one by one. A pass of one leaves most lanes idle, and
//! aws-lc-rs spends the whole CPU on one signature: which is faster depends on the size of the key
//! and on the CPU, by up to a half either way. So it is measured, on the requests that come: out of
//! every [`ROUND`] lone requests of a size the first [`TRIALS`] are signed both ways by turns, and
//! the others by the way whose fastest trial was the shorter. The fastest, because everything else
//! that happens on a machine makes a trial longer. Every round forgets the trials of the one before,
//! so that the choice follows the machine when it changes.
//!
//! Nobody's signature waits for this or is made twice, and both ways blind and check. Keys that
//! aws-lc-rs refuses, which would be left to slow portable code, always go to the lanes and say
//! nothing about others.

use super::request::{SignError, SignRequest, sign_single};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What is known about the lone requests of one size.
///
/// Threads share it without locks. When they race, a trial may be lost or counted late; that can
/// cost some time, and nothing else.
#[derive(Debug)]
pub(super) struct Lone {
    /// Lone requests so far that had a choice.
    turns: AtomicU64,
    /// The fastest trial of this round in nanoseconds, by [`Way`]; [`UNKNOWN`] before the first.
    fastest: [AtomicU64; 2],
    /// The faster way of the round before, as [`Way`]; something else if there was none.
    before: AtomicU8,
}

/// A way to sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Lanes,
    Single,
}

/// How to sign one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    way: Way,
    /// Whether to [`record`](Lone::record) the time that it takes.
    trial: bool,
}

impl Lone {
    pub(super) const fn new() -> Self {
        Self {
            turns: AtomicU64::new(0),
            fastest: [AtomicU64::new(UNKNOWN), AtomicU64::new(UNKNOWN)],
            before: AtomicU8::new(u8::MAX),
        }
    }

    /// Answers requests of one size: several in `lanes`, one by the way chosen for it.
    pub(super) fn run(
        &self,
        requests: &[SignRequest],
        lanes: impl FnOnce(&[SignRequest]) -> Vec<Result<Vec<u8>, SignError>>,
    ) -> Vec<Result<Vec<u8>, SignError>> {
        let [request] = requests else {
            return lanes(requests);
        };
        let key = request.key();
        if key.aws_lc().is_none() {
            return lanes(requests);
        }
        let choice = self.choose();
        if choice.trial && choice.way == Way::Lanes {
            // Made once a key, and not timed: loading the key did as much for aws-lc-rs.
            key.prepared().warm(key.parts());
        }
        let start = choice.trial.then(Instant::now);
        let results = match choice.way {
            Way::Lanes => lanes(requests),
            Way::Single => vec![sign_single(request)],
        };
        // A failure may be quick, and is no reason to prefer its way.
        if let (Some(start), [Ok(_)]) = (start, results.as_slice()) {
            self.record(choice.way, start.elapsed());
        }
        results
    }

    /// The faster way, once both were tried.
    pub(super) fn faster(&self) -> Option<Way> {
        let [lanes, single] = [Way::Lanes, Way::Single].map(|way| self.fastest(way));
        if lanes == UNKNOWN || single == UNKNOWN {
            let before = self.before.load(Ordering::Relaxed);
            return [Way::Lanes, Way::Single]
                .into_iter()
                .find(|&way| way as u8 == before);
        }
        Some(if lanes <= single {
            Way::Lanes
        } else {
            Way::Single
        })
    }

    /// How the next lone request is to be signed.
    fn choose(&self) -> Choice {
        let turn = self.turns.fetch_add(1, Ordering::Relaxed) % ROUND;
        if turn == 0 {
            if let Some(way) = self.faster() {
                self.before.store(way as u8, Ordering::Relaxed);
            }
            for fastest in &self.fastest {
                fastest.store(UNKNOWN, Ordering::Relaxed);
            }
        }
        let trial = turn < TRIALS;
        let way = match turn % 2 {
            0 if trial => Way::Lanes,
            _ if trial => Way::Single,
            _ => self.faster().unwrap_or(Way::Lanes),
        };
        Choice { way, trial }
    }

    /// Takes note of how long a trial took.
    fn record(&self, way: Way, taken: Duration) {
        let taken = u64::try_from(taken.as_nanos()).unwrap_or(UNKNOWN);
        self.fastest[way as usize].fetch_min(taken, Ordering::Relaxed);
    }

    fn fastest(&self, way: Way) -> u64 {
        self.fastest[way as usize].load(Ordering::Relaxed)
    }
}

/// Lone requests from one set of trials to the next: few enough trials that they do not show in a
/// thousandth of the latencies.
const ROUND: u64 = 4096;
/// Trials in a round, half of them each way. An odd interruption does not hit four of a kind.
const TRIALS: u64 = 8;
const UNKNOWN: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rsa::chain::{Corruption, assert_verifies, corrupted, keys, odd_exponent_keys};
    use crate::rsa::{PrivateKey, Scheme, Size};
    use std::cell::Cell;

    /// Makes so many choices, takes these times for the trials, and returns the ways.
    fn turns(lone: &Lone, count: u64, lanes: u64, single: u64) -> Vec<Way> {
        let turn = |_| {
            let choice = lone.choose();
            if choice.trial {
                let taken = [lanes, single][choice.way as usize];
                lone.record(choice.way, Duration::from_nanos(taken));
            }
            choice.way
        };
        (0..count).map(turn).collect()
    }

    #[test]
    fn trials_alternate() {
        let lone = Lone::new();
        assert_eq!(lone.faster(), None);
        let ways = turns(&lone, TRIALS, 5, 4);
        let (lanes, single) = (Way::Lanes, Way::Single);
        assert_eq!(ways, [lanes, single].repeat(TRIALS as usize / 2));
    }

    #[test]
    fn the_rest_of_a_round_takes_the_faster_way() {
        for (lanes, single, faster) in [
            (250, 238, Way::Single),
            (238, 250, Way::Lanes),
            (250, 250, Way::Lanes),
        ] {
            let lone = Lone::new();
            turns(&lone, TRIALS, lanes, single);
            assert_eq!(lone.faster(), Some(faster));
            let ways = turns(&lone, ROUND - TRIALS, lanes, single);
            assert!(ways.iter().all(|&way| way == faster), "{lanes} {single}");
        }
    }

    #[test]
    fn an_interrupted_trial_does_not_decide() {
        let lone = Lone::new();
        for taken in [[9_000, 20], [10, 20], [11, 9_000], [9_000, 21]] {
            turns(&lone, 2, taken[0], taken[1]);
        }
        assert_eq!(lone.faster(), Some(Way::Lanes));
    }

    #[test]
    fn the_choice_follows_the_machine_both_ways() {
        let lone = Lone::new();
        for (lanes, single, faster) in [
            (10, 20, Way::Lanes),
            (30, 20, Way::Single),
            (30, 40, Way::Lanes),
        ] {
            let ways = turns(&lone, ROUND, lanes, single);
            let other = ways.iter().filter(|&&way| way != faster).count();
            assert_eq!(other as u64, TRIALS / 2, "{lanes} {single}");
        }
    }

    #[test]
    fn the_choice_stands_until_the_next_trials_are_over() {
        let lone = Lone::new();
        turns(&lone, ROUND, 20, 10);
        assert_eq!(lone.choose().way, Way::Lanes);
        assert_eq!(lone.faster(), Some(Way::Single));
        lone.record(Way::Lanes, Duration::from_nanos(5));
        assert_eq!(lone.faster(), Some(Way::Single));
        lone.record(Way::Single, Duration::from_nanos(10));
        assert_eq!(lone.faster(), Some(Way::Lanes));
    }

    #[test]
    fn a_way_that_never_succeeds_is_not_chosen() {
        let lone = Lone::new();
        let ways: Vec<Way> = (0..2 * ROUND)
            .map(|_| {
                let choice = lone.choose();
                if choice.trial && choice.way == Way::Lanes {
                    lone.record(choice.way, Duration::from_secs(1));
                }
                choice.way
            })
            .collect();
        let single = ways.iter().filter(|&&way| way == Way::Single).count();
        assert_eq!(single as u64, TRIALS);
    }

    /// Signs `count` times with this many requests of these keys; returns the passes in lanes.
    fn passes_in_lanes(lone: &Lone, keys: &[PrivateKey], fill: usize, count: usize) -> usize {
        let passes = Cell::new(0);
        for _ in 0..count {
            let requests: Vec<_> = (0..fill)
                .map(|index| {
                    let key = &keys[index % keys.len()];
                    SignRequest::new(key, Scheme::PssSha256, b"m").unwrap()
                })
                .collect();
            let results = lone.run(&requests, |requests| {
                passes.set(passes.get() + 1);
                requests.iter().map(sign_single).collect()
            });
            assert_eq!(results.len(), fill);
            for (request, result) in requests.iter().zip(results) {
                assert_verifies("lone", request, b"m", &result.unwrap());
            }
        }
        passes.get()
    }

    #[test]
    fn one_request_is_tried_both_ways() {
        let lone = Lone::new();
        let trials = TRIALS as usize;
        let keys = keys(Size::Rsa2048);
        assert_eq!(passes_in_lanes(&lone, &keys, 1, trials), trials / 2);
        assert!(lone.faster().is_some());
    }

    #[test]
    fn two_requests_always_go_to_the_lanes() {
        let lone = Lone::new();
        for decided in [false, true] {
            if decided {
                turns(&lone, TRIALS, 20, 10);
                assert_eq!(lone.faster(), Some(Way::Single));
            }
            let before = lone.turns.load(Ordering::Relaxed);
            for fill in [2, 4] {
                assert_eq!(passes_in_lanes(&lone, &keys(Size::Rsa2048), fill, 5), 5);
            }
            assert_eq!(lone.turns.load(Ordering::Relaxed), before, "no trials");
        }
    }

    #[test]
    fn keys_that_aws_lc_refuses_always_go_to_the_lanes() {
        let lone = Lone::new();
        turns(&lone, TRIALS, 20, 10);
        let keys = odd_exponent_keys(Size::Rsa2048);
        let refused: Vec<_> = keys.iter().filter(|key| key.aws_lc().is_none()).collect();
        assert!(!refused.is_empty());
        for key in refused {
            assert_eq!(passes_in_lanes(&lone, std::slice::from_ref(key), 1, 2), 2);
        }
        assert_eq!(lone.turns.load(Ordering::Relaxed), TRIALS, "no trials");
    }

    #[test]
    fn failures_are_no_trials() {
        let lone = Lone::new();
        let key = &keys(Size::Rsa2048)[0];
        for _ in 0..TRIALS {
            let request = SignRequest::new(key, Scheme::PssSha256, b"m").unwrap();
            let results = lone.run(&[request], |_| vec![Err(SignError::Fault)]);
            assert_eq!(results.len(), 1);
        }
        assert_eq!(lone.fastest(Way::Lanes), UNKNOWN);
        assert!(lone.fastest(Way::Single) < UNKNOWN);
    }

    /// With the lanes of this machine: whatever the choice, the signatures are right, and a
    /// damaged key's are withheld.
    #[test]
    fn passes_of_one_sign_like_the_standard_either_way() {
        use crate::rsa::{Passes, chain};
        use crate::{Backend, Preference};
        let passes = Passes::new(Preference::Auto).unwrap();
        let backend = passes.backend();
        if backend == Backend::AwsLc {
            eprintln!("SKIP: no AVX-512 IFMA, so that there is no choice");
            return;
        }
        for size in Size::ALL {
            assert_eq!(passes.lone_in_lanes(size), None);
            for key in keys(size).iter().cycle().take(2 * TRIALS as usize) {
                let request = chain::request(key, Scheme::Pkcs1Sha256, b"m");
                let results = passes.run(size, std::slice::from_ref(&request));
                let signature = results[0].as_ref().unwrap();
                assert_verifies(backend.name(), &request, b"m", signature);
            }
            assert!(passes.lone_in_lanes(size).is_some(), "{backend} {size}");
            for corruption in Corruption::ALL {
                let key = corrupted(size, corruption);
                let request = chain::request(&key, Scheme::Pkcs1Sha256, b"m");
                assert_eq!(passes.run(size, &[request]), [Err(SignError::Fault)]);
            }
        }
    }
}
