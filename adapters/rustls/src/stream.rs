//! TLS over an asynchronous socket: the handshake through a driver, then plain reads and writes.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, IoSlice, Read, Write};
use std::mem::take;
use std::ops::DerefMut;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::{ClientConfig, ClientConnection, ConnectionCommon, ProtocolVersion, ServerConfig, ServerConnection};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::driver::{Driver, Handshake, HandshakeError};

impl Driver {
    /// Performs the server's side of a handshake over `io` and returns the stream for what follows.
    ///
    /// A flight of handshake messages costs one read and one write; the tickets of TLS 1.3 leave
    /// with the first data, or when the stream is next read or flushed.
    ///
    /// There is no time limit in here: wrap the future into a timeout. Dropping it gives up the
    /// connection and cancels its job.
    ///
    /// # Errors
    ///
    /// When the peer does not complete the handshake (an alert has been sent where TLS has one),
    /// when the socket fails and when the engine has no room for another job.
    pub async fn accept<IO>(
        self: &Rc<Self>,
        config: Arc<ServerConfig>,
        io: IO,
    ) -> Result<ServerStream<IO>, HandshakeError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let mut handshake = self.handshake();
        let connection = ServerConnection::new(config).map_err(HandshakeError::Tls)?;
        let mut stream = TlsStream::new(io, Box::new(connection));
        while stream.tls().is_handshaking() {
            handshake.step(&mut stream).await?;
            if stream.owes_a_flight() {
                poll_fn(|cx| Pin::new(&mut stream).poll_flush(cx)).await?;
            }
        }
        Ok(stream)
    }

    /// Performs the client's side of a handshake with the server called `name` over `io` and
    /// returns the stream for what follows.
    ///
    /// As with [`accept`](Self::accept), there is no time limit in here, and dropping the future
    /// gives up the connection.
    ///
    /// # Errors
    ///
    /// As [`accept`](Self::accept), and when `config` allows no ClientHello.
    pub async fn connect<IO>(
        self: &Rc<Self>,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        io: IO,
    ) -> Result<ClientStream<IO>, HandshakeError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let mut handshake = self.handshake();
        let connection = handshake.start_client(config, name).await?;
        let mut stream = TlsStream::new(io, connection);
        loop {
            poll_fn(|cx| Pin::new(&mut stream).poll_flush(cx)).await?;
            if !stream.tls().is_handshaking() {
                return Ok(stream);
            }
            handshake.step(&mut stream).await?;
        }
    }
}

impl Handshake {
    /// Reads once and processes what came.
    async fn step<IO, C, D>(&mut self, stream: &mut TlsStream<IO, C>) -> Result<(), HandshakeError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
        C: DerefMut<Target = ConnectionCommon<D>> + 'static,
        D: 'static,
    {
        if poll_fn(|cx| stream.poll_read_tls(cx)).await? == 0 {
            return Err(HandshakeError::Closed);
        }
        let connection = stream.connection.take().expect(HELD);
        let (connection, result) = self.process(connection).await;
        stream.connection = Some(connection);
        if let Err(error) = result {
            stream.send_alert().await;
            return Err(error);
        }
        Ok(())
    }
}

/// The server's end of an established TLS connection, made by [`Driver::accept`].
pub type ServerStream<IO> = TlsStream<IO, ServerConnection>;

/// The client's end of an established TLS connection, made by [`Driver::connect`].
pub type ClientStream<IO> = TlsStream<IO, ClientConnection>;

/// One end of an established TLS connection, `C` saying which: see [`ServerStream`] and
/// [`ClientStream`].
///
/// Reading and writing process TLS records on the caller's stack: after the handshake there are no
/// public-key operations any more.
///
/// - A read returns 0 bytes after the peer's `close_notify`. An end of the transport without one is
///   [`UnexpectedEof`](io::ErrorKind::UnexpectedEof): what came before may be cut off.
/// - Both directions close independently: [shutdown](tokio::io::AsyncWriteExt::shutdown) sends
///   `close_notify` and closes the transport's writing side, and reading goes on; a peer that has
///   closed its side can still be written to.
/// - At most 64 KiB of unsent records are held; a write that finds them full waits. Flush after the
///   last write of a burst, as with any buffered stream.
///
/// Early data (0-RTT) is not read: leave `max_early_data_size` of the configuration at 0.
///
/// What the peers agreed upon is asked of [`TlsStream::connection`]: `alpn_protocol()`,
/// `protocol_version()`, `negotiated_cipher_suite()`, `negotiated_key_exchange_group()`,
/// `handshake_kind()`, `peer_certificates()`, a server's `server_name()`.
#[derive(Debug)]
pub struct TlsStream<IO, C> {
    io: IO,
    /// Absent only while the driver has it, that is inside of a handshake.
    connection: Option<Box<C>>,
    /// `close_notify` has been queued.
    closing: bool,
    /// Received, but the plaintext before it has to be read first.
    unread: Vec<u8>,
}

impl<IO, C> TlsStream<IO, C> {
    /// The TLS connection, for what was agreed upon in the handshake.
    pub fn connection(&self) -> &C {
        self.connection.as_ref().expect(HELD)
    }

    /// The transport.
    pub fn get_ref(&self) -> &IO {
        &self.io
    }

    fn tls(&mut self) -> &mut C {
        self.connection.as_mut().expect(HELD)
    }
}

impl<IO> ServerStream<IO> {
    /// Returns whether the peer waits for what has been queued. After a handshake of TLS 1.3 that is
    /// tickets only, which can go out together with the first data.
    fn owes_a_flight(&self) -> bool {
        let connection = self.connection();
        connection.is_handshaking() || connection.protocol_version() != Some(ProtocolVersion::TLSv1_3)
    }
}

impl<IO, C, D> TlsStream<IO, C>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    C: DerefMut<Target = ConnectionCommon<D>>,
{
    fn new(io: IO, mut connection: Box<C>) -> Self {
        connection.set_buffer_limit(Some(UNSENT_LIMIT));
        Self {
            io,
            connection: Some(connection),
            closing: false,
            unread: Vec::new(),
        }
    }

    /// One read of the transport into the TLS connection.
    fn poll_read_tls(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let connection = self.connection.as_mut().expect(HELD);
        or_pending(connection.read_tls(&mut Blocking { io: &mut self.io, cx }))
    }

    /// Takes in what has arrived, with one read of the transport at most. The inner result is that
    /// of TLS.
    ///
    /// rustls reads 4 KiB at a time. A buffer that all streams of a thread share takes in a record
    /// of full size in one system call.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Result<(), rustls::Error>>> {
        let connection = self.connection.as_mut().expect(HELD);
        if !self.unread.is_empty() {
            let received = take(&mut self.unread);
            return Poll::Ready(process(connection, &received, &mut self.unread));
        }
        let mut shared = RECEIVED.take();
        shared.resize(RECEIVED_SIZE, 0);
        let mut buf = ReadBuf::new(&mut shared);
        let poll = Pin::new(&mut self.io).poll_read(cx, &mut buf);
        let poll = poll.map(|read| match (read, buf.filled()) {
            (Err(error), _) => Err(error),
            (Ok(()), []) => connection.read_tls(&mut io::empty()).map(|_| Ok(())),
            (Ok(()), received) => process(connection, received, &mut self.unread),
        });
        RECEIVED.set(shared);
        poll
    }

    /// Writes until no record is left unsent.
    fn poll_flush_tls(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let connection = self.connection.as_mut().expect(HELD);
        while connection.wants_write() {
            let written = connection.write_tls(&mut Blocking { io: &mut self.io, cx });
            if ready!(or_pending(written))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends a queued alert as far as the transport takes it at once; the connection has failed
    /// either way.
    async fn send_alert(&mut self) {
        poll_fn(|cx| {
            let _best_effort = self.poll_flush_tls(cx);
            Poll::Ready(())
        })
        .await;
    }

    /// Hands plaintext over and sends what the transport takes at once.
    fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&mut ConnectionCommon<D>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if self.closing {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        loop {
            let taken = write(self.tls())?;
            match self.poll_flush_tls(cx) {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                // Records that stay behind go out with the next write or flush.
                _ if taken > 0 => return Poll::Ready(Ok(taken)),
                Poll::Ready(Ok(())) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl<IO, C, D> AsyncRead for TlsStream<IO, C>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    C: DerefMut<Target = ConnectionCommon<D>>,
{
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            match self.tls().reader().read(buf.initialize_unfilled()) {
                Ok(read) => {
                    buf.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            // Tickets and answers to key updates. What does not go out now goes out with the next
            // write; its error shows there too.
            let _best_effort = self.poll_flush_tls(cx);
            if let Err(error) = ready!(self.poll_receive(cx))? {
                // The alert.
                let _best_effort = self.poll_flush_tls(cx);
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
            }
        }
    }
}

impl<IO, C, D> AsyncWrite for TlsStream<IO, C>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    C: DerefMut<Target = ConnectionCommon<D>>,
{
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.poll_write_with(cx, |connection| connection.writer().write(buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        self.poll_write_with(cx, |connection| connection.writer().write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush_tls(cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.closing {
            self.closing = true;
            self.tls().send_close_notify();
        }
        ready!(self.poll_flush_tls(cx))?;
        match ready!(Pin::new(&mut self.io).poll_shutdown(cx)) {
            // The peer was faster.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }
}

/// The transport as rustls sees it: synchronous, and "would block" instead of waiting.
struct Blocking<'io, 'cx, 'waker, IO> {
    io: &'io mut IO,
    cx: &'cx mut Context<'waker>,
}

impl<IO: AsyncRead + Unpin> Read for Blocking<'_, '_, '_, IO> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut buf = ReadBuf::new(buf);
        match Pin::new(&mut *self.io).poll_read(self.cx, &mut buf) {
            Poll::Ready(Ok(())) => Ok(buf.filled().len()),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl<IO: AsyncWrite + Unpin> Write for Blocking<'_, '_, '_, IO> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        or_would_block(Pin::new(&mut *self.io).poll_write(self.cx, buf))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        or_would_block(Pin::new(&mut *self.io).poll_write_vectored(self.cx, bufs))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Processes `received` as far as there is room for its plaintext and leaves the rest in `unread`.
fn process<D>(
    connection: &mut ConnectionCommon<D>,
    received: &[u8],
    unread: &mut Vec<u8>,
) -> io::Result<Result<(), rustls::Error>> {
    let mut rest = received;
    // Nothing is read any more after close_notify.
    while !rest.is_empty() && connection.read_tls(&mut rest)? > 0 {
        match connection.process_new_packets() {
            Ok(state) if state.plaintext_bytes_to_read() < PLAINTEXT_LIMIT => {}
            Ok(_) => {
                unread.extend_from_slice(rest);
                break;
            }
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(()))
}

fn or_pending<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        result => Poll::Ready(result),
    }
}

fn or_would_block<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

thread_local! {
    /// Buffer in which the streams of this thread receive; in use only during one read.
    static RECEIVED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A record of full size, with some room for the start of the next.
const RECEIVED_SIZE: usize = 18 * 1024;

/// rustls reads no more once it holds more plaintext than this.
const PLAINTEXT_LIMIT: usize = 16 * 1024;

/// Records that may wait for the transport.
const UNSENT_LIMIT: usize = 64 * 1024;

const HELD: &str = "the driver gives the connection back before anything else uses it";
