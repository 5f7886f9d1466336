//! A connection to a backend, over TCP or a UNIX socket, with TLS or without.

use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::ClientConnection;
use tokio::io::AsyncWrite;
use tokio::net::{TcpStream, UnixStream};

use crate::back::tls_failure::TlsFailure;
use crate::config::Backend;
use crate::io::{PollSocket, write_tls};

/// A connection to a backend.
pub(crate) struct BackendStream {
    pub(crate) socket: Socket,
    /// Past its handshake. `None`: the backend speaks no TLS.
    pub(crate) tls: Option<Box<ClientConnection>>,
}

/// A connected socket.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Reason why an address of a backend was not reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Missed {
    #[error("{0}")]
    Socket(io::Error),
    #[error("{0}")]
    Tls(TlsFailure),
    /// The attempt took too long.
    #[error("no answer in time")]
    Late,
}

impl BackendStream {
    /// Sends `bytes`. With TLS, it takes all of them once all from before have left.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(cx))?;
        let Some(tls) = &mut self.tls else {
            return self.socket.poll_send(cx, &[IoSlice::new(bytes)]);
        };
        let taken = tls.writer().write(bytes)?;
        match self.poll_flush(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(taken)),
        }
    }

    /// Sends what was encrypted before.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.tls {
            Some(tls) => write_tls(&mut self.socket, tls, cx),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Ends our direction, with close_notify if there is TLS.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(tls) = &mut self.tls {
            // Once only: rustls sends nothing after it.
            tls.send_close_notify();
        }
        ready!(self.poll_flush(cx))?;
        self.socket.poll_shutdown(cx)
    }

    /// Lets the close that follows send a reset. UNIX sockets have none.
    pub(crate) fn reset(&self) {
        if let Socket::Tcp(stream) = &self.socket {
            reset(stream);
        }
    }
}

impl Socket {
    pub(crate) async fn connect(backend: &Backend) -> io::Result<Self> {
        match backend {
            Backend::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
            Backend::Unix(path) => Ok(Self::Unix(UnixStream::connect(path).await?)),
            // A pool has the addresses of a name in its place.
            Backend::Name(name) => Err(io::Error::other(format!("{name} is no address"))),
            // A leading NUL byte means the abstract namespace.
            Backend::Abstract(name) => Ok(Self::Unix(UnixStream::connect(format!("\0{name}")).await?)),
        }
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

impl PollSocket for Socket {
    fn poll_receive(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => stream.poll_receive(cx, bytes),
            Self::Unix(stream) => stream.poll_receive(cx, bytes),
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => stream.poll_send(cx, slices),
            Self::Unix(stream) => stream.poll_send(cx, slices),
        }
    }
}

/// Lets the close that follows send a reset.
pub(crate) fn reset(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
