//! What the system says of a server's processes.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use widelane_status::{Asked, NAME, Report, SIZE, SWITCH};

use super::{STEP, eventually};

/// A process of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process(pub i32);

impl Process {
    pub fn signal(self, signal: Signal) {
        let pid = Pid::from_raw(self.0).expect("a number of a process");
        kill_process(pid, signal).expect("a process of ours");
    }

    /// The only child of this process, once there is one: servers listen before they start it.
    pub fn only_child(self) -> Self {
        eventually("it has a child", || !self.children().is_empty());
        let children = self.children();
        assert_eq!(children.len(), 1, "{children:?}");
        *children.first().expect("one")
    }

    /// Whether it has not ended; one that has ended may still be waited for.
    pub fn runs(self) -> bool {
        let maps = std::fs::read(format!("/proc/{}/maps", self.0));
        maps.is_ok_and(|maps| !maps.is_empty())
    }

    pub fn children(self) -> BTreeSet<Self> {
        let list = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.0));
        let list = list.unwrap_or_default();
        list.split_whitespace()
            .filter_map(|pid| pid.parse().ok().map(Self))
            .collect()
    }

    /// This process and all below it.
    pub fn family(self) -> Vec<Self> {
        let mut family = vec![self];
        let mut next = 0;
        while let Some(one) = family.get(next) {
            family.extend(one.children());
            next += 1;
        }
        family
    }

    pub fn descriptors(self) -> usize {
        let all = std::fs::read_dir(format!("/proc/{}/fd", self.0));
        all.expect("a process that runs").count()
    }

    /// Waits until the process does nothing: an event that is never taken back would keep it busy.
    pub fn becomes_idle(self) {
        let mut before = self.ticks();
        eventually("the process becomes idle", || {
            std::thread::sleep(20 * STEP);
            let now = self.ticks();
            std::mem::replace(&mut before, now) == now
        });
    }

    /// The time that it has run on CPUs, in ticks of 10 ms.
    fn ticks(self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0));
        let stat = stat.expect("a process that runs");
        let (_, fields) = stat.rsplit_once(')').expect("its name is in parentheses");
        // User and system time; the first field here is the third of all.
        let times = fields.split_whitespace().skip(11).take(2);
        times
            .map(|ticks| ticks.parse::<u64>().expect("a number"))
            .sum()
    }

    /// Resident memory in KiB.
    pub fn resident(self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0));
        let status = status.expect("a process that runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number
            .and_then(|number| number.parse().ok())
            .expect("a number of KiB")
    }

    /// How many areas as those below suspended stacks there are: 64 KiB without any access.
    pub fn guard_areas(self) -> usize {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.0));
        let is_guard = |line: &&str| {
            let Some((range, rest)) = line.split_once(' ') else {
                return false;
            };
            let range = range.split('-').map(|end| u64::from_str_radix(end, 16));
            let ends: Vec<_> = range.map_while(Result::ok).collect();
            rest.starts_with("---p") && matches!(ends[..], [from, to] if to - from == 64 * 1024)
        };
        let maps = maps.expect("a process that runs");
        maps.lines().filter(is_guard).count()
    }

    /// Its page of counters, and where in its memory that is.
    fn page(self) -> (File, u64) {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.0));
        let maps = maps.expect("a process that runs");
        let page = maps.lines().find(|line| line.contains(NAME));
        let start = page.and_then(|line| line.split('-').next());
        let start = start.and_then(|text| u64::from_str_radix(text, 16).ok());
        let mut options = File::options();
        let memory = options.read(true).write(true);
        let memory = memory.open(format!("/proc/{}/mem", self.0));
        (memory.expect("root may"), start.expect("a page"))
    }

    /// What it has counted.
    pub fn counts(self) -> Report {
        let (memory, start) = self.page();
        let mut bytes = vec![0; SIZE];
        memory.read_exact_at(&mut bytes, start).expect("a page");
        Report::parse(&bytes).expect("a whole page")
    }

    /// How many jobs of this operation its passes had on average; 0 if there was no pass.
    pub fn jobs_a_pass(self, operation: &str) -> f64 {
        let counted = self.counts().operations;
        let found = counted.iter().find(|one| one.name == operation);
        let totals = found.expect("an operation of ours").totals;
        totals.lanes_filled as f64 / totals.passes.max(1) as f64
    }

    /// Asks it for lanes, or for none.
    pub fn ask(self, asked: Asked) {
        let (memory, start) = self.page();
        let word = asked.to_word().to_ne_bytes();
        let written = memory.write_all_at(&word, start + SWITCH as u64);
        written.expect("a page");
    }

    /// Whether a file with this name is mapped.
    pub fn maps(self, library: &Path) -> bool {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.0));
        let name = library.to_str().expect("a path of text");
        maps.is_ok_and(|maps| maps.contains(name))
    }
}
