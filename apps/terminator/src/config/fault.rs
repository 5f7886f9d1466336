//! A fault at one key.

use std::io;

/// Something wrong at one key, not yet tied to a file. Keys are written
/// `listener[0].certificate[1].key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) key: String,
    pub(crate) problem: String,
    pub(crate) remedy: String,
    /// Whether it may be over in a while, with nothing corrected.
    pub(crate) passing: bool,
}

impl Fault {
    pub(crate) fn new(
        key: impl Into<String>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
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

/// Whether the system may give another answer in a while: it lacks memory or descriptors, or a disk or a
/// server of files has failed.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrInUse, AddrNotAvailable, InvalidData, NotFound, PermissionDenied};
    !matches!(
        error.kind(),
        NotFound | PermissionDenied | InvalidData | AddrInUse | AddrNotAvailable
    )
}
