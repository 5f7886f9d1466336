//! Why a process cannot be looked at.

use std::io;

use rustix::io::Errno;

use crate::server::NoSwitch;

/// Why a process cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatusError {
    /// There is none.
    #[error("there is no process {pid}")]
    NoProcess {
        /// Its number.
        pid: u32,
    },
    /// The system does not let this user look.
    #[error("process {pid} may not be looked at by this user; it takes root with CAP_SYS_PTRACE")]
    NotAllowed {
        /// Its number.
        pid: u32,
    },
    /// It cannot be switched.
    #[error("process {pid} {why}")]
    NoSwitch {
        /// Its number.
        pid: u32,
        /// Why.
        why: NoSwitch,
    },
    /// Another program has written its switch during a proof.
    #[error("the lanes of process {pid} were switched by another command meanwhile, and stay as that has asked")]
    Overruled {
        /// Its number.
        pid: u32,
    },
    /// Something else failed.
    #[error("cannot look at process {pid}: {cause}")]
    Unreadable {
        /// Its number.
        pid: u32,
        /// What the system said.
        cause: io::Error,
    },
}

impl StatusError {
    pub(crate) fn of(pid: u32, cause: io::Error) -> Self {
        match cause.kind() {
            io::ErrorKind::NotFound => Self::NoProcess { pid },
            io::ErrorKind::PermissionDenied => Self::NotAllowed { pid },
            // It has ended since its memory was opened, or another program runs in its place: memory without an owner
            // reads as empty, and takes nothing.
            io::ErrorKind::UnexpectedEof | io::ErrorKind::WriteZero => Self::NoProcess { pid },
            _ if Errno::from_io_error(&cause) == Some(Errno::SRCH) => Self::NoProcess { pid },
            _ => Self::Unreadable { pid, cause },
        }
    }
}
