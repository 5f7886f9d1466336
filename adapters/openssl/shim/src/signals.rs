//! Tells calls of signal handlers apart.
//!
//! A handler may call `poll`, `select` and their siblings, and it may have interrupted anything: libssl, the allocation
//! of memory, a callback that holds a lock, this library. So nothing of ours may happen in its calls. A mark that is set
//! around libssl's functions would not tell: the program's own code takes locks, too. The stack tells. Between a handler
//! and what it has interrupted lies a frame of the kernel's, which the unwinder of the C runtime knows, also on a signal
//! stack of its own. It asks for no memory, and takes no lock that this thread could not take twice.
//!
//! Nothing of the program's is changed for that. To stand in for `sigaction` would cost every program something, and
//! handlers that are set by a system call would not be seen.

use std::arch::asm;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;

use crate::boundary::guarded;

/// Has the unwinder make what it makes once.
pub(crate) fn begin() {
    // SAFETY: this function has not returned.
    unsafe { end_of_frame(Place::here()) };
}

/// A place in a stand-in that is under way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    stack: usize,
    code: usize,
}

impl Place {
    /// The place of the function in which this is called.
    #[inline(always)]
    pub(crate) fn here() -> Self {
        let (stack, code);
        // SAFETY: copies two registers.
        unsafe {
            asm!("mov {}, rsp", "lea {}, [rip]", out(reg) stack, out(reg) code,
                options(nomem, nostack, preserves_flags));
        }
        Self { stack, code }
    }

    pub(crate) fn stack(self) -> usize {
        self.stack
    }
}

/// A call that was seen outside of handlers. One that comes from the same instruction and from the same depth of the
/// stack is in none either: below a handler the stack is deeper than what it has interrupted.
#[derive(Clone, Copy)]
struct Site {
    place: Place,
    /// What the stack pointer was before the call: the address to which it returns lies below.
    end: usize,
    caller: usize,
}

const NO_SITE: Site = Site {
    place: Place { stack: 0, code: 0 },
    end: 0,
    caller: 0,
};

/// Where the frame of a stand-in ends: what the stack pointer was before it was called. `None` in a signal handler. Costs
/// some microseconds for a call that was not seen yet, and some nanoseconds for the same again.
///
/// # Safety
///
/// `place` must be [`Place::here`] of a stand-in that has not returned.
pub(crate) unsafe fn end_of_frame(place: Place) -> Option<usize> {
    let mut known = KNOWN.get();
    for site in known {
        // SAFETY: the word belongs to the frames above the place, which are the stand-in's and its caller's: `look` has
        // found that it is near.
        if site.place == place && unsafe { word(site.end - WORD) } == site.caller {
            return Some(site.end);
        }
    }
    let mut search = Search {
        place,
        site: None,
        before: 0,
        is_in_handler: false,
    };
    // SAFETY: `look` is called with the place that it expects, while this function runs.
    unsafe { _Unwind_Backtrace(look, (&raw mut search).cast()) };
    if search.is_in_handler {
        return None;
    }
    let Some(site) = search.site else {
        return Some(place.stack);
    };
    known.rotate_right(1);
    known[0] = site;
    KNOWN.set(known);
    Some(site.end)
}

/// Reads a word of the stack. Not as Rust does: a sanitizer would have it belong to a variable.
///
/// # Safety
///
/// The address must be mapped.
unsafe fn word(address: usize) -> usize {
    let word;
    // SAFETY: the caller's promise.
    unsafe { asm!("mov {}, [{}]", out(reg) word, in(reg) address, options(readonly, nostack, preserves_flags)) };
    word
}

struct Search {
    place: Place,
    /// Of the stand-in's frame.
    site: Option<Site>,
    /// Where the frame before this one goes on.
    before: usize,
    is_in_handler: bool,
}

/// Looks at one frame, the innermost first.
extern "C" fn look(frame: *mut UnwindContext, search: *mut c_void) -> c_int {
    guarded(|| {
        // SAFETY: `end_of_frame` passes its own place, and the unwinder the frame that it looks at. What has left an
        // interrupted frame is code, and the word below the end of a frame that was called is where it returns to.
        unsafe {
            let search = &mut *search.cast::<Search>();
            let mut is_interrupted = 0;
            let caller = _Unwind_GetIPInfo(frame, &mut is_interrupted);
            // The first frame on a handshake's own stack looks interrupted, too.
            let before = std::mem::replace(&mut search.before, caller);
            if is_interrupted != 0 && *ptr::with_exposed_provenance::<[u8; 9]>(before) == RETURN_FROM_HANDLER {
                search.is_in_handler = true;
                return STOP;
            }
            let (place, end) = (search.place, _Unwind_GetCFA(frame));
            let is_near = end > place.stack && end - place.stack < NEAR;
            if search.site.is_none() && is_near && word(end - WORD) == caller {
                search.site = Some(Site { place, end, caller });
            }
        }
        GO_ON
    })
    .unwrap_or(STOP)
}

/// `mov $15, %rax; syscall`: to which handlers return, by the kernel's definition (`rt_sigreturn`).
const RETURN_FROM_HANDLER: [u8; 9] = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];

/// Any reason but `_URC_NO_REASON` ends the walk.
const STOP: c_int = 5;
const GO_ON: c_int = 0;

const WORD: usize = size_of::<usize>();

/// Bytes that the frame of a stand-in has at most.
const NEAR: usize = 4096;

#[repr(C)]
struct UnwindContext([u8; 0]);

unsafe extern "C" {
    /// Calls a function for each frame (System V ABI for AMD64, section 6.2, and the C++ ABI of Itanium).
    fn _Unwind_Backtrace(look: extern "C" fn(*mut UnwindContext, *mut c_void) -> c_int, argument: *mut c_void)
    -> c_int;
    /// Where the frame goes on. `is_interrupted` is not 0 if it has called nothing, but was interrupted by a signal.
    fn _Unwind_GetIPInfo(frame: *mut UnwindContext, is_interrupted: *mut c_int) -> usize;
    /// What the stack pointer is in the frame.
    fn _Unwind_GetCFA(frame: *mut UnwindContext) -> usize;
}

thread_local! {
    static KNOWN: Cell<[Site; 4]> = const { Cell::new([NO_SITE; 4]) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[inline(never)]
    fn ask() -> bool {
        // SAFETY: this function stands for a stand-in.
        unsafe { end_of_frame(Place::here()).is_none() }
    }

    /// Calls from a certain depth of the stack.
    #[inline(never)]
    fn ask_below(depth: usize) -> bool {
        let room = black_box([depth; 32]);
        match depth {
            0 => ask(),
            _ => ask_below(depth - 1) & (black_box(room)[0] == depth),
        }
    }

    static ANSWERS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

    extern "C" fn handler(_: c_int) {
        for depth in [0, 1, 7, 0] {
            ANSWERS[usize::from(ask_below(depth))].fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn calls_of_handlers_are_told_apart() {
        for flags in [0, libc::SA_ONSTACK, libc::SA_NODEFER] {
            for depth in [0, 3, 40] {
                assert!(!ask_below(depth) && !ask_below(depth));
            }
            // SAFETY: a handler that does only what handlers may do, on a stack that stays.
            unsafe {
                let room = Box::leak(vec![0_u8; 1 << 20].into_boxed_slice());
                let stack = libc::stack_t {
                    ss_sp: room.as_mut_ptr().cast(),
                    ss_flags: 0,
                    ss_size: room.len(),
                };
                assert_eq!(libc::sigaltstack(&stack, ptr::null_mut()), 0);
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as *const () as usize;
                action.sa_flags = flags;
                assert_eq!(libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut()), 0);
                assert_eq!(libc::raise(libc::SIGUSR1), 0);
            }
            assert_eq!(ANSWERS[0].swap(0, Relaxed), 0, "{flags}: taken for calls outside");
            assert_eq!(ANSWERS[1].swap(0, Relaxed), 4, "{flags}");
            assert!(!ask_below(0));
        }
    }

    #[test]
    fn a_call_that_was_seen_is_known() {
        KNOWN.set([NO_SITE; 4]);
        // One call in the machine code, too.
        for _ in 0..black_box(10) {
            assert!(!ask());
        }
        let known = KNOWN.get().iter().filter(|site| site.end != 0).count();
        assert_eq!(known, 1, "the other nine were known");
    }
}
