//! The handshakes of each thread: on which stack they run, which are suspended, which can go on.
//!
//! The unsafe code follows raw pointers to a [`Handshake`] and to the [`Yielder`] on its stack. What
//! makes that sound:
//!
//! 1. Handshakes are of one thread: the table is a thread-local, and the provider calls back on the
//!    thread that runs the handshake.
//! 2. A handshake is boxed and leaves the table only in [`forget`], which is called when nothing runs on
//!    its stack. At the end of a thread it leaves the table with what [`Table`] says. A provider
//!    that waits on a handshake's stack therefore finds it in place. A server that moves the
//!    connection to another thread meanwhile is told there to try again, and cannot free it:
//!    [`connections`].
//! 3. The pointer to the yielder is set when the coroutine starts, and used only by code that runs on
//!    this coroutine's stack, above the yielder.
//!
//! 4. A handshake has a number, which is also a value of its connection in OpenSSL ([`freed`]). A connection
//!    that OpenSSL has freed without asking us is not touched again: its call stays where it was left.
//!
//! Before a thread sleeps, each of its handshakes goes on that the server does not know to ask for ([`go_on_unasked`]): it
//! was told and did not ask, it waits elsewhere, or it has given the connection to another thread. If the call ends then,
//! the server's next call gets what it has returned. Three kinds stay suspended: those of a thread that sleeps in a
//! callback, those whose socket is closed, and those that began in a parent process.
//!
//! A server may call at the end of its threads, when thread-locals are gone: then nothing is known here,
//! and the originals do what is left.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_long, c_ulong, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::Relaxed};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use widelane_stacks::{GuardedStack, Stacks};
use widelane_status::Way;

use crate::boundary::guarded;
use crate::connections;
use crate::errno::{errno, set_errno};
use crate::established;
use crate::originals::{self, InfoCallback, Ssl};
use crate::signals::Place;
use crate::waits::{self, Socket, Told, Watch};
use crate::{provider, registrations, rings, runtimes};

/// One of OpenSSL's functions that does a part of a handshake.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// `SSL_do_handshake`.
    Do,
    /// `SSL_accept`, which makes a connection a server's that does not know yet what it is.
    Accept,
}

/// Result of a call whose handshake was suspended.
const TRY_AGAIN: c_int = -1;

/// A handshake that has begun.
struct Handshake {
    ssl: Ssl,
    fd: c_int,
    /// Number under which its connection holds it (`SSL_set_ex_data(3)`).
    number: usize,
    /// Process in which its call began.
    process: Cell<u32>,
    coroutine: Cell<Option<Running>>,
    yielder: Cell<*const Yielder<bool, ()>>,
    state: Cell<State>,
    /// Generation of the socket's descriptor, which tells apart files that had its number.
    file: Cell<u32>,
    /// The socket itself.
    inode: Cell<Inode>,
    /// True if the last call was told to try again.
    is_told: Cell<bool>,
    /// Number of times that the server has asked since the last wait of this thread, and the number of that wait.
    asked: Cell<(u64, u32)>,
    /// True if its connection goes away, or starts anew.
    is_cancelled: Cell<bool>,
    /// The connection's own callback, while [`tell`] has its place.
    info: Cell<Option<Option<InfoCallback>>>,
    /// Result of a call that ended before the server asked again, and OpenSSL's error; 0: none.
    returned: Cell<(c_int, c_ulong)>,
    /// Number of times that the server may still be woken for that result.
    tellings: Cell<u32>,
}

impl Handshake {
    /// Changes the state, and counts the handshakes of which the server was told to try again.
    fn set_state(&self, state: State) {
        if state.waits() {
            established::remove(self.ssl);
        }
        let before = self.state.replace(state);
        let count = SUSPENDED.get() + usize::from(state.waits()) - usize::from(before.waits());
        SUSPENDED.set(count);
        let count = MOVABLE.get() + usize::from(state.moves()) - usize::from(before.moves());
        MOVABLE.set(count);
    }

    /// Returns whether its call was left in the middle.
    fn is_left(&self) -> bool {
        matches!(self.state.get(), State::Suspended | State::Ready)
    }

    /// Returns whether it began in the process that runs, not in a parent.
    fn is_own(&self) -> bool {
        self.process.get() == std::process::id()
    }

    /// Its socket. Another generation of the descriptor need not be another file: the kernel has removed it from an epoll
    /// instance unseen, or a thread has closed descriptors of its own table. Without the new generation no wait could tell
    /// of the socket any more.
    fn socket(&self) -> Socket {
        let fd = self.fd;
        if registrations::file(fd) != Some(self.file.get())
            && let Some(file) = registrations::hold(fd)
            && inode(fd) == Some(self.inode.get())
        {
            // A `close` after this look changes the generation again.
            self.file.set(file);
        }
        Socket {
            fd,
            file: self.file.get(),
        }
    }

    /// Returns whether the server is told that it can go on, and expects that.
    fn can_be_told(&self) -> bool {
        let socket = self.socket();
        (socket.is_in_an_instance() || socket.is_in_the_set()) && is_nonblocking(self.fd)
    }

    /// Returns whether its descriptor is still that of the socket with which its call began: not if the server has closed it
    /// and is about to free the connection. The number may be another connection's then.
    fn has_its_socket(&self) -> bool {
        self.socket().is_open()
    }

    /// Returns whether it can go on although the server has not asked.
    fn goes_on_unasked(&self) -> bool {
        self.state.get() == State::Ready
            && self.is_own()
            && self.has_its_socket()
            && !connections::is_abandoned(self.ssl)
    }

    /// Way in which its thread learns that it can go on, or why it shares no pass. A thread that waits by `poll` may serve
    /// one connection only: it shares passes with other threads while it blocks.
    fn way(&self) -> Way {
        let is_other = |one: &Self| one.ssl != self.ssl && waits::is_in_the_set(one.fd);
        let beside = || with_table(|table| table.values().any(|one| is_other(one))).unwrap_or(false);
        let socket = self.socket();
        if socket.is_in_an_instance() {
            Way::Epoll
        } else if !socket.is_in_the_set() {
            socket.why_in_no_wait()
        } else if beside() {
            waits::way_of_the_set()
        } else {
            Way::OneConnection
        }
    }

    /// The server asks again. Whether nothing else will make the handshake go on: it cannot be told, or
    /// it asks again and again without waiting.
    fn asks_in_vain(&self) -> bool {
        let (wait, before) = self.asked.get();
        let times = match wait == waits::counted() {
            true => before + 1,
            false => 1,
        };
        self.asked.set((waits::counted(), times));
        times > PATIENCE || !self.can_be_told()
    }
}

/// Calls without a wait in between after which passes run at once. A server that has two events for a
/// connection calls twice.
const PATIENCE: u32 = 8;

/// Most times that a server is woken because a handshake has ended: it may never ask.
const TELLINGS: u32 = 1000;

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
    /// The handshake can go on.
    Ready,
    /// A call has returned that the server did not ask for.
    Returned,
}

impl State {
    /// Returns whether the server was told to try again.
    fn waits(self) -> bool {
        !matches!(self, Self::Idle | Self::Running)
    }

    /// Returns whether it can go on without a pass.
    fn moves(self) -> bool {
        matches!(self, Self::Ready | Self::Returned)
    }
}

/// Returns the result of a call that would do a part of a handshake; `None` if the original does it. A server's first
/// handshake runs on its own stack until OpenSSL returns or it is suspended.
pub(crate) fn drive(ssl: Ssl, step: Step) -> Option<c_int> {
    let passes = provider::passes()?;
    if ssl.is_null() {
        return None;
    }
    is_told_no_more_of_anothers(ssl);
    if let Some(result) = returned(ssl) {
        return Some(result);
    }
    // Not whether the handshake has ended: while early data is read or written it has not, but calls do no
    // part of it.
    // SAFETY: the server passes a connection to a function that takes one.
    if unsafe { originals::ssl_in_init(ssl) } == 0 {
        return None;
    }
    // SAFETY: rule 2.
    let found = find(ssl).map(|found| unsafe { &*found });
    if let Some(handshake) = found {
        handshake.is_told.set(false);
        match handshake.state.get() {
            // Its own callback calls. What that would do without us is OpenSSL's to say.
            State::Running => return None,
            State::Suspended if handshake.is_own() => {
                if handshake.asks_in_vain() {
                    run_all_passes(handshake);
                }
                return Some(match handshake.state.get() {
                    State::Ready => go_on(handshake),
                    _ => try_again(handshake),
                });
            }
            State::Suspended | State::Ready => return Some(go_on(handshake)),
            State::Postponed | State::Idle | State::Returned => {}
        }
    } else if is_anothers(ssl) {
        provider::count_way(Way::Moved);
        set_errno(libc::EAGAIN);
        return Some(TRY_AGAIN);
    } else if (passes.lanes_are_off)() != 0 {
        // Nothing waits, and a stack would only cost time. One that has begun goes on.
        return None;
    }
    let fd = socket_of(ssl)?;
    let handshake = found.filter(|one| one.fd == fd).map(ptr::from_ref);
    // SAFETY: rule 2.
    let handshake = unsafe { &*handshake.or_else(|| begin(ssl, fd))? };
    let was = handshake.state.get();
    handshake.set_state(State::Idle);
    if was == State::Idle && registrations::take_new(fd) && waits::any() {
        // SAFETY: the server passes a connection. One that does nothing yet may learn again what it is.
        unsafe {
            if step == Step::Accept && originals::ssl_in_before(ssl) == 1 {
                originals::ssl_set_accept_state(ssl);
            }
        }
        handshake.set_state(State::Postponed);
        return Some(try_again(handshake));
    }
    start(handshake, step)?;
    Some(go_on(handshake))
}

/// Returns whether another thread is in the middle of a call for the connection: then the server is told to try again.
pub(crate) fn is_anothers(ssl: Ssl) -> bool {
    let is_anothers = connections::is_under_way(ssl) && find(ssl).is_none();
    if is_anothers {
        connections::moved();
        TOLD_OF_ANOTHERS.set(ssl);
    }
    is_anothers
}

/// Returns the result of a call that ended before the server asked again, to the call that asks now.
fn returned(ssl: Ssl) -> Option<c_int> {
    if SUSPENDED.get() == 0 {
        return None;
    }
    // SAFETY: rule 2.
    let handshake = unsafe { &*find(ssl)? };
    if handshake.state.get() != State::Returned {
        return None;
    }
    let (result, error) = handshake.returned.get();
    forget(ssl);
    // Otherwise the original finds that the handshake has ended, or goes on.
    (error != 0).then(|| {
        // SAFETY: adds to this thread's queue of errors; null stands for no text.
        unsafe {
            originals::err_new();
            // As `ERR_GET_LIB` and `ERR_GET_REASON` do.
            let (library, reason) = match error >> 31 {
                0 => (error >> 23 & 0xff, error & 0x7f_ffff),
                _ => (SYSTEM, error & 0x7fff_ffff),
            };
            originals::err_set_error(library as c_int, reason as c_int, ptr::null());
        }
        result
    })
}

/// `ERR_LIB_SYS`.
const SYSTEM: c_ulong = 2;
/// `SSL_WRITING`, `SSL_READING`.
const WRITING: c_int = 2;
const READING: c_int = 3;

/// Puts the call onto a stack of its own, if the server can be told to go on.
fn start(handshake: &Handshake, step: Step) -> Option<()> {
    // On another handshake's stack: that one could not go on before this one has.
    if !CURRENT.get().is_null() {
        return None;
    }
    handshake.file.set(registrations::hold(handshake.fd)?);
    handshake.inode.set(inode(handshake.fd)?);
    let way = match handshake.way() {
        _ if connections::were_moved() => Way::Moved,
        // It looks at descriptors: not in threads of which none shares.
        way if way.waits() && runtimes::are_there() => Way::Runtime,
        way if way.waits() && rings::are_there() => Way::IoUring,
        way => way,
    };
    provider::count_way(way);
    if !way.waits() {
        return None;
    }
    if originals::may_have_threads() && !waits::is_tried() {
        return None;
    }
    // Once the client has ended a handshake, data of the server may come in the middle of the next, which a call
    // that only does the handshake refuses.
    // SAFETY: the server passes a connection; no place is needed for nothing.
    if unsafe { originals::ssl_get_peer_finished(handshake.ssl, ptr::null_mut(), 0) } > 0 {
        return None;
    }
    let stack = STACKS.try_with(|stacks| stacks.take().ok()).ok().flatten()?;
    handshake.process.set(std::process::id());
    handshake.asked.set((waits::counted(), 0));
    connections::begin(handshake.ssl, handshake.number);
    listen(handshake);
    let coroutine = on_stack(stack, handshake, step);
    handshake.coroutine.set(Some(coroutine));
    Some(())
}

/// Goes on with the call until OpenSSL returns or it is suspended.
fn go_on(handshake: &Handshake) -> c_int {
    loop {
        unready(handshake.ssl);
        if let Some(result) = resume(handshake, true) {
            return finish(handshake, result);
        }
        // A pass that is full need not wait for a look at the sockets. It may have the answer for this
        // very handshake.
        while run_pass(0) > 0 {}
        if handshake.state.get() != State::Ready && !handshake.can_be_told() {
            run_all_passes(handshake);
        }
        if handshake.state.get() != State::Ready {
            return try_again(handshake);
        }
    }
}

/// Goes on with the call although the server has not asked. What it meets is kept for the server's next call, and the
/// server's own errors stay as they are.
fn go_on_by_itself(handshake: &Handshake) {
    let (before, ssl) = (errno(), handshake.ssl);
    unready(ssl);
    // SAFETY: this thread's queue of errors.
    let older = unsafe {
        originals::err_set_mark();
        originals::err_peek_last_error()
    };
    if let Some(result) = resume(handshake, true) {
        // SAFETY: this thread's queue of errors, and a connection on which a call has just returned.
        let (error, waits_for) = unsafe { (originals::err_peek_last_error(), waits_for(ssl)) };
        let is_kept = result == 1 || waits_for != Some(READING);
        let is_abandoned = match is_kept {
            true => connections::returned(ssl),
            false => connections::end(ssl),
        };
        if is_abandoned {
            forget(ssl);
            // SAFETY: all other owners have freed it meanwhile.
            unsafe { originals::ssl_free(ssl) };
        } else if is_kept {
            let has_failed = result != 1 && waits_for.is_none() && error != older;
            let error = if has_failed { error } else { 0 };
            handshake.returned.set((result, error));
            handshake.tellings.set(TELLINGS);
            handshake.set_state(State::Returned);
            with_ready(|ready| ready.push_back(ssl.addr()));
        }
    }
    // SAFETY: the mark was set above.
    unsafe { originals::err_pop_to_mark() };
    set_errno(before);
}

/// Returns what a call of this connection waits for (`SSL_want(3)`), if it can go on later; [`READING`] for its socket.
///
/// # Safety
///
/// `ssl` must be a connection on which a call has just returned.
unsafe fn waits_for(ssl: Ssl) -> Option<c_int> {
    // SAFETY: the caller's promise.
    unsafe {
        let want = originals::ssl_want(ssl);
        let retries = |bio| originals::bio_test_flags(bio, SHOULD_RETRY) != 0;
        let can_go_on = match want {
            READING => retries(originals::ssl_get_rbio(ssl)),
            WRITING => retries(originals::ssl_get_wbio(ssl)),
            // A callback wants to be called again.
            _ => want > READING,
        };
        can_go_on.then_some(want)
    }
}

/// `BIO_FLAGS_SHOULD_RETRY`.
const SHOULD_RETRY: c_int = 8;

/// The call has returned.
fn finish(handshake: &Handshake, result: c_int) -> c_int {
    let (errno, ssl) = (errno(), handshake.ssl);
    if connections::end(ssl) {
        forget(ssl);
        // SAFETY: all other owners have freed it meanwhile.
        unsafe { originals::ssl_free(ssl) };
    } else if result == 1 {
        forget(ssl);
    }
    set_errno(errno);
    result
}

fn try_again(handshake: &Handshake) -> c_int {
    handshake.is_told.set(true);
    set_errno(libc::EAGAIN);
    TRY_AGAIN
}

/// The connection goes away, or starts anew. A suspended call is brought to its end first: it fails,
/// and neither touches the socket nor calls the server back. False if the call is another
/// thread's: then the connection must stay as it is.
pub(crate) fn end(ssl: Ssl) -> bool {
    established::remove(ssl);
    let Some(handshake) = find(ssl) else {
        return !connections::is_under_way(ssl);
    };
    // SAFETY: rule 2: it is removed only below.
    let handshake = unsafe { &*handshake };
    match handshake.state.get() {
        // OpenSSL itself calls `SSL_clear` as it begins. If it frees the connection, it says so.
        State::Running | State::Idle => return true,
        State::Suspended | State::Ready => {
            cancel(handshake);
            connections::end(ssl);
        }
        State::Postponed | State::Returned => {}
    }
    forget(ssl);
    true
}

/// The server changes what a suspended call uses: the call goes on to its end, or to where it waits for
/// the client, before that. False if the call is another thread's: then nothing may be changed.
pub(crate) fn settle(ssl: Ssl) -> bool {
    while SUSPENDED.get() > 0
        && let Some(handshake) = find(ssl)
    {
        // SAFETY: rule 2.
        let handshake = unsafe { &*handshake };
        if !handshake.is_left() || handshake.is_cancelled.get() {
            return true;
        }
        run_all_passes(handshake);
        let is_stuck = handshake.state.get() == State::Suspended && handshake.is_own();
        if is_stuck || !handshake.has_its_socket() {
            // Nothing runs its job, or the bytes would be another connection's.
            cancel(handshake);
            finish(handshake, TRY_AGAIN);
            return true;
        }
        go_on_by_itself(handshake);
    }
    !connections::is_under_way(ssl) || find(ssl).is_some()
}

/// The server registers the socket where this thread does not wait.
pub(crate) fn settle_before_move(fd: c_int, epoll: c_int) {
    if SUSPENDED.get() == 0 || waits::is_waited_in(epoll) {
        return;
    }
    for ssl in own(|one| one.fd == fd && one.is_left() && one.has_its_socket()) {
        settle(ssl);
    }
}

/// Prepares this thread for its sleep: handshakes go on that would stay as they are, and the server is told again of
/// those that have ended unasked, in case an inner wait has taken the news. Whether there were any.
pub(crate) fn go_on_unasked() -> bool {
    if MOVABLE.get() == 0 {
        return false;
    }
    let ended = own(|one| one.state.get() == State::Returned && one.is_own());
    let again = |ssl: &Ssl| {
        // By the table: another thread may have freed the connection since its handshake has ended here.
        let left = |table: &mut HashMap<usize, Box<Handshake>>| {
            table.get(&ssl.addr()).is_some_and(|one| one.tellings.get() > 0)
        };
        let can_be = with_table(left) == Some(true);
        let is_new = |ready: &mut VecDeque<usize>| {
            let is_new = can_be && !ready.contains(&ssl.addr());
            if is_new {
                ready.push_back(ssl.addr());
            }
            is_new
        };
        with_ready(is_new) == Some(true)
    };
    let are_told_again = ended.iter().filter(|ssl| again(ssl)).count() > 0;
    let left = own(Handshake::goes_on_unasked);
    for ssl in &left {
        // SAFETY: rule 2. What goes on may end others.
        let handshake = find(*ssl).map(|found| unsafe { &*found });
        if let Some(handshake) = handshake.filter(|one| one.goes_on_unasked()) {
            go_on_by_itself(handshake);
        }
    }
    are_told_again || !left.is_empty()
}

/// Frees the connections that other threads have freed meanwhile, and drops what is left of those that OpenSSL has freed.
pub(crate) fn free_abandoned() {
    if connections::are_lost() {
        let is_lost = |one: &Handshake| one.state.get() != State::Running && connections::is_lost(one.number);
        let lost = with_table(|table| -> Vec<_> {
            let lost = table.values().filter(|one| is_lost(one));
            lost.map(|one| one.ssl).collect()
        });
        lost.unwrap_or_default().into_iter().for_each(forget);
    }
    if !connections::were_abandoned() {
        return;
    }
    for ssl in own(|one| one.is_left() && connections::is_abandoned(one.ssl)) {
        end(ssl);
        // SAFETY: all other owners have freed it.
        unsafe { originals::ssl_free(ssl) };
    }
}

/// Returns whether the last call for this connection was told to try again.
pub(crate) fn is_told(ssl: Ssl) -> bool {
    if SUSPENDED.get() > 0
        && let Some(handshake) = find(ssl)
    {
        // SAFETY: rule 2.
        let handshake = unsafe { &*handshake };
        return handshake.state.get().waits() && handshake.is_told.get();
    }
    // Not whether that call is still under way: it may have ended since.
    !ssl.is_null() && TOLD_OF_ANOTHERS.get() == ssl
}

/// Forgets that this thread was told of another thread's call.
fn is_told_no_more_of_anothers(ssl: Ssl) {
    if TOLD_OF_ANOTHERS.get() == ssl {
        TOLD_OF_ANOTHERS.set(ptr::null_mut());
    }
}

/// A call that has an error of its own: the next question is about that one.
pub(crate) fn is_told_no_more(ssl: Ssl) {
    is_told_no_more_of_anothers(ssl);
    if let Some(handshake) = find(ssl) {
        // SAFETY: rule 2.
        unsafe { (*handshake).is_told.set(false) };
    }
}

/// A new connection has this address: what is known is of one that went away unseen.
pub(crate) fn is_new(ssl: Ssl) {
    established::remove(ssl);
    connections::forget(ssl);
    is_told_no_more_of_anothers(ssl);
}

/// The original has ended a handshake that was not suspended.
pub(crate) fn has_ended(ssl: Ssl) {
    let is_known = |table: &mut HashMap<usize, Box<Handshake>>| {
        (table.get(&ssl.addr())).is_some_and(|one| one.state.get() == State::Idle)
    };
    if with_table(is_known) == Some(true) {
        forget(ssl);
    }
}

/// Returns whether this thread has handshakes that have not ended, or may have some: its table is in use, or gone.
pub(crate) fn are_under_way() -> bool {
    LAST.load(Relaxed) > 0 && with_table(|table| !table.is_empty()).unwrap_or(true)
}

/// Whether a wait of this thread has anything to do.
pub(crate) fn are_left() -> bool {
    connections::are_left() && (connections::are_under_way() && SUSPENDED.get() > 0 || connections::are_lost())
}

/// What a call for a connection needs beside the original.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// To be kept apart from other handshakes of this thread ([`apart`]): its own has ended.
    Apart,
    Everything,
}

/// What a call needs that could do a part of a handshake, or that is about the call before.
pub(crate) fn needs(ssl: Ssl) -> Needs {
    if ssl.is_null() || connections::were_moved() {
        return Needs::Everything;
    }
    let is_established = established::has(ssl) || {
        // SAFETY: the server passes a connection.
        let is_it = unsafe { originals::ssl_in_init(ssl) } == 0 && !connections::has_a_call(ssl);
        if is_it {
            established::insert(ssl);
        }
        is_it
    };
    let are_others = connections::are_under_way();
    let are_others_here = || SUSPENDED.get() > 0 || !CURRENT.get().is_null();
    match is_established {
        true if are_others && are_others_here() => Needs::Apart,
        true => Needs::Nothing,
        // Nothing is suspended without a provider.
        false if !are_others && provider::passes().is_none() => Needs::Nothing,
        false => Needs::Everything,
    }
}

/// Number of handshakes of this thread that wait or can go on.
pub(crate) fn suspended() -> usize {
    SUSPENDED.get()
}

/// Returns whether any can go on of which this wait can tell.
pub(crate) fn are_ready(watch: &impl Watch) -> bool {
    let is_told = |ssl: &usize| told_by(*ssl).is_some_and(|socket| watch.tells(socket));
    with_ready(|ready| ready.iter().any(is_told)).unwrap_or(false)
}

/// Tells the server of the handshakes that can go on, as far as this wait can. Those that the server watches elsewhere,
/// or not at all, stay: its next call for them goes on.
pub(crate) fn deliver(mut watch: impl Watch) -> c_int {
    let mut tell = |ssl: usize| {
        let told = told_by(ssl).and_then(|socket| watch.tell(socket));
        if told.is_some() {
            with_table(|table| {
                let one = table.get(&ssl)?;
                one.tellings.set(one.tellings.get().saturating_sub(1));
                Some(())
            });
        }
        told
    };
    let mut any = false;
    with_ready(|ready| {
        ready.retain(|ssl| {
            let told = tell(*ssl);
            any |= told.is_some();
            // The server asks the instance next, which must have something to tell.
            told != Some(Told::ItsSocket)
        });
    });
    match any {
        false => 0,
        true => watch.answer(),
    }
}

/// Runs at most one pass: with 0 one that is full, otherwise any. On a handshake's stack there is no room
/// for a pass.
pub(crate) fn run_pass(any: c_int) -> usize {
    let Some(passes) = provider::passes() else {
        return 0;
    };
    if CURRENT.get().is_null() {
        return (passes.turn)(any);
    }
    let on_own_stack = PASS_STACK.try_with(|stack| {
        let mut stack = stack.try_borrow_mut().ok()?;
        if stack.is_none() {
            *stack = DefaultStack::new(STACK_OF_PASSES).ok();
        }
        Some(corosensei::on_stack(stack.as_mut()?, || (passes.turn)(any)))
    });
    on_own_stack.ok().flatten().unwrap_or(0)
}

/// Runs passes until the handshake can go on, or nothing waits any more.
fn run_all_passes(handshake: &Handshake) {
    while handshake.state.get() == State::Suspended && run_pass(1) > 0 {}
}

/// Until this is dropped, the thread is in a call of libssl's, and calls for `ssl` are not taken for calls of the
/// handshake on whose stack they are made: a callback may use other connections.
#[inline(always)]
pub(crate) fn apart(ssl: Ssl) -> Apart {
    // What the original is asked is the server's last call.
    is_told_no_more_of_anothers(ssl);
    let current = CURRENT.get();
    // SAFETY: rule 2: a handshake that is current is in the table.
    let is_other = unsafe { current.as_ref() }.is_some_and(|current| current.ssl != ssl);
    if is_other {
        CURRENT.set(ptr::null());
    }
    let stack = Place::here().stack();
    // A callback has left an outer call that lies below by a jump.
    let outer = Some(CALL.get()).filter(|outer| *outer > stack);
    CALL.set(outer.unwrap_or(stack));
    Apart {
        current: is_other.then_some(current),
        outer: outer.unwrap_or(0),
    }
}

pub(crate) struct Apart {
    current: Option<*const Handshake>,
    outer: usize,
}

impl Drop for Apart {
    fn drop(&mut self) {
        CALL.set(self.outer);
        if let Some(current) = self.current {
            CURRENT.set(current);
        }
    }
}

/// Whether a stand-in whose frame ends there was called in a call of libssl's: in a callback. The program may hold locks
/// there that callbacks of other handshakes want.
pub(crate) fn is_in_a_call(frame: usize) -> bool {
    !CURRENT.get().is_null() || CALL.get() >= frame
}

/// The process was forked: jobs of suspended handshakes are its parent's. They go on, and find that. Calls of other
/// threads never do.
pub(crate) fn forked() {
    connections::forked(|number| with_table(|table| table.values().any(|one| one.number == number)) == Some(true));
    let waiting = own(|one| one.state.get() == State::Suspended);
    waiting.into_iter().for_each(|ssl| wake(ssl));
}

/// Returns whether this process may run code on stacks of its own: not under a shadow stack (CET), which
/// this library does not switch.
pub(crate) fn can_switch_stacks() -> bool {
    const ARCH_SHSTK_STATUS: c_int = 0x5005;
    const ARCH_SHSTK_SHSTK: u64 = 1;
    let mut features = 0_u64;
    // SAFETY: the call writes one word, or fails on kernels and CPUs without shadow stacks.
    let status = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SHSTK_STATUS, &raw mut features) };
    status != 0 || features & ARCH_SHSTK_SHSTK == 0
}

/// The socket of a connection whose handshake can be suspended: a server's, with nothing in between.
fn socket_of(ssl: Ssl) -> Option<c_int> {
    // SAFETY: the server passes a connection to a function that takes one.
    let (fd, can_be) = unsafe {
        let is_async = originals::ssl_ctrl(ssl, CTRL_MODE, 0, ptr::null_mut()) & MODE_ASYNC != 0;
        // Jobs of OpenSSL's have stacks of their own, which is not understood.
        if originals::ssl_is_server(ssl) != 1 || is_async {
            return None;
        }
        let fd = originals::ssl_get_rfd(ssl);
        // Nor are datagrams, which have timers.
        let can_be = originals::ssl_is_dtls(ssl) == 0
            && fd >= 0
            && fd == originals::ssl_get_wfd(ssl)
            && is_socket(originals::ssl_get_rbio(ssl))
            && is_socket(originals::ssl_get_wbio(ssl));
        (fd, can_be)
    };
    // Without a socket of its own (a memory BIO, QUIC), a server could not be told to go on. The
    // server of a blocking socket does not expect to be told.
    let why = match can_be {
        false => Way::NoSocket,
        true if is_nonblocking(fd) => return Some(fd),
        true => Way::BlockingSocket,
    };
    provider::count_way(why);
    None
}

fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: asks for the flags of a descriptor.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}

/// A file, whatever numbers it has: its file system's number, and its own there.
type Inode = (libc::dev_t, libc::ino_t);

fn inode(fd: c_int) -> Option<Inode> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call fills in the place if it succeeds.
    let found = unsafe { (libc::fstat(fd, found.as_mut_ptr()) == 0).then(|| found.assume_init()) }?;
    Some((found.st_dev, found.st_ino))
}

/// Takes notice of a server's handshake that can be suspended.
fn begin(ssl: Ssl, fd: c_int) -> Option<*const Handshake> {
    let number = LAST.fetch_add(1, Relaxed) + 1;
    // SAFETY: the server passes a connection; the value is a number.
    let is_set = unsafe { originals::ssl_set_ex_data(ssl, index()?, ptr::without_provenance_mut(number)) == 1 };
    if !is_set {
        return None;
    }
    let handshake = Box::new(Handshake {
        ssl,
        fd,
        number,
        process: Cell::new(0),
        coroutine: Cell::new(None),
        yielder: Cell::new(ptr::null()),
        state: Cell::new(State::Idle),
        file: Cell::new(0),
        inode: Cell::new((0, 0)),
        is_told: Cell::new(false),
        asked: Cell::new((0, 0)),
        is_cancelled: Cell::new(false),
        info: Cell::new(None),
        returned: Cell::new((0, 0)),
        tellings: Cell::new(0),
    });
    let address: *const Handshake = &raw const *handshake;
    forget(ssl);
    let inserted = with_table(|table| table.insert(ssl.addr(), handshake));
    waits::begin();
    inserted.map(|_| address)
}

/// The index of our value among those of a connection.
fn index() -> Option<c_int> {
    static INDEX: AtomicI32 = AtomicI32::new(-1);
    if INDEX.load(Relaxed) < 0 {
        let (none, no_function) = (ptr::null_mut(), ptr::null());
        // SAFETY: `freed` has the type of such a function, and this library is never unloaded.
        let new = unsafe { originals::crypto_get_ex_new_index(0, 0, none, no_function, no_function, Some(freed)) };
        // Another thread may have been faster; its index is as good.
        let _ = INDEX.compare_exchange(-1, new, Relaxed, Relaxed);
    }
    Some(INDEX.load(Relaxed)).filter(|index| *index >= 0)
}

/// OpenSSL frees a connection. We have ended its handshake before, if we were asked: the last reference may have been
/// in other hands, or a library may have called OpenSSL's function past us.
extern "C" fn freed(ssl: Ssl, number: *mut c_void, _: *mut c_void, _: c_int, _: c_long, _: *mut c_void) {
    guarded(|| {
        if number.is_null() || cfg!(planted_fault = "connection") {
            return;
        }
        connections::is_freed(ssl, number.addr());
        let is_it = |table: &mut HashMap<usize, Box<Handshake>>| {
            let found = table.get(&ssl.addr());
            // One that runs would need it.
            let is_it = |one: &Handshake| one.number == number.addr() && one.state.get() != State::Running;
            found.is_some_and(|one| is_it(one))
        };
        if with_table(is_it) == Some(true) {
            forget(ssl);
        }
    });
}

/// Returns whether what is read and written goes to a socket at once, with no buffer in between.
///
/// # Safety
///
/// `bio` must be null or a BIO.
unsafe fn is_socket(bio: *mut c_void) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        !bio.is_null() && originals::bio_method_type(bio) == BIO_TYPE_SOCKET && originals::bio_next(bio).is_null()
    }
}

/// `BIO_TYPE_SOCKET`.
const BIO_TYPE_SOCKET: c_int = 0x505;
/// `SSL_CTRL_MODE`.
const CTRL_MODE: c_int = 33;
/// `SSL_MODE_ASYNC`.
const MODE_ASYNC: std::ffi::c_long = 0x100;

/// Finds the handshake of this connection. One of an earlier connection with the same address does not count.
fn find(ssl: Ssl) -> Option<*const Handshake> {
    let found = with_table(|table| Some(&raw const **table.get(&ssl.addr())?)).flatten()?;
    // SAFETY: rule 2.
    let number = unsafe { (*found).number };
    // SAFETY: the server passes a connection.
    let value = |index| unsafe { originals::ssl_get_ex_data(ssl, index) }.addr();
    if connections::is_lost(number) || index().map(value) != Some(number) {
        forget(ssl);
        return None;
    }
    Some(found)
}

/// The connections of this thread's handshakes that are so.
fn own(so: impl Fn(&Handshake) -> bool) -> Vec<Ssl> {
    if SUSPENDED.get() == 0 {
        return Vec::new();
    }
    let handshakes = |table: &mut HashMap<usize, Box<Handshake>>| {
        let found = table
            .values()
            .filter(|one| so(one) && !connections::is_lost(one.number));
        found.map(|one| one.ssl).collect()
    };
    with_table(handshakes).unwrap_or_default()
}

fn with_table<R>(work: impl FnOnce(&mut HashMap<usize, Box<Handshake>>) -> R) -> Option<R> {
    let done = TABLE.try_with(|table| Some(work(&mut table.try_borrow_mut().ok()?.0)));
    done.ok().flatten()
}

fn with_ready<R>(work: impl FnOnce(&mut VecDeque<usize>) -> R) -> Option<R> {
    let done = READY.try_with(|ready| Some(work(&mut *ready.try_borrow_mut().ok()?)));
    done.ok().flatten()
}

fn unready(ssl: Ssl) {
    with_ready(|ready| ready.retain(|one| *one != ssl.addr()));
}

/// The socket by which the server is told of the connection at this address.
fn told_by(ssl: usize) -> Option<Socket> {
    let found = with_table(|table| table.get(&ssl).map(|one| (one.number, one.socket()))).flatten();
    let (number, socket) = found?;
    let is_gone = connections::is_abandoned(ptr::without_provenance_mut(ssl));
    (!is_gone && !connections::is_lost(number)).then_some(socket)
}

/// Drops a handshake on whose stack nothing runs, or will.
fn forget(ssl: Ssl) {
    unready(ssl);
    if let Some(handshake) = with_table(|table| table.remove(&ssl.addr())).flatten() {
        connections::taken(ssl, handshake.number);
        connections::is_dropped(handshake.number);
        handshake.set_state(State::Idle);
        #[cfg(planted_fault = "handshake")]
        {
            let freed = &raw const *handshake;
            drop(handshake);
            // SAFETY: none. The test of the tests finds this.
            std::hint::black_box(unsafe { (*freed).number });
        }
    }
}

/// Brings a call that was left to its end: it fails. The alert that OpenSSL would send of it is neither
/// sent nor told, nor is the session taken from the cache: a connection that is freed in the middle has
/// none of that.
fn cancel(handshake: &Handshake) {
    let ssl = handshake.ssl;
    handshake.is_cancelled.set(true);
    // SAFETY: the connection is still whole. A connection that has been shut down sends no alerts;
    // BIOs that discard everything are allowed at any time, and a count of each of its own is taken
    // before. The errors that it meets are taken from the queue again.
    unsafe {
        originals::err_set_mark();
        let shutdown = originals::ssl_get_shutdown(ssl);
        originals::ssl_set_shutdown(ssl, BOTH_SHUT_DOWN);
        let (read, write) = (originals::ssl_get_rbio(ssl), originals::ssl_get_wbio(ssl));
        let nothing = originals::bio_new(originals::bio_s_null());
        if !nothing.is_null() {
            for bio in [read, write] {
                if !bio.is_null() {
                    originals::bio_up_ref(bio);
                }
            }
            originals::ssl_set_bio(ssl, nothing, nothing);
        }
        while resume(handshake, false).is_none() {}
        if !nothing.is_null() {
            // Each takes the count that was taken above.
            originals::ssl_set0_rbio(ssl, read);
            originals::ssl_set0_wbio(ssl, write);
        }
        originals::ssl_set_shutdown(ssl, shutdown);
        originals::err_pop_to_mark();
    }
    handshake.is_cancelled.set(false);
}

/// `SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN`.
const BOTH_SHUT_DOWN: c_int = 3;

/// OpenSSL calls us in the place of the server's callback as long as the call is under way: it keeps the
/// address of the function from the beginning to the end of a call, when the connection may be being
/// freed.
fn listen(handshake: &Handshake) {
    let ssl = handshake.ssl;
    // SAFETY: the server passes a connection, which has a context. `tell` has the type of a callback.
    unsafe {
        let own = originals::ssl_get_info_callback(ssl);
        if own.is_some() || of_context(ssl).is_some() {
            handshake.info.set(Some(own));
            originals::ssl_set_info_callback(ssl, Some(tell));
        }
    }
}

/// # Safety
///
/// `ssl` must be a connection.
unsafe fn of_context(ssl: Ssl) -> Option<InfoCallback> {
    // SAFETY: the caller's promise.
    unsafe { originals::ssl_ctx_get_info_callback(originals::ssl_get_ssl_ctx(ssl)) }
}

/// Calls the server back, unless the connection is being freed.
unsafe extern "C-unwind" fn tell(ssl: Ssl, what: c_int, value: c_int) {
    guarded(|| {
        let handshake = find(ssl)?;
        // SAFETY: rule 2; OpenSSL passes a connection.
        unsafe {
            if (*handshake).is_cancelled.get() {
                return None;
            }
            (*handshake).info.get().flatten().or_else(|| of_context(ssl))
        }
    })
    .flatten()
    // SAFETY: the server's function with what OpenSSL calls it with.
    .inspect(|callback| unsafe { callback(ssl, what, value) });
}

/// The server's own callback, if we have its place in the connection.
pub(crate) fn info_callback(ssl: Ssl) -> Option<Option<InfoCallback>> {
    // SAFETY: rule 2.
    unsafe { (*find(ssl)?).info.get() }
}

/// The server chooses another callback. Whether it was kept here.
pub(crate) fn keep_info_callback(ssl: Ssl, callback: Option<InfoCallback>) -> bool {
    let Some(handshake) = find(ssl) else {
        return false;
    };
    // SAFETY: rule 2.
    let handshake = unsafe { &*handshake };
    let is_kept = handshake.info.get().is_some();
    if is_kept {
        handshake.info.set(Some(callback));
    }
    is_kept
}

/// The call of OpenSSL's that runs on the handshake's stack.
fn on_stack(stack: GuardedStack, handshake: *const Handshake, step: Step) -> Running {
    ManuallyDrop::new(Coroutine::with_stack(stack, move |yielder, _| {
        // SAFETY: rule 2: the handshake stays until this call has returned; the connection is the
        // server's, which ends it through `end`.
        unsafe {
            (*handshake).yielder.set(yielder);
            match step {
                Step::Do => originals::ssl_do_handshake((*handshake).ssl),
                Step::Accept => originals::ssl_accept((*handshake).ssl),
            }
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
            handshake.set_state(State::Idle);
            if let Some(own) = handshake.info.take() {
                // SAFETY: the connection is whole, and the callback its own.
                unsafe { originals::ssl_set_info_callback(handshake.ssl, own) };
            }
            let mut stack = Some(ManuallyDrop::into_inner(coroutine).into_stack());
            // Without a pool the memory goes back.
            let _ = STACKS.try_with(|stacks| stack.take().map(|stack| stacks.put(stack)));
            set_errno(errno);
            Some(result)
        }
    }
}

/// See [`widelane_openssl_tables::Suspension`]. A handshake is told by the address of its connection.
pub(crate) extern "C" fn current() -> *mut c_void {
    guarded(|| {
        // SAFETY: rule 2: a handshake that is current is in the table.
        unsafe { CURRENT.get().as_ref() }.map(|current| current.ssl)
    })
    .flatten()
    .unwrap_or(ptr::null_mut())
}

/// See [`widelane_openssl_tables::Suspension`].
pub(crate) extern "C" fn suspend(ssl: *mut c_void) -> c_int {
    guarded(|| {
        // SAFETY: the provider calls on the stack whose handshake is current (rules 2 and 3).
        unsafe {
            let current = CURRENT.get().as_ref();
            let current = current.filter(|one| one.ssl == ssl && !one.is_cancelled.get());
            current.is_some_and(|current| (*current.yielder.get()).suspend(()))
        }
    })
    .unwrap_or(false)
    .into()
}

/// See [`widelane_openssl_tables::Suspension`]. The handshake may have ended: then there is nothing to wake. So
/// may the thread, whose worker tells its last jobs that they are dropped.
pub(crate) extern "C" fn wake(ssl: *mut c_void) {
    guarded(|| {
        let woken = with_table(|table| {
            let handshake = table.get(&ssl.addr())?;
            let waits = handshake.state.get() == State::Suspended;
            waits.then(|| handshake.set_state(State::Ready))
        });
        if let Some(Some(())) = woken {
            with_ready(|ready| ready.push_back(ssl.addr()));
        }
    });
}

/// The handshakes of a thread, by the address of the connection.
#[derive(Default)]
struct Table(HashMap<usize, Box<Handshake>>);

impl Drop for Table {
    /// The thread ends. What waits on it fails, so that its stack goes back, and what other threads
    /// have freed is freed. The first thread ends with the process, which leaves everything as it is: so
    /// does a call in the middle of which the thread ends.
    fn drop(&mut self) {
        // SAFETY: asks for the number of this thread.
        let is_first = unsafe { libc::gettid() } as u32 == std::process::id();
        for (_, handshake) in self.0.drain() {
            let is_left = is_first && handshake.is_left();
            if handshake.state.get() == State::Running || is_left || connections::is_lost(handshake.number) {
                connections::is_dropped(handshake.number);
                std::mem::forget(handshake);
                continue;
            }
            let number = handshake.number;
            connections::taken(handshake.ssl, number);
            let ended = handshake.is_left().then(|| guarded(|| cancel(&handshake)));
            handshake.set_state(State::Idle);
            match ended {
                // SAFETY: all other owners have freed it.
                Some(Some(())) if connections::end(handshake.ssl) => unsafe {
                    originals::ssl_free(handshake.ssl);
                },
                // What is on its stack still points to it.
                Some(None) => {
                    std::mem::forget(handshake);
                    continue;
                }
                _ => {}
            }
            // Its call has ended: it is not lost any more from here on.
            connections::is_dropped(number);
        }
    }
}

/// The number of the newest handshake that could have been suspended; 0: there was none in the process.
static LAST: AtomicUsize = AtomicUsize::new(0);

/// Bytes of a stack for passes, as many as the provider gives them.
const STACK_OF_PASSES: usize = 512 * 1024;

thread_local! {
    static TABLE: RefCell<Table> = RefCell::default();
    /// Handshakes that can go on, by the address of the connection, the first first.
    static READY: RefCell<VecDeque<usize>> = const { RefCell::new(VecDeque::new()) };
    static MOVABLE: Cell<usize> = const { Cell::new(0) };
    static SUSPENDED: Cell<usize> = const { Cell::new(0) };
    /// The handshake on whose stack this thread runs.
    static CURRENT: Cell<*const Handshake> = const { Cell::new(ptr::null()) };
    /// The stack pointer in the outermost stand-in whose original this thread is in; 0: it is in none.
    static CALL: Cell<usize> = const { Cell::new(0) };
    /// The connection of which this thread was last told to try again because its call is another thread's.
    static TOLD_OF_ANOTHERS: Cell<Ssl> = const { Cell::new(ptr::null_mut()) };
    static STACKS: Stacks = Stacks::default();
    static PASS_STACK: RefCell<Option<DefaultStack>> = const { RefCell::new(None) };
}
