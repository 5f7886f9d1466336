//! Reasons why a server does not start or reload.

use std::io;

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
