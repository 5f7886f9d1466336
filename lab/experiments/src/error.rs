//! Reasons why an experiment stops.

use widelane_handshakes::TrialError;
use widelane_sim::ScenarioError;

/// Reason why an experiment stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// Programs or modules that are not installed; says how to install them.
    #[error("{lacking} not installed; on Debian: apt-get install --no-install-recommends {packages}")]
    Lacking {
        /// Programs that are missing.
        lacking: String,
        /// The packages that have it.
        packages: String,
    },
    /// A server, a program, the machine, or Ctrl-C.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// The prediction.
    #[error("the simulator: {0}")]
    Simulator(#[from] ScenarioError),
    /// An answer that is not the page.
    #[error("{server} answers wrongly: {what}")]
    Answer {
        /// Server that answered.
        server: String,
        /// Answer of the server.
        what: String,
    },
    /// The machine has one CPU, and the experiment takes two.
    #[error("this experiment takes two CPUs, one of them as a vector core; there is one")]
    Cpus,
    /// The worker.
    #[error("the worker: {0}")]
    Worker(String),
    /// Error of the load generator, as printed.
    #[error("cannot read what {program} printed: {said}")]
    Load {
        /// Program.
        program: &'static str,
        /// The last of it.
        said: String,
    },
}
