//! The collector that looks at every context switch, by programs in the kernel.
//!
//! It reads the use of each thread from a map that they fill. When it is dropped, or its process
//! ends in whatever way, the kernel detaches and forgets the programs: nothing holds them but our
//! file descriptors.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use aya::maps::{HashMap as BpfMap, MapData, MapError};
use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::programs::{PerfEvent, ProgramError, RawTracePoint, TracePoint};
use aya::{Ebpf, EbpfLoader};
use widelane_affinity::Cpus;
use widelane_bpf::{map, persistently, program};
use widelane_threads::{Proc, Thread};

use crate::error::UsageError;
use crate::interval::{Interval, Sample, State, Use};
use crate::poll::{CpuTimes, described};

/// The programs, attached, and what was read last.
pub(crate) struct Watch {
    /// Holds the programs.
    _programs: Ebpf,
    threads: BpfMap<MapData, u64, ThreadEntry>,
    samples: BpfMap<MapData, [u64; 2], u64>,
    before: HashMap<Thread, ThreadEntry>,
    proc: Proc,
    times: CpuTimes,
    cgroups: HashMap<u64, String>,
    looked: Instant,
}

impl Watch {
    /// Loads the programs and attaches them.
    pub(crate) fn open() -> Result<Self, UsageError> {
        let mut programs = load("at_save")?;
        let opened = |error: MapError| kernel("opening a BPF map", &error);
        let threads = map(&mut programs, "THREADS").map_err(opened)?;
        let samples = map(&mut programs, "SAMPLES").map_err(opened)?;
        sample(&mut programs).map_err(|error| refused("sampling", &error))?;
        let proc = Proc::here();
        Ok(Self {
            _programs: programs,
            threads,
            samples,
            before: HashMap::new(),
            times: CpuTimes::open(&proc)?,
            proc,
            cgroups: HashMap::new(),
            looked: Instant::now(),
        })
    }

    /// Use since the last look.
    pub(crate) fn interval(&mut self) -> Result<Interval, UsageError> {
        let now = Instant::now();
        let elapsed = now - self.looked;
        self.looked = now;
        let samples = self.samples()?;
        // While threads are added, one may be met twice.
        let mut entries = BTreeMap::new();
        for entry in self.threads.iter() {
            let (key, entry) = entry.map_err(|error| kernel("reading a BPF map", &error))?;
            entries.insert(thread(key), entry);
        }
        let mut uses = Vec::new();
        let mut after = HashMap::with_capacity(entries.len());
        for (thread, entry) in entries {
            let live = spent(&entry, self.before.get(&thread));
            if live != [Duration::ZERO; 4] {
                uses.push(self.used(thread, &entry, live, elapsed));
            }
            if self.proc.has(thread) {
                after.insert(thread, entry);
            } else {
                // The entry may be gone already, if it was idle for long.
                let _ = self.threads.remove(&key(thread));
            }
        }
        // Adds threads that were sampled and had nothing in use.
        let mut sampled: Vec<_> = samples.iter().map(|sample| sample.thread).collect();
        sampled.sort_unstable();
        sampled.dedup();
        for thread in sampled {
            if !uses.iter().any(|r#use| r#use.thread == thread) {
                uses.push(self.used(thread, &[0; 6], [Duration::ZERO; 4], elapsed));
            }
        }
        self.before = after;
        let proc = &self.proc;
        self.times.keep(|thread| proc.has(*thread));
        Ok(Interval {
            elapsed,
            uses,
            samples: Some(samples),
        })
    }

    /// Takes all samples out of their map.
    fn samples(&mut self) -> Result<Vec<Sample>, UsageError> {
        let mut samples = BTreeMap::new();
        for entry in self.samples.iter() {
            let (key, count) = entry.map_err(|error| kernel("reading a BPF map", &error))?;
            samples.insert(key, count);
        }
        for key in samples.keys() {
            // The entry may be gone already, if it was old.
            let _ = self.samples.remove(key);
        }
        let sample = |([of, address], count): ([u64; 2], u64)| Sample {
            thread: thread(of),
            address,
            count,
        };
        Ok(samples.into_iter().map(sample).collect())
    }

    fn used(&mut self, thread: Thread, entry: &ThreadEntry, live: [Duration; 4], elapsed: Duration) -> Use {
        let (mut name, mut process, mut cgroup) = described(&self.proc, thread);
        if name.is_empty() {
            name = name_in(entry);
        }
        if process.is_empty() {
            process.clone_from(&name);
        }
        if cgroup.is_none() && entry[3] != 0 {
            cgroup = self.cgroup(entry[3]);
        }
        // The known times may be older than the last look.
        let cpu = self.times.spent(&self.proc, thread).map(|cpu| cpu.min(elapsed));
        Use {
            thread,
            name,
            process,
            cgroup,
            cpu,
            live,
            sampled: None,
        }
    }

    /// The cgroup with a number, for threads that have ended.
    fn cgroup(&mut self, number: u64) -> Option<String> {
        if !self.cgroups.contains_key(&number) {
            self.cgroups.clear();
            for mount in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
                if Path::new(mount).join("cgroup.controllers").exists() {
                    number_cgroups(Path::new(mount), "", &mut self.cgroups);
                }
            }
            // A cgroup that is not there now is not looked for again.
            self.cgroups.entry(number).or_default();
        }
        let path = self.cgroups.get(&number)?;
        (!path.is_empty()).then(|| path.clone())
    }
}

/// Time in each state since the last look. A smaller sum than before is that of a new entry.
fn spent(entry: &ThreadEntry, before: Option<&ThreadEntry>) -> [Duration; 4] {
    let before = before.copied().unwrap_or_default();
    let renewed = entry[..3].iter().zip(&before).any(|(now, then)| now < then);
    let mut live = [Duration::ZERO; 4];
    for state in [State::Upper, State::High, State::Masks] {
        let at = state as usize;
        let then = if renewed { 0 } else { before[at] };
        live[at] = Duration::from_nanos(entry[at] - then);
    }
    live
}

/// The name that the kernel noted when it met a thread first.
fn name_in(entry: &ThreadEntry) -> String {
    let bytes = [entry[4].to_ne_bytes(), entry[5].to_ne_bytes()].concat();
    let end = bytes.iter().position(|&byte| byte == 0);
    let name = &bytes[..end.unwrap_or(bytes.len())];
    String::from_utf8_lossy(name).into_owned()
}

/// The kernel's number of a thread has its process in the upper half.
pub(crate) fn thread(key: u64) -> Thread {
    let [t0, t1, t2, t3, p0, p1, p2, p3] = key.to_le_bytes();
    Thread {
        pid: u32::from_le_bytes([p0, p1, p2, p3]),
        tid: u32::from_le_bytes([t0, t1, t2, t3]),
    }
}

fn key(thread: Thread) -> u64 {
    u64::from(thread.pid) << 32 | u64::from(thread.tid)
}

/// Every cgroup below a folder, by its number, which is that of the folder's inode.
fn number_cgroups(folder: &Path, path: &str, found: &mut HashMap<u64, String>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    if let Ok(status) = fs::metadata(folder) {
        let path = if path.is_empty() { "/" } else { path };
        found.insert(status.ino(), path.to_owned());
    }
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let path = format!("{path}/{}", entry.file_name().to_string_lossy());
            number_cgroups(&entry.path(), &path, found);
        }
    }
}

/// Loads the programs, and attaches those that see time slices end: `at_save` is the one that runs when registers
/// are saved.
pub(crate) fn load(at_save: &str) -> Result<Ebpf, UsageError> {
    let object = widelane_bpf::USAGE?;
    if !widelane_bpf::counts_as_we_do() {
        return Err(UsageError::PidNamespace);
    }
    check_tracepoint()?;
    let btf = widelane_bpf::btf()?;
    widelane_bpf::unlimit_memory();
    let loaded = EbpfLoader::new().btf(Some(&btf)).load(object);
    let mut programs = loaded.map_err(|error| refused("loading BPF maps", &error))?;
    attach(&mut programs, at_save).map_err(|error| refused("attaching BPF programs", &error))?;
    Ok(programs)
}

/// Says what is missing before the kernel says so by a number.
fn check_tracepoint() -> Result<(), UsageError> {
    let paths = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .map(|tracefs| Path::new(tracefs).join(format!("events/{CATEGORY}/{REGISTERS_SAVED}/format")));
    for path in &paths {
        match widelane_files::kernel_text(path) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(UsageError::NoRights);
            }
            Err(_) => {}
        }
    }
    let [path, _] = paths;
    Err(UsageError::NoTracepoint { path })
}

fn attach(programs: &mut Ebpf, at_save: &str) -> Result<(), ProgramError> {
    let save: &mut TracePoint = program(programs, at_save)?;
    persistently(|| save.load())?;
    save.attach(CATEGORY, REGISTERS_SAVED)?;
    let switch: &mut RawTracePoint = program(programs, "at_switch")?;
    persistently(|| switch.load())?;
    switch.attach("sched_switch")?;
    Ok(())
}

/// Samples on each CPU where threads are.
fn sample(programs: &mut Ebpf) -> Result<(), ProgramError> {
    let sample: &mut PerfEvent = program(programs, "at_sample")?;
    persistently(|| sample.load())?;
    let online = Cpus::read(Path::new("/sys/devices/system/cpu/online")).unwrap_or_default();
    for cpu in online.iter() {
        let cpu = u32::try_from(cpu).unwrap_or_default();
        let clock = PerfEventConfig::Software(SoftwareEvent::CpuClock);
        let scope = PerfEventScope::AllProcessesOneCpu { cpu };
        sample.attach(clock, scope, SamplePolicy::Frequency(SAMPLES_A_SECOND), false)?;
    }
    Ok(())
}

/// Reason why the kernel refuses a step: rights that are missing, or another.
fn refused(what: &'static str, error: &(dyn std::error::Error + 'static)) -> UsageError {
    match widelane_bpf::is_refused(error) {
        true => UsageError::NoRights,
        false => kernel(what, error),
    }
}

pub(crate) fn kernel(what: &'static str, error: &dyn std::error::Error) -> UsageError {
    let cause = widelane_bpf::causes(error);
    UsageError::Kernel { what, cause }
}

/// Times of a thread, as the programs write them (`struct thread`): nanoseconds in each of the first three states, the
/// cgroup, the name.
type ThreadEntry = [u64; 6];

/// Tracepoint at which the kernel saves registers.
const CATEGORY: &str = "x86_fpu";
const REGISTERS_SAVED: &str = "x86_fpu_regs_deactivated";
/// A number that divides no common clock, so that nothing beats with it.
const SAMPLES_A_SECOND: u64 = 99;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_the_difference_to_the_last_look() {
        let ns = Duration::from_nanos;
        let entry = |upper, high, masks| [upper, high, masks, 9, 9, 9];
        let now = entry(10, 20, 30);
        let live = [ns(10), ns(20), ns(30), ns(0)];
        assert_eq!(spent(&now, None), live);
        let grown = [ns(9), ns(0), ns(30), ns(0)];
        assert_eq!(spent(&now, Some(&entry(1, 20, 0))), grown);
        assert_eq!(spent(&now, Some(&entry(11, 0, 0))), live, "a new entry");
    }

    #[test]
    fn keys_are_threads() {
        let thread_2_of_1 = Thread { pid: 1, tid: 2 };
        assert_eq!(thread(1 << 32 | 2), thread_2_of_1);
        assert_eq!(key(thread_2_of_1), 1 << 32 | 2);
    }

    #[test]
    fn a_name_ends_at_its_zero() {
        let word = u64::from_ne_bytes;
        let name = |first: &[u8; 8], second: &[u8; 8]| name_in(&[0, 0, 0, 0, word(*first), word(*second)]);
        assert_eq!(name(b"openssl\0", b"\0\0\0\0\0\0\0\0"), "openssl");
        assert_eq!(name(b"fifteen ", b"letters\0"), "fifteen letters");
        assert_eq!(name(b"sixteen ", b"letters!"), "sixteen letters!");
    }

    #[test]
    fn folders_are_cgroups_by_inode() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::write(root.path().join("a/cgroup.procs"), "").unwrap();
        let mut found = HashMap::new();
        number_cgroups(root.path(), "", &mut found);
        let number = |name: &str| fs::metadata(root.path().join(name)).unwrap().ino();
        assert_eq!(found.len(), 3);
        assert_eq!(found[&number("a/b")], "/a/b");
        assert_eq!(found[&number("")], "/");
    }
}
