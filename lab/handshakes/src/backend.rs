//! The server behind the servers: a thread of this process that does what each connection orders.
//!
//! A terminator relays what it decrypts. So that its CPU time is that of the relay alone, the
//! backend runs on the load's CPU, does no work of its own, and answers at once. An order is
//! [`Order::encode`]'s nine bytes; a connection may give several, one after the other.

use crate::error::TrialError;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::thread::{self, JoinHandle};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// Order of a client to the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Send this number of bytes.
    Download(u64),
    /// Take this number of bytes, and answer with [`RECEIVED`] once they are there.
    Upload(u64),
    /// Send back whatever comes, until the end.
    Echo,
}

impl Order {
    /// Bytes of the order on the network.
    pub(crate) fn encode(self) -> [u8; ORDER_BYTES] {
        let (kind, bytes) = match self {
            Self::Download(bytes) => (b'd', bytes),
            Self::Upload(bytes) => (b'u', bytes),
            Self::Echo => (b'e', 0),
        };
        let mut order = [kind; ORDER_BYTES];
        order[1..].copy_from_slice(&bytes.to_be_bytes());
        order
    }

    fn decode([kind, bytes @ ..]: [u8; ORDER_BYTES]) -> Option<Self> {
        let bytes = u64::from_be_bytes(bytes);
        match kind {
            b'd' => Some(Self::Download(bytes)),
            b'u' => Some(Self::Upload(bytes)),
            b'e' => Some(Self::Echo),
            _ => None,
        }
    }
}

/// The answer to a complete upload.
pub(crate) const RECEIVED: u8 = b'.';

/// A running backend. Dropping it ends its thread and closes its connections.
#[derive(Debug)]
pub(crate) struct Backend {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Backend {
    /// Starts a backend on a free port of the loopback interface, on `cpu`.
    ///
    /// # Errors
    ///
    /// What the system refuses.
    pub(crate) fn start(cpu: usize) -> Result<Self, TrialError> {
        Self::open(cpu).map_err(TrialError::machine("cannot start a backend"))
    }

    fn open(cpu: usize) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        // The standard library asks for 128, which a burst of new connections exceeds.
        rustix::net::listen(&listener, BACKLOG)?;
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_io().build()?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("backend".into()).spawn(move || {
            // A thread that may not run on the CPU runs where it may, and the figures show that.
            let _ = widelane_affinity::pin(cpu);
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = accept(&listener) => {}
                }
            });
        })?;
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Address of the backend.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Takes all connections. One that the system refuses is the client's to complain of.
async fn accept(listener: &TcpListener) {
    loop {
        if let Ok((stream, _)) = listener.accept().await
            && stream.set_nodelay(true).is_ok()
        {
            tokio::spawn(serve(stream));
        }
    }
}

/// Carries out the orders of a connection until its end, which is an error as any other.
async fn serve(mut stream: TcpStream) -> io::Result<()> {
    loop {
        let mut order = [0; ORDER_BYTES];
        stream.read_exact(&mut order).await?;
        match Order::decode(order).ok_or(ErrorKind::InvalidData)? {
            Order::Download(mut left) => {
                let bytes = vec![b'x'; SCRATCH];
                while left > 0 {
                    let most = left.min(SCRATCH as u64) as usize;
                    left -= some(stream.write(&bytes[..most]).await?)?;
                }
            }
            Order::Upload(mut left) => {
                let mut bytes = vec![0; SCRATCH];
                while left > 0 {
                    let most = left.min(SCRATCH as u64) as usize;
                    left -= some(stream.read(&mut bytes[..most]).await?)?;
                }
                stream.write_all(&[RECEIVED]).await?;
            }
            Order::Echo => {
                let mut bytes = vec![0; ECHO];
                loop {
                    let read = some(stream.read(&mut bytes).await?)?;
                    stream.write_all(&bytes[..read as usize]).await?;
                }
            }
        }
    }
}

/// Number of bytes; none is the end of the connection.
fn some(bytes: usize) -> io::Result<u64> {
    match bytes {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        bytes => Ok(bytes as u64),
    }
}

const ORDER_BYTES: usize = 9;
const BACKLOG: i32 = 4096;
/// Bytes that a loopback socket takes at once.
const SCRATCH: usize = 256 * 1024;
/// Small requests fit.
const ECHO: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    #[test]
    fn orders_are_carried_out_one_after_the_other() {
        let cpus = widelane_affinity::allowed(None).expect("CPUs");
        let backend = Backend::start(cpus.iter().next().expect("one")).expect("a backend");
        let mut stream = TcpStream::connect(backend.address()).expect("it listens");
        let mut bytes = vec![0; 1_000_000];
        stream
            .write_all(&Order::Download(1_000_000).encode())
            .expect("an order");
        stream.read_exact(&mut bytes).expect("a download");
        let upload = Order::Upload(1_000_000).encode();
        stream.write_all(&upload[..4]).expect("half an order");
        stream.write_all(&upload[4..]).expect("the rest");
        stream.write_all(&bytes).expect("an upload");
        stream.read_exact(&mut bytes[..1]).expect("an answer");
        assert_eq!(bytes[0], RECEIVED);
        stream.write_all(&Order::Echo.encode()).expect("an order");
        for request in [*b"abc", *b"def"] {
            stream.write_all(&request).expect("a request");
            let mut answer = [0; 3];
            stream.read_exact(&mut answer).expect("an answer");
            assert_eq!(answer, request);
        }
    }

    #[test]
    fn what_is_no_order_ends_the_connection() {
        let backend = Backend::start(0).expect("a backend");
        let mut stream = TcpStream::connect(backend.address()).expect("it listens");
        stream.write_all(b"GET / HTTP").expect("nine bytes and one");
        let ended = stream.read(&mut [0; 16]);
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    }
}
