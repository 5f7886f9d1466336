//! Threads and cores, as the kernel shows them under `/proc` and `/sys`.

use crate::policy::ThreadId;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};
use widelane_affinity::{Cpus, Pid, allow, allowed, pin, siblings};

/// One thread at one moment.
#[derive(Clone, Debug)]
pub struct Task {
    /// Which.
    pub id: ThreadId,
    /// Its process.
    pub pid: i32,
    /// The parent of its process.
    pub parent: i32,
    /// The session of its process.
    pub session: i32,
    /// Its name.
    pub name: String,
    /// Where it may run now.
    pub mask: Cpus,
    /// Nanoseconds in which it has run so far.
    pub ran: u64,
    /// Nanoseconds in which it has waited for a CPU so far.
    pub waited: u64,
}

/// The threads of all processes that this user may steer, oldest first.
///
/// Left out, since nobody else may or should move them: kernel threads and threads bound by the
/// kernel, real-time threads, process 1 and this process, and without root other users' processes.
/// Threads that end meanwhile are left out too.
pub(crate) fn tasks() -> io::Result<Vec<Task>> {
    let user = rustix::process::geteuid();
    let own = std::process::id() as i32;
    let mut tasks = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = decimal(&entry.file_name().to_string_lossy()) else {
            continue;
        };
        let mine = || entry.metadata().is_ok_and(|m| m.uid() == user.as_raw());
        if pid == INIT || pid == own || !(user.is_root() || mine()) {
            continue;
        }
        // The process may be gone by now.
        for thread in fs::read_dir(entry.path().join("task"))
            .into_iter()
            .flatten()
        {
            tasks.extend(thread.ok().and_then(|thread| task(pid, &thread.path())));
        }
    }
    tasks.sort_unstable_by_key(|task: &Task| (task.id.start, task.id.tid));
    Ok(tasks)
}

/// When `tid` started, if there is such a thread.
pub(crate) fn start_of(tid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    Stat::parse(&text).map(|stat| stat.start)
}

/// This process.
pub(crate) fn own_id() -> io::Result<ThreadId> {
    let tid = std::process::id() as i32;
    let start = start_of(tid).ok_or_else(|| io::Error::other("/proc shows no process of ours"))?;
    Ok(ThreadId { tid, start })
}

/// The session of this process; 0 if it cannot be told, or if its leader is outside of this PID
/// namespace.
pub(crate) fn own_session() -> i32 {
    // As everybody's else: rustix's `getsid` takes the kernel's 0 for impossible and panics.
    let stat = fs::read_to_string("/proc/self/stat").ok();
    stat.and_then(|text| Stat::parse(&text))
        .map_or(0, |stat| stat.session)
}

/// This boot, by a number that no other boot has.
pub(crate) fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

/// The affinity of a thread.
pub(crate) fn affinity(tid: i32) -> io::Result<Cpus> {
    allowed(Some(valid(tid)?))
}

/// Sets the affinity of a thread, if it is still the one that is meant.
pub(crate) fn set_affinity(id: ThreadId, cpus: &Cpus) -> io::Result<()> {
    if start_of(id.tid) != Some(id.start) {
        return Err(rustix::io::Errno::SRCH.into());
    }
    allow(Some(valid(id.tid)?), cpus)
}

/// How long it takes to move a thread to another CPU: the median of some moves. `None` where there
/// is no other.
pub(crate) fn time_of_a_move() -> Option<Duration> {
    // A thread of its own, so that the caller's affinity stays as it is.
    let moves = || {
        let own = allowed(None).ok()?;
        let mut cpus = own.iter();
        let ends = [cpus.next()?, cpus.next()?];
        let mut times = Vec::new();
        for &to in ends.iter().cycle().take(MOVES) {
            let began = Instant::now();
            pin(to).ok()?;
            times.push(began.elapsed());
        }
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    };
    std::thread::spawn(moves).join().ok().flatten()
}

/// The cores that are online, each with its hyperthreads, in ascending order of their first.
pub(crate) fn cores() -> io::Result<Vec<Cpus>> {
    let online = Cpus::read(Path::new("/sys/devices/system/cpu/online"))?;
    let mut cores: Vec<Cpus> = Vec::new();
    for cpu in online.iter() {
        if !cores.iter().any(|core| core.has(cpu)) {
            cores.push(siblings(cpu).and(&online));
        }
    }
    Ok(cores)
}

/// The name of the cpuset that a thread is in.
pub(crate) fn cpuset_of(tid: i32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{tid}/cpuset")).ok()?;
    Some(name.trim().to_owned())
}

/// The CPUs that a cpuset allows, if the kernel shows them to us.
///
/// Groups without settings of their own have no file; their nearest ancestor's holds for them.
pub(crate) fn cpuset_cpus(name: &str) -> Option<Cpus> {
    let name = name.trim_matches('/');
    if name.split('/').any(|part| part == "..") {
        // Outside our control group namespace.
        return None;
    }
    for (folder, file) in [
        ("/sys/fs/cgroup", "cpuset.cpus.effective"),
        ("/sys/fs/cgroup/cpuset", "cpuset.effective_cpus"),
        ("/sys/fs/cgroup/unified", "cpuset.cpus.effective"),
    ] {
        let group = Path::new(folder).join(name);
        let groups = group
            .ancestors()
            .take_while(|group| group.starts_with(folder));
        for group in groups {
            if let Ok(text) = fs::read_to_string(group.join(file)) {
                return list(&text).filter(|cpus| !cpus.is_empty());
            }
        }
    }
    None
}

fn task(pid: i32, folder: &Path) -> Option<Task> {
    let tid = decimal(&folder.file_name()?.to_string_lossy())?;
    let stat = Stat::parse(&fs::read_to_string(folder.join("stat")).ok()?)?;
    if stat.flags & KERNEL_BOUND != 0 || !ORDINARY.contains(&stat.policy) || stat.dead {
        return None;
    }
    // Without this file, the coarse count of `stat` must do, and waiting is not seen.
    let times = fs::read_to_string(folder.join("schedstat")).ok();
    let times = times.as_deref().and_then(schedstat);
    let (ran, waited) = times.unwrap_or((stat.ticks * NANOSECONDS_A_TICK, 0));
    Some(Task {
        id: ThreadId {
            tid,
            start: stat.start,
        },
        pid,
        parent: stat.parent,
        session: stat.session,
        name: stat.name,
        mask: affinity(tid).ok()?,
        ran,
        waited,
    })
}

/// What is needed of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    dead: bool,
    parent: i32,
    session: i32,
    flags: u64,
    ticks: u64,
    start: u64,
    policy: u64,
}

impl Stat {
    /// The name is in parentheses and may hold any character, parentheses too.
    fn parse(text: &str) -> Option<Self> {
        let (before, after) = text.rsplit_once(") ")?;
        let (_, name) = before.split_once(" (")?;
        let fields: Vec<&str> = after.split_whitespace().collect();
        // Numbered as in proc_pid_stat(5), where the state is field 3.
        let field = |number: usize| fields.get(number - 3).copied();
        let count = |number: usize| field(number)?.parse::<u64>().ok();
        Some(Self {
            name: name.to_owned(),
            dead: matches!(field(3)?, "Z" | "X" | "x"),
            parent: field(4)?.parse().ok()?,
            session: field(6)?.parse().ok()?,
            flags: count(9)?,
            ticks: count(14)? + count(15)?,
            start: count(22)?,
            policy: count(41)?,
        })
    }
}

fn schedstat(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn list(text: &str) -> Option<Cpus> {
    text.trim().parse().ok()
}

fn decimal(text: &str) -> Option<i32> {
    text.parse().ok().filter(|&number| number > 0)
}

fn valid(tid: i32) -> io::Result<Pid> {
    Pid::from_raw(tid).ok_or_else(|| io::Error::other("0 is no thread"))
}

const MOVES: usize = 21;
const INIT: i32 = 1;
/// `PF_KTHREAD`, and `PF_NO_SETAFFINITY` of workers that the kernel made within a process.
const KERNEL_BOUND: u64 = 0x0020_0000 | 0x0400_0000;
/// `SCHED_OTHER`, `SCHED_BATCH`, `SCHED_IDLE`, `SCHED_EXT`.
const ORDINARY: [u64; 4] = [0, 3, 5, 7];
/// On Linux, a tick of `/proc` is a hundredth of a second for every program.
const NANOSECONDS_A_TICK: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let text = "7108 (a) R (b) S 7099 7 28388 0 -1 4194304 98 0 0 0 3 4 0 0 20 0 1 0 2556986 \
            3133440 354 18446744073709551615 1 1 1 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n";
        let stat = Stat::parse(text).unwrap();
        assert_eq!(stat.name, "a) R (b");
        assert_eq!(
            (stat.parent, stat.session, stat.start),
            (7099, 28388, 2556986)
        );
        assert_eq!((stat.ticks, stat.policy, stat.flags), (7, 0, 4194304));
        for end in 0..text.len() - 20 {
            assert_eq!(Stat::parse(&text[..end]), None, "{end}");
        }
    }

    #[test]
    fn times_are_read_or_not() {
        assert_eq!(schedstat("81021 71187 2\n"), Some((81021, 71187)));
        assert_eq!(schedstat("81021\n"), None);
        assert_eq!(schedstat("a b c\n"), None);
    }

    #[test]
    fn this_machine_has_cores_and_this_process_a_start() {
        let cores = cores().unwrap();
        assert!(!cores.is_empty() && cores.iter().all(|core| !core.is_empty()));
        let own = own_id().unwrap();
        assert_eq!(start_of(own.tid), Some(own.start));
        assert!(tasks().unwrap().iter().all(|task| task.pid != own.tid));
    }

    #[test]
    fn a_cpuset_is_looked_up_from_the_inside_out() {
        let own = cpuset_of(std::process::id() as i32).unwrap();
        let cpus = cpuset_cpus(&own);
        assert!(cpus.is_none_or(|cpus| affinity(std::process::id() as i32).unwrap().within(&cpus)));
        assert_eq!(cpuset_cpus("/../outside"), None);
    }

    #[test]
    fn a_thread_with_another_start_is_not_touched() {
        let mut id = own_id().unwrap();
        id.start += 1;
        let error = set_affinity(id, &Cpus::ALL).unwrap_err();
        assert_eq!(
            error.raw_os_error(),
            Some(rustix::io::Errno::SRCH.raw_os_error())
        );
    }
}
