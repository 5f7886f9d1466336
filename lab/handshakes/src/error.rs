//! Reasons why a comparison stops.

use std::io;
use std::path::PathBuf;

/// Reason why a comparison stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    /// Ctrl-C, SIGTERM or SIGHUP.
    #[error("interrupted; everything that was started is stopped")]
    Interrupted,
    /// The temporary folder.
    #[error("cannot write to the temporary folder: {0}; set TMPDIR to a writable one")]
    Folder(#[source] io::Error),
    /// A certificate.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A server.
    #[error("{name} did not start: {reason}")]
    Start {
        /// Name of the server.
        name: String,
        /// Reason, as far as it is known.
        reason: String,
    },
    /// The working tree is not as in its commit.
    #[error(
        "no record is written, because {reason}: the figures would belong to no commit. Commit the \
         changes and build again"
    )]
    Modified {
        /// Difference that was found.
        reason: String,
    },
    /// The program is not that of the working tree's commit.
    #[error(
        "no record is written, because {} {reason}: the figures would belong to another commit. \
         Build both again: cargo build --release -p widelane -p widelane-lab", program.display()
    )]
    OtherProgram {
        /// Program that differs.
        program: PathBuf,
        /// Difference that was found.
        reason: String,
    },
    /// A program that should have printed figures.
    #[error("{command} failed: {reason}")]
    Run {
        /// Command that failed.
        command: String,
        /// Reason, as far as it is known.
        reason: String,
    },
    /// Figures that cannot be read.
    #[error("{command} printed something that is not JSON: {source}")]
    Figures {
        /// Command that printed the figures.
        command: String,
        /// Error of the parser.
        source: serde_json::Error,
    },
    /// A document whose figures are compared or written.
    #[error("{}: {reason}", document.display())]
    Document {
        /// Document with the figures.
        document: PathBuf,
        /// Description of the fault.
        reason: String,
    },
    /// A measurement that can have no figures.
    #[error(
        "each measurement would last {seconds:.3} s, which is too short for handshakes to begin in it; raise \
         --seconds, or lower --rounds"
    )]
    TooShort {
        /// Time in seconds.
        seconds: f64,
    },
    /// The program of a server is not installed.
    #[error("{0} is not installed; install it or leave it out of the comparison")]
    NoServer(&'static str),
    /// No other program of ours was named.
    #[error("widelane-old is another `widelane` program, and none is named; give it with --old FILE")]
    NoOld,
    /// No server of those that were to be compared.
    #[error("nothing is compared: {0}")]
    Nothing(String),
    /// The machine.
    #[error("{what}: {source}")]
    Machine {
        /// Attempted step.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

impl TrialError {
    /// Makes an error of the system one of these.
    pub(crate) fn machine(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Machine { what, source }
    }
}
