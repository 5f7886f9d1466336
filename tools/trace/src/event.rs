//! Events that the programs in the kernel report.

use std::sync::Arc;

use widelane_probes::operations;

use crate::functions::{Function, Role};
use crate::marks::{Argument, MOST_ARGUMENTS, Mark};

/// Something that happened in a traced process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A call of a traced function has returned. Calls arrive in the order of their returns, so that
    /// what a function called comes before it.
    Call(Call),
    /// A traced process read or wrote the beginning of a TLS handshake message or alert.
    Bytes(Bytes),
    /// A traced process has reached a static probe.
    Reached(Reached),
    /// A traced process has ended.
    Exit {
        /// Number of the process.
        pid: u32,
    },
}

/// A call of a traced function, from entry to return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function.
    pub function: Arc<Function>,
    /// Process and thread.
    pub pid: u32,
    /// The thread that returned from it.
    pub tid: u32,
    /// The name of the thread, as the kernel has it; it may contain anything.
    pub comm: [u8; 16],
    /// Stack of the call.
    pub stack: Stack,
    /// Time of the entry: nanoseconds of the monotonic clock.
    pub start: u64,
    /// Nanoseconds from entry to return.
    pub wall: u64,
    /// Nanoseconds of CPU time of the thread meanwhile, if the kernel tells. Only for calls that
    /// stay on their thread.
    pub cpu: Option<u64>,
    /// Return value: an `int` where [`Function::returns`] says so, else the register. For Go's functions the value that
    /// carries the error.
    pub result: i64,
    /// The argument that names the connection or the context: the one that the row `object` of the
    /// table names, the first if it names none.
    pub object: u64,
    /// The size that the row `size` of the table says where to find, at the return.
    pub size: Option<u64>,
    /// State of a call that reads or writes data and was entered during the handshake: true if the handshake was still
    /// not done at the return.
    pub still: Option<bool>,
    /// Bytes that the function carried, cut, for `trace plaintext`.
    pub data: Vec<u8>,
}

impl Call {
    /// Returns whether the call goes on with a handshake.
    pub(crate) fn goes_on(&self) -> bool {
        self.function.role == Role::Handshake || self.still.is_some()
    }
}

/// A static probe was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Row of the static probe in the table.
    pub mark: Arc<Mark>,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The name of the thread, as the kernel has it; it may contain anything.
    pub comm: [u8; 16],
    /// Nanoseconds of the monotonic clock.
    pub time: u64,
    /// Values of the arguments that are known, in their order.
    pub arguments: [Option<u64>; MOST_ARGUMENTS],
}

impl Reached {
    /// The number of the operation; of what does not fit, that of others.
    pub(crate) fn operation(&self) -> u16 {
        let number = self.get(Argument::Operation);
        let number = number.and_then(|number| u16::try_from(number).ok());
        number.unwrap_or(operations::OTHER)
    }

    /// An argument, if the probe has it and its value is known.
    pub fn get(&self, argument: Argument) -> Option<u64> {
        let mut all = self.mark.arguments.iter();
        let at = all.position(|known| *known == argument)?;
        self.arguments.get(at).copied().flatten()
    }
}

/// The place of a call, by which calls are nested: one call is inside another if both are on the same
/// stack, the inner deeper (at a smaller address), and the time of the inner is within the outer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stack {
    /// The stack pointer at the entry. Coroutines have stacks of their own, which may be close to each
    /// other: what is more than 256 KiB away, or 32 KiB on a thread that has several, is on another.
    Pointer(u64),
    /// The goroutine, by the address of its descriptor. Its stack may move.
    Goroutine(u64),
}

/// Bytes that a process has read or written, the first of a call of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Nanoseconds of the monotonic clock.
    pub time: u64,
    /// The stack from which the system was called.
    pub stack: Stack,
    /// The file descriptor.
    pub descriptor: u32,
    /// Direction of the bytes.
    pub direction: Direction,
    /// Number of bytes that the call carried.
    pub length: u64,
    /// The first of them, at most 4,096: a TLS record, or a record's content if its header was read
    /// apart.
    pub bytes: Vec<u8>,
}

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The process has read them.
    Read,
    /// The process has written them.
    Written,
}
