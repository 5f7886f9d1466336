//! The handshakes of each thread: on which stack they run, which are suspended, which can go on.
//!
//! The unsafe code follows raw pointers to a [`Handshake`] and to the [`Yielder`] on its stack. What
//! makes that sound:
//!
//! 1. Handshakes are of one thread: the table is a thread-local, and the provider calls back on the
//!    thread that runs the handshake.
//! 2. A handshake is boxed and leaves the table only in [`drive`] and [`end`], which first bring its
//!    coroutine to its end. A provider that waits on a handshake's stack therefore finds it in place.
//!    A server that moves the connection to another thread meanwhile is told there to try again, and
//!    cannot free it: [`elsewhere`].
//! 3. The pointer to the yielder is set when the coroutine starts, and used only by code that runs on
//!    this coroutine's stack, above the yielder.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr;

use corosensei::{Coroutine, CoroutineResult, Yielder};
use libc::epoll_event;
use widelane_stacks::{GuardedStack, Stacks};

use crate::elsewhere;
use crate::originals::{self, Ssl};
use crate::registrations::{self, Registration};
use crate::table;

/// What a call of the server gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// What OpenSSL returned.
    Done(c_int),
    /// The handshake is suspended: the server shall try again when it is told to.
    Suspended,
}

/// A handshake that has begun.
struct Handshake {
    ssl: Ssl,
    fd: c_int,
    coroutine: Cell<Option<Running>>,
    yielder: Cell<*const Yielder<bool, ()>>,
    state: Cell<State>,
    /// Whether the server had registered the socket at the last call.
    was_registered: Cell<bool>,
}

impl Handshake {
    /// Changes the state, and counts the handshakes of which the server was told to try again.
    fn set_state(&self, state: State) {
        let before = self.state.replace(state);
        let count = SUSPENDED.get() + usize::from(state.waits()) - usize::from(before.waits());
        SUSPENDED.set(count);
    }
}

/// Never dropped while OpenSSL's frames are on its stack: they cannot be unwound. A process that
/// ends while handshakes are suspended leaves them as they are.
type Running = ManuallyDrop<Coroutine<bool, (), c_int, GuardedStack>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing has been done: the server has not registered the socket yet. It was told that
    /// nothing has come, so that it does.
    Postponed,
    /// No call is under way.
    Idle,
    /// A call runs on the handshake's stack.
    Running,
    /// A call waits for a pass.
    Suspended,
    /// It can go on.
    Ready,
}

impl State {
    /// Whether the server was told to try again.
    fn waits(self) -> bool {
        matches!(self, Self::Postponed | Self::Suspended | Self::Ready)
    }
}

/// Whether a call for this connection is one for [`drive`]: it would do a part of a server's first
/// handshake.
pub(crate) fn concerns(ssl: Ssl) -> bool {
    if table::passes().is_none() || !CURRENT.get().is_null() {
        return false;
    }
    match state(ssl) {
        Some(state) if state.waits() || state == State::Running => true,
        None if elsewhere::has(ssl) => true,
        known => {
            // Not whether the handshake has ended: while early data is read or written it has not,
            // but calls do no part of it.
            // SAFETY: the server passes a connection to a function that takes one.
            let in_handshake = unsafe { originals::ssl_in_init(ssl) } != 0;
            in_handshake && (known.is_some() || begin(ssl))
        }
    }
}

/// Runs the handshake on its own stack until OpenSSL returns or it is suspended. The connection is
/// one that [`concerns`] has accepted.
pub(crate) fn drive(ssl: Ssl) -> Outcome {
    let Some(handshake) = find(ssl) else {
        if elsewhere::has(ssl) {
            set_errno(libc::EAGAIN);
            return Outcome::Suspended;
        }
        // SAFETY: the server passes a connection.
        return Outcome::Done(unsafe { originals::ssl_do_handshake(ssl) });
    };
    // SAFETY: rule 2: only this function and `end` remove it.
    let handshake = unsafe { &*handshake };
    match handshake.state.get() {
        State::Suspended | State::Running => return Outcome::Suspended,
        State::Ready => READY.with_borrow_mut(|ready| ready.retain(|one| *one != ssl.addr())),
        state @ (State::Postponed | State::Idle) => {
            handshake.set_state(State::Idle);
            let registered = registrations::get(handshake.fd).is_some();
            if !registered && state == State::Idle && !handshake.was_registered.get() {
                handshake.set_state(State::Postponed);
                set_errno(libc::EAGAIN);
                return Outcome::Suspended;
            }
            handshake.was_registered.set(registered);
            let stack = registered.then(|| STACKS.with(Stacks::take).ok()).flatten();
            let Some(stack) = stack else {
                // SAFETY: the server passes a connection.
                return Outcome::Done(unsafe { originals::ssl_do_handshake(ssl) });
            };
            elsewhere::begin(ssl);
            handshake
                .coroutine
                .set(Some(on_stack(stack, handshake, ssl)));
        }
    }
    loop {
        match resume(handshake, true) {
            Some(result) => {
                if result == 1 {
                    let errno = errno();
                    forget(ssl);
                    set_errno(errno);
                }
                return Outcome::Done(result);
            }
            None => {
                // A pass that is full need not wait for a look at the sockets. It may have the
                // answer for this very handshake.
                while table::passes().is_some_and(|passes| (passes.turn)(0) > 0) {}
                if handshake.state.get() != State::Ready {
                    set_errno(libc::EAGAIN);
                    return Outcome::Suspended;
                }
                READY.with_borrow_mut(|ready| ready.retain(|one| *one != ssl.addr()));
            }
        }
    }
}

/// The connection goes away. A suspended call is brought to its end first: it fails, and neither
/// touches the socket nor calls the server back. False if the call is another thread's: then the
/// connection must stay as it is.
pub(crate) fn end(ssl: Ssl) -> bool {
    let Some(handshake) = find(ssl) else {
        return !elsewhere::has(ssl);
    };
    // SAFETY: rule 2: it is removed only below.
    let handshake = unsafe { &*handshake };
    if matches!(handshake.state.get(), State::Suspended | State::Ready) {
        // SAFETY: the connection is still whole; null callbacks and BIOs that discard everything are
        // allowed at any time.
        unsafe {
            let discard = originals::bio_new(originals::bio_s_null());
            let nothing = originals::bio_new(originals::bio_s_null());
            originals::ssl_set_info_callback(ssl, ptr::null_mut());
            originals::ssl_set_msg_callback(ssl, ptr::null_mut());
            if !discard.is_null() && !nothing.is_null() {
                originals::ssl_set_bio(ssl, nothing, discard);
            }
        }
        while resume(handshake, false).is_none() {}
        // SAFETY: clears this thread's queue: no call will read these errors.
        unsafe { originals::err_clear_error() };
    }
    if handshake.state.get() != State::Running {
        READY.with_borrow_mut(|ready| ready.retain(|one| *one != ssl.addr()));
        forget(ssl);
    }
    true
}

/// Whether a call for this connection waits.
pub(crate) fn is_suspended(ssl: Ssl) -> bool {
    if SUSPENDED.get() == 0 {
        return elsewhere::has(ssl);
    }
    state(ssl).map_or_else(|| elsewhere::has(ssl), State::waits)
}

/// How many handshakes of this thread wait or can go on.
pub(crate) fn suspended() -> usize {
    SUSPENDED.get()
}

/// How many can go on, and can be told in this epoll instance.
pub(crate) fn ready(epoll: c_int) -> usize {
    let here = |ssl: &&usize| registration(**ssl).is_some_and(|found| found.epoll == epoll);
    READY.with_borrow(|ready| ready.iter().filter(here).count())
}

/// Writes an event for each handshake that can go on, with the server's own data. Those that the
/// server watches elsewhere, or not at all, stay: its next call for them goes on.
pub(crate) fn deliver(epoll: c_int, events: &mut [epoll_event]) -> usize {
    let mut events = events.iter_mut();
    let room = events.len();
    READY.with_borrow_mut(|ready| {
        ready.retain(|ssl| {
            let found = registration(*ssl).filter(|found| found.epoll == epoll);
            let Some((registration, event)) = found.and_then(|found| Some((found, events.next()?)))
            else {
                return true;
            };
            *event = epoll_event {
                events: libc::EPOLLIN as u32,
                u64: registration.data,
            };
            false
        });
    });
    room - events.len()
}

/// Whether this process may run code on stacks of its own: not under a shadow stack (CET), which
/// this library does not switch.
pub(crate) fn can_switch_stacks() -> bool {
    const ARCH_SHSTK_STATUS: c_int = 0x5005;
    const ARCH_SHSTK_SHSTK: u64 = 1;
    let mut features = 0_u64;
    // SAFETY: the call writes one word, or fails on kernels and CPUs without shadow stacks.
    let status =
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SHSTK_STATUS, &raw mut features) };
    status != 0 || features & ARCH_SHSTK_SHSTK == 0
}

/// Takes notice of a server's handshake that can be suspended; false if it cannot.
fn begin(ssl: Ssl) -> bool {
    // SAFETY: the server passes a connection to a function that takes one.
    let (is_server, fd, write) = unsafe {
        (
            originals::ssl_is_server(ssl) == 1,
            originals::ssl_get_rfd(ssl),
            originals::ssl_get_wfd(ssl),
        )
    };
    // Without a socket of its own (a memory BIO, QUIC), a server could not be told to go on. The
    // server of a blocking socket does not expect to be told.
    if !is_server || fd < 0 || fd != write {
        return false;
    }
    // SAFETY: asks for the flags of a descriptor.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 || flags & libc::O_NONBLOCK == 0 {
        return false;
    }
    let handshake = Box::new(Handshake {
        ssl,
        fd,
        coroutine: Cell::new(None),
        yielder: Cell::new(ptr::null()),
        state: Cell::new(State::Idle),
        was_registered: Cell::new(false),
    });
    TABLE.with_borrow_mut(|table| table.insert(ssl.addr(), handshake));
    true
}

/// The state of a handshake that is known.
fn state(ssl: Ssl) -> Option<State> {
    TABLE.with_borrow(|table| Some(table.get(&ssl.addr())?.state.get()))
}

fn find(ssl: Ssl) -> Option<*const Handshake> {
    TABLE.with_borrow(|table| Some(&raw const **table.get(&ssl.addr())?))
}

/// Where the connection at this address is told to go on.
fn registration(ssl: usize) -> Option<Registration> {
    let fd = TABLE.with_borrow(|table| Some(table.get(&ssl)?.fd))?;
    registrations::get(fd)
}

/// Drops a handshake on whose stack nothing runs.
fn forget(ssl: Ssl) {
    let handshake = TABLE.with_borrow_mut(|table| table.remove(&ssl.addr()));
    if let Some(handshake) = handshake {
        handshake.set_state(State::Idle);
    }
}

/// The call of OpenSSL's that runs on the handshake's stack.
fn on_stack(stack: GuardedStack, handshake: *const Handshake, ssl: Ssl) -> Running {
    ManuallyDrop::new(Coroutine::with_stack(stack, move |yielder, _| {
        // SAFETY: rule 2: the handshake stays until this call has returned; the connection is the
        // server's, which ends it through `end`.
        unsafe {
            (*handshake).yielder.set(yielder);
            originals::ssl_do_handshake(ssl)
        }
    }))
}

/// Runs the handshake's call until it returns (`Some`) or is suspended (`None`).
fn resume(handshake: &Handshake, go_on: bool) -> Option<c_int> {
    let mut coroutine = handshake.coroutine.take()?;
    handshake.set_state(State::Running);
    let before = CURRENT.replace(handshake);
    let result = coroutine.resume(go_on);
    CURRENT.set(before);
    match result {
        CoroutineResult::Yield(()) => {
            handshake.coroutine.set(Some(coroutine));
            handshake.set_state(State::Suspended);
            None
        }
        CoroutineResult::Return(result) => {
            let errno = errno();
            elsewhere::end(handshake.ssl);
            handshake.set_state(State::Idle);
            let coroutine = ManuallyDrop::into_inner(coroutine);
            STACKS.with(|stacks| stacks.put(coroutine.into_stack()));
            set_errno(errno);
            Some(result)
        }
    }
}

/// See [`widelane_openssl_tables::Suspension`]. A handshake is told by the address of its connection.
pub(crate) extern "C" fn current() -> *mut c_void {
    // SAFETY: rule 2: a handshake that is current is in the table.
    let Some(current) = (unsafe { CURRENT.get().as_ref() }) else {
        return ptr::null_mut();
    };
    current.ssl
}

/// See [`widelane_openssl_tables::Suspension`].
pub(crate) extern "C" fn suspend(ssl: *mut c_void) -> c_int {
    // SAFETY: the provider calls on the stack whose handshake is current (rules 2 and 3).
    unsafe {
        let Some(current) = CURRENT.get().as_ref().filter(|current| current.ssl == ssl) else {
            return 0;
        };
        (*current.yielder.get()).suspend(()).into()
    }
}

/// See [`widelane_openssl_tables::Suspension`]. The handshake may have ended: then there is nothing to wake. So
/// may the thread, whose worker tells its last jobs that they are dropped.
pub(crate) extern "C" fn wake(ssl: *mut c_void) {
    let woken = TABLE.try_with(|table| {
        let table = table.try_borrow().ok()?;
        let handshake = table.get(&ssl.addr())?;
        let waits = handshake.state.get() == State::Suspended;
        waits.then(|| handshake.set_state(State::Ready))
    });
    if let Ok(Some(())) = woken {
        // It goes away with the table or after it.
        let _ = READY.try_with(|ready| ready.borrow_mut().push_back(ssl.addr()));
    }
}

fn errno() -> c_int {
    // SAFETY: this thread's own place.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: this thread's own place.
    unsafe { *libc::__errno_location() = value };
}

thread_local! {
    /// By the address of the connection.
    static TABLE: RefCell<HashMap<usize, Box<Handshake>>> = RefCell::default();
    /// Those that can go on, by the address of the connection, the first first.
    static READY: RefCell<VecDeque<usize>> = const { RefCell::new(VecDeque::new()) };
    static SUSPENDED: Cell<usize> = const { Cell::new(0) };
    /// The handshake on whose stack this thread runs.
    static CURRENT: Cell<*const Handshake> = const { Cell::new(ptr::null()) };
    static STACKS: Stacks = Stacks::default();
}
