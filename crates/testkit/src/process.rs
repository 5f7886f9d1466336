//! Processes that end with the test, and facts of the kernel about any.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;

use rustix::process::{Pid, Signal, kill_process};
use widelane_status::{Asked, NAME, Report, SIZE, SWITCH};

use crate::wait::{STEP, eventually, until};

/// A child that ends with the test.
#[derive(Debug)]
pub struct Running(pub Child);

impl Running {
    /// Starts `command` without input and output.
    pub fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.stderr(Stdio::null()).spawn().expect("it starts"))
    }

    /// Number of the process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Number of the process, for command lines.
    pub fn pid(&self) -> String {
        self.id().to_string()
    }

    /// The process.
    pub fn process(&self) -> Process {
        Process(Pid::from_child(&self.0).as_raw_nonzero().get())
    }

    /// Panics if the process has ended.
    #[track_caller]
    pub fn assert_runs(&mut self) {
        let ended = self.0.try_wait().expect("a child of ours");
        assert!(ended.is_none(), "it has ended: {ended:?}");
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(Some(_)) | Err(_))
    }
}

/// Asks for an end, so that servers take their workers along, and ends what does not comply.
impl Drop for Running {
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        // A stopped process takes the first signal after the second.
        for signal in [Signal::TERM, Signal::CONT] {
            let _ = kill_process(Pid::from_child(&self.0), signal);
        }
        for _ in 0..500 {
            if self.has_ended() {
                return;
            }
            sleep(STEP);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Any process, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process(pub i32);

impl Process {
    /// Process that runs this code.
    pub fn own() -> Self {
        Self(rustix::process::getpid().as_raw_nonzero().get())
    }

    /// Sends a signal; the process may have ended.
    pub fn signal(self, signal: Signal) {
        let pid = Pid::from_raw(self.0).expect("a number of a process");
        let _ = kill_process(pid, signal);
    }

    /// Returns whether the process has not ended; one that has ended may still be waited for.
    pub fn runs(self) -> bool {
        self.file("maps").is_ok_and(|maps| !maps.is_empty())
    }

    /// Children of all its threads.
    pub fn children(self) -> BTreeSet<Self> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.0));
        let tasks = tasks.into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let lists: Vec<_> = lists.collect();
        let numbers = lists.iter().flat_map(|list| list.split_whitespace());
        numbers.filter_map(|pid| pid.parse().ok().map(Self)).collect()
    }

    /// The only child of this process, once there is one: servers listen before they start it.
    #[track_caller]
    pub fn only_child(self) -> Self {
        until("it has a child", || {
            let children = self.children();
            assert!(children.len() < 2, "{children:?}");
            children.first().copied()
        })
    }

    /// Lists this process and all that descend from it.
    pub fn family(self) -> Vec<Self> {
        let mut family = vec![self];
        let mut next = 0;
        while let Some(one) = family.get(next) {
            family.extend(one.children());
            next += 1;
        }
        family
    }

    /// Number of open descriptors.
    pub fn descriptors(self) -> usize {
        let all = fs::read_dir(format!("/proc/{}/fd", self.0));
        all.expect("a process that runs").count()
    }

    /// Returns whether one of its threads has this name.
    pub fn has_thread(self, name: &str) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.0)).expect("a process that runs");
        tasks.flatten().any(|task| {
            let comm = fs::read_to_string(task.path().join("comm"));
            comm.is_ok_and(|comm| comm.trim_end() == name)
        })
    }

    /// Resident memory in KiB.
    pub fn resident(self) -> u64 {
        self.status("VmRSS")
    }

    /// Number in a line of `/proc/PID/status`.
    pub fn status(self, field: &str) -> u64 {
        let status = self.file("status").expect("a process that runs");
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).expect("a number")
    }

    /// Waits until the process does nothing: an event that is never taken back would keep it busy.
    pub fn becomes_idle(self) {
        let mut before = self.ticks();
        eventually("the process becomes idle", || {
            sleep(20 * STEP);
            let now = self.ticks();
            std::mem::replace(&mut before, now) == now
        });
    }

    /// Time that it has run on CPUs, in ticks of 10 ms.
    fn ticks(self) -> u64 {
        let stat = self.file("stat").expect("a process that runs");
        let (_, fields) = stat.rsplit_once(')').expect("its name is in parentheses");
        // User and system time; the first field here is the third of all.
        let times = fields.split_whitespace().skip(11).take(2);
        times.map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
    }

    /// Returns whether a file is mapped whose name contains `name`.
    pub fn maps(self, name: &Path) -> bool {
        let name = name.to_str().expect("a path of text");
        self.file("maps").is_ok_and(|maps| maps.contains(name))
    }

    /// Counters of its lanes; `None` without a page, or after its end.
    pub fn counts(self) -> Option<Report> {
        let (memory, start) = self.page()?;
        let mut bytes = vec![0; SIZE];
        memory.read_exact_at(&mut bytes, start).ok()?;
        Report::parse(&bytes).ok()
    }

    /// Jobs that a pass of this operation had on average; 0 if there was no pass.
    pub fn jobs_a_pass(self, operation: &str) -> f64 {
        let counted = self.counts().expect("a page").operations;
        let found = counted.iter().find(|one| one.name == operation);
        let totals = found.expect("an operation of ours").totals;
        totals.lanes_filled as f64 / totals.passes.max(1) as f64
    }

    /// Asks it for lanes, or for none.
    pub fn ask(self, asked: Asked) {
        let (memory, start) = self.page().expect("a page that may be written");
        let word = asked.to_word().to_ne_bytes();
        let written = memory.write_all_at(&word, start + SWITCH as u64);
        written.expect("a page");
    }

    /// Memory of the process, and where in it the page of its counters is.
    pub fn page(self) -> Option<(File, u64)> {
        let maps = self.file("maps").ok()?;
        let page = maps.lines().find(|line| line.contains(NAME))?;
        let start = u64::from_str_radix(page.split('-').next()?, 16).ok()?;
        let mut options = File::options();
        let memory = options.read(true).write(true);
        let memory = memory.open(format!("/proc/{}/mem", self.0)).ok()?;
        Some((memory, start))
    }

    /// Text of a file in its folder of `/proc`.
    pub fn file(self, name: &str) -> std::io::Result<String> {
        fs::read_to_string(format!("/proc/{}/{name}", self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_seen_and_ends_with_its_value() {
        let running = Running::start(Command::new("sleep").arg("60"));
        let child = running.process();
        assert!(Process::own().family().contains(&child) && child.runs());
        child.signal(Signal::STOP);
        drop(running);
        assert!(!child.runs());
    }

    #[test]
    fn this_process_has_memory_and_descriptors() {
        let own = Process::own();
        assert!(own.resident() > 100 && own.descriptors() > 2);
        assert!(own.maps(&std::env::current_exe().expect("a program has a file")));
        assert_eq!(own.counts(), None);
    }
}
