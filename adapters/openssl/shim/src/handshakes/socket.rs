//! The socket of a connection: whether a wait can report it, and which file it is.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use widelane_status::Way;

use crate::originals::{self, Ssl};
use crate::provider;

/// The socket of a connection whose handshake can be suspended: a server's, with nothing in between.
pub(super) fn socket_of(ssl: Ssl) -> Option<c_int> {
    // SAFETY: the server passes a connection to a function that takes one.
    let (fd, can_be) = unsafe {
        let is_async = originals::ssl_ctrl(ssl, CTRL_MODE, 0, ptr::null_mut()) & MODE_ASYNC != 0;
        // Jobs of OpenSSL's have stacks of their own, which is not understood.
        if originals::ssl_is_server(ssl) != 1 || is_async {
            return None;
        }
        let fd = originals::ssl_get_rfd(ssl);
        // Nor are datagrams, which have timers.
        let can_be = originals::ssl_is_dtls(ssl) == 0
            && fd >= 0
            && fd == originals::ssl_get_wfd(ssl)
            && is_socket(originals::ssl_get_rbio(ssl))
            && is_socket(originals::ssl_get_wbio(ssl));
        (fd, can_be)
    };
    // Without a socket of its own (a memory BIO, QUIC), no wait could report that it goes on. The
    // server of a blocking socket waits for no report.
    let why = match can_be {
        false => Way::NoSocket,
        true if is_nonblocking(fd) => return Some(fd),
        true => Way::BlockingSocket,
    };
    provider::count_way(why);
    None
}

/// Returns whether what is read and written goes to a socket at once, with no buffer in between.
///
/// # Safety
///
/// `bio` must be null or a BIO.
unsafe fn is_socket(bio: *mut c_void) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        !bio.is_null() && originals::bio_method_type(bio) == BIO_TYPE_SOCKET && originals::bio_next(bio).is_null()
    }
}

/// `BIO_TYPE_SOCKET`.
const BIO_TYPE_SOCKET: c_int = 0x505;
/// `SSL_CTRL_MODE`.
const CTRL_MODE: c_int = 33;
/// `SSL_MODE_ASYNC`.
const MODE_ASYNC: std::ffi::c_long = 0x100;

pub(super) fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: asks for the flags of a descriptor.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}

/// A file, whatever numbers it has: its file system's number, and its own there.
pub(super) type Inode = (libc::dev_t, libc::ino_t);

pub(super) fn inode(fd: c_int) -> Option<Inode> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call fills in the place if it succeeds.
    let found = unsafe { (libc::fstat(fd, found.as_mut_ptr()) == 0).then(|| found.assume_init()) }?;
    Some((found.st_dev, found.st_ino))
}
