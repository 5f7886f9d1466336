//! The C library's `errno` of this thread.

use std::ffi::c_int;

pub(crate) fn errno() -> c_int {
    // SAFETY: this thread's own place.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: this thread's own place.
    unsafe { *libc::__errno_location() = value };
}
