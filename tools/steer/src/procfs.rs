//! Threads and cores, as the kernel shows them under `/proc` and `/sys`.

use crate::policy::ThreadId;
use rustix::time::{ClockId, clock_gettime};
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
    Stat::read(Path::new(&format!("/proc/{tid}"))).map(|stat| stat.start)
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
    Stat::read(Path::new("/proc/self")).map_or(0, |stat| stat.session)
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

/// The cores that are online, each with its hyperthreads, in ascending order of their first. Where
/// `/sys` is not to be seen, each CPU counts as a core.
pub(crate) fn cores() -> io::Result<Vec<Cpus>> {
    let online = match Cpus::read(Path::new("/sys/devices/system/cpu/online")) {
        Ok(online) => online,
        Err(_) => counted(&fs::read_to_string("/proc/stat")?),
    };
    if online.is_empty() {
        let none = "neither /sys/devices/system/cpu nor /proc/stat lists any";
        return Err(io::Error::other(none));
    }
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

/// What this process has used of CPUs so far.
pub(crate) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The signals that this process ignores, signal 1 in the lowest bit. None if the system does not
/// tell.
pub(crate) fn ignored_signals() -> u64 {
    let status = fs::read("/proc/self/status").unwrap_or_default();
    ignored(&String::from_utf8_lossy(&status)).unwrap_or(0)
}

fn task(pid: i32, folder: &Path) -> Option<Task> {
    let tid = decimal(&folder.file_name()?.to_string_lossy())?;
    let stat = Stat::read(folder)?;
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
    /// That of a process or thread, by its folder.
    fn read(folder: &Path) -> Option<Self> {
        // The name in it is bytes, and need not be text.
        let bytes = fs::read(folder.join("stat")).ok()?;
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

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

fn ignored(status: &str) -> Option<u64> {
    let mask = |line: &str| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok();
    status.lines().find_map(mask)
}

/// The CPUs that `/proc/stat` has a line of.
fn counted(stat: &str) -> Cpus {
    let cpu = |line: &str| line.strip_prefix("cpu")?.split(' ').next()?.parse().ok();
    let cpus = stat.lines().filter_map(cpu);
    cpus.filter(|&cpu: &usize| cpu < Cpus::MOST).collect()
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
    fn a_name_need_not_be_text() {
        let folder = tempfile::tempdir().unwrap();
        let fields = "R 1 7 7 0 -1 0 0 0 0 0 3 4 0 0 20 0 1 0 99 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 \
            17 1 0 0\n";
        let text = [&b"7 (\xff\xfe) "[..], fields.as_bytes()].concat();
        fs::write(folder.path().join("stat"), text).unwrap();
        let stat = Stat::read(folder.path()).unwrap();
        assert_eq!((stat.start, stat.ticks), (99, 7));
    }

    #[test]
    fn without_sys_the_cpus_are_those_that_are_counted() {
        let stat = "cpu  9 0 9\ncpu0 4 0 4\ncpu2 5 0 5\ncpu99999 1\nintr 7\n";
        assert_eq!(counted(stat), "0,2".parse().unwrap());
        let online = cores().unwrap();
        let online = online
            .iter()
            .fold(Cpus::default(), |all, core| all.or(core));
        assert_eq!(counted(&fs::read_to_string("/proc/stat").unwrap()), online);
    }

    #[test]
    fn ignored_signals_are_read_or_none() {
        assert_eq!(
            ignored("Name:\tx\nSigIgn:\t0000000180000001\n"),
            Some(0x1_8000_0001)
        );
        assert_eq!(ignored("SigIgn:\tx\n"), None);
        assert_eq!(ignored(""), None);
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
