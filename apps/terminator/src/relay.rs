//! A connection past its handshake: it reaches the backend, and relays both ways.

use std::future::poll_fn;
use std::io::{self, BufRead, Read, Write};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use rustls::{HandshakeKind, ProtocolVersion, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::backend::{BackendStream, reset};
use crate::connection::poll_send;
use crate::local::Local;
use crate::proxy;
use crate::shared::Site;
use crate::stats::End;

/// A client's socket and its TLS state, past the handshake.
pub(crate) struct Session {
    pub(crate) client: TcpStream,
    pub(crate) tls: Box<ServerConnection>,
}

impl Session {
    pub(crate) async fn reach_backend(
        &self,
        peer: SocketAddr,
        site: &Site,
    ) -> Result<BackendStream, End> {
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
        let cipher = suite.map(|suite| proxy::cipher_name(suite.suite()));
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
    pub(crate) async fn relay(
        &mut self,
        backend: BackendStream,
        site: &Site,
        local: &Local,
    ) -> End {
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
        poll_fn(|cx| {
            if let Poll::Ready(end) = relay.poll(cx, local) {
                return Poll::Ready(end);
            }
            if relay.moved != last_moved {
                last_moved = relay.moved;
                last_active = Instant::now();
            }
            poll_idle(idle.as_mut(), last_active + site.limits.idle, cx)
        })
        .await
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll_send(&mut self.client, &mut self.tls, cx)
    }
}

/// Both directions of a connection past its handshake.
struct Relay<'a> {
    session: &'a mut Session,
    backend: BackendStream,
    up: Up,
    down: Down,
    unread: Unread,
    /// Bytes moved in either direction, to know whether the connection is idle.
    moved: u64,
}

/// A relay that ends before both directions have ended, by an error, a time limit or the end of the
/// server, was cut. The backend sees a reset: it must not take half a request for a whole one. The
/// client sees an end without close_notify, which it gets only after the backend's own end.
impl Drop for Relay<'_> {
    fn drop(&mut self) {
        if (self.up, self.down) != (Up::Done, Down::Done) {
            self.backend.reset();
        }
    }
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

/// Received bytes that rustls has not taken yet. rustls takes 4 KiB at a time; reads from a socket
/// are larger because each costs a system call. Holds no memory when empty.
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

impl Relay<'_> {
    fn poll(&mut self, cx: &mut Context<'_>, local: &Local) -> Poll<End> {
        let down = self.poll_down(cx, local);
        if let Poll::Ready(Err(end)) = down {
            return Poll::Ready(end);
        }
        if let Poll::Ready(Err(end)) = self.poll_up(cx, local) {
            return Poll::Ready(end);
        }
        // rustls may have queued an answer (a key update) to what was received.
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
            // All decrypted bytes are gone: decrypt the next piece.
            if self.unread.is_empty() && ready!(self.poll_refill(cx, local)).is_err() {
                return Poll::Ready(Err(End::Client));
            }
            let Session { tls, .. } = &mut self.session;
            let processed = match tls.read_tls(&mut self.unread) {
                // The next look at the plaintext shows the end of file, or the error that it is.
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

    /// Receives into `unread`, which stays empty at the end of file.
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
                    // rustls takes all of it: nothing else waits, and its limit is larger.
                    if self.session.tls.writer().write_all(bytes).is_err() {
                        return Poll::Ready(Err(End::Client));
                    }
                }
                Err(_) => {
                    // The answer may be incomplete, and must not look complete.
                    reset(&self.session.client);
                    return Poll::Ready(Err(End::Backend));
                }
            }
        }
    }
}

/// Ready when `deadline` has passed. The timer is set again only when it fires, not for each byte.
fn poll_idle(mut timer: Pin<&mut Sleep>, deadline: Instant, cx: &mut Context<'_>) -> Poll<End> {
    while timer.as_mut().poll(cx).is_ready() {
        if timer.deadline() >= deadline {
            return Poll::Ready(End::Idle);
        }
        timer.as_mut().reset(deadline);
    }
    Poll::Pending
}

/// The size of a read, and so the most that waits for a slow reader.
pub(crate) const SCRATCH_BYTES: usize = 32 * 1024;
