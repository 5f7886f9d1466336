//! A connection to a backend, over TCP or a UNIX socket.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::config::Backend;

/// A connection to a backend.
pub(crate) enum BackendStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl BackendStream {
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
            Backend::Abstract(name) => {
                Ok(Self::Unix(UnixStream::connect(format!("\0{name}")).await?))
            }
        }
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    /// Lets the close that follows send a reset. UNIX sockets have none.
    pub(crate) fn reset(&self) {
        if let Self::Tcp(stream) = self {
            reset(stream);
        }
    }
}

/// Lets the close that follows send a reset.
pub(crate) fn reset(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
