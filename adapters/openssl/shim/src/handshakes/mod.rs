//! The handshakes of each thread: on which stack they run, which are suspended, which can go on.
//!
//! The unsafe code follows raw pointers to a `Handshake` and to the `Yielder` on its stack. What
//! makes that sound:
//!
//! 1. Handshakes are of one thread: their table (`store`) is a thread-local, and the provider calls back on the
//!    thread that runs the handshake.
//! 2. A handshake is boxed and leaves the table only in `forget`, which is called when nothing runs on
//!    its stack. At the end of a thread it leaves the table with what `Table` says. A provider
//!    that waits on a handshake's stack therefore finds it in place. A server that moves the
//!    connection to another thread meanwhile is to try again there, and cannot free it:
//!    `connections`.
//! 3. The pointer to the yielder is set when the coroutine starts, and used only by code that runs on
//!    this coroutine's stack, above the yielder.
//! 4. A handshake has a number, which is also a value of its connection in OpenSSL (`freed`). A connection
//!    that OpenSSL has freed without asking us is not touched again: its call stays where it was left.
//!
//! Before a thread sleeps, each of its handshakes goes on that the server does not know to ask for (`go_on_unasked`): a
//! wait has reported the handshake and the server did not ask, it waits elsewhere, or it has given the connection to
//! another thread. If the call ends then, the server's next call gets what it has returned. Three kinds stay suspended:
//! those of a thread that sleeps in a callback, those whose socket is closed, and those that began in a parent process.
//!
//! From the bottom up: `socket` and `handshake` have the state of one handshake, `stacks` runs and suspends it, `store`
//! finds it by its connection. `callback`, `retries` and `delivery` are what the server learns of it. `endings`,
//! `unasked` and `drive` are the steps that it takes, `calls` what other calls need because of it.
//!
//! A server may call at the end of its threads, when thread-locals are gone: then nothing is known here,
//! and the originals do what is left.

#[allow(unsafe_code)]
mod callback;
#[allow(unsafe_code)]
mod calls;
mod delivery;
#[allow(unsafe_code)]
mod drive;
#[allow(unsafe_code)]
mod endings;
mod handshake;
#[allow(unsafe_code)]
mod retries;
#[allow(unsafe_code)]
mod socket;
#[allow(unsafe_code)]
mod stacks;
#[allow(unsafe_code)]
mod store;
#[allow(unsafe_code)]
mod unasked;

pub(crate) use callback::{info_callback, keep_info_callback};
pub(crate) use calls::{Needs, apart, are_left, is_in_a_call, needs};
pub(crate) use delivery::{are_ready, deliver};
pub(crate) use drive::drive;
pub(crate) use endings::{end, free_abandoned, has_ended};
pub(crate) use handshake::{Step, suspended};
pub(crate) use retries::{clear_want, is_anothers, is_new, wants_read};
pub(crate) use stacks::{can_switch_stacks, current, run_pass, suspend};
pub(crate) use store::{are_under_way, forked, wake};
pub(crate) use unasked::{go_on_unasked, settle, settle_before_move};
