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
//! A server may call at the end of its threads, when thread-locals are gone: then nothing is known here,
//! and the originals do what is left.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use libc::epoll_event;
use widelane_stacks::{GuardedStack, Stacks};

use crate::boundary::guarded;
use crate::connections;
use crate::originals::{self, InfoCallback, Ssl};
use crate::registrations::{self, Instance, Registration};
use crate::table;

/// One of OpenSSL's functions that does a part of a handshake.
pub(crate) type Step = unsafe fn(Ssl) -> c_int;

/// What a call gets that was suspended.
const TRY_AGAIN: c_int = -1;

/// A handshake that has begun.
struct Handshake {
    ssl: Ssl,
    fd: c_int,
    /// In which process its call has begun.
    process: Cell<u32>,
    coroutine: Cell<Option<Running>>,
    yielder: Cell<*const Yielder<bool, ()>>,
    state: Cell<State>,
    /// Which of the files with the number of the socket it is on.
    file: Cell<u32>,
    /// Whether the last call was told to try again.
    is_told: Cell<bool>,
    /// How often the server has asked since the last wait of this thread, and which wait that was.
    asked: Cell<(u64, u32)>,
    /// Its connection goes away, or starts anew.
    is_cancelled: Cell<bool>,
    /// The connection's own callback, while [`tell`] has its place.
    info: Cell<Option<Option<InfoCallback>>>,
}

impl Handshake {
    /// Changes the state, and counts the handshakes of which the server was told to try again.
    fn set_state(&self, state: State) {
        let before = self.state.replace(state);
        let count = SUSPENDED.get() + usize::from(state.waits()) - usize::from(before.waits());
        SUSPENDED.set(count);
    }

    /// Whether its call was left in the middle.
    fn is_left(&self) -> bool {
        matches!(self.state.get(), State::Suspended | State::Ready)
    }

    /// Where the server is told that it can go on.
    fn registration(&self) -> Option<Registration> {
        registrations::get(self.fd).filter(|found| found.file == self.file.get())
    }

    /// The server asks again. Whether nothing else will make the handshake go on: it cannot be told, or
    /// it asks again and again without waiting.
    fn asks_in_vain(&self) -> bool {
        let (wait, before) = self.asked.get();
        let times = match wait == WAITS.get() {
            true => before + 1,
            false => 1,
        };
        self.asked.set((WAITS.get(), times));
        let can_be_told = self
            .registration()
            .is_some_and(|found| waits_on(found.epoll));
        !can_be_told || times > PATIENCE
    }
}

/// Calls without a wait in between after which passes run at once. A server that has two events for a
/// connection calls twice.
const PATIENCE: u32 = 8;

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

/// What a call gets that would do a part of a handshake; `None` if the original does it. A server's first
/// handshake runs on its own stack until OpenSSL returns or it is suspended.
pub(crate) fn drive(ssl: Ssl, step: Step) -> Option<c_int> {
    let passes = table::passes()?;
    if ssl.is_null() {
        return None;
    }
    // Not whether the handshake has ended: while early data is read or written it has not, but calls do no
    // part of it.
    // SAFETY: the server passes a connection to a function that takes one.
    if unsafe { originals::ssl_in_init(ssl) } == 0 {
        return None;
    }
    // While lanes are off nothing waits, and a stack would only cost time. One that has begun goes on.
    let begin = || {
        ((passes.lanes_are_off)() == 0)
            .then(|| begin(ssl))
            .flatten()
    };
    let Some(handshake) = find(ssl).or_else(begin) else {
        if connections::is_under_way(ssl) {
            connections::moved();
            set_errno(libc::EAGAIN);
            return Some(TRY_AGAIN);
        }
        return None;
    };
    // SAFETY: rule 2.
    let handshake = unsafe { &*handshake };
    handshake.is_told.set(false);
    match handshake.state.get() {
        // Its own callback calls. What that would do without us is OpenSSL's to say.
        State::Running => return None,
        State::Suspended if handshake.process.get() != std::process::id() => {}
        State::Suspended if !handshake.asks_in_vain() => return Some(try_again(handshake)),
        State::Suspended => {
            run_all_passes(handshake);
            if handshake.state.get() != State::Ready {
                return Some(try_again(handshake));
            }
        }
        State::Ready => {}
        State::Postponed | State::Idle => {
            let was = handshake.state.get();
            handshake.set_state(State::Idle);
            if was == State::Idle && registrations::take_new(handshake.fd) && waits_anywhere() {
                handshake.set_state(State::Postponed);
                return Some(try_again(handshake));
            }
            start(handshake, step)?;
        }
    }
    Some(go_on(handshake))
}

/// Puts the call onto a stack of its own, if the server can be told to go on.
fn start(handshake: &Handshake, step: Step) -> Option<()> {
    // On another handshake's stack: that one could not go on before this one has.
    if !CURRENT.get().is_null() || connections::were_moved() {
        return None;
    }
    let registration = registrations::get(handshake.fd)?;
    if !waits_on(registration.epoll) {
        return None;
    }
    // Once the client has ended a handshake, data of the server may come in the middle of the next, which a call
    // that only does the handshake refuses.
    // SAFETY: the server passes a connection; no place is needed for nothing.
    if unsafe { originals::ssl_get_peer_finished(handshake.ssl, ptr::null_mut(), 0) } > 0 {
        return None;
    }
    let stack = STACKS
        .try_with(|stacks| stacks.take().ok())
        .ok()
        .flatten()?;
    handshake.file.set(registration.file);
    handshake.process.set(std::process::id());
    handshake.asked.set((WAITS.get(), 0));
    connections::begin(handshake.ssl);
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
        if handshake.state.get() != State::Ready {
            return try_again(handshake);
        }
    }
}

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
    let Some(handshake) = find(ssl) else {
        return !connections::is_under_way(ssl);
    };
    // SAFETY: rule 2: it is removed only below.
    let handshake = unsafe { &*handshake };
    if handshake.is_left() {
        cancel(handshake);
        connections::end(ssl);
    }
    if handshake.state.get() != State::Running {
        forget(ssl);
    }
    true
}

/// The server changes what a suspended call uses: the call goes on to its end, or to where it waits for
/// the client, before that.
pub(crate) fn settle(ssl: Ssl) {
    while SUSPENDED.get() > 0
        && let Some(handshake) = find(ssl)
    {
        // SAFETY: rule 2.
        let handshake = unsafe { &*handshake };
        if !handshake.is_left() || handshake.is_cancelled.get() {
            return;
        }
        run_all_passes(handshake);
        let is_own = handshake.process.get() == std::process::id();
        if handshake.state.get() == State::Suspended && is_own {
            // Nothing runs its job.
            cancel(handshake);
            finish(handshake, TRY_AGAIN);
            return;
        }
        go_on(handshake);
    }
}

/// The server registers the socket where this thread does not wait: its handshake would never be told.
pub(crate) fn settle_before_move(fd: c_int, epoll: c_int) {
    if SUSPENDED.get() == 0 || registrations::instance(epoll).is_some_and(waits_on) {
        return;
    }
    let of_fd = |one: &Handshake| one.fd == fd && one.is_left();
    own(of_fd).into_iter().for_each(settle);
}

/// The server waits for descriptors in another way, which tells it nothing of ours: calls for connections that
/// it waits for so, or for an instance that has them, go on before that.
pub(crate) fn settle_before_wait(is_watched: impl Fn(c_int) -> bool) {
    let is_watched = |one: &Handshake| {
        let instance = || Some(one.registration()?.epoll.descriptor() as c_int);
        one.is_left() && (is_watched(one.fd) || instance().is_some_and(&is_watched))
    };
    own(is_watched).into_iter().for_each(settle);
}

/// Frees the connections that other threads have freed meanwhile.
pub(crate) fn free_abandoned() {
    if !connections::were_abandoned() {
        return;
    }
    for ssl in own(|one| one.is_left() && connections::is_abandoned(one.ssl)) {
        end(ssl);
        // SAFETY: all other owners have freed it.
        unsafe { originals::ssl_free(ssl) };
    }
}

/// Whether the last call for this connection was told to try again.
pub(crate) fn is_told(ssl: Ssl) -> bool {
    if SUSPENDED.get() > 0
        && let Some(handshake) = find(ssl)
    {
        // SAFETY: rule 2.
        let handshake = unsafe { &*handshake };
        return handshake.state.get().waits() && handshake.is_told.get();
    }
    connections::is_under_way(ssl) && find(ssl).is_none()
}

/// A call that has an error of its own: the next question is about that one.
pub(crate) fn is_told_no_more(ssl: Ssl) {
    if let Some(handshake) = find(ssl) {
        // SAFETY: rule 2.
        unsafe { (*handshake).is_told.set(false) };
    }
}

/// A new connection has this address: what is known is of one that went away unseen.
pub(crate) fn is_new(ssl: Ssl) {
    connections::forget(ssl);
    if let Some(handshake) = find(ssl)
        // SAFETY: rule 2.
        && !unsafe { (*handshake).is_left() }
    {
        forget(ssl);
    }
}

/// How many handshakes of this thread wait or can go on.
pub(crate) fn suspended() -> usize {
    SUSPENDED.get()
}

/// How many can go on, and can be told in this epoll instance.
pub(crate) fn ready(epoll: Instance) -> usize {
    let here = |ssl: &&usize| registration(**ssl).is_some_and(|found| found.epoll == epoll);
    with_ready(|ready| ready.iter().filter(here).count()).unwrap_or(0)
}

/// Writes an event for each handshake that can go on, with the server's own data. Those that the
/// server watches elsewhere, or not at all, stay: its next call for them goes on.
pub(crate) fn deliver(epoll: Instance, events: &mut [epoll_event]) -> usize {
    let room = events.len();
    let mut events = events.iter_mut();
    with_ready(|ready| {
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

/// This thread waits in an epoll instance. Only a wait that can last shows how it learns of events.
pub(crate) fn waits(epoll: Instance, can_last: bool) {
    WAITS.set(WAITS.get() + 1);
    let mut known = WAITED.get();
    if can_last && !known.contains(&Some(epoll)) {
        known.rotate_right(1);
        known[0] = Some(epoll);
        WAITED.set(known);
    }
}

/// Whether this thread has waited in that instance by a function that we stand in for.
fn waits_on(epoll: Instance) -> bool {
    WAITED.get().contains(&Some(epoll))
}

fn waits_anywhere() -> bool {
    WAITED.get()[0].is_some()
}

/// Runs at most one pass: with 0 one that is full, otherwise any. On a handshake's stack there is no room
/// for a pass.
pub(crate) fn run_pass(any: c_int) -> usize {
    let Some(passes) = table::passes() else {
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

/// Until this is dropped, calls for `ssl` are not taken for calls of the handshake on whose stack they
/// are made: a callback may use other connections.
pub(crate) fn apart(ssl: Ssl) -> Apart {
    let current = CURRENT.get();
    // SAFETY: rule 2: a handshake that is current is in the table.
    let is_other = unsafe { current.as_ref() }.is_some_and(|current| current.ssl != ssl);
    if is_other {
        CURRENT.set(ptr::null());
    }
    Apart(is_other.then_some(current))
}

pub(crate) struct Apart(Option<*const Handshake>);

impl Drop for Apart {
    fn drop(&mut self) {
        if let Some(current) = self.0 {
            CURRENT.set(current);
        }
    }
}

/// The process was forked: jobs of suspended handshakes are its parent's. They go on, and find that.
pub(crate) fn forked() {
    let waiting = own(|one| one.state.get() == State::Suspended);
    waiting.into_iter().for_each(|ssl| wake(ssl));
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

/// Takes notice of a server's handshake that can be suspended.
fn begin(ssl: Ssl) -> Option<*const Handshake> {
    // SAFETY: the server passes a connection to a function that takes one.
    let (fd, can_be) = unsafe {
        let fd = originals::ssl_get_rfd(ssl);
        // Datagrams have timers, and jobs of OpenSSL's own stacks: neither is understood.
        let can_be = originals::ssl_is_server(ssl) == 1
            && originals::ssl_is_dtls(ssl) == 0
            && originals::ssl_ctrl(ssl, CTRL_MODE, 0, ptr::null_mut()) & MODE_ASYNC == 0
            && fd >= 0
            && fd == originals::ssl_get_wfd(ssl)
            && is_socket(originals::ssl_get_rbio(ssl))
            && is_socket(originals::ssl_get_wbio(ssl));
        (fd, can_be)
    };
    // Without a socket of its own (a memory BIO, QUIC), a server could not be told to go on. The
    // server of a blocking socket does not expect to be told.
    if !can_be || connections::is_under_way(ssl) {
        return None;
    }
    // SAFETY: asks for the flags of a descriptor.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 || flags & libc::O_NONBLOCK == 0 {
        return None;
    }
    let handshake = Box::new(Handshake {
        ssl,
        fd,
        process: Cell::new(0),
        coroutine: Cell::new(None),
        yielder: Cell::new(ptr::null()),
        state: Cell::new(State::Idle),
        file: Cell::new(0),
        is_told: Cell::new(false),
        asked: Cell::new((0, 0)),
        is_cancelled: Cell::new(false),
        info: Cell::new(None),
    });
    let address: *const Handshake = &raw const *handshake;
    with_table(|table| table.insert(ssl.addr(), handshake)).map(|_| address)
}

/// Whether what is read and written goes to a socket at once, with no buffer in between.
///
/// # Safety
///
/// `bio` must be null or a BIO.
unsafe fn is_socket(bio: *mut c_void) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        !bio.is_null()
            && originals::bio_method_type(bio) == BIO_TYPE_SOCKET
            && originals::bio_next(bio).is_null()
    }
}

/// `BIO_TYPE_SOCKET`.
const BIO_TYPE_SOCKET: c_int = 0x505;
/// `SSL_CTRL_MODE`.
const CTRL_MODE: c_int = 33;
/// `SSL_MODE_ASYNC`.
const MODE_ASYNC: std::ffi::c_long = 0x100;

/// What is known of this connection. If its socket is another one by now, or it is no server any more,
/// nothing is.
fn find(ssl: Ssl) -> Option<*const Handshake> {
    let found = with_table(|table| Some(&raw const **table.get(&ssl.addr())?)).flatten()?;
    // SAFETY: rule 2.
    let handshake = unsafe { &*found };
    // SAFETY: the server passes a connection.
    let is_same = handshake.state.get() != State::Idle
        || unsafe { originals::ssl_get_rfd(ssl) } == handshake.fd;
    if !is_same {
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
        let found = table.values().filter(|one| so(one));
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

/// Where the connection at this address is told to go on.
fn registration(ssl: usize) -> Option<Registration> {
    let found = with_table(|table| table.get(&ssl)?.registration()).flatten();
    found.filter(|_| !connections::is_abandoned(ptr::without_provenance_mut(ssl)))
}

/// Drops a handshake on whose stack nothing runs.
fn forget(ssl: Ssl) {
    unready(ssl);
    if let Some(handshake) = with_table(|table| table.remove(&ssl.addr())).flatten() {
        handshake.set_state(State::Idle);
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
            (*handshake)
                .info
                .get()
                .flatten()
                .or_else(|| of_context(ssl))
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
            step((*handshake).ssl)
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

pub(crate) fn errno() -> c_int {
    // SAFETY: this thread's own place.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: this thread's own place.
    unsafe { *libc::__errno_location() = value };
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
            if handshake.state.get() == State::Running || is_first && handshake.is_left() {
                std::mem::forget(handshake);
                continue;
            }
            let ended = handshake.is_left().then(|| guarded(|| cancel(&handshake)));
            handshake.set_state(State::Idle);
            match ended {
                // SAFETY: all other owners have freed it.
                Some(Some(())) if connections::end(handshake.ssl) => unsafe {
                    originals::ssl_free(handshake.ssl);
                },
                // What is on its stack still points to it.
                Some(None) => std::mem::forget(handshake),
                _ => {}
            }
        }
    }
}

/// Bytes of a stack for passes, as many as the provider gives them.
const STACK_OF_PASSES: usize = 512 * 1024;

/// How many epoll instances a thread is known to wait in.
const INSTANCES: usize = 4;

thread_local! {
    static TABLE: RefCell<Table> = RefCell::default();
    /// Those that can go on, by the address of the connection, the first first.
    static READY: RefCell<VecDeque<usize>> = const { RefCell::new(VecDeque::new()) };
    static SUSPENDED: Cell<usize> = const { Cell::new(0) };
    /// The handshake on whose stack this thread runs.
    static CURRENT: Cell<*const Handshake> = const { Cell::new(ptr::null()) };
    static STACKS: Stacks = Stacks::default();
    static PASS_STACK: RefCell<Option<DefaultStack>> = const { RefCell::new(None) };
    /// How often this thread has waited.
    static WAITS: Cell<u64> = const { Cell::new(0) };
    /// Where it has waited, the newest first.
    static WAITED: Cell<[Option<Instance>; INSTANCES]> = const { Cell::new([None; INSTANCES]) };
}
