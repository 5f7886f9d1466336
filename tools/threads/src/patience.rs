//! Reads that the owner of a process can hold up.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

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

/// How long to wait while others hang: one user may have any number of such processes.
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

/// For what takes less than a millisecond, if no one holds it up.
pub(crate) const SHORT: Duration = Duration::from_secs(1);
/// For the content of a file, which may come from a slow disk.
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
    fn patience_ends_when_many_hang() {
        assert_eq!(patience(SHORT, FEW - 1), SHORT);
        assert!(patience(SHORT, FEW) < SHORT);
    }
}
