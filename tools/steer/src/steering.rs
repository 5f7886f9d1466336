//! The mechanism: looks at threads once an interval, asks [`Policy`], moves them, and undoes it.

use crate::cpusets::{Cpusets, cpuset_of};
use crate::error::SteerError;
use crate::fairness::{GroupId, Groups};
use crate::keeper::{self, Folder, Keeper};
use crate::lineage::heirs;
use crate::membership::Memberships;
use crate::policy::{Limits, Policy, Thread, ThreadId, Why, union};
use crate::returning::Returning;
use crate::sensor::Sensor;
use crate::state::{Original, Record, State};
use crate::tasks::{self, Task};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use widelane_affinity::{Cpus, process_time};

/// Options of steering.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that are moved.
    pub scope: Scope,
    /// Limits for vector cores.
    pub limits: Limits,
    /// Rule by which threads go back.
    pub returning: Returning,
    /// True to decide and report, but change nothing.
    pub dry_run: bool,
    /// Folder for the changes that must be undone.
    pub folder: Folder,
    /// Folder of root for the same. Root's steerer of the machine has precedence over every other one.
    pub roots: Folder,
}

/// Threads that are steered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Threads of all processes that this user may steer.
    Machine,
    /// Threads of these processes and their descendants.
    Only(Vec<i32>),
    /// Threads of this process's descendants.
    Descendants,
}

/// Something that happened, for people and programs to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// Other vector cores than before.
    VectorCores {
        /// CPUs of the vector cores.
        cpus: Cpus,
        /// True if scalar threads may use the vector cores too.
        open: bool,
    },
    /// A thread was given another affinity; in a dry run, it would have been.
    Moved {
        /// Number of the thread.
        tid: i32,
        /// Process of the thread.
        pid: i32,
        /// Name of the thread.
        name: String,
        /// CPUs on which the thread could run before.
        from: Cpus,
        /// CPUs on which the thread can run now.
        to: Cpus,
        /// The reason.
        why: Why,
    },
    /// The system did not let us move a thread. It is left alone from now on.
    Refused {
        /// Number of the thread.
        tid: i32,
        /// Name of the thread.
        name: String,
        /// Error of the system.
        error: String,
    },
    /// A round failed; affinities stay as they are until the next.
    Failed {
        /// Error of the round.
        error: String,
    },
    /// Root's steerer of the machine has begun. It has precedence, and this one ends.
    Overruled {
        /// Process of root's steerer.
        pid: i32,
    },
}

/// Totals of steering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Number of decisions.
    pub rounds: u64,
    /// Threads that were moved at least once.
    pub threads: u64,
    /// Changes of affinities.
    pub moves: u64,
    /// Threads that the system did not let us move.
    pub refused: u64,
    /// Threads that got back what they had before.
    pub restored: u64,
    /// Changes that another program made meanwhile, and that were respected.
    pub respected: u64,
}

/// Steers from when it is made until it is finished or dropped, which restores all affinities.
pub struct Steering {
    options: Options,
    sensor: Box<dyn Sensor>,
    policy: Policy,
    keeper: Option<Keeper>,
    owner: ThreadId,
    boot: String,
    began: Instant,
    known: HashMap<ThreadId, KnownThread>,
    memberships: Memberships,
    /// Records of threads that are gone, for their children.
    departed: Vec<Record>,
    refused: HashSet<ThreadId>,
    /// True if the file lacks some of the records.
    unsaved: bool,
    vector: (Cpus, bool),
    looking: Duration,
    summary: Summary,
}

/// Knowledge about a thread.
#[derive(Debug)]
struct KnownThread {
    original: Original,
    cpuset: Option<String>,
    record: Option<Record>,
    /// Rounds since it got back what it had.
    restored: Option<u32>,
    used: Option<Usage>,
    /// Affinity that was reported last, in a dry run.
    reported: Option<Cpus>,
}

/// Time on a CPU and waiting for one, up to an instant.
#[derive(Clone, Copy, Debug)]
struct Usage {
    at: Instant,
    nanoseconds: u64,
}

impl Steering {
    /// Begins. Affinities that a steerer left behind when it was killed are restored first.
    ///
    /// # Errors
    ///
    /// When another steerer is at work, there is no place for the state file, or processes or CPUs
    /// are named that are not there.
    pub fn begin(options: Options, sensor: Box<dyn Sensor>) -> Result<Self, SteerError> {
        let there = union(&widelane_affinity::cores().map_err(SteerError::system("the CPUs"))?);
        if let Some(named) = options.limits.candidates
            && named.and(&there).is_empty()
        {
            let [named, there] = [named, there].map(|cpus| cpus.to_string());
            return Err(SteerError::NoSuchCpus { named, there });
        }
        if let Scope::Only(pids) = &options.scope
            && let Some(&pid) = pids.iter().find(|&&pid| tasks::start_of(pid).is_none())
        {
            return Err(SteerError::NoProcess { pid });
        }
        let keeper = match options.scope {
            _ if options.dry_run => None,
            Scope::Machine | Scope::Only(_) => {
                let keeper = Keeper::of_machine(&options.folder, &options.roots)?;
                restore_abandoned(&options.folder)?;
                Some(keeper)
            }
            Scope::Descendants => Some(Keeper::of_tree(&options.folder)?),
        };
        let mut steering = Self {
            policy: Policy::new(options.limits, options.returning),
            options,
            sensor,
            keeper,
            owner: tasks::own_id().map_err(SteerError::system("/proc/self"))?,
            boot: tasks::boot().map_err(SteerError::system("the number of this boot"))?,
            began: Instant::now(),
            known: HashMap::new(),
            memberships: Memberships::new(),
            departed: Vec::new(),
            refused: HashSet::new(),
            unsaved: true,
            vector: (Cpus::default(), false),
            looking: Duration::ZERO,
            summary: Summary::default(),
        };
        steering.save()?;
        Ok(steering)
    }

    /// Looks, decides and moves once; call it once an interval.
    ///
    /// # Errors
    ///
    /// When the system does not show threads any more, or the state file cannot be written. What
    /// was changed is still known and can be restored.
    pub fn round(&mut self, tell: &mut dyn FnMut(Event)) -> Result<(), SteerError> {
        let began = process_time();
        let cores = widelane_affinity::cores().map_err(SteerError::system("the CPUs"))?;
        let (tasks, sessions) = self.tasks()?;
        let wide = self.sensor.wide(&tasks)?;
        let mut cpusets = Cpusets::new(union(&cores));
        self.meet(&tasks, &sessions, &mut cpusets);
        let (groups, of_tasks) = self.memberships.of(&tasks);
        let threads: Vec<Thread> = tasks
            .iter()
            .zip(of_tasks)
            .map(|(task, group)| Thread {
                id: task.id,
                allowed: self.allowed(task, &mut cpusets),
                wide: wide.contains(&task.id.tid),
                demand: self.demand(task),
                group,
            })
            .collect();
        let now = self.began.elapsed();
        let plan = self.policy.decide(now, &threads, &groups, &cores);
        if self.vector != (plan.vector, plan.open) {
            self.vector = (plan.vector, plan.open);
            tell(Event::VectorCores {
                cpus: plan.vector,
                open: plan.open,
            });
        }
        let mut changes = Vec::new();
        for ((task, thread), place) in tasks.iter().zip(&threads).zip(&plan.places) {
            if self.refused.contains(&task.id) || task.mask == place.affinity {
                continue;
            }
            let back = place.affinity == thread.allowed;
            if self.prepare(task, place.affinity, back) {
                changes.push((task, place.affinity, place.why, back));
            }
        }
        self.looking = process_time().saturating_sub(began);
        self.save()?;
        for (task, to, why, back) in changes {
            self.change(task, to, why, back, tell);
        }
        self.summary.rounds += 1;
        Ok(())
    }

    /// The time on a CPU that the last round took to look and decide. What it took to move threads
    /// is spent once, and not in every round.
    pub(crate) fn looking(&self) -> Duration {
        self.looking
    }

    /// The process of a steerer that has precedence over this one, which must end.
    pub(crate) fn overruled(&self) -> Option<i32> {
        let machine = self.options.scope != Scope::Descendants && !self.options.dry_run;
        let roots = &self.options.roots;
        machine.then(|| keeper::overruled(roots)).flatten()
    }

    /// Describes how wide threads are found.
    pub fn how(&self) -> String {
        self.sensor.how()
    }

    /// Restores everything, and ends.
    pub fn finish(mut self) -> Summary {
        self.undo();
        self.summary
    }

    /// Starts a program on the CPUs where it would be put if it is what the sensor says of every
    /// thread beforehand, so that it never runs elsewhere.
    pub(crate) fn start<T>(&mut self, spawn: impl FnOnce() -> T) -> Result<T, SteerError> {
        let cores = widelane_affinity::cores().map_err(SteerError::system("the CPUs"))?;
        let mask = widelane_affinity::allowed(None).map_err(SteerError::system("the affinity of this thread"))?;
        let Some(wide) = self.sensor.beforehand() else {
            return Ok(spawn());
        };
        let first = Thread {
            id: self.owner,
            allowed: mask,
            wide,
            demand: 0.0,
            group: GroupId::ROOT,
        };
        let mut policy = self.policy.clone();
        let to = policy.decide(Duration::ZERO, &[first], &Groups::new(), &cores).places[0];
        if to.affinity == mask || self.options.dry_run {
            return Ok(spawn());
        }
        let online = union(&cores);
        let original = original(self.owner.tid, mask, &mut Cpusets::new(online));
        self.departed.push(Record {
            id: self.owner,
            pid: self.owner.tid,
            session: tasks::own_session(),
            original,
            given: vec![to.affinity],
        });
        self.unsaved = true;
        self.save()?;
        // A started program inherits the affinity of the thread that starts it.
        widelane_affinity::allow(None, &to.affinity).map_err(SteerError::system("the affinity of this thread"))?;
        let started = spawn();
        widelane_affinity::allow(None, &mask_of(original))
            .map_err(SteerError::system("the affinity of this thread"))?;
        Ok(started)
    }

    /// The threads of the scope, oldest first, and the sessions of all threads.
    fn tasks(&self) -> Result<(Vec<Task>, HashSet<i32>), SteerError> {
        let mut tasks = tasks::tasks().map_err(SteerError::system("/proc"))?;
        let sessions = tasks.iter().map(|task| task.session).collect();
        let descendants = |roots: &[i32]| descendants(&tasks, roots);
        let (ours, theirs) = match &self.options.scope {
            Scope::Machine => (None, descendants(&self.options.folder.steered_trees())),
            Scope::Only(roots) => {
                let mut ours = descendants(roots);
                ours.extend(roots);
                (Some(ours), descendants(&self.options.folder.steered_trees()))
            }
            Scope::Descendants => (Some(descendants(&[self.owner.tid])), HashSet::new()),
        };
        tasks.retain(|task| {
            let is_ours = ours.as_ref().is_none_or(|ours| ours.contains(&task.pid));
            is_ours && !theirs.contains(&task.pid)
        });
        Ok((tasks, sessions))
    }

    /// Learns which threads are new or gone, and whose affinity another program has changed.
    fn meet(&mut self, tasks: &[Task], sessions: &HashSet<i32>, cpusets: &mut Cpusets) {
        self.part(tasks, sessions);
        let records = self.records();
        let (known, owner) = (&self.known, self.owner);
        let settled = |task: &Task| known.contains_key(&task.id) || task.id.start < owner.start;
        let mut inherited: HashMap<ThreadId, Record> = heirs(&records, tasks, settled)
            .into_iter()
            .map(|record| (record.id, record))
            .collect();
        for task in tasks {
            if !self.known.contains_key(&task.id) {
                let record = inherited.remove(&task.id);
                self.unsaved |= record.is_some();
                let known = KnownThread::new(task, record, cpusets);
                self.known.insert(task.id, known);
                continue;
            }
            let allowed = self.allowed(task, cpusets);
            let Some(known) = self.known.get_mut(&task.id) else {
                continue;
            };
            let given = known.record.iter().flat_map(|record| &record.given);
            let effective = known.cpuset.as_deref().and_then(|name| cpusets.get(name));
            let effective = effective.unwrap_or(Cpus::ALL);
            let mut given = given.map(|mask| mask.and(&effective));
            if task.mask == allowed || given.any(|mask| mask == task.mask) {
                known.restored = match known.restored {
                    Some(rounds) if rounds >= REMEMBERED => {
                        known.record = None;
                        self.unsaved = true;
                        None
                    }
                    rounds => rounds.map(|rounds| rounds + 1),
                };
                continue;
            }
            // Another program has changed it: that is what it has now by choice.
            let used = known.used;
            self.summary.respected += u64::from(known.record.is_some());
            self.unsaved |= known.record.is_some();
            *known = KnownThread::new(task, None, cpusets);
            known.used = used;
        }
    }

    /// Forgets those that are gone, but for what their children may have from them.
    fn part(&mut self, tasks: &[Task], sessions: &HashSet<i32>) {
        let live: HashSet<ThreadId> = tasks.iter().map(|task| task.id).collect();
        let gone = |id: &ThreadId| !live.contains(id);
        self.refused.retain(|id| live.contains(id));
        let before = self.departed.len();
        let owner = self.owner;
        self.departed
            .retain(|record| record.id == owner || sessions.contains(&record.session));
        self.unsaved |= before != self.departed.len();
        let left: Vec<ThreadId> = self.known.keys().copied().filter(gone).collect();
        for id in left {
            let Some(record) = self.known.remove(&id).and_then(|known| known.record) else {
                continue;
            };
            self.unsaved = true;
            let same = |other: &Record| {
                other.session == record.session
                    && other.original == record.original
                    && record.given.iter().all(|mask| other.given.contains(mask))
            };
            let others = self.known.values().filter_map(|known| known.record.as_ref());
            let has_record = self.departed.iter().chain(others).any(same);
            if sessions.contains(&record.session) && !has_record {
                self.departed.push(record);
            }
        }
    }

    /// CPUs on which a thread may run when it is not steered.
    fn allowed(&self, task: &Task, cpusets: &mut Cpusets) -> Cpus {
        let known = self.known.get(&task.id);
        let allowed = match known.map(|known| (known.original, known.cpuset.as_deref())) {
            Some((Original::Only(cpus), _)) => cpus,
            Some((Original::Whole, name)) => {
                let effective = name.and_then(|name| cpusets.get(name));
                effective.unwrap_or(cpusets.online)
            }
            None => task.mask,
        };
        let usable = allowed.and(&cpusets.online);
        if usable.is_empty() { task.mask } else { usable }
    }

    /// The share of the time since it was last looked at in which a thread wanted a CPU.
    fn demand(&mut self, task: &Task) -> f64 {
        let now = Usage {
            at: Instant::now(),
            nanoseconds: task.ran + task.waited,
        };
        let Some(known) = self.known.get_mut(&task.id) else {
            return 0.0;
        };
        let Some(before) = known.used.replace(now) else {
            return 0.0;
        };
        let nanoseconds = now.nanoseconds.saturating_sub(before.nanoseconds) as f64;
        let elapsed = now.at.duration_since(before.at).as_nanos().max(1) as f64;
        (nanoseconds / elapsed).min(1.0)
    }

    /// Notes a change before it is made; whether it is to be made.
    fn prepare(&mut self, task: &Task, to: Cpus, back: bool) -> bool {
        let Some(known) = self.known.get_mut(&task.id) else {
            return false;
        };
        if self.options.dry_run {
            let reported = known.reported.replace(to);
            self.summary.threads += u64::from(reported.is_none());
            return reported != Some(to);
        }
        if back {
            // The thread was never moved: its affinity is wider than can be used, which is no harm.
            return known.record.is_some();
        }
        let record = known.record.get_or_insert_with(|| {
            self.summary.threads += 1;
            Record {
                id: task.id,
                pid: task.pid,
                session: task.session,
                original: known.original,
                given: Vec::new(),
            }
        });
        if record.given.last() != Some(&to) {
            record.give(to);
            self.unsaved = true;
        }
        true
    }

    fn change(&mut self, task: &Task, to: Cpus, why: Why, back: bool, tell: &mut dyn FnMut(Event)) {
        let Some(known) = self.known.get_mut(&task.id) else {
            return;
        };
        let mask = if back { mask_of(known.original) } else { to };
        let done = match self.options.dry_run {
            true => Ok(()),
            false => tasks::set_affinity(task.id, &mask),
        };
        match done {
            Ok(()) => {
                known.restored = back.then_some(0);
                self.summary.moves += 1;
                tell(Event::Moved {
                    tid: task.id.tid,
                    pid: task.pid,
                    name: task.name.clone(),
                    from: task.mask,
                    to,
                    why,
                });
            }
            Err(error) if gone(&error) => {}
            Err(error) => {
                self.refused.insert(task.id);
                self.summary.refused += 1;
                tell(Event::Refused {
                    tid: task.id.tid,
                    name: task.name.clone(),
                    error: error.to_string(),
                });
            }
        }
    }

    fn records(&self) -> Vec<Record> {
        let known = self.known.values().filter_map(|known| known.record.clone());
        known.chain(self.departed.iter().cloned()).collect()
    }

    fn save(&mut self) -> Result<(), SteerError> {
        if let (true, Some(keeper)) = (self.unsaved, &self.keeper) {
            keeper.save(&State {
                boot: self.boot.clone(),
                owner: self.owner,
                records: self.records(),
            })?;
            self.unsaved = false;
        }
        Ok(())
    }

    fn undo(&mut self) {
        let Some(keeper) = self.keeper.take() else {
            return;
        };
        self.summary.restored += undo(&self.records(), self.owner);
        keeper.clear();
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        self.undo();
    }
}

impl KnownThread {
    fn new(task: &Task, record: Option<Record>, cpusets: &mut Cpusets) -> Self {
        let original = match &record {
            Some(record) => record.original,
            None => original(task.id.tid, task.mask, cpusets),
        };
        Self {
            original,
            cpuset: cpuset_of(task.id.tid),
            record,
            restored: None,
            used: None,
            reported: None,
        }
    }
}

/// Restores what steerers left behind that were killed, of the machine and of descendants. How
/// many threads got back what they had.
///
/// # Errors
///
/// When a steerer of the machine is at work, or a state file cannot be read.
pub fn restore(folder: &Folder) -> Result<u64, SteerError> {
    let _lock = keeper::lock(folder)?;
    restore_abandoned(folder)
}

fn restore_abandoned(folder: &Folder) -> Result<u64, SteerError> {
    let mut restored = 0;
    for path in folder.files() {
        if let Some(state) = keeper::read(&path)? {
            if keeper::owner(&state).is_some() {
                continue;
            }
            restored += undo(&state.records, state.owner);
        }
        // A file of another boot, or one that has been dealt with.
        let _ = widelane_files::remove(&path);
    }
    Ok(restored)
}

/// Gives back what they had to all threads that still have what `records` say they were given, and
/// to those that inherited it. Again until there are none, since one may have started another
/// just before.
fn undo(records: &[Record], owner: ThreadId) -> u64 {
    let mut restored = HashSet::new();
    for _ in 0..MOST_PASSES {
        let tasks = tasks::tasks().unwrap_or_default();
        let heirs = heirs(records, &tasks, |task| task.id.start < owner.start);
        let before = restored.len();
        for task in &tasks {
            let of_task = |record: &&Record| record.id == task.id;
            let Some(record) = records.iter().chain(&heirs).find(of_task) else {
                continue;
            };
            let mask = mask_of(record.original);
            // The thread has its affinity from before: it was not changed, or the change was undone.
            let as_before = record.original == Original::Only(task.mask);
            let given = record.given.contains(&task.mask) && !as_before;
            if given && tasks::set_affinity(task.id, &mask).is_ok() {
                restored.insert(task.id);
            }
        }
        if restored.len() == before {
            break;
        }
    }
    restored.len() as u64
}

/// Meaning of an affinity that we did not set: all that the cpuset allows counts as no choice.
fn original(tid: i32, mask: Cpus, cpusets: &mut Cpusets) -> Original {
    let cpuset = cpuset_of(tid);
    match cpuset.and_then(|name| cpusets.get(&name)) {
        Some(effective) if effective == mask => Original::Whole,
        _ => Original::Only(mask),
    }
}

/// Mask for the kernel: without a choice, every CPU there could be, so that the thread follows its cpuset again.
fn mask_of(original: Original) -> Cpus {
    match original {
        Original::Whole => Cpus::ALL,
        Original::Only(cpus) => cpus,
    }
}

/// The processes that descend from `roots`, without them.
fn descendants(tasks: &[Task], roots: &[i32]) -> HashSet<i32> {
    let mut found: HashSet<i32> = HashSet::new();
    loop {
        let before = found.len();
        for task in tasks {
            if roots.contains(&task.parent) || found.contains(&task.parent) {
                found.insert(task.pid);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

fn gone(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// Number of rounds after a thread got back its affinity in which a child of it that was made just before can still be
/// recognised.
const REMEMBERED: u32 = 8;
const MOST_PASSES: usize = 8;
