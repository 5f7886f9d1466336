//! Threads and the CPUs they may run on.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// CPUs have numbers below this.
pub(crate) const MOST_CPUS: usize = CpuSet::MAX_CPU;

/// A set of CPUs, at least one.
#[derive(Clone, Debug)]
pub(crate) struct Cpus {
    numbers: Vec<usize>,
    set: CpuSet,
}

impl Cpus {
    /// From numbers below [`MOST_CPUS`].
    pub(crate) fn new(numbers: &[usize]) -> Self {
        let mut set = CpuSet::new();
        for &cpu in numbers {
            set.set(cpu);
        }
        Self {
            numbers: numbers.to_owned(),
            set,
        }
    }

    /// Whether the calling thread runs on one of them now. A pinned thread stays there.
    pub(crate) fn are_here(&self) -> bool {
        self.set.is_set(sched_getcpu())
    }

    /// Whether this set and the CPUs of the calling thread are one single CPU.
    pub(crate) fn are_the_only_one(&self) -> bool {
        sched_getaffinity(None).is_ok_and(|allowed| self.numbers.len() == 1 && self.hold(&allowed))
    }

    /// Whether all CPUs of `set` are in this set, which is small.
    fn hold(&self, set: &CpuSet) -> bool {
        let shared = self.numbers.iter().filter(|&&cpu| set.is_set(cpu));
        shared.count() == set.count() as usize
    }
}

/// Keeps the calling thread on one CPU.
pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= MOST_CPUS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(sched_setaffinity(None, &Cpus::new(&[cpu]).set)?)
}

/// While this exists, the calling thread is on vector cores; dropping it moves the thread back.
pub(crate) struct Visit<'a> {
    to: &'a Cpus,
    /// The CPU and the affinity of the thread before; `None`: it was on vector cores already.
    from: Option<(usize, CpuSet)>,
}

impl<'a> Visit<'a> {
    /// Moves the calling thread.
    ///
    /// The kernel refuses if the thread's cpuset contains none of the CPUs. An affinity inside the
    /// cpuset is no obstacle, because workers pinned to scalar cores need this; it is restored.
    pub(crate) fn to(to: &'a Cpus) -> io::Result<Self> {
        let allowed = sched_getaffinity(None)?;
        if to.hold(&allowed) {
            return Ok(Self { to, from: None });
        }
        let home = sched_getcpu();
        sched_setaffinity(None, &to.set)?;
        Ok(Self {
            to,
            from: Some((home, allowed)),
        })
    }

    fn end(&self) -> io::Result<()> {
        let Some((home, allowed)) = &self.from else {
            return Ok(());
        };
        if !self.to.hold(&sched_getaffinity(None)?) {
            // Another program has changed the affinity meanwhile. That choice is newer.
            return Ok(());
        }
        // A thread that may also use vector cores would stay on this one until the kernel moves it.
        // So it moves to its former CPU, or to any other core, before its affinity is restored. If
        // that fails, the last call decides.
        let mut first = *allowed;
        for &cpu in &self.to.numbers {
            first.unset(cpu);
        }
        if first.is_set(*home) {
            first = Cpus::new(&[*home]).set;
        }
        if first.count() > 0 && first != *allowed {
            let _ = sched_setaffinity(None, &first);
        }
        Ok(sched_setaffinity(None, allowed)?)
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(
                "a thread stays on the vector cores {:?}, it cannot go back: {error}",
                self.to.numbers
            );
        }
    }
}
