//! The errors, by their time: at the start, at submission, and of an accepted job.

/// Why an engine did not start: an error in its configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The backend asked for by name does not run on this machine.
    #[error(transparent)]
    Backend(#[from] widelane_crypto::BackendUnavailable),
    /// Two operations have the same name.
    #[error("two operations have the name `{name}`; give each its own name")]
    DuplicateOperation {
        /// The name.
        name: &'static str,
    },
    /// Vector cores without a CPU.
    #[error("placement `vector-cores` needs at least one CPU; name one in `vector_cpus`")]
    NoVectorCpus,
    /// A vector core's thread could not be pinned.
    #[error(
        "cannot pin a thread to CPU {cpu} of `vector_cpus`: {source}; \
         name CPUs that exist and that this process may use"
    )]
    Pin {
        /// The CPU.
        cpu: usize,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// A queue limit of 0 would refuse every job.
    #[error("`queue_limit` is 0, so every job would be refused; allow at least 1")]
    QueueLimitZero,
    /// A vector core's thread could not be started.
    #[error("cannot start the thread for CPU {cpu} of `vector_cpus`: {source}")]
    Spawn {
        /// The CPU.
        cpu: usize,
        /// Error of the system.
        source: std::io::Error,
    },
}

/// Why a job was not accepted. It has been dropped.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Too many jobs wait.
    #[error(
        "{operation}: overloaded, {limit} jobs wait already; \
         try again later, raise `queue_limit` or add cores"
    )]
    Overloaded {
        /// The operation whose queue is full.
        operation: &'static str,
        /// Most jobs that may wait in it.
        limit: usize,
    },
    /// The engine has been shut down.
    #[error("the engine has been shut down; submit to one that runs")]
    ShutDown,
    /// The engine was started without an operation for this request.
    #[error("no operation of this engine serves {request}; register one when the engine starts")]
    Unserved {
        /// The request's type.
        request: &'static str,
    },
}

/// Why a job has no output.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The operation panicked on this job. Other jobs of the same pass are not affected.
    #[error("{operation}: the operation panicked on this job; this is a bug, please report it")]
    Panicked {
        /// The operation.
        operation: &'static str,
    },
    /// The job was never accepted.
    #[error(transparent)]
    Refused(#[from] SubmitError),
    /// The engine, or the worker that held the job, ended before the job started.
    #[error("the engine shut down before this job started; submit to one that runs")]
    ShutDown,
}
