//! Reads that the owner of a process can hold up.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The way in which reads about one process are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Reads at once: the process belongs to root or to the user of this program, who holds up nothing but the own
    /// command. A process that ends soon is read before it is gone.
    Direct,
    /// Reads on a thread of its own.
    Bounded,
}

impl Patience {
    /// The way for the process of this folder in `/proc`. Its owner by `status`: that of the folder says less, since
    /// any process can give its folder to root (`prctl(2)`, PR_SET_DUMPABLE).
    pub(crate) fn with(process: &Path) -> Self {
        let status = widelane_files::kernel(process.join("status")).unwrap_or_default();
        Self::by(&status, rustix::process::geteuid().as_raw())
    }

    fn by(status: &[u8], own: u32) -> Self {
        let mut lines = status.split(|byte| *byte == b'\n');
        let ids = lines.find_map(|line| line.strip_prefix(b"Uid:"));
        let ids = ids.and_then(|ids| std::str::from_utf8(ids).ok());
        let is_ours = |id: &str| id.parse().is_ok_and(|id: u32| id == 0 || id == own);
        match ids.is_some_and(|ids| ids.split_whitespace().all(is_ours)) {
            true => Self::Direct,
            false => Self::Bounded,
        }
    }

    /// Does something, and waits for it no longer than `most` where its owner could hold it up.
    pub(crate) fn within<T: Send + 'static>(
        self,
        most: Duration,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        match self {
            Self::Direct => work(),
            Self::Bounded => within(most, work),
        }
    }
}

/// Does something on a thread of its own, and waits for it no longer than `most`.
///
/// The memory of a process, and with it its environment, can lie in a file system that its owner serves (FUSE): a
/// read waits until that program answers, which may be never. The kernel also holds back the list of mappings
/// meanwhile. A thread that hangs is left behind; it ends with this process.
pub(crate) fn within<T: Send + 'static>(
    most: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let most = patience(most, BEGUN.load(Ordering::Relaxed));
    let (sender, receiver) = mpsc::sync_channel(1);
    BEGUN.fetch_add(1, Ordering::Relaxed);
    let begun = Begun;
    thread::Builder::new().spawn(move || {
        let done = work();
        drop(begun);
        // The other end has given up.
        let _ = sender.send(done);
    })?;
    receiver.recv_timeout(most).map_err(|_| {
        let why = "its owner holds the read up, for example by a file system of his own";
        io::Error::new(io::ErrorKind::TimedOut, why)
    })?
}

/// The longest wait while others hang: one user may have any number of such processes.
fn patience(most: Duration, hanging: usize) -> Duration {
    match hanging {
        ..FEW => most,
        _ => most / 20,
    }
}

/// A thread that has not answered.
struct Begun;

impl Drop for Begun {
    fn drop(&mut self) {
        BEGUN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The limit for what takes less than a millisecond, if its owner does not hold it up.
pub(crate) const SHORT: Duration = Duration::from_secs(1);
/// The limit for the content of a file, which may come from a slow disk.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// Threads that have begun and not answered.
static BEGUN: AtomicUsize = AtomicUsize::new(0);
const FEW: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_is_given_up_and_what_answers_is_given() {
        assert_eq!(within(LONG, || Ok(7)).unwrap(), 7);
        let error = within(LONG, || Err::<(), _>(io::Error::other("no"))).unwrap_err();
        assert_eq!(error.to_string(), "no");
        let (release, held) = mpsc::channel::<()>();
        let hangs = move || {
            let _ = held.recv();
            Ok(())
        };
        let error = within(Duration::ZERO, hangs).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(release);
    }

    #[test]
    fn only_processes_of_root_and_of_this_user_are_read_at_once() {
        for (ids, expected) in [
            ("0\t0\t0\t0", Patience::Direct),
            ("7\t7\t7\t7", Patience::Direct),
            ("7\t0\t7\t0", Patience::Direct),
            ("8\t8\t8\t8", Patience::Bounded),
            ("0\t8\t0\t0", Patience::Bounded),
        ] {
            let status = format!("Name:\tUid: 0\nUmask:\t0022\nUid:\t{ids}\nGid:\t0\n");
            assert_eq!(Patience::by(status.as_bytes(), 7), expected, "{ids}");
        }
        assert_eq!(Patience::by(b"", 0), Patience::Bounded);
        assert_eq!(Patience::with(Path::new("/proc/self")), Patience::Direct);
    }

    #[test]
    fn patience_ends_when_many_hang() {
        assert_eq!(patience(SHORT, FEW - 1), SHORT);
        assert!(patience(SHORT, FEW) < SHORT);
    }
}
