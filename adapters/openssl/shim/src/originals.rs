//! The functions that the program would call without this library.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::{mem, ptr};

use libc::{epoll_event, sigset_t};

/// A connection of OpenSSL (`SSL *`).
pub(crate) type Ssl = *mut c_void;

/// Declares functions: each is looked up once, behind this library in the order of symbols.
macro_rules! originals {
    ($($name:ident = $symbol:literal in $library:ident: fn($($argument:ident: $type:ty),*) -> $result:ty
        , otherwise $missing:expr;)*) => {$(
        /// # Safety
        ///
        /// As the function of this name.
        pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
            static FOUND: OnceLock<Option<unsafe extern "C" fn($($type),*) -> $result>> =
                OnceLock::new();
            let found = FOUND.get_or_init(|| {
                let symbol = find($symbol, $library);
                // SAFETY: the type is that of the function's public declaration.
                (!symbol.is_null()).then(|| unsafe {
                    mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(symbol)
                })
            });
            match found {
                // SAFETY: the caller's promise.
                Some(function) => unsafe { function($($argument),*) },
                None => $missing,
            }
        }
    )*};
}

originals! {
    ssl_do_handshake = c"SSL_do_handshake" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise -1;
    ssl_accept = c"SSL_accept" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise -1;
    ssl_read = c"SSL_read" in LIBSSL: fn(ssl: Ssl, to: *mut c_void, len: c_int) -> c_int, otherwise -1;
    ssl_read_ex = c"SSL_read_ex" in LIBSSL:
        fn(ssl: Ssl, to: *mut c_void, len: usize, read: *mut usize) -> c_int, otherwise 0;
    ssl_peek = c"SSL_peek" in LIBSSL: fn(ssl: Ssl, to: *mut c_void, len: c_int) -> c_int, otherwise -1;
    ssl_peek_ex = c"SSL_peek_ex" in LIBSSL:
        fn(ssl: Ssl, to: *mut c_void, len: usize, read: *mut usize) -> c_int, otherwise 0;
    ssl_write = c"SSL_write" in LIBSSL:
        fn(ssl: Ssl, from: *const c_void, len: c_int) -> c_int, otherwise -1;
    ssl_write_ex = c"SSL_write_ex" in LIBSSL:
        fn(ssl: Ssl, from: *const c_void, len: usize, written: *mut usize) -> c_int, otherwise 0;
    ssl_shutdown = c"SSL_shutdown" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise -1;
    ssl_free = c"SSL_free" in LIBSSL: fn(ssl: Ssl) -> (), otherwise ();
    ssl_clear = c"SSL_clear" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise 0;
    ssl_get_error = c"SSL_get_error" in LIBSSL: fn(ssl: Ssl, result: c_int) -> c_int, otherwise 1;
    ssl_is_server = c"SSL_is_server" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise 0;
    ssl_in_init = c"SSL_in_init" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise 0;
    ssl_get_rfd = c"SSL_get_rfd" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise -1;
    ssl_get_wfd = c"SSL_get_wfd" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise -1;
    ssl_set_bio = c"SSL_set_bio" in LIBSSL:
        fn(ssl: Ssl, read: *mut c_void, write: *mut c_void) -> (), otherwise ();
    ssl_set_info_callback = c"SSL_set_info_callback" in LIBSSL:
        fn(ssl: Ssl, callback: *mut c_void) -> (), otherwise ();
    ssl_set_msg_callback = c"SSL_set_msg_callback" in LIBSSL:
        fn(ssl: Ssl, callback: *mut c_void) -> (), otherwise ();
    ssl_ctx_use_private_key = c"SSL_CTX_use_PrivateKey" in LIBSSL:
        fn(context: *mut c_void, key: *mut c_void) -> c_int, otherwise 0;
    evp_md_ctx_new = c"EVP_MD_CTX_new" in LIBCRYPTO: fn() -> *mut c_void, otherwise ptr::null_mut();
    evp_md_ctx_free = c"EVP_MD_CTX_free" in LIBCRYPTO: fn(context: *mut c_void) -> (), otherwise ();
    evp_digest_sign_init = c"EVP_DigestSignInit_ex" in LIBCRYPTO:
        fn(context: *mut c_void, key_context: *mut *mut c_void, digest: *const c_char,
            library: *mut c_void, properties: *const c_char, key: *mut c_void, params: *const c_void)
            -> c_int, otherwise 0;
    err_set_mark = c"ERR_set_mark" in LIBCRYPTO: fn() -> c_int, otherwise 0;
    err_pop_to_mark = c"ERR_pop_to_mark" in LIBCRYPTO: fn() -> c_int, otherwise 0;
    bio_s_null = c"BIO_s_null" in LIBCRYPTO: fn() -> *const c_void, otherwise ptr::null();
    bio_new = c"BIO_new" in LIBCRYPTO:
        fn(method: *const c_void) -> *mut c_void, otherwise ptr::null_mut();
    err_clear_error = c"ERR_clear_error" in LIBCRYPTO: fn() -> (), otherwise ();
    epoll_ctl = c"epoll_ctl" in LIBC:
        fn(epoll: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int, otherwise -1;
    epoll_wait = c"epoll_wait" in LIBC:
        fn(epoll: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int, otherwise -1;
    epoll_pwait = c"epoll_pwait" in LIBC:
        fn(epoll: c_int, events: *mut epoll_event, max: c_int, timeout: c_int, mask: *const sigset_t)
            -> c_int, otherwise -1;
    close = c"close" in LIBC: fn(fd: c_int) -> c_int, otherwise -1;
}

/// The names under which a library may have been loaded, newest first.
const LIBSSL: &[&CStr] = &[c"libssl.so.4", c"libssl.so.3"];
const LIBCRYPTO: &[&CStr] = &[c"libcrypto.so.4", c"libcrypto.so.3"];
const LIBC: &[&CStr] = &[c"libc.so.6"];

/// The symbol behind this library's own. A library that the program loads by `dlopen` is not in that
/// order; it is asked by its name, if it is there.
fn find(symbol: &CStr, libraries: &[&CStr]) -> *mut c_void {
    // SAFETY: strings of C; RTLD_NOLOAD loads nothing.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, symbol.as_ptr());
        if !next.is_null() {
            return next;
        }
        for library in libraries {
            let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if !handle.is_null() {
                return libc::dlsym(handle, symbol.as_ptr());
            }
        }
    }
    ptr::null_mut()
}
