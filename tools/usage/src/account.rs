//! Makes the rows of a table from the use of threads. Pure functions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use widelane_text::named;
use widelane_threads::{Container, Thread, unit};

use crate::interval::{Interval, Sampled, State, Use};

named! {
    /// Verdict on the use of 512-bit registers by a process, from the weakest to the strongest.
    #[derive(PartialOrd, Ord)]
    pub enum Verdict {
        /// No: it has no such code, or was never found in it.
        Narrow = "narrow",
        /// The process has such code, probably only in memory and string functions of the C library.
        Copies = "copies",
        /// The code of the process could not be looked at.
        Unknown = "unknown",
        /// The process has such code; whether it ran is not known.
        Possible = "possible",
        /// Yes.
        Wide = "wide",
    }
}

/// A verdict and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The verdict.
    pub verdict: Verdict,
    /// The reason, in words.
    pub why: String,
}

/// Subject of a table's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Processes.
    Process,
    /// Threads.
    Thread,
    /// Cgroups.
    Cgroup,
    /// Containers; where there is none, systemd units; where there is none either, cgroups.
    Container,
}

/// Subject of a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A process.
    Process(u32),
    /// A thread.
    Thread(Thread),
    /// A cgroup, container or unit.
    Group(String),
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Subject of the row.
    pub key: Key,
    /// Name of the process or thread; of a group, of the process with the strongest verdict.
    pub name: String,
    /// The cgroup, where the row is about a single process or thread.
    pub cgroup: Option<String>,
    /// Processes in it.
    pub processes: usize,
    /// Threads in it.
    pub threads: usize,
    /// Sum of [`Use::cpu`], if it is known of all.
    pub cpu: Option<Duration>,
    /// Sum of [`Use::live`].
    pub live: [Duration; 4],
    /// Sum of [`Use::sampled`].
    pub sampled: Option<Sampled>,
    /// Finding of the process; for a group, that of the process with the strongest.
    pub finding: Finding,
}

impl Row {
    /// Time of all states.
    pub fn total(&self) -> Duration {
        self.live.iter().sum()
    }
}

/// Adds up what threads used, and sorts: the strongest verdict first, then the longest time. Rows
/// with less than a hundredth of the interval come after all others; those with nothing in use that
/// were never found in wide code are left out.
///
/// `findings` are those of processes; one without is [`Verdict::Unknown`].
pub fn grouped(interval: &Interval, findings: &HashMap<u32, Finding>, by: By) -> Vec<Row> {
    let mut groups: BTreeMap<Key, Vec<&Use>> = BTreeMap::new();
    for r#use in &interval.uses {
        groups.entry(key(r#use, by)).or_default().push(r#use);
    }
    let rows = groups.into_iter();
    let mut rows: Vec<_> = rows.map(|(key, members)| row(key, &members, findings)).collect();
    rows.retain(|row| {
        let wide = row.sampled.is_some_and(|sampled| sampled.wide > 0);
        wide || !row.total().is_zero()
    });
    let least = interval.elapsed / 100;
    rows.sort_by_key(|row| {
        let (upper, total) = (row.live[State::Upper as usize], row.total());
        std::cmp::Reverse((total >= least, row.finding.verdict, upper, total))
    });
    rows
}

fn key(r#use: &Use, by: By) -> Key {
    let cgroup = || r#use.cgroup.clone().unwrap_or_else(|| UNREADABLE.to_owned());
    match by {
        By::Process => Key::Process(r#use.thread.pid),
        By::Thread => Key::Thread(r#use.thread),
        By::Cgroup => Key::Group(cgroup()),
        By::Container => {
            let cgroup = cgroup();
            let container = Container::of(&cgroup).map(|container| container.to_string());
            let unit = || unit(&cgroup).map(str::to_owned);
            Key::Group(container.or_else(unit).unwrap_or(cgroup))
        }
    }
}

fn row(key: Key, members: &[&Use], findings: &HashMap<u32, Finding>) -> Row {
    let mut live = [Duration::ZERO; 4];
    let mut cpu = Some(Duration::ZERO);
    let mut sampled: Option<Sampled> = None;
    for member in members {
        for (sum, part) in live.iter_mut().zip(member.live) {
            *sum += part;
        }
        cpu = cpu.zip(member.cpu).map(|(sum, part)| sum + part);
        if let Some(part) = member.sampled {
            sampled.get_or_insert_default().add(part);
        }
    }
    let processes: BTreeSet<u32> = members.iter().map(|member| member.thread.pid).collect();
    let strength = |member: &&&Use| {
        let finding = findings.get(&member.thread.pid);
        let verdict = finding.map_or(Verdict::Unknown, |finding| finding.verdict);
        (verdict, member.live.iter().sum::<Duration>())
    };
    let first = members.iter().max_by_key(strength);
    let unread = || Finding {
        verdict: Verdict::Unknown,
        why: "it ended before it could be looked at".to_owned(),
    };
    let finding = first.and_then(|member| findings.get(&member.thread.pid).cloned());
    let name = first.map(|member| match key {
        Key::Thread(_) => member.name.clone(),
        Key::Process(_) | Key::Group(_) => member.process.clone(),
    });
    let cgroup = match key {
        Key::Group(_) => None,
        Key::Process(_) | Key::Thread(_) => first.and_then(|member| member.cgroup.clone()),
    };
    Row {
        name: name.unwrap_or_default(),
        key,
        cgroup,
        processes: processes.len(),
        threads: members.len(),
        cpu,
        live,
        sampled,
        finding: finding.unwrap_or_else(unread),
    }
}

/// Name of a cgroup that could not be read.
const UNREADABLE: &str = "(unknown)";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    fn used(pid: u32, tid: u32, cgroup: &str, live: [u32; 4]) -> Use {
        Use {
            thread: Thread { pid, tid },
            name: format!("thread-{tid}"),
            process: format!("process-{pid}"),
            cgroup: Some(cgroup.to_owned()),
            cpu: Some(100 * MS),
            live: live.map(|ms| ms * MS),
            sampled: None,
        }
    }

    fn rows(uses: &[Use], findings: &HashMap<u32, Finding>, by: By) -> Vec<Row> {
        let interval = Interval {
            elapsed: Duration::from_secs(1),
            uses: uses.to_vec(),
            samples: None,
        };
        grouped(&interval, findings, by)
    }

    fn findings(verdicts: &[(u32, Verdict)]) -> HashMap<u32, Finding> {
        let finding = |&(pid, verdict)| {
            let why = format!("reason of {pid}");
            (pid, Finding { verdict, why })
        };
        verdicts.iter().map(finding).collect()
    }

    #[test]
    fn a_wide_process_stands_before_busier_ones_that_copy() {
        let uses = [
            used(1, 1, "/a", [0, 900, 0, 0]),
            used(2, 2, "/a", [10, 0, 0, 0]),
            used(2, 3, "/a", [20, 5, 0, 0]),
            used(3, 3, "/b", [0, 50, 0, 0]),
        ];
        let findings = findings(&[(1, Verdict::Copies), (2, Verdict::Wide)]);
        let found = rows(&uses, &findings, By::Process);
        let keys: Vec<_> = found.iter().map(|row| row.key.clone()).collect();
        assert_eq!(keys, [2, 3, 1].map(Key::Process));
        assert_eq!(found[0].live, [30 * MS, 5 * MS, Duration::ZERO, Duration::ZERO]);
        assert_eq!((found[0].threads, found[0].cpu), (2, Some(200 * MS)));
        assert_eq!(found[0].name, "process-2");
        assert_eq!(found[1].finding.verdict, Verdict::Unknown);

        let found = rows(&uses, &findings, By::Cgroup);
        assert_eq!(found[0].key, Key::Group("/a".to_owned()));
        assert_eq!((found[0].processes, found[0].threads), (2, 3));
        assert_eq!(found[0].finding.why, "reason of 2");
        assert_eq!(found[0].name, "process-2");

        let found = rows(&uses, &findings, By::Thread);
        assert_eq!(found[0].key, Key::Thread(Thread { pid: 2, tid: 3 }));
        assert_eq!(found[0].cgroup.as_deref(), Some("/a"));
    }

    #[test]
    fn rows_that_hardly_used_any_come_last() {
        let uses = [used(1, 1, "/a", [0, 9, 0, 0]), used(2, 2, "/a", [0, 10, 0, 0])];
        let findings = findings(&[(1, Verdict::Wide), (2, Verdict::Copies)]);
        let found = rows(&uses, &findings, By::Process);
        let keys: Vec<_> = found.iter().map(|row| &row.key).collect();
        assert_eq!(keys, [&Key::Process(2), &Key::Process(1)]);
    }

    #[test]
    fn rows_without_any_use_are_left_out_unless_found_in_wide_code() {
        let mut uses = [used(1, 1, "/a", [0; 4]), used(2, 2, "/a", [0; 4])];
        uses[1].sampled = Some(Sampled {
            wide: 1,
            copies: 0,
            other: 9,
        });
        let found = rows(&uses, &HashMap::new(), By::Process);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].key, Key::Process(2));
    }

    #[test]
    fn containers_units_and_bare_cgroups_are_groups() {
        let docker = format!("/docker/{}", "ab".repeat(32));
        let uses = [
            used(1, 1, &docker, [30, 0, 0, 0]),
            used(2, 2, "/system.slice/nginx.service", [20, 0, 0, 0]),
            used(3, 3, "/", [10, 0, 0, 0]),
        ];
        let found = rows(&uses, &HashMap::new(), By::Container);
        let keys: Vec<_> = found.iter().map(|row| &row.key).collect();
        let group = |name: &str| Key::Group(name.to_owned());
        assert_eq!(
            keys,
            [&group("docker abababababab"), &group("nginx.service"), &group("/")]
        );
    }

    #[test]
    fn time_that_is_unknown_of_one_is_unknown_of_the_group() {
        let mut uses = [used(1, 1, "/a", [1; 4]), used(1, 2, "/a", [1; 4])];
        uses[1].cpu = None;
        assert_eq!(rows(&uses, &HashMap::new(), By::Process)[0].cpu, None);
        assert_eq!(rows(&uses, &HashMap::new(), By::Thread)[1].cpu, None);
        assert_eq!(rows(&uses[..1], &HashMap::new(), By::Process)[0].cpu, Some(100 * MS));
    }

    proptest! {
        /// However threads are grouped, no time is lost and none appears.
        #[test]
        fn time_is_conserved(
            parts in prop::collection::vec(
                (0u32..4, 0u32..9, 0u8..3, [1u32..1000, 0..1000, 0..1000, 0..1000]),
                0..40,
            )
        ) {
            let uses: Vec<_> = parts
                .iter()
                .map(|&(pid, tid, group, live)| used(pid, tid, &format!("/{group}"), live))
                .collect();
            let all: Duration = uses.iter().flat_map(|r#use| r#use.live).sum();
            for by in [By::Process, By::Thread, By::Cgroup, By::Container] {
                let found = rows(&uses, &HashMap::new(), by);
                prop_assert_eq!(found.iter().map(Row::total).sum::<Duration>(), all);
                prop_assert_eq!(found.iter().map(|row| row.threads).sum::<usize>(), uses.len());
            }
        }
    }
}
