//! `/proc`: which threads there are, and what the kernel says of each.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use procfs_core::FromRead;
use procfs_core::process::{Schedstat, Status};

use crate::cgroup::Cgroups;
use crate::patience::{Patience, SHORT};

/// A thread, by its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Thread {
    /// The number of its process.
    pub pid: u32,
    /// Its own number.
    pub tid: u32,
}

impl Thread {
    /// The first thread of a process, which has the process's number.
    pub fn first_of(pid: u32) -> Self {
        Self { pid, tid: pid }
    }
}

/// `/proc`, or a folder like it.
///
/// Threads may end at any time. What is asked of one that has ended is `None` or empty.
#[derive(Clone, Debug)]
pub struct Proc {
    root: PathBuf,
}

/// The use of AVX-512 by a thread, as far as its registers tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Avx512 {
    /// The kernel lets no program use AVX-512.
    Unsaid,
    /// The registers have never been in use at the end of a time slice.
    Never,
    /// The registers were in use that many milliseconds ago.
    Milliseconds(u64),
}

/// CPU time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Time on a CPU.
    pub ran: u64,
    /// Time of waiting for one. 0 on a kernel that does not count it.
    pub waited: u64,
}

/// The file `stat` of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its name, which may contain anything.
    pub name: String,
    /// True if it has ended already.
    pub dead: bool,
    /// The parent of its process.
    pub parent: i32,
    /// The session of its process; 0 if the leader is outside of this PID namespace.
    pub session: i32,
    /// The kernel's flags (`PF_…`).
    pub flags: u32,
    /// Clock ticks on a CPU, in user mode and in the kernel.
    pub ticks: u64,
    /// The same of its children that have ended and were waited for, and of theirs.
    pub ticks_of_children: u64,
    /// Clock ticks from the start of the system to that of the thread.
    pub start: u64,
    /// Its scheduling policy (`SCHED_…`).
    pub policy: u32,
}

impl Proc {
    /// `/proc` of this machine.
    pub fn here() -> Self {
        Self::at(Path::new("/proc"))
    }

    /// A folder like it.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The processes that there are.
    ///
    /// # Errors
    ///
    /// When the folder cannot be listed.
    pub fn processes(&self) -> io::Result<Vec<u32>> {
        numbers(&self.root)
    }

    /// The threads of a process.
    pub fn threads_of(&self, pid: u32) -> Vec<Thread> {
        let tids = numbers(&self.root.join(format!("{pid}/task"))).unwrap_or_default();
        tids.into_iter().map(|tid| Thread { pid, tid }).collect()
    }

    /// Every thread there is.
    ///
    /// # Errors
    ///
    /// When processes cannot be listed.
    pub fn threads(&self) -> io::Result<Vec<Thread>> {
        let processes = self.processes()?;
        let threads = processes.into_iter().flat_map(|pid| self.threads_of(pid));
        Ok(threads.collect())
    }

    /// The link to the program of a process. That of a thread of the kernel leads nowhere.
    pub fn program(&self, pid: u32) -> PathBuf {
        self.root.join(format!("{pid}/exe"))
    }

    /// Returns whether a thread is there.
    pub fn has(&self, thread: Thread) -> bool {
        self.folder(thread).exists()
    }

    /// The file `stat` of a thread, unless it has ended.
    pub fn stat(&self, thread: Thread) -> Option<Stat> {
        Stat::parse(&self.read(thread, "stat")?)
    }

    /// The same of any thread, by its number alone.
    pub fn stat_of(&self, tid: u32) -> Option<Stat> {
        let path = self.root.join(format!("{tid}/stat"));
        Stat::parse(&widelane_files::kernel(path).ok()?)
    }

    /// Its CPU time: to the nanosecond where the kernel counts so, else in clock ticks.
    pub fn times(&self, thread: Thread) -> Option<Times> {
        if let Some(text) = self.read(thread, "schedstat") {
            return Times::parse(&text);
        }
        let ticks = self.stat(thread)?.ticks;
        Some(Times {
            ran: ticks.saturating_mul(NANOSECONDS_A_TICK),
            waited: 0,
        })
    }

    /// The last use of its AVX-512 registers. `None` on a kernel without that file, too.
    pub fn avx512(&self, thread: Thread) -> Option<Avx512> {
        Some(Avx512::parse(&self.read(thread, "arch_status")?))
    }

    /// The same of the calling thread.
    ///
    /// # Errors
    ///
    /// When the kernel has no such file, or it cannot be read.
    pub fn own_avx512(&self) -> io::Result<Avx512> {
        let text = widelane_files::kernel(self.root.join("thread-self/arch_status"))?;
        Ok(Avx512::parse(&text))
    }

    /// Its name. Empty if it has ended.
    pub fn name(&self, thread: Thread) -> String {
        self.name_in(&self.folder(thread))
    }

    /// The name of a process. Empty if it has ended.
    pub fn process_name(&self, pid: u32) -> String {
        self.name_in(&self.root.join(pid.to_string()))
    }

    /// Its control groups, or if it has ended those of its process.
    pub fn cgroups(&self, thread: Thread) -> Option<Cgroups> {
        let of_process = || widelane_files::kernel(self.root.join(format!("{}/cgroup", thread.pid))).ok();
        let text = self.read(thread, "cgroup").or_else(of_process)?;
        Some(Cgroups::parse(&text))
    }

    /// The user who started a process. (The owner of its folder would say less: a process can
    /// change that to root.)
    pub fn user(&self, pid: u32) -> Option<u32> {
        let status = status(&self.root.join(format!("{pid}/status")))?;
        Some(status.ruid)
    }

    /// The number that a process has in its own PID namespace: a container's processes know only
    /// that one. On a kernel that does not tell, the number it has here.
    pub fn own_number(&self, pid: u32) -> Option<u32> {
        let status = status(&self.root.join(format!("{pid}/status")))?;
        let innermost = status.nspid.as_ref().and_then(|numbers| numbers.last());
        Some(innermost.map_or(pid, |&number| number.unsigned_abs()))
    }

    /// Returns whether a process reads the same monotonic clock as this program: not in a time namespace of its own.
    /// True if the kernel does not tell.
    pub fn has_our_clock(&self, pid: u32) -> bool {
        let clock = |of: String| fs::read_link(self.root.join(of).join("ns/time"));
        match (clock(pid.to_string()), clock("self".to_owned())) {
            (Ok(one), Ok(other)) => one == other,
            _ => true,
        }
    }

    /// A variable of the environment with which a process was started. `None` if it is not there or
    /// may not be read.
    pub fn variable(&self, pid: u32, name: &str) -> Option<OsString> {
        let folder = self.root.join(pid.to_string());
        let path = folder.join("environ");
        let read = || widelane_files::kernel(path);
        let bytes = Patience::with(&folder).within(SHORT, read).ok()?;
        let mut entries = bytes.split(|&byte| byte == 0);
        let value = |entry: &[u8]| {
            let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            Some(OsStr::from_bytes(value).to_owned())
        };
        entries.find_map(value)
    }

    /// Number of the system call in which a thread waits. `None` if it runs, has ended, or may not be looked at.
    pub fn system_call(&self, thread: Thread) -> Option<u32> {
        let text = self.read(thread, "syscall")?;
        let number = text.split(|&byte| byte == b' ').next()?;
        std::str::from_utf8(number).ok()?.parse().ok()
    }

    /// Targets of a process's descriptors, as the kernel names them: `anon_inode:[eventpoll]`.
    ///
    /// # Errors
    ///
    /// When the process has ended, or may not be looked at.
    pub fn descriptors(&self, pid: u32) -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(self.root.join(format!("{pid}/fd")))?;
        // Some are closed meanwhile.
        let targets = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        Ok(targets.collect())
    }

    /// The signals that this process ignores, signal 1 in the lowest bit. None if the kernel does
    /// not tell.
    pub fn ignored_signals(&self) -> u64 {
        let status = status(&self.root.join("self/status"));
        status.map_or(0, |status| status.sigign)
    }

    /// Number of times that the calling thread has waited for something.
    pub fn own_waits(&self) -> Option<u64> {
        status(&self.root.join("thread-self/status"))?.voluntary_ctxt_switches
    }

    fn folder(&self, thread: Thread) -> PathBuf {
        let Thread { pid, tid } = thread;
        self.root.join(format!("{pid}/task/{tid}"))
    }

    fn read(&self, thread: Thread, name: &str) -> Option<Vec<u8>> {
        let Thread { pid, tid } = thread;
        widelane_files::kernel(self.root.join(format!("{pid}/task/{tid}/{name}"))).ok()
    }

    fn name_in(&self, folder: &Path) -> String {
        // A name is bytes, and need not be text.
        let bytes = widelane_files::kernel(folder.join("comm")).unwrap_or_default();
        let name = String::from_utf8_lossy(&bytes);
        name.strip_suffix('\n').unwrap_or(&name).to_owned()
    }
}

impl Stat {
    /// Reads `stat`; `None` if it is not whole.
    pub fn parse(text: &[u8]) -> Option<Self> {
        // The crate panics unless it is `number (name) letter`, whatever the name is.
        let open = text.iter().position(|&byte| byte == b'(')?;
        let close = text.iter().rposition(|&byte| byte == b')')?;
        let number = text[..open].strip_suffix(b" ")?;
        let number = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
        let state = text[close..].strip_prefix(b") ")?.first()?;
        if !number || close < open || !state.is_ascii_alphabetic() {
            return None;
        }
        let stat = procfs_core::process::Stat::from_read(text).ok()?;
        Some(Self {
            name: stat.comm,
            dead: matches!(stat.state, 'Z' | 'X' | 'x'),
            parent: stat.ppid,
            session: stat.session,
            flags: stat.flags,
            ticks: stat.utime.saturating_add(stat.stime),
            ticks_of_children: u64::try_from(stat.cutime.saturating_add(stat.cstime)).unwrap_or(0),
            start: stat.starttime,
            policy: stat.policy?,
        })
    }
}

impl Times {
    /// Reads `schedstat`.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let times = Schedstat::from_read(text).ok()?;
        Some(Self {
            ran: times.sum_exec_runtime,
            waited: times.run_delay,
        })
    }
}

impl Avx512 {
    /// Reads `arch_status`, which `procfs-core` does not know.
    pub fn parse(text: &[u8]) -> Self {
        let value = text.split(|&byte| byte == b'\n').find_map(|line| {
            let value = line.strip_prefix(b"AVX512_elapsed_ms:")?.trim_ascii();
            std::str::from_utf8(value).ok()?.parse::<i64>().ok()
        });
        match value {
            None => Self::Unsaid,
            Some(value) => u64::try_from(value).map_or(Self::Never, Self::Milliseconds),
        }
    }
}

fn status(path: &Path) -> Option<Status> {
    // The name in it is bytes, and need not be text.
    let bytes = widelane_files::kernel(path).ok()?;
    Status::from_read(String::from_utf8_lossy(&bytes).as_bytes()).ok()
}

/// The entries of a folder whose names are numbers.
fn numbers(folder: &Path) -> io::Result<Vec<u32>> {
    let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    Ok(fs::read_dir(folder)?.filter_map(number).collect())
}

/// On Linux, a tick of `/proc` is a hundredth of a second for every program.
const NANOSECONDS_A_TICK: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str = "7108 (a) R (b) S 7099 7 28388 0 -1 4194304 98 0 0 0 3 4 5 6 20 0 1 0 \
        2556986 3133440 354 18446744073709551615 1 1 1 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n";

    #[test]
    fn a_name_may_look_like_the_rest_of_the_line() {
        let stat = Stat::parse(LINE.as_bytes()).unwrap();
        let expected = Stat {
            name: "a) R (b".to_owned(),
            dead: false,
            parent: 7099,
            session: 28388,
            flags: 4_194_304,
            ticks: 7,
            ticks_of_children: 5 + 6,
            start: 2_556_986,
            policy: 0,
        };
        assert_eq!(stat, expected);
    }

    #[test]
    fn a_line_that_is_cut_off_is_refused() {
        let policy = LINE.rfind(" 0 0 0 0").unwrap();
        for end in 0..policy {
            assert_eq!(Stat::parse(&LINE.as_bytes()[..end]), None, "{end}");
        }
    }

    #[test]
    fn a_name_need_not_be_text() {
        let fields = "R 1 7 7 0 -1 0 0 0 0 0 3 4 0 0 20 0 1 0 99 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 \
            17 1 0 0\n";
        let stat = Stat::parse(&[&b"7 (\xff\xfe) "[..], fields.as_bytes()].concat()).unwrap();
        assert_eq!((stat.start, stat.ticks), (99, 7));
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_nothing_panics(
            bytes in prop::collection::vec(prop::sample::select(b"7 ()R-\n\xff:".to_vec()), 0..60),
            inserted in prop::collection::vec(any::<u8>(), 0..10),
            at in 0..LINE.len(),
        ) {
            let line = LINE.as_bytes();
            let _ = Stat::parse(&bytes);
            let _ = Stat::parse(&[&line[..at], &inserted, &line[at..]].concat());
            let _ = Times::parse(&bytes);
            let _ = Avx512::parse(&bytes);
            let _ = Cgroups::parse(&bytes);
        }
    }

    #[test]
    fn elapsed_time_is_told_from_never_and_from_silence() {
        let parse = |text: &str| Avx512::parse(text.as_bytes());
        assert_eq!(parse("AVX512_elapsed_ms:\t8\n"), Avx512::Milliseconds(8));
        assert_eq!(parse("AVX512_elapsed_ms:\t-1\n"), Avx512::Never);
        assert_eq!(parse("x86_Thread_features:\n"), Avx512::Unsaid);
        let later = "x86_Thread_features:\tshstk\nAVX512_elapsed_ms:\t0\n";
        assert_eq!(parse(later), Avx512::Milliseconds(0));
    }

    #[test]
    fn times_are_read_or_not() {
        let times = Times {
            ran: 81021,
            waited: 71187,
        };
        assert_eq!(Times::parse(b"81021 71187 2\n"), Some(times));
        assert_eq!(Times::parse(b"81021\n"), None);
        assert_eq!(Times::parse(b"a b c\n"), None);
    }

    #[test]
    fn this_thread_is_seen() {
        let proc = Proc::here();
        let pid = std::process::id();
        let thread = Thread::first_of(pid);
        let stat = proc.stat(thread).unwrap();
        assert!(stat.start > 0 && !stat.dead && proc.has(thread));
        assert_eq!(proc.stat_of(pid).unwrap().start, stat.start);
        assert!(proc.threads().unwrap().contains(&thread));
        assert!(proc.processes().unwrap().contains(&pid));
        assert!(proc.times(thread).is_some());
        assert!(proc.own_waits().is_some());
        assert_eq!(proc.name(thread), stat.name);
        assert_eq!(proc.process_name(pid), stat.name);
        assert!(proc.cgroups(thread).unwrap().path().is_some());
    }

    #[test]
    fn a_container_has_numbers_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let own = std::process::id();
        assert_eq!(Proc::here().own_number(own), Some(own));
        let text = fs::read_to_string("/proc/self/status").unwrap();
        let contained = text
            .lines()
            .map(|line| match line.starts_with("NSpid:") {
                true => "NSpid:\t700\t7\n".to_owned(),
                false => format!("{line}\n"),
            })
            .collect::<String>();
        fs::create_dir(folder.path().join("700")).unwrap();
        fs::write(folder.path().join("700/status"), contained).unwrap();
        let proc = Proc::at(folder.path());
        assert_eq!(proc.own_number(700), Some(7));
        assert_eq!(proc.own_number(701), None);
    }

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("7")).unwrap();
        fs::write(folder.path().join("7/environ"), b"AB=1\0B=\xff=2\0B=3\0").unwrap();
        let proc = Proc::at(folder.path());
        assert_eq!(proc.variable(7, "B").unwrap().as_bytes(), b"\xff=2");
        assert_eq!(proc.variable(7, "A"), None);
        assert_eq!(proc.variable(8, "B"), None);
    }

    #[test]
    fn waiting_threads_and_open_files_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let proc = Proc::at(folder.path());
        let call = |text: &str| {
            let task = folder.path().join("7/task/8");
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("syscall"), text).unwrap();
            proc.system_call(Thread { pid: 7, tid: 8 })
        };
        assert_eq!(call("232 0x5 0x7f 0x1 0x2 0x3 0x4 0x7f 0x7e\n"), Some(232));
        for other in ["running\n", "-1 0x7f 0x7e\n", "", "99999999999999 0x1\n"] {
            assert_eq!(call(other), None, "{other}");
        }
        let own = fs::File::open("/dev/null").unwrap();
        let open = Proc::here().descriptors(std::process::id()).unwrap();
        drop(own);
        assert!(open.iter().any(|target| target == Path::new("/dev/null")));
        assert!(Proc::here().descriptors(u32::MAX).is_err());
    }

    #[test]
    fn a_thread_that_is_not_there_is_no_error() {
        let proc = Proc::here();
        let thread = Thread::first_of(u32::MAX);
        assert!(!proc.has(thread) && proc.stat(thread).is_none());
        assert!(proc.name(thread).is_empty() && proc.threads_of(u32::MAX).is_empty());
    }
}
