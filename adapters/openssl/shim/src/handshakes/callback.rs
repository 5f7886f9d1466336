//! The connection's own callback (`SSL_set_info_callback(3)`): OpenSSL calls us in its place while a call is under way.

use std::ffi::c_int;

use super::handshake::Handshake;
use super::store::find;
use crate::boundary::guarded;
use crate::originals::{self, InfoCallback, Ssl};

/// OpenSSL calls us in the place of the server's callback as long as the call is under way: it keeps the
/// address of the function from the beginning to the end of a call, when the connection may be being
/// freed.
pub(super) fn listen(handshake: &Handshake) {
    let ssl = handshake.ssl;
    // SAFETY: the server passes a connection, which has a context. `on_info` has the type of a callback.
    unsafe {
        let own = originals::ssl_get_info_callback(ssl);
        if own.is_some() || of_context(ssl).is_some() {
            handshake.info.set(Some(own));
            originals::ssl_set_info_callback(ssl, Some(on_info));
        }
    }
}

/// # Safety
///
/// `ssl` must be a connection.
unsafe fn of_context(ssl: Ssl) -> Option<InfoCallback> {
    // SAFETY: the caller's promise.
    unsafe { originals::ssl_ctx_get_info_callback(originals::ssl_get_ssl_ctx(ssl)) }
}

/// Calls the server back, unless the connection is being freed.
unsafe extern "C-unwind" fn on_info(ssl: Ssl, what: c_int, value: c_int) {
    guarded(|| {
        let handshake = find(ssl)?;
        // SAFETY: rule 2 (`mod.rs`): it is in the table; OpenSSL passes a connection.
        unsafe {
            if (*handshake).is_cancelled.get() {
                return None;
            }
            (*handshake).info.get().flatten().or_else(|| of_context(ssl))
        }
    })
    .flatten()
    // SAFETY: the server's function with what OpenSSL calls it with.
    .inspect(|callback| unsafe { callback(ssl, what, value) });
}

/// The server's own callback, if we have its place in the connection.
pub(crate) fn info_callback(ssl: Ssl) -> Option<Option<InfoCallback>> {
    // SAFETY: rule 2 (`mod.rs`): it is in the table.
    unsafe { (*find(ssl)?).info.get() }
}

/// The server chooses another callback. Whether it was kept here.
pub(crate) fn keep_info_callback(ssl: Ssl, callback: Option<InfoCallback>) -> bool {
    let Some(handshake) = find(ssl) else {
        return false;
    };
    // SAFETY: rule 2 (`mod.rs`): it is in the table.
    let handshake = unsafe { &*handshake };
    let is_kept = handshake.info.get().is_some();
    if is_kept {
        handshake.info.set(Some(callback));
    }
    is_kept
}
