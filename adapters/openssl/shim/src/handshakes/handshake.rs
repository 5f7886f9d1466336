//! A handshake: the state of its call, and its socket.

use std::cell::Cell;
use std::ffi::{c_int, c_ulong};
use std::mem::ManuallyDrop;
use std::ptr;

use corosensei::{Coroutine, Yielder};
use widelane_stacks::GuardedStack;

use super::socket::{Inode, inode, is_nonblocking};
use crate::originals::{InfoCallback, Ssl};
use crate::waits::{self, Socket};
use crate::{connections, established, registrations};

/// One of OpenSSL's functions that does a part of a handshake.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// `SSL_do_handshake`.
    Do,
    /// `SSL_accept`, which makes a connection a server's that does not know yet what it is.
    Accept,
}

/// A handshake that has begun.
pub(super) struct Handshake {
    pub(super) ssl: Ssl,
    pub(super) fd: c_int,
    /// Number under which its connection holds it (`SSL_set_ex_data(3)`).
    pub(super) number: usize,
    /// Process in which its call began.
    pub(super) process: Cell<u32>,
    pub(super) coroutine: Cell<Option<Running>>,
    pub(super) yielder: Cell<*const Yielder<bool, ()>>,
    pub(super) state: Cell<State>,
    /// Generation of the socket's descriptor, which tells apart files that had its number.
    pub(super) file: Cell<u32>,
    /// The socket itself.
    pub(super) inode: Cell<Inode>,
    /// True if the last call returned that it wants to read (`SSL_ERROR_WANT_READ`).
    pub(super) wants_read: Cell<bool>,
    /// Number of times that the server has asked since the last wait of this thread, and the number of that wait.
    pub(super) asked: Cell<(u64, u32)>,
    /// True if its connection goes away, or starts anew.
    pub(super) is_cancelled: Cell<bool>,
    /// The connection's own callback, while ours has its place.
    pub(super) info: Cell<Option<Option<InfoCallback>>>,
    /// Result of a call that ended before the server asked again, and OpenSSL's error; 0: none.
    pub(super) returned: Cell<(c_int, c_ulong)>,
    /// Number of times that the server may still be woken for that result.
    pub(super) reports_left: Cell<u32>,
}

impl Handshake {
    pub(super) fn new(ssl: Ssl, fd: c_int, number: usize) -> Self {
        Self {
            ssl,
            fd,
            number,
            process: Cell::new(0),
            coroutine: Cell::new(None),
            yielder: Cell::new(ptr::null()),
            state: Cell::new(State::Idle),
            file: Cell::new(0),
            inode: Cell::new((0, 0)),
            wants_read: Cell::new(false),
            asked: Cell::new((0, 0)),
            is_cancelled: Cell::new(false),
            info: Cell::new(None),
            returned: Cell::new((0, 0)),
            reports_left: Cell::new(0),
        }
    }

    /// Changes the state, and counts the handshakes whose server is to try again.
    pub(super) fn set_state(&self, state: State) {
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
    pub(super) fn is_left(&self) -> bool {
        matches!(self.state.get(), State::Suspended | State::Ready)
    }

    /// Returns whether it began in the process that runs, not in a parent.
    pub(super) fn is_own(&self) -> bool {
        self.process.get() == std::process::id()
    }

    /// Its socket. Another generation of the descriptor need not be another file: the kernel has removed it from an
    /// epoll instance unseen, or a thread has closed descriptors of its own table. Without the new generation no wait
    /// could report the socket any more.
    pub(super) fn socket(&self) -> Socket {
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

    /// Returns whether a wait of the server reports that it can go on, and the server expects that.
    pub(super) fn can_be_reported(&self) -> bool {
        let socket = self.socket();
        (socket.is_in_known_instance() || socket.is_in_last_set()) && is_nonblocking(self.fd)
    }

    /// Returns whether its descriptor is still that of the socket with which its call began: not if the server has
    /// closed it and is about to free the connection. The number may be another connection's then.
    pub(super) fn has_its_socket(&self) -> bool {
        self.socket().is_open()
    }

    /// Returns whether it can go on although the server has not asked.
    pub(super) fn goes_on_unasked(&self) -> bool {
        self.state.get() == State::Ready
            && self.is_own()
            && self.has_its_socket()
            && !connections::is_abandoned(self.ssl)
    }

    /// The server asks again. Whether nothing else will make the handshake go on: no wait reports it, or
    /// the server asks again and again without waiting.
    pub(super) fn asks_in_vain(&self) -> bool {
        let (wait, before) = self.asked.get();
        let times = match wait == waits::number_of_waits() {
            true => before + 1,
            false => 1,
        };
        self.asked.set((waits::number_of_waits(), times));
        times > PATIENCE || !self.can_be_reported()
    }
}

/// Calls without a wait in between after which passes run at once. A server that has two events for a
/// connection calls twice.
const PATIENCE: u32 = 8;

/// Never dropped while OpenSSL's frames are on its stack: they cannot be unwound. A process that
/// ends while handshakes are suspended leaves them as they are.
pub(super) type Running = ManuallyDrop<Coroutine<bool, (), c_int, GuardedStack>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing has been done: the server has not registered the socket yet. Its call
    /// returned that nothing has come, so that it does.
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
    /// Returns whether the server is to try again.
    pub(super) fn waits(self) -> bool {
        !matches!(self, Self::Idle | Self::Running)
    }

    /// Returns whether it can go on without a pass.
    fn moves(self) -> bool {
        matches!(self, Self::Ready | Self::Returned)
    }
}

/// Number of handshakes of this thread that wait or can go on.
pub(crate) fn suspended() -> usize {
    SUSPENDED.get()
}

/// Number of handshakes of this thread that can go on without a pass.
pub(super) fn movable() -> usize {
    MOVABLE.get()
}

thread_local! {
    static MOVABLE: Cell<usize> = const { Cell::new(0) };
    static SUSPENDED: Cell<usize> = const { Cell::new(0) };
}
