//! Follows processes: puts probes into those that are wanted, also into later ones, and passes on what
//! the programs in the kernel report.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use widelane_threads::{Identity, Proc, RegularFile, Thread};

use crate::error::TraceError;
use crate::event::{Bytes, Call, Event};
use crate::expected::Expected;
use crate::filter::Filter;
use crate::forks::Forks;
use crate::functions::{Function, Role};
use crate::inside::HandshakesInIo;
use crate::kernel::{ProcessFlags, Programs};
use crate::probes::{Attached, Refused, Scope, remove};
use crate::record::{Change, Record};
use crate::table::Table;
use crate::targets::{Exits, MarkProbe, Probe, Site, Target, TargetError, Targets};
use crate::text::escaped;
use crate::want::{Count, Want};

/// Traces processes until it is dropped.
pub struct Tracer {
    programs: Programs,
    proc: Proc,
    targets: Targets,
    /// Targets of processes that start now.
    expected: Expected,
    filter: Filter,
    processes: HashMap<u32, Traced>,
    /// Probes in dynamic linkers that report what they have loaded, in every process that has them: if all processes
    /// are traced, a probe in each would take seconds.
    linkers: Probed<Key>,
    /// Processes that fork one for each connection.
    forks: Forks,
    /// Probes of these servers, in every process that has them.
    everywhere: Everywhere,
    /// Times at which to look at processes again.
    due: BTreeMap<Instant, Vec<u32>>,
    notes: Vec<String>,
    noted: HashSet<String>,
    /// Threads that remove probes of processes that have ended.
    removed: Vec<JoinHandle<()>>,
    /// Number of traced processes that have ended.
    ended: u64,
    /// True if the last look found something: then more is to come soon.
    busy: bool,
}

/// A process with probes.
struct Traced {
    probes: Probed<Key>,
    /// Probes of functions that may go on with a handshake, beside their other work.
    reads_and_writes: Probed<Key>,
    marks: Probed<Place>,
    /// True if the process has probes that are everywhere.
    everywhere: bool,
    /// Places behind calls that have a probe, for functions that are seen to return there.
    callers: HashMap<Key, HashSet<Site>>,
    inside: HandshakesInIo,
}

/// Probes that are in all processes, for those that are traced.
#[derive(Default)]
struct Everywhere {
    probes: Probed<Key>,
    marks: Probed<Place>,
}

/// Probes, and what tells them apart.
struct Probed<K> {
    keys: HashSet<K>,
    attached: Attached,
}

impl<K: Eq + Hash> Probed<K> {
    /// Entries of a list that have no probe yet, each once: a function may have several names.
    fn missing<'a, P>(&self, of: impl IntoIterator<Item = &'a P>, key: fn(&P) -> K) -> Vec<&'a P> {
        let mut seen = HashSet::new();
        let of = of.into_iter();
        of.filter(|one| !self.keys.contains(&key(one)) && seen.insert(key(one)))
            .collect()
    }

    /// Remembers those of a list that were made. The others are left to each process.
    fn made<P>(&mut self, of: &[&P], key: fn(&P) -> K, refused: &[Refused]) {
        let refused: HashSet<usize> = refused.iter().map(|(at, _)| *at).collect();
        let made = of.iter().enumerate();
        let made = made.filter(|(at, _)| !refused.contains(at));
        self.keys.extend(made.map(|(_, one)| key(one)));
    }
}

impl<K> Default for Probed<K> {
    fn default() -> Self {
        Self {
            keys: HashSet::new(),
            attached: Attached::default(),
        }
    }
}

impl Traced {
    fn new() -> Self {
        Self {
            probes: Probed::default(),
            reads_and_writes: Probed::default(),
            marks: Probed::default(),
            everywhere: false,
            callers: HashMap::new(),
            inside: HandshakesInIo::new(Instant::now()),
        }
    }

    fn attached(self) -> Attached {
        let mut all = self.probes.attached;
        all.append(self.reads_and_writes.attached);
        all.append(self.marks.attached);
        all
    }
}

/// Key of a function's probe, and of a static probe's.
type Key = (Identity, u64, Arc<Function>);
type Place = (Identity, u64);

/// Result of [`Tracer::wait`].
#[derive(Debug, Default)]
pub struct Seen {
    /// Events in the order in which the kernel reported them.
    pub events: Vec<Event>,
    /// True if the caller's descriptor has become readable.
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
            expected: Expected::default(),
            programs: Programs::load(want)?,
            proc: Proc::here(),
            filter,
            processes: HashMap::new(),
            linkers: Probed::default(),
            forks: Forks::default(),
            everywhere: Everywhere::default(),
            due: BTreeMap::new(),
            notes: Vec::new(),
            noted: HashSet::new(),
            removed: Vec::new(),
            ended: 0,
            busy: false,
        };
        let pids = tracer.filter.processes(&tracer.proc);
        let unreadable = |cause| TraceError::Read {
            path: tracer.proc.root().to_owned(),
            cause,
        };
        for pid in pids.map_err(unreadable)? {
            tracer.look_at(pid)?;
        }
        Ok(tracer)
    }

    /// Waits for events, until then at most, or until a descriptor becomes readable. It may return
    /// earlier without any.
    ///
    /// While much happens, events are taken every 20 milliseconds, and when a process starts or loads
    /// something; while nothing happens, nothing wakes the process up.
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
        self.programs.quiet();
        self.programs.records(|record| match record {
            Record::Event(event) => seen.events.push(event),
            Record::Changed(pid, change) => {
                if change == Change::Ended {
                    seen.events.push(Event::Exit { pid });
                }
                later.push((pid, change));
            }
        });
        self.busy = !seen.events.is_empty();
        // Processes that start and load go first. Of a fork and an exec that arrive together, only the exec matters.
        let executed = |one: &(u32, Change)| (one.1 == Change::Executed).then_some(one.0);
        let executed: HashSet<u32> = later.iter().filter_map(executed).collect();
        later.retain(|(pid, change)| !matches!(change, Change::Forked { .. }) || !executed.contains(pid));
        let mut known = HashSet::new();
        later.retain(|one| one.1 != Change::Loaded || known.insert(one.0));
        for (pid, change) in later {
            self.follow(pid, change)?;
        }
        self.learn(&seen.events)?;
        self.look_again()?;
        Ok(seen)
    }

    /// Number of processes traced now, and of different functions and places of static probes in them.
    pub fn traced(&self) -> (usize, usize) {
        let is_function = |key: &&Key| key.2.role != Role::Load;
        let everywhere = self.everywhere.probes.keys.iter();
        let mut functions: HashSet<_> = everywhere.filter(is_function).collect();
        let (mut processes, mut places) = (0, self.everywhere.marks.keys.len());
        for process in self.processes.values() {
            let traced = process.probes.keys.iter();
            let traced = traced.chain(&process.reads_and_writes.keys);
            let traced = traced.filter(is_function);
            let mut any = process.everywhere || !process.marks.keys.is_empty();
            places += process.marks.keys.len();
            for key in traced {
                functions.insert(key);
                any = true;
            }
            processes += usize::from(any);
        }
        (processes, functions.len() + places)
    }

    /// Notes about the processes for people: each sentence once. Takes them.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Events that were lost since the start, because they came faster than they were taken.
    pub fn lost(&self) -> u64 {
        self.programs.lost()
    }

    /// CPU time of the traced processes since each began, and of those that they have forked and that have
    /// ended, in nanoseconds; to a hundredth of a second.
    pub fn cpu_time(&self) -> u64 {
        let stats = self.processes.keys().filter_map(|&pid| self.proc.stat_of(pid));
        let ticks: u64 = stats.map(|stat| stat.ticks + stat.ticks_of_children).sum();
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

    /// Sleeps until the descriptor is readable, events come, or the time is reached. Returns whether the descriptor is
    /// readable.
    fn sleep(&self, until: Instant, stop: BorrowedFd<'_>) -> Result<bool, TraceError> {
        let (ring, bell) = (self.programs.descriptor(), self.programs.bell());
        let mut waiting = vec![PollFd::new(&stop, PollFlags::IN), PollFd::new(&bell, PollFlags::IN)];
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
            Change::Ended => self.forget(pid),
            Change::Forked { parent } => {
                // All is there that its parent has.
                self.let_go(pid);
                if !self.filter.matches(&self.proc, pid) {
                    // The kernel's programs trace what a server forks.
                    self.programs.forget(pid);
                    return Ok(());
                }
                let mut looks = &AFTER_START[..];
                let has_all = |traced: &Traced| traced.everywhere;
                if self.forks.is_server(parent) && self.processes.get(&parent).is_some_and(has_all) {
                    let mut traced = Traced::new();
                    traced.everywhere = true;
                    self.processes.insert(pid, traced);
                    looks = &AFTER_START[2..];
                } else {
                    let traced = self.processes.contains_key(&parent);
                    if traced && self.forks.add(parent, Instant::now()) {
                        self.probe_everywhere(parent)?;
                    }
                    self.look_at(pid)?;
                }
                self.look_later(pid, looks);
            }
            Change::Executed => {
                // Nothing of the old program is mapped. The new one loads its libraries in the next
                // milliseconds, or later, when its configuration says so.
                self.let_go(pid);
                self.programs.forget(pid);
                if !self.filter.matches(&self.proc, pid) {
                    return Ok(());
                }
                let program = self.program(pid);
                match program.and_then(|program| self.expected.of(program)) {
                    Some(expected) => {
                        // More such processes may come soon.
                        self.programs.stay_ready();
                        self.put(pid, &expected)?;
                    }
                    None => self.look_at(pid)?,
                }
                self.look_later(pid, &AFTER_START);
            }
            Change::Loaded => {
                // The linker calls before it has mapped the library, and after.
                self.look_at(pid)?;
                let soon = Instant::now() + AFTER_LOADING;
                self.due.entry(soon).or_default().push(pid);
            }
        }
        Ok(())
    }

    fn look_later(&mut self, pid: u32, after: &[Duration]) {
        let now = Instant::now();
        for &after in after {
            self.due.entry(now + after).or_default().push(pid);
        }
    }

    /// Learns from events how processes do their handshakes.
    fn learn(&mut self, events: &[Event]) -> Result<(), TraceError> {
        let now = Instant::now();
        let mut changed = Vec::new();
        for event in events {
            let (Event::Call(Call { pid, .. }) | Event::Bytes(Bytes { pid, .. })) = event else {
                continue;
            };
            // A process with probes everywhere has those of reads and writes, too.
            if let Some(process) = self.processes.get_mut(pid).filter(|one| !one.everywhere) {
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
    fn remove(&mut self, probes: Attached) {
        if probes.is_empty() {
            return;
        }
        self.removed.retain(|thread| !thread.is_finished());
        self.removed.extend(remove(probes));
    }

    /// Forgets a process that has ended. It may have got probes after it had reported its end.
    fn forget(&mut self, pid: u32) {
        self.let_go(pid);
        self.programs.forget(pid);
        self.forks.forget(pid);
    }

    /// Removes the probes of a process.
    fn let_go(&mut self, pid: u32) {
        if let Some(process) = self.processes.remove(&pid) {
            let probes = process.attached();
            if probes.is_empty() {
                return;
            }
            self.remove(probes);
            // Facts about files serve the next process that has them, and are forgotten now and then: to look through a
            // library again takes a moment.
            self.ended += 1;
            if self.ended.is_multiple_of(FORGETS_AFTER) {
                self.expected.forget_unused();
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
            // The process may have ended before the kernel's programs knew of it.
            if self.processes.contains_key(&pid) && !self.proc.has(Thread::first_of(pid)) {
                self.forget(pid);
            }
            return Ok(());
        }
        let program = self.program(pid);
        let (target, ended) = match self.targets.of_ending(&self.proc, pid) {
            Ok(found) => found,
            Err(TargetError::NoProcess { .. }) => {
                self.forget(pid);
                return Ok(());
            }
            Err(error) => {
                self.note(error.to_string());
                return Ok(());
            }
        };
        if !ended {
            target.notes.iter().for_each(|note| self.note(note.clone()));
        }
        let failed = match ended {
            true => {
                self.forget(pid);
                0
            }
            false => self.put(pid, &target)?,
        };
        // By exec, a process gets another program and keeps its number.
        let after = self.program(pid);
        if failed == 0
            && let Some(program) = program
            && after.is_none_or(|after| after == program)
        {
            self.expected.learn(program, &target);
        }
        Ok(())
    }

    /// Puts probes into a process, where it has none yet: how many could not be made.
    fn put(&mut self, pid: u32, target: &Target) -> Result<usize, TraceError> {
        let (shared, own): (Vec<_>, Vec<_>) = (target.probes.iter()).partition(|probe| self.is_of_all(probe));
        self.probe_linkers(shared)?;
        if own.is_empty() && target.marks.is_empty() {
            return Ok(0);
        }
        // The bytes are for calls that go on with handshakes.
        let mut probes = own.iter();
        let calls = probes.any(|probe| probe.function.role == Role::Handshake);
        let flags = ProcessFlags {
            goroutines: own.iter().any(|probe| probe.goroutine),
            silent: !calls && !target.marks.is_empty(),
            forks: self.forks.is_server(pid),
        };
        self.programs.trace(pid, flags)?;
        let mut traced = self.processes.remove(&pid).unwrap_or_else(Traced::new);
        traced.inside = traced.inside.at(Instant::now());
        let failed = self.probe(pid, own, &target.marks, &mut traced);
        let reads_and_writes = !traced.reads_and_writes.keys.is_empty();
        if !traced.inside.is_probed() && reads_and_writes {
            let probes = std::mem::take(&mut traced.reads_and_writes);
            self.remove(probes.attached);
        } else if reads_and_writes && let Some(until) = traced.inside.until() {
            self.due.entry(until).or_default().push(pid);
        }
        self.processes.insert(pid, traced);
        failed
    }

    /// Puts the probes of a server into all processes, so that what it forks has them from its first
    /// instruction on. Others that have the same libraries, and are not traced, pay for them as well.
    fn probe_everywhere(&mut self, server: u32) -> Result<(), TraceError> {
        let Ok(target) = self.targets.of(&self.proc, server) else {
            return Ok(());
        };
        let probes = target.probes.iter().filter(|probe| !self.is_of_all(probe));
        let probes = self.everywhere.probes.missing(probes, key);
        let known = &mut self.everywhere.probes;
        let refused = self.programs.attach(Scope::Traced, &probes, &mut known.attached)?;
        known.made(&probes, key, &refused);
        let known = &mut self.everywhere.marks;
        let marks = known.missing(&target.marks, place);
        let refused = self.programs.attach_marks(Scope::Traced, &marks, &mut known.attached)?;
        known.made(&marks, place, &refused);

        // Two probes at one place would count each call twice.
        let everywhere = &self.everywhere;
        let twice = |traced: &Traced| {
            let mut own = (traced.probes.keys.iter()).chain(&traced.reads_and_writes.keys);
            own.any(|key| everywhere.probes.keys.contains(key))
                || !traced.marks.keys.is_disjoint(&everywhere.marks.keys)
        };
        let twice = self.processes.iter().filter(|(_, traced)| twice(traced));
        let twice: Vec<u32> = twice.map(|(pid, _)| *pid).collect();
        for pid in twice {
            self.let_go(pid);
            self.look_at(pid)?;
        }
        Ok(())
    }

    /// Returns whether the probe is put into all processes once, because all are traced.
    fn is_of_all(&self, probe: &Probe) -> bool {
        self.filter.is_empty() && probe.function.role == Role::Load
    }

    fn probe_linkers(&mut self, probes: Vec<&Probe>) -> Result<(), TraceError> {
        let mut probes = self.linkers.missing(probes, key);
        probes.truncate(MOST_LINKERS.saturating_sub(self.linkers.keys.len()));
        if probes.is_empty() {
            return Ok(());
        }
        let attached = &mut self.linkers.attached;
        let refused = self.programs.attach(Scope::All, &probes, attached)?;
        self.linkers.keys.extend(probes.iter().map(|probe| key(probe)));
        for (at, error) in refused {
            let symbol = escaped(&probes[at].symbol);
            self.note(format!("{symbol} is not traced: {error}"));
        }
        Ok(())
    }

    /// Attaches probes. Returns how many could not be made.
    fn probe(
        &mut self,
        pid: u32,
        probes: Vec<&Probe>,
        marks: &[MarkProbe],
        traced: &mut Traced,
    ) -> Result<usize, TraceError> {
        let scope = Scope::Process(pid);
        let everywhere = &self.everywhere;
        let is_everywhere = |probe: &&Probe| everywhere.probes.keys.contains(&key(probe));
        let all = probes.len() + marks.len();
        let (inside, apart): (Vec<_>, Vec<_>) = (probes.into_iter())
            .filter(|probe| !is_everywhere(probe))
            .partition(|probe| probe.state.is_some());
        let marks: Vec<_> = (marks.iter())
            .filter(|mark| !everywhere.marks.keys.contains(&place(mark)))
            .collect();
        traced.everywhere = inside.len() + apart.len() + marks.len() < all;
        let mut failed = 0;
        let inside = match traced.inside.is_probed() {
            true => inside,
            false => Vec::new(),
        };
        for (probes, known) in [(apart, &mut traced.probes), (inside, &mut traced.reads_and_writes)] {
            // The process may have loaded files since that call a known function.
            let has_probe = probes.iter().filter(|probe| known.keys.contains(&key(probe)));
            let more = has_probe.filter_map(|probe| called_by_more(&mut traced.callers, probe));
            let more: Vec<Probe> = more.collect();
            let more: Vec<&Probe> = more.iter().collect();
            self.programs.attach_exits(scope, &more, &mut known.attached)?;
            let probes = known.missing(probes, key);
            let refused = self.programs.attach(scope, &probes, &mut known.attached)?;
            for (at, error) in &refused {
                self.failed(pid, &probes[*at].symbol, error);
            }
            failed += refused.len();
            for probe in probes {
                if let Exits::After(sites) = &probe.returns {
                    let sites = sites.iter().cloned().collect();
                    traced.callers.insert(key(probe), sites);
                }
                // One that cannot be made is not tried again: its exits are there already.
                known.keys.insert(key(probe));
            }
        }
        let known = &mut traced.marks;
        let marks = known.missing(marks, place);
        let refused = self.programs.attach_marks(scope, &marks, &mut known.attached)?;
        for (at, error) in &refused {
            self.failed(pid, &marks[*at].mark.name, error);
        }
        failed += refused.len();
        known.keys.extend(marks.into_iter().map(place));
        Ok(failed)
    }

    /// The program that a process runs.
    fn program(&self, pid: u32) -> Option<Identity> {
        let file = RegularFile::named(&self.proc.program(pid)).ok()?;
        Some(file.identity())
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
        let mut all = std::mem::take(&mut self.linkers.attached);
        let everywhere = std::mem::take(&mut self.everywhere);
        all.append(everywhere.probes.attached);
        all.append(everywhere.marks.attached);
        for (_, process) in self.processes.drain() {
            all.append(process.attached());
        }
        self.removed.extend(remove(all));
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

/// A known function with those places behind calls of it that have no probe yet. They count as known from now on.
fn called_by_more(callers: &mut HashMap<Key, HashSet<Site>>, probe: &Probe) -> Option<Probe> {
    let Exits::After(sites) = &probe.returns else {
        return None;
    };
    let known = callers.get_mut(&key(probe))?;
    let more = sites.iter().filter(|site| known.insert((*site).clone()));
    let more: Vec<Site> = more.cloned().collect();
    (!more.is_empty()).then(|| Probe {
        returns: Exits::After(more),
        ..probe.clone()
    })
}

fn place(probe: &MarkProbe) -> Place {
    (probe.file.identity(), probe.offset)
}

/// Time that events gather while there are many.
const PAUSE: Duration = Duration::from_millis(20);
/// Times after its start at which a process is looked at again.
const AFTER_START: [Duration; 4] = [
    Duration::from_millis(5),
    Duration::from_millis(50),
    Duration::from_millis(500),
    Duration::from_secs(3),
];
const AFTER_LOADING: Duration = Duration::from_millis(5);
/// Processes that end before files are forgotten that no process has.
const FORGETS_AFTER: u64 = 256;
/// Each container may have a dynamic linker of its own. Beyond these, what a process loads later than
/// the last look at it is not found.
const MOST_LINKERS: usize = 256;
/// Sentences that are remembered, so that each is said once.
const MOST_NOTES: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Two probes on one place would count each call twice.
    #[test]
    fn a_place_gets_one_probe_whatever_its_names_are() {
        let mut probed = Probed::default();
        probed.keys.insert(3);
        let key = |place: &u64| *place;
        assert_eq!(probed.missing(&[1, 1, 3, 2, 1], key), [&1, &2]);
    }

    /// A library that a process loads later may call a function that has probes already.
    #[test]
    fn calls_in_files_that_are_loaded_later_are_seen_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let file = Arc::new(RegularFile::named(file.path()).unwrap());
        let site = |offset| Site {
            file: Arc::clone(&file),
            offset,
        };
        let probe = |returns| Probe {
            function: crate::specimens::function("f", Role::Sign),
            symbol: "f".into(),
            file: Arc::clone(&file),
            entry: 0,
            returns,
            goroutine: false,
            state: None,
        };
        let after = |sites: &[u64]| probe(Exits::After(sites.iter().copied().map(site).collect()));
        let mut callers = HashMap::from([(key(&after(&[])), HashSet::from([site(1)]))]);
        let mut more = |probe: &Probe| called_by_more(&mut callers, probe).map(|one| one.returns);
        assert_eq!(more(&after(&[1])), None);
        assert_eq!(more(&after(&[1, 2])), Some(Exits::After(vec![site(2)])));
        assert_eq!(more(&after(&[1, 2])), None);
        // All its ways out have probes.
        assert_eq!(more(&probe(Exits::At(vec![7]))), None);
    }
}
