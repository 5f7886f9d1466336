//! Reasons why a server does not start or reload.

use std::io;

use rustix::io::Errno;

use crate::config::ConfigError;

/// Reason why a server did not start or a signal loop could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The configuration has a fault.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The system refuses something that every server needs.
    #[error("cannot {doing}: {source}; {remedy}")]
    Machine {
        /// Attempt of the server.
        doing: String,
        /// The system's error.
        source: io::Error,
        /// Remedy for the operator.
        remedy: &'static str,
    },
}

impl ServerError {
    /// Something else that the system refuses.
    pub(crate) fn cannot(doing: &str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Machine {
            doing: doing.into(),
            remedy: match Errno::from_io_error(&source) {
                Some(Errno::MFILE) => "raise the limit of descriptors",
                Some(Errno::NFILE) => "raise the machine's limit of open files (`sysctl fs.file-max`)",
                Some(Errno::NOMEM | Errno::NOBUFS) => "give it more memory",
                _ => "look whether a filter of system calls forbids it",
            },
            source,
        }
    }

    /// A thread that does not start.
    pub(crate) fn no_thread(doing: &str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Machine {
            doing: doing.into(),
            source,
            remedy: "raise the limits of threads and descriptors",
        }
    }

    /// Returns whether it may be over in a while, with nothing corrected.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Config(error) => error.fault.passing,
            Self::Machine { .. } => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_of_descriptors_is_remedied_by_more_of_them() {
        let text = |code: Errno| ServerError::cannot("watch for signals")(code.into()).to_string();
        assert!(text(Errno::MFILE).ends_with("; raise the limit of descriptors"));
        assert!(text(Errno::NFILE).contains("fs.file-max"));
        for other in [Errno::NOMEM, Errno::PERM, Errno::INVAL] {
            let text = text(other);
            assert!(text.starts_with("cannot watch for signals: "), "{text}");
            assert!(!text.contains("descriptors") && !text.contains("file-max"), "{text}");
        }
    }
}
