//! Waiting on a stack of the library that suspends handshakes in synchronous event loops.
//!
//! That library stands between the server and OpenSSL and knows the server's event loop; this one
//! knows passes. They meet in two tables of functions (`widelane_openssl_tables`).

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};

use widelane_engine::{Idle, Request, Worker};
use widelane_forks::process_id;
use widelane_openssl_tables::{Overload, Passes, SYMBOL, Suspension};
use widelane_status::Way;

use crate::engine::{self, Failure};
use crate::ffi::abi::Object;
use crate::ffi::comparison;
use crate::ffi::objects::guarded;
use crate::ffi::status;
use crate::log;
use crate::prepared;

/// Looks for the library, once: it is preloaded, or else the file with this name, if one is given,
/// takes its place in the imports of the program.
pub(crate) fn attach(library: Option<&CStr>) {
    let preloaded = find(libc::RTLD_DEFAULT);
    let own = || {
        // SAFETY: a string of C. The library's code runs when it is loaded, as the configuration of
        // OpenSSL asks for.
        let handle = unsafe { libc::dlopen(library?.as_ptr(), libc::RTLD_NOW | libc::RTLD_NODELETE) };
        let found = (!handle.is_null()).then(|| find(handle)).flatten();
        if found.is_none() {
            let name = library?.to_string_lossy();
            log::once(&format!("library: {name} cannot be loaded, or is another one"));
        }
        found
    };
    let loaded = match preloaded {
        Some(_) => None,
        None => own(),
    };
    let found = preloaded.or(loaded);
    if found.is_some_and(|found| !found.fits()) {
        log::once("the library that suspends is of another version and is not used; install both anew");
    }
    let found = found.filter(|found| found.fits());
    if SUSPENSION.set(found).is_ok()
        && let Some(found) = found
    {
        (found.attach)(&PASSES);
        if loaded.is_some() && (found.take_imports)() == 0 {
            log::once("library: the program imports no function of OpenSSL's; is it linked statically?");
        }
    }
}

/// The table of the library that is loaded as `handle`.
fn find(handle: *mut c_void) -> Option<&'static Suspension> {
    // SAFETY: a string of C; the symbol is a constant table of ours, which begins with its size in
    // every build. Nothing else of it is read before that was compared.
    unsafe {
        libc::dlsym(handle, SYMBOL.as_ptr())
            .cast_const()
            .cast::<Suspension>()
            .as_ref()
    }
}

/// True if the library is loaded.
pub(crate) fn is_attached() -> bool {
    table().is_some()
}

/// The handshake on whose stack the caller runs.
pub(crate) fn current() -> Option<Frame> {
    let table = table()?;
    let handshake = (table.current)();
    (!handshake.is_null()).then_some(Frame { table, handshake })
}

/// A handshake's stack.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    table: &'static Suspension,
    handshake: Object,
}

/// Runs jobs of a handshake whose stack is left meanwhile.
pub(crate) fn run<R: Request>(frame: Frame, requests: Vec<R>) -> Result<Vec<R::Output>, Failure> {
    let Some(worker) = engine::worker()? else {
        // The thread ends.
        return Ok(engine::engine()?.run_all(requests)?);
    };
    let process = process_id();
    let mut tickets = worker.submit_all(requests)?;
    drop(worker);
    let waker = Waker::from(Arc::new(Waking(frame.handshake.addr())));
    loop {
        if process != process_id() {
            // The job, and what it is made of, is the parent's.
            std::mem::forget(tickets);
            return Err(Failure::Forked);
        }
        if let Some(outputs) = engine::poll(&mut tickets, &waker) {
            return Ok(outputs?);
        }
        // Nothing is borrowed across the call.
        if (frame.table.suspend)(frame.handshake) != 1 {
            return Err(Failure::Cancelled);
        }
    }
}

/// Wakes the handshake with this name. Passes of a thread run on that thread
/// ([`widelane_engine::Placement::Inline`]), so that it is woken from there.
struct Waking(usize);

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(table) = table() {
            (table.wake)(ptr::without_provenance_mut(self.0));
        }
    }
}

fn table() -> Option<&'static Suspension> {
    SUSPENSION.get().copied().flatten()
}

extern "C" fn turn(any: c_int) -> usize {
    guarded(0, || {
        let idle = if any == 0 { Idle::No } else { Idle::Yes };
        with_worker(|worker| {
            let jobs = worker.turn(idle);
            status::passed(jobs, worker.waiting());
            jobs
        })
    })
}

extern "C" fn waiting_jobs() -> usize {
    guarded(0, || with_worker(Worker::waiting))
}

extern "C" fn submitted() -> u64 {
    guarded(0, || with_worker(Worker::submitted))
}

extern "C" fn prepare_keys(at_once: c_int) {
    guarded((), || prepared::prepare_at_once(at_once != 0));
}

extern "C" fn prepare() {
    guarded((), comparison::calibrate);
}

extern "C" fn lanes_are_off() -> c_int {
    guarded(0, || status::lanes_are_off().into())
}

extern "C" fn shortens_queues() -> c_int {
    guarded(0, || SHORTENS_QUEUES.load(Relaxed).into())
}

extern "C" fn overload(news: Overload, waited: c_uint) {
    guarded((), || {
        status::overload(|counters| match news {
            Overload::Begins => counters.begins(),
            Overload::Ends => counters.ends(),
            Overload::Gone => counters.gone(),
            Overload::Refused => counters.refused(),
            Overload::Served => counters.served(waited.into()),
        });
        match news {
            Overload::Begins => {
                log::event("overload: more connections come than it can serve; few may queue until it ends")
            }
            Overload::Ends => log::event("overload ends: no connection waits for long"),
            Overload::Gone | Overload::Refused | Overload::Served => {}
        }
    });
}

extern "C" fn way(number: c_uint) {
    guarded((), || {
        if let Some(way) = Way::of(number) {
            status::waits(way);
        }
    });
}

/// Leaves the queues of connections alone, also under overload.
pub(crate) fn leave_queues() {
    SHORTENS_QUEUES.store(false, Relaxed);
}

fn with_worker<T: Default>(use_it: impl FnOnce(&Worker) -> T) -> T {
    match engine::worker() {
        Ok(Some(worker)) => use_it(&worker),
        _ => T::default(),
    }
}

static PASSES: Passes = Passes {
    size: Passes::SIZE,
    turn,
    waiting: waiting_jobs,
    submitted,
    prepare_keys,
    prepare,
    lanes_are_off,
    shortens_queues,
    overload,
    way,
};

static SHORTENS_QUEUES: AtomicBool = AtomicBool::new(true);

static SUSPENSION: OnceLock<Option<&'static Suspension>> = OnceLock::new();

#[cfg(test)]
mod tests {
    use std::io::{self, Read};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn overload_is_logged_when_it_begins_and_ends() {
        let error = rustix::stdio::stderr().try_clone_to_owned().expect("a file");
        let (mut log, end) = io::pipe().expect("a pipe");
        rustix::stdio::dup2_stderr(end.as_fd()).expect("a file");
        for news in [Overload::Begins, Overload::Refused, Overload::Served, Overload::Ends] {
            overload(news, 0);
        }
        rustix::stdio::dup2_stderr(error).expect("a file");
        let mut lines = [0; 4096];
        let size = log.read(&mut lines).expect("a pipe");
        let lines = String::from_utf8_lossy(&lines[..size]);
        // Tests beside this one may write, too.
        let lines = lines
            .lines()
            .filter(|line| line.contains(&format!("process {}: overload", process_id())));
        let events: Vec<_> = lines.map(|line| line.contains("overload ends")).collect();
        assert_eq!(events, [false, true]);
    }
}
