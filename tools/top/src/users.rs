//! Users of wide registers, as far as they can be found out here.

use serde::Serialize;
use std::time::Duration;
use widelane_usage::{By, Collector, Evidence, Key, Method, Row, UsageError, Verdict, grouped};

/// Users of wide registers in an interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Users {
    /// Method by which they were found out.
    pub method: &'static str,
    /// Reason why it was not a better method.
    pub why_not_better: Option<String>,
    /// CPU time of those that work with 512-bit registers for certain, in CPUs.
    pub wide: f64,
    /// CPU time of these and of those that possibly do, or whose code could not be looked at. Never more than
    /// there are CPUs.
    pub at_most: f64,
    /// Processes, the strongest verdict first. Those that only copy memory are left out.
    pub processes: Vec<User>,
}

/// A process that uses wide registers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct User {
    /// Number of the process.
    pub pid: u32,
    /// Name of the process.
    pub name: String,
    /// CPU time in slices with wide registers in use, in CPUs.
    pub cpus: f64,
    /// `wide`, `possible` or `unknown`.
    pub verdict: &'static str,
}

/// Finds them out.
pub(crate) struct Watch {
    collector: Collector,
    evidence: Evidence,
    fallback: Option<String>,
}

impl Watch {
    /// Opens the watch: by eBPF where that is allowed, else by polling.
    pub(crate) fn open() -> Result<Self, UsageError> {
        let (collector, fallback) = match Collector::open(Method::Ebpf, true) {
            Ok(collector) => (collector, None),
            Err(why) => (Collector::open(Method::Poll, true)?, Some(why.to_string())),
        };
        let mut evidence = Evidence::new();
        evidence.look_ahead();
        Ok(Self {
            collector,
            evidence,
            fallback,
        })
    }

    /// Users since the last call, on a machine with so many CPUs. Waits at most so long for what is still
    /// to be found out about the code of processes.
    pub(crate) fn read(&mut self, cpus: usize, patience: Duration) -> Result<Users, UsageError> {
        let mut interval = self.collector.interval()?;
        let mut findings = self.evidence.findings(&mut interval);
        if !patience.is_zero() {
            self.evidence.wait(patience);
            findings = self.evidence.findings(&mut interval);
        }
        let rows = grouped(&interval, &findings, By::Process);
        let processes = users(rows, interval.elapsed, cpus);
        let sum = |certain: bool| {
            let counted = processes
                .iter()
                .filter(|user| !certain || user.verdict == Verdict::Wide.name());
            // Not sum(), which makes -0 of nothing.
            let sum = counted.fold(0.0, |sum, user| sum + user.cpus);
            sum.min(cpus as f64)
        };
        Ok(Users {
            method: self.collector.method().name(),
            why_not_better: self.fallback.clone(),
            wide: sum(true),
            at_most: sum(false),
            processes,
        })
    }
}

/// Processes that use wide registers, or may. A time slice that began before the interval is counted in
/// it, and polling charges a thread that is new with all that it ever did: no user is said to have
/// had more than its threads can have had.
fn users(rows: Vec<Row>, elapsed: Duration, cpus: usize) -> Vec<User> {
    let seconds = elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let user = |row: Row| {
        let Key::Process(pid) = row.key else {
            return None;
        };
        if matches!(row.finding.verdict, Verdict::Narrow | Verdict::Copies) {
            return None;
        }
        let most = row.threads.min(cpus) as f64;
        Some(User {
            pid,
            cpus: (row.total().as_secs_f64() / seconds).min(most),
            name: row.name,
            verdict: row.finding.verdict.name(),
        })
    };
    let users = rows.into_iter().filter_map(user);
    users.filter(|user| user.cpus >= LEAST).collect()
}

/// Less of a CPU would be shown as none.
const LEAST: f64 = 0.0005;

#[cfg(test)]
mod tests {
    use super::*;
    use widelane_usage::Finding;

    fn row(pid: u32, threads: usize, milliseconds: u64, verdict: Verdict) -> Row {
        let live = [0, milliseconds, 0, 0].map(Duration::from_millis);
        Row {
            key: Key::Process(pid),
            name: format!("process {pid}"),
            cgroup: None,
            processes: 1,
            threads,
            cpu: None,
            live,
            sampled: None,
            finding: Finding {
                verdict,
                why: String::new(),
            },
        }
    }

    #[test]
    fn no_user_has_more_than_there_is() {
        let rows = vec![
            row(1, 1, 60_000, Verdict::Wide),
            row(2, 9, 60_000, Verdict::Possible),
            row(3, 1, 500, Verdict::Unknown),
            row(4, 1, 900, Verdict::Copies),
            row(5, 1, 900, Verdict::Narrow),
            row(6, 1, 0, Verdict::Possible),
        ];
        let users = users(rows, Duration::from_secs(1), 4);
        let shares: Vec<_> = users.iter().map(|user| (user.pid, user.cpus)).collect();
        assert_eq!(shares, [(1, 1.0), (2, 4.0), (3, 0.5)]);
    }
}
