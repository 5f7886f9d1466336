//! The way of a calling thread to the vector cores and back, for [`Form::Migrate`](crate::Form::Migrate).

use std::io;

use rustix::thread::sched_getcpu;
use widelane_affinity::{Cpus, allow, allowed};

/// While this exists, the calling thread is on vector cores; dropping it moves the thread back.
pub(crate) struct Visit<'a> {
    to: &'a Cpus,
    /// The CPU and the affinity of the thread before; `None`: it was on vector cores already.
    from: Option<(usize, Cpus)>,
}

impl<'a> Visit<'a> {
    /// Moves the calling thread.
    ///
    /// The kernel refuses if the thread's cpuset contains none of the CPUs. An affinity inside the
    /// cpuset is no obstacle, because workers pinned to scalar cores need this; it is restored.
    pub(crate) fn to(to: &'a Cpus) -> io::Result<Self> {
        let before = allowed(None)?;
        if before.within(to) {
            return Ok(Self { to, from: None });
        }
        let home = sched_getcpu();
        allow(None, to)?;
        Ok(Self {
            to,
            from: Some((home, before)),
        })
    }

    fn end(&self) -> io::Result<()> {
        let Some((home, before)) = &self.from else {
            return Ok(());
        };
        if !allowed(None)?.within(self.to) {
            // Another program has changed the affinity meanwhile. That choice is newer.
            return Ok(());
        }
        // A thread that may also use vector cores would stay on this one until the kernel moves it.
        // So it moves to its former CPU, or to any other core, before its affinity is restored. If
        // that fails, the last call decides.
        let mut first = before.without(self.to);
        if first.has(*home) {
            first = Cpus::from_iter([*home]);
        }
        if !first.is_empty() && first != *before {
            let _ = allow(None, &first);
        }
        allow(None, before)
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            let cores = self.to;
            tracing::warn!("a thread stays on the vector cores {cores}, it cannot go back: {error}");
        }
    }
}
