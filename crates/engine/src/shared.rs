//! State that the handles of an engine share with its vector cores.

use std::sync::Arc;

use widelane_batching as batching;

use crate::config::Config;
use crate::group::Group;
use crate::line::AnyLine;
use crate::operations::Registry;
use crate::sleepers::{self, Sleepers};
use crate::sync::{AtomicBool, Ordering};

/// The state of an engine.
pub(crate) struct Shared {
    pub(crate) registry: Registry,
    pub(crate) sleepers: Sleepers,
    pub(crate) config: Config,
    pub(crate) closed: AtomicBool,
    pub(crate) group: Group,
}

impl Shared {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn anything_queued(&self) -> bool {
        self.registry.lines.iter().any(|line| line.queued() > 0)
    }

    /// The passes that wait for vector cores.
    pub(crate) fn passes_queued(&self) -> usize {
        let passes = |line: &Arc<dyn AnyLine>| batching::passes(&line.waiting());
        self.registry.lines.iter().map(passes).sum()
    }

    /// The vector core of `cpu`, for the thread that is one.
    pub(crate) fn vector_core(&self, cpu: usize) -> sleepers::Core {
        let Config { lending, clock, .. } = &self.config;
        sleepers::Core::new(cpu, lending.as_ref(), clock)
    }
}
