//! Groups in which threads compete, as the kernel weighs them.

use crate::fairness::{GroupId, Groups};
use crate::tasks::Task;
use std::collections::HashMap;
use widelane_threads::{Proc, Thread, Weights};

/// The groups of processes, read anew every few rounds: a service manager moves a process shortly
/// after its start.
pub(crate) struct Memberships {
    proc: Proc,
    weights: Weights,
    known: HashMap<i32, Membership>,
    rounds: u32,
}

/// The group of a process.
#[derive(Clone, Debug, Default, PartialEq)]
struct Membership {
    /// The control groups around it that have a weight, the outermost first.
    cgroups: Vec<(String, f64)>,
    /// User that started the process. Within a control group, users have equal shares.
    user: u32,
}

impl Memberships {
    pub(crate) fn new() -> Self {
        Self::at(Proc::here(), Weights::new())
    }

    fn at(proc: Proc, weights: Weights) -> Self {
        Self {
            proc,
            weights,
            known: HashMap::new(),
            rounds: 0,
        }
    }

    /// The groups of these threads, and the one of each.
    pub(crate) fn of(&mut self, tasks: &[Task]) -> (Groups, Vec<GroupId>) {
        if self.rounds == 0 {
            self.known.clear();
            self.weights.forget();
        }
        self.rounds = (self.rounds + 1) % KNOWN_FOR;
        let mut groups = Groups::new();
        let mut cgroups: HashMap<String, GroupId> = HashMap::new();
        let mut users: HashMap<(GroupId, u32), GroupId> = HashMap::new();
        let mut processes: HashMap<i32, GroupId> = HashMap::new();
        let mut of_task = |task: &Task| {
            if let Some(known) = processes.get(&task.pid) {
                return *known;
            }
            let membership = self.read(task.pid);
            let mut group = GroupId::ROOT;
            for (name, weight) in &membership.cgroups {
                let add = || groups.add(group, *weight);
                group = *cgroups.entry(name.clone()).or_insert_with(add);
            }
            let user = (group, membership.user);
            let add = || groups.add(group, Groups::USUAL);
            let group = *users.entry(user).or_insert_with(add);
            processes.insert(task.pid, group);
            group
        };
        let of_tasks = tasks.iter().map(&mut of_task).collect();
        (groups, of_tasks)
    }

    fn read(&mut self, pid: i32) -> Membership {
        if let Some(known) = self.known.get(&pid) {
            return known.clone();
        }
        let number = u32::try_from(pid).unwrap_or_default();
        let cgroups = self.proc.cgroups(Thread::first_of(number));
        let membership = Membership {
            cgroups: cgroups.map_or_else(Vec::new, |cgroups| self.weights.of(&cgroups)),
            user: self.proc.user(number).unwrap_or_default(),
        };
        self.known.insert(pid, membership.clone());
        membership
    }
}

/// Rounds.
const KNOWN_FOR: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::ThreadId;
    use std::fs;
    use std::path::Path;
    use widelane_affinity::Cpus;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn task(tid: i32, pid: i32) -> Task {
        Task {
            id: ThreadId { tid, start: 1 },
            pid,
            parent: 1,
            session: 1,
            name: "t".into(),
            mask: Cpus::ALL,
            ran: 0,
            waited: 0,
        }
    }

    /// A `/proc/PID/status` with what every kernel says.
    fn status(user: u32) -> String {
        let own = fs::read_to_string("/proc/self/status").unwrap();
        let line = |line: &str| match line.starts_with("Uid:") {
            true => format!("Uid:\t{user}\t0\t0\t0\n"),
            false => format!("{line}\n"),
        };
        own.lines().map(line).collect()
    }

    #[test]
    fn threads_compete_by_control_group_and_within_it_by_user() {
        let root = tempfile::tempdir().unwrap();
        let (proc, mount) = (root.path().join("proc"), root.path().join("cgroup"));
        write(&mount.join("web/cpu.weight"), "300\n");
        for (pid, group, user) in [(10, "/web", 7), (20, "/", 7), (30, "/", 8), (40, "/", 8)] {
            let folder = proc.join(pid.to_string());
            write(&folder.join("status"), &status(user));
            write(&folder.join(format!("task/{pid}/cgroup")), &format!("0::{group}\n"));
        }
        let weights = Weights::below(&mount, &root.path().join("none"));
        let mut memberships = Memberships::at(Proc::at(&proc), weights);
        let tasks = [(10, 10), (11, 10), (20, 20), (30, 30), (40, 40)].map(|(t, p)| task(t, p));
        let (groups, of) = memberships.of(&tasks);
        assert_eq!(of[0], of[1], "one process");
        assert_eq!(of[3], of[4], "one user");
        assert!(of[0] != of[2] && of[2] != of[3]);
        // 300 for the service, 100 for each of the two users beside it.
        let mut demand = vec![0.0; 16];
        let (service, user) = (of[0].at(), of[2].at());
        for group in &of {
            demand[group.at()] = 50.0;
        }
        let due = groups.due(&demand, 5.0);
        assert!((due[service] - 3.0).abs() < 1e-9, "{due:?}");
        assert!((due[user] - 1.0).abs() < 1e-9, "{due:?}");
    }
}
