//! A connection past its handshake: it reaches the backend, and relays both ways.

use std::future::poll_fn;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::{ConnectionCommon, HandshakeKind, ProtocolVersion, ServerConnection};
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, timeout};
use widelane_access_log::{Alert, LogEntry, Side};

use crate::back::attempts::ConnectAttempt;
use crate::back::backend::{BackendStream, Missed, Socket, reset};
use crate::back::backend_tls::{BackendTlsConfig, shake};
use crate::back::pace::{Pace, Records};
use crate::back::proxy;
use crate::back::tls_failure::TlsFailure;
use crate::back::upstream::ConnectionCount;
use crate::config::ProxyVersion;
use crate::front::alert;
use crate::front::site::Site;
use crate::io::{PollSocket, write_tls};
use crate::material::certificate::common_name;
use crate::observe::stats::End;
use crate::turn::Turn;
use crate::worker_state::WorkerState;

/// The client and the address that it has connected to, as a load balancer names them. Boxed, because
/// few connections have it.
#[derive(Debug, Default)]
pub(crate) struct ProxiedAddresses(pub(crate) Option<Box<[SocketAddr; 2]>>);

impl ProxiedAddresses {
    /// The client of a connection that comes from `peer`.
    pub(crate) fn client(&self, peer: SocketAddr) -> SocketAddr {
        self.0.as_deref().map_or(peer, |[client, _]| *client)
    }
}

/// A client's socket and its TLS state, past the handshake.
pub(crate) struct Session {
    pub(crate) client: TcpStream,
    pub(crate) tls: Box<ServerConnection>,
    /// Place of the connection at the backend, once it has one.
    pub(crate) counted: Option<ConnectionCount>,
}

impl Session {
    /// Connects to the backend for this connection, to another address if one cannot be reached. The
    /// PROXY header that may have to come first is sent to one address only.
    pub(crate) async fn reach_backend(
        &mut self,
        peer: SocketAddr,
        proxied: &ProxiedAddresses,
        site: &Site,
        worker: &WorkerState,
        log: &mut LogEntry,
    ) -> Result<Box<BackendStream>, End> {
        let (name, alpn) = (self.tls.server_name(), self.tls.alpn_protocol());
        let Some(pool) = site.backends.choose(name, alpn) else {
            if worker.outages.may_log().is_some() {
                let alpn = alpn.map(String::from_utf8_lossy);
                tracing::warn!(
                    name,
                    alpn = alpn.as_deref(),
                    "a client asks for what no backend is configured for"
                );
            }
            return Err(End::NoBackend);
        };
        let mut header = Vec::new();
        if let Some(version) = site.proxy_header {
            let made = self.proxy_header(version, peer, proxied);
            header = made.map_err(|_| End::Client)?;
        }
        let mut end = End::BackendUnreachable;
        if pool.awaits_address() {
            // Apart, as most tasks never need its room.
            Box::pin(pool.first_address(site.limits.backend_connect)).await;
        }
        let mut attempts = pool.attempts(worker.next_turn(), site.limits.backend_connect);
        while let Some(attempt) = attempts.next() {
            let mut stage = Stage::default();
            let address = attempt.counted.address();
            log.backend(address);
            let tls_config = pool.tls_config.as_deref().map(|config| (config, alpn));
            let opened = open(&attempt, &header, tls_config, worker, &mut stage);
            // A handshake with a backend needs much room in the task, and most tasks have none.
            let why = match timeout(attempt.patience, Box::pin(opened)).await {
                Ok(Ok(backend)) => {
                    self.counted = Some(attempt.succeeded());
                    return Ok(backend);
                }
                Ok(Err(why)) => why,
                Err(_) if stage.in_handshake => Missed::Tls(TlsFailure::late()),
                Err(_) => Missed::Late,
            };
            tracing::debug!(backend = %address, %why, "cannot connect");
            end = match &why {
                Missed::Socket(_) => End::BackendUnreachable,
                Missed::Tls(failure) if !failure.is_late() => End::BackendUnreachable,
                Missed::Tls(_) | Missed::Late => End::BackendTimeout,
            };
            attempt.failed(&why);
            if stage.sent > 0 && tls_config.is_none() {
                // It may have begun to serve this client. No backend does so before the end of its handshake.
                break;
            }
        }
        if worker.outages.may_log().is_some() {
            tracing::warn!(backend = %pool, how = end.name(), "a connection found no backend");
        }
        Err(end)
    }

    fn proxy_header(&self, version: ProxyVersion, peer: SocketAddr, proxied: &ProxiedAddresses) -> io::Result<Vec<u8>> {
        let [client, server] = match &proxied.0 {
            Some(ends) => **ends,
            None => [peer, self.client.local_addr()?],
        };
        match version {
            ProxyVersion::V1 => return Ok(proxy::line(client, server)),
            ProxyVersion::V2 => return Ok(proxy::addresses(client, server)),
            ProxyVersion::V2Records => {}
        }
        let certificate = self.tls.peer_certificates().and_then(<[_]>::first);
        let name = certificate.and_then(|der| common_name(der));
        let suite = self.tls.negotiated_cipher_suite();
        let cipher = suite.map(|suite| proxy::cipher_name(suite.suite()));
        Ok(proxy::header(&proxy::Facts {
            client,
            server,
            alpn: self.tls.alpn_protocol(),
            authority: self.tls.server_name(),
            version: match self.tls.protocol_version() {
                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                _ => "TLSv1.3",
            },
            cipher: cipher.as_deref(),
            certificate: certificate.map(|_| name.as_deref()),
            resumed: self.tls.handshake_kind() == Some(HandshakeKind::Resumed),
        }))
    }

    /// Relays both ways until both are done. Says also whether all that the backend has sent, and
    /// close_notify, has been handed to the kernel.
    pub(crate) async fn relay(
        &mut self,
        backend: Box<BackendStream>,
        limit: Duration,
        worker: &WorkerState,
        log: &mut LogEntry,
    ) -> (End, bool) {
        // What waits in it is bounded by the size of a read.
        self.tls.set_buffer_limit(None);
        let mut relay = Relay {
            session: self,
            backend,
            log,
            up: Up::Open,
            down: Down::Open,
            unsent: Unsent::default(),
            up_pace: Pace::default(),
            down_pace: Pace::default(),
            records: Records::default(),
            moved: 0,
            answered: false,
        };
        let mut idle = pin!(sleep(limit));
        let mut last_moved = 0;
        let mut last_active = Instant::now();
        let end = poll_fn(|cx| {
            let now = Instant::now();
            worker.probe.begin(now, &worker.stats);
            if let Poll::Ready(end) = relay.poll(cx, worker, now) {
                return Poll::Ready(end);
            }
            if relay.moved != last_moved {
                last_moved = relay.moved;
                last_active = now;
            }
            poll_idle(idle.as_mut(), last_active + limit, cx)
        });
        let end = end.await;
        (end, relay.down == Down::Done)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        write_tls(&mut self.client, &mut self.tls, cx)
    }
}

/// Progress of an attempt to reach a backend.
#[derive(Default)]
struct Stage {
    /// Bytes of the PROXY header that have left.
    sent: usize,
    in_handshake: bool,
}

/// Connects to an address, sends `header`, and then speaks TLS if the backend does. `tls_config`: how, and what
/// the client has agreed on.
async fn open(
    attempt: &ConnectAttempt,
    header: &[u8],
    tls_config: Option<(&BackendTlsConfig, Option<&[u8]>)>,
    worker: &WorkerState,
    stage: &mut Stage,
) -> Result<Box<BackendStream>, Missed> {
    let address = attempt.counted.address();
    let mut socket = Socket::connect(address).await.map_err(Missed::Socket)?;
    while stage.sent < header.len() {
        let rest = [IoSlice::new(&header[stage.sent..])];
        let sent = poll_fn(|cx| socket.poll_send(cx, &rest)).await;
        match sent.map_err(Missed::Socket)? {
            0 => return Err(Missed::Socket(io::ErrorKind::WriteZero.into())),
            bytes => stage.sent += bytes,
        }
    }
    let mut tls = None;
    if let Some((tls_config, alpn)) = tls_config {
        let name = attempt.name.clone().ok_or_else(|| {
            let problem = "it has no name for its certificate; set `backend_tls.server_name`";
            Missed::Socket(io::Error::other(problem))
        })?;
        stage.in_handshake = true;
        let config = tls_config.config(worker.index, address, alpn);
        let announced = worker.handshaker.client_handshake();
        let shaken = shake(&mut socket, announced, config, name).await;
        let shaken = shaken.and_then(|shaken| tls_config.agreed(shaken, alpn));
        let mut shaken = shaken.map_err(|failure| Missed::Tls(failure.behind(header)))?;
        attempt.counted.0.handshakes.succeeded(&shaken);
        // What waits in it is bounded by the size of a read.
        shaken.set_buffer_limit(None);
        tls = Some(shaken);
    }
    Ok(Box::new(BackendStream { socket, tls }))
}

/// Both directions of a connection past its handshake.
struct Relay<'a> {
    session: &'a mut Session,
    /// Outside of the task, in which it would have several places.
    backend: Box<BackendStream>,
    log: &'a mut LogEntry,
    up: Up,
    down: Down,
    unsent: Unsent,
    up_pace: Pace,
    down_pace: Pace,
    records: Records,
    /// Bytes moved in either direction, to know whether the connection is idle.
    moved: u64,
    /// True if a byte has come from the backend.
    answered: bool,
}

/// A relay that ends before both directions have ended, by an error, a time limit or the end of the
/// server, was cut. The backend sees a reset: it must not take half a request for a whole one. The
/// client sees an end without close_notify, which it gets only after the backend's own end.
impl Drop for Relay<'_> {
    fn drop(&mut self) {
        if (self.up, self.down) != (Up::Done, Down::Done) {
            self.backend.reset();
        }
    }
}

/// From the client to the backend.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Up {
    Open,
    /// The client has sent close_notify, and the backend has got the end of its bytes.
    Done,
    /// The backend takes no more; what the client sends stays unread.
    Refused,
}

/// From the backend to the client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Down {
    Open,
    /// The backend has sent its end of file; close_notify is on its way.
    Closing,
    Done,
}

/// Decrypted bytes that the backend has not taken yet. Holds no memory when there are none.
#[derive(Default)]
struct Unsent {
    bytes: Vec<u8>,
    taken: usize,
}

impl Unsent {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }
}

/// Reason why no more can be decrypted.
#[derive(PartialEq, Eq, Debug)]
enum Stop {
    /// The client has sent close_notify.
    Goodbye,
    /// The client has closed without it.
    Truncated,
    /// The client has broken the protocol or sent an alert, and rustls has queued ours. With the alert,
    /// as far as it is known.
    Broken(Option<Alert>),
}

impl Relay<'_> {
    fn poll(&mut self, cx: &mut Context<'_>, worker: &WorkerState, now: Instant) -> Poll<End> {
        let down = self.poll_down(cx, worker, now);
        if let Poll::Ready(Err(end)) = down {
            return Poll::Ready(end);
        }
        if let Poll::Ready(Err(end)) = self.poll_up(cx, worker) {
            return Poll::Ready(end);
        }
        // rustls may have queued an answer (a key update) to what was received.
        if self.session.tls.wants_write()
            && let Poll::Ready(Err(_)) = self.session.poll_send(cx)
        {
            return Poll::Ready(End::Client);
        }
        // The same to what the backend has sent. Whether it takes that shows when it is written to.
        let _ = self.backend.poll_flush(cx);
        match (self.up, self.down) {
            (Up::Done, Down::Done) => Poll::Ready(End::Clean),
            (Up::Refused, Down::Done) => Poll::Ready(End::Backend),
            _ => Poll::Pending,
        }
    }

    fn poll_up(&mut self, cx: &mut Context<'_>, worker: &WorkerState) -> Poll<Result<(), End>> {
        let mut turn = Turn::default();
        while self.up == Up::Open {
            ready!(self.poll_unsent(cx, worker));
            ready!(turn.poll(cx));
            if self.up != Up::Open {
                break;
            }
            let plain = &mut *worker.plain.borrow_mut();
            // What rustls has decrypted before, or the end that it has seen.
            let mut opened = decrypt(&mut self.session.tls, &[], plain);
            let mut cost = opened.0;
            if opened == (0, None) {
                let scratch = &mut *worker.scratch.borrow_mut();
                let room = &mut scratch[..self.up_pace.limit];
                let Ok(read) = ready!(self.session.client.poll_receive(cx, room)) else {
                    return Poll::Ready(Err(End::Client));
                };
                let received = &scratch[..read];
                if received.is_empty() {
                    let _ = self.session.tls.read_tls(&mut io::empty());
                }
                opened = decrypt(&mut self.session.tls, received, plain);
                cost = self.up_pace.read(received.len(), opened.0);
            }
            turn.moved(cost);
            let (opened, stop) = opened;
            if opened > 0 {
                self.pass_on(cx, worker, &plain[..opened]);
                if !matches!(stop, Some(Stop::Broken(_))) {
                    // An end is seen again when all that came before it is gone.
                    continue;
                }
            }
            match stop {
                None => {}
                Some(Stop::Goodbye) => {
                    self.log.closed(Side::Client);
                    self.up = match ready!(self.backend.poll_shutdown(cx)) {
                        Ok(()) => Up::Done,
                        Err(_) => Up::Refused,
                    };
                    self.moved += 1;
                }
                Some(Stop::Truncated) => return Poll::Ready(Err(End::Truncated)),
                Some(Stop::Broken(alert)) => {
                    self.log.alert(alert);
                    let _ = self.session.poll_send(cx);
                    return Poll::Ready(Err(End::Client));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends `bytes` to the backend and keeps what it does not take now.
    fn pass_on(&mut self, cx: &mut Context<'_>, worker: &WorkerState, bytes: &[u8]) {
        let taken = match self.backend.poll_write(cx, bytes) {
            Poll::Pending => 0,
            Poll::Ready(Ok(taken)) if taken > 0 => taken,
            Poll::Ready(_) => {
                self.up = Up::Refused;
                return;
            }
        };
        self.sent_up(worker, taken);
        if taken < bytes.len() {
            self.up_pace.hold_back();
            self.unsent.bytes = bytes[taken..].to_vec();
        }
    }

    /// Sends what the backend has not taken before.
    fn poll_unsent(&mut self, cx: &mut Context<'_>, worker: &WorkerState) -> Poll<()> {
        match self.backend.poll_flush(cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => {
                self.up = Up::Refused;
                return Poll::Ready(());
            }
            Poll::Pending => {
                self.up_pace.hold_back();
                return Poll::Pending;
            }
        }
        while !self.unsent.rest().is_empty() {
            match ready!(self.backend.poll_write(cx, self.unsent.rest())) {
                Ok(taken) if taken > 0 => {
                    self.unsent.taken += taken;
                    self.sent_up(worker, taken);
                }
                _ => {
                    self.up = Up::Refused;
                    break;
                }
            }
        }
        self.unsent = Unsent::default();
        Poll::Ready(())
    }

    fn sent_up(&mut self, worker: &WorkerState, bytes: usize) {
        self.moved += bytes as u64;
        self.log.received(bytes);
        let counter = &worker.stats.bytes_from_clients;
        counter.fetch_add(bytes as u64, Relaxed);
    }

    fn poll_down(&mut self, cx: &mut Context<'_>, worker: &WorkerState, now: Instant) -> Poll<Result<(), End>> {
        let mut turn = Turn::default();
        loop {
            match self.session.poll_send(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Err(End::Client)),
                Poll::Pending => {
                    self.down_pace.hold_back();
                    return Poll::Pending;
                }
            }
            match self.down {
                Down::Open => {}
                Down::Closing => {
                    let client = Pin::new(&mut self.session.client);
                    if ready!(client.poll_shutdown(cx)).is_err() {
                        return Poll::Ready(Err(End::Client));
                    }
                    self.down = Down::Done;
                    return Poll::Ready(Ok(()));
                }
                Down::Done => return Poll::Ready(Ok(())),
            }
            ready!(turn.poll(cx));
            let scratch = &mut *worker.scratch.borrow_mut();
            let plain = &mut *worker.plain.borrow_mut();
            let pace = &mut self.down_pace;
            let read = read_backend(&mut self.backend, pace, &mut turn, cx, scratch, plain);
            // An error is the end without a goodbye.
            let (bytes, stop) = ready!(read).unwrap_or((&[], Some(Stop::Truncated)));
            if !bytes.is_empty() {
                if !std::mem::replace(&mut self.answered, true)
                    && let Some(counted) = &self.session.counted
                {
                    counted.answered();
                }
                self.moved += bytes.len() as u64;
                self.log.sent(bytes.len());
                worker.stats.bytes_to_clients.fetch_add(bytes.len() as u64, Relaxed);
                for piece in self.records.pieces(bytes.len(), now) {
                    // rustls takes all of it: `relay` has lifted its limit.
                    if self.session.tls.writer().write_all(&bytes[piece]).is_err() {
                        return Poll::Ready(Err(End::Client));
                    }
                }
                if !matches!(stop, Some(Stop::Broken(_))) {
                    // An end is seen again when all that came before it is gone.
                    continue;
                }
            }
            match stop {
                None => {}
                Some(Stop::Goodbye) => {
                    self.log.closed(Side::Backend);
                    self.session.tls.send_close_notify();
                    self.down = Down::Closing;
                    self.moved += 1;
                }
                Some(Stop::Truncated | Stop::Broken(_)) => {
                    if !self.answered
                        && let Some(counted) = &self.session.counted
                    {
                        counted.broke();
                    }
                    // With the alert for a backend that breaks the protocol.
                    let _ = self.backend.poll_flush(cx);
                    // The answer may be incomplete, and must not look complete.
                    reset(&self.session.client);
                    return Poll::Ready(Err(End::Backend));
                }
            }
        }
    }
}

/// Reads what the backend has sent, into one of the two buffers. Also returns why there will be no more.
fn read_backend<'a>(
    backend: &mut BackendStream,
    pace: &mut Pace,
    turn: &mut Turn,
    cx: &mut Context<'_>,
    scratch: &'a mut [u8],
    plain: &'a mut [u8],
) -> Poll<io::Result<(&'a [u8], Option<Stop>)>> {
    let opened = match &mut backend.tls {
        Some(tls) => decrypt(tls, &[], plain),
        None => (0, None),
    };
    if opened != (0, None) {
        turn.moved(opened.0);
        return Poll::Ready(Ok((&plain[..opened.0], opened.1)));
    }
    let room = &mut scratch[..pace.limit];
    let read = ready!(backend.socket.poll_receive(cx, room))?;
    let received = &scratch[..read];
    let (bytes, stop) = match &mut backend.tls {
        Some(tls) => {
            if received.is_empty() {
                let _ = tls.read_tls(&mut io::empty());
            }
            let (opened, stop) = decrypt(tls, received, plain);
            (&plain[..opened], stop)
        }
        None => (received, received.is_empty().then_some(Stop::Goodbye)),
    };
    turn.moved(pace.read(read, bytes.len()));
    Poll::Ready(Ok((bytes, stop)))
}

/// Decrypts what `tls` has received before and `received`, all of it, into `plain`. Returns how
/// many bytes of plaintext there are, and why there will be no more.
fn decrypt<D>(tls: &mut ConnectionCommon<D>, mut received: &[u8], plain: &mut [u8]) -> (usize, Option<Stop>) {
    let mut opened = 0;
    loop {
        if opened == plain.len() {
            // `PLAIN_BYTES` rules it out. Nothing may get lost without a word.
            return (opened, Some(Stop::Broken(None)));
        }
        match tls.reader().read(&mut plain[opened..]) {
            Ok(0) => return (opened, Some(Stop::Goodbye)),
            Ok(read) => {
                opened += read;
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return (opened, Some(Stop::Truncated)),
        }
        if received.is_empty() {
            return (opened, None);
        }
        // rustls takes 4 KiB at a time.
        let taken = tls.read_tls(&mut received);
        if !taken.is_ok_and(|taken| taken > 0) {
            return (opened, Some(Stop::Broken(None)));
        }
        if let Err(error) = tls.process_new_packets() {
            return (opened, Some(Stop::Broken(alert::of(&error, true))));
        }
    }
}

/// Ready when `deadline` has passed. The timer is set again only when it fires, not for each byte.
fn poll_idle(mut timer: Pin<&mut Sleep>, deadline: Instant, cx: &mut Context<'_>) -> Poll<End> {
    while timer.as_mut().poll(cx).is_ready() {
        if timer.deadline() >= deadline {
            return Poll::Ready(End::Idle);
        }
        timer.as_mut().reset(deadline);
    }
    Poll::Pending
}
