//! The functions that the program would call without this library.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::{hint, mem, ptr};

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, sockaddr, socklen_t, timespec, timeval};

use crate::boundary::guarded;
use crate::errno::set_errno;

/// A connection of OpenSSL (`SSL *`).
pub(crate) type Ssl = *mut c_void;

/// Callback of OpenSSL while a handshake goes on (`SSL_set_info_callback(3)`).
pub(crate) type InfoCallback = unsafe extern "C-unwind" fn(Ssl, c_int, c_int);

/// Callback of OpenSSL for a value of ours when it frees a connection (`CRYPTO_get_ex_new_index(3)`).
pub(crate) type FreeCallback = extern "C" fn(Ssl, *mut c_void, *mut c_void, c_int, c_long, *mut c_void);

/// Returns whether the program, or a library whose symbols are everyone's, has a symbol. Waits for a library that
/// another thread loads.
pub(crate) fn is_there(symbol: &CStr) -> bool {
    // SAFETY: a string of C.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) };
    // `dlsym` knows its caller by the address to which it returns. As the last call of a constructor, optimised to a
    // jump, it would return to the dynamic linker, whose list of libraries is null, and crash every program.
    !hint::black_box(found).is_null()
}

/// Passes the name of each file that is loaded into the process, and how many were loaded so far. Waits for no
/// constructor of a library, but `look` must load nothing.
pub(crate) fn each_file<F: FnMut(u64, &CStr) -> ControlFlow<()>>(mut look: F) {
    unsafe extern "C" fn one<F: FnMut(u64, &CStr) -> ControlFlow<()>>(
        file: *mut libc::dl_phdr_info,
        size: usize,
        look: *mut c_void,
    ) -> c_int {
        guarded(|| {
            if size < size_of::<libc::dl_phdr_info>() {
                return ControlFlow::Break(());
            }
            // SAFETY: the C library passes a file with its name, of at least the size above, and what `each_file` has
            // given it, which nothing else uses meanwhile.
            unsafe {
                let (file, look) = (&*file, &mut *look.cast::<F>());
                let name = (!file.dlpi_name.is_null()).then(|| CStr::from_ptr(file.dlpi_name));
                look(file.dlpi_adds, name.unwrap_or_default())
            }
        })
        .is_none_or(|next| next.is_break())
        .into()
    }
    // SAFETY: `one` gets what it expects, while this function runs.
    unsafe { libc::dl_iterate_phdr(Some(one::<F>), (&raw mut look).cast()) };
}

/// Declares functions. Those of the C library are looked up while this library is loaded, because later they are called
/// where nothing may be looked up; OpenSSL's at their first calls, because a program may load OpenSSL at any time. They
/// are found behind this library in the order of symbols. Nothing is locked meanwhile, because a fork could leave that
/// locked. A thread may be cancelled in a function, so that they unwind.
macro_rules! originals {
    ($($name:ident = $symbol:literal in $library:ident: fn($($argument:ident: $type:ty),*) -> $result:ty
        , otherwise $missing:expr;)*) => {
        $(
        /// # Safety
        ///
        /// As the function of this name.
        pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
            match found::$name.get() {
                None => $missing,
                // SAFETY: the type is that of the function's public declaration, and the caller promises
                // the rest.
                Some(found) => unsafe {
                    mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($type),*) -> $result>(
                        found.as_ptr(),
                    )($($argument),*)
                },
            }
        }
        )*

        pub(crate) mod found {
            #![allow(non_upper_case_globals)]
            use super::{Found, Library};
            $(pub(crate) static $name: Found = Found::new($symbol, Library::$library);)*
        }

        static ALL: &[&Found] = &[$(&found::$name),*];
    };
}

/// Looks up the functions of the C library.
pub(crate) fn look_up() {
    for function in ALL.iter().filter(|function| function.is_of_the_c_library()) {
        function.get();
    }
}

/// A function of a library.
pub(crate) struct Found {
    symbol: &'static CStr,
    library: Library,
    /// Its address, null before it was looked up, or [`MISSING`].
    address: AtomicPtr<c_void>,
}

/// The C library that is there does not have the function, and never will.
const MISSING: *mut c_void = ptr::dangling_mut::<u8>().cast();

impl Found {
    const fn new(symbol: &'static CStr, library: Library) -> Self {
        Self {
            symbol,
            library,
            address: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn is_of_the_c_library(&self) -> bool {
        self.library == Library::LIBC
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<NonNull<c_void>> {
        let mut address = self.address.load(Relaxed);
        if address.is_null() {
            address = self.find();
        }
        NonNull::new(address).filter(|found| found.as_ptr() != MISSING)
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        let mut address = find(self.symbol, self.library.names());
        if address.is_null() && self.is_of_the_c_library() {
            address = MISSING;
        }
        self.address.store(address, Relaxed);
        address
    }
}

/// Whether the process may have more than one thread. The C library knows it from version 2.32 on.
pub(crate) fn may_have_threads() -> bool {
    static SINGLE: Found = Found::new(c"__libc_single_threaded", Library::LIBC);
    // SAFETY: the C library's public variable, a byte that changes at most when threads begin.
    SINGLE
        .get()
        .is_none_or(|single| unsafe { single.cast::<c_char>().read_volatile() } == 0)
}

originals! {
    ssl_new = c"SSL_new" in LIBSSL: fn(context: *mut c_void) -> Ssl, otherwise ptr::null_mut();
    ssl_do_handshake = c"SSL_do_handshake" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise -1;
    ssl_accept = c"SSL_accept" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise -1;
    ssl_connect = c"SSL_connect" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise -1;
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
    ssl_get_shutdown = c"SSL_get_shutdown" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise 0;
    ssl_set_shutdown = c"SSL_set_shutdown" in LIBSSL: fn(ssl: Ssl, mode: c_int) -> (), otherwise ();
    ssl_free = c"SSL_free" in LIBSSL: fn(ssl: Ssl) -> (), otherwise ();
    ssl_up_ref = c"SSL_up_ref" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise 0;
    ssl_dup = c"SSL_dup" in LIBSSL: fn(ssl: Ssl) -> Ssl, otherwise ptr::null_mut();
    ssl_clear = c"SSL_clear" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise 0;
    ssl_stateless = c"SSL_stateless" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise -1;
    ssl_get_error = c"SSL_get_error" in LIBSSL: fn(ssl: Ssl, result: c_int) -> c_int, otherwise 1;
    ssl_want = c"SSL_want" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise 1;
    ssl_is_server = c"SSL_is_server" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise 0;
    ssl_is_dtls = c"SSL_is_dtls" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise 0;
    ssl_in_init = c"SSL_in_init" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise 0;
    ssl_in_before = c"SSL_in_before" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise 0;
    ssl_get_peer_finished = c"SSL_get_peer_finished" in LIBSSL:
        fn(ssl: Ssl, to: *mut c_void, len: usize) -> usize, otherwise 0;
    ssl_ctrl = c"SSL_ctrl" in LIBSSL:
        fn(ssl: Ssl, command: c_int, number: c_long, value: *mut c_void) -> c_long, otherwise 0;
    ssl_get_rfd = c"SSL_get_rfd" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise -1;
    ssl_get_wfd = c"SSL_get_wfd" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise -1;
    ssl_get_rbio = c"SSL_get_rbio" in LIBSSL: fn(ssl: Ssl) -> *mut c_void, otherwise ptr::null_mut();
    ssl_get_wbio = c"SSL_get_wbio" in LIBSSL: fn(ssl: Ssl) -> *mut c_void, otherwise ptr::null_mut();
    ssl_set_fd = c"SSL_set_fd" in LIBSSL: fn(ssl: Ssl, fd: c_int) -> c_int, otherwise 0;
    ssl_set_rfd = c"SSL_set_rfd" in LIBSSL: fn(ssl: Ssl, fd: c_int) -> c_int, otherwise 0;
    ssl_set_wfd = c"SSL_set_wfd" in LIBSSL: fn(ssl: Ssl, fd: c_int) -> c_int, otherwise 0;
    ssl_set_bio = c"SSL_set_bio" in LIBSSL:
        fn(ssl: Ssl, read: *mut c_void, write: *mut c_void) -> (), otherwise ();
    ssl_set0_rbio = c"SSL_set0_rbio" in LIBSSL: fn(ssl: Ssl, bio: *mut c_void) -> (), otherwise ();
    ssl_set0_wbio = c"SSL_set0_wbio" in LIBSSL: fn(ssl: Ssl, bio: *mut c_void) -> (), otherwise ();
    ssl_set_accept_state = c"SSL_set_accept_state" in LIBSSL: fn(ssl: Ssl) -> (), otherwise ();
    ssl_set_connect_state = c"SSL_set_connect_state" in LIBSSL: fn(ssl: Ssl) -> (), otherwise ();
    ssl_set_session = c"SSL_set_session" in LIBSSL:
        fn(ssl: Ssl, session: *mut c_void) -> c_int, otherwise 0;
    ssl_get_ssl_ctx = c"SSL_get_SSL_CTX" in LIBSSL: fn(ssl: Ssl) -> *mut c_void, otherwise ptr::null_mut();
    ssl_set_ssl_ctx = c"SSL_set_SSL_CTX" in LIBSSL:
        fn(ssl: Ssl, context: *mut c_void) -> *mut c_void, otherwise ptr::null_mut();
    ssl_use_certificate = c"SSL_use_certificate" in LIBSSL:
        fn(ssl: Ssl, certificate: *mut c_void) -> c_int, otherwise 0;
    ssl_use_private_key = c"SSL_use_PrivateKey" in LIBSSL:
        fn(ssl: Ssl, key: *mut c_void) -> c_int, otherwise 0;
    ssl_use_cert_and_key = c"SSL_use_cert_and_key" in LIBSSL:
        fn(ssl: Ssl, certificate: *mut c_void, key: *mut c_void, chain: *mut c_void, again: c_int) -> c_int
        , otherwise 0;
    ssl_use_certificate_file = c"SSL_use_certificate_file" in LIBSSL:
        fn(ssl: Ssl, file: *const c_char, kind: c_int) -> c_int, otherwise 0;
    ssl_use_certificate_chain_file = c"SSL_use_certificate_chain_file" in LIBSSL:
        fn(ssl: Ssl, file: *const c_char) -> c_int, otherwise 0;
    ssl_use_private_key_file = c"SSL_use_PrivateKey_file" in LIBSSL:
        fn(ssl: Ssl, file: *const c_char, kind: c_int) -> c_int, otherwise 0;
    ssl_set_ssl_method = c"SSL_set_ssl_method" in LIBSSL:
        fn(ssl: Ssl, method: *const c_void) -> c_int, otherwise 0;
    ssl_set_cipher_list = c"SSL_set_cipher_list" in LIBSSL:
        fn(ssl: Ssl, list: *const c_char) -> c_int, otherwise 0;
    ssl_set_ciphersuites = c"SSL_set_ciphersuites" in LIBSSL:
        fn(ssl: Ssl, list: *const c_char) -> c_int, otherwise 0;
    ssl_copy_session_id = c"SSL_copy_session_id" in LIBSSL: fn(to: Ssl, from: Ssl) -> c_int, otherwise 0;
    ssl_free_buffers = c"SSL_free_buffers" in LIBSSL: fn(ssl: Ssl) -> c_int, otherwise 0;
    ssl_certs_clear = c"SSL_certs_clear" in LIBSSL: fn(ssl: Ssl) -> (), otherwise ();
    ssl_get_ex_data = c"SSL_get_ex_data" in LIBSSL:
        fn(ssl: Ssl, index: c_int) -> *mut c_void, otherwise ptr::null_mut();
    ssl_set_ex_data = c"SSL_set_ex_data" in LIBSSL:
        fn(ssl: Ssl, index: c_int, value: *mut c_void) -> c_int, otherwise 0;
    ssl_get_info_callback = c"SSL_get_info_callback" in LIBSSL:
        fn(ssl: Ssl) -> Option<InfoCallback>, otherwise None;
    ssl_set_info_callback = c"SSL_set_info_callback" in LIBSSL:
        fn(ssl: Ssl, callback: Option<InfoCallback>) -> (), otherwise ();
    ssl_ctx_get_info_callback = c"SSL_CTX_get_info_callback" in LIBSSL:
        fn(context: *mut c_void) -> Option<InfoCallback>, otherwise None;
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
    err_peek_last_error = c"ERR_peek_last_error" in LIBCRYPTO: fn() -> c_ulong, otherwise 0;
    err_new = c"ERR_new" in LIBCRYPTO: fn() -> (), otherwise ();
    err_set_error = c"ERR_set_error" in LIBCRYPTO:
        fn(library: c_int, reason: c_int, format: *const c_char) -> (), otherwise ();
    crypto_get_ex_new_index = c"CRYPTO_get_ex_new_index" in LIBCRYPTO:
        fn(class: c_int, argument: c_long, pointer: *mut c_void, new: *const c_void, copy: *const c_void
            , free: Option<FreeCallback>) -> c_int, otherwise -1;
    bio_test_flags = c"BIO_test_flags" in LIBCRYPTO:
        fn(bio: *const c_void, flags: c_int) -> c_int, otherwise 0;
    bio_s_null = c"BIO_s_null" in LIBCRYPTO: fn() -> *const c_void, otherwise ptr::null();
    bio_new = c"BIO_new" in LIBCRYPTO:
        fn(method: *const c_void) -> *mut c_void, otherwise ptr::null_mut();
    bio_up_ref = c"BIO_up_ref" in LIBCRYPTO: fn(bio: *mut c_void) -> c_int, otherwise 0;
    bio_next = c"BIO_next" in LIBCRYPTO: fn(bio: *mut c_void) -> *mut c_void, otherwise ptr::null_mut();
    bio_method_type = c"BIO_method_type" in LIBCRYPTO: fn(bio: *mut c_void) -> c_int, otherwise 0;
    epoll_ctl = c"epoll_ctl" in LIBC:
        fn(epoll: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int, otherwise missing();
    epoll_wait = c"epoll_wait" in LIBC:
        fn(epoll: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int
        , otherwise missing();
    epoll_pwait = c"epoll_pwait" in LIBC:
        fn(epoll: c_int, events: *mut epoll_event, max: c_int, timeout: c_int, mask: *const sigset_t)
            -> c_int, otherwise missing();
    epoll_pwait2 = c"epoll_pwait2" in LIBC:
        fn(epoll: c_int, events: *mut epoll_event, max: c_int, timeout: *const timespec
            , mask: *const sigset_t) -> c_int, otherwise missing();
    poll = c"poll" in LIBC:
        fn(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int, otherwise missing();
    poll_chk = c"__poll_chk" in LIBC:
        fn(fds: *mut pollfd, count: nfds_t, timeout: c_int, len: usize) -> c_int, otherwise missing();
    ppoll = c"ppoll" in LIBC:
        fn(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int
        , otherwise missing();
    ppoll_chk = c"__ppoll_chk" in LIBC:
        fn(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, len: usize)
            -> c_int, otherwise missing();
    select = c"select" in LIBC:
        fn(count: c_int, read: *mut fd_set, write: *mut fd_set, other: *mut fd_set
            , timeout: *mut timeval) -> c_int, otherwise missing();
    pselect = c"pselect" in LIBC:
        fn(count: c_int, read: *mut fd_set, write: *mut fd_set, other: *mut fd_set
            , timeout: *const timespec, mask: *const sigset_t) -> c_int, otherwise missing();
    accept = c"accept" in LIBC:
        fn(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int, otherwise missing();
    accept4 = c"accept4" in LIBC:
        fn(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int
        , otherwise missing();
    listen = c"listen" in LIBC: fn(fd: c_int, backlog: c_int) -> c_int, otherwise missing();
    close = c"close" in LIBC: fn(fd: c_int) -> c_int, otherwise missing();
    close_range = c"close_range" in LIBC:
        fn(first: c_uint, last: c_uint, flags: c_int) -> c_int, otherwise missing();
    closefrom = c"closefrom" in LIBC: fn(first: c_int) -> (), otherwise ();
    dup = c"dup" in LIBC: fn(fd: c_int) -> c_int, otherwise missing();
    dup2 = c"dup2" in LIBC: fn(fd: c_int, to: c_int) -> c_int, otherwise missing();
    dup3 = c"dup3" in LIBC: fn(fd: c_int, to: c_int, flags: c_int) -> c_int, otherwise missing();
    fcntl = c"fcntl" in LIBC: fn(fd: c_int, command: c_int, value: usize) -> c_int, otherwise missing();
    fcntl64 = c"fcntl64" in LIBC:
        fn(fd: c_int, command: c_int, value: usize) -> c_int, otherwise missing();
}

/// Result of a function that this C library does not have.
fn missing() -> c_int {
    set_errno(libc::ENOSYS);
    -1
}

#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(clippy::upper_case_acronyms)]
enum Library {
    LIBSSL,
    LIBCRYPTO,
    LIBC,
}

impl Library {
    /// The names under which it may have been loaded, newest first.
    fn names(self) -> &'static [&'static CStr] {
        match self {
            Self::LIBSSL => &[c"libssl.so.4", c"libssl.so.3"],
            Self::LIBCRYPTO => &[c"libcrypto.so.4", c"libcrypto.so.3"],
            Self::LIBC => &[c"libc.so.6"],
        }
    }
}

/// The symbol behind this library's own. A library that the program loads by `dlopen` is not in that
/// order; it is asked by its name, if it is there, and stays loaded.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_librarys_functions_were_looked_up_at_load() {
        let of_c: Vec<_> = ALL.iter().filter(|function| function.is_of_the_c_library()).collect();
        assert!(of_c.len() > 20);
        for function in of_c {
            assert!(!function.address.load(Relaxed).is_null(), "{:?}", function.symbol);
        }
    }
}
