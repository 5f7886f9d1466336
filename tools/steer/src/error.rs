//! Errors of steering, and their origin.

use crate::state::BadState;
use std::io;
use std::path::PathBuf;

/// Reason why steering could not begin or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SteerError {
    /// Another one is at work.
    #[error(
        "steer is running already, as process {pid}; end it with kill {pid}, and it restores all \
         affinities as it ends"
    )]
    Busy {
        /// The other's process, or 0 if it has just begun.
        pid: i32,
    },
    /// The folder for the state file does not work.
    #[error("{path}: {source}", path = .path.display())]
    Folder {
        /// The folder, or a file in it.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Other users could have written the folder.
    #[error(
        "{path} belongs to another user, is a link, or other users can write to it, so that its content \
         cannot be trusted",
        path = .path.display()
    )]
    Untrusted {
        /// The folder.
        path: PathBuf,
    },
    /// A state file that this program did not write.
    #[error(
        "cannot use the state file {path}: {source}; remove it, and check affinities with taskset",
        path = .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Fault of the file.
        source: BadState,
    },
    /// The system does not show what is needed.
    #[error("cannot read {what}: {source}")]
    System {
        /// Resource that could not be read.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The machine has one core only.
    #[error("this machine has one core, so that nothing can be kept apart")]
    OneCore,
    /// None of the CPUs that were named is online.
    #[error("none of the CPUs {named} is there; this machine has {there}")]
    NoSuchCpus {
        /// CPUs that were named, as a list.
        named: String,
        /// CPUs that are online.
        there: String,
    },
    /// A process that was named is not there.
    #[error("there is no process {pid}")]
    NoProcess {
        /// Number of the process.
        pid: i32,
    },
    /// No sensor finds the threads that are wide.
    #[error("cannot tell who uses wide registers: {reason}")]
    Sensor {
        /// Reason, and what to do.
        reason: String,
    },
    /// The program could not be started.
    #[error("cannot start `{}`: {source}", .program.escape_debug())]
    Start {
        /// Name of the program.
        program: String,
        /// Error of the system.
        source: io::Error,
    },
}

impl SteerError {
    /// Makes an error of the system one of these.
    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
