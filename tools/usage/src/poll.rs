//! The collector that needs no rights: it reads what `/proc` says of every thread.
//!
//! `arch_status` tells when the upper halves of registers or registers 16 to 31 were last found in
//! use (before Linux 5.16: or masks). A thread that was found so in an interval is charged with all
//! its CPU time of it: that is the most it can have been.

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

use widelane_threads::{Avx512, Proc, Thread};

use crate::error::UsageError;
use crate::interval::{Interval, State, Use};

/// The state of polling.
pub(crate) struct Poll {
    proc: Proc,
    times: CpuTimes,
    looked: Instant,
}

impl Poll {
    /// Looks for the first time.
    pub(crate) fn open(proc: Proc) -> Result<Self, UsageError> {
        let own = proc.own_avx512().map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound => UsageError::NoArchStatus,
            _ => UsageError::Read {
                path: proc.root().join("thread-self/arch_status"),
                cause,
            },
        })?;
        if own == Avx512::Unsaid {
            return Err(UsageError::NoAvx512);
        }
        Ok(Self {
            times: CpuTimes::open(&proc)?,
            looked: Instant::now(),
            proc,
        })
    }

    /// Use since the last look.
    pub(crate) fn interval(&mut self) -> Result<Interval, UsageError> {
        let now = Instant::now();
        // The kernel counts in ticks: what happened right after the last look may seem earlier.
        let recent = now - self.looked + tick();
        let mut uses = Vec::new();
        let threads: HashSet<_> = threads(&self.proc)?.into_iter().collect();
        for &thread in &threads {
            // A thread that has ended since is none.
            let spent = self.times.spent(&self.proc, thread).unwrap_or_default();
            if !spent.is_zero() && ago(&self.proc, thread).is_some_and(|ago| ago <= recent) {
                uses.push(charged(&self.proc, thread, spent));
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
    before: HashMap<Thread, Duration>,
}

impl CpuTimes {
    /// Looks at every thread for the first time.
    pub(crate) fn open(proc: &Proc) -> Result<Self, UsageError> {
        let mut times = Self { before: HashMap::new() };
        for thread in threads(proc)? {
            times.spent(proc, thread);
        }
        Ok(times)
    }

    /// CPU time of a thread since the last look at it; of one that was never seen, all so far. `None` if it has ended.
    pub(crate) fn spent(&mut self, proc: &Proc, thread: Thread) -> Option<Duration> {
        let now = Duration::from_nanos(proc.times(thread)?.ran);
        let before = self.before.insert(thread, now).unwrap_or_default();
        // A smaller sum than before is that of a new thread with an old number.
        Some(now.checked_sub(before).unwrap_or(now))
    }

    /// Forgets threads.
    pub(crate) fn keep(&mut self, kept: impl Fn(&Thread) -> bool) {
        self.before.retain(|thread, _| kept(thread));
    }
}

/// Every thread there is.
fn threads(proc: &Proc) -> Result<Vec<Thread>, UsageError> {
    proc.threads().map_err(|cause| UsageError::Read {
        path: proc.root().to_owned(),
        cause,
    })
}

/// Processes with registers in use not long ago, the latest first.
pub(crate) fn recently(proc: &Proc) -> Vec<u32> {
    let mut found: Vec<(Duration, u32)> = threads(proc)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|thread| Some((ago(proc, thread)?, thread.pid)))
        .filter(|(ago, _)| *ago <= NOT_LONG)
        .collect();
    found.sort_unstable();
    let mut seen = HashSet::new();
    found.retain(|(_, pid)| seen.insert(*pid));
    found.into_iter().map(|(_, pid)| pid).collect()
}

/// Time since a thread's registers were found in use, if they ever were.
fn ago(proc: &Proc, thread: Thread) -> Option<Duration> {
    match proc.avx512(thread)? {
        Avx512::Unsaid | Avx512::Never => None,
        Avx512::Milliseconds(ago) => Some(Duration::from_millis(ago)),
    }
}

fn charged(proc: &Proc, thread: Thread, spent: Duration) -> Use {
    let mut live = [Duration::ZERO; 4];
    live[State::Undivided as usize] = spent;
    let (name, process, cgroup) = described(proc, thread);
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
pub(crate) fn described(proc: &Proc, thread: Thread) -> (String, String, Option<String>) {
    let cgroups = proc.cgroups(thread);
    let cgroup = cgroups.and_then(|cgroups| cgroups.path().map(str::to_owned));
    (proc.name(thread), proc.process_name(thread.pid), cgroup)
}

/// The resolution of the kernel's `AVX512_elapsed_ms`.
fn tick() -> Duration {
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_secs(1) / u32::try_from(ticks).unwrap_or(100)
}

/// Files of processes that had registers in use so lately are worth a look.
const NOT_LONG: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A `/proc` of files.
    struct Files(tempfile::TempDir);

    impl Files {
        fn new() -> Self {
            let files = Self(tempfile::tempdir().unwrap());
            files.write("thread-self/arch_status", "AVX512_elapsed_ms:\t-1\n");
            files
        }

        fn proc(&self) -> Proc {
            Proc::at(self.0.path())
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
        let files = Files::new();
        files.thread(10, 10, 500, "0"); // wide and busy
        files.thread(10, 11, 500, "0"); // wide, but idle from now on
        files.thread(20, 20, 500, "-1"); // never wide
        files.thread(30, 30, 500, "3600000"); // wide an hour ago
        files.thread(40, 40, 500, "0"); // its number is given to another
        let mut poll = Poll::open(files.proc()).unwrap();
        files.thread(10, 10, 530, "0");
        files.thread(20, 20, 900, "-1");
        files.thread(30, 30, 900, "3600000");
        files.thread(40, 40, 7, "0");
        files.thread(50, 50, 9, "0"); // new
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
        let files = Files::new();
        files.thread(10, 10, 500, "0");
        files.write("10/cgroup", "0::/group\n");
        let ended = Thread { pid: 10, tid: 11 };
        let (name, process, cgroup) = described(&files.proc(), ended);
        assert_eq!((&*name, &*process), ("", "process"));
        assert_eq!(cgroup.as_deref(), Some("/group"));
    }

    #[test]
    fn the_latest_users_are_told_first_and_those_of_long_ago_not() {
        let files = Files::new();
        files.thread(10, 10, 500, "900");
        files.thread(10, 11, 500, "3600000");
        files.thread(20, 20, 500, "-1");
        files.thread(30, 30, 500, "3600000");
        files.thread(40, 40, 500, "7");
        assert_eq!(recently(&files.proc()), [40, 10]);
    }

    #[test]
    fn without_schedstat_the_ticks_count() {
        let files = Files::new();
        let rest = " 0".repeat(28);
        let stat = |ticks: u64| format!("7 (x y) R 1 7 7 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 99 0 0{rest}\n");
        files.thread(7, 7, 0, "0");
        fs::remove_file(files.0.path().join("7/task/7/schedstat")).unwrap();
        files.write("7/task/7/stat", &stat(50));
        let mut poll = Poll::open(files.proc()).unwrap();
        files.write("7/task/7/stat", &stat(52));
        assert_eq!(charges(&poll.interval().unwrap()), [(7, 20)]);
    }

    #[test]
    fn machines_that_say_nothing_are_refused_with_the_reason() {
        let files = Files::new();
        files.write("thread-self/arch_status", "x86_Thread_features:\n");
        assert!(matches!(Poll::open(files.proc()), Err(UsageError::NoAvx512)));
        fs::remove_file(files.0.path().join("thread-self/arch_status")).unwrap();
        assert!(matches!(Poll::open(files.proc()), Err(UsageError::NoArchStatus)));
    }

    #[test]
    fn this_machine_can_be_polled_or_says_why_not() {
        match Poll::open(Proc::here()) {
            Ok(mut poll) => assert!(poll.interval().unwrap().elapsed > Duration::ZERO),
            Err(error @ (UsageError::NoAvx512 | UsageError::NoArchStatus)) => {
                eprintln!("SKIP: {error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
