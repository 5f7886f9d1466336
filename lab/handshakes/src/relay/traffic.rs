//! The client of the relayed bytes: one thread, rustls with its stock provider, no code of ours.

use crate::backend::{Order, RECEIVED};
use crate::crowd::{Crowd, Request};
use rustls::client::{ClientConnection, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{CipherSuite, ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Result of one turn, without the server's CPU time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) seconds: f64,
    /// Increase of the server's CPU time; `None` if the kernel keeps no such account, or if a thread of the server has
    /// ended and taken its time with it.
    pub(crate) server_cpu: Option<Duration>,
    /// Requests with their answers; with bulk, 1.
    pub(crate) requests: u64,
    /// Median time of a request, in microseconds.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// A client of one server.
pub(crate) struct Client<'a> {
    address: SocketAddr,
    config: Arc<ClientConfig>,
    /// The CPU time of the server so far.
    server_cpu: &'a dyn Fn() -> Option<Duration>,
    /// Returns whether the turn is to end at once.
    interrupted: &'a dyn Fn() -> bool,
}

impl<'a> Client<'a> {
    pub(crate) fn new(
        address: SocketAddr,
        suite: CipherSuite,
        roots: RootCertStore,
        server_cpu: &'a dyn Fn() -> Option<Duration>,
        interrupted: &'a dyn Fn() -> bool,
    ) -> io::Result<Self> {
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites.retain(|one| one.suite() == suite);
        Ok(Self {
            address,
            config: config(provider, roots).map_err(io::Error::other)?,
            server_cpu,
            interrupted,
        })
    }

    /// Runs one connection, over which the backend sends `bytes` bytes.
    pub(crate) fn download(&self, bytes: u64) -> io::Result<Turn> {
        self.timed(|| {
            let mut session = self.connect()?;
            session.send(&Order::Download(bytes).encode())?;
            let mut left = bytes;
            while left > 0 {
                self.go_on()?;
                left -= session.receive(left)?.0;
            }
            Ok(())
        })
    }

    /// Runs one connection, over which the backend receives `bytes` bytes, and confirms them.
    pub(crate) fn upload(&self, bytes: u64) -> io::Result<Turn> {
        self.timed(|| {
            let mut session = self.connect()?;
            session.send(&Order::Upload(bytes).encode())?;
            let piece = vec![b'x'; PIECE];
            let mut left = bytes;
            while left > 0 {
                self.go_on()?;
                let now = left.min(PIECE as u64);
                session.send(&piece[..now as usize])?;
                left -= now;
            }
            match session.receive(1)? {
                (1, RECEIVED) => Ok(()),
                _ => Err(io::Error::other("the backend did not confirm an upload")),
            }
        })
    }

    /// Runs `connections` that are kept open: each sends [`REQUEST`] again as soon as it is answered, for
    /// so long, after a warm-up that is not measured.
    pub(crate) fn requests(&self, connections: usize, warmup: Duration, duration: Duration) -> io::Result<Turn> {
        let mut crowd = Crowd::new(self, connections, &Order::Echo.encode(), &REQUEST)?;
        crowd.run(self, None, warmup)?;
        let (start, before) = (Instant::now(), (self.server_cpu)());
        let mut latencies = crowd.run(self, None, duration)?;
        let seconds = start.elapsed().as_secs_f64();
        let server_cpu = self.spent_since(before);
        latencies.sort_unstable();
        let at = |share| us_at(&latencies, share).unwrap_or(0.0);
        Ok(Turn {
            seconds,
            server_cpu,
            requests: latencies.len() as u64,
            p50_us: at(0.5),
            p99_us: at(0.99),
        })
    }

    fn timed(&self, run: impl FnOnce() -> io::Result<()>) -> io::Result<Turn> {
        let (start, before) = (Instant::now(), (self.server_cpu)());
        run()?;
        let seconds = start.elapsed().as_secs_f64();
        Ok(Turn {
            seconds,
            server_cpu: self.spent_since(before),
            requests: 1,
            p50_us: seconds * 1e6,
            p99_us: seconds * 1e6,
        })
    }

    fn spent_since(&self, before: Option<Duration>) -> Option<Duration> {
        (self.server_cpu)()?.checked_sub(before?)
    }

    /// A connection past its handshake.
    pub(crate) fn connect(&self) -> io::Result<Session> {
        let mut socket = TcpStream::connect(self.address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let tls = ClientConnection::new(Arc::clone(&self.config), name);
        let mut tls = tls.map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        Ok(Session {
            socket,
            tls,
            wire: vec![0; PIECE],
            plain: vec![0; PIECE],
        })
    }

    /// An error once the turn is to end.
    pub(crate) fn go_on(&self) -> io::Result<()> {
        match (self.interrupted)() {
            true => Err(io::Error::other("interrupted")),
            false => Ok(()),
        }
    }
}

/// Microseconds in which this share of requests was answered, by their nanoseconds in ascending order.
pub(crate) fn us_at(sorted: &[u32], share: f64) -> Option<f64> {
    let index = (sorted.len() as f64 * share) as usize;
    sorted.get(index).map(|&ns| f64::from(ns) / 1e3)
}

/// A connection past its handshake.
pub(crate) struct Session {
    pub(crate) socket: TcpStream,
    tls: ClientConnection,
    wire: Vec<u8>,
    plain: Vec<u8>,
}

impl Session {
    /// Writes all of it, as few records as possible.
    pub(crate) fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = self.tls.writer().write(bytes)?;
            bytes = &bytes[taken..];
            while self.tls.wants_write() {
                self.tls.write_tls(&mut self.socket)?;
            }
        }
        Ok(())
    }

    /// Reads once, and gives how many decrypted bytes came, and the last of them. They must not be
    /// more than `most`, and may be none if a record is not complete yet.
    pub(crate) fn receive(&mut self, most: u64) -> io::Result<(u64, u8)> {
        let (mut received, mut last) = (0, 0);
        // One record brings all of a few bytes.
        while received == 0 {
            let read = self.socket.read(&mut self.wire)?;
            if read == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let mut wire = &self.wire[..read];
            while !wire.is_empty() {
                self.tls.read_tls(&mut wire)?;
                let state = self.tls.process_new_packets().map_err(io::Error::other)?;
                if state.plaintext_bytes_to_read() == 0 {
                    continue;
                }
                let read = self.tls.reader().read(&mut self.plain)?;
                if read == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                received += read as u64;
                last = self.plain[read - 1];
            }
        }
        match received > most {
            true => Err(io::Error::other("more came than was ordered")),
            false => Ok((received, last)),
        }
    }
}

/// Configuration of a client of TLS 1.3 that resumes no session and trusts these certificates.
pub(crate) fn config(provider: CryptoProvider, roots: RootCertStore) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// A small request, which the backend sends back.
static REQUEST: [Request; 1] = [Request {
    asks: b"get",
    hears: b"get",
}];
/// Read or written at once.
const PIECE: usize = 256 * 1024;
/// Longest silence of a server.
const PATIENCE: Duration = Duration::from_secs(10);
