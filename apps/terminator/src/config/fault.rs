//! A fault at one key.

/// Something wrong at one key, not yet tied to a file. Keys are written
/// `listener[0].certificate[1].key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) key: String,
    pub(crate) problem: String,
    pub(crate) remedy: String,
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
        }
    }
}
