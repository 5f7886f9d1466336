//! Threads that measure while a server runs, and their end with the process.
//!
//! A process may end while one of them computes. AWS-LC then takes its random generators down, and
//! aborts the process if a thread still asks for one. So the threads end first: `exit(3)` waits for
//! them, and they look after each round of a measurement whether it does.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::{Builder, JoinHandle};

use widelane_affinity::without_signals;

/// Starts a thread, unless the process ends.
// In a box: each operation has work of its own, and a thread is much code.
pub(crate) fn start(work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the function has no conditions, and `end` is there as long as this code is.
        unsafe { libc::atexit(end) };
    });
    let mut threads = threads();
    if is_ending() {
        return Ok(());
    }
    let process = std::process::id();
    for of in threads.extract_if(.., |of| of.process == process && of.thread.is_finished()) {
        let _ = of.thread.join();
    }
    let thread = Builder::new().name("calibration".to_owned());
    let thread = without_signals(|| thread.spawn(work))?;
    threads.push(Measuring { process, thread });
    Ok(())
}

/// Lets other threads have most of the CPU that this one is on.
pub(crate) fn give_way() {
    // On Linux this is the calling thread's alone. If it fails, the measurement takes its share.
    let _ = rustix::process::nice(TENTH);
}

/// Returns true while the process ends: then a measurement stops.
pub(crate) fn is_ending() -> bool {
    ENDING.load(Relaxed)
}

extern "C" fn end() {
    let all = {
        let mut threads = threads();
        ENDING.store(true, Relaxed);
        std::mem::take(&mut *threads)
    };
    for Measuring { process, thread } in all {
        if process == std::process::id() {
            let _ = thread.join();
        } else {
            // It is in the process from which this one was forked.
            std::mem::forget(thread);
        }
    }
}

/// A thread of the process with this number.
struct Measuring {
    process: u32,
    thread: JoinHandle<()>,
}

fn threads() -> MutexGuard<'static, Vec<Measuring>> {
    static THREADS: Mutex<Vec<Measuring>> = Mutex::new(Vec::new());
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Beside a thread of usual priority, about a tenth of a CPU.
const TENTH: i32 = 10;

static ENDING: AtomicBool = AtomicBool::new(false);

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;

    use nix::sys::signal::{SigSet, Signal};
    use widelane_crypto::{Backend, Operation, Request, Target};

    use crate::line::{Line, Variant};

    /// Tells on which thread it is measured, and whether that takes signals.
    struct Spy(mpsc::Sender<(Option<String>, SigSet)>);

    struct Nothing;

    impl Request for Nothing {
        type Output = ();

        fn failure((): &()) -> Option<&(dyn std::error::Error + 'static)> {
            None
        }
    }

    impl Operation for Spy {
        type Request = Nothing;

        fn name(&self) -> &'static str {
            "spy"
        }

        fn lanes(&self) -> usize {
            8
        }

        fn pass(&self, requests: &[Nothing]) -> Vec<()> {
            requests.iter().map(|_| ()).collect()
        }

        fn specimen(&self) -> Nothing {
            let name = std::thread::current().name().map(str::to_owned);
            let mask = SigSet::thread_get_mask().unwrap();
            // Only the first message is read.
            let _ = self.0.send((name, mask));
            Nothing
        }
    }

    /// A server's handlers run on the server's own threads.
    #[test]
    fn the_thread_that_measures_takes_no_signals() {
        let (sender, received) = mpsc::channel();
        let variant = Variant::measured(Spy(sender), Backend::Lanes(Target::Avx512Ifma));
        Line::new(variant, None).measure_once();
        let (name, mask) = received.recv().unwrap();
        assert_eq!(name.as_deref(), Some("calibration"));
        assert!(mask.contains(Signal::SIGHUP) && mask.contains(Signal::SIGCHLD));
        assert!(!mask.contains(Signal::SIGSEGV));
    }
}
