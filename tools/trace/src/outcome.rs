//! Meaning of return values.

use widelane_text::named;

use crate::event::Call;
use crate::functions::{Returns, Role};

named! {
    /// Result of a call.
    #[derive(Hash, PartialOrd, Ord)]
    pub enum Outcome {
        /// The call did what it is for.
        Ok = "ok",
        /// The call waits for the peer or for a computation, and is repeated.
        Again = "again",
        /// The call failed.
        Failed = "failed",
    }
}

/// Result of a call, with the reason of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Ok,
    Again,
    /// An error of the protocol.
    Failed,
    /// The connection ended.
    Closed,
    /// The next call that asks for the error tells.
    Unexplained,
}

/// Meaning of a call's own result.
pub(crate) fn meaning(call: &Call) -> Meaning {
    // The call did a handshake before it read or wrote anything.
    match call.still {
        Some(false) => return Meaning::Ok,
        // Early data may come before the handshake is done.
        Some(true) if call.result as i32 > 0 => return Meaning::Again,
        Some(true) => return Meaning::Unexplained,
        None => {}
    }
    let carries = matches!(call.function.role, Role::Read | Role::Write);
    let explained = carries || call.function.role == Role::Handshake;
    match (call.function.returns, call.result) {
        (Returns::Any, _) => Meaning::Ok,
        (Returns::Pointer, 0) => Meaning::Failed,
        (Returns::Pointer, _) => Meaning::Ok,
        (Returns::One, 1..) => Meaning::Ok,
        (Returns::One, _) if explained => Meaning::Unexplained,
        (Returns::One, _) => Meaning::Failed,
        (Returns::Zero, 0) => Meaning::Ok,
        (Returns::Zero, 1..) if carries => Meaning::Ok,
        // s2n and NSS: another function tells why.
        (Returns::Zero, -1) if explained => Meaning::Unexplained,
        // GnuTLS: again, interrupted, warning alert received. Mbed TLS: wants to read, to write, waits
        // for a computation, and for a cryptographic one.
        (Returns::Zero, -28 | -52 | -16 | -0x6900 | -0x6880 | -0x6500 | -0x7000) => Meaning::Again,
        // GnuTLS: push and pull error, invalid session, ended too early. Mbed TLS: end, closed by peer.
        (Returns::Zero, -53 | -54 | -10 | -110 | -0x7280 | -0x7880) => Meaning::Closed,
        (Returns::Zero, _) => Meaning::Failed,
        // The result is the register with the error's type: nil is no error.
        (Returns::GoError(_), _) if call.result == 0 => Meaning::Ok,
        (Returns::GoError(_), _) => Meaning::Failed,
    }
}

/// Meaning of `SSL_get_error` for the call before it; `None` if that call did not fail.
pub(crate) fn explained(error: i64) -> Option<Meaning> {
    match error {
        0 => None,
        // 13 to 16 are BoringSSL's.
        2..=4 | 7..=14 | 16 => Some(Meaning::Again),
        5 | 6 => Some(Meaning::Closed),
        _ => Some(Meaning::Failed),
    }
}

/// The name that OpenSSL has for a result of `SSL_get_error`.
pub(crate) fn error_name(error: i64) -> Option<&'static str> {
    Some(match error as i32 {
        0 => "SSL_ERROR_NONE",
        1 => "SSL_ERROR_SSL",
        2 => "SSL_ERROR_WANT_READ",
        3 => "SSL_ERROR_WANT_WRITE",
        4 => "SSL_ERROR_WANT_X509_LOOKUP",
        5 => "SSL_ERROR_SYSCALL",
        6 => "SSL_ERROR_ZERO_RETURN",
        7 => "SSL_ERROR_WANT_CONNECT",
        8 => "SSL_ERROR_WANT_ACCEPT",
        9 => "SSL_ERROR_WANT_ASYNC",
        10 => "SSL_ERROR_WANT_ASYNC_JOB",
        11 => "SSL_ERROR_WANT_CLIENT_HELLO_CB",
        12 => "SSL_ERROR_WANT_RETRY_VERIFY",
        _ => return None,
    })
}
