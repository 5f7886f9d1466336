//! The functions of libcrypto that the provider calls, found at run time in the library that has
//! loaded it. So one provider serves every version of OpenSSL, and links to none.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::{mem, ptr};

use crate::ffi::abi::{self, Algorithm, Dispatch, Object};

/// Declares the functions: a field for each, and how all are found.
macro_rules! libcrypto {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of the libcrypto of this process.
        pub(crate) struct LibCrypto {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// `ERR_set_error`, which takes as many arguments as its format says.
            set_error: unsafe extern "C" fn(c_int, c_int, *const c_char, ...),
        }

        impl LibCrypto {
            /// Finds all functions in the library that holds the code at `address`.
            fn find(address: *const ()) -> Result<Self, &'static CStr> {
                let library = Library::of(address);
                Ok(Self {
                    // SAFETY: the types are those of OpenSSL's public headers, and its functions
                    // keep their types while the library keeps its name.
                    $($field: unsafe {
                        mem::transmute::<*const (), unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                            library.symbol($symbol)?
                        )
                    },)*
                    // SAFETY: `ERR_set_error` keeps its type while the library keeps its name.
                    set_error: unsafe {
                        mem::transmute::<*const (), unsafe extern "C" fn(c_int, c_int, *const c_char, ...)>(
                            library.symbol(c"ERR_set_error")?
                        )
                    },
                })
            }
        }
    };
}

libcrypto! {
    lib_ctx_new = c"OSSL_LIB_CTX_new": fn() -> Object;
    provider_load = c"OSSL_PROVIDER_load": fn(Object, *const c_char) -> Object;
    provider_query_operation = c"OSSL_PROVIDER_query_operation":
        fn(Object, c_int, *mut c_int) -> *const Algorithm;
    provider_get0_provider_ctx = c"OSSL_PROVIDER_get0_provider_ctx": fn(Object) -> Object;
    provider_get0_name = c"OSSL_PROVIDER_get0_name": fn(Object) -> *const c_char;
    provider_get0_dispatch = c"OSSL_PROVIDER_get0_dispatch": fn(Object) -> *const Dispatch;
    provider_do_all = c"OSSL_PROVIDER_do_all":
        fn(Object, unsafe extern "C" fn(Object, *mut c_void) -> c_int, *mut c_void) -> c_int;
    provider_get_capabilities = c"OSSL_PROVIDER_get_capabilities":
        fn(Object, *const c_char, Option<abi::Callback>, *mut c_void) -> c_int;
    version = c"OpenSSL_version": fn(c_int) -> *const c_char;
    rand_priv_bytes = c"RAND_priv_bytes": fn(*mut u8, c_int) -> c_int;
    error_new = c"ERR_new": fn();
    error_set_debug = c"ERR_set_debug": fn(*const c_char, c_int, *const c_char);
    async_get_current_job = c"ASYNC_get_current_job": fn() -> Object;
    async_get_wait_ctx = c"ASYNC_get_wait_ctx": fn(Object) -> Object;
    async_pause_job = c"ASYNC_pause_job": fn() -> c_int;
    wait_ctx_get_fd = c"ASYNC_WAIT_CTX_get_fd":
        fn(Object, *const c_void, *mut c_int, *mut *mut c_void) -> c_int;
    wait_ctx_set_wait_fd = c"ASYNC_WAIT_CTX_set_wait_fd":
        fn(Object, *const c_void, c_int, *mut c_void, Option<WaitCleanup>) -> c_int;
    wait_ctx_get_callback = c"ASYNC_WAIT_CTX_get_callback":
        fn(Object, *mut Option<WaitCallback>, *mut *mut c_void) -> c_int;
    wait_ctx_set_status = c"ASYNC_WAIT_CTX_set_status": fn(Object, c_int) -> c_int;
}

/// Told when a wait context drops a descriptor: context, key, descriptor, the caller's pointer.
pub(crate) type WaitCleanup = unsafe extern "C" fn(Object, *const c_void, c_int, *mut c_void);

/// Callback of an application for a paused job that can go on.
pub(crate) type WaitCallback = unsafe extern "C" fn(*mut c_void) -> c_int;

/// A function that the application wants called, and its argument: a pointer of the application's.
#[derive(Clone, Copy)]
pub(crate) struct Callback(WaitCallback, usize);

impl Callback {
    pub(crate) fn new(function: WaitCallback, argument: *mut c_void) -> Self {
        Self(function, argument.expose_provenance())
    }

    /// Calls it. Nothing is locked, and the wait context is not gone: who calls it has looked.
    pub(crate) fn run(self) {
        let Self(function, argument) = self;
        // SAFETY: the application gave both for this call, which may come from any code, and its wait
        // context was not gone a moment ago; an application that frees one does not do so while it
        // lets the job's thread go on.
        unsafe { function(ptr::with_exposed_provenance_mut(argument)) };
    }
}

/// `ASYNC_STATUS_OK`.
pub(crate) const STATUS_OK: c_int = 2;

impl LibCrypto {
    /// Looks the functions up at the first call, in the library that holds the code at `address`.
    ///
    /// # Errors
    ///
    /// The name of the function that is missing.
    pub(crate) fn start(address: *const ()) -> Result<&'static Self, &'static CStr> {
        if let Some(found) = LIBCRYPTO.get() {
            return Ok(found);
        }
        let found = Self::find(address)?;
        Ok(LIBCRYPTO.get_or_init(|| found))
    }

    /// The functions, once a provider has started in this process.
    pub(crate) fn started() -> Option<&'static Self> {
        LIBCRYPTO.get()
    }

    /// The functions, for code that only a started provider calls.
    pub(crate) fn get() -> &'static Self {
        Self::started().expect("the provider has started")
    }

    /// OpenSSL's version, such as `3.0.22`.
    pub(crate) fn version_text(&self) -> String {
        // SAFETY: the function returns a constant string for every number; 6 is
        // OPENSSL_VERSION_STRING.
        let text = unsafe { CStr::from_ptr((self.version)(6)) };
        text.to_string_lossy().into_owned()
    }

    /// All that its costs depend on: the same with the name of the library and the day, by which builds
    /// differ, and the instructions that it uses, some of which `OPENSSL_ia32cap` may have taken from it.
    pub(crate) fn full_version(&self) -> String {
        let texts = [0, 9].map(|number| {
            // SAFETY: the function returns a constant string for every number; these are OPENSSL_VERSION and
            // OPENSSL_CPU_INFO.
            let text = unsafe { CStr::from_ptr((self.version)(number)) };
            text.to_string_lossy()
        });
        texts.join(", ")
    }

    /// Fills `bytes` from OpenSSL's generator for secrets.
    pub(crate) fn random(&self, bytes: &mut [u8]) -> bool {
        // SAFETY: the function writes as many bytes as the slice has.
        unsafe { (self.rand_priv_bytes)(bytes.as_mut_ptr(), bytes.len() as c_int) == 1 }
    }

    /// Puts an error into OpenSSL's queue of this thread.
    pub(crate) fn raise(&self, reason: c_int, message: &str) {
        let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
        // SAFETY: strings of C, of which OpenSSL makes copies; the format takes one string.
        unsafe {
            (self.error_new)();
            (self.error_set_debug)(c"widelane".as_ptr(), 0, ptr::null());
            (self.set_error)(PROVIDER_LIBRARY, reason, c"%s".as_ptr(), text.as_ptr());
        }
    }
}

/// `ERR_LIB_PROV`: errors of providers.
const PROVIDER_LIBRARY: c_int = 57;
/// `ERR_R_INTERNAL_ERROR`, the common reason of libraries that have no better one.
pub(crate) const INTERNAL_ERROR: c_int = 259 | (3 << 18);

static LIBCRYPTO: OnceLock<LibCrypto> = OnceLock::new();

/// A library of this process.
struct Library(*mut c_void);

impl Library {
    /// The library that holds the code at this address; if that is not known, the
    /// global scope of the program (`RTLD_DEFAULT`).
    fn of(address: *const ()) -> Self {
        let mut info: libc::Dl_info = libc::Dl_info {
            dli_fname: ptr::null(),
            dli_fbase: ptr::null_mut(),
            dli_sname: ptr::null(),
            dli_saddr: ptr::null_mut(),
        };
        // SAFETY: dladdr only looks at the address; the path that it gives lives as long as the
        // library, which the caller of the provider keeps. RTLD_NOLOAD loads nothing.
        let handle = unsafe {
            match libc::dladdr(address.cast(), &mut info) != 0 && !info.dli_fname.is_null() {
                true => libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD),
                false => ptr::null_mut(),
            }
        };
        // Where OpenSSL is linked into the program, that path is not a library. RTLD_DEFAULT is
        // null.
        Self(handle)
    }

    fn symbol(&self, name: &'static CStr) -> Result<*const (), &'static CStr> {
        // SAFETY: a handle of dlopen, or RTLD_DEFAULT, and a string of C.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        match found.is_null() {
            true => Err(name),
            false => Ok(found.cast_const().cast()),
        }
    }
}
