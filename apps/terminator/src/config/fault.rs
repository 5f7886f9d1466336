//! A fault at one key.

use std::io;

use rustix::io::Errno;

/// Something wrong at one key, not yet tied to a file. Keys are written
/// `listener[0].certificate[1].key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) key: String,
    pub(crate) problem: String,
    pub(crate) remedy: String,
    /// True if it may be over in a while, with nothing corrected.
    pub(crate) passing: bool,
}

impl Fault {
    pub(crate) fn new(key: impl Into<String>, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            problem: problem.into(),
            remedy: remedy.into(),
            passing: false,
        }
    }

    /// With what the system said when files were read.
    pub(crate) fn because_of(self, error: &io::Error) -> Self {
        let passing = is_passing(error);
        Self { passing, ..self }
    }
}

/// Returns whether the system may give another answer in a while: it lacks memory or descriptors, or a disk or a
/// server of files has failed.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrInUse, AddrNotAvailable, InvalidData, NotFound, PermissionDenied};
    !matches!(
        error.kind(),
        NotFound | PermissionDenied | InvalidData | AddrInUse | AddrNotAvailable
    )
}

/// Returns whether it is this process or the machine that lacks memory or descriptors, whatever the file is like.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let known = [Errno::NOMEM, Errno::MFILE, Errno::NFILE];
    error.kind() == io::ErrorKind::OutOfMemory
        || Errno::from_io_error(error).is_some_and(|errno| known.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortages_are_known_from_what_is_wrong_with_a_file() {
        let is_short = |code: Errno| is_shortage(&code.into());
        for short in [Errno::NOMEM, Errno::MFILE, Errno::NFILE] {
            assert!(is_short(short) && is_passing(&short.into()), "{short:?}");
        }
        for other in [Errno::IO, Errno::ISDIR, Errno::STALE, Errno::NOENT] {
            assert!(!is_short(other), "{other:?}");
        }
        assert!(is_shortage(&io::ErrorKind::OutOfMemory.into()));
    }
}
