//! Sockets that are polled, and rustls on top of them.

use std::io::{self, IoSlice, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::ConnectionCommon;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A nonblocking socket.
pub(crate) trait PollSocket {
    /// Reads once. 0 means end of file.
    fn poll_receive(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Writes once, as much as the socket takes.
    fn poll_send(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;
}

impl<S: AsyncRead + AsyncWrite + Unpin> PollSocket for S {
    fn poll_receive(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(bytes);
        ready!(Pin::new(self).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// One slice alone takes `send`, which costs less than `writev` of a list.
    fn poll_send(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match slices {
            [one] => Pin::new(self).poll_write(cx, one),
            several => Pin::new(self).poll_write_vectored(cx, several),
        }
    }
}

/// Reads once from the socket into rustls. 0 means end of file.
pub(crate) fn read_tls<D>(
    socket: &mut impl PollSocket,
    tls: &mut ConnectionCommon<D>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    pending_if_blocked(tls.read_tls(&mut Polled { socket, cx }))
}

/// Writes all that rustls has to send.
pub(crate) fn write_tls<D>(
    socket: &mut impl PollSocket,
    tls: &mut ConnectionCommon<D>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    let mut socket = Polled { socket, cx };
    while tls.wants_write() {
        if ready!(pending_if_blocked(tls.write_tls(&mut socket)))? == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
    }
    Poll::Ready(Ok(()))
}

/// A socket with `std::io`'s traits, while its task is polled. `WouldBlock` means pending.
struct Polled<'a, 'b, S> {
    socket: &'a mut S,
    cx: &'a mut Context<'b>,
}

impl<S: PollSocket> Read for Polled<'_, '_, S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        blocked_if_pending(self.socket.poll_receive(self.cx, bytes))
    }
}

impl<S: PollSocket> Write for Polled<'_, '_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        blocked_if_pending(self.socket.poll_send(self.cx, slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn blocked_if_pending<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

fn pending_if_blocked<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        result => Poll::Ready(result),
    }
}
