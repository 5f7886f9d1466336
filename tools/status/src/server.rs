//! A server: a process and those that it has forked, with a switch each.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use widelane_status::{Asked, BadPage, InProof, PROVED, Proved, Report, SWITCH, SWITCH_IN_PROOF};
use widelane_threads::{Mapping, Memory, Proc, Thread};

use crate::error::StatusError;
use crate::look::{self, Process, State};
use crate::proof::{Counts, Look, World};

/// A process and those that it has forked, as far as they have loaded the provider and count, or one process alone.
#[derive(Debug)]
pub struct Server {
    /// Those that count.
    processes: Vec<Switched>,
    /// Those that have done nothing, and have the page of a process that is not their parent: it has ended, as the one
    /// that starts a daemon does. What an operator asks of the page, they and what they fork heed.
    heirs: Vec<Switched>,
}

/// One of them.
#[derive(Debug)]
struct Switched {
    pid: u32,
    name: String,
    memory: Memory,
    page: Mapping,
    /// Whether it is `widelane serve`.
    serves: bool,
    /// What its switch asked for before anything was asked here, on behalf of an operator and of a proof.
    was: (Asked, InProof),
    /// What a proof has asked for here last; `None` before the first time.
    wrote: Cell<Option<InProof>>,
}

/// What a process has.
enum Found {
    /// A page of its own.
    Own(Switched),
    /// The page of another process, by its number.
    Inherited(Switched, u32),
    /// No switch.
    Nothing(NoSwitch),
}

impl Server {
    /// A process and those that it has forked.
    ///
    /// # Errors
    ///
    /// When there is no such process, or none of them has a switch; when one may not be looked at.
    pub fn of(pid: u32) -> Result<Self, StatusError> {
        let (mut processes, mut heirs) = (Vec::new(), Vec::new());
        let mut why = None;
        for one in [pid].into_iter().chain(descendants(pid)) {
            let no_switch = match Switched::of(one) {
                Ok(Found::Own(own)) => {
                    processes.push(own);
                    continue;
                }
                // What has done nothing yet follows its parent.
                Ok(Found::Inherited(_, of)) if has_page_of(parent(one), of) => NoSwitch::NothingDone,
                Ok(Found::Inherited(heir, _)) => {
                    heirs.push(heir);
                    continue;
                }
                Ok(Found::Nothing(why)) => why,
                Err(StatusError::NoProcess { .. }) if one != pid => continue,
                Err(error) => return Err(error),
            };
            // The first one says why.
            why = why.or(Some(no_switch));
        }
        match why {
            Some(why) if processes.is_empty() && heirs.is_empty() => Err(StatusError::NoSwitch { pid, why }),
            _ => Ok(Self { processes, heirs }),
        }
    }

    /// The numbers of its processes, and the name of the first.
    pub fn processes(&self) -> (Vec<u32>, &str) {
        let processes = match &*self.processes {
            [] => &self.heirs,
            _ => &self.processes,
        };
        let name = processes.first().map_or("", |first| &first.name);
        (processes.iter().map(|one| one.pid).collect(), name)
    }

    /// Whether a [proof](crate::proof) can switch its lanes off for a time.
    ///
    /// # Errors
    ///
    /// When one of its processes has no lanes, reads another clock than this program, or is being proved already; when
    /// none has done anything.
    pub fn can_be_proved(&self) -> Result<(), StatusError> {
        if let (true, Some(heir)) = (self.processes.is_empty(), self.heirs.first()) {
            return Err(StatusError::NoSwitch {
                pid: heir.pid,
                why: NoSwitch::NothingDone,
            });
        }
        for one in &self.processes {
            let report = one.report()?;
            let why = if report.facts.backend == NO_LANES {
                NoSwitch::NoLanes
            } else if !Proc::here().has_our_clock(one.pid) {
                NoSwitch::OtherClock
            } else if report.in_proof.at(now()).is_some() {
                NoSwitch::Busy
            } else {
                continue;
            };
            return Err(StatusError::NoSwitch { pid: one.pid, why });
        }
        Ok(())
    }

    /// Returns whether it tells full handshakes from others: it is `widelane serve`.
    pub fn tells_kinds(&self) -> bool {
        self.processes.iter().all(|one| one.serves)
    }

    /// Writes the result of a proof, for others to see.
    ///
    /// # Errors
    ///
    /// When none is left, or one cannot be written to.
    pub fn note(&self, proved: Proved) -> Result<(), StatusError> {
        each(&self.processes, |one| one.note(proved)).map(drop)
    }

    /// Asks each process for this on behalf of an operator. A proof that is at work ends.
    ///
    /// # Errors
    ///
    /// When none is left, or one cannot be written to: the others are asked all the same.
    pub fn ask(&self, asked: Asked) -> Result<(), StatusError> {
        each(self.heirs.iter().chain(&self.processes), |one| one.ask(asked)).map(drop)
    }
}

/// What `work` gives for each process that is still there. Does it for all, and then fails if it failed for one.
fn each<'a, R>(
    processes: impl IntoIterator<Item = &'a Switched>,
    work: impl Fn(&Switched) -> Result<R, StatusError>,
) -> Result<Vec<(u32, R)>, StatusError> {
    let mut done = Vec::new();
    let mut gone = None;
    let mut failed = None;
    for one in processes {
        match work(one) {
            Ok(result) => done.push((one.pid, result)),
            Err(error @ StatusError::NoProcess { .. }) => gone = Some(error),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed.or(gone.filter(|_| done.is_empty())) {
        Some(error) => Err(error),
        None => Ok(done),
    }
}

impl Switched {
    /// The switch of a process.
    fn of(pid: u32) -> Result<Found, StatusError> {
        let proc = Proc::here();
        let memory = Memory::of(pid).map_err(|cause| StatusError::of(pid, cause))?.to_write();
        let (page, report, is_own) = match look::page_of(pid, &memory, &proc)? {
            Some((State::Counts(report), page)) => (page.clone(), report, true),
            Some((State::Inherited(report), page)) => (page.clone(), report, false),
            Some((State::NotAllowed, _)) => return Err(StatusError::NotAllowed { pid }),
            Some((State::Damaged(bad), _)) => return Ok(Found::Nothing(NoSwitch::Damaged(bad))),
            _ => return Ok(Found::Nothing(NoSwitch::NoPage)),
        };
        let found = Self {
            pid,
            name: proc.process_name(pid),
            page,
            serves: report.facts.serves,
            was: (report.operator, report.in_proof),
            wrote: Cell::new(None),
            memory,
        };
        Ok(match is_own {
            true => Found::Own(found),
            false => Found::Inherited(found, report.process),
        })
    }

    fn report(&self) -> Result<Report, StatusError> {
        let bytes = self.memory.read(&self.page, widelane_status::SIZE);
        let bytes = bytes.map_err(|cause| StatusError::of(self.pid, cause))?;
        Report::parse(&bytes).map_err(|bad| StatusError::NoSwitch {
            pid: self.pid,
            why: NoSwitch::Damaged(bad),
        })
    }

    /// Asks on behalf of an operator, and takes the word of a proof away, which sees that and ends.
    fn ask(&self, asked: Asked) -> Result<(), StatusError> {
        self.write(SWITCH, asked.to_word())?;
        self.write(SWITCH_IN_PROOF, InProof::default().to_word())
    }

    /// Asks on behalf of a proof.
    fn ask_in_proof(&self, asked: InProof) -> Result<(), StatusError> {
        let word = asked.to_word();
        self.wrote.set(Some(InProof::of_word(word)));
        self.write(SWITCH_IN_PROOF, word)
    }

    /// Fails if an operator or another proof has switched it since this proof has, or since it was found.
    fn check_words(&self, report: &Report) -> Result<(), StatusError> {
        let (operator, in_proof) = self.was;
        match (report.operator, report.in_proof) == (operator, self.wrote.get().unwrap_or(in_proof)) {
            true => Ok(()),
            false => Err(StatusError::Overruled { pid: self.pid }),
        }
    }

    /// Takes the proof's word away, unless another one has taken its place. On a page that cannot be read, it counts as
    /// the proof's.
    fn restore(&self) -> Result<(), StatusError> {
        let Some(wrote) = self.wrote.take() else {
            return Ok(());
        };
        match self.report() {
            Ok(report) if report.in_proof != wrote => Ok(()),
            _ => self.write(SWITCH_IN_PROOF, InProof::default().to_word()),
        }
    }

    /// Writes the time last: readers look at the other words when there is one.
    fn note(&self, proved: Proved) -> Result<(), StatusError> {
        let words = (PROVED..).step_by(8).zip(proved.to_words());
        let mut words = Vec::from_iter(words).into_iter().rev();
        words.try_for_each(|(place, word)| self.write(place, word))
    }

    fn write(&self, place: usize, word: u64) -> Result<(), StatusError> {
        let written = self.memory.write(&self.page, place, word);
        written.map_err(|cause| StatusError::of(self.pid, cause))
    }

    fn counts(&self) -> Result<Counts, StatusError> {
        let report = self.report()?;
        if self.wrote.get().is_some() {
            self.check_words(&report)?;
        }
        let Report {
            signed,
            agreed,
            signed_times,
            agreed_times,
            operations,
            ..
        } = report;
        let proc = Proc::here();
        let ran = |thread: Thread| Some((thread.tid, proc.times(thread)?.ran));
        let threads: BTreeMap<_, _> = proc.threads_of(self.pid).into_iter().filter_map(ran).collect();
        if threads.is_empty() {
            return Err(StatusError::NoProcess { pid: self.pid });
        }
        let totals = operations.iter().map(|operation| operation.totals);
        Ok(Counts {
            signed,
            agreed,
            signed_times,
            agreed_times,
            jobs: totals.clone().map(|totals| totals.jobs).sum(),
            in_lanes: totals.map(|totals| totals.lanes_filled).sum(),
            threads,
        })
    }
}

/// Why a process cannot be switched.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoSwitch {
    /// It has no page.
    #[error(
        "has no page of counters: it has not loaded the provider, or does not count (`statistics = off` of the \
         provider, `batching.enabled = false` of `widelane serve`)"
    )]
    NoPage,
    /// It has forked, and done nothing since.
    #[error("has done nothing yet; it follows its parent until then")]
    NothingDone,
    /// Its page cannot be read.
    #[error("has a page of counters that cannot be used: {0}")]
    Damaged(BadPage),
    /// The CPU has no lanes, or they are switched off by the configuration.
    #[error("computes without lanes: there is nothing to switch off")]
    NoLanes,
    /// It is in a time namespace of its own.
    #[error("reads another clock than this program; prove in the time namespace of the process")]
    OtherClock,
    /// A proof is at work.
    #[error("is being proved by another program; wait a few seconds after that has ended")]
    Busy,
}

/// A server in real time.
#[derive(Debug)]
pub struct Living<F> {
    /// The server.
    pub server: Server,
    /// Waits until then; true if the user wants an end before.
    pub ended_before: F,
}

impl<F: FnMut(Instant) -> bool> World for Living<F> {
    type Error = StatusError;

    fn now(&self) -> Duration {
        now()
    }

    fn ended_before(&mut self, then: Duration) -> bool {
        (self.ended_before)(Instant::now() + then.saturating_sub(now()))
    }

    fn ask(&mut self, asked: InProof) -> Result<(), StatusError> {
        each(&self.server.processes, |one| one.check_words(&one.report()?))?;
        each(&self.server.processes, |one| one.ask_in_proof(asked)).map(drop)
    }

    fn restore(&mut self) {
        for one in &self.server.processes {
            // One that has ended needs it no more. In another that cannot be written to, the word ends by itself.
            let _ = one.restore();
        }
    }

    fn look(&mut self) -> Result<Look, StatusError> {
        Ok(each(&self.server.processes, Switched::counts)?.into_iter().collect())
    }
}

/// The monotonic clock, which processes read, too.
pub fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The process that has started another; 0 if that is not known.
fn parent(pid: u32) -> u32 {
    let stat = Proc::here().stat_of(pid);
    stat.and_then(|stat| u32::try_from(stat.parent).ok()).unwrap_or(0)
}

/// Returns whether a process has the page that the process of this number has made.
fn has_page_of(pid: u32, process: u32) -> bool {
    let found = look::process(pid).ok().flatten().map(|found| found.state);
    matches!(found, Some(State::Counts(report) | State::Inherited(report)) if report.process == process)
}

/// The processes that descend from one.
fn descendants(pid: u32) -> Vec<u32> {
    let proc = Proc::here();
    let parents: Vec<(u32, u32)> = proc
        .processes()
        .unwrap_or_default()
        .into_iter()
        .filter_map(|pid| Some((pid, u32::try_from(proc.stat_of(pid)?.parent).ok()?)))
        .collect();
    let mut family = vec![pid];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        let children = parents.iter().filter(|(_, of)| *of == parent);
        family.extend(children.map(|(pid, _)| *pid));
        next += 1;
    }
    family.remove(0);
    family
}

/// The backend of a CPU without lanes.
const NO_LANES: &str = "aws-lc";

/// The server of which all those processes are that count, if it is one.
///
/// # Errors
///
/// The first processes of all servers, if they are several or none.
pub fn only_server() -> io::Result<Result<u32, Vec<(u32, String)>>> {
    let heads = heads(look::survey()?.processes, descendants);
    Ok(match &*heads {
        [(pid, _)] => Ok(*pid),
        _ => Err(heads),
    })
}

/// The first process of each server of which one counts, with its name. It may have done nothing itself, as the master
/// of a daemon.
fn heads(found: Vec<Process>, descendants: impl Fn(u32) -> Vec<u32>) -> Vec<(u32, String)> {
    let counts = |one: &Process| matches!(one.state, State::Counts(_));
    let is_inherited = |one: &Process| matches!(one.state, State::Inherited(_));
    let counting: Vec<_> = found.iter().filter(|one| counts(one)).map(|one| one.pid).collect();
    let with_page = found.into_iter().filter(|one| counts(one) || is_inherited(one));
    let families: Vec<_> = with_page.map(|one| (descendants(one.pid), one)).collect();
    let children: Vec<_> = families.iter().flat_map(|(below, _)| below.clone()).collect();
    let heads = families.into_iter().filter(|(below, one)| {
        let counts = |pid| counting.contains(pid);
        !children.contains(&one.pid) && (counts(&one.pid) || below.iter().any(counts))
    });
    heads.map(|(_, one)| (one.pid, one.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_its_first_process_also_if_that_has_done_nothing() {
        let below = |pid| match pid {
            1 => vec![2, 3],
            4 => vec![5, 6],
            5 => vec![6],
            7 => vec![8],
            _ => Vec::new(),
        };
        let process = |pid, state: fn(Report) -> State| Process {
            pid,
            name: format!("server {pid}"),
            state: state(Report::default()),
        };
        let heads = |found| {
            let heads = heads(found, below);
            heads.into_iter().map(|(pid, _)| pid).collect::<Vec<_>>()
        };
        // A master that has done nothing, with two workers.
        let daemon = || {
            vec![
                process(1, State::Inherited),
                process(2, State::Counts),
                process(3, State::Counts),
            ]
        };
        assert_eq!(heads(daemon()), [1]);
        // Beside it one whose first process counts, and one of which none does.
        let mut others = daemon();
        others.extend([
            process(4, State::Counts),
            process(5, State::Inherited),
            process(6, State::Counts),
        ]);
        others.extend([process(7, State::Inherited), process(8, State::Inherited)]);
        assert_eq!(heads(others), [1, 4]);
        assert_eq!(
            heads(vec![process(2, State::Counts), process(3, State::Counts)]),
            [2, 3]
        );
    }
}
