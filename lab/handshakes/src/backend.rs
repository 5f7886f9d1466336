//! The server behind the servers: a thread of this process that does what each connection orders.
//!
//! A terminator relays what it decrypts. So that its CPU time is that of the relay alone, the
//! backend runs on the load's CPU, does no work of its own, and answers at once. An order is
//! [`Order::encode`]'s nine bytes; a connection may give several, one after the other.

use crate::error::TrialError;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Order of a client to the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Send this number of bytes.
    Download(u64),
    /// Take this number of bytes, and answer with [`RECEIVED`] once they are there.
    Upload(u64),
    /// To send back whatever comes, until the end.
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
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Backend {
    /// Starts a backend on a free port of the loopback interface, on `cpu`.
    ///
    /// # Errors
    ///
    /// What the system refuses.
    pub(crate) fn start(cpu: usize) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        // The standard library asks for 128, which a burst of new connections exceeds.
        rustix::net::listen(&listener, BACKLOG)?;
        let mut exchange = Exchange::new(listener)?;
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("backend".into())
            .spawn(move || {
                // A thread that may not run on the CPU runs where it may, and the figures show that.
                let _ = widelane_affinity::pin(cpu);
                let mut events = Vec::with_capacity(EVENTS);
                while !seen.load(Ordering::Relaxed) && exchange.turn(&mut events).is_ok() {}
            })?;
        Ok(Self {
            address,
            stop,
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
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A backend that the system refuses.
pub(crate) fn no_backend(source: io::Error) -> TrialError {
    TrialError::Machine {
        what: "cannot start a backend",
        source,
    }
}

/// The listening socket, and all connections.
struct Exchange {
    epoll: OwnedFd,
    listener: TcpListener,
    /// The index is what epoll reports.
    connections: Vec<Option<Connection>>,
    scratch: Vec<u8>,
}

impl Exchange {
    fn new(listener: TcpListener) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let data = EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, data, EventFlags::IN)?;
        Ok(Self {
            epoll,
            listener,
            connections: Vec::new(),
            scratch: vec![b'x'; SCRATCH],
        })
    }

    /// Does what there is to do, after waiting for it for a while.
    fn turn(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let space = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, space, Some(&LOOK_EVERY)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        for event in events.drain(..) {
            match event.data.u64() {
                LISTENER => self.accept(),
                index => self.serve(index as usize),
            }
        }
        Ok(())
    }

    /// Takes all connections that wait. One that the system refuses is the client's to complain of.
    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let free = self.connections.iter().position(Option::is_none);
            let index = free.unwrap_or(self.connections.len());
            let ready = stream.set_nonblocking(true).is_ok()
                && stream.set_nodelay(true).is_ok()
                && epoll::add(
                    &self.epoll,
                    &stream,
                    EventData::new_u64(index as u64),
                    EventFlags::IN,
                )
                .is_ok();
            if !ready {
                continue;
            }
            if index == self.connections.len() {
                self.connections.push(None);
            }
            self.connections[index] = Some(Connection {
                stream,
                state: State::Reading([0; ORDER_BYTES], 0),
                writes: false,
            });
        }
    }

    fn serve(&mut self, index: usize) {
        let Some(Some(connection)) = self.connections.get_mut(index) else {
            return;
        };
        let goes_on = match connection.advance(&mut self.scratch) {
            Ok(()) => true,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        };
        let writes = matches!(connection.state, State::Sending(_));
        let watched = writes == connection.writes || {
            let flags = if writes {
                EventFlags::OUT
            } else {
                EventFlags::IN
            };
            let data = EventData::new_u64(index as u64);
            connection.writes = writes;
            epoll::modify(&self.epoll, &connection.stream, data, flags).is_ok()
        };
        if !goes_on || !watched {
            self.connections[index] = None;
        }
    }
}

struct Connection {
    stream: TcpStream,
    state: State,
    /// True if epoll waits for room to write, false if for bytes.
    writes: bool,
}

enum State {
    /// Bytes of an order, and their number so far.
    Reading([u8; ORDER_BYTES], usize),
    Sending(u64),
    Receiving(u64),
    Echoing,
}

impl Connection {
    /// Goes on until the socket has nothing more to give or to take, which is an error as any other.
    fn advance(&mut self, scratch: &mut [u8]) -> io::Result<()> {
        loop {
            match &mut self.state {
                State::Reading(order, filled) => {
                    *filled += some(self.stream.read(&mut order[*filled..])?)?;
                    if *filled == order.len() {
                        self.state = match Order::decode(*order) {
                            Some(Order::Download(bytes)) => State::Sending(bytes),
                            Some(Order::Upload(bytes)) => State::Receiving(bytes),
                            Some(Order::Echo) => State::Echoing,
                            None => return Err(ErrorKind::InvalidData.into()),
                        };
                    }
                }
                State::Sending(0) => self.state = State::Reading([0; ORDER_BYTES], 0),
                State::Sending(left) => {
                    let most = scratch
                        .len()
                        .min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= some(self.stream.write(&scratch[..most])?)? as u64;
                }
                State::Receiving(0) => {
                    self.stream.write_all(&[RECEIVED])?;
                    self.state = State::Reading([0; ORDER_BYTES], 0);
                }
                State::Receiving(left) => {
                    let most = scratch
                        .len()
                        .min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= some(self.stream.read(&mut scratch[..most])?)? as u64;
                }
                State::Echoing => {
                    let read = some(self.stream.read(&mut scratch[..ECHO])?)?;
                    // A client that waits for each answer never fills the socket.
                    self.stream.write_all(&scratch[..read])?;
                    if read < ECHO {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// Nothing read or written is the end of the connection.
fn some(bytes: usize) -> io::Result<usize> {
    match bytes {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        bytes => Ok(bytes),
    }
}

const ORDER_BYTES: usize = 9;
const LISTENER: u64 = u64::MAX;
const BACKLOG: i32 = 4096;
const EVENTS: usize = 256;
/// Bytes that a loopback socket takes at once.
const SCRATCH: usize = 256 * 1024;
/// Small requests fit.
const ECHO: usize = 4096;
/// Longest time that a drop of the backend waits.
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

#[cfg(test)]
mod tests {
    use super::*;

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
