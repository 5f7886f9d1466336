//! The library contexts into which OpenSSL has loaded the provider.

use std::ffi::{CStr, c_int, c_void};

use crate::ffi::abi::{Dispatch, Object};
use crate::ffi::libcrypto::LibCrypto;

/// One that OpenSSL has loaded: what its functions get as the provider's context.
pub(crate) struct Instance {
    pub(crate) library: LibraryContext,
}

/// The library context that has loaded a provider; null is OpenSSL's own. It lives longer than the
/// provider and its keys.
#[derive(Clone, Copy)]
pub(crate) struct LibraryContext {
    context: Object,
    /// The provider's table, by which it knows itself.
    own: &'static [Dispatch],
}

// SAFETY: it is only handed to functions of OpenSSL that every thread may call.
unsafe impl Send for LibraryContext {}
// SAFETY: it is only handed to functions of OpenSSL that every thread may call.
unsafe impl Sync for LibraryContext {}

impl LibraryContext {
    /// # Safety
    ///
    /// `context` must be null or a library context that lives longer than all that is made in it.
    pub(crate) unsafe fn new(context: Object, own: &'static [Dispatch]) -> Self {
        Self { context, own }
    }

    /// Returns whether it has providers of others, whose keys may be in a TPM or another token.
    pub(crate) fn has_others(self) -> bool {
        struct Search(&'static [Dispatch], bool);

        unsafe extern "C" fn look(provider: Object, search: *mut c_void) -> c_int {
            let libcrypto = LibCrypto::get();
            // SAFETY: OpenSSL passes a provider, whose name is a string of C, and our own pointer.
            let (name, dispatch, Search(own, found)) = unsafe {
                (
                    CStr::from_ptr((libcrypto.provider_get0_name)(provider)),
                    (libcrypto.provider_get0_dispatch)(provider),
                    &mut *search.cast::<Search>(),
                )
            };
            *found |= dispatch != own.as_ptr() && !OPENSSLS.contains(&name);
            1
        }

        let mut search = Search(self.own, false);
        // SAFETY: a library context that is there, and a function for that pointer.
        unsafe {
            (LibCrypto::get().provider_do_all)(self.context, look, (&raw mut search).cast());
        }
        search.1
    }
}

/// The providers of OpenSSL itself.
const OPENSSLS: [&CStr; 5] = [c"default", c"base", c"legacy", c"fips", c"null"];
