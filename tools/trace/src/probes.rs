//! Puts probes on places of files: as many as possible by one call of the system.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope};
use aya::programs::{ProgramError, UProbe};
use aya::{Btf, Ebpf};
use rustix::io::Errno;
use widelane_bpf::{MultiProgram, Point, program};

use crate::error::TraceError;
use crate::ready::Ready;

/// The programs that are run by probes, by their places in [`NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Run {
    Enter,
    Leave,
    Loaded,
    Reached,
}

/// Processes in which places get probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One process, by its number.
    Process(u32),
    /// All processes.
    All,
    /// All processes, of which only those that are traced report anything.
    Traced,
}

/// Method that attaches probes.
pub(crate) enum AttachMethod {
    /// Many by one call (Linux 6.6).
    Multi([Arc<MultiProgram>; NAMES.len()]),
    /// One by one.
    Single,
}

/// Probes. They are removed when this is dropped.
#[derive(Default)]
pub(crate) struct Attached {
    links: Vec<Box<dyn Send>>,
}

/// A place that has no probe: which of a list, and why.
pub(crate) type Refused = (usize, TraceError);

impl AttachMethod {
    /// The best that the kernel can do. The programs of single probes are loaded in any case.
    pub(crate) fn best(object: &[u8], btf: &Btf, programs: &Ebpf) -> Self {
        // Whatever is missing: single probes need less, and say what they lack.
        match MultiProgram::load(object, btf, programs, NAMES) {
            Ok(programs) if programs[0].sees_all_threads() => Self::Multi(programs.map(Arc::new)),
            _ => Self::Single,
        }
    }

    /// Keeps the kernel ready, if that helps.
    pub(crate) fn ready(&self) -> Option<Ready> {
        match self {
            Self::Multi(programs) => Ready::new(Arc::clone(&programs[Run::Loaded as usize])),
            Self::Single => None,
        }
    }
}

impl Scope {
    /// Number of the process for the kernel: 0 stands for all, since no process has it.
    fn pid(self) -> u32 {
        match self {
            Self::Process(pid) => pid,
            Self::All | Self::Traced => 0,
        }
    }
}

impl Attached {
    /// Adds probes on places of a file. Those that cannot have one are returned.
    pub(crate) fn add(
        &mut self,
        (method, programs): (&AttachMethod, &mut Ebpf),
        run: Run,
        (scope, path): (Scope, &Path),
        points: &[Point],
    ) -> Result<Vec<Refused>, TraceError> {
        let pid = scope.pid();
        let mut refused = Vec::new();
        match method {
            AttachMethod::Multi(programs) => {
                let program = &programs[run as usize];
                self.add_multi(program, (pid, path), (points, 0), &mut refused)?;
            }
            AttachMethod::Single => {
                for (at, point) in points.iter().enumerate() {
                    match single(programs, run, (pid, path), point) {
                        Ok(link) => self.links.push(Box::new(link)),
                        Err(error @ TraceError::NoRights) => return Err(error),
                        Err(error) => refused.push((at, error)),
                    }
                }
            }
        }
        Ok(refused)
    }

    /// A link has all of its places or none. Some instructions cannot have a probe: they are found by
    /// halves, so that the others have theirs by few links.
    fn add_multi(
        &mut self,
        program: &MultiProgram,
        at: (u32, &Path),
        (points, first): (&[Point], usize),
        refused: &mut Vec<Refused>,
    ) -> Result<(), TraceError> {
        if points.is_empty() {
            return Ok(());
        }
        let error = match program.attach(at.0, at.1, points) {
            Ok(link) => {
                self.links.push(Box::new(link));
                return Ok(());
            }
            Err(error) => error,
        };
        if widelane_bpf::is_refused(&error) {
            return Err(TraceError::NoRights);
        }
        // There is no such process any more, or the tracer is at a limit: parts would fare no better.
        let errno = Errno::from_io_error(&error);
        let hopeless = [Errno::SRCH, Errno::MFILE, Errno::NFILE, Errno::NOMEM];
        if points.len() == 1 || errno.is_some_and(|errno| hopeless.contains(&errno)) {
            let each = (first..first + points.len()).map(|at| (at, failed(&error)));
            refused.extend(each);
            return Ok(());
        }
        let half = points.len() / 2;
        self.add_multi(program, at, (&points[..half], first), refused)?;
        self.add_multi(program, at, (&points[half..], first + half), refused)
    }

    /// Takes over those of another.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.links.append(&mut other.links);
    }

    /// Returns whether there are no probes.
    pub(crate) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }
}

/// Removes probes in another thread, or at once if there can be none.
///
/// For each link, the kernel waits until no CPU runs its program any more: a tenth of a second on a busy
/// machine. It waits for many at the same time.
pub(crate) fn remove(probes: Attached) -> Option<JoinHandle<()>> {
    let removing = move || {
        let mut links = probes.links;
        let share = links.len().div_ceil(MOST_THREADS).max(1);
        thread::scope(|scope| {
            while !links.is_empty() {
                let some = links.split_off(links.len().saturating_sub(share));
                // Without a thread, the probes are removed here.
                let _ = thread::Builder::new().spawn_scoped(scope, move || drop(some));
            }
        });
    };
    // A thread that could not be started is dropped, and its probes with it.
    thread::Builder::new().spawn(removing).ok()
}

fn single(programs: &mut Ebpf, run: Run, (pid, path): (u32, &Path), point: &Point) -> Result<UProbeLink, TraceError> {
    let failed = |error: ProgramError| match widelane_bpf::is_refused(&error) {
        true => TraceError::NoRights,
        false => failed(&error),
    };
    let scope = NonZeroU32::new(pid).map_or(UProbeScope::AllProcesses, UProbeScope::OneProcess);
    let at = UProbeAttachPoint {
        location: UProbeAttachLocation::AbsoluteOffset(point.offset),
        cookie: Some(point.cookie),
    };
    let name = NAMES[run as usize];
    let program: &mut UProbe = program(programs, name).map_err(failed)?;
    let link = program.attach(at, path, scope).map_err(failed)?;
    program.take_link(link).map_err(failed)
}

fn failed(error: &dyn std::error::Error) -> TraceError {
    TraceError::Kernel {
        what: "attaching a probe",
        cause: widelane_bpf::causes(error),
    }
}

/// The programs in the object file.
pub(crate) const NAMES: [&str; 4] = ["enter", "leave", "loaded", "reached"];
/// Threads that remove probes at the same time.
const MOST_THREADS: usize = 64;
