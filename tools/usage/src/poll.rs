//! The collector that needs no rights: it reads what `/proc` says of every thread.
//!
//! `arch_status` tells when the upper halves of registers or registers 16 to 31 were last found in
//! use (before Linux 5.16: or masks). A thread that was found so in an interval is charged with all
//! its CPU time of it: that is the most it can have been.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::account::{State, Thread, Use};
use crate::collect::{Interval, UsageError};
use crate::procfs::{self, Elapsed};

/// The state of polling.
pub(crate) struct Poll {
    root: PathBuf,
    times: CpuTimes,
    looked: Instant,
}

impl Poll {
    /// Looks for the first time. `root` is `/proc`.
    pub(crate) fn open(root: &Path) -> Result<Self, UsageError> {
        let own = root.join("thread-self/arch_status");
        let text = fs::read_to_string(&own).map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound => UsageError::NoArchStatus,
            _ => UsageError::Read { path: own, cause },
        })?;
        if procfs::elapsed(&text) == Elapsed::Unsaid {
            return Err(UsageError::NoAvx512);
        }
        Ok(Self {
            root: root.to_owned(),
            times: CpuTimes::open(root)?,
            looked: Instant::now(),
        })
    }

    /// What happened since the last look.
    pub(crate) fn interval(&mut self) -> Result<Interval, UsageError> {
        let now = Instant::now();
        // The kernel counts in ticks: what happened right after the last look may seem earlier.
        let recent = now - self.looked + self.times.tick;
        let mut uses = Vec::new();
        let threads: HashSet<_> = threads(&self.root)?.into_iter().collect();
        for &thread in &threads {
            // A thread that has ended since is none.
            let spent = self.times.spent(thread).unwrap_or_default();
            if !spent.is_zero() && ago(&self.root, thread).is_some_and(|ago| ago <= recent) {
                uses.push(charged(&self.root, thread, spent));
            }
        }
        self.times.keep(|thread| threads.contains(thread));
        let elapsed = now - self.looked;
        self.looked = now;
        Ok(Interval {
            elapsed,
            uses,
            samples: None,
        })
    }
}

/// CPU time of threads since the last look at them.
pub(crate) struct CpuTimes {
    root: PathBuf,
    tick: Duration,
    before: HashMap<Thread, Duration>,
}

impl CpuTimes {
    /// Looks at every thread for the first time. `root` is `/proc`.
    pub(crate) fn open(root: &Path) -> Result<Self, UsageError> {
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let mut times = Self {
            root: root.to_owned(),
            tick: Duration::from_secs(1) / u32::try_from(ticks).unwrap_or(100),
            before: HashMap::new(),
        };
        for thread in threads(root)? {
            times.spent(thread);
        }
        Ok(times)
    }

    /// What a thread spent since the last look at it; of one that was never seen, all that it ever
    /// did. `None` if it has ended.
    pub(crate) fn spent(&mut self, thread: Thread) -> Option<Duration> {
        let now = self.total(&folder(&self.root, thread))?;
        let before = self.before.insert(thread, now).unwrap_or_default();
        // A smaller sum than before is that of a new thread with an old number.
        Some(now.checked_sub(before).unwrap_or(now))
    }

    /// Forgets threads.
    pub(crate) fn keep(&mut self, kept: impl Fn(&Thread) -> bool) {
        self.before.retain(|thread, _| kept(thread));
    }

    /// To the nanosecond where the kernel says it.
    fn total(&self, folder: &Path) -> Option<Duration> {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        if let Some(text) = read("schedstat") {
            return Some(Duration::from_nanos(procfs::run_time(&text)?));
        }
        let ticks = procfs::stat(&read("stat")?)?.ticks;
        Some(self.tick * u32::try_from(ticks).ok()?)
    }
}

fn folder(root: &Path, thread: Thread) -> PathBuf {
    let Thread { pid, tid } = thread;
    root.join(format!("{pid}/task/{tid}"))
}

/// Every thread there is.
fn threads(root: &Path) -> Result<Vec<Thread>, UsageError> {
    let mut threads = Vec::new();
    for pid in numbers(root)? {
        // A process that has ended since has none.
        let tids = numbers(&root.join(format!("{pid}/task"))).unwrap_or_default();
        threads.extend(tids.into_iter().map(|tid| Thread { pid, tid }));
    }
    Ok(threads)
}

/// Processes with registers in use not long ago, the latest first.
pub(crate) fn recently(root: &Path) -> Vec<u32> {
    let mut found: Vec<(Duration, u32)> = threads(root)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|thread| Some((ago(root, thread)?, thread.pid)))
        .filter(|(ago, _)| *ago <= NOT_LONG)
        .collect();
    found.sort_unstable();
    let mut seen = HashSet::new();
    found.retain(|(_, pid)| seen.insert(*pid));
    found.into_iter().map(|(_, pid)| pid).collect()
}

/// How long ago a thread's registers were found in use, if they ever were.
fn ago(root: &Path, thread: Thread) -> Option<Duration> {
    let file = folder(root, thread).join("arch_status");
    match procfs::elapsed(&fs::read_to_string(file).ok()?) {
        Elapsed::Unsaid | Elapsed::Never => None,
        Elapsed::Milliseconds(ago) => Some(Duration::from_millis(ago)),
    }
}

fn charged(root: &Path, thread: Thread, spent: Duration) -> Use {
    let mut live = [Duration::ZERO; 4];
    live[State::Undivided as usize] = spent;
    let (name, process, cgroup) = described(root, thread);
    Use {
        thread,
        name,
        process,
        cgroup,
        cpu: Some(spent),
        live,
        sampled: None,
    }
}

/// The name of a thread, that of its process, and its cgroup. A name is empty, and there is no
/// cgroup, if whose it is has ended.
pub(crate) fn described(root: &Path, thread: Thread) -> (String, String, Option<String>) {
    let name = |folder: &Path| {
        // A name is bytes, and need not be text.
        let bytes = fs::read(folder.join("comm")).unwrap_or_default();
        let name = String::from_utf8_lossy(&bytes);
        name.strip_suffix('\n').unwrap_or(&name).to_owned()
    };
    let process = root.join(thread.pid.to_string());
    let folder = folder(root, thread);
    // That of the process will do for a thread that has ended.
    let cgroup = fs::read_to_string(folder.join("cgroup"))
        .or_else(|_| fs::read_to_string(process.join("cgroup")))
        .ok();
    let cgroup = cgroup.and_then(|text| procfs::cgroup(&text).map(str::to_owned));
    (name(&folder), name(&process), cgroup)
}

/// The entries of a folder whose names are numbers.
fn numbers(folder: &Path) -> Result<Vec<u32>, UsageError> {
    let failed = |cause| UsageError::Read {
        path: folder.to_owned(),
        cause,
    };
    let entries = fs::read_dir(folder).map_err(failed)?;
    let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    Ok(entries.filter_map(number).collect())
}

/// Files of processes that had registers in use so lately are worth a look.
const NOT_LONG: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// A `/proc` of files.
    struct Proc(tempfile::TempDir);

    impl Proc {
        fn new() -> Self {
            let proc = Self(tempfile::tempdir().unwrap());
            proc.write("thread-self/arch_status", "AVX512_elapsed_ms:\t-1\n");
            proc
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.0.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn thread(&self, pid: u32, tid: u32, cpu_ms: u64, elapsed: &str) {
            let file = |name: &str| format!("{pid}/task/{tid}/{name}");
            self.write(&file("schedstat"), &format!("{} 0 0\n", cpu_ms * 1_000_000));
            let status = format!("AVX512_elapsed_ms:\t{elapsed}\n");
            self.write(&file("arch_status"), &status);
            self.write(&file("comm"), &format!("name-{tid}\n"));
            self.write(&file("cgroup"), "0::/group\n");
            self.write(&format!("{pid}/comm"), "process\n");
        }
    }

    fn charges(interval: &Interval) -> Vec<(u32, u64)> {
        let charge = |r#use: &Use| {
            let ms = r#use.live[State::Undivided as usize].as_millis();
            (r#use.thread.tid, u64::try_from(ms).unwrap())
        };
        let mut charges: Vec<_> = interval.uses.iter().map(charge).collect();
        charges.sort_unstable();
        charges
    }

    #[test]
    fn threads_are_charged_with_what_they_spent_since_the_last_look() {
        let proc = Proc::new();
        proc.thread(10, 10, 500, "0"); // wide and busy
        proc.thread(10, 11, 500, "0"); // wide, but idle from now on
        proc.thread(20, 20, 500, "-1"); // never wide
        proc.thread(30, 30, 500, "3600000"); // wide an hour ago
        proc.thread(40, 40, 500, "0"); // its number is given to another
        let mut poll = Poll::open(proc.0.path()).unwrap();
        proc.thread(10, 10, 530, "0");
        proc.thread(20, 20, 900, "-1");
        proc.thread(30, 30, 900, "3600000");
        proc.thread(40, 40, 7, "0");
        proc.thread(50, 50, 9, "0"); // new
        let interval = poll.interval().unwrap();
        assert_eq!(charges(&interval), [(10, 30), (40, 7), (50, 9)]);
        let first = interval.uses.iter().find(|r#use| r#use.thread.tid == 10);
        let first = first.unwrap();
        assert_eq!((&*first.name, &*first.process), ("name-10", "process"));
        assert_eq!(first.cgroup.as_deref(), Some("/group"));
        assert_eq!(first.cpu, Some(Duration::from_millis(30)));
        assert!(poll.interval().unwrap().uses.is_empty());
    }

    #[test]
    fn a_process_keeps_its_name_when_a_thread_of_it_has_ended() {
        let proc = Proc::new();
        proc.thread(10, 10, 500, "0");
        proc.write("10/cgroup", "0::/group\n");
        let ended = Thread { pid: 10, tid: 11 };
        let (name, process, cgroup) = described(proc.0.path(), ended);
        assert_eq!((&*name, &*process), ("", "process"));
        assert_eq!(cgroup.as_deref(), Some("/group"));
    }

    #[test]
    fn the_latest_users_are_told_first_and_those_of_long_ago_not() {
        let proc = Proc::new();
        proc.thread(10, 10, 500, "900");
        proc.thread(10, 11, 500, "3600000");
        proc.thread(20, 20, 500, "-1");
        proc.thread(30, 30, 500, "3600000");
        proc.thread(40, 40, 500, "7");
        assert_eq!(recently(proc.0.path()), [40, 10]);
    }

    #[test]
    fn without_schedstat_the_ticks_count() {
        let proc = Proc::new();
        let stat =
            |ticks: u64| format!("7 (x y) R 1 7 7 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 99 0 0\n");
        proc.thread(7, 7, 0, "0");
        fs::remove_file(proc.0.path().join("7/task/7/schedstat")).unwrap();
        proc.write("7/task/7/stat", &stat(50));
        let mut poll = Poll::open(proc.0.path()).unwrap();
        proc.write("7/task/7/stat", &stat(52));
        let tick = u64::try_from(poll.times.tick.as_millis()).unwrap();
        assert_eq!(charges(&poll.interval().unwrap()), [(7, 2 * tick)]);
    }

    #[test]
    fn machines_that_say_nothing_are_refused_with_the_reason() {
        let proc = Proc::new();
        proc.write("thread-self/arch_status", "x86_Thread_features:\n");
        assert!(matches!(
            Poll::open(proc.0.path()),
            Err(UsageError::NoAvx512)
        ));
        fs::remove_file(proc.0.path().join("thread-self/arch_status")).unwrap();
        assert!(matches!(
            Poll::open(proc.0.path()),
            Err(UsageError::NoArchStatus)
        ));
    }

    #[test]
    fn this_machine_can_be_polled_or_says_why_not() {
        match Poll::open(Path::new("/proc")) {
            Ok(mut poll) => assert!(poll.interval().unwrap().elapsed > Duration::ZERO),
            Err(error @ (UsageError::NoAvx512 | UsageError::NoArchStatus)) => {
                eprintln!("SKIP: {error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
