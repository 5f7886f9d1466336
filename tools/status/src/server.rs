//! A server: a process and those that it has forked, with a switch each.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use widelane_status::{Asked, BadPage, InProof, PROVED, Proved, Report, SWITCH, SWITCH_IN_PROOF};
use widelane_threads::{Mapping, Memory, Proc, Thread};

use crate::error::StatusError;
use crate::look::{self, State};
use crate::proof::{Counts, Look, World};

/// A process and those that it has forked, as far as they have loaded the provider and count, or one process alone.
#[derive(Debug)]
pub struct Server {
    processes: Vec<Switched>,
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

impl Server {
    /// A process and those that it has forked.
    ///
    /// # Errors
    ///
    /// When there is no such process, or none of them has a switch; when one may not be looked at.
    pub fn of(pid: u32) -> Result<Self, StatusError> {
        let own = Switched::of(pid)?;
        let mut processes = Vec::from_iter(own.ok());
        for child in descendants(pid) {
            match Switched::of(child) {
                // What has done nothing yet follows its parent.
                Ok(found) => processes.extend(found.ok()),
                Err(StatusError::NoProcess { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if processes.is_empty() {
            // It has none, and so have its children: it says why.
            return Err(StatusError::NoSwitch {
                pid,
                why: Switched::of(pid)?.err().unwrap_or(NoSwitch::NoPage),
            });
        }
        Ok(Self { processes })
    }

    /// The numbers of its processes, and the name of the first.
    pub fn processes(&self) -> (Vec<u32>, &str) {
        let name = self.processes.first().map_or("", |first| &first.name);
        (self.processes.iter().map(|one| one.pid).collect(), name)
    }

    /// Whether a [proof](crate::proof) can switch its lanes off for a time.
    ///
    /// # Errors
    ///
    /// When one of its processes has no lanes, reads another clock than this program, or is being proved already.
    pub fn can_be_proved(&self) -> Result<(), StatusError> {
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
        self.each(|one| one.note(proved)).map(drop)
    }

    /// Asks each process for this on behalf of an operator. A proof that is at work ends.
    ///
    /// # Errors
    ///
    /// When none is left, or one cannot be written to: the others are asked all the same.
    pub fn ask(&self, asked: Asked) -> Result<(), StatusError> {
        self.each(|one| one.ask(asked)).map(drop)
    }

    /// What `work` gives for each process that is still there. Does it for all, and then fails if it failed for one.
    fn each<R>(&self, work: impl Fn(&Switched) -> Result<R, StatusError>) -> Result<Vec<(u32, R)>, StatusError> {
        let mut done = Vec::new();
        let mut gone = None;
        let mut failed = None;
        for one in &self.processes {
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
}

impl Switched {
    /// The switch of a process, or why it has none of its own.
    fn of(pid: u32) -> Result<Result<Self, NoSwitch>, StatusError> {
        let proc = Proc::here();
        let memory = Memory::of(pid).map_err(|cause| StatusError::of(pid, cause))?.to_write();
        Ok(match look::page_of(pid, &memory, &proc)? {
            Some((State::Counts(report), page)) => Ok(Self {
                pid,
                name: proc.process_name(pid),
                page: page.clone(),
                serves: report.facts.serves,
                was: (report.operator, report.in_proof),
                wrote: Cell::new(None),
                memory,
            }),
            Some((State::NotAllowed, _)) => return Err(StatusError::NotAllowed { pid }),
            Some((State::Damaged(bad), _)) => Err(NoSwitch::Damaged(bad)),
            Some((State::Inherited(_), _)) => Err(NoSwitch::NothingDone),
            _ => Err(NoSwitch::NoPage),
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
        self.write(SWITCH_IN_PROOF, NO_PROOF.to_word())
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
            _ => self.write(SWITCH_IN_PROOF, NO_PROOF.to_word()),
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
        self.server.each(|one| one.check_words(&one.report()?))?;
        self.server.each(|one| one.ask_in_proof(asked)).map(drop)
    }

    fn restore(&mut self) {
        for one in &self.server.processes {
            // One that has ended needs it no more. In another that cannot be written to, the word ends by itself.
            let _ = one.restore();
        }
    }

    fn look(&mut self) -> Result<Look, StatusError> {
        Ok(self.server.each(Switched::counts)?.into_iter().collect())
    }
}

/// The monotonic clock, which processes read, too.
pub fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
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

/// Word of a switch where no proof is at work.
const NO_PROOF: InProof = InProof {
    asked: Asked::On,
    until: Duration::ZERO,
};
/// The backend of a CPU without lanes.
const NO_LANES: &str = "aws-lc";

/// The server of which all those processes are that count, if it is one.
///
/// # Errors
///
/// The processes that are no descendants of another one that counts, if they are several or none.
pub fn only_server() -> io::Result<Result<u32, Vec<(u32, String)>>> {
    let found = look::survey()?.processes;
    let counting: Vec<_> = found
        .into_iter()
        .filter(|one| matches!(one.state, State::Counts(_)))
        .collect();
    let children: Vec<_> = counting.iter().flat_map(|one| descendants(one.pid)).collect();
    let heads: Vec<_> = counting
        .into_iter()
        .filter(|one| !children.contains(&one.pid))
        .map(|one| (one.pid, one.name))
        .collect();
    Ok(match &*heads {
        [(pid, _)] => Ok(*pid),
        _ => Err(heads),
    })
}
