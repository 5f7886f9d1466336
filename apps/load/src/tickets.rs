//! The session tickets that one thread keeps. It has one server only.

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls_pki_types::ServerName;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Gives out the newest ticket first, and each TLS 1.3 ticket once (RFC 8446, appendix C.4).
///
/// rustls's own cache keeps eight tickets for a server. With more connections in flight, the others
/// would make full handshakes.
#[derive(Debug)]
pub(crate) struct Tickets {
    most: usize,
    // rustls requires `Sync`, but each thread has its own, so the lock is never contended.
    kept: Mutex<Sessions>,
}

#[derive(Debug, Default)]
struct Sessions {
    tls13: Vec<Tls13ClientSessionValue>,
    tls12: Option<Tls12ClientSessionValue>,
    group: Option<NamedGroup>,
}

impl Tickets {
    /// Keeps at most `most` tickets of TLS 1.3.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            kept: Mutex::default(),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Sessions> {
        // A panic cannot leave this data inconsistent.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.kept().group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.kept().group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.kept().tls12 = Some(session);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.kept().tls12.clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.kept().tls12 = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut kept = self.kept();
        if kept.tls13.len() < self.most {
            kept.tls13.push(ticket);
        }
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.kept().tls13.pop()
    }
}
