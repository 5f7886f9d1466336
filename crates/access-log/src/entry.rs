//! The entry of a connection, filled while it lasts.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::Sink;

/// The entry of one connection, filled while that lasts, which goes to the log when this is dropped. Empty without a log:
/// then nothing that it takes by a closure is made.
#[derive(Debug)]
pub struct LogEntry(Option<Box<Fields>>);

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
    pub(super) version: Option<&'static str>,
    pub(super) suite: Option<&'static str>,
    pub(super) group: Option<&'static str>,
    pub(super) resumed: Option<bool>,
    pub(super) alpn: Option<Box<[u8]>>,
    /// SHA-256 of the client's certificate.
    pub(super) certificate: Option<[u8; 32]>,
    /// The last one that was tried.
    pub(super) backend: Option<Box<str>>,
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

/// Names of what client and server have agreed on, as far as they have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Agreed<'a> {
    /// The name that the client asks for.
    pub server_name: Option<&'a str>,
    /// The version of TLS, as a number: `1.3`.
    pub version: Option<&'static str>,
    /// The cipher suite, in IANA's spelling.
    pub suite: Option<&'static str>,
    /// The group of the key exchange, in IANA's spelling.
    pub group: Option<&'static str>,
}

/// What is known when a handshake is complete.
#[derive(Clone, Copy, Debug, Default)]
pub struct Complete<'a> {
    /// The session of a ticket goes on.
    pub resumed: bool,
    /// The protocol inside.
    pub alpn: Option<&'a [u8]>,
    /// SHA-256 of the client's certificate.
    pub certificate: Option<[u8; 32]>,
}

/// A fatal alert, by its name in the RFCs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alert {
    /// To the client.
    Sent(String),
    /// From the client.
    Received(String),
}

/// An end of a relayed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client.
    Client,
    /// The backend.
    Backend,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Refused(&'static str),
    Failed(&'static str),
    /// The client has closed right after the handshake.
    Unused,
    Served(&'static str),
    /// The server has stopped.
    Stopped,
}

impl LogEntry {
    /// Makes the entry of a connection that was just accepted.
    pub fn new(sink: Option<&Arc<Sink>>, client: SocketAddr, listener: SocketAddr) -> Self {
        Self(sink.map(|sink| {
            let mut entry = Fields::new(client, listener);
            entry.sink = Some(sink.clone());
            Box::new(entry)
        }))
    }

    /// Notes the client that a load balancer has named.
    pub fn client(&mut self, client: SocketAddr) {
        self.with(|entry| entry.client = client);
    }

    /// Notes what is agreed on in a handshake that may still fail.
    pub fn agreed<'a>(&mut self, agreed: impl FnOnce() -> Agreed<'a>) {
        self.with(|entry| {
            let agreed = agreed();
            if entry.server_name.is_none() {
                entry.server_name = agreed.server_name.map(Into::into);
            }
            (entry.version, entry.suite, entry.group) = (agreed.version, agreed.suite, agreed.group);
        });
    }

    /// Notes that the handshake is complete.
    pub fn complete<'a>(&mut self, complete: impl FnOnce() -> Complete<'a>) {
        self.with(|entry| {
            let complete = complete();
            entry.handshake = Some(entry.accepted.elapsed());
            entry.is_complete = true;
            entry.resumed = Some(complete.resumed);
            entry.alpn = complete.alpn.map(Into::into);
            entry.certificate = complete.certificate;
        });
    }

    /// Notes why the connection was not served at all.
    pub fn refused(&mut self, why: &'static str) {
        self.with(|entry| entry.end = Ending::Refused(why));
    }

    /// Notes why the handshake did not come to its end.
    pub fn failed(&mut self, why: &'static str) {
        self.with(|entry| {
            entry.handshake = Some(entry.accepted.elapsed());
            entry.end = Ending::Failed(why);
        });
    }

    /// Notes that the client has closed right after the handshake.
    pub fn unused(&mut self) {
        self.with(|entry| entry.end = Ending::Unused);
    }

    /// Notes the end of a connection whose handshake was complete.
    pub fn ended(&mut self, how: &'static str) {
        self.with(|entry| entry.end = Ending::Served(how));
    }

    /// Notes the alert with which the connection has ended.
    pub fn alert(&mut self, alert: Option<Alert>) {
        self.with(|entry| entry.alert = alert);
    }

    /// Notes why the handshake failed, for people.
    pub fn reason(&mut self, reason: Option<String>) {
        self.with(|entry| entry.reason = reason.map(String::into_boxed_str));
    }

    /// Notes the address that is tried next.
    pub fn backend(&mut self, backend: &impl Display) {
        self.with(|entry| {
            entry.backend = Some(backend.to_string().into());
            entry.tries += 1;
        });
    }

    /// Counts decrypted bytes that the client has sent.
    pub fn received(&mut self, bytes: usize) {
        self.with(|entry| entry.received += bytes as u64);
    }

    /// Counts bytes of the backend.
    pub fn sent(&mut self, bytes: usize) {
        self.with(|entry| entry.sent += bytes as u64);
    }

    /// Notes who ends its direction, if it is the first.
    pub fn closed(&mut self, side: Side) {
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

    /// How far it came, and how it ended there.
    pub(super) fn end(&self) -> [&'static str; 2] {
        const FAILED: &str = "handshake_failed";
        const SERVED: &str = "served";
        match self.end {
            Ending::Refused(why) => ["refused", why],
            Ending::Failed(why) => [FAILED, why],
            Ending::Unused => [SERVED, "unused"],
            Ending::Served(how) => [SERVED, how],
            Ending::Stopped if self.is_complete => [SERVED, "stopped"],
            Ending::Stopped => [FAILED, "stopped"],
        }
    }
}
