//! What a call that waits does first: passes, looks at the sockets, and handshakes that can go on.

use std::cell::RefCell;
use std::ffi::c_int;

use crate::boundary::guarded;
use crate::events::{Loop, Next, Seen};
use crate::signals::{self, Place};
use crate::wait_calls::WaitCall;
use crate::{handshakes, provider, waits};

/// What a call does before it waits as the server wants: runs passes, looks at the sockets, and reports the
/// handshakes that can go on (`Some`). A signal handler's call may have interrupted anything, and is the original's.
///
/// # Safety
///
/// Stand-ins alone may call this.
#[inline(always)]
pub(crate) unsafe fn wait<W: WaitCall>(
    call: impl Fn() -> Option<W>,
    can_last: bool,
    look: impl Fn() -> c_int,
) -> Option<c_int> {
    let passes = provider::passes()?;
    let are_left = handshakes::are_left();
    let frame = match are_left {
        // SAFETY: this is inlined into the whole call of a stand-in, which has not returned. Its caller is the program,
        // because the stand-in jumps there in an optimized build. In another one it is the stand-in, and a call that
        // was seen is known by its depth alone.
        true => unsafe { signals::end_of_frame(Place::here()) }?,
        false => 0,
    };
    if can_last {
        guarded(|| call().inspect(|call| call.remember(handshakes::are_under_way)));
    }
    if !are_left {
        return None;
    }
    waits::count_wait();
    guarded(handshakes::free_abandoned);
    let may_go_on = can_last && !handshakes::is_in_a_call(frame);
    while handshakes::suspended() > 0 {
        let next = guarded(|| {
            let call = call();
            let seen = Seen {
                is_ready: call.as_ref().is_some_and(handshakes::are_ready),
                waiting: (passes.waiting)(),
                submitted: (passes.submitted)(),
            };
            let next = LOOP.try_with(|state| state.borrow_mut().next(seen));
            match next.unwrap_or(Next::Wait) {
                Next::Deliver => Turn::Answer(call.map_or(0, handshakes::deliver)),
                Next::Look => Turn::Look,
                Next::Run if handshakes::run_pass(1) > 0 => Turn::Answer(0),
                Next::Run | Next::Wait if may_go_on && handshakes::go_on_unasked() => Turn::Answer(0),
                Next::Run | Next::Wait => Turn::Wait,
            }
        });
        // Outside of what is guarded: a thread may be cancelled here.
        let found = match next {
            Some(Turn::Answer(found)) => found,
            Some(Turn::Look) => look(),
            Some(Turn::Wait) | None => return None,
        };
        if found != 0 {
            return Some(found);
        }
    }
    None
}

/// One turn of a wait.
enum Turn {
    /// So many events are there; with none it goes on.
    Answer(c_int),
    Look,
    Wait,
}

thread_local! {
    static LOOP: RefCell<Loop> = const { RefCell::new(Loop::new()) };
}
