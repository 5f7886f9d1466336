//! The sockets, timers and tasks of tokio, for the resolver. Its own ones need tokio's scheduler for several
//! threads, with which each timer of a connection is larger.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_io::{AsyncRead, AsyncWrite};
use hickory_resolver::net::runtime::{DnsTcpStream, DnsUdpSocket, RuntimeProvider, Spawn, Time};
use tokio::io::ReadBuf;
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::task::JoinSet;

/// What one resolver opens. Its tasks end with it.
#[derive(Clone, Default)]
pub(crate) struct Sockets {
    tasks: Tasks,
}

#[derive(Clone, Default)]
pub(crate) struct Tasks(Arc<Mutex<JoinSet<()>>>);

pub(crate) struct Timer;

pub(crate) struct Udp(UdpSocket);

pub(crate) struct Tcp(TcpStream);

type Opening<T> = Pin<Box<dyn Send + Future<Output = io::Result<T>>>>;

impl RuntimeProvider for Sockets {
    type Handle = Tasks;
    type Timer = Timer;
    type Udp = Udp;
    type Tcp = Tcp;

    fn create_handle(&self) -> Tasks {
        self.tasks.clone()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        from: Option<SocketAddr>,
        limit: Option<Duration>,
    ) -> Opening<Tcp> {
        Box::pin(async move {
            let socket = match server {
                SocketAddr::V4(_) => TcpSocket::new_v4(),
                SocketAddr::V6(_) => TcpSocket::new_v6(),
            }?;
            if let Some(from) = from {
                socket.bind(from)?;
            }
            socket.set_nodelay(true)?;
            let limit = limit.unwrap_or(CONNECTING);
            let connected = tokio::time::timeout(limit, socket.connect(server)).await;
            Ok(Tcp(connected.map_err(|_| io::ErrorKind::TimedOut)??))
        })
    }

    fn bind_udp(&self, from: SocketAddr, _: SocketAddr) -> Opening<Udp> {
        Box::pin(async move { Ok(Udp(UdpSocket::bind(from).await?)) })
    }
}

impl Spawn for Tasks {
    fn spawn_bg(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.spawn(task);
        while tasks.try_join_next().is_some() {}
    }
}

#[async_trait::async_trait]
impl Time for Timer {
    async fn delay_for(duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    async fn timeout<F: 'static + Future + Send>(
        duration: Duration,
        future: F,
    ) -> io::Result<F::Output> {
        let done = tokio::time::timeout(duration, future).await;
        done.map_err(|_| io::ErrorKind::TimedOut.into())
    }
}

#[async_trait::async_trait]
impl DnsUdpSocket for Udp {
    type Time = Timer;

    fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let mut buffer = ReadBuf::new(buffer);
        let received = self.0.poll_recv_from(cx, &mut buffer);
        received.map_ok(|from| (buffer.filled().len(), from))
    }

    fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        to: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.0.poll_send_to(cx, bytes, to)
    }
}

impl DnsTcpStream for Tcp {
    type Time = Timer;
}

impl AsyncRead for Tcp {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        let read = tokio::io::AsyncRead::poll_read(Pin::new(&mut self.0), cx, &mut buffer);
        read.map_ok(|()| buffer.filled().len())
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        tokio::io::AsyncWrite::poll_write(Pin::new(&mut self.0), cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        tokio::io::AsyncWrite::poll_flush(Pin::new(&mut self.0), cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        tokio::io::AsyncWrite::poll_shutdown(Pin::new(&mut self.0), cx)
    }
}

const CONNECTING: Duration = Duration::from_secs(5);
