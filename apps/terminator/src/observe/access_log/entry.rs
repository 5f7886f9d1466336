//! The entry of a connection, filled while it lasts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use aws_lc_rs::digest;
use rustls::{AlertDescription, CipherSuite, HandshakeKind, NamedGroup, ProtocolVersion, ServerConnection};

use crate::config::Backend;
use crate::observe::stats::{End, Failure, Refusal};

use super::Sink;

/// The entry of one connection, which goes to the log when this is dropped. Empty without a log.
#[derive(Debug)]
pub(crate) struct LogEntry(Option<Box<Fields>>);

/// The fields of a line.
#[derive(Debug)]
pub(super) struct Fields {
    /// Its destination. `None`: it is there.
    sink: Option<Arc<Sink>>,
    accepted: Instant,
    /// When the connection ended.
    pub(super) time: SystemTime,
    /// From accept to the end.
    pub(super) duration: Duration,
    /// From accept to the end of the handshake, complete or not.
    pub(super) handshake: Option<Duration>,
    pub(super) client: SocketAddr,
    pub(super) listener: SocketAddr,
    pub(super) server_name: Option<Box<str>>,
    pub(super) version: Option<ProtocolVersion>,
    pub(super) suite: Option<CipherSuite>,
    pub(super) group: Option<NamedGroup>,
    pub(super) resumed: Option<bool>,
    pub(super) alpn: Option<Box<[u8]>>,
    /// SHA-256 of the client's certificate.
    pub(super) certificate: Option<[u8; 32]>,
    /// The last one that was tried.
    pub(super) backend: Option<Backend>,
    /// Number of addresses that were tried.
    pub(super) tries: u32,
    /// Decrypted bytes, as the backend gets them.
    pub(super) received: u64,
    /// Bytes from the backend, before encryption.
    pub(super) sent: u64,
    pub(super) alert: Option<Alert>,
    /// Why the handshake failed, for people.
    pub(super) reason: Option<Box<str>>,
    /// Who ended its direction first.
    pub(super) closed_first: Option<Side>,
    is_complete: bool,
    end: Ending,
}

/// A fatal alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alert {
    /// To the client.
    Sent(AlertDescription),
    /// From the client.
    Received(AlertDescription),
}

/// An end of a relayed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Backend,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Refused(Refusal),
    Failed(Failure),
    /// The client has closed right after the handshake.
    Unused,
    Served(End),
    /// The server has stopped.
    Stopped,
}

impl LogEntry {
    /// Makes the entry of a connection that was just accepted.
    pub(crate) fn new(sink: Option<&Arc<Sink>>, client: SocketAddr, listener: SocketAddr) -> Self {
        Self(sink.map(|sink| {
            let mut entry = Fields::new(client, listener);
            entry.sink = Some(sink.clone());
            Box::new(entry)
        }))
    }

    /// The client that a load balancer has named.
    pub(crate) fn client(&mut self, client: SocketAddr) {
        self.with(|entry| entry.client = client);
    }

    /// Notes what is known in a handshake that may still fail.
    pub(crate) fn handshake(&mut self, tls: &ServerConnection) {
        self.with(|entry| entry.agreed(tls));
    }

    /// The handshake is complete.
    pub(crate) fn complete(&mut self, tls: &ServerConnection) {
        self.with(|entry| {
            entry.handshake = Some(entry.accepted.elapsed());
            entry.is_complete = true;
            entry.agreed(tls);
            entry.resumed = Some(tls.handshake_kind() == Some(HandshakeKind::Resumed));
            entry.alpn = tls.alpn_protocol().map(Into::into);
            let shown = tls.peer_certificates().and_then(<[_]>::first);
            entry.certificate = shown.and_then(|shown| {
                let hash = digest::digest(&digest::SHA256, shown);
                hash.as_ref().try_into().ok()
            });
        });
    }

    pub(crate) fn refused(&mut self, why: Refusal) {
        self.with(|entry| entry.end = Ending::Refused(why));
    }

    pub(crate) fn failed(&mut self, why: Failure) {
        self.with(|entry| {
            entry.handshake = Some(entry.accepted.elapsed());
            entry.end = Ending::Failed(why);
        });
    }

    pub(crate) fn unused(&mut self) {
        self.with(|entry| entry.end = Ending::Unused);
    }

    pub(crate) fn ended(&mut self, how: End) {
        self.with(|entry| entry.end = Ending::Served(how));
    }

    pub(crate) fn alert(&mut self, alert: Option<Alert>) {
        self.with(|entry| entry.alert = alert);
    }

    pub(crate) fn reason(&mut self, reason: Option<String>) {
        self.with(|entry| entry.reason = reason.map(String::into_boxed_str));
    }

    pub(crate) fn backend(&mut self, backend: &Backend) {
        self.with(|entry| {
            entry.backend = Some(backend.clone());
            entry.tries += 1;
        });
    }

    pub(crate) fn received(&mut self, bytes: usize) {
        self.with(|entry| entry.received += bytes as u64);
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        self.with(|entry| entry.sent += bytes as u64);
    }

    pub(crate) fn closed(&mut self, side: Side) {
        self.with(|entry| entry.closed_first = entry.closed_first.or(Some(side)));
    }

    fn with(&mut self, note: impl FnOnce(&mut Fields)) {
        if let Some(entry) = &mut self.0 {
            note(entry);
        }
    }
}

impl Drop for LogEntry {
    fn drop(&mut self) {
        if let Some(mut entry) = self.0.take()
            && let Some(sink) = entry.sink.take()
        {
            entry.time = SystemTime::now();
            entry.duration = entry.accepted.elapsed();
            sink.offer(entry);
        }
    }
}

impl Fields {
    pub(super) fn new(client: SocketAddr, listener: SocketAddr) -> Self {
        Self {
            sink: None,
            accepted: Instant::now(),
            time: SystemTime::UNIX_EPOCH,
            duration: Duration::ZERO,
            handshake: None,
            client,
            listener,
            server_name: None,
            version: None,
            suite: None,
            group: None,
            resumed: None,
            alpn: None,
            certificate: None,
            backend: None,
            tries: 0,
            received: 0,
            sent: 0,
            alert: None,
            reason: None,
            closed_first: None,
            is_complete: false,
            end: Ending::Stopped,
        }
    }

    fn agreed(&mut self, tls: &ServerConnection) {
        if self.server_name.is_none() {
            self.server_name = tls.server_name().map(Into::into);
        }
        self.version = tls.protocol_version();
        self.suite = tls.negotiated_cipher_suite().map(|suite| suite.suite());
        self.group = tls.negotiated_key_exchange_group().map(|group| group.name());
    }

    /// How far it came, and how it ended there: the label of the metric that counts it.
    pub(super) fn end(&self) -> [&'static str; 2] {
        const FAILED: &str = "handshake_failed";
        const SERVED: &str = "served";
        match self.end {
            Ending::Refused(why) => ["refused", why.name()],
            Ending::Failed(why) => [FAILED, why.name()],
            Ending::Unused => [SERVED, "unused"],
            Ending::Served(how) => [SERVED, how.name()],
            Ending::Stopped if self.is_complete => [SERVED, "stopped"],
            Ending::Stopped => [FAILED, "stopped"],
        }
    }
}
