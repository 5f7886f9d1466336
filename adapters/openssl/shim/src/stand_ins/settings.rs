//! Stand-ins for libssl's functions that change what a suspended call uses, and for the one that loads a key.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::ops::RangeInclusive;
use std::ptr;

use super::macros::stand_ins;
use crate::originals::{self, Ssl};
use crate::{handshakes, imports, provider};

stand_ins! {
    /// `SSL_set_fd(3)`.
    SSL_set_fd(ssl: Ssl, fd: c_int) -> c_int = ssl_set_fd, instead { settled(ssl, 0) };

    /// `SSL_set_rfd(3)`.
    SSL_set_rfd(ssl: Ssl, fd: c_int) -> c_int = ssl_set_rfd, instead { settled(ssl, 0) };

    /// `SSL_set_wfd(3)`.
    SSL_set_wfd(ssl: Ssl, fd: c_int) -> c_int = ssl_set_wfd, instead { settled(ssl, 0) };

    /// `SSL_set_bio(3)`.
    SSL_set_bio(ssl: Ssl, read: *mut c_void, write: *mut c_void) = ssl_set_bio,
        instead { settled(ssl, ()) };

    /// `SSL_set0_rbio(3)`.
    SSL_set0_rbio(ssl: Ssl, bio: *mut c_void) = ssl_set0_rbio, instead { settled(ssl, ()) };

    /// `SSL_set0_wbio(3)`.
    SSL_set0_wbio(ssl: Ssl, bio: *mut c_void) = ssl_set0_wbio, instead { settled(ssl, ()) };

    /// `SSL_set_accept_state(3)`.
    SSL_set_accept_state(ssl: Ssl) = ssl_set_accept_state, instead { settled(ssl, ()) };

    /// `SSL_set_connect_state(3)`.
    SSL_set_connect_state(ssl: Ssl) = ssl_set_connect_state, instead { settled(ssl, ()) };

    /// `SSL_set_session(3)`.
    SSL_set_session(ssl: Ssl, session: *mut c_void) -> c_int = ssl_set_session,
        instead { settled(ssl, 0) };

    /// `SSL_set_SSL_CTX(3)`.
    SSL_set_SSL_CTX(ssl: Ssl, context: *mut c_void) -> *mut c_void = ssl_set_ssl_ctx,
        instead { settled(ssl, ptr::null_mut()) };

    /// `SSL_use_certificate(3)`.
    SSL_use_certificate(ssl: Ssl, certificate: *mut c_void) -> c_int = ssl_use_certificate,
        instead { settled(ssl, 0) };

    /// `SSL_use_PrivateKey(3)`.
    SSL_use_PrivateKey(ssl: Ssl, key: *mut c_void) -> c_int = ssl_use_private_key,
        instead { settled(ssl, 0) };

    /// `SSL_use_cert_and_key(3)`.
    SSL_use_cert_and_key(
        ssl: Ssl, certificate: *mut c_void, key: *mut c_void, chain: *mut c_void, again: c_int
    ) -> c_int = ssl_use_cert_and_key, instead { settled(ssl, 0) };

    /// `SSL_use_certificate_file(3)`, in an OpenSSL that calls its own functions directly.
    SSL_use_certificate_file(ssl: Ssl, file: *const c_char, kind: c_int) -> c_int
        = ssl_use_certificate_file, instead { settled(ssl, 0) };

    /// `SSL_use_certificate_chain_file(3)`.
    SSL_use_certificate_chain_file(ssl: Ssl, file: *const c_char) -> c_int
        = ssl_use_certificate_chain_file, instead { settled(ssl, 0) };

    /// `SSL_use_PrivateKey_file(3)`.
    SSL_use_PrivateKey_file(ssl: Ssl, file: *const c_char, kind: c_int) -> c_int
        = ssl_use_private_key_file, instead { settled(ssl, 0) };

    /// `SSL_set_ssl_method(3)`.
    SSL_set_ssl_method(ssl: Ssl, method: *const c_void) -> c_int = ssl_set_ssl_method,
        instead { settled(ssl, 0) };

    /// `SSL_set_cipher_list(3)`.
    SSL_set_cipher_list(ssl: Ssl, list: *const c_char) -> c_int = ssl_set_cipher_list,
        instead { settled(ssl, 0) };

    /// `SSL_set_ciphersuites(3)`.
    SSL_set_ciphersuites(ssl: Ssl, list: *const c_char) -> c_int = ssl_set_ciphersuites,
        instead { settled(ssl, 0) };

    /// `SSL_copy_session_id(3)`.
    SSL_copy_session_id(to: Ssl, from: Ssl) -> c_int = ssl_copy_session_id,
        instead { settled(to, 0) };

    /// `SSL_free_buffers(3)`.
    SSL_free_buffers(ssl: Ssl) -> c_int = ssl_free_buffers, instead { settled(ssl, 0) };

    /// `SSL_ctrl(3)`: what many macros of OpenSSL's call to set something.
    SSL_ctrl(ssl: Ssl, command: c_int, number: c_long, value: *mut c_void) -> c_long = ssl_ctrl,
        instead {
            let replaces = CONTROLS_THAT_REPLACE.iter().any(|range| range.contains(&command));
            replaces.then(|| settled(ssl, 0)).flatten()
        };

    /// `SSL_certs_clear(3)`.
    SSL_certs_clear(ssl: Ssl) = ssl_certs_clear, instead { settled(ssl, ()) };

    /// `SSL_CTX_use_PrivateKey(3)`. Servers load their keys before they fork: what the first signature
    /// with a key has to prepare is prepared here, once for all workers.
    SSL_CTX_use_PrivateKey(context: *mut c_void, key: *mut c_void) -> c_int
        = ssl_ctx_use_private_key, then |used| {
            imports::take_new();
            if used == 1 {
                // SAFETY: the key is the caller's, and whole.
                unsafe { prepare(key) };
            }
        };
}

/// Before a function that changes what a suspended call uses: `Some` with what a failure returns, if the call is
/// another thread's. A function that returns nothing changes nothing then.
fn settled<R>(ssl: Ssl, refused: R) -> Option<R> {
    (!ssl.is_null() && !handshakes::settle(ssl)).then_some(refused)
}

/// Commands of `SSL_ctrl` that free what a call may use: keys and groups, texts, chains, lists and stores.
const CONTROLS_THAT_REPLACE: [RangeInclusive<c_int>; 5] = [3..=4, 55..=55, 70..=71, 88..=107, 116..=117];

/// Begins a signature and drops it. What the provider has prepared for it stays with the key.
///
/// # Safety
///
/// `key` must be a key of OpenSSL's.
unsafe fn prepare(key: *mut c_void) {
    let Some(passes) = provider::passes() else {
        return;
    };
    let (none, no_text) = (ptr::null_mut(), ptr::null());
    (passes.prepare_keys)(1);
    // SAFETY: OpenSSL's functions with a context of their own and the caller's key; null stands for
    // what OpenSSL chooses by itself. Errors that it meets are taken from the queue again.
    unsafe {
        originals::err_set_mark();
        let context = originals::evp_md_ctx_new();
        if !context.is_null() {
            originals::evp_digest_sign_init(context, ptr::null_mut(), no_text, none, no_text, key, ptr::null());
            originals::evp_md_ctx_free(context);
        }
        originals::err_pop_to_mark();
    }
    (passes.prepare_keys)(0);
    (passes.prepare)();
}
