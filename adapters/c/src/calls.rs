//! The functions of the header, with what they promise to C: no panic leaves them, and `errno` is
//! that of the function that ran.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use widelane::{Form, StartError, configure, run_wide};
use widelane_cpu::licence::Class;
use widelane_marks::{Marked, emulated_model, wide};

use crate::environment;

/// Function that is run. One that is written in Rust may panic.
type Function = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;

/// See the header.
///
/// # Safety
///
/// `function` may be called with `argument` on another thread while this one waits. `result` is
/// null or may be written to.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn widelane_run_wide(
    function: Option<Function>,
    argument: *mut c_void,
    result: *mut c_int,
) -> c_int {
    let Some(function) = function else {
        return fail(WIDELANE_INVALID, "widelane_run_wide: the function is NULL");
    };
    let call = Call {
        function,
        argument,
        errno: errno(),
    };
    let run = || {
        environment::configure_once();
        run_wide(|| call.run())
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok((value, errno)) => {
            if !result.is_null() {
                // SAFETY: our caller says that a result that is not null may be written to.
                unsafe { *result = value };
            }
            set_errno(errno);
            WIDELANE_OK
        }
        Err(panic) => {
            // The destructor of its payload could panic too.
            std::mem::forget(panic);
            set_errno(call.errno);
            fail(WIDELANE_PANICKED, "widelane_run_wide: the function panicked")
        }
    }
}

/// See the header.
///
/// # Safety
///
/// `form` is null or a string that ends with a zero byte.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn widelane_configure(form: *const c_char) -> c_int {
    let text = match form.is_null() {
        true => None,
        // SAFETY: our caller says that what is not null is a string.
        false => Some(unsafe { CStr::from_ptr(form) }.to_string_lossy()),
    };
    let errno = errno();
    let status = catch_unwind(|| {
        let config = match text.as_deref().map(str::parse::<Form>) {
            None => environment::config(),
            Some(form) => form.map(Into::into).map_err(|error| error.to_string()),
        };
        let config = match config {
            Ok(config) => config,
            Err(error) => return fail(WIDELANE_INVALID, &format!("widelane_configure: {error}")),
        };
        match configure(config) {
            Ok(()) => WIDELANE_OK,
            Err(error) => {
                let status = match error {
                    StartError::Configured { .. } => WIDELANE_CONFIGURED,
                    StartError::Spawn { .. } | StartError::Unusable { .. } => WIDELANE_UNAVAILABLE,
                    _ => WIDELANE_INVALID,
                };
                fail(status, &format!("widelane_configure: {error}"))
            }
        }
    });
    set_errno(errno);
    status.unwrap_or(WIDELANE_PANICKED)
}

/// See the header.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn widelane_last_error() -> *const c_char {
    LAST_ERROR
        .try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// See the header: not zero once it is known that there is no brake.
#[unsafe(export_name = "widelane_unbraked")]
pub(crate) static UNBRAKED: AtomicU8 = AtomicU8::new(0);

/// See the header.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn widelane_mark_wide_now(level: c_int) {
    let errno = errno();
    if emulated_model().is_none() {
        UNBRAKED.store(1, Relaxed);
    } else {
        let marked = match level {
            ..=0 => None,
            1 => Some(wide(Class::Light512)),
            _ => Some(wide(Class::Heavy512)),
        };
        // A thread that ends has no thread-local variables any more, and its code is not wide.
        let _ = MARKED.try_with(|last| last.replace(marked));
    }
    set_errno(errno);
}

/// A call on its way to another thread.
struct Call {
    function: Function,
    argument: *mut c_void,
    errno: c_int,
}

// SAFETY: the header asks of the function that it may be called with its argument on another
// thread; the caller waits meanwhile, so that no two threads use the argument at once because of
// us.
unsafe impl Sync for Call {}

impl Call {
    /// Runs the function; returns its result, and `errno` after it.
    fn run(&self) -> (c_int, c_int) {
        set_errno(self.errno);
        // SAFETY: the header asks for a function that may be called so.
        let value = unsafe { (self.function)(self.argument) };
        (value, errno())
    }
}

fn fail(status: c_int, message: &str) -> c_int {
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    // A thread that ends has no thread-local variables any more.
    let _ = LAST_ERROR.try_with(|last| last.replace(message));
    status
}

fn errno() -> c_int {
    // SAFETY: it is valid for as long as this thread lives.
    unsafe { *libc::__errno_location() }
}

fn set_errno(errno: c_int) {
    // SAFETY: it is valid for as long as this thread lives, and no other thread uses it.
    unsafe { ptr::write(libc::__errno_location(), errno) }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
    /// Last mark of this thread: the code that it runs.
    static MARKED: RefCell<Option<Marked>> = const { RefCell::new(None) };
}

const WIDELANE_OK: c_int = 0;
const WIDELANE_INVALID: c_int = 1;
const WIDELANE_CONFIGURED: c_int = 2;
const WIDELANE_UNAVAILABLE: c_int = 3;
const WIDELANE_PANICKED: c_int = 4;

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C-unwind" fn panics(_: *mut c_void) -> c_int {
        panic!("of the function")
    }

    #[test]
    fn a_panic_becomes_a_status() {
        let mut result = 5;
        // SAFETY: the function takes any argument, and the result is ours.
        let status = unsafe { widelane_run_wide(Some(panics), ptr::null_mut(), &mut result) };
        assert_eq!((status, result), (WIDELANE_PANICKED, 5));
        // SAFETY: it is a string, and nothing fails on this thread before it is read.
        let message = unsafe { CStr::from_ptr(widelane_last_error()) };
        assert!(message.to_string_lossy().ends_with("panicked"));
    }
}
