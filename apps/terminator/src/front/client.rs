//! A client's socket.
//!
//! The event loop watches a socket from when it has to wait for it, not from the start. Most clients
//! have sent their ClientHello by the time their connection is accepted; a client that is near also
//! answers while the worker is busy with other handshakes. A handshake that never has to wait costs
//! no registration with the event loop, and a connection that ends with it none of the two system
//! calls for that.

use std::io::{self, IoSlice, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, acceptfrom_with, recv, sendmsg};
use socket2::SockRef;
use tokio::io::{Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::io::PollSocket;

/// A nonblocking socket of a client.
#[derive(Debug)]
pub(crate) struct Client(State);

#[derive(Debug)]
enum State {
    /// The event loop knows nothing of it.
    Bare(OwnedFd),
    /// The event loop watches it.
    Watched(TcpStream),
    /// The socket could not be watched, and is closed.
    Lost,
}

impl Client {
    /// Accepts a connection that waits at `listener`.
    pub(crate) fn accept(listener: &TcpListener) -> io::Result<(Self, SocketAddr)> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, peer) = acceptfrom_with(listener, flags)?;
        let peer = peer.and_then(|peer| peer.try_into().ok());
        let peer = peer.ok_or(Errno::AFNOSUPPORT)?;
        Ok((Self(State::Bare(socket)), peer))
    }

    /// Returns whether the event loop does not watch it yet.
    pub(crate) fn is_bare(&self) -> bool {
        matches!(self.0, State::Bare(_))
    }

    /// Has the event loop watch it from now on.
    pub(crate) fn watch(&mut self) -> io::Result<()> {
        self.0 = match std::mem::replace(&mut self.0, State::Lost) {
            State::Bare(socket) => State::Watched(TcpStream::from_std(socket.into())?),
            other => other,
        };
        Ok(())
    }

    /// The watched socket.
    pub(crate) fn into_stream(mut self) -> io::Result<TcpStream> {
        self.watch()?;
        match self.0 {
            State::Watched(stream) => Ok(stream),
            State::Bare(_) | State::Lost => Err(lost()),
        }
    }

    /// Ends our direction.
    pub(crate) fn shut_down(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(self.fd()?, rustix::net::Shutdown::Write)?)
    }

    /// Returns whether the client has closed or reset the connection, as far as no bytes of it lie before that.
    pub(crate) fn has_gone(&self) -> bool {
        let Ok(fd) = self.fd() else { return true };
        match recv(fd, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, read)) => read == 0,
            Err(error) => error != Errno::AGAIN && error != Errno::INTR,
        }
    }

    /// Ready when the client has closed or reset the connection. One that goes on to send is taken to be there.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.watch().is_err() {
            return Poll::Ready(());
        }
        let Ok(stream) = self.stream() else {
            return Poll::Ready(());
        };
        match ready!(stream.poll_peek(cx, &mut ReadBuf::new(&mut [0; 1]))) {
            Ok(read) if read > 0 => Poll::Pending,
            Ok(_) | Err(_) => Poll::Ready(()),
        }
    }

    /// Has the connection be reset when it is dropped, so that the client learns at once that it is not served.
    pub(crate) fn reset(&self) {
        if let Ok(fd) = self.fd() {
            let _ = SockRef::from(&fd).set_linger(Some(Duration::ZERO));
        }
    }

    /// A writer whose bytes wait for the FIN, so that both are one segment and wake the client
    /// once. The caller must end the stream.
    pub(crate) fn last_words(&self) -> LastWords<'_> {
        LastWords(self)
    }

    fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        match &self.0 {
            State::Bare(socket) => Ok(socket.as_fd()),
            State::Watched(stream) => Ok(stream.as_fd()),
            State::Lost => Err(lost()),
        }
    }

    fn stream(&mut self) -> io::Result<&mut TcpStream> {
        match &mut self.0 {
            State::Watched(stream) => Ok(stream),
            State::Bare(_) | State::Lost => Err(lost()),
        }
    }
}

impl From<TcpStream> for Client {
    fn from(stream: TcpStream) -> Self {
        Self(State::Watched(stream))
    }
}

impl PollSocket for Client {
    fn poll_receive(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        if let State::Bare(socket) = &self.0 {
            match receive(socket, bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.watch()?,
                received => return Poll::Ready(received),
            }
        }
        self.stream()?.poll_receive(cx, bytes)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if let State::Bare(socket) = &self.0 {
            match send(socket, slices, SendFlags::empty()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.watch()?,
                sent => return Poll::Ready(sent),
            }
        }
        self.stream()?.poll_send(cx, slices)
    }
}

/// See [`Client::last_words`].
pub(crate) struct LastWords<'a>(&'a Client);

impl Write for LastWords<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    /// rustls has tickets and close_notify in two pieces: one system call sends both.
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.0.0 {
            State::Bare(socket) => send(socket, slices, SendFlags::MORE),
            State::Watched(stream) => stream.try_io(Interest::WRITABLE, || send(stream, slices, SendFlags::MORE)),
            State::Lost => Err(lost()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
    let (_, received) = recv(socket, bytes, RecvFlags::empty())?;
    Ok(received)
}

fn send(socket: impl AsFd, slices: &[IoSlice<'_>], flags: SendFlags) -> io::Result<usize> {
    let mut nothing = SendAncillaryBuffer::default();
    let flags = flags | SendFlags::NOSIGNAL;
    Ok(sendmsg(socket, slices, &mut nothing, flags)?)
}

fn lost() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Read;
    use std::net::TcpStream as Peer;

    use super::*;

    impl From<OwnedFd> for Client {
        fn from(socket: OwnedFd) -> Self {
            Self(State::Bare(socket))
        }
    }

    fn pair() -> (Peer, Client) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = Peer::connect(listener.local_addr().unwrap()).unwrap();
        let (client, address) = Client::accept(&listener).unwrap();
        assert_eq!(address, peer.local_addr().unwrap());
        (peer, client)
    }

    async fn read(client: &mut Client) -> Vec<u8> {
        let mut bytes = [0; 64];
        let read = poll_fn(|cx| client.poll_receive(cx, &mut bytes)).await;
        bytes[..read.unwrap()].to_vec()
    }

    #[tokio::test]
    async fn what_is_there_is_read_without_the_event_loop() {
        let (mut peer, mut client) = pair();
        peer.write_all(b"hello").unwrap();
        assert_eq!(read(&mut client).await, b"hello");
        let words = [IoSlice::new(b"to "), IoSlice::new(b"you")];
        let written = poll_fn(|cx| client.poll_send(cx, &words)).await;
        assert_eq!(written.unwrap(), 6);
        assert!(client.is_bare());
        let mut heard = [0; 6];
        peer.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"to you");
    }

    #[tokio::test]
    async fn a_client_that_has_to_be_waited_for_is_watched() {
        let (mut peer, mut client) = pair();
        let late = tokio::spawn(async move {
            tokio::task::yield_now().await;
            peer.write_all(b"at last").unwrap();
            peer
        });
        assert_eq!(read(&mut client).await, b"at last");
        assert!(!client.is_bare());
        drop(late.await.unwrap());
        assert_eq!(read(&mut client).await, b"");
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_waited_for() {
        let (mut peer, mut client) = pair();
        let much = vec![7; 64 * 1024];
        let words = [IoSlice::new(&much)];
        let mut reader = None;
        let mut written = 0;
        while reader.is_none() {
            let write = poll_fn(|cx| {
                let poll = client.poll_send(cx, &words);
                if poll.is_pending() && reader.is_none() {
                    let mut peer = peer.try_clone().unwrap();
                    reader = Some(std::thread::spawn(move || {
                        let mut heard = Vec::new();
                        peer.read_to_end(&mut heard).map(|_| heard.len())
                    }));
                }
                poll
            });
            written += write.await.unwrap();
        }
        assert!(!client.is_bare());
        drop(client);
        let heard = reader.unwrap().join().unwrap();
        assert_eq!(heard.unwrap(), written);
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    }

    #[tokio::test]
    async fn last_words_in_several_pieces_leave_together() {
        for watched in [false, true] {
            let (mut peer, mut client) = pair();
            if watched {
                client.watch().unwrap();
                let Client(State::Watched(stream)) = &client else {
                    unreachable!()
                };
                stream.writable().await.unwrap();
            }
            let pieces = [IoSlice::new(b"tickets"), IoSlice::new(b"close_notify")];
            assert_eq!(client.last_words().write_vectored(&pieces).unwrap(), 19);
            drop(client);
            let mut heard = Vec::new();
            peer.read_to_end(&mut heard).unwrap();
            assert_eq!(heard, b"ticketsclose_notify");
        }
    }

    #[tokio::test]
    async fn a_client_that_closes_is_seen_to_go_and_one_that_waits_or_sends_is_not() {
        for watched in [false, true] {
            let (mut peer, mut client) = pair();
            if watched {
                client.watch().unwrap();
            }
            assert!(!client.has_gone());
            assert!(poll_fn(|cx| Poll::Ready(client.poll_gone(cx))).await.is_pending());
            peer.shutdown(std::net::Shutdown::Write).unwrap();
            poll_fn(|cx| client.poll_gone(cx)).await;
            assert!(client.has_gone());

            let (other, mut client) = pair();
            peer = other;
            peer.write_all(b"more").unwrap();
            assert!(!client.has_gone());
            assert!(poll_fn(|cx| Poll::Ready(client.poll_gone(cx))).await.is_pending());
        }
    }

    #[tokio::test]
    async fn a_client_that_is_not_served_gets_a_reset() {
        let (mut peer, client) = pair();
        client.reset();
        drop(client);
        let error = peer.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn a_peer_that_is_gone_is_an_error_and_no_signal() {
        let (peer, mut client) = pair();
        socket2::SockRef::from(&peer)
            .set_linger(Some(std::time::Duration::ZERO))
            .unwrap();
        drop(peer);
        let mut bytes = [0; 8];
        assert!(poll_fn(|cx| client.poll_receive(cx, &mut bytes)).await.is_err());
        assert!(client.last_words().write(b"anybody?").is_err());
    }
}
