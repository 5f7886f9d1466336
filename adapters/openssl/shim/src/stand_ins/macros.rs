//! What every function that stands in for another one does.

/// Functions that OpenSSL and the C library export, each with its original. `instead` may say what the
/// caller gets without the original, `apart` and `ended` of which connection the call is, `ended` where nothing is to
/// be done for one whose handshake has ended, and `then` takes notice of the result. `waits` is as `instead`, outside
/// of the boundary: a thread may be cancelled there. Where `plain` is true, and for connections that `established` has,
/// the call is the original's from the beginning: this costs a few instructions and no frame.
macro_rules! stand_ins {
    ($(
        $(#[$meta:meta])*
        $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $original:ident
        $(, plain $plain:block)?
        $(, ended $ended:ident)?
        $(, apart $ssl:ident)?
        $(, instead $instead:block)?
        $(, then |$done:ident| $then:block)?
        $(, waits $waits:block)?
        ;
    )*) => {
        /// The address of the function that stands in for the one with this name.
        pub(super) fn stand_in(name: &std::ffi::CStr) -> Option<*const std::ffi::c_void> {
            match name.to_str().ok()? {
                $(stringify!($name) => Some($name as *const std::ffi::c_void),)*
                _ => None,
            }
        }

        $(
        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// As the original.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, unreachable_pub)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) $(-> $result)? {
            use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
            use $crate::handshakes::Needs;

            const HAS_PLAIN_CALLS: bool = false
                $(|| $crate::stand_ins::macros::is_given(stringify!($plain)))?
                $(|| $crate::stand_ins::macros::is_given(stringify!($ended)))?;
            /// The original, once a whole call has found it; until then that call.
            static ORIGINAL: AtomicPtr<()> = AtomicPtr::new(match HAS_PLAIN_CALLS {
                true => whole as *mut (),
                false => std::ptr::null_mut(),
            });
            if false $(|| $plain)? $(|| $crate::established::is_alone($ended))? {
                let original = ORIGINAL.load(Relaxed);
                // SAFETY: the type is that of both; the caller's promise.
                return unsafe {
                    std::mem::transmute::<*mut (), unsafe extern "C-unwind" fn($($type),*) $(-> $result)?>(original)(
                        $($argument),*
                    )
                };
            }
            #[inline(never)]
            unsafe extern "C-unwind" fn whole($($argument: $type),*) $(-> $result)? {
                let _needs = Needs::Everything;
                $(
                let _needs = $crate::boundary::guarded(|| $crate::handshakes::needs($ended)).unwrap_or(Needs::Nothing);
                )?
                $(
                if _needs == Needs::Everything
                    && let Some(answer) = $crate::boundary::guarded(|| $instead).flatten()
                {
                    return answer;
                }
                )?
                $(
                if let Some(answer) = $waits {
                    return answer;
                }
                )?
                $(let _apart = (_needs != Needs::Nothing).then(|| $crate::handshakes::apart($ssl));)?
                if HAS_PLAIN_CALLS
                    && let Some(found) = $crate::originals::found::$original.get()
                    // A store would have other CPUs fetch it anew.
                    && ORIGINAL.load(Relaxed) != found.as_ptr().cast()
                {
                    ORIGINAL.store(found.as_ptr().cast(), Relaxed);
                }
                // SAFETY: the caller's promise.
                let result = unsafe { $crate::originals::$original($($argument),*) };
                $(
                $crate::boundary::guarded(|| {
                    let $done = result;
                    $then
                });
                )?
                result
            }
            // SAFETY: the caller's promise.
            unsafe { whole($($argument),*) }
        }
        )*
    };
}

pub(super) use stand_ins;

/// Makes a part of a stand-in's definition count.
pub(super) const fn is_given(_: &str) -> bool {
    true
}
