//! Tests of a connection after its handshake: data both ways, half-close, truncation, bounded buffers.

mod common;

use std::cell::Cell;
use std::io::{self, IoSlice, Read, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use common::*;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{spawn_local, yield_now};
use widelane_engine::Engine;
use widelane_rustls::{Driver, HandshakeError, ServerStream};

#[test]
fn data_flows_both_ways_and_ends_with_close_notify() {
    for version in [&TLS12, &TLS13] {
        with_pair(version, 64 * 1024, async |mut client, mut server| {
            client.send(b"ping").await;
            let mut ping = [0; 4];
            server.read_exact(&mut ping).await.unwrap();
            assert_eq!(&ping, b"ping");

            let parts = [IoSlice::new(b"po"), IoSlice::new(b"ng")];
            assert_eq!(server.write_vectored(&parts).await.unwrap(), 4);
            server.flush().await.unwrap();
            assert_eq!(client.receive(4).await.unwrap(), b"pong");

            server.shutdown().await.unwrap();
            assert_eq!(client.receive(1).await.unwrap(), b"", "close_notify arrives");
            let closed = server.write_all(b"late").await.unwrap_err();
            assert_eq!(closed.kind(), io::ErrorKind::BrokenPipe);

            client.tls.send_close_notify();
            client.flush().await;
            assert_eq!(server.read(&mut ping).await.unwrap(), 0);
        });
    }
}

#[test]
fn a_flight_costs_one_read_and_one_write() {
    let (engine, config) = server();
    on_event_loop(&engine, async |driver| {
        let (mut client, far) = Client::new(&TLS13);
        let calls = Rc::new(Calls::default());
        let counted = Counted {
            io: far,
            calls: calls.clone(),
        };
        let serving = spawn_local(async move {
            let mut stream = driver.accept(config, counted).await.unwrap();
            let mut request = [0; 7];
            stream.read_exact(&mut request).await.unwrap();
            stream.write_all(b"answer").await.unwrap();
            stream
        });
        client.flush().await;
        while client.tls.is_handshaking() {
            receive(&mut client.tls, &mut client.io).await.unwrap();
        }
        // The last message of the handshake and the request together.
        client.send(b"request").await;
        assert_eq!(client.receive(6).await.unwrap(), b"answer");
        assert_eq!((calls.reads.get(), calls.writes.get()), (2, 2));

        // The tickets came along.
        assert_eq!(client.tls.tls13_tickets_received(), 2);
        drop(serving.await.unwrap());
    });
}

#[test]
fn tickets_do_not_wait_for_data() {
    let (engine, config) = server();
    on_event_loop(&engine, async |driver| {
        let (mut client, far) = Client::new(&TLS13);
        spawn_local(async move {
            let mut stream = driver.accept(config, far).await.unwrap();
            stream.read(&mut [0; 8]).await
        });
        handshake(&mut client.tls, &mut client.io).await.unwrap();
        while client.tls.tls13_tickets_received() == 0 {
            receive(&mut client.tls, &mut client.io).await.unwrap();
        }
    });
}

#[test]
fn each_direction_closes_by_itself() {
    with_pair(&TLS13, 64 * 1024, async |mut client, mut server| {
        // The server has closed its side and goes on reading.
        server.shutdown().await.unwrap();
        client.send(b"still here").await;
        let mut said = [0; 10];
        server.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"still here");
    });
    with_pair(&TLS13, 64 * 1024, async |mut client, mut server| {
        // The client has closed its side and goes on reading.
        client.tls.send_close_notify();
        client.flush().await;
        assert_eq!(server.read(&mut [0; 8]).await.unwrap(), 0);
        server.write_all(b"answer").await.unwrap();
        server.shutdown().await.unwrap();
        assert_eq!(client.receive(6).await.unwrap(), b"answer");
        assert_eq!(client.receive(1).await.unwrap(), b"");
    });
}

#[test]
fn an_end_without_close_notify_is_an_error() {
    with_pair(&TLS13, 64 * 1024, async |mut client, mut server| {
        client.send(b"half a mess").await;
        drop(client);
        let mut all = Vec::new();
        let error = server.read_to_end(&mut all).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(all, b"half a mess");
    });
}

#[test]
fn garbage_is_answered_with_an_alert() {
    with_pair(&TLS13, 64 * 1024, async |mut client, mut server| {
        client
            .io
            .write_all(b"\x17\x03\x03\x00\x20 this is not a record of ours at all")
            .await
            .unwrap();
        let error = server.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let alert = client.receive(1).await.unwrap_err();
        assert!(alert.to_string().contains("BadRecordMac"), "{alert}");
    });

    let (driver_engine, config) = server();
    on_event_loop(&driver_engine, async |driver| {
        let (mut io, far) = duplex(4096);
        io.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .await
            .unwrap();
        let error = driver.accept(config, far).await.unwrap_err();
        assert!(matches!(error, HandshakeError::Tls(_)), "{error:?}");
        let mut alert = Vec::new();
        io.read_to_end(&mut alert).await.unwrap();
        assert_eq!(alert.first(), Some(&21), "a record of type alert: {alert:?}");
    });
}

#[test]
fn unsent_data_is_bounded_and_arrives_whole() {
    with_pair(&TLS13, 4096, async |mut client, mut server| {
        let sent: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
        let writer = spawn_local({
            let sent = sent.clone();
            async move {
                // One write takes at most what may stay unsent.
                let taken = server.write(&sent).await.unwrap();
                assert!(taken <= 64 * 1024, "{taken} bytes taken at once");
                server.write_all(&sent[taken..]).await.unwrap();
                server.shutdown().await.unwrap();
            }
        });
        yield_now().await;
        assert!(!writer.is_finished(), "the peer has not read yet");
        assert_eq!(client.receive(sent.len()).await.unwrap(), sent);
        writer.await.unwrap();
    });
}

#[test]
fn a_slow_reader_holds_the_peer_up() {
    with_pair(&TLS13, 4096, async |mut client, mut server| {
        let sent: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 241) as u8).collect();
        let expected = sent.clone();
        let writer = spawn_local(async move {
            for part in sent.chunks(10_000) {
                client.send(part).await;
            }
            client.tls.send_close_notify();
            client.flush().await;
        });
        for _ in 0..10 {
            yield_now().await;
        }
        assert!(!writer.is_finished(), "the peer has not read yet");
        let mut all = Vec::new();
        server.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, expected);
        writer.await.unwrap();
    });
}

#[test]
fn it_works_over_tcp() {
    let (engine, config) = server();
    on_event_loop(&engine, async |driver| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = spawn_local(async move {
            let (socket, _) = listener.accept().await.unwrap();
            let mut stream = driver.accept(config, socket).await.unwrap();
            assert_eq!(stream.connection().server_name(), Some("localhost"));
            assert!(stream.get_ref().peer_addr().unwrap().ip().is_loopback());
            let mut request = Vec::new();
            stream.read_to_end(&mut request).await.unwrap();
            stream.write_all(&request).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let io = TcpStream::connect(address).await.unwrap();
        let mut client = Client {
            io,
            tls: client(&client_config(&TLS13), "localhost"),
        };
        handshake(&mut client.tls, &mut client.io).await.unwrap();
        client.tls.writer().write_all(b"echo").unwrap();
        client.tls.send_close_notify();
        flush(&mut client.tls, &mut client.io).await.unwrap();
        let mut answer = [0; 4];
        while client.tls.reader().read(&mut answer).is_err() {
            receive(&mut client.tls, &mut client.io).await.unwrap();
        }
        assert_eq!(&answer, b"echo");
        serving.await.unwrap();
    });
}

struct Client<IO> {
    io: IO,
    tls: ClientConnection,
}

impl Client<DuplexStream> {
    /// A client, and the other end of its transport.
    fn new(version: &'static SupportedProtocolVersion) -> (Self, DuplexStream) {
        let (io, far) = duplex(64 * 1024);
        let tls = client(&client_config(version), "localhost");
        (Self { io, tls }, far)
    }

    async fn send(&mut self, data: &[u8]) {
        self.tls.writer().write_all(data).unwrap();
        self.flush().await;
    }

    async fn flush(&mut self) {
        flush(&mut self.tls, &mut self.io).await.unwrap();
    }

    /// Reads `length` bytes, less if the server closes first.
    async fn receive(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        while all.len() < length {
            let mut part = vec![0; length - all.len()];
            match self.tls.reader().read(&mut part) {
                Ok(0) => break,
                Ok(read) => all.extend_from_slice(&part[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    receive(&mut self.tls, &mut self.io).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }
}

/// Counts the calls that move bytes: each would be a system call.
struct Counted {
    io: DuplexStream,
    calls: Rc<Calls>,
}

#[derive(Default)]
struct Calls {
    reads: Cell<usize>,
    writes: Cell<usize>,
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        self.calls.reads.set(self.calls.reads.get() + 1);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.calls.writes.set(self.calls.writes.get() + 1);
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        self.poll_write(cx, &all)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

fn server() -> (Engine, Arc<ServerConfig>) {
    let engine = engine();
    let config = rsa_server(&engine, RSA_2048);
    (engine, config)
}

/// Runs `test` on a connected pair whose transport holds `capacity` bytes each way.
fn with_pair<F: Future<Output = ()>>(
    version: &'static rustls::SupportedProtocolVersion,
    capacity: usize,
    test: impl FnOnce(Client<DuplexStream>, ServerStream<DuplexStream>) -> F,
) {
    let (engine, config) = server();
    on_event_loop(&engine, async |driver| {
        let (io, far) = duplex(capacity);
        let mut client = Client {
            io,
            tls: client(&client_config(version), "localhost"),
        };
        let accepting: Rc<Driver> = driver.clone();
        let accepting = spawn_local(async move { accepting.accept(config, far).await });
        handshake(&mut client.tls, &mut client.io).await.unwrap();
        let server = accepting.await.unwrap().unwrap();
        test(client, server).await;
        assert_eq!(driver.stacks_in_use(), 0);
    });
}
