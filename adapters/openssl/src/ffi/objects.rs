//! Objects of ours behind pointers that OpenSSL keeps: contexts, which one caller uses at a time, and
//! keys, which are counted.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::{ptr, slice};

use crate::ffi::abi::Object;
use crate::ffi::libcrypto::{INTERNAL_ERROR, LibCrypto};

/// Runs the body of a function that OpenSSL calls; a panic becomes `otherwise` and an error in
/// OpenSSL's queue, because it must not leave Rust.
pub(crate) fn guarded<R>(otherwise: R, body: impl FnOnce() -> R) -> R {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(_) => {
            LibCrypto::get().raise(
                INTERNAL_ERROR,
                "widelane met a condition that it does not expect; please report it",
            );
            otherwise
        }
    }
}

/// Runs `body` on an object, inside the boundary for panics: 0 if there is none.
pub(crate) fn on<T>(object: Option<T>, body: impl FnOnce(T) -> c_int) -> c_int {
    guarded(0, || object.map_or(0, body))
}

/// Hands a context to OpenSSL; null if there is none.
pub(crate) fn give<T>(context: Option<T>) -> Object {
    context.map_or(ptr::null_mut(), |context| Box::into_raw(Box::new(context)).cast())
}

/// The context behind OpenSSL's pointer.
///
/// # Safety
///
/// `object` must be null, or from [`give`] with the same type, not freed, and used by no other call
/// now.
pub(crate) unsafe fn borrow<'a, T>(object: Object) -> Option<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { object.cast::<T>().as_mut() }
}

/// Borrows an object that several calls use at the same time.
///
/// # Safety
///
/// `object` must be null, or from [`give`] with the same type, and neither freed nor borrowed.
pub(crate) unsafe fn shared<'a, T>(object: Object) -> Option<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { object.cast::<T>().cast_const().as_ref() }
}

/// Drops a context: what tables of functions call `freectx` or `cleanup`.
///
/// # Safety
///
/// As for [`borrow`]; the pointer is not used afterwards.
pub(crate) unsafe extern "C" fn free<T>(object: Object) {
    if !object.is_null() {
        // SAFETY: the caller's promise.
        let context = unsafe { Box::from_raw(object.cast::<T>()) };
        guarded((), || drop(context));
    }
}

/// Bytes of a caller's; none if the pointer is null, which it may be for an empty text.
///
/// # Safety
///
/// `start` must be null, or have `len` bytes that nothing changes during the call.
pub(crate) unsafe fn bytes<'a>(start: *const u8, len: usize) -> &'a [u8] {
    match start.is_null() {
        true => &[],
        // SAFETY: the caller's promise.
        false => unsafe { slice::from_raw_parts(start, len) },
    }
}

/// Hands a reference to a key to OpenSSL; null if there is none.
pub(crate) fn give_counted<T>(key: Option<T>) -> Object {
    key.map_or(ptr::null_mut(), |key| Arc::into_raw(Arc::new(key)).cast_mut().cast())
}

/// Another reference to the key behind OpenSSL's pointer.
///
/// # Safety
///
/// `object` must be null, or from [`give_counted`] with the same type and not freed.
pub(crate) unsafe fn counted<T>(object: Object) -> Option<Arc<T>> {
    let key = object.cast::<T>().cast_const();
    if key.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe {
        Arc::increment_strong_count(key);
        Some(Arc::from_raw(key))
    }
}

/// Drops OpenSSL's reference to a key: what tables of functions call `free`.
///
/// # Safety
///
/// As for [`counted`]; the pointer is not used afterwards.
pub(crate) unsafe extern "C" fn free_counted<T>(object: Object) {
    if !object.is_null() {
        // SAFETY: the caller's promise.
        let key = unsafe { Arc::from_raw(object.cast::<T>().cast_const()) };
        guarded((), || drop(key));
    }
}
