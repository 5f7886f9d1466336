//! Rates of processes with the OpenSSL provider between two looks.

use crate::overload::Overload;
use crate::snapshot::Known;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::time::Instant;
use widelane_status_tool::proof::noted;
use widelane_status_tool::{Asked, Process, Report, State, Totals, now, survey};

/// Rates of processes with the OpenSSL provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Providers {
    /// Processes that have loaded the provider, by their numbers.
    pub processes: Vec<Provider>,
    /// Number of processes that this user may not look at.
    pub hidden: usize,
    /// Proofs of servers, also of `serve`.
    pub proofs: Vec<ProofSeen>,
}

/// A proof of a server, `widelane status --prove`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProofSeen {
    /// The number of the first of its processes.
    pub pid: u32,
    /// Name of the process.
    pub name: String,
    /// Text that the proof is at work, or its result.
    pub said: String,
}

/// A process with the OpenSSL provider.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Provider {
    /// Number of the process.
    pub pid: u32,
    /// Name of the process.
    pub name: String,
    /// The code that does the arithmetic; `None` if it is not known.
    pub backend: Option<String>,
    /// True if an operator has switched its lanes off, or a proof has for a moment.
    pub lanes_off: bool,
    /// Its rates, or why they are not known.
    #[serde(flatten)]
    pub work: Known<Work>,
}

/// Rates of a process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Work {
    /// Operations that had jobs, the one with the most first.
    pub operations: Vec<ProviderOperation>,
    /// Operations a second that OpenSSL did by itself.
    pub fallbacks: f64,
    /// Ways in which handshakes have waited.
    pub ways: Vec<&'static str>,
    /// Connections that came faster than they could be served.
    pub overload: Overload,
}

/// Rates of one operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProviderOperation {
    /// Name of the operation, such as `rsa2048-sign`.
    pub name: String,
    /// Jobs a second.
    pub jobs: f64,
    /// Jobs a second that ran one by one.
    pub alone: f64,
    /// Passes a second.
    pub passes: f64,
    /// Mean number of jobs in a pass; `None` without passes.
    pub lanes: Option<f64>,
    /// Jobs that one pass takes.
    pub of: u64,
    /// Jobs a second without an answer: OpenSSL did these by itself.
    pub failed: f64,
    /// The share of one core's time that they took, in passes and one by one.
    pub busy: f64,
}

impl Providers {
    /// The sum of a rate over all operations of all processes.
    pub(crate) fn sum(&self, rate: impl Fn(&ProviderOperation) -> f64) -> f64 {
        let operations = self.works().flat_map(|work| &work.operations);
        // Not sum(), which makes -0 of nothing.
        operations.fold(0.0, |sum, one| sum + rate(one))
    }

    /// Operations a second that OpenSSL did by itself.
    pub(crate) fn fallbacks(&self) -> f64 {
        self.works().fold(0.0, |sum, work| sum + work.fallbacks)
    }

    fn works(&self) -> impl Iterator<Item = &Work> {
        self.processes.iter().filter_map(|one| match &one.work {
            Known::Known(work) => Some(work),
            Known::Missing { .. } => None,
        })
    }
}

/// Looks at the pages of processes.
pub(crate) struct Looks {
    before: BTreeMap<u32, Report>,
    since: Instant,
}

impl Looks {
    /// Begins to count.
    pub(crate) fn new() -> Self {
        let processes = survey().map(|found| found.processes).unwrap_or_default();
        Self {
            before: reports(&processes),
            since: Instant::now(),
        }
    }

    /// Rates since the last look.
    pub(crate) fn read(&mut self) -> io::Result<Providers> {
        let found = survey()?;
        let now = Instant::now();
        let seconds = now.duration_since(self.since).as_secs_f64();
        let processes = rates(&self.before, &found.processes, seconds);
        self.before = reports(&found.processes);
        self.since = now;
        Ok(Providers {
            processes,
            hidden: found.hidden,
            proofs: proofs(&found.processes),
        })
    }
}

/// The proofs that are noted, each once: a server of several processes has the same note in all of them.
fn proofs(processes: &[Process]) -> Vec<ProofSeen> {
    let mut seen = Vec::new();
    let mut proofs = Vec::new();
    for process in processes {
        let State::Counts(report) = &process.state else {
            continue;
        };
        let Some(said) = noted(report, now()) else {
            continue;
        };
        let proof = (report.in_proof, report.proved);
        if !seen.contains(&proof) {
            seen.push(proof);
            proofs.push(ProofSeen {
                pid: process.pid,
                name: process.name.clone(),
                said,
            });
        }
    }
    proofs
}

fn reports(processes: &[Process]) -> BTreeMap<u32, Report> {
    let counting = processes.iter().filter_map(|one| match &one.state {
        State::Counts(report) => Some((one.pid, report.clone())),
        _ => None,
    });
    counting.collect()
}

/// Rates of the processes in the `seconds` since `before`. A process that was not there then, or
/// counts less than then, began at 0 since.
fn rates(before: &BTreeMap<u32, Report>, after: &[Process], seconds: f64) -> Vec<Provider> {
    let seconds = seconds.max(f64::MIN_POSITIVE);
    let is_terminator = |state: &State| matches!(state, State::Counts(report) if report.facts.serves);
    // `serve` has a part of its own.
    let loaded = after
        .iter()
        .filter(|one| one.state.is_loaded() && !is_terminator(&one.state));
    loaded
        .map(|process| {
            let (facts, work) = match &process.state {
                State::Counts(report) => {
                    let earlier = before.get(&process.pid);
                    let earlier = earlier.filter(|earlier| !began_anew(earlier, report));
                    (Some(&report.facts), Known::Known(counted(earlier, report, seconds)))
                }
                State::Inherited(report) => (Some(&report.facts), Known::missing("nothing done yet")),
                State::NotAllowed => (None, Known::missing("its figures take root")),
                State::Damaged(bad) => (None, Known::missing(format!("its page cannot be read: {bad}"))),
                _ => (None, Known::missing("it does not count")),
            };
            let backend = facts.map(|facts| facts.backend.clone());
            Provider {
                pid: process.pid,
                name: process.name.clone(),
                backend: backend.filter(|backend| !backend.is_empty()),
                lanes_off: matches!(
                    &process.state,
                    State::Counts(report) if report.asked(now()) != Asked::On
                ),
                work,
            }
        })
        .collect()
}

/// Returns whether a counter fell: the number is that of another process now, or its program was replaced.
fn began_anew(before: &Report, after: &Report) -> bool {
    let fell = |name: &str, earlier: &Totals| {
        let now = totals(after, name);
        now.jobs < earlier.jobs || now.passes < earlier.passes || now.failed < earlier.failed
    };
    let mut operations = before.operations.iter();
    operations.any(|one| fell(&one.name, &one.totals)) || left(after) < left(before)
}

fn counted(before: Option<&Report>, after: &Report, seconds: f64) -> Work {
    let mut operations: Vec<_> = after
        .operations
        .iter()
        .map(|one| {
            let earlier = before.map(|before| totals(before, &one.name));
            operation(&one.name, &earlier.unwrap_or_default(), &one.totals, seconds)
        })
        .filter(|one| one.jobs > 0.0 || one.failed > 0.0)
        .collect();
    operations.sort_by(|a, b| b.jobs.total_cmp(&a.jobs));
    let fallbacks = left(after).saturating_sub(before.map_or(0, left));
    Work {
        operations,
        fallbacks: as_figure(fallbacks) / seconds,
        ways: after
            .ways
            .iter()
            .filter(|way| way.waits())
            .map(|way| way.name())
            .collect(),
        overload: Overload::of_page(
            &before.map_or_else(Default::default, |before| before.overload.clone()),
            &after.overload,
            seconds,
        ),
    }
}

fn operation(name: &str, before: &Totals, after: &Totals, seconds: f64) -> ProviderOperation {
    // The page may be damaged: what makes no sense is 0, not a panic.
    let rise = |of: fn(&Totals) -> u64| as_figure(of(after).saturating_sub(of(before)));
    let passes = rise(|totals| totals.passes);
    ProviderOperation {
        name: name.to_owned(),
        jobs: rise(|totals| totals.jobs) / seconds,
        alone: rise(|totals| totals.alone) / seconds,
        passes: passes / seconds,
        lanes: (passes > 0.0).then(|| rise(|totals| totals.lanes_filled) / passes),
        of: after.lanes,
        failed: rise(|totals| totals.failed) / seconds,
        busy: rise(|totals| totals.busy_ns) / 1e9 / seconds,
    }
}

fn totals(report: &Report, name: &str) -> Totals {
    let mut operations = report.operations.iter();
    let found = operations.find(|one| one.name == name);
    found.map_or_else(Totals::default, |one| one.totals)
}

/// Number of operations that OpenSSL did by itself.
fn left(report: &Report) -> u64 {
    let listed = report.reasons.iter().map(|reason| reason.count);
    listed.fold(report.unlisted, u64::saturating_add)
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn as_figure(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;
    use widelane_status_tool::{BadPage, Facts, Operation, Proved, Reason};

    fn report(times: u64) -> Report {
        let totals = Totals {
            lanes: 8,
            jobs: 70 * times,
            alone: 10 * times,
            at_once: 10 * times,
            passes: 10 * times,
            lanes_filled: 60 * times,
            failed: times,
            busy_ns: 500_000_000 * times,
        };
        let idle = Operation {
            name: "idle".to_owned(),
            totals: Totals::default(),
        };
        let busy = Operation {
            name: "rsa".to_owned(),
            totals,
        };
        Report {
            process: 7,
            facts: Facts {
                backend: "avx512ifma".to_owned(),
                ..Facts::default()
            },
            operations: vec![idle, busy],
            reasons: vec![Reason {
                text: "why".to_owned(),
                count: 3 * times,
            }],
            unlisted: times,
            ..Report::default()
        }
    }

    fn process(state: State) -> Process {
        let name = "nginx".to_owned();
        Process { pid: 7, name, state }
    }

    fn only(before: Option<u64>, after: u64, seconds: f64) -> (ProviderOperation, f64) {
        let before = before.map(|times| (7, report(times)));
        let after = [process(State::Counts(report(after)))];
        let found = rates(&before.into_iter().collect(), &after, seconds);
        match &found[..] {
            [
                Provider {
                    work: Known::Known(work),
                    ..
                },
            ] => (work.operations[0].clone(), work.fallbacks),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rates_follow_from_two_looks() {
        let (rsa, fallbacks) = only(Some(1), 5, 2.0);
        let expected = ProviderOperation {
            name: "rsa".to_owned(),
            jobs: 140.0,
            alone: 20.0,
            passes: 20.0,
            lanes: Some(6.0),
            of: 8,
            failed: 2.0,
            busy: 1.0,
        };
        assert_eq!((rsa, fallbacks), (expected, 8.0));
    }

    #[test]
    fn a_process_that_is_new_or_was_replaced_began_at_nothing() {
        for before in [None, Some(9)] {
            let (rsa, fallbacks) = only(before, 2, 1.0);
            assert_eq!((rsa.jobs, fallbacks), (140.0, 8.0), "{before:?}");
        }
    }

    #[test]
    fn other_states_say_why_they_have_no_rates_and_strangers_are_left_out() {
        let states = [
            (State::Inherited(report(5)), "nothing done yet"),
            (State::NotAllowed, "take root"),
            (State::Damaged(BadPage::NoPage), "does not begin"),
            (State::Uncounted, "does not count"),
        ];
        for (state, expected) in states {
            let found = rates(&BTreeMap::new(), &[process(state)], 1.0);
            let [
                Provider {
                    work: Known::Missing { why_not },
                    ..
                },
            ] = &found[..]
            else {
                panic!("{found:?}");
            };
            assert!(why_not.contains(expected), "{why_not}");
        }
        assert_eq!(rates(&BTreeMap::new(), &[process(State::NoProvider)], 1.0), []);
    }

    #[test]
    fn without_work_there_are_no_operations() {
        let before = BTreeMap::from([(7, report(2))]);
        let found = rates(&before, &[process(State::Counts(report(2)))], 1.0);
        let providers = Providers {
            processes: found,
            ..Providers::default()
        };
        assert_eq!(providers.sum(|one| one.jobs).to_bits(), 0);
        assert_eq!(providers.fallbacks(), 0.0);
        assert_eq!(providers.processes[0].backend.as_deref(), Some("avx512ifma"));
        let Known::Known(work) = &providers.processes[0].work else {
            panic!("{providers:?}");
        };
        assert!(work.operations.is_empty());
    }

    #[test]
    fn a_proof_is_seen_once_for_all_processes_of_a_server() {
        let proved = |ended: u64| Proved {
            ended: now().saturating_sub(Duration::from_secs(ended)),
            ..Proved::default()
        };
        let of = |pid, proved, serves| {
            let mut report = report(1);
            (report.proved, report.facts.serves) = (proved, serves);
            Process {
                pid,
                ..process(State::Counts(report))
            }
        };
        let last = proved(5);
        let processes = [
            of(7, last, false),
            of(8, last, false),
            of(9, Proved::default(), false),
            of(10, proved(300), true),
        ];
        let proofs = proofs(&processes);
        let pids: Vec<_> = proofs.iter().map(|proof| proof.pid).collect();
        assert_eq!(pids, [7, 10]);
        assert!(proofs[0].said.contains("could not be told"), "{proofs:?}");
    }

    proptest! {
        /// Pages come from processes that may be hostile.
        #[test]
        fn no_page_makes_odd_rates(
            numbers in proptest::collection::vec(any::<u64>(), 18),
            seconds in 0.0..9.0,
        ) {
            let odd = |numbers: &[u64]| {
                let mut report = report(1);
                let [lanes, jobs, alone, at_once, passes, lanes_filled, failed, busy_ns, unlisted] =
                    numbers.try_into().expect("nine");
                report.operations[1].totals =
                    Totals { lanes, jobs, alone, at_once, passes, lanes_filled, failed, busy_ns };
                report.unlisted = unlisted;
                report
            };
            let (before, after) = (odd(&numbers[..9]), odd(&numbers[9..]));
            let before = BTreeMap::from([(7, before)]);
            let processes = rates(&before, &[process(State::Counts(after))], seconds);
            let providers = Providers { processes, ..Providers::default() };
            for sum in [providers.sum(|one| one.jobs), providers.fallbacks()] {
                prop_assert!(sum >= 0.0, "{sum}");
            }
        }
    }
}
