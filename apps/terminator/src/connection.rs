//! The life of one connection: handshake, backend, relay.
//!
//! | stage     | ends with                                      | then                            |
//! |-----------|------------------------------------------------|---------------------------------|
//! | handshake | complete, and the client is still there        | backend                         |
//! | handshake | complete, but the client has closed by then    | closed; the backend never hears |
//! | handshake | alert, end of file, time limit                 | alert if one is due, closed     |
//! | handshake | the engine's queue is full                     | internal_error, closed          |
//! | backend   | connected (PROXY header sent if configured)    | relay                           |
//! | backend   | refused, time limit                            | close_notify, closed            |
//! | relay     | both directions have ended                     | closed                          |
//!
//! Memory is bounded. Towards the backend: what one read of the socket brought ([`SCRATCH_BYTES`]
//! at most), of which rustls decrypts a piece at a time and the next one only when the backend has
//! taken the last; nothing more is read from the client before. Towards the client: what one read
//! from the backend brought (as many at most, and their framing), encrypted inside rustls; nothing
//! more is read from the backend before the client has taken it. An idle connection holds neither:
//! reads go through one buffer of the worker.

use std::future::poll_fn;
use std::io::{self, BufRead, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::{AlertDescription, HandshakeKind, ProtocolVersion, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::config::Backend;
use crate::proxy;
use crate::server::{Admission, Site};
use crate::signing::{self, ProcessFailure};
use crate::stats::{End, Failure, Refusal};
use crate::worker::Local;

/// Serves one accepted connection to its end.
pub(crate) async fn serve(
    mut client: TcpStream,
    peer: SocketAddr,
    site: Arc<Site>,
    local: &Local,
    announced: signing::Handshake,
    mut admission: Admission,
) {
    let accepted = std::time::Instant::now();
    let tls = match ServerConnection::new(site.tls.clone()) {
        Ok(tls) => Box::new(tls),
        Err(error) => {
            local.stats.failed(Failure::Internal);
            tracing::error!(%peer, %error, "no TLS state for a new connection");
            return;
        }
    };
    let shaken = handshake(&mut client, tls, announced);
    let shaken = match timeout(site.limits.handshake, shaken).await {
        Ok(shaken) => shaken,
        Err(_) => Err(HandshakeError::Failed(Failure::Timeout)),
    };
    admission.handshake_done();
    let (tls, presence) = match shaken {
        Ok(shaken) => shaken,
        Err(HandshakeError::Failed(failure)) => {
            local.stats.failed(failure);
            tracing::debug!(%peer, ?failure, "handshake failed");
            return;
        }
        Err(HandshakeError::Overloaded) => {
            local.stats.refused(Refusal::Engine);
            tracing::debug!(%peer, "refused: the engine's queue is full");
            return;
        }
    };
    local.stats.handshake(
        tls.protocol_version(),
        tls.handshake_kind(),
        accepted.elapsed(),
    );
    if presence == Presence::Gone {
        local.stats.closed_without_request.fetch_add(1, Relaxed);
        return;
    }
    let mut session = Session { client, tls };
    let end = match session.reach_backend(peer, &site).await {
        Ok(backend) => session.relay(backend, &site, local).await,
        Err(end) => {
            complain(local, &site, end);
            session.tls.send_close_notify();
            say_goodbye(&mut session.client, &mut session.tls).await;
            end
        }
    };
    local.stats.ended(end);
    tracing::debug!(%peer, how = end.label(), "connection ended");
}

/// Says that a backend is missing, once in a while; the metrics count every time.
fn complain(local: &Local, site: &Site, end: End) {
    let now = std::time::Instant::now();
    let before = local.complained.get();
    if before.is_none_or(|before| now.duration_since(before) >= COMPLAINT_INTERVAL) {
        local.complained.set(Some(now));
        tracing::warn!(backend = %site.backend, how = end.label(), "a connection found no backend");
    }
}

/// A client's socket and its TLS state, past the handshake.
struct Session {
    client: TcpStream,
    tls: Box<ServerConnection>,
}

/// Whether the client is still there at the end of its handshake.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Here,
    Gone,
}

enum HandshakeError {
    Failed(Failure),
    Overloaded,
}

async fn handshake(
    client: &mut TcpStream,
    mut tls: Box<ServerConnection>,
    mut announced: signing::Handshake,
) -> Result<(Box<ServerConnection>, Presence), HandshakeError> {
    let closed = |_: io::Error| HandshakeError::Failed(Failure::Closed);
    let mut spoken = false;
    while tls.is_handshaking() {
        if poll_fn(|cx| poll_receive(client, &mut tls, cx))
            .await
            .map_err(closed)?
            == 0
        {
            return Err(HandshakeError::Failed(Failure::Closed));
        }
        let result;
        (tls, result) = announced.process(tls).await;
        if let Err(failure) = result {
            if !tls.wants_write() && (!spoken || is_in_plain(&tls)) {
                // rustls knows no alert for this, but one that needs no encryption will do.
                if let Some(alert) = alert(&failure) {
                    let _ = poll_once(|cx| Pin::new(&mut *client).poll_write(cx, &alert)).await;
                }
            }
            say_goodbye(client, &mut tls).await;
            return Err(blame(failure));
        }
        if tls.is_handshaking() {
            spoken |= tls.wants_write();
            poll_fn(|cx| poll_send(client, &mut tls, cx))
                .await
                .map_err(closed)?;
        }
    }
    let presence = if still_here(client, &mut tls).await {
        poll_fn(|cx| poll_send(client, &mut tls, cx))
            .await
            .map_err(closed)?;
        Presence::Here
    } else {
        Presence::Gone
    };
    Ok((tls, presence))
}

/// A look at the socket before the last flight (session tickets) is sent and a backend is reached,
/// which would be for nothing if the client has already closed.
async fn still_here(client: &mut TcpStream, tls: &mut ServerConnection) -> bool {
    if has_plaintext(tls) {
        return true;
    }
    // Lets the event loop ask the kernel for news, if the last flight was all that it knew of. The
    // read costs no system call unless there are news.
    tokio::task::yield_now().await;
    let received = poll_once(|cx| poll_receive(client, tls, cx)).await;
    let gone = match received {
        Poll::Pending => false,
        Poll::Ready(Ok(0) | Err(_)) => !said_goodbye(tls),
        Poll::Ready(Ok(_)) => tls.process_new_packets().is_err(),
    };
    if !gone && said_goodbye(tls) {
        // An orderly close: the tickets may be what the client came for. The socket's own end comes
        // with its being dropped.
        tls.send_close_notify();
        send_last_words(client, tls);
        return false;
    }
    !gone
}

/// Whether what is sent in this handshake after the first flight is not encrypted yet.
fn is_in_plain(tls: &ServerConnection) -> bool {
    tls.negotiated_key_exchange_group().is_none()
        && tls.handshake_kind() != Some(HandshakeKind::Resumed)
}

/// The alert, as a record in plain (RFC 8446, sections 5.1 and 6), for a failure of which rustls
/// tells the client nothing.
fn alert(failure: &ProcessFailure) -> Option<[u8; 7]> {
    let description = match failure {
        ProcessFailure::Overloaded | ProcessFailure::Internal(_) => AlertDescription::InternalError,
        ProcessFailure::Tls(rustls::Error::InvalidMessage(_)) => AlertDescription::DecodeError,
        ProcessFailure::Tls(rustls::Error::PeerMisbehaved(_)) => AlertDescription::IllegalParameter,
        ProcessFailure::Tls(_) => return None,
    };
    Some([21, 3, 3, 0, 2, 2, description.into()])
}

fn blame(failure: ProcessFailure) -> HandshakeError {
    HandshakeError::Failed(match failure {
        ProcessFailure::Overloaded => return HandshakeError::Overloaded,
        ProcessFailure::Internal(error) => {
            tracing::error!("a handshake failed by our own fault: {error}");
            Failure::Internal
        }
        ProcessFailure::Tls(
            rustls::Error::NoCertificatesPresented
            | rustls::Error::InvalidCertificate(_)
            | rustls::Error::InvalidCertRevocationList(_),
        ) => Failure::Certificate,
        ProcessFailure::Tls(rustls::Error::AlertReceived(_)) => Failure::Closed,
        ProcessFailure::Tls(_) => Failure::Protocol,
    })
}

fn has_plaintext(tls: &mut ServerConnection) -> bool {
    matches!(tls.reader().fill_buf(), Ok(bytes) if !bytes.is_empty())
}

/// Whether the client has sent close_notify and nothing before it that is still unread.
fn said_goodbye(tls: &mut ServerConnection) -> bool {
    matches!(tls.reader().fill_buf(), Ok([]))
}

/// Sends what is due (an alert, close_notify) if the socket takes it now, and ends our direction.
async fn say_goodbye(client: &mut TcpStream, tls: &mut ServerConnection) {
    send_last_words(client, tls);
    let _ = poll_once(|cx| Pin::new(&mut *client).poll_shutdown(cx)).await;
}

/// Gives what rustls still has to say to the kernel, as far as that takes it, to be sent together
/// with the end of the stream, which must follow at once.
fn send_last_words(client: &TcpStream, tls: &mut ServerConnection) {
    while tls.wants_write() && tls.write_tls(&mut LastWords(client)).is_ok_and(|n| n > 0) {}
}

/// Reads once from the socket into rustls. 0 means end of file.
fn poll_receive(
    client: &mut TcpStream,
    tls: &mut ServerConnection,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    pending_if_blocked(tls.read_tls(&mut Socket { stream: client, cx }))
}

/// Writes everything that rustls wants written.
fn poll_send(
    client: &mut TcpStream,
    tls: &mut ServerConnection,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while tls.wants_write() {
        let mut socket = Socket { stream: client, cx };
        if ready!(pending_if_blocked(tls.write_tls(&mut socket)))? == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
    }
    Poll::Ready(Ok(()))
}

impl Session {
    async fn reach_backend(&self, peer: SocketAddr, site: &Site) -> Result<BackendStream, End> {
        let connected = timeout(site.limits.backend_connect, async {
            let mut backend = BackendStream::connect(&site.backend).await?;
            if site.proxy_protocol {
                let header = self.proxy_header(peer)?;
                let mut sent = 0;
                while sent < header.len() {
                    sent += poll_fn(|cx| backend.poll_write(cx, &header[sent..])).await?;
                }
            }
            Ok::<_, io::Error>(backend)
        });
        match connected.await {
            Ok(Ok(backend)) => Ok(backend),
            Ok(Err(error)) => {
                tracing::debug!(backend = %site.backend, %error, "cannot connect");
                Err(End::BackendUnreachable)
            }
            Err(_) => Err(End::BackendTimeout),
        }
    }

    fn proxy_header(&self, peer: SocketAddr) -> io::Result<Vec<u8>> {
        let certificate = self.tls.peer_certificates().and_then(<[_]>::first);
        let name = certificate.and_then(|der| crate::material::common_name(der));
        let suite = self.tls.negotiated_cipher_suite();
        let cipher = suite.map(|suite| crate::tls::iana_name(suite.suite()));
        Ok(proxy::header(&proxy::Facts {
            client: peer,
            server: self.client.local_addr()?,
            alpn: self.tls.alpn_protocol(),
            authority: self.tls.server_name(),
            version: match self.tls.protocol_version() {
                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                _ => "TLSv1.3",
            },
            cipher: cipher.as_deref(),
            certificate: certificate.map(|_| name.as_deref()),
            resumed: self.tls.handshake_kind() == Some(HandshakeKind::Resumed),
        }))
    }

    /// Relays both ways until both are done.
    async fn relay(self, backend: BackendStream, site: &Site, local: &Local) -> End {
        let mut relay = Relay {
            session: self,
            backend,
            up: Up::Open,
            down: Down::Open,
            unread: Unread::default(),
            moved: 0,
        };
        let mut idle = pin!(sleep(site.limits.idle));
        let mut last_moved = 0;
        let mut last_active = Instant::now();
        let end = poll_fn(|cx| {
            if let Poll::Ready(end) = relay.poll(cx, local) {
                return Poll::Ready(end);
            }
            if relay.moved != last_moved {
                last_moved = relay.moved;
                last_active = Instant::now();
            }
            poll_idle(idle.as_mut(), last_active + site.limits.idle, cx)
        })
        .await;
        match end {
            // Nobody may take a request that was cut short for a whole one.
            End::Truncated | End::Client => relay.backend.reset(),
            End::Idle => {
                relay.session.tls.send_close_notify();
                let _ = poll_once(|cx| relay.session.poll_send(cx)).await;
            }
            _ => {}
        }
        end
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll_send(&mut self.client, &mut self.tls, cx)
    }
}

/// Both directions of a connection past its handshake.
struct Relay {
    session: Session,
    backend: BackendStream,
    up: Up,
    down: Down,
    unread: Unread,
    /// Bytes moved in either direction, to know whether the connection is idle.
    moved: u64,
}

/// From the client to the backend.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Up {
    Open,
    /// The client has sent close_notify and the backend has been told.
    Done,
    /// The backend takes no more; what the client sends stays unread.
    Refused,
}

/// From the backend to the client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Down {
    Open,
    /// The backend has sent its end of file; close_notify is on its way.
    Closing,
    Done,
}

/// Received bytes that rustls has not taken yet: it takes 4 KiB at a time, which would be a poor
/// size for reads from a socket. Holds no memory when empty.
#[derive(Default)]
struct Unread {
    bytes: Vec<u8>,
    taken: usize,
}

impl Unread {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn fill(&mut self, received: &[u8]) {
        self.bytes.extend_from_slice(received);
    }
}

impl Read for Unread {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut rest = &self.bytes[self.taken..];
        let read = rest.read(bytes)?;
        self.taken += read;
        if self.taken == self.bytes.len() {
            *self = Self::default();
        }
        Ok(read)
    }
}

impl Relay {
    fn poll(&mut self, cx: &mut Context<'_>, local: &Local) -> Poll<End> {
        let down = self.poll_down(cx, local);
        if let Poll::Ready(Err(end)) = down {
            return Poll::Ready(end);
        }
        if let Poll::Ready(Err(end)) = self.poll_up(cx, local) {
            return Poll::Ready(end);
        }
        // Receiving can have made rustls answer (a key update), which nobody has sent yet.
        if self.session.tls.wants_write()
            && let Poll::Ready(Err(_)) = self.session.poll_send(cx)
        {
            return Poll::Ready(End::Client);
        }
        match (self.up, self.down) {
            (Up::Done, Down::Done) => Poll::Ready(End::Clean),
            (Up::Refused, Down::Done) => Poll::Ready(End::Backend),
            _ => Poll::Pending,
        }
    }

    fn poll_up(&mut self, cx: &mut Context<'_>, local: &Local) -> Poll<Result<(), End>> {
        while self.up == Up::Open {
            let Session { tls, .. } = &mut self.session;
            match tls.reader().fill_buf() {
                Ok([]) => {
                    self.up = match ready!(self.backend.poll_shutdown(cx)) {
                        Ok(()) => Up::Done,
                        Err(_) => Up::Refused,
                    };
                    self.moved += 1;
                    break;
                }
                Ok(bytes) => {
                    match ready!(self.backend.poll_write(cx, bytes)) {
                        Ok(taken) if taken > 0 => {
                            tls.reader().consume(taken);
                            self.moved += taken as u64;
                            local
                                .stats
                                .bytes_from_clients
                                .fetch_add(taken as u64, Relaxed);
                        }
                        _ => self.up = Up::Refused,
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Ready(Err(End::Truncated)),
            }
            // Nothing decrypted is left: on to the next piece of what was received.
            if self.unread.is_empty() && ready!(self.poll_refill(cx, local)).is_err() {
                return Poll::Ready(Err(End::Client));
            }
            let Session { tls, .. } = &mut self.session;
            let processed = match tls.read_tls(&mut self.unread) {
                // The end of file shows at the next look at the plaintext, as such or as an error.
                Ok(_) => tls.process_new_packets().is_ok(),
                Err(_) => false,
            };
            if !processed {
                let _ = self.session.poll_send(cx);
                return Poll::Ready(Err(End::Client));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Receives into `unread`; leaves it empty at the end of file.
    fn poll_refill(&mut self, cx: &mut Context<'_>, local: &Local) -> Poll<io::Result<()>> {
        let mut scratch = local.scratch.borrow_mut();
        let mut buffer = ReadBuf::new(&mut scratch);
        let client = Pin::new(&mut self.session.client);
        ready!(client.poll_read(cx, &mut buffer))?;
        self.unread.fill(buffer.filled());
        Poll::Ready(Ok(()))
    }

    fn poll_down(&mut self, cx: &mut Context<'_>, local: &Local) -> Poll<Result<(), End>> {
        loop {
            if ready!(self.session.poll_send(cx)).is_err() {
                return Poll::Ready(Err(End::Client));
            }
            match self.down {
                Down::Open => {}
                Down::Closing => {
                    let client = Pin::new(&mut self.session.client);
                    if ready!(client.poll_shutdown(cx)).is_err() {
                        return Poll::Ready(Err(End::Client));
                    }
                    self.down = Down::Done;
                    return Poll::Ready(Ok(()));
                }
                Down::Done => return Poll::Ready(Ok(())),
            }
            let mut scratch = local.scratch.borrow_mut();
            let mut buffer = ReadBuf::new(&mut scratch);
            match ready!(self.backend.poll_read(cx, &mut buffer)) {
                Ok(()) if buffer.filled().is_empty() => {
                    self.session.tls.send_close_notify();
                    self.down = Down::Closing;
                    self.moved += 1;
                }
                Ok(()) => {
                    let bytes = buffer.filled();
                    self.moved += bytes.len() as u64;
                    local
                        .stats
                        .bytes_to_clients
                        .fetch_add(bytes.len() as u64, Relaxed);
                    // Takes all: nothing else is waiting, and the limit is as large as the scratch.
                    if self.session.tls.writer().write_all(bytes).is_err() {
                        return Poll::Ready(Err(End::Client));
                    }
                }
                Err(_) => {
                    // What has come so far may be cut short: it must not look like a whole answer.
                    reset(&self.session.client);
                    return Poll::Ready(Err(End::Backend));
                }
            }
        }
    }
}

/// Makes the coming close look broken instead of orderly.
fn reset(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// A connection to a backend.
enum BackendStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl BackendStream {
    async fn connect(backend: &Backend) -> io::Result<Self> {
        match backend {
            Backend::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
            Backend::Unix(path) => Ok(Self::Unix(UnixStream::connect(path).await?)),
            // A leading NUL byte means the abstract namespace.
            Backend::Abstract(name) => {
                Ok(Self::Unix(UnixStream::connect(format!("\0{name}")).await?))
            }
        }
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    /// Likewise, where the socket knows a difference.
    fn reset(&self) {
        if let Self::Tcp(stream) = self {
            reset(stream);
        }
    }
}

/// tokio's socket in the clothes of `std::io`, for rustls: waiting shows as `WouldBlock`.
struct Socket<'a, 'b> {
    stream: &'a mut TcpStream,
    cx: &'a mut Context<'b>,
}

impl Read for Socket<'_, '_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(bytes);
        match Pin::new(&mut *self.stream).poll_read(self.cx, &mut buffer) {
            Poll::Ready(Ok(())) => Ok(buffer.filled().len()),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for Socket<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match Pin::new(&mut *self.stream).poll_write_vectored(self.cx, slices) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket whose last bytes wait for the FIN: one segment instead of two for the network, and for
/// the client to wake up for.
struct LastWords<'a>(&'a TcpStream);

impl Write for LastWords<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        use rustix::net::{SendFlags, send};
        let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
        self.0
            .try_io(Interest::WRITABLE, || Ok(send(self.0, bytes, flags)?))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn pending_if_blocked<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        result => Poll::Ready(result),
    }
}

/// Ready when `deadline` has passed. The timer is moved only when it fires, not at every byte.
fn poll_idle(mut timer: Pin<&mut Sleep>, deadline: Instant, cx: &mut Context<'_>) -> Poll<End> {
    while timer.as_mut().poll(cx).is_ready() {
        if timer.deadline() >= deadline {
            return Poll::Ready(End::Idle);
        }
        timer.as_mut().reset(deadline);
    }
    Poll::Pending
}

/// Tries once and says `Pending` instead of waiting.
async fn poll_once<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    poll_fn(|cx| Poll::Ready(poll(cx))).await
}

/// Bytes read at once, and so the most that waits for a slow reader.
pub(crate) const SCRATCH_BYTES: usize = 32 * 1024;
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of the future that an asynchronous function of six arguments returns.
    fn size_of_future<A, B, C, D, E, G, F: Future>(_: impl FnOnce(A, B, C, D, E, G) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_costs_a_small_task() {
        let size = size_of_future(serve);
        assert!(size <= 1024, "{size} bytes a connection; what has grown?");
    }
}
