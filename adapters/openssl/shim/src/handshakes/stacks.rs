//! Stacks: on which of them handshakes run, are suspended and go on, and where passes run meanwhile.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use widelane_stacks::{GuardedStack, Stacks};

use super::handshake::{Handshake, Running, State, Step};
use crate::boundary::guarded;
use crate::errno::{errno, set_errno};
use crate::{originals, provider};

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

/// The call of OpenSSL's that runs on the handshake's stack.
pub(super) fn on_stack(stack: GuardedStack, handshake: *const Handshake, step: Step) -> Running {
    ManuallyDrop::new(Coroutine::with_stack(stack, move |yielder, _| {
        // SAFETY: rule 2 (`mod.rs`): the handshake stays until this call has returned; the connection is the
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
pub(super) fn resume(handshake: &Handshake, go_on: bool) -> Option<c_int> {
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

/// Brings a call that was left to its end: it fails. The alert that OpenSSL would send of it is neither
/// sent nor reported, nor is the session taken from the cache: a connection that is freed in the middle has
/// none of that.
pub(super) fn cancel(handshake: &Handshake) {
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

/// See [`widelane_openssl_tables::Suspension`]. A handshake is known by the address of its connection.
pub(crate) extern "C" fn current() -> *mut c_void {
    guarded(|| {
        // SAFETY: rule 2 (`mod.rs`): a handshake that is current is in the table.
        unsafe { CURRENT.get().as_ref() }.map(|current| current.ssl)
    })
    .flatten()
    .unwrap_or(ptr::null_mut())
}

/// See [`widelane_openssl_tables::Suspension`].
pub(crate) extern "C" fn suspend(ssl: *mut c_void) -> c_int {
    guarded(|| {
        // SAFETY: the provider calls on the stack whose handshake is current (rules 2 and 3, `mod.rs`).
        unsafe {
            let current = CURRENT.get().as_ref();
            let current = current.filter(|one| one.ssl == ssl && !one.is_cancelled.get());
            current.is_some_and(|current| (*current.yielder.get()).suspend(()))
        }
    })
    .unwrap_or(false)
    .into()
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
pub(super) fn run_all_passes(handshake: &Handshake) {
    while handshake.state.get() == State::Suspended && run_pass(1) > 0 {}
}

/// Bytes of a stack for passes, as many as the provider gives them.
const STACK_OF_PASSES: usize = 512 * 1024;

thread_local! {
    /// The handshake on whose stack this thread runs.
    pub(super) static CURRENT: Cell<*const Handshake> = const { Cell::new(ptr::null()) };
    pub(super) static STACKS: Stacks = Stacks::default();
    static PASS_STACK: RefCell<Option<DefaultStack>> = const { RefCell::new(None) };
}
