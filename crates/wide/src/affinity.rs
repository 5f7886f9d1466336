//! Threads and the CPUs they may run on.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// CPUs have numbers below this.
pub(crate) const MOST_CPUS: usize = CpuSet::MAX_CPU;

/// Some CPUs, at least one.
#[derive(Clone, Debug)]
pub(crate) struct Cpus {
    numbers: Vec<usize>,
    set: CpuSet,
}

impl Cpus {
    /// Of numbers below [`MOST_CPUS`].
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

    /// Whether the calling thread is on one of them now. Where it is pinned, it stays there.
    pub(crate) fn are_here(&self) -> bool {
        self.set.is_set(sched_getcpu())
    }

    /// Whether these and those that the calling thread may use are one CPU altogether.
    pub(crate) fn are_the_only_one(&self) -> bool {
        sched_getaffinity(None).is_ok_and(|allowed| self.numbers.len() == 1 && self.hold(&allowed))
    }

    /// Whether all of `set` are among these. There are few of these and a thousand possible others.
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

/// The calling thread is on vector cores; when this is dropped, it goes back.
pub(crate) struct Visit<'a> {
    to: &'a Cpus,
    /// Where the thread was, and where it was allowed to be. `None`: it was at home there.
    from: Option<(usize, CpuSet)>,
}

impl<'a> Visit<'a> {
    /// Moves the calling thread.
    ///
    /// The kernel refuses if the thread's cpuset has none of the CPUs. An affinity that a thread
    /// has inside its cpuset is no obstacle: who pins workers to scalar cores wants this, and it is
    /// given back.
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
            // Somebody gave the thread another affinity meanwhile. Theirs is the newer wish.
            return Ok(());
        }
        // Where the thread may also use vector cores, it would stay on this one until the kernel
        // finds it somewhere better. So it is sent home, or to any other core, before it gets its
        // freedom back. If that is not to be had any more, the last call decides.
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
