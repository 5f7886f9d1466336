//! Follows processes: puts probes into those that are wanted, also into later ones, and passes on what
//! the programs in the kernel report.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use widelane_threads::{Identity, Proc, Thread};

use crate::error::TraceError;
use crate::event::{Bytes, Call, Event, Reached};
use crate::filter::Filter;
use crate::functions::{Function, Returns, Role};
use crate::inside::Inside;
use crate::kernel::{Attached, Programs, remove};
use crate::record::{RawCall, Record};
use crate::table::Table;
use crate::targets::{Exits, MarkProbe, Probe, TargetError, Targets};
use crate::text::escaped;
use crate::want::{Count, Want};

/// Traces processes until it is dropped.
pub struct Tracer {
    programs: Programs,
    proc: Proc,
    targets: Targets,
    filter: Filter,
    processes: HashMap<u32, Traced>,
    /// Where dynamic linkers tell what they have loaded, in every process that has them: if all
    /// processes are traced, a probe in each would take seconds.
    linkers: HashMap<Key, Attached>,
    /// When to look at processes again.
    due: BTreeMap<Instant, Vec<u32>>,
    notes: Vec<String>,
    noted: HashSet<String>,
    /// Threads that remove probes of processes that have ended.
    removed: Vec<JoinHandle<()>>,
    /// How many processes that were traced have ended.
    ended: u64,
    /// Whether the last look found something: then more is to come soon.
    busy: bool,
}

/// A process with probes.
struct Traced {
    probes: HashMap<Key, Attached>,
    /// Those of functions that may go on with a handshake, beside what else they do.
    reads_and_writes: HashMap<Key, Attached>,
    marks: HashMap<(Identity, u64), Attached>,
    /// Whether return probes of the kernel are among them.
    by_kernel: bool,
    inside: Inside,
}

impl Traced {
    fn new() -> Self {
        Self {
            probes: HashMap::new(),
            reads_and_writes: HashMap::new(),
            marks: HashMap::new(),
            by_kernel: false,
            inside: Inside::new(Instant::now()),
        }
    }

    fn attached(self) -> impl Iterator<Item = Attached> {
        let functions = self.probes.into_values();
        let functions = functions.chain(self.reads_and_writes.into_values());
        functions.chain(self.marks.into_values())
    }
}

/// What tells probes of one process apart.
type Key = (Identity, u64, Arc<Function>);

/// What [`Tracer::wait`] has seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// In the order in which the kernel reported it.
    pub events: Vec<Event>,
    /// Whether the caller's descriptor has become readable.
    pub stopped: bool,
}

impl Tracer {
    /// Loads the programs and puts probes into all processes that the filter matches.
    ///
    /// # Errors
    ///
    /// When the kernel or its administrator does not allow it, see [`TraceError`].
    pub fn start(filter: Filter, table: Table, want: Want) -> Result<Self, TraceError> {
        let mut tracer = Self {
            targets: Targets::new(table, &want),
            programs: Programs::load(want)?,
            proc: Proc::here(),
            filter,
            processes: HashMap::new(),
            linkers: HashMap::new(),
            due: BTreeMap::new(),
            notes: Vec::new(),
            noted: HashSet::new(),
            removed: Vec::new(),
            ended: 0,
            busy: false,
        };
        let pids = tracer.filter.processes(&tracer.proc);
        for pid in pids.map_err(|cause| unreadable(&tracer.proc, cause))? {
            tracer.look_at(pid)?;
        }
        Ok(tracer)
    }

    /// Waits for events, until then at most, or until a descriptor becomes readable. It may return
    /// earlier without any.
    ///
    /// While much happens, events are taken every 20 milliseconds; while nothing happens, nothing
    /// wakes the process up.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to wait, or no more probes can be made.
    pub fn wait(&mut self, until: Instant, stop: BorrowedFd<'_>) -> Result<Seen, TraceError> {
        let next = self.due.keys().next().copied();
        let mut until = next.map_or(until, |next| next.min(until));
        if self.busy {
            until = until.min(Instant::now() + PAUSE);
        }
        let stopped = self.sleep(until, stop)?;
        let mut seen = Seen {
            events: Vec::new(),
            stopped,
        };
        let mut later = Vec::new();
        self.programs
            .records(|functions, marks, record| match record {
                Record::Call(call) => {
                    if let Some(function) = functions.get(usize::from(call.function)) {
                        seen.events
                            .push(Event::Call(named(Arc::clone(function), call)));
                    }
                }
                Record::Bytes(bytes) => seen.events.push(Event::Bytes(bytes)),
                Record::Reached(raw) => {
                    if let Some(mark) = marks.get(usize::from(raw.row)) {
                        seen.events.push(Event::Reached(Reached {
                            mark: Arc::clone(mark),
                            pid: raw.pid,
                            tid: raw.tid,
                            comm: raw.comm,
                            time: raw.time,
                            arguments: raw.arguments,
                        }));
                    }
                }
                Record::Exit(pid) => {
                    seen.events.push(Event::Exit { pid });
                    later.push((pid, Change::Ended));
                }
                Record::Start(pid) => later.push((pid, Change::Started)),
                Record::Loaded(pid) => later.push((pid, Change::Loaded)),
            });
        self.busy = !seen.events.is_empty();
        self.learn(&seen.events)?;
        for (pid, change) in later {
            self.follow(pid, change)?;
        }
        self.look_again()?;
        Ok(seen)
    }

    /// How many processes are traced now, and how many different functions and places of
    /// static probes in them.
    pub fn traced(&self) -> (usize, usize) {
        let mut functions = HashSet::new();
        let (mut processes, mut places) = (0, 0);
        for process in self.processes.values() {
            let traced = process.probes.keys().chain(process.reads_and_writes.keys());
            let traced = traced.filter(|(_, _, of)| of.role != Role::Load);
            let mut any = !process.marks.is_empty();
            places += process.marks.len();
            for key in traced {
                functions.insert(key);
                any = true;
            }
            processes += usize::from(any);
        }
        (processes, functions.len() + places)
    }

    /// What people should know of the processes: each sentence once. Takes them.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Events that were lost since the start, because they came faster than they were taken.
    pub fn lost(&self) -> u64 {
        self.programs.lost()
    }

    /// CPU time of the traced processes since each began, in nanoseconds; to a hundredth of a second.
    pub fn cpu_time(&self) -> u64 {
        let stats = self
            .processes
            .keys()
            .filter_map(|&pid| self.proc.stat_of(pid));
        let ticks: u64 = stats.map(|stat| stat.ticks).sum();
        ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
    }

    /// Calls that were counted in the kernel since the start.
    ///
    /// # Errors
    ///
    /// When the kernel does not give them.
    pub fn counts(&self) -> Result<Vec<Count>, TraceError> {
        self.programs.counts()
    }

    /// Whether the descriptor is readable. Comes back when it is, when there are events, or then.
    fn sleep(&self, until: Instant, stop: BorrowedFd<'_>) -> Result<bool, TraceError> {
        let ring = self.programs.descriptor();
        let mut waiting = vec![PollFd::new(&stop, PollFlags::IN)];
        if !self.busy {
            waiting.push(PollFd::new(&ring, PollFlags::IN));
        }
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap_or_default();
            match poll(&mut waiting, Some(&left)) {
                Ok(_) => return Ok(!waiting[0].revents().is_empty()),
                Err(Errno::INTR) => {}
                Err(error) => {
                    return Err(TraceError::Kernel {
                        what: "waiting for events",
                        cause: error.to_string(),
                    });
                }
            }
        }
    }

    fn follow(&mut self, pid: u32, change: Change) -> Result<(), TraceError> {
        match change {
            Change::Ended => {
                self.let_go(pid);
                self.programs.forget(pid);
            }
            Change::Started => {
                // After exec, nothing of the old program is mapped. The new one loads its libraries
                // in the next milliseconds, or later, when its configuration says so.
                self.let_go(pid);
                if !self.filter.matches(&self.proc, pid) {
                    // If it gets another name by exec, that is told again.
                    return Ok(());
                }
                self.look_at(pid)?;
                let now = Instant::now();
                for after in AFTER_START {
                    self.due.entry(now + after).or_default().push(pid);
                }
            }
            Change::Loaded => {
                // The linker calls before it has mapped the library, and after.
                let soon = Instant::now() + AFTER_LOADING;
                self.due.entry(soon).or_default().push(pid);
            }
        }
        Ok(())
    }

    /// Learns from events how processes do their handshakes.
    fn learn(&mut self, events: &[Event]) -> Result<(), TraceError> {
        let now = Instant::now();
        let mut changed = Vec::new();
        for event in events {
            let (Event::Call(Call { pid, .. }) | Event::Bytes(Bytes { pid, .. })) = event else {
                continue;
            };
            if let Some(process) = self.processes.get_mut(pid) {
                let after = process.inside.after(event, now);
                if after != process.inside {
                    process.inside = after;
                    changed.push(*pid);
                }
            }
        }
        changed.dedup();
        changed.into_iter().try_for_each(|pid| self.look_at(pid))
    }

    /// Removes probes. That is not waited for, unless the tracer ends.
    fn remove(&mut self, probes: Vec<Attached>) {
        self.removed.retain(|thread| !thread.is_finished());
        self.removed.push(remove(probes));
    }

    /// Removes the probes of a process.
    fn let_go(&mut self, pid: u32) {
        if let Some(process) = self.processes.remove(&pid) {
            self.remove(process.attached().collect());
            // What is known of files serves the next process that has them, and is forgotten now and
            // then: to look through a library again takes a moment.
            self.ended += 1;
            if self.ended.is_multiple_of(FORGETS_AFTER) {
                self.targets.forget_unused();
            }
        }
    }

    fn look_again(&mut self) -> Result<(), TraceError> {
        let now = Instant::now();
        while let Some(entry) = self.due.first_entry().filter(|entry| *entry.key() <= now) {
            let mut pids = entry.remove();
            pids.dedup();
            for pid in pids {
                self.look_at(pid)?;
            }
        }
        Ok(())
    }

    /// Puts probes into a process that the filter matches, where it has none yet.
    fn look_at(&mut self, pid: u32) -> Result<(), TraceError> {
        if pid == std::process::id() || !self.filter.matches(&self.proc, pid) {
            return Ok(());
        }
        let target = match self.targets.of(&self.proc, pid) {
            Ok(target) => target,
            Err(TargetError::NoProcess { .. }) => return Ok(()),
            Err(error) => {
                self.note(error.to_string());
                return Ok(());
            }
        };
        for note in &target.notes {
            self.note(note.clone());
        }
        let of_all = self.filter.is_empty();
        let (shared, own): (Vec<_>, Vec<_>) =
            (target.probes.iter()).partition(|probe| of_all && probe.function.role == Role::Load);
        self.probe_linkers(&shared)?;
        if own.is_empty() && target.marks.is_empty() {
            return Ok(());
        }
        let by_kernel = self
            .processes
            .get(&pid)
            .is_some_and(|traced| traced.by_kernel);
        if by_kernel && target.coroutines.is_some() {
            // It has loaded what changes stacks: return probes of the kernel would crash it.
            self.let_go(pid);
        }
        let goroutines = own.iter().any(|probe| probe.goroutine);
        // The bytes are for calls that go on with handshakes.
        let mut probes = own.iter();
        let calls = probes.any(|probe| probe.function.role == Role::Handshake);
        let silent = !calls && !target.marks.is_empty();
        self.programs.trace(pid, goroutines, silent)?;
        let mut traced = self.processes.remove(&pid).unwrap_or_else(Traced::new);
        traced.inside = traced.inside.at(Instant::now());
        let probed = self.probe(pid, &own, &target.marks, &mut traced);
        if !traced.inside.is_probed() && !traced.reads_and_writes.is_empty() {
            let probes = std::mem::take(&mut traced.reads_and_writes);
            self.remove(probes.into_values().collect());
        }
        if !traced.reads_and_writes.is_empty()
            && let Some(until) = traced.inside.until()
        {
            self.due.entry(until).or_default().push(pid);
        }
        self.processes.insert(pid, traced);
        probed
    }

    fn probe_linkers(&mut self, probes: &[&Probe]) -> Result<(), TraceError> {
        for probe in probes {
            let key = key(probe);
            if self.linkers.contains_key(&key) || self.linkers.len() >= MOST_LINKERS {
                continue;
            }
            match self.programs.attach(ALL_PROCESSES, probe) {
                Ok(attached) => _ = self.linkers.insert(key, attached),
                Err(error @ (TraceError::NoRights | TraceError::Table(_))) => return Err(error),
                Err(error) => {
                    let symbol = escaped(&probe.symbol);
                    self.note(format!("{symbol} is not traced: {error}"));
                }
            }
        }
        Ok(())
    }

    fn probe(
        &mut self,
        pid: u32,
        probes: &[&Probe],
        marks: &[MarkProbe],
        traced: &mut Traced,
    ) -> Result<(), TraceError> {
        for probe in probes {
            let key = key(probe);
            let known = match probe.state {
                Some(_) if !traced.inside.is_probed() => continue,
                Some(_) => &mut traced.reads_and_writes,
                None => &mut traced.probes,
            };
            if known.contains_key(&key) {
                continue;
            }
            match self.programs.attach(pid, probe) {
                Ok(attached) => {
                    traced.by_kernel |= probe.returns == Exits::Kernel;
                    known.insert(key, attached);
                }
                Err(error @ (TraceError::NoRights | TraceError::Table(_))) => return Err(error),
                Err(error) => self.failed(pid, &probe.symbol, &error),
            }
        }
        for probe in marks {
            let key = (probe.file.identity(), probe.offset);
            if traced.marks.contains_key(&key) {
                continue;
            }
            match self.programs.attach_mark(pid, probe) {
                Ok(attached) => {
                    traced.marks.insert(key, attached);
                }
                Err(error @ (TraceError::NoRights | TraceError::Table(_))) => return Err(error),
                Err(error) => self.failed(pid, &probe.mark.name, &error),
            }
        }
        Ok(())
    }

    /// A probe that cannot be made does not end the others: the process may be gone.
    fn failed(&mut self, pid: u32, symbol: &str, error: &TraceError) {
        if self.proc.has(Thread::first_of(pid)) {
            let symbol = escaped(symbol);
            self.note(format!("process {pid}: {symbol} is not traced: {error}"));
        }
    }

    fn note(&mut self, note: String) {
        if self.noted.len() < MOST_NOTES && self.noted.insert(note.clone()) {
            self.notes.push(note);
        }
    }
}

impl Drop for Tracer {
    /// Comes back when all probes are gone.
    fn drop(&mut self) {
        let all = self.processes.drain();
        let all = all.flat_map(|(_, process)| process.attached());
        let all = all.chain(self.linkers.drain().map(|(_, attached)| attached));
        self.removed.push(remove(all.collect()));
        for thread in self.removed.drain(..) {
            // A thread that only drops does not fail.
            let _ = thread.join();
        }
    }
}

fn key(probe: &Probe) -> Key {
    let function = Arc::clone(&probe.function);
    (probe.file.identity(), probe.entry, function)
}

/// What happened to a process.
enum Change {
    Started,
    Loaded,
    Ended,
}

fn unreadable(proc: &Proc, cause: io::Error) -> TraceError {
    let path = proc.root().to_owned();
    TraceError::Read { path, cause }
}

fn named(function: Arc<Function>, raw: RawCall) -> Call {
    let result = match function.returns {
        // The upper half of the register is undefined.
        Returns::One | Returns::Zero => i64::from(raw.result as i32),
        Returns::Any | Returns::Pointer | Returns::GoError(_) => raw.result,
    };
    Call {
        function,
        pid: raw.pid,
        tid: raw.tid,
        comm: raw.comm,
        stack: raw.stack,
        start: raw.start,
        wall: raw.wall,
        cpu: raw.cpu,
        result,
        object: raw.object,
        size: raw.size,
        still: raw.still,
        data: raw.data,
    }
}

/// How long events gather while there are many.
const PAUSE: Duration = Duration::from_millis(20);
/// When a process that has started is looked at again.
const AFTER_START: [Duration; 4] = [
    Duration::from_millis(5),
    Duration::from_millis(50),
    Duration::from_millis(500),
    Duration::from_secs(3),
];
const AFTER_LOADING: Duration = Duration::from_millis(5);
/// Processes that end before files are forgotten that no process has.
const FORGETS_AFTER: u64 = 256;
/// Not the number of one process: the kernel has none with 0.
const ALL_PROCESSES: u32 = 0;
/// Each container may have a dynamic linker of its own. Beyond these, what a process loads later than
/// the last look at it is not found.
const MOST_LINKERS: usize = 256;
/// Sentences that are remembered, so that each is said once.
const MOST_NOTES: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Stack;

    /// A function that returns -1 as an `int` may leave anything in the upper half.
    #[test]
    fn results_have_the_width_that_the_table_says() {
        let result = |returns| {
            let table = Table::builtin();
            let mut function = (*table.functions()[0]).clone();
            function.returns = returns;
            let raw = RawCall {
                function: 0,
                pid: 1,
                tid: 1,
                comm: [0; 16],
                stack: Stack::Pointer(1),
                start: 0,
                wall: 1,
                cpu: None,
                result: 0xffff_ffff,
                object: 1,
                size: None,
                still: None,
                data: Vec::new(),
            };
            named(Arc::new(function), raw).result
        };
        assert_eq!(result(Returns::One), -1);
        assert_eq!(result(Returns::Zero), -1);
        assert_eq!(result(Returns::Any), 0xffff_ffff);
        assert_eq!(result(Returns::GoError(0)), 0xffff_ffff);
    }
}
