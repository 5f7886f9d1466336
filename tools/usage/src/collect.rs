//! The collectors behind one interface.

use widelane_text::named;
use widelane_threads::Proc;

use crate::ebpf::Watch;
use crate::error::UsageError;
use crate::interval::Interval;
use crate::nudge::{MOST_FOR_VISITS, Nudge};
use crate::poll::Poll;

named! {
    /// Method of collecting use.
    pub enum Method {
        /// Programs in the kernel that look at every context switch.
        Ebpf = "ebpf",
        /// Reads of `arch_status` of every thread.
        Poll = "poll",
    }
}

/// Collects use, from when it is opened to when it is dropped.
pub struct Collector {
    inner: Inner,
    nudge: Option<Nudge>,
}

impl Collector {
    /// Begins to collect. With `nudge`, each interval ends with a short visit to each CPU, so that
    /// the time slices that are under way are counted.
    ///
    /// # Errors
    ///
    /// When this machine, or what this process may do on it, does not allow it.
    pub fn open(method: Method, nudge: bool) -> Result<Self, UsageError> {
        let inner = match method {
            Method::Ebpf => Inner::Ebpf(Box::new(Watch::open()?)),
            Method::Poll => Inner::Poll(Poll::open(Proc::here())?),
        };
        let nudge = nudge.then(Nudge::new);
        Ok(Self { inner, nudge })
    }

    /// Method of this collector.
    pub fn method(&self) -> Method {
        match self.inner {
            Inner::Ebpf(_) => Method::Ebpf,
            Inner::Poll(_) => Method::Poll,
        }
    }

    /// Use since the last call, or since the collector was opened.
    ///
    /// # Errors
    ///
    /// When the kernel refuses what it allowed before.
    pub fn interval(&mut self) -> Result<Interval, UsageError> {
        if let Some(nudge) = &mut self.nudge {
            nudge.visit(MOST_FOR_VISITS);
        }
        match &mut self.inner {
            Inner::Ebpf(watch) => watch.interval(),
            Inner::Poll(poll) => poll.interval(),
        }
    }
}

enum Inner {
    Ebpf(Box<Watch>),
    Poll(Poll),
}
