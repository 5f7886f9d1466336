//! One connection, from `connect` to its end, over a nonblocking socket.
//!
//! | from        | to          | when                                                          |
//! | ----------- | ----------- | ------------------------------------------------------------- |
//! | Handshaking | Closing     | our last flight, with a close_notify, was written             |
//! | Handshaking | Answering   | our last flight, with the request, was written                |
//! | Handshaking | Held        | our last flight was written                                   |
//! | Answering   | Closing     | the answer is complete and our close_notify was written       |
//! | any         | (ended)     | the server closed or reset, or something failed               |
//!
//! It knows nothing of epoll and schedules: the worker tells it that its socket is ready, or that
//! a step that was away may go on, and it says what it waits for next.

use crate::error::{Fault, Stage};
use crate::http::Answer;
use crate::lanes::Lane;
use crate::plan::{After, Close};
use crate::tls::Tls;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use rustls::client::ClientConnection;
use rustls::{ClientConfig, HandshakeKind, IoState, ProtocolVersion, SignatureScheme};
use rustls_pki_types::ServerName;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// What all connections of a thread have in common.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(crate) address: SocketAddr,
    pub(crate) server_name: ServerName<'static>,
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) after: After,
    pub(crate) close: Close,
    /// The bytes of the request, if `after` is one.
    pub(crate) request: Vec<u8>,
}

/// A connection that has been started and has not ended.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
    tls: Tls,
    state: State,
    /// Read from the socket and not taken by TLS yet, while that is away.
    unread: Vec<u8>,
    /// When it was meant to start.
    pub(crate) intended: Instant,
    /// When the handshake was done.
    pub(crate) done: Option<Instant>,
    /// When the answer was complete.
    pub(crate) answered: Option<Instant>,
    /// The server did something that it only does once it has accepted our Finished.
    confirmed: bool,
    /// The server hung up before it can have read our Finished.
    early: bool,
}

#[derive(Debug)]
enum State {
    /// Includes the TCP connect: the hello is written as soon as the socket takes it.
    Handshaking {
        connected: bool,
    },
    Answering(Answer),
    Closing,
    Held,
}

/// What became of a look at the socket.
#[derive(Debug)]
pub(crate) enum Step {
    /// Wait for this.
    Wait(Interest),
    /// Wait until the engine has run its jobs.
    Suspended,
    /// It is over.
    Ended(Result<(), Fault>),
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Something to read.
    Read,
    /// Something to read, or room to write.
    ReadWrite,
    /// The server's close. Its tickets come before that, and are read then: to wake up for
    /// them alone, once a handshake, would cost more than to read them.
    Close,
}

impl Connection {
    /// Opens a socket, begins to connect and writes the hello if that is already possible, as
    /// it is on loopback: one trip through epoll less.
    pub(crate) fn start(
        recipe: &Recipe,
        intended: Instant,
        lane: Option<Lane<'_>>,
    ) -> Result<(Self, Step), Fault> {
        let family = match recipe.address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let socket = rustix::net::socket_with(
            family,
            SocketType::STREAM,
            SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
            Some(ipproto::TCP),
        )
        .map_err(|errno| Fault::from_errno(errno, Stage::Connect))?;
        // A hello with a post-quantum share is longer than a packet; its tail must not wait for
        // an acknowledgement.
        sockopt::set_tcp_nodelay(&socket, true)
            .map_err(|errno| Fault::from_errno(errno, Stage::Connect))?;
        let connected = match rustix::net::connect(&socket, &recipe.address) {
            Ok(()) => true,
            Err(Errno::INPROGRESS) => false,
            Err(errno) => return Err(Fault::from_errno(errno, Stage::Connect)),
        };
        let tls = Tls::start(&recipe.config, &recipe.server_name, lane)?;
        let mut connection = Self {
            socket,
            tls,
            state: State::Handshaking { connected },
            unread: Vec::new(),
            intended,
            done: None,
            answered: None,
            confirmed: false,
            early: false,
        };
        let step = if connection.is_away() {
            Step::Suspended
        } else {
            let flushed = connection.flush().map(|_| None);
            connection.next(flushed)
        };
        Ok((connection, step))
    }

    /// Does what can be done now. `closed` tells that the server has closed: behind what it
    /// sent there is nothing more to come. `scratch` is shared by all connections of a thread.
    ///
    /// While a step is away it reads nothing: what has come can wait.
    pub(crate) fn ready(
        &mut self,
        recipe: &Recipe,
        closed: bool,
        scratch: &mut Scratch,
        lane: Option<Lane<'_>>,
    ) -> Step {
        self.early |= closed && matches!(self.state, State::Handshaking { .. });
        if self.is_away() {
            return Step::Suspended;
        }
        let advanced = self.advance(recipe, closed, scratch, lane);
        self.next(advanced)
    }

    /// Goes on with the step that is away.
    pub(crate) fn resume(
        &mut self,
        recipe: &Recipe,
        scratch: &mut Scratch,
        lane: Lane<'_>,
    ) -> Step {
        let Poll::Ready(returned) = self.tls.poll(lane) else {
            return Step::Suspended;
        };
        let gone_on = self.go_on(returned, recipe, scratch, lane);
        self.next(gone_on)
    }

    /// What it is waiting for.
    pub(crate) fn stage(&self) -> Stage {
        match self.state {
            State::Handshaking { connected: false } => Stage::Connect,
            State::Handshaking { connected: true } => Stage::Handshake,
            State::Answering(_) | State::Closing | State::Held => Stage::Answer,
        }
    }

    /// Whether only the server's close is missing.
    pub(crate) fn is_closing(&self) -> bool {
        matches!(self.state, State::Closing)
    }

    /// Whether it is open and idle on purpose.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state, State::Held)
    }

    /// Whether it waits for the engine.
    pub(crate) fn is_away(&self) -> bool {
        self.tls.is_away()
    }

    /// What was agreed on, once the handshake is done.
    pub(crate) fn tls(&self) -> Option<&ClientConnection> {
        self.tls.get()
    }

    /// What the server has signed its handshake with.
    pub(crate) fn signature(&self) -> Option<SignatureScheme> {
        self.tls.signature
    }

    /// Gives the socket back to the system, with a reset if the recipe or the situation says
    /// so. See [`Close`].
    pub(crate) fn finish(self, close: Close) {
        if close == Close::Reset {
            // Fails only for sockets that are already gone.
            let _ = sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
        }
    }

    /// What to wait for after `advanced`.
    fn next(&mut self, advanced: Result<Option<Step>, Fault>) -> Step {
        match advanced {
            Ok(Some(step)) => step,
            Ok(None) if self.tls.here().wants_write() => Step::Wait(Interest::ReadWrite),
            Ok(None) if self.is_closing() => Step::Wait(Interest::Close),
            Ok(None) => Step::Wait(Interest::Read),
            Err(fault) => Step::Ended(Err(fault)),
        }
    }

    fn advance(
        &mut self,
        recipe: &Recipe,
        closed: bool,
        scratch: &mut Scratch,
        lane: Option<Lane<'_>>,
    ) -> Result<Option<Step>, Fault> {
        // Reads even if it cannot write all: what has come must not wake us again and again.
        self.flush()?;
        loop {
            let read = match rustix::io::read(&self.socket, &mut *scratch.wire) {
                Ok(0) => return self.end_of_stream().map(Some),
                Ok(read) => read,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(errno) => return self.socket_failed(errno).map(Some),
            };
            if self
                .take(&scratch.wire[..read], &mut scratch.plain, lane)?
                .is_pending()
            {
                return Ok(Some(Step::Suspended));
            }
            self.progress(recipe)?;
            // A short read emptied the socket; if more came since, epoll says so again.
            if read < scratch.wire.len() {
                return match closed {
                    // It hung up before it can have read our Finished.
                    true if self.early && !self.confirmed => Err(Fault::Closed),
                    true => self.end_of_stream().map(Some),
                    false => Ok(None),
                };
            }
        }
    }

    /// After a step that was away.
    fn go_on(
        &mut self,
        returned: Result<Option<IoState>, Fault>,
        recipe: &Recipe,
        scratch: &mut Scratch,
        lane: Lane<'_>,
    ) -> Result<Option<Step>, Fault> {
        let returned = match returned {
            // The hello.
            Ok(None) => return self.flush().map(|_| None),
            Ok(Some(state)) => Ok(state),
            Err(fault) => Err(fault),
        };
        self.processed(returned, &mut scratch.plain)?;
        let unread = std::mem::take(&mut self.unread);
        if self
            .take(&unread, &mut scratch.plain, Some(lane))?
            .is_pending()
        {
            return Ok(Some(Step::Suspended));
        }
        self.progress(recipe)?;
        if self.done.is_some() && self.early && !self.confirmed {
            return Err(Fault::Closed);
        }
        // What may have come since, epoll says again.
        Ok(None)
    }

    /// Hands bytes from the network to rustls, and what it deciphers to the answer. Keeps what is
    /// left while a step is away.
    fn take(
        &mut self,
        mut wire: &[u8],
        plain: &mut [u8],
        lane: Option<Lane<'_>>,
    ) -> Result<Poll<()>, Fault> {
        if self.done.is_some() {
            self.confirmed = true;
        }
        while !wire.is_empty() {
            let taken = self.tls.here().read_tls(&mut wire).map_err(|_| {
                Fault::Tls(rustls::Error::General("the receive buffer is full".into()))
            })?;
            if taken == 0 {
                // After a close_notify rustls reads no more, and nothing more matters.
                break;
            }
            match self.tls.process(lane) {
                Poll::Ready(state) => self.processed(state, plain)?,
                Poll::Pending => {
                    self.unread.extend_from_slice(wire);
                    return Ok(Poll::Pending);
                }
            }
        }
        Ok(Poll::Ready(()))
    }

    /// What follows from one step of rustls.
    fn processed(&mut self, state: Result<IoState, Fault>, plain: &mut [u8]) -> Result<(), Fault> {
        let state = match state {
            Ok(state) => state,
            Err(fault) => {
                // There is an alert to send, if there is a connection at all; whether it arrives
                // is not our concern.
                if self.tls.get().is_some() {
                    let _ = self.flush();
                }
                return Err(fault);
            }
        };
        if state.plaintext_bytes_to_read() > 0 {
            self.take_plain(plain)?;
        }
        if state.peer_has_closed() {
            self.peer_closed()?;
        }
        Ok(())
    }

    /// The server's close_notify ends its answer even if it leaves the connection open.
    fn peer_closed(&mut self) -> Result<(), Fault> {
        match &self.state {
            State::Answering(answer) if self.answered.is_none() => {
                answer.end()?;
                self.answered = Some(Instant::now());
                Ok(())
            }
            State::Held => Err(Fault::ClosedIdle),
            _ => Ok(()),
        }
    }

    fn take_plain(&mut self, plain: &mut [u8]) -> Result<(), Fault> {
        while let Ok(read @ 1..) = self.tls.here().reader().read(plain) {
            // In other states, what comes was not asked for.
            if let State::Answering(answer) = &mut self.state
                && self.answered.is_none()
                && answer.feed(&plain[..read])?
            {
                self.answered = Some(Instant::now());
            }
        }
        Ok(())
    }

    /// Takes the transitions that the table at the top allows.
    fn progress(&mut self, recipe: &Recipe) -> Result<(), Fault> {
        match self.state {
            State::Handshaking { .. } if !self.tls.here().is_handshaking() => {
                let tls = self.tls.here();
                match recipe.after {
                    After::Close => tls.send_close_notify(),
                    After::Get(_) => {
                        // rustls buffers it whole: no limit was set.
                        let _ = tls.writer().write_all(&recipe.request);
                    }
                    After::Hold => {}
                }
                self.state = match recipe.after {
                    After::Close => State::Closing,
                    After::Get(_) => State::Answering(Answer::default()),
                    After::Hold => State::Held,
                };
                self.flush()?;
                self.done = Some(Instant::now());
                // In a full handshake of TLS 1.2 the server's Finished is the last word.
                let tls = self.tls.here();
                self.confirmed = tls.protocol_version() == Some(ProtocolVersion::TLSv1_2)
                    && tls.handshake_kind() == Some(HandshakeKind::Full);
                Ok(())
            }
            State::Answering(_) if self.answered.is_some() => {
                self.tls.here().send_close_notify();
                self.state = State::Closing;
                self.flush().map(drop)
            }
            _ => self.flush().map(drop),
        }
    }

    fn end_of_stream(&mut self) -> Result<Step, Fault> {
        match &self.state {
            State::Handshaking { .. } => Err(Fault::Closed),
            State::Answering(answer) => {
                answer.end()?;
                self.answered = Some(Instant::now());
                Ok(Step::Ended(Ok(())))
            }
            State::Closing => Ok(Step::Ended(Ok(()))),
            State::Held => Err(Fault::ClosedIdle),
        }
    }

    fn socket_failed(&mut self, errno: Errno) -> Result<Step, Fault> {
        match (&self.state, errno) {
            // A server that closes without reading our close_notify resets; that is its way.
            (State::Closing, Errno::CONNRESET | Errno::PIPE) if self.confirmed => {
                Ok(Step::Ended(Ok(())))
            }
            (State::Closing, Errno::CONNRESET | Errno::PIPE) => Err(Fault::ResetUnconfirmed),
            (State::Answering(_), Errno::CONNRESET) => Err(Fault::Truncated),
            (State::Held, Errno::CONNRESET) => Err(Fault::ClosedIdle),
            _ => Err(Fault::from_errno(errno, self.stage())),
        }
    }

    /// Writes what rustls has to say; false if the socket does not take it all yet.
    fn flush(&mut self) -> Result<bool, Fault> {
        while self.tls.here().wants_write() {
            match self.tls.here().write_tls(&mut Wire(self.socket.as_fd())) {
                Ok(_) => {
                    if let State::Handshaking { connected } = &mut self.state {
                        *connected = true;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.write_failed(error),
            }
        }
        Ok(true)
    }

    fn write_failed(&mut self, error: io::Error) -> Result<bool, Fault> {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        match self.state {
            // It may have sent an alert before it hung up: reading will tell.
            State::Handshaking { connected: true } | State::Closing
                if matches!(errno, Errno::PIPE | Errno::CONNRESET) =>
            {
                Ok(true)
            }
            _ => Err(Fault::from_errno(errno, self.stage())),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Buffers that one thread's connections share: each uses them only within one call.
#[derive(Debug)]
pub(crate) struct Scratch {
    wire: Box<[u8]>,
    plain: Box<[u8]>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self {
            wire: vec![0; SCRATCH].into_boxed_slice(),
            plain: vec![0; SCRATCH].into_boxed_slice(),
        }
    }
}

/// A socket as rustls wants to write to it: a whole flight in one system call.
struct Wire<'a>(BorrowedFd<'a>);

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.0, bytes)?)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(self.0, parts)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Room for the longest flight with a usual certificate chain in one read.
const SCRATCH: usize = 32 * 1024;
