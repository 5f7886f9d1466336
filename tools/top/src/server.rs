//! What a server did between two scrapes.

use crate::metrics::Sample;
use crate::overload::Overload;
use serde::Serialize;
use std::collections::BTreeMap;

/// Rates of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Server {
    /// Completed handshakes a second.
    pub handshakes: f64,
    /// Handshakes a second that did not come to their end.
    pub failures: f64,
    /// Whether public-key operations are batched; `None` if it does not say.
    pub batching: Option<bool>,
    /// Handshakes that came faster than they could be served.
    pub overload: Overload,
    /// All operations together.
    pub all: Operation,
    /// Those that ran, the one with the most jobs first.
    pub operations: Vec<Operation>,
}

/// Rates of a public-key operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Operation {
    /// Its name.
    pub name: String,
    /// Jobs a second.
    pub jobs: f64,
    /// Passes a second.
    pub passes: f64,
    /// Mean number of jobs in a pass; `None` without passes.
    pub lanes: Option<f64>,
    /// Mean time in microseconds that a job waited; `None` without jobs.
    pub queue_us: Option<f64>,
    /// The share of one core's time that they took, in passes and one by one.
    pub busy: f64,
}

/// What happened in the `seconds` from one scrape to the other. `None` if a counter fell: the
/// server was started anew in between, and from when on the new one counted is not known.
pub fn rates(before: &[Sample], after: &[Sample], seconds: f64) -> Option<Server> {
    // The only one that may fall.
    let overloaded = after
        .iter()
        .filter(|sample| sample.name == "widelane_overloaded_workers")
        .map(|sample| sample.value)
        .sum::<f64>();
    let sums = |samples: &[Sample]| {
        let mut sums = BTreeMap::new();
        for sample in samples {
            if let Some(counter) = counter(sample) {
                *sums.entry(counter).or_insert(0.0) += sample.value;
            }
        }
        sums
    };
    let (before, after) = (sums(before), sums(after));
    // Also refuses what is not a number, and a time that has not passed.
    let rose = |(counter, sum): (&Counter, &f64)| after.get(counter).is_some_and(|now| now >= sum);
    if !before.iter().all(rose) || !after.values().all(|sum| sum.is_finite()) || seconds <= 0.0 {
        return None;
    }
    let increase = |counter: Counter| {
        let sum = |sums: &BTreeMap<Counter, f64>| sums.get(&counter).copied().unwrap_or(0.0);
        sum(&after) - sum(&before)
    };
    let operation = |name: &str, of: &[&str]| {
        let sum =
            |what: fn(String) -> Counter| -> f64 { of.iter().map(|name| increase(what((*name).to_owned()))).sum() };
        let (jobs, passes) = (sum(Counter::Jobs), sum(Counter::Passes));
        let mean = |sum: f64, of: f64| (of > 0.0).then(|| sum / of);
        Operation {
            name: name.to_owned(),
            jobs: jobs / seconds,
            passes: passes / seconds,
            lanes: mean(sum(Counter::Lanes), passes),
            queue_us: mean(sum(Counter::Queued) / 1e3, jobs),
            busy: sum(Counter::Kernel) / 1e9 / seconds,
        }
    };
    let names: Vec<&str> = after
        .keys()
        .filter_map(|counter| match counter {
            Counter::Jobs(name) => Some(name.as_str()),
            _ => None,
        })
        .collect();
    let mut operations: Vec<_> = names.iter().map(|name| operation(name, &[name])).collect();
    operations.retain(|operation| operation.jobs > 0.0);
    operations.sort_by(|a, b| b.jobs.total_cmp(&a.jobs));
    let waits = after.keys().filter_map(|counter| match counter {
        Counter::Waits(below) => Some((below.parse().ok()?, increase(counter.clone()))),
        _ => None,
    });
    let waits: Vec<(f64, f64)> = waits.collect();
    let [gone, refused] = [Counter::Gone, Counter::Refused].map(&increase);
    Some(Server {
        handshakes: increase(Counter::Handshakes) / seconds,
        failures: (increase(Counter::Failures) + gone + refused) / seconds,
        batching: after.get(&Counter::Batching).map(|&on| on > 0.0),
        overload: Overload {
            now: overloaded as u64,
            begun: increase(Counter::Overloads) as u64,
            gone: gone / seconds,
            refused: refused / seconds,
            p50_below_ms: wait(&waits, 0.5),
            p99_below_ms: wait(&waits, 0.99),
        },
        all: operation("all", &names),
        operations,
    })
}

/// Milliseconds below which a share of waits was. Each of `waits` is a number of seconds, and how many waits were at
/// most as long.
fn wait(waits: &[(f64, f64)], share: f64) -> Option<f64> {
    let all = waits.iter().map(|(_, count)| *count).fold(0.0, f64::max);
    let reached = waits.iter().filter(|(_, count)| *count >= share * all);
    let least = reached.map(|(seconds, _)| *seconds).reduce(f64::min)?;
    (all > 0.0 && least.is_finite()).then(|| (least * 1e6).round() / 1e3)
}

/// What of a scrape is shown. The order is that in which it is kept, no more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Counter {
    Handshakes,
    Failures,
    Gone,
    Refused,
    Overloads,
    /// Those that waited for at most so many seconds.
    Waits(String),
    Batching,
    Jobs(String),
    Passes(String),
    Lanes(String),
    Queued(String),
    Kernel(String),
}

fn counter(sample: &Sample) -> Option<Counter> {
    let operation = || sample.label("operation").map(str::to_owned);
    match sample.name.as_str() {
        "widelane_handshakes_total" => Some(match sample.label("result") {
            Some("ok") => Counter::Handshakes,
            Some("gave_up") => Counter::Gone,
            Some("overload") => Counter::Refused,
            _ => Counter::Failures,
        }),
        "widelane_overloads_total" => Some(Counter::Overloads),
        "widelane_handshake_wait_seconds_bucket" => sample.label("le").map(str::to_owned).map(Counter::Waits),
        "widelane_batching" => Some(Counter::Batching),
        "widelane_engine_jobs_total" => operation().map(Counter::Jobs),
        "widelane_engine_passes_total" => operation().map(Counter::Passes),
        "widelane_engine_lanes_filled_total" => operation().map(Counter::Lanes),
        "widelane_engine_queued_nanoseconds_total" => operation().map(Counter::Queued),
        "widelane_engine_kernel_nanoseconds_total" => operation().map(Counter::Kernel),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::parse;
    use proptest::prelude::*;

    fn scrape(times: u64) -> Vec<Sample> {
        let text = format!(
            "widelane_batching 1\n\
             widelane_handshakes_total{{result=\"ok\",version=\"1.3\"}} {}\n\
             widelane_handshakes_total{{result=\"ok\",version=\"1.2\"}} {}\n\
             widelane_handshakes_total{{result=\"timeout\"}} {}\n\
             widelane_handshakes_total{{result=\"gave_up\"}} {}\n\
             widelane_handshakes_total{{result=\"overload\"}} {}\n\
             widelane_overloaded_workers {}\n\
             widelane_overloads_total {times}\n\
             widelane_handshake_wait_seconds_bucket{{le=\"0.01\"}} {}\n\
             widelane_handshake_wait_seconds_bucket{{le=\"0.0075\"}} {}\n\
             widelane_handshake_wait_seconds_bucket{{le=\"+Inf\"}} {}\n\
             widelane_engine_jobs_total{{operation=\"rsa\"}} {}\n\
             widelane_engine_passes_total{{operation=\"rsa\"}} {}\n\
             widelane_engine_lanes_filled_total{{operation=\"rsa\"}} {}\n\
             widelane_engine_queued_nanoseconds_total{{operation=\"rsa\"}} {}\n\
             widelane_engine_kernel_nanoseconds_total{{operation=\"rsa\"}} {}\n\
             widelane_engine_jobs_total{{operation=\"idle\"}} 5\n",
            300 * times,
            100 * times,
            4 * times,
            5 * times,
            times,
            // A gauge.
            9 - times,
            99 * times,
            50 * times,
            100 * times,
            410 * times,
            100 * times,
            380 * times,
            410 * times * 12_000,
            500_000_000 * times,
        );
        parse(&text).expect("it is well-formed")
    }

    #[test]
    fn rates_follow_from_two_scrapes() {
        let server = rates(&scrape(1), &scrape(3), 2.0).expect("no counter fell");
        assert_eq!((server.handshakes, server.failures), (400.0, 10.0));
        assert_eq!(server.batching, Some(true));
        assert_eq!(server.operations.len(), 1, "the idle one is left out");
        let rsa = &server.operations[0];
        assert_eq!((rsa.jobs, rsa.passes), (410.0, 100.0));
        assert_eq!((rsa.lanes, rsa.queue_us), (Some(3.8), Some(12.0)));
        assert_eq!(rsa.busy, 0.5);
        let overload = Overload {
            now: 6,
            begun: 2,
            gone: 5.0,
            refused: 1.0,
            p50_below_ms: Some(7.5),
            p99_below_ms: Some(10.0),
        };
        assert_eq!(server.overload, overload);
        assert_eq!((server.all.jobs, server.all.lanes), (410.0, Some(3.8)));
    }

    #[test]
    fn a_server_that_does_nothing_has_no_means() {
        let server = rates(&scrape(2), &scrape(2), 1.0).expect("no counter fell");
        assert_eq!((server.handshakes, server.all.passes), (0.0, 0.0));
        assert_eq!((server.all.lanes, server.all.queue_us), (None, None));
        assert!(server.operations.is_empty());
    }

    #[test]
    fn a_server_started_anew_has_no_rates_in_between() {
        assert_eq!(rates(&scrape(3), &scrape(1), 1.0), None);
        assert_eq!(rates(&scrape(3), &[], 1.0), None);
        assert_eq!(rates(&scrape(1), &scrape(3), 0.0), None);
        let odd = parse("widelane_batching NaN\n").expect("it is a number's name");
        assert_eq!(rates(&[], &odd, 1.0), None);
        let first = rates(&[], &scrape(1), 1.0).expect("a new operation is no reset");
        assert_eq!(first.all.jobs, 415.0);
    }

    proptest! {
        #[test]
        fn no_rate_is_negative_or_odd(before in 0u64..9, after in 0u64..9, seconds in 0.0..9.0) {
            match rates(&scrape(before), &scrape(after), seconds) {
                Some(server) => {
                    prop_assert!(before <= after);
                    prop_assert!(server.handshakes.is_finite() && server.handshakes >= 0.0);
                    prop_assert!(server.all.busy >= 0.0);
                }
                None => prop_assert!(after < before || seconds == 0.0),
            }
        }
    }
}
