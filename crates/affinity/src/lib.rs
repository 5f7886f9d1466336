//! Sets of CPUs, on which of them a thread may run, and threads that take no signals.
//!
//! [`Cpus`] is a set of CPU numbers, read and written as the kernel does. [`allowed`] and [`allow`]
//! get and set the affinity of a thread, [`pin`] keeps the calling one on a single CPU.
//! [`siblings`] says which CPUs are hyperthreads of one core, [`cores`] lists all cores, and
//! [`kept_free`] the CPUs that are reserved for other work. [`thread_time`] and [`process_time`] say what
//! was used of them. [`without_signals`] starts a library's threads.
//!
//! What a CPU can do is `widelane-cpu`'s; who should run where is decided elsewhere.

#![forbid(unsafe_code)]

mod cpus;
mod signals;

pub use cpus::{Cpus, ParseCpusError};
pub use rustix::process::Pid;
pub use signals::without_signals;

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// The CPUs that a thread may use, by its number; `None` is the calling thread.
///
/// # Errors
///
/// When there is no such thread.
pub fn allowed(thread: Option<Pid>) -> io::Result<Cpus> {
    let set = sched_getaffinity(thread)?;
    let cpus = (0..Cpus::MOST).filter(|&cpu| set.is_set(cpu));
    // Stops at the last CPU of the set: calls of `run_wide` that migrate wait for this.
    Ok(cpus.take(set.count() as usize).collect())
}

/// Lets a thread, by its number, and what it will start run on these CPUs only; `None` is the
/// calling thread, which is on one of them when this returns.
///
/// # Errors
///
/// When there is no such thread, it belongs to another user, or none of the CPUs is online and in
/// its cpuset.
pub fn allow(thread: Option<Pid>, cpus: &Cpus) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(cpu));
    Ok(sched_setaffinity(thread, &set)?)
}

/// Keeps the calling thread, and what it will start, on one CPU.
///
/// # Errors
///
/// When that CPU is not online or not in the thread's cpuset.
pub fn pin(cpu: usize) -> io::Result<()> {
    // One that is too large leaves the set empty, which the kernel refuses as well.
    allow(None, &Cpus::from_iter([cpu]))
}

/// The CPUs that share a core with `cpu`, itself included.
pub fn siblings(cpu: usize) -> Cpus {
    listed(&format!("cpu{cpu}/topology/thread_siblings_list")).or(&Cpus::from_iter([cpu]))
}

/// The CPUs that the system keeps free of what others do: isolated, or without ticks.
pub fn kept_free() -> Cpus {
    listed("isolated").or(&listed("nohz_full"))
}

/// The cores that are online, each with its hyperthreads, in ascending order of their first. Where
/// `/sys` is not to be seen, each CPU counts as a core.
///
/// # Errors
///
/// When the kernel lists no CPU.
pub fn cores() -> io::Result<Vec<Cpus>> {
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

/// The CPUs that `/proc/stat` has a line of.
fn counted(stat: &str) -> Cpus {
    let cpu = |line: &str| line.strip_prefix("cpu")?.split(' ').next()?.parse().ok();
    let cpus = stat.lines().filter_map(cpu);
    cpus.filter(|&cpu: &usize| cpu < Cpus::MOST).collect()
}

/// Reads a list of CPUs; empty if the kernel has no such file.
fn listed(file: &str) -> Cpus {
    Cpus::read(&Path::new("/sys/devices/system/cpu").join(file)).unwrap_or_default()
}

/// CPU time of the calling thread: time that the CPU spends on other threads does not count.
pub fn thread_time() -> Duration {
    spent(ClockId::ThreadCPUTime)
}

/// CPU time of all threads of this process.
pub fn process_time() -> Duration {
    spent(ClockId::ProcessCPUTime)
}

fn spent(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_use_one_cpu() {
        let before = allowed(None).expect("its own affinity");
        let last = before.iter().last().expect("it runs somewhere");
        let pinned = std::thread::spawn(move || {
            pin(last).expect("it may run there");
            allowed(None)
        });
        let pinned = pinned.join().expect("no panic").expect("its own affinity");
        assert_eq!(pinned, Cpus::from_iter([last]));
        assert_eq!(allowed(None).expect("its own affinity"), before);
    }

    #[test]
    fn a_cpu_that_cannot_be_is_refused() {
        let before = allowed(None).expect("its own affinity");
        for cpu in [Cpus::MOST, usize::MAX] {
            assert!(pin(cpu).is_err(), "{cpu}");
        }
        assert_eq!(allowed(None).expect("its own affinity"), before);
    }

    #[test]
    fn a_cpu_is_its_own_sibling() {
        assert!(siblings(0).has(0));
        assert_eq!(siblings(Cpus::MOST - 1), Cpus::from_iter([Cpus::MOST - 1]));
    }

    #[test]
    fn without_sys_the_cpus_are_those_that_are_counted() {
        let stat = "cpu  9 0 9\ncpu0 4 0 4\ncpu2 5 0 5\ncpu99999 1\nintr 7\n";
        assert_eq!(counted(stat), "0,2".parse().expect("a list"));
        let cores = cores().expect("there are some");
        assert!(cores.iter().all(|core| !core.is_empty()));
        let online = cores.iter().fold(Cpus::default(), |all, core| all.or(core));
        let stat = fs::read_to_string("/proc/stat").expect("the kernel has it");
        assert_eq!(counted(&stat), online);
    }

    #[test]
    fn work_costs_the_time_of_its_thread_and_of_its_process() {
        let before = [thread_time(), process_time()];
        let mut x = 1u64;
        while [thread_time(), process_time()]
            .iter()
            .zip(before)
            .any(|(now, before)| *now == before)
        {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(thread_time() > before[0] && process_time() > before[1]);
    }
}
