//! The threads that may be steered, and what is done to them.

use crate::policy::ThreadId;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use widelane_affinity::{Cpus, Pid, allow, allowed, pin};
use widelane_threads::{Proc, Thread};

/// One thread at one moment.
#[derive(Clone, Debug)]
pub struct Task {
    /// Thread.
    pub id: ThreadId,
    /// Process of the thread.
    pub pid: i32,
    /// The parent of its process.
    pub parent: i32,
    /// The session of its process.
    pub session: i32,
    /// Name of the thread.
    pub name: String,
    /// CPUs on which the thread may run now.
    pub mask: Cpus,
    /// Nanoseconds in which it has run so far.
    pub ran: u64,
    /// Nanoseconds in which it has waited for a CPU so far.
    pub waited: u64,
}

/// The threads of all processes that this user may steer, oldest first.
///
/// Left out are threads that nothing but the kernel may or should move: kernel threads, threads
/// bound by the kernel, real-time threads, process 1 and this process; without root, also the
/// processes of other users. Threads that end meanwhile are left out too.
pub(crate) fn tasks() -> io::Result<Vec<Task>> {
    let proc = Proc::here();
    let user = rustix::process::geteuid();
    let own = std::process::id();
    let mut tasks = Vec::new();
    for pid in proc.processes()? {
        let folder = proc.root().join(pid.to_string());
        let mine = || fs::metadata(folder).is_ok_and(|folder| folder.uid() == user.as_raw());
        if pid == INIT || pid == own || !(user.is_root() || mine()) {
            continue;
        }
        let threads = proc.threads_of(pid);
        tasks.extend(threads.into_iter().filter_map(|thread| task(&proc, thread)));
    }
    tasks.sort_unstable_by_key(|task: &Task| (task.id.start, task.id.tid));
    Ok(tasks)
}

/// Time at which `tid` started, if there is such a thread.
pub(crate) fn start_of(tid: i32) -> Option<u64> {
    let stat = Proc::here().stat_of(u32::try_from(tid).ok()?)?;
    Some(stat.start)
}

/// The calling process.
pub(crate) fn own_id() -> io::Result<ThreadId> {
    let tid = std::process::id() as i32;
    let start = start_of(tid).ok_or_else(|| io::Error::other("/proc shows no process of ours"))?;
    Ok(ThreadId { tid, start })
}

/// Session of this process; 0 if it is not known, or if its leader is outside of this PID namespace.
pub(crate) fn own_session() -> i32 {
    // Reads the session as that of any other process: rustix's `getsid` panics at the kernel's 0.
    let stat = Proc::here().stat_of(std::process::id());
    stat.map_or(0, |stat| stat.session)
}

/// Number of this boot, which no other boot has.
pub(crate) fn boot() -> io::Result<String> {
    Ok(widelane_files::kernel_text("/proc/sys/kernel/random/boot_id")?
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

/// Measures the time to move a thread to another CPU: the median of some moves. `None` if there is no other.
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

fn task(proc: &Proc, thread: Thread) -> Option<Task> {
    let tid = i32::try_from(thread.tid).ok().filter(|&tid| tid > 0)?;
    let stat = proc.stat(thread)?;
    if stat.flags & KERNEL_BOUND != 0 || !ORDINARY.contains(&stat.policy) || stat.dead {
        return None;
    }
    let times = proc.times(thread)?;
    Some(Task {
        id: ThreadId { tid, start: stat.start },
        pid: i32::try_from(thread.pid).ok()?,
        parent: stat.parent,
        session: stat.session,
        name: stat.name,
        mask: affinity(tid).ok()?,
        ran: times.ran,
        waited: times.waited,
    })
}

fn valid(tid: i32) -> io::Result<Pid> {
    Pid::from_raw(tid).ok_or_else(|| io::Error::other("0 is no thread"))
}

const MOVES: usize = 21;
const INIT: u32 = 1;
/// `PF_KTHREAD`, and `PF_NO_SETAFFINITY` of workers that the kernel made within a process.
const KERNEL_BOUND: u32 = 0x0020_0000 | 0x0400_0000;
/// `SCHED_OTHER`, `SCHED_BATCH`, `SCHED_IDLE`, `SCHED_EXT`.
const ORDINARY: [u32; 4] = [0, 3, 5, 7];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_start_and_is_not_steered() {
        let own = own_id().unwrap();
        assert_eq!(start_of(own.tid), Some(own.start));
        assert!(tasks().unwrap().iter().all(|task| task.pid != own.tid));
    }

    #[test]
    fn a_thread_with_another_start_is_not_touched() {
        let mut id = own_id().unwrap();
        id.start += 1;
        let error = set_affinity(id, &Cpus::ALL).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::SRCH.raw_os_error()));
    }
}
