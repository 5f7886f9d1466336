//! The errors: at the start, and of calls that must not run in place.

use std::io;

/// Reason why wide code cannot run as configured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The process has a configuration already, from `configure` or the first `run_wide`.
    #[error(
        "this process already runs wide code as `{form}`; configure it once, before the first call \
         of run_wide"
    )]
    Configured {
        /// Present configuration.
        form: String,
    },
    /// Vector cores without a CPU.
    #[error("there are no vector cores; name at least one CPU, or choose `inline`")]
    NoCpus,
    /// A vector core's thread could not be started.
    #[error("cannot start the thread for vector core {cpu}: {source}; allow this user more threads")]
    Spawn {
        /// The CPU.
        cpu: usize,
        /// Error of the system.
        source: io::Error,
    },
    /// A CPU may not be used, or does not exist.
    #[error(
        "CPU {cpu} cannot be a vector core: {source}; name CPUs that are online and that this \
         process's cpuset allows (Cpus_allowed_list in /proc/self/status)"
    )]
    Unusable {
        /// The CPU.
        cpu: usize,
        /// Error of the kernel.
        source: io::Error,
    },
}

/// Reason why a closure was not run, if running it in place was not allowed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The pool's threads are in the process that this one was forked from.
    #[error("this process was forked from the one with the vector cores' threads; start a `Wide` here")]
    Forked,
    /// The kernel does not let this thread use the vector cores.
    #[error(
        "this thread cannot move to the vector cores (CPU {cpus}): {source}; let its cpuset allow \
         one of them"
    )]
    Migrate {
        /// The vector cores.
        cpus: String,
        /// Error of the kernel.
        source: io::Error,
    },
}
