//! Counts what this process does on a page of memory that other processes can read, so that
//! `widelane status` can tell whether the provider works.
//!
//! The page is made when the provider starts. After a fork the child has the page of its parent at
//! the same address, and puts one of its own in its place before it counts.
//!
//! The engine's counters are copied after the last of the calls that run at the same time, so that
//! the figures of a process at rest are exact; while there are always some, every 10 ms. A copy takes
//! 0.3 µs, and a call without one 0.15 µs, most of it for the number of the process.

use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use widelane_engine::Engine;
use widelane_forks::process_id;
use widelane_status::{Facts, OverloadCounters, Page, Way};

use crate::{engine, log};

/// Makes the page of a process in which the provider has started.
pub(crate) fn begin(facts: Facts) {
    let known = FACTS.get_or_init(|| facts);
    if let Some(page) = page(process_id()) {
        page.set_facts(known);
    }
}

/// Makes no page from now on: other processes see nothing.
pub(crate) fn switch_off() {
    IS_OFF.store(true, Relaxed);
}

/// Counts a reason for which OpenSSL does something by itself.
pub(crate) fn count_reason(text: &str) {
    let process = process_id();
    if let Some(page) = page(process) {
        WRITERS.wait(process, || page.count_reason(text));
    }
}

/// Counts a signature of a handshake, made in lanes, by AWS-LC or by OpenSSL, and how long the handshake waited for it.
pub(crate) fn count_signed(took: Duration) {
    if let Some(page) = page(process_id()) {
        page.count_signed(took);
    }
}

/// Counts a key exchange, done in lanes, by AWS-LC or by OpenSSL, and how long the handshake waited for it.
pub(crate) fn count_agreed(took: Duration) {
    if let Some(page) = page(process_id()) {
        page.count_agreed(took);
    }
}

/// Notes a way in which handshakes wait. It costs a look at the page where the way is known already.
pub(crate) fn waits(way: Way) {
    if let Some(page) = page(process_id()) {
        page.waits(way);
    }
}

/// Counts overload. May be called where nothing may wait, so it makes no page: under overload there has been a
/// handshake, with which the page was made.
pub(crate) fn overload(count: impl FnOnce(&OverloadCounters)) {
    if let Some(page) = made(process_id()).flatten() {
        count(page.overload());
    }
}

/// Returns whether an operator or a proof has switched lanes off: what OpenSSL can do is OpenSSL's then, and the rest
/// runs one by one. A forked process that has counted nothing yet heeds what was asked of its parent.
pub(crate) fn lanes_are_off() -> bool {
    // SAFETY: `make` has mapped a page there, which stays for ever, or there is none.
    let page = unsafe { PAGE.load(Acquire).as_ref() };
    page.is_some_and(|page| page.switch().is_off(monotonic))
}

fn monotonic() -> Duration {
    Duration::from_millis(milliseconds())
}

/// A call that blocks its thread. The last one of those at the same time copies the counters.
pub(crate) fn blocking<R>(engine: &Engine, call: impl FnOnce() -> R) -> R {
    let process = process_id();
    let calls = |change: fn(u64) -> u64| {
        // Calls of the parent are not here to end.
        let changed = |before: u64| match before >> 32 == u64::from(process) {
            true => Some(change(before)),
            false => Some(change(u64::from(process) << 32)),
        };
        CALLS.fetch_update(SeqCst, SeqCst, changed).unwrap_or(0)
    };
    calls(|before| before + 1);
    let result = call();
    let last = calls(|before| before.saturating_sub(1)) & u64::from(u32::MAX) <= 1;
    count(engine, process, last);
    result
}

/// A pass has run on this thread. If no job waits any more, the counters are copied.
pub(crate) fn passed(jobs: usize, waiting: usize) {
    if jobs > 0
        && let Ok(engine) = engine::engine()
    {
        count(&engine, process_id(), waiting == 0);
    }
}

fn count(engine: &Engine, process: u32, at_rest: bool) {
    let Some(page) = page(process) else { return };
    let now = milliseconds();
    if !at_rest && now.wrapping_sub(COPIED.load(Relaxed)) < INTERVAL {
        return;
    }
    COPIED.store(now, Relaxed);
    // A thread that finds the lock taken leaves the copy to the thread that has it.
    WANTED.store(true, SeqCst);
    while WANTED.load(SeqCst) {
        let copied = COPIERS.attempt(process, || {
            WANTED.store(false, SeqCst);
            engine.for_each_totals(|number, name, totals| page.set_operation(number, name, &totals));
        });
        if !copied {
            return;
        }
    }
}

/// The page of this process; `None` if it could not be made.
fn page(process: u32) -> Option<&'static Page> {
    if IS_OFF.load(Relaxed) {
        return None;
    }
    if made(process).is_none() {
        let mut failed = None;
        WRITERS.wait(process, || {
            if made(process).is_none() {
                failed = make(process).err();
                let usable = u64::from(failed.is_none());
                MADE.store(u64::from(process) << 1 | usable, Release);
            }
        });
        if let Some(error) = failed {
            // The lock is free, and this process has an answer: this does not come back here.
            log::once(&format!("`widelane status` sees nothing of this process: {error}"));
        }
    }
    made(process).flatten()
}

/// Returns `None` before this process has tried to make its page, and then the page, if it could be made.
fn made(process: u32) -> Option<Option<&'static Page>> {
    let made = MADE.load(Acquire);
    if made >> 1 != u64::from(process) {
        return None;
    }
    Some(match made & 1 {
        0 => None,
        // SAFETY: `make` has mapped a page there, which stays for ever. Zeros and whatever is written
        // later are a page, because all of it is atomic numbers.
        _ => unsafe { PAGE.load(Acquire).as_ref() },
    })
}

/// Maps a page for this process, in the place of its parent's if there is one.
fn make(process: u32) -> Result<(), Errno> {
    let inherited = NonNull::new(PAGE.load(Acquire));
    // SAFETY: `make` has mapped it, here or before a fork, and it stays for ever.
    let asked = inherited.map(|page| unsafe { page.as_ref() }.switch().words());
    let page = match inherited {
        None => widelane_status::map()?,
        // SAFETY: `make` has mapped it, by `map` or `map_over`, here or before a fork.
        Some(page) => unsafe { widelane_status::map_over(page)? },
    };
    if let Some(asked) = asked {
        page.switch().set_words(asked);
    }
    PAGE.store(ptr::from_ref(page).cast_mut(), Release);
    let unknown = Facts {
        provider: env!("CARGO_PKG_VERSION").to_owned(),
        ..Facts::default()
    };
    page.begin(process, FACTS.get().unwrap_or(&unknown));
    Ok(())
}

/// A lock that no fork leaves locked: it knows the process of its holder.
struct Lock(AtomicU32);

impl Lock {
    /// Runs `work` unless another thread of this process holds the lock.
    fn attempt(&self, process: u32, work: impl FnOnce()) -> bool {
        let holder = self.0.load(Relaxed);
        if holder == process || self.0.compare_exchange(holder, process, Acquire, Relaxed).is_err() {
            return false;
        }
        work();
        self.0.store(0, SeqCst);
        true
    }

    /// Runs `work` once no other thread holds the lock, which takes microseconds.
    fn wait(&self, process: u32, work: impl FnOnce()) {
        let mut work = Some(work);
        while !self.attempt(process, || {
            if let Some(work) = work.take() {
                work();
            }
        }) {
            thread::yield_now();
        }
    }
}

fn milliseconds() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    (now.tv_sec as u64).wrapping_mul(1000) + now.tv_nsec as u64 / 1_000_000
}

/// True if this process makes no page.
static IS_OFF: AtomicBool = AtomicBool::new(false);
static FACTS: OnceLock<Facts> = OnceLock::new();
/// Address of the page: the same in all processes of a family.
static PAGE: AtomicPtr<Page> = AtomicPtr::new(ptr::null_mut());
/// The process that has made a page there, or tried to; in the lowest bit whether that went well.
static MADE: AtomicU64 = AtomicU64::new(0);
/// Of those who make a page or count a reason.
static WRITERS: Lock = Lock(AtomicU32::new(0));
/// Of those who copy the engine's counters.
static COPIERS: Lock = Lock(AtomicU32::new(0));
/// The counters have changed since they were last copied.
static WANTED: AtomicBool = AtomicBool::new(false);
/// Time of the last copy of the counters, in milliseconds.
static COPIED: AtomicU64 = AtomicU64::new(0);
/// Calls that block, below the number of their process.
static CALLS: AtomicU64 = AtomicU64::new(0);
/// Milliseconds between copies while there is always a call.
const INTERVAL: u64 = 10;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU8;
    use widelane_crypto::agreement::{Curve, Secret};
    use widelane_engine::Config;
    use widelane_status::{Asked, InProof, MOST_OPERATIONS, Report, SIZE};

    fn report() -> Report {
        let page = page(std::process::id()).unwrap();
        let start = ptr::from_ref(page).cast::<AtomicU8>();
        // SAFETY: the page has so many bytes, all of them parts of atomic numbers.
        let bytes = unsafe { std::slice::from_raw_parts(start, SIZE) };
        let bytes: Vec<_> = bytes.iter().map(|byte| byte.load(Relaxed)).collect();
        Report::parse(&bytes).unwrap()
    }

    fn count_of(report: &Report, text: &str) -> u64 {
        let mut reasons = report.reasons.iter();
        reasons
            .find(|reason| reason.text == text)
            .map_or(0, |reason| reason.count)
    }

    /// The child of a fork counts for itself, and locks that other threads of the parent held do not
    /// stop it.
    #[test]
    fn a_forked_process_has_a_page_of_its_own() {
        let own = std::process::id();
        begin(Facts {
            openssl: "3.0.2".to_owned(),
            ..Facts::default()
        });
        count_reason("of the parent");
        WRITERS.wait(own, || {
            // SAFETY: the child calls nothing but this module, and ends without clean-up.
            let child = unsafe { libc::fork() };
            assert!(child >= 0);
            if child == 0 {
                // It has no page of its own yet.
                overload(OverloadCounters::begins);
                count_reason("of the child");
                overload(OverloadCounters::gone);
                let report = report();
                let right = report.process == std::process::id()
                    && report.process != own
                    && report.facts.openssl == "3.0.2"
                    && (report.overload.begun, report.overload.gone) == (0, 1)
                    && count_of(&report, "of the parent") == 0
                    && count_of(&report, "of the child") == 1;
                // SAFETY: ends the process.
                unsafe { libc::_exit(if right { 7 } else { 8 }) };
            }
            let mut status = 0;
            // SAFETY: waits for that child, with a place for its status.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(libc::WEXITSTATUS(status), 7);
        });
        let report = report();
        assert_eq!((report.process, &*report.facts.openssl), (own, "3.0.2"));
        assert_eq!(count_of(&report, "of the parent"), 1);
        assert_eq!(count_of(&report, "of the child"), 0);
        assert_eq!((report.overload.begun, report.overload.gone), (0, 0));
        overload(OverloadCounters::begins);
        overload(|counters| counters.served(100));
        let overload = self::report().overload;
        assert_eq!((overload.now, overload.wait(50)), (1, Some(128)));
    }

    /// Whether this is so in the child of a fork.
    fn in_child(is_so: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls nothing but this module, and ends without clean-up.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: ends the process.
            unsafe { libc::_exit(if is_so() { 7 } else { 8 }) };
        }
        let mut status = 0;
        // SAFETY: waits for that child, with a place for its status.
        unsafe { libc::waitpid(child, &mut status, 0) };
        libc::WEXITSTATUS(status) == 7
    }

    /// The child of a fork is asked for what its parent was asked for, until an operator asks the child.
    #[test]
    fn a_forked_process_inherits_the_switch() {
        let own = page(std::process::id()).unwrap();
        let _alone = crate::COUNTING
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        own.switch().ask(Asked::Off);
        assert!(in_child(|| {
            let before = lanes_are_off();
            count_reason("of the child");
            let after = lanes_are_off();
            if let Some(page) = page(std::process::id()) {
                page.switch().ask(Asked::On);
            }
            before && after && !lanes_are_off()
        }));
        assert!(lanes_are_off(), "the parent's page is not the child's");
        // A worker that is started in a block of a proof with lanes.
        let in_proof = |until| InProof {
            asked: Asked::On,
            until,
        };
        own.switch()
            .ask_in_proof(in_proof(monotonic() + Duration::from_secs(300)));
        assert!(in_child(|| {
            let before = lanes_are_off();
            count_reason("of the child");
            let after = lanes_are_off();
            if let Some(page) = page(std::process::id()) {
                // The time of what it has inherited comes.
                page.switch().ask_in_proof(in_proof(monotonic()));
            }
            !before && !after && lanes_are_off()
        }));
        own.switch().ask_in_proof(InProof::default());
        own.switch().ask(Asked::On);
        assert!(!lanes_are_off());
    }

    #[test]
    fn the_last_of_several_calls_copies_the_counters() {
        let _alone = crate::COUNTING
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let engine = Engine::start(Config::default()).unwrap();
        let count = engine.counters().len();
        assert!(count <= MOST_OPERATIONS, "{count} operations have no room");
        let before = report().operations;
        blocking(&engine, || {
            // A call in it is not the last one. Unless this thread is held up, the last copy is new.
            let copied = milliseconds();
            COPIED.store(copied, SeqCst);
            WANTED.store(false, SeqCst);
            let secret = Secret::from_bytes(Curve::X25519, &[7; 32]).unwrap();
            let public = blocking(&engine, || engine.run(secret.public()).unwrap());
            assert!(public.is_ok());
            let held_up = || milliseconds().wrapping_sub(copied) >= INTERVAL;
            assert!(report().operations == before || held_up());
        });
        let after = report().operations;
        assert_eq!(after.len(), count);
        assert_eq!(after.iter().map(|operation| operation.totals.jobs).sum::<u64>(), 1);
    }
}
