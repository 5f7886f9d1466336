//! How a sub-command ends when it does not end well.

use crate::output;
use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, ErrorKind};
use std::process::ExitCode;

/// The exit status of a sub-command that runs a program: the program's, or, as with `nice` and its
/// like, one that programs hardly use if anything failed before.
pub(crate) fn status_of_program(ran: Result<u8, Failure>) -> ExitCode {
    match ran {
        Ok(status) => ExitCode::from(status),
        Err(wrong @ Failure::Usage(_)) => wrong.report(),
        Err(failure) => {
            failure.report();
            ExitCode::from(STATUS_NOTHING_RAN)
        }
    }
}

/// The status in place of a program's that could not be started.
pub(crate) fn status_of_unstarted(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::NotFound => STATUS_MISSING,
        _ => STATUS_UNSTARTED,
    }
}

/// Why a sub-command stopped, and with it the exit status.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was called rightly and did not work: status 1.
    Failed(String),
    /// It was called wrongly: status 2, as for clap's own complaints.
    Usage(String),
    /// The reader of our standard output went away (`widelane … | head`). That is no failure
    /// of ours: quiet, status 0.
    ReaderGone,
}

impl Failure {
    /// Says on standard error what went wrong and gives the exit status.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Self::Failed(message) => {
                output::complain(&format!("widelane: {message}\n"));
                ExitCode::from(STATUS_FAILED)
            }
            Self::Usage(message) => {
                output::complain(&format!(
                    "widelane: {message}\n\nFor more information, try '--help'.\n"
                ));
                ExitCode::from(STATUS_USAGE)
            }
            Self::ReaderGone => ExitCode::SUCCESS,
        }
    }

    /// A library's error as a failure of status 1. Causes that its message does not already
    /// contain are appended, so that nothing an error knows is lost on the way out.
    pub(crate) fn from_error(error: &dyn Error) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            let text = inner.to_string();
            if !message.contains(&text) {
                let _ = write!(message, ": {text}");
            }
            cause = inner.source();
        }
        Self::Failed(message)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::from_error(&error)
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::from_error(&error)
    }
}

const STATUS_FAILED: u8 = 1;
const STATUS_USAGE: u8 = 2;
const STATUS_NOTHING_RAN: u8 = 125;
const STATUS_UNSTARTED: u8 = 126;
const STATUS_MISSING: u8 = 127;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    #[derive(Debug)]
    struct Outer {
        message: &'static str,
        inner: io::Error,
    }

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.message)
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.inner)
        }
    }

    fn text(message: &'static str) -> String {
        let inner = io::Error::other("disk on fire");
        match Failure::from_error(&Outer { message, inner }) {
            Failure::Failed(text) => text,
            other => panic!("a library error is a failure, not {other:?}"),
        }
    }

    #[test]
    fn causes_are_appended_once() {
        assert_eq!(text("cannot read x"), "cannot read x: disk on fire");
        assert_eq!(
            text("cannot read x: disk on fire"),
            "cannot read x: disk on fire"
        );
    }
}
