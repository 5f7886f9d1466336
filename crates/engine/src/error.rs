//! What can go wrong, sorted by when: at the start, at submission, and while a job lives.

/// Why an engine did not start. The operator's configuration is to blame.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The backend asked for by name does not run on this machine.
    #[cfg(not(loom))]
    #[error(transparent)]
    Backend(#[from] widelane_crypto::BackendUnavailable),
    /// Two operations carry one name.
    #[error("two operations are called `{name}`; register each under a name of its own")]
    DuplicateOperation {
        /// The name.
        name: &'static str,
    },
    /// A vector core was named twice.
    #[error("CPU {cpu} is named twice in `vector_cpus`; name each CPU once")]
    DuplicateCpu {
        /// The CPU.
        cpu: usize,
    },
    /// Vector cores were asked for, but none named.
    #[error("placement `vector-cores` needs at least one CPU; name some in `vector_cpus`")]
    NoVectorCpus,
    /// A vector core's thread could not be pinned.
    #[error(
        "cannot pin a thread to CPU {cpu} of `vector_cpus`: {source}; \
         name CPUs that exist and that this process may use"
    )]
    Pin {
        /// The CPU.
        cpu: usize,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A queue that holds nothing would refuse every job.
    #[error("`queue_limit` is 0, so every job would be refused; allow at least 1")]
    QueueLimitZero,
    /// A vector core's thread could not be started.
    #[error("cannot start the thread for CPU {cpu} of `vector_cpus`: {source}")]
    Spawn {
        /// The CPU.
        cpu: usize,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Why a job was not accepted. It has been dropped and nothing is left of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The machine is overloaded.
    #[error(
        "{operation}: overloaded, {limit} jobs wait already; \
         try again later, raise `queue_limit` or add cores"
    )]
    Overloaded {
        /// The operation whose queue is full.
        operation: &'static str,
        /// How many jobs may wait in it.
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
    /// This job made its operation panic; jobs that shared a pass with it are not affected.
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
