//! One connection, from `connect` to its end, over a nonblocking socket.
//!
//! | from        | to          | when                                                          |
//! | ----------- | ----------- | ------------------------------------------------------------- |
//! | Asking      | Handshaking | the server has agreed to TLS (STARTTLS)                       |
//! | Handshaking | Closing     | our last flight, with a close_notify, was written             |
//! | Handshaking | (ended)     | our last flight was written, and the end is to be abrupt      |
//! | Handshaking | Answering   | our last flight, with the request, was written                |
//! | Handshaking | Held        | our last flight was written                                   |
//! | Answering   | Closing     | the answer is complete and our close_notify was written       |
//! | any         | (ended)     | the server closed or reset, or something failed               |
//!
//! It does not use epoll or the schedule. The worker calls it when its socket is ready, or when a
//! suspended step can go on, and it returns what it waits for next.

use crate::answer::Answer;
use crate::batching::StepContext;
use crate::error::{Fault, Stage};
use crate::plan::{After, Close};
use crate::starttls::{Dialogue, StartTls};
use crate::tls::Tls;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use rustls::{ClientConfig, HandshakeKind, IoState, ProtocolVersion};
use rustls_pki_types::ServerName;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Settings common to all connections of a thread.
#[derive(Debug)]
pub(crate) struct ConnectionConfig {
    pub(crate) address: SocketAddr,
    pub(crate) server_name: ServerName<'static>,
    pub(crate) tls: Arc<ClientConfig>,
    /// Protocol in which the client asks for TLS first.
    pub(crate) starttls: Option<StartTls>,
    pub(crate) after: After,
    pub(crate) close: Close,
    /// The bytes that are sent after the handshake, if `after` has any.
    pub(crate) request: Vec<u8>,
}

/// A connection that has started and not ended.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: TcpStream,
    pub(crate) tls: Tls,
    /// True once the TCP connection is known to exist.
    connected: bool,
    state: State,
    /// Bytes that were read while a step is suspended, and that TLS has not processed yet.
    unread: Vec<u8>,
    /// The intended start.
    pub(crate) intended: Instant,
    /// Time at which the handshake was done.
    pub(crate) done: Option<Instant>,
    /// Time at which the answer was complete.
    pub(crate) answered: Option<Instant>,
    /// The server did something that it does only after it has accepted our Finished.
    confirmed: bool,
    /// The server closed before it can have read our Finished.
    early: bool,
}

#[derive(Debug)]
enum State {
    /// Talks in plain text, and includes the TCP connect. The ClientHello waits in `tls`.
    Asking(Dialogue),
    /// Includes the TCP connect: the ClientHello is written as soon as the socket takes it.
    Handshaking,
    Answering(Answer),
    Closing,
    Held,
}

/// Next step of a connection.
#[derive(Debug)]
pub(crate) enum Step {
    /// Wait for this.
    Wait(Interest),
    /// Wait until the engine has run its jobs.
    Suspended,
    /// The connection has ended.
    Ended(Result<(), Fault>),
}

/// Event that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Something to read.
    Read,
    /// Something to read, or room to write.
    ReadWrite,
    /// The server's close. Its tickets come before the close and are read with it. To wake up for
    /// the tickets alone would cost more than to read them.
    Close,
}

impl Connection {
    /// Opens a socket and begins to connect. If the socket is connected at once, as on loopback,
    /// writes the ClientHello, which saves one call of epoll.
    pub(crate) fn start(
        config: &ConnectionConfig,
        intended: Instant,
        context: Option<StepContext<'_>>,
    ) -> Result<(Self, Step), Fault> {
        let family = match config.address {
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
        // A ClientHello with a post-quantum key share is longer than a packet. Its last part must
        // not wait for an acknowledgement.
        sockopt::set_tcp_nodelay(&socket, true).map_err(|errno| Fault::from_errno(errno, Stage::Connect))?;
        let connected = match rustix::net::connect(&socket, &config.address) {
            Ok(()) => true,
            Err(Errno::INPROGRESS) => false,
            Err(errno) => return Err(Fault::from_errno(errno, Stage::Connect)),
        };
        let tls = Tls::start(&config.tls, &config.server_name, context)?;
        let state = match config.starttls {
            Some(protocol) => State::Asking(Dialogue::new(protocol)),
            None => State::Handshaking,
        };
        let mut connection = Self {
            socket: socket.into(),
            tls,
            connected,
            state,
            unread: Vec::new(),
            intended,
            done: None,
            answered: None,
            confirmed: false,
            early: false,
        };
        let step = if connection.is_suspended() {
            Step::Suspended
        } else {
            let flushed = connection.flush().map(|()| None);
            connection.next(flushed)
        };
        Ok((connection, step))
    }

    /// Goes on as far as possible. `closed`: the server has closed, so nothing comes after what it
    /// has sent. All connections of a thread share `scratch`.
    ///
    /// While a step is suspended it reads nothing.
    pub(crate) fn ready(
        &mut self,
        config: &ConnectionConfig,
        closed: bool,
        scratch: &mut Scratch,
        context: Option<StepContext<'_>>,
    ) -> Step {
        self.early |= closed && matches!(self.state, State::Asking(_) | State::Handshaking);
        if self.is_suspended() {
            return Step::Suspended;
        }
        let advanced = self.advance(config, closed, scratch, context);
        self.next(advanced)
    }

    /// Goes on with the suspended step.
    pub(crate) fn resume(
        &mut self,
        config: &ConnectionConfig,
        scratch: &mut Scratch,
        context: StepContext<'_>,
    ) -> Step {
        let Poll::Ready(returned) = self.tls.poll(context) else {
            return Step::Suspended;
        };
        let gone_on = self.go_on(returned, config, scratch, context);
        self.next(gone_on)
    }

    /// Stage in which the connection waits.
    pub(crate) fn stage(&self) -> Stage {
        match self.state {
            State::Asking(_) | State::Handshaking if !self.connected => Stage::Connect,
            State::Asking(_) | State::Handshaking => Stage::Handshake,
            State::Answering(_) | State::Closing | State::Held => Stage::Answer,
        }
    }

    /// Returns whether the connection waits only for the server's close.
    pub(crate) fn is_closing(&self) -> bool {
        matches!(self.state, State::Closing)
    }

    /// Returns whether the connection is open and idle on purpose.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state, State::Held)
    }

    /// Returns whether the connection waits for the engine.
    pub(crate) fn is_suspended(&self) -> bool {
        self.tls.is_suspended()
    }

    /// Closes the socket, with a reset if `close` says so.
    pub(crate) fn finish(self, close: Close) {
        if matches!(close, Close::Reset | Close::Abrupt) {
            // Fails only for sockets that are already gone.
            let _ = sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
        }
    }

    /// Next step after `advanced`.
    fn next(&mut self, advanced: Result<Option<Step>, Fault>) -> Step {
        match advanced {
            Ok(Some(step)) => step,
            Ok(None) if self.wants_write() => Step::Wait(Interest::ReadWrite),
            Ok(None) if self.is_closing() => Step::Wait(Interest::Close),
            Ok(None) => Step::Wait(Interest::Read),
            Err(fault) => Step::Ended(Err(fault)),
        }
    }

    fn wants_write(&mut self) -> bool {
        match &self.state {
            State::Asking(dialogue) => !self.connected || !dialogue.unsent.is_empty(),
            _ => self.tls.connection().wants_write(),
        }
    }

    fn advance(
        &mut self,
        config: &ConnectionConfig,
        closed: bool,
        scratch: &mut Scratch,
        context: Option<StepContext<'_>>,
    ) -> Result<Option<Step>, Fault> {
        // Reads even if it cannot write everything. Unread bytes would wake us again and again.
        self.flush()?;
        if self.ends_abruptly(config) {
            return Ok(Some(Step::Ended(Ok(()))));
        }
        loop {
            let read = match rustix::io::read(&self.socket, &mut *scratch.wire) {
                Ok(0) => return self.end_of_stream().map(Some),
                Ok(read) => read,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(errno) => return self.socket_failed(errno).map(Some),
            };
            if self
                .take(&scratch.wire[..read], &mut scratch.plain, context)?
                .is_pending()
            {
                return Ok(Some(Step::Suspended));
            }
            self.progress(config)?;
            if self.ends_abruptly(config) {
                return Ok(Some(Step::Ended(Ok(()))));
            }
            // A short read has emptied the socket. If more comes, epoll reports it.
            if read < scratch.wire.len() {
                return match closed {
                    // The server closed before it can have read our Finished.
                    true if self.early && !self.confirmed => Err(Fault::Closed),
                    true => self.end_of_stream().map(Some),
                    false => Ok(None),
                };
            }
        }
    }

    /// Goes on after a suspended step has returned.
    fn go_on(
        &mut self,
        returned: Result<Option<IoState>, Fault>,
        config: &ConnectionConfig,
        scratch: &mut Scratch,
        context: StepContext<'_>,
    ) -> Result<Option<Step>, Fault> {
        let Some(returned) = returned.transpose() else {
            // The ClientHello is made.
            return self.flush().map(|()| None);
        };
        self.processed(returned, &mut scratch.plain)?;
        let unread = std::mem::take(&mut self.unread);
        if self.take(&unread, &mut scratch.plain, Some(context))?.is_pending() {
            return Ok(Some(Step::Suspended));
        }
        self.progress(config)?;
        if self.ends_abruptly(config) {
            return Ok(Some(Step::Ended(Ok(()))));
        }
        if self.done.is_some() && self.early && !self.confirmed {
            return Err(Fault::Closed);
        }
        // If more has come, epoll reports it again.
        Ok(None)
    }

    /// Passes bytes from the network to rustls, and decrypted bytes to the answer. Keeps the rest
    /// if a step is suspended.
    fn take(&mut self, mut wire: &[u8], plain: &mut [u8], context: Option<StepContext<'_>>) -> Result<Poll<()>, Fault> {
        if let State::Asking(dialogue) = &mut self.state {
            if dialogue.feed(wire)? {
                (self.state, self.connected) = (State::Handshaking, true);
            }
            return Ok(Poll::Ready(()));
        }
        if self.done.is_some() {
            self.confirmed = true;
        }
        while !wire.is_empty() {
            let taken = self
                .tls
                .connection()
                .read_tls(&mut wire)
                .map_err(|_| Fault::Tls(rustls::Error::General("the receive buffer is full".into())))?;
            if taken == 0 {
                // After a close_notify rustls reads no more, and we need no more.
                break;
            }
            match self.tls.process(context) {
                Poll::Ready(state) => self.processed(state, plain)?,
                Poll::Pending => {
                    self.unread.extend_from_slice(wire);
                    return Ok(Poll::Pending);
                }
            }
        }
        Ok(Poll::Ready(()))
    }

    /// Does what one step of rustls asks for.
    fn processed(&mut self, state: Result<IoState, Fault>, plain: &mut [u8]) -> Result<(), Fault> {
        let state = state.inspect_err(|_| {
            // If there is a connection, there is an alert to send. We do not wait for it to arrive.
            if self.tls.get().is_some() {
                let _ = self.flush();
            }
        })?;
        if state.plaintext_bytes_to_read() > 0 {
            self.take_plain(plain)?;
        }
        if state.peer_has_closed() {
            self.peer_closed()?;
        }
        Ok(())
    }

    /// The server's close_notify ends its answer, even if it leaves the connection open.
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
        while let Ok(read @ 1..) = self.tls.connection().reader().read(plain) {
            // In other states we expect no data, and ignore it.
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
    fn progress(&mut self, config: &ConnectionConfig) -> Result<(), Fault> {
        match self.state {
            State::Handshaking if !self.tls.connection().is_handshaking() => {
                let tls = self.tls.connection();
                // rustls buffers all of it, because no limit is set.
                let _ = tls.writer().write_all(&config.request);
                if config.after == After::Close && config.close != Close::Abrupt {
                    tls.send_close_notify();
                }
                self.state = match &config.after {
                    After::Close => State::Closing,
                    After::Get(_) => State::Answering(Answer::http()),
                    After::Exchange { expect, .. } => State::Answering(Answer::with(expect)),
                    After::Hold => State::Held,
                };
                self.flush()?;
                self.done = Some(Instant::now());
                // A full handshake of TLS 1.2 ends with the server's Finished.
                let tls = self.tls.connection();
                self.confirmed = tls.protocol_version() == Some(ProtocolVersion::TLSv1_2)
                    && tls.handshake_kind() == Some(HandshakeKind::Full);
                Ok(())
            }
            State::Answering(_) if self.answered.is_some() => {
                self.tls.connection().send_close_notify();
                self.state = State::Closing;
                self.flush()
            }
            _ => self.flush(),
        }
    }

    /// Returns whether nothing is left to do before an abrupt end.
    fn ends_abruptly(&mut self, config: &ConnectionConfig) -> bool {
        config.close == Close::Abrupt && self.is_closing() && !self.tls.connection().wants_write()
    }

    fn end_of_stream(&mut self) -> Result<Step, Fault> {
        match &self.state {
            State::Asking(_) | State::Handshaking => Err(Fault::Closed),
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
            // A server that closes without reading our close_notify sends a reset. That is no
            // failure.
            (State::Closing, Errno::CONNRESET | Errno::PIPE) if self.confirmed => Ok(Step::Ended(Ok(()))),
            (State::Closing, Errno::CONNRESET | Errno::PIPE) => Err(Fault::ResetUnconfirmed),
            (State::Answering(_), Errno::CONNRESET) => Err(Fault::Truncated),
            (State::Held, Errno::CONNRESET) => Err(Fault::ClosedIdle),
            _ => Err(Fault::from_errno(errno, self.stage())),
        }
    }

    /// Writes what rustls wants to send, as far as the socket takes it.
    fn flush(&mut self) -> Result<(), Fault> {
        while let State::Asking(dialogue) = &mut self.state
            && !dialogue.unsent.is_empty()
        {
            match rustix::io::write(&self.socket, dialogue.unsent) {
                Ok(sent) => {
                    self.connected = true;
                    dialogue.sent(sent);
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return self.write_failed(errno.into()),
            }
        }
        if let State::Asking(_) = &self.state {
            // The server may have to speak first, so that no write tells.
            self.connected = self.connected || rustix::net::getpeername(&self.socket).is_ok();
            return Ok(());
        }
        while self.tls.connection().wants_write() {
            // A whole flight in one system call.
            match self.tls.connection().write_tls(&mut &self.socket) {
                Ok(_) => self.connected = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.write_failed(error),
            }
        }
        Ok(())
    }

    fn write_failed(&mut self, error: io::Error) -> Result<(), Fault> {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        match self.state {
            // The server may have sent an alert before it closed. The next read finds it.
            State::Asking(_) | State::Handshaking | State::Closing
                if self.connected && matches!(errno, Errno::PIPE | Errno::CONNRESET) =>
            {
                Ok(())
            }
            _ => Err(Fault::from_errno(errno, self.stage())),
        }
    }
}

/// Buffers that all connections of a thread share. A connection uses them only during one call.
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

/// Enough for one read of the longest flight with a usual certificate chain.
const SCRATCH: usize = 32 * 1024;
