//! Rates of a server between two scrapes.

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
    /// True if public-key operations are batched; `None` if the server does not say.
    pub batching: Option<bool>,
    /// Handshakes that came faster than they could be served.
    pub overload: Overload,
    /// All operations together.
    pub all: Operation,
    /// Operations that ran, the one with the most jobs first.
    pub operations: Vec<Operation>,
}

/// Rates of a public-key operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Operation {
    /// Name of the operation.
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

/// Rates in the `seconds` from one scrape to the other. `None` if a counter fell: the
/// server was started anew in between, and from when on the new one counted is not known.
pub fn rates(before: &[Sample], after: &[Sample], seconds: f64) -> Option<Server> {
    // The only one that may fall.
    let overloaded = after
        .iter()
        .filter(|sample| sample.name == "widelane_overloaded_workers")
        .map(|sample| sample.value)
        .sum::<f64>();
    let (before, after) = (counters(before), counters(after));
    // Also refuses what is not a number, and a time that has not passed.
    let rose = |(counter, sum): (&Counter<'_>, &f64)| after.get(counter).is_some_and(|now| now >= sum);
    if !before.iter().all(rose) || !after.values().all(|sum| sum.is_finite()) || seconds <= 0.0 {
        return None;
    }
    let increase = |metric: &str, label: &str| {
        let sum = |sums: &BTreeMap<Counter<'_>, f64>| sums.get(&Counter { metric, label }).copied().unwrap_or(0.0);
        sum(&after) - sum(&before)
    };
    let labels = |metric: &str| -> Vec<&str> {
        let own = after.keys().filter(|counter| counter.metric == metric);
        own.map(|counter| counter.label).collect()
    };
    // Not sum(), which makes -0 of nothing.
    let sum = |metric: &str, labels: &[&str]| labels.iter().fold(0.0, |sum, label| sum + increase(metric, label));
    let operation = |name: &str, of: &[&str]| {
        let (jobs, passes) = (sum(JOBS, of), sum(PASSES, of));
        let mean = |sum: f64, of: f64| (of > 0.0).then(|| sum / of);
        Operation {
            name: name.to_owned(),
            jobs: jobs / seconds,
            passes: passes / seconds,
            lanes: mean(sum(LANES, of), passes),
            queue_us: mean(sum(QUEUED, of) / 1e3, jobs),
            busy: sum(KERNEL, of) / 1e9 / seconds,
        }
    };
    let names = labels(JOBS);
    let mut operations: Vec<_> = names.iter().map(|name| operation(name, &[name])).collect();
    operations.retain(|operation| operation.jobs > 0.0);
    operations.sort_by(|a, b| b.jobs.total_cmp(&a.jobs));
    let mut failures = labels(HANDSHAKES);
    failures.retain(|result| *result != "ok");
    let waits = labels(WAITS).into_iter();
    let waits: Vec<(f64, f64)> = waits
        .filter_map(|below| Some((below.parse().ok()?, increase(WAITS, below))))
        .collect();
    let batching = Counter {
        metric: BATCHING,
        label: "",
    };
    Some(Server {
        handshakes: increase(HANDSHAKES, "ok") / seconds,
        failures: sum(HANDSHAKES, &failures) / seconds,
        batching: after.get(&batching).map(|&on| on > 0.0),
        overload: Overload {
            now: overloaded as u64,
            begun: increase(OVERLOADS, "") as u64,
            gone: increase(HANDSHAKES, "gave_up") / seconds,
            refused: increase(HANDSHAKES, "overload") / seconds,
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

/// A metric and its labels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Counter<'a> {
    /// A metric that is shown.
    metric: &'a str,
    /// The label by which its samples are kept apart.
    label: &'a str,
}

/// The sums of all samples that are shown.
fn counters(samples: &[Sample]) -> BTreeMap<Counter<'_>, f64> {
    let mut sums = BTreeMap::new();
    for sample in samples {
        let label = match sample.name.as_str() {
            HANDSHAKES => Some(sample.label("result").unwrap_or_default()),
            OVERLOADS | BATCHING => Some(""),
            WAITS => sample.label("le"),
            JOBS | PASSES | LANES | QUEUED | KERNEL => sample.label("operation"),
            _ => None,
        };
        if let Some(label) = label {
            let metric = &sample.name;
            *sums.entry(Counter { metric, label }).or_insert(0.0) += sample.value;
        }
    }
    sums
}

const HANDSHAKES: &str = "widelane_handshakes_total";
const OVERLOADS: &str = "widelane_overloads_total";
/// Handshakes that waited for at most so many seconds.
const WAITS: &str = "widelane_handshake_wait_seconds_bucket";
const BATCHING: &str = "widelane_batching";
const JOBS: &str = "widelane_engine_jobs_total";
const PASSES: &str = "widelane_engine_passes_total";
const LANES: &str = "widelane_engine_lanes_filled_total";
const QUEUED: &str = "widelane_engine_queued_nanoseconds_total";
const KERNEL: &str = "widelane_engine_kernel_nanoseconds_total";

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
