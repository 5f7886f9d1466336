//! Failures of a sub-command.

use crate::stderr::complain;
use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

/// Does what the arguments of this process ask for, and gives its exit status. A command that clap does not find may be
/// in another build or program: `elsewhere` says so.
pub fn main<A: Parser>(
    program: &str,
    elsewhere: impl FnOnce(&clap::Error) -> Option<Failure>,
    run: impl FnOnce(A) -> ExitCode,
) -> ExitCode {
    match A::try_parse() {
        Ok(arguments) => run(arguments),
        Err(error) => match elsewhere(&error) {
            Some(failure) => failure.report(program),
            None => error.exit(),
        },
    }
}

/// The exit status of a sub-command of `program`; says what went wrong.
pub fn status(program: &str, result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(program),
    }
}

/// The exit status of a sub-command of `program` that runs another program: that one's, or, as with
/// `nice` and its like, one that programs hardly use if anything failed before.
pub fn status_of_program(program: &str, ran: Result<u8, Failure>) -> ExitCode {
    match ran {
        Ok(status) => ExitCode::from(status),
        Err(wrong @ Failure::Usage(_)) => wrong.report(program),
        Err(failure) => {
            failure.report(program);
            ExitCode::from(STATUS_NOTHING_RAN)
        }
    }
}

/// The status in place of a program's that could not be started.
pub fn status_of_unstarted(kind: io::ErrorKind) -> u8 {
    match kind {
        io::ErrorKind::NotFound => STATUS_MISSING,
        _ => STATUS_UNSTARTED,
    }
}

/// The sub-command that clap did not find, if that is the error.
pub fn unknown_command(error: &clap::Error) -> Option<&str> {
    match (error.kind(), error.get(ContextKind::InvalidSubcommand)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(name))) => Some(name),
        _ => None,
    }
}

/// The option that clap did not find, if that is its complaint.
pub fn unknown_option(error: &clap::Error) -> Option<&str> {
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(name))) => Some(name),
        _ => None,
    }
}

/// Reason why a sub-command stopped, and with it the exit status.
#[derive(Debug)]
pub enum Failure {
    /// The call was right and the work failed: status 1.
    Failed(String),
    /// The call was wrong: status 2, as for clap's own complaints.
    Usage(String),
    /// The reader of our standard output went away (`widelane … | head`). That is no failure
    /// of ours: quiet, status 0.
    ReaderGone,
}

impl Failure {
    /// Says on standard error what went wrong in `program`, and gives the exit status.
    pub fn report(self, program: &str) -> ExitCode {
        match self {
            Self::Failed(message) => {
                complain(&format!("{program}: {message}\n"));
                ExitCode::from(STATUS_FAILED)
            }
            Self::Usage(message) => {
                complain(&format!(
                    "{program}: {message}\n\nFor more information, try '--help'.\n"
                ));
                ExitCode::from(STATUS_USAGE)
            }
            Self::ReaderGone => ExitCode::SUCCESS,
        }
    }

    /// A library's error as a failure of status 1. Causes that its message does not already
    /// contain are appended, so that nothing an error knows is lost on the way out.
    pub fn from_error(error: &dyn Error) -> Self {
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

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
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
    fn only_an_unknown_command_has_a_name() {
        let program = || clap::Command::new("x").subcommand(clap::Command::new("known"));
        let unknown = |words: &[&str]| {
            let error = program().try_get_matches_from(words).expect_err("an error");
            unknown_command(&error).map(str::to_owned)
        };
        assert_eq!(unknown(&["x", "other", "--json", "a"]), Some("other".into()));
        assert_eq!(unknown(&["x", "help", "other"]), Some("other".into()));
        assert_eq!(unknown(&["x", "known", "--json"]), None);
    }

    #[test]
    fn causes_are_appended_once() {
        assert_eq!(text("cannot read x"), "cannot read x: disk on fire");
        assert_eq!(text("cannot read x: disk on fire"), "cannot read x: disk on fire");
    }
}
