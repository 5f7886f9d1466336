//! Time slices in which wide registers were in use, for those who have to act on each.

use widelane_threads::Thread;

use crate::ebpf;
use crate::error::UsageError;

/// A time slice at whose end the upper halves of `zmm0` to `zmm15` were in use. Times are in
/// nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// CPU of the slice.
    pub cpu: usize,
    /// Whose it was.
    pub thread: Thread,
    /// Beginning of the slice.
    pub begin: u64,
    /// End of the slice.
    pub end: u64,
}

/// Tells of each such slice, on all CPUs, from when it is opened to when it is dropped.
pub struct Slices(ebpf::Slices);

impl Slices {
    /// Begins.
    ///
    /// # Errors
    ///
    /// When this machine, or what this process may do on it, does not allow it.
    pub fn open() -> Result<Self, UsageError> {
        ebpf::Slices::open().map(Self)
    }

    /// Slices that have ended since the last call. If calls come too seldom, some are lost.
    pub fn take(&mut self) -> Vec<Slice> {
        self.0.take()
    }
}
