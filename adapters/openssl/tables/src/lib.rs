//! The two tables of functions in which the provider and the preloaded library meet.
//!
//! They are two shared libraries in one process, and neither links to the other: the preloaded library
//! exports a [`Suspension`] under the name [`SYMBOL`], the provider looks for it and passes its
//! [`Passes`]. A table begins with its size and the version of what its functions mean, so that libraries
//! of different builds notice each other and do not meet.
//!
//! It is not an interface for other programs: it may change with every version.
//!
//! All functions concern the calling thread only. A handshake is named by the address of its
//! connection (`SSL *`), which is compared and never followed.

#![forbid(unsafe_code)]

use std::ffi::{CStr, c_int, c_uint, c_void};

/// The name of the preloaded library's table.
pub const SYMBOL: &CStr = c"widelane_suspension_1";

/// Table that the preloaded library offers to the provider.
#[repr(C)]
#[derive(Debug)]
pub struct Suspension {
    /// Bytes of this structure, and above them [`VERSION`].
    pub size: usize,
    /// The handshake on whose stack the caller runs; null on any other stack.
    pub current: extern "C" fn() -> *mut c_void,
    /// Leaves that stack until the handshake is woken: 1, or 0 if it is being ended or is not the one
    /// on whose stack the caller runs.
    pub suspend: extern "C" fn(*mut c_void) -> c_int,
    /// Wakes a suspended handshake; nothing if there is none of this name.
    pub wake: extern "C" fn(*mut c_void),
    /// Takes the table of the provider.
    pub attach: extern "C" fn(&'static Passes),
    /// Puts the library's functions into the imports of the program, for a library that was not
    /// preloaded. Returns how many imports of OpenSSL's functions it has replaced in all.
    pub take_imports: extern "C" fn() -> usize,
}

/// News of a listening socket of which more connections come than the process serves in time.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overload {
    /// The handshake has begun.
    Begins,
    /// The handshake is over.
    Ends,
    /// A client had gone when its connection was accepted.
    Gone,
    /// A client was refused, because it had waited for too long.
    Refused,
    /// A connection was handed to the server.
    Served,
}

/// Table that the provider offers to the preloaded library.
#[repr(C)]
#[derive(Debug)]
pub struct Passes {
    /// Bytes of this structure, and above them [`VERSION`].
    pub size: usize,
    /// Runs at most one pass: with 0 one that is full, otherwise any. Returns how many jobs it
    /// carried.
    pub turn: extern "C" fn(c_int) -> usize,
    /// Jobs that wait.
    pub waiting: extern "C" fn() -> usize,
    /// Jobs that were submitted in all.
    pub submitted: extern "C" fn() -> u64,
    /// With 1, signatures that this thread begins prepare their keys at once; with 0, no longer.
    pub prepare_keys: extern "C" fn(c_int),
    /// Does what the first jobs of this process, and of those that it forks, would wait for.
    pub prepare: extern "C" fn(),
    /// 1 while an operator has switched lanes off: then no handshake would be suspended.
    pub lanes_are_off: extern "C" fn() -> c_int,
    /// 1 if queues of connections are kept short under overload; 0 if the configuration says otherwise.
    pub shortens_queues: extern "C" fn() -> c_int,
    /// Counts news of overload, with the milliseconds for which a connection waited. It waits for nothing.
    pub overload: extern "C" fn(Overload, c_uint),
    /// Notes the way in which a server's handshake waits, or why it is not suspended: the number of a
    /// `widelane_status::Way`.
    pub way: extern "C" fn(c_uint),
}

/// The version of what the functions mean. It changes with every change that leaves a table as large as it was.
pub const VERSION: u32 = 0;

/// Implements what both tables have.
macro_rules! tables {
    ($($table:ident)*) => {$(
        impl $table {
            /// Value of `size` in this build.
            pub const SIZE: usize = size(size_of::<Self>());

            /// Returns whether the table is of this build.
            pub fn fits(&self) -> bool {
                self.size == Self::SIZE
            }
        }
    )*};
}

tables! { Suspension Passes }

const fn size(bytes: usize) -> usize {
    ((VERSION as usize) << 32) | bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_another_version_or_size_does_not_fit() {
        extern "C" fn current() -> *mut c_void {
            std::ptr::null_mut()
        }
        extern "C" fn suspend(_: *mut c_void) -> c_int {
            0
        }
        extern "C" fn wake(_: *mut c_void) {}
        extern "C" fn attach(_: &'static Passes) {}
        extern "C" fn take_imports() -> usize {
            0
        }
        let of = |size| Suspension {
            size,
            current,
            suspend,
            wake,
            attach,
            take_imports,
        };
        assert!(of(Suspension::SIZE).fits());
        let next_version = ((VERSION as usize + 1) << 32) | size_of::<Suspension>();
        assert!(!of(next_version).fits() && !of(Suspension::SIZE + 8).fits());
    }
}
