//! Errors of a measurement.

use std::io;

/// Reason why nothing was measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpeedError {
    /// The plan names an operation that does not exist.
    #[error("there is no operation `{}`; the operations are {known}", .name.escape_debug())]
    UnknownOperation {
        /// Name in the plan.
        name: String,
        /// The names that exist, separated by commas.
        known: String,
    },
    /// The plan's CPU does not exist or this process may not use it.
    #[error("this process may not run on CPU {cpu}, only on {allowed}; choose one of those")]
    CpuNotAllowed {
        /// CPU in the plan.
        cpu: usize,
        /// The CPUs in the process's affinity mask.
        allowed: String,
    },
    /// The system refused to tell or to set the affinity of a thread.
    #[error("cannot {what}")]
    System {
        /// Attempted step.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// An operation gave an error in place of a result, which makes its rate meaningless.
    #[error("{operation} on {backend} failed while it was measured: {why}")]
    Operation {
        /// The operation.
        operation: &'static str,
        /// The backend.
        backend: String,
        /// The operation's error.
        why: String,
    },
}

impl SpeedError {
    /// Makes an error of the system one of these.
    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
