//! The life of one connection: handshake, backend, relay.
//!
//! | stage     | ends with                                      | then                            |
//! |-----------|------------------------------------------------|---------------------------------|
//! | silence   | a PROXY header, if the peer is a load balancer | silence                         |
//! | silence   | a bad header, or a limit of the real client    | closed                          |
//! | silence   | a whole ClientHello, or what is none           | gate                            |
//! | gate      | its turn (`gate.rs`)                           | handshake                       |
//! | gate      | end, time limit; too long a wait in overload   | closed; reset                   |
//! | silence   | end or close_notify, time limit, place needed  | closed                          |
//! | handshake | complete, and the client is still there        | backend                         |
//! | handshake | complete, but the client has closed by then    | closed, without a backend       |
//! | handshake | an error of the client                         | alert, lingering                |
//! | lingering | the client's end, time limit, place needed     | closed                          |
//! | handshake | end of file, time limit                        | closed                          |
//! | handshake | the engine's queue is full                     | internal_error, closed          |
//! | backend   | connected (PROXY header sent if configured)    | relay                           |
//! | backend   | refused, time limit, no other address          | closed, without close_notify    |
//! | relay     | both directions have ended                     | closed                          |
//! | relay     | error, time limit, the server stops            | backend reset, closed           |
//!
//! Memory is bounded. In each direction a connection holds the bytes of one read (`pace.rs` says how
//! many at most), and reads again only when the other side has taken them. An idle connection holds
//! no bytes: all reads of a worker use one buffer, and all that it decrypts goes through another.

use std::future::poll_fn;
use std::io::{self, BufRead, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::{HandshakeKind, ProtocolVersion, ServerConnection};
use tokio::time::{Instant, timeout, timeout_at};
use widelane_access_log::{Alert, LogEntry};

use crate::back::relay::{ProxiedAddresses, Session};
use crate::front::admission::Admission;
use crate::front::alert;
use crate::front::client::Client;
use crate::front::client_hello::ClientHelloSummary;
use crate::front::gate::Permit;
use crate::front::idle_queue::{Evicted, Kind, PendingClient};
use crate::front::opening::{FIRST_READ, Opening, TOO_LONG};
use crate::front::proxy_header;
use crate::front::read_ahead::Expected;
use crate::front::site::Site;
use crate::handshaker::{Handshake, ProcessFailure};
use crate::io::{PollSocket, read_tls, write_tls};
use crate::observe::stats::{End, Failure, Refusal};
use crate::observe::{log_entry, reason};
use crate::turn::Turn;
use crate::worker_state::WorkerState;

/// Serves one accepted connection to its end.
pub(crate) async fn serve(
    mut client: Client,
    peer: SocketAddr,
    site: Arc<Site>,
    worker: &WorkerState,
    mut announced: Handshake,
    pending: PendingClient,
    mut log: LogEntry,
) {
    let accepted = Instant::now();
    let mut proxied = ProxiedAddresses::default();
    let (mut admission, permit, (tls, mut opening)) = {
        let silence_ends = accepted + site.limits.first_byte.min(site.limits.handshake);
        let first = match site.has_proxy(peer.ip()) {
            false => timeout_at(silence_ends, first_bytes(&mut client, worker, &pending)).await,
            // Most listeners have no proxies, and their tasks must not be larger for them.
            true => {
                let first = behind_proxy(&mut client, peer, &mut proxied, &site, worker, &pending);
                timeout_at(silence_ends, Box::pin(first)).await
            }
        };
        let begun = match first.unwrap_or_else(|_| Err(too_late(&site))) {
            Ok(early) => {
                let ends = accepted + site.limits.handshake;
                begin(&mut client, early, &site, worker, pending, ends).await
            }
            Err(not_begun) => Err(not_begun),
        };
        let peer = proxied.client(peer);
        log.client(peer);
        match begun {
            Ok(begun) => begun,
            Err(NotBegun::Failed(failure)) => {
                worker.stats.failed(failure);
                log.failed(failure.name());
                let failure = failure.name();
                tracing::debug!(%peer, failure, "closed before the handshake began");
                return;
            }
            Err(NotBegun::Refused(refusal)) => {
                worker.stats.refused(refusal);
                log.refused(refusal.name());
                let limit = refusal.name();
                tracing::debug!(%peer, limit, "refused: a limit of the source");
                return;
            }
        }
    };
    let speaks_first = site.speaks_first;
    let shaken = handshake(
        &mut client,
        (tls, permit),
        &mut opening,
        speaks_first,
        &mut announced,
        worker,
        &mut log,
    );
    // In memory of its own: a connection that is past it must not keep room for it.
    let shaken = timeout_at(accepted + site.limits.handshake, Box::pin(shaken));
    let shaken = match shaken.await {
        Ok(shaken) => shaken,
        Err(_) => Err(Failure::Timeout.into()),
    };
    let took = announced.took();
    // It is under way no more: jobs of others need not wait for its jobs.
    drop(announced);
    if let Some(name) = opening.odd_name() {
        let peer = proxied.client(peer);
        tracing::debug!(%peer, name, "a client asks for what is no host name; it counts as a client that names none");
    }
    admission.handshake_failed();
    let (tls, presence) = match shaken {
        Ok(shaken) => shaken,
        Err(error) => {
            if fail(error, proxied.client(peer), &mut log, worker) {
                linger(&mut client, worker, admission, true).await;
            }
            return;
        }
    };
    admission.handshake_done();
    worker
        .stats
        .handshake(tls.protocol_version(), tls.handshake_kind(), accepted.elapsed());
    let is_resumed = tls.handshake_kind() == Some(HandshakeKind::Resumed);
    worker.handshaker.count(is_resumed, took);
    log.agreed(|| log_entry::agreed(&tls));
    log.complete(|| log_entry::complete(&tls));
    if presence == Presence::Gone {
        worker.stats.closed_without_request.fetch_add(1, Relaxed);
        log.unused();
        return;
    }
    let Ok(client) = client.into_stream() else {
        worker.stats.ended(End::Client);
        log.ended(End::Client.name());
        return;
    };
    let mut session = Session {
        client,
        tls,
        counted: None,
    };
    // As the handshake.
    let reached = Box::pin(session.reach_backend(peer, &proxied, &site, worker, &mut log)).await;
    let (end, is_answered) = match reached {
        Ok(backend) => {
            let idle = site.limits.idle;
            // A connection that lives long must not keep addresses that a reload has taken out.
            drop(site);
            session.relay(backend, idle, worker, &mut log).await
        }
        // Without close_notify, which a client could take for the end of an empty answer.
        Err(end) => (end, false),
    };
    // The connection to the backend is closed; the client's may last a while.
    session.counted = None;
    worker.stats.ended(end);
    log.ended(end.name());
    tracing::debug!(peer = %proxied.client(peer), how = end.name(), "connection ended");
    let is_bounded = match end {
        // The client may be about to send more, and has an end or an alert to read.
        End::Client | End::BackendUnreachable | End::BackendTimeout | End::NoBackend => true,
        // It has a whole answer to read, and perhaps sends all of a large body first.
        End::Backend if is_answered => false,
        _ => return,
    };
    let mut client = Client::from(session.client);
    let _ = client.shut_down();
    linger(&mut client, worker, admission, is_bounded).await;
}

/// Waits for the client's first bytes.
async fn first_bytes(client: &mut Client, worker: &WorkerState, pending: &PendingClient) -> Result<Vec<u8>, NotBegun> {
    let received = pending.until(|cx| poll_bytes(client, worker, cx, <[u8]>::to_vec));
    Ok(received.await??)
}

/// Waits for the rest of a ClientHello, of which `early` has come, and for the handshake's turn, and makes the TLS state
/// that reads it. So a client that says nothing, or not enough, or gives up, costs no TLS state.
async fn begin(
    client: &mut Client,
    early: Vec<u8>,
    site: &Site,
    worker: &WorkerState,
    pending: PendingClient,
    ends: Instant,
) -> Result<(Admission, Permit, Started), NotBegun> {
    if alert::is_goodbye(&early) {
        return Err(Failure::Closed.into());
    }
    let mut opening = Opening::default();
    if !opening.gather(&early) {
        let rest = async {
            let mut is_enough = false;
            while !is_enough {
                let more =
                    pending.until(|cx| poll_bytes(client, worker, cx, |bytes| is_enough = opening.gather(bytes)));
                more.await??;
            }
            Ok(())
        };
        // As a rule it comes in one piece, and most tasks need no room for more.
        let rest = timeout_at(ends, Box::pin(rest)).await;
        rest.unwrap_or(Err(NotBegun::Failed(Failure::Timeout)))?;
    }
    let admission = pending.leave()?;
    let permit = worker.gate.enter(admission.source(), client, ends).await?;
    Ok((admission, permit, start_tls(site, opening)?))
}

/// Reads once and has `take` take the bytes.
fn poll_bytes<T>(
    client: &mut Client,
    worker: &WorkerState,
    cx: &mut Context<'_>,
    mut take: impl FnMut(&[u8]) -> T,
) -> Poll<Result<T, Failure>> {
    let mut scratch = worker.scratch.borrow_mut();
    Poll::Ready(match ready!(client.poll_receive(cx, &mut scratch[..FIRST_READ])) {
        Ok(0) | Err(_) => Err(Failure::Closed),
        Ok(read) => Ok(take(&scratch[..read])),
    })
}

/// Behind a load balancer, which first says in a PROXY header who the client is and which address it has connected
/// to: waits for the client's first bytes after that.
async fn behind_proxy(
    client: &mut Client,
    proxy: SocketAddr,
    proxied: &mut ProxiedAddresses,
    site: &Site,
    worker: &WorkerState,
    pending: &PendingClient,
) -> Result<Vec<u8>, NotBegun> {
    let mut bytes = first_bytes(client, worker, pending).await?;
    let header = loop {
        match proxy_header::parse(&bytes) {
            Ok(None) => {}
            Ok(Some(header)) => break header,
            Err(problem) => {
                if worker.outages.may_log().is_some() {
                    tracing::warn!(
                        %proxy,
                        %problem,
                        "no PROXY header from a load balancer; let it send one (HAProxy: `send-proxy-v2`), \
                         or take its network out of `proxy_protocol_from`"
                    );
                }
                return Err(Failure::ProxyHeader.into());
            }
        }
        let received = pending.until(|cx| poll_bytes(client, worker, cx, |more| bytes.extend_from_slice(more)));
        received.await??;
    };
    proxied.0 = header.ends.map(Box::new);
    pending
        .attribute(site, proxied.client(proxy).ip())?
        .map_err(NotBegun::Refused)?;
    bytes.drain(..header.length);
    match bytes.is_empty() {
        // The balancer was faster than its client.
        true => first_bytes(client, worker, pending).await,
        false => Ok(bytes),
    }
}

/// A silent connection has had its time.
fn too_late(site: &Site) -> NotBegun {
    NotBegun::Failed(match site.limits.first_byte < site.limits.handshake {
        true => Failure::Silent,
        false => Failure::Timeout,
    })
}

/// Why a connection has no handshake.
enum NotBegun {
    Failed(Failure),
    Refused(Refusal),
}

impl From<Evicted> for NotBegun {
    fn from(_: Evicted) -> Self {
        Self::Failed(Failure::MadeRoom)
    }
}

impl From<Failure> for NotBegun {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The TLS state of a client, and its first messages as far as they have come.
type Started = (Box<ServerConnection>, Opening);

fn start_tls(site: &Site, mut opening: Opening) -> Result<Started, Failure> {
    let started = ServerConnection::new(site.tls.clone()).and_then(|mut tls| {
        let given = opening.give(&mut tls);
        given.map_err(|error| rustls::Error::General(error.to_string()))?;
        Ok((Box::new(tls), opening))
    });
    started.map_err(|error| {
        tracing::error!(%error, "no TLS state for a new connection");
        Failure::Internal
    })
}

/// Whether the client is still there at the end of its handshake.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Here,
    Gone,
}

enum HandshakeError {
    Failed(Failure, Option<Box<rustls::Error>>),
    Overloaded,
}

impl From<Failure> for HandshakeError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure, None)
    }
}

async fn handshake(
    client: &mut Client,
    (mut tls, permit): (Box<ServerConnection>, Permit),
    opening: &mut Opening,
    speaks_first: bool,
    announced: &mut Handshake,
    worker: &WorkerState,
    log: &mut LogEntry,
) -> Result<(Box<ServerConnection>, Presence), HandshakeError> {
    announced.waited(permit.waited());
    let mut permit = Some(permit);
    let closed = |_: io::Error| HandshakeError::from(Failure::Closed);
    let mut spoken = false;
    // rustls has the first bytes already.
    let mut received = true;
    let mut reads = 0;
    let mut answer: Option<Expected<'_>> = None;
    while tls.is_handshaking() {
        if !std::mem::take(&mut received) {
            reads += 1;
            if reads % READS_A_TURN == 0 {
                tokio::task::yield_now().await;
            }
            let received = poll_fn(|cx| opening.poll_receive(client, &mut tls, worker, cx)).await;
            if received.map_err(closed)? == 0 {
                return Err(Failure::Closed.into());
            }
            if let Some(answer) = answer.take() {
                answer.came(client);
            }
        }
        if let Some(changed) = opening.changed() {
            announced.change(changed);
        }
        let result;
        if opening.is_too_long() {
            result = Err(ProcessFailure::Tls(TOO_LONG));
        } else {
            (tls, result) = announced.process(tls).await;
        }
        // What a handshake costs is done for the most part. A client may be slow to read or to answer.
        drop(permit.take());
        log.agreed(|| log_entry::agreed(&tls));
        if let Err(failure) = result {
            log.alert(refuse(client, &mut tls, &failure, opening.summary, spoken).await);
            return Err(blame(failure));
        }
        if tls.is_handshaking() {
            // Else the client's own flight is not complete yet.
            if tls.wants_write() {
                spoken = true;
                opening.answered(&tls);
                poll_fn(|cx| write_tls(client, &mut tls, cx)).await.map_err(closed)?;
                let expected = worker.read_ahead.expect_answer(client).await;
                answer = Some(expected.map_err(closed)?);
            }
        }
    }
    if let Some(why) = announced.refused_ticket() {
        worker.stats.ticket_refused(why);
    }
    match look_again(client, &mut tls, speaks_first, worker).await {
        Ok(Presence::Here) => {
            poll_fn(|cx| write_tls(client, &mut tls, cx)).await.map_err(closed)?;
            Ok((tls, Presence::Here))
        }
        Ok(Presence::Gone) => Ok((tls, Presence::Gone)),
        Err(error) => {
            log.alert(alert::of(&error, true));
            say_goodbye(client, &mut tls).await;
            Err(blame(ProcessFailure::Tls(error)))
        }
    }
}

/// Looks at the socket before the last flight (session tickets) is sent and the backend is reached:
/// both are useless if the client has closed already. A close_notify alone ends only the client's own
/// direction (RFC 8446, section 6.1): where the backend speaks first, the client may wait for that. Elsewhere
/// the backend would only hear that nothing comes. An error is that of a record behind the client's Finished.
async fn look_again(
    client: &mut Client,
    tls: &mut ServerConnection,
    speaks_first: bool,
    worker: &WorkerState,
) -> Result<Presence, rustls::Error> {
    if has_plaintext(tls) {
        return Ok(Presence::Here);
    }
    if !said_goodbye(tls) {
        if client.watch().is_err() {
            return Ok(Presence::Gone);
        }
        // The event loop asks the kernel for news before this task runs again. Without news, the
        // read below costs no system call.
        tokio::task::yield_now().await;
        match poll_once(|cx| read_tls(client, tls, cx)).await {
            Poll::Pending => {}
            Poll::Ready(Ok(0) | Err(_)) => return Ok(Presence::Gone),
            Poll::Ready(Ok(_)) => {
                tls.process_new_packets()?;
            }
        }
    }
    if said_goodbye(tls) && (!speaks_first || has_closed(client, worker).await) {
        // An orderly close. The client may have come for the tickets. Dropping the socket ends it.
        tls.send_close_notify();
        send_last_words(client, tls);
        return Ok(Presence::Gone);
    }
    Ok(Presence::Here)
}

/// Whether a client that has sent close_notify has closed its socket as well. rustls reads no further
/// then, and what a client sends behind its close_notify is ignored.
async fn has_closed(client: &mut Client, worker: &WorkerState) -> bool {
    // The end often comes right behind close_notify, in a segment of its own. A socket that the event
    // loop does not watch is simply read.
    tokio::task::yield_now().await;
    let read = poll_once(|cx| {
        let mut scratch = worker.scratch.borrow_mut();
        client.poll_receive(cx, &mut scratch[..FIRST_READ])
    });
    matches!(read.await, Poll::Ready(Ok(0) | Err(_)))
}

/// Sends the alert that is due for a failed handshake, or rustls' own where that is encrypted, and ends our
/// direction. Only rustls can encrypt an alert; ours needs a handshake that is not encrypted yet. Returns
/// the alert that ended the handshake, the client's or ours, if that is known.
async fn refuse(
    client: &mut Client,
    tls: &mut ServerConnection,
    failure: &ProcessFailure,
    summary: ClientHelloSummary,
    spoken: bool,
) -> Option<Alert> {
    let mut alert = match failure {
        ProcessFailure::Tls(error) => alert::of(error, false),
        ProcessFailure::Overloaded | ProcessFailure::Internal(_) => None,
    };
    if is_in_plain(tls, spoken) {
        let mut words = Vec::new();
        while tls.wants_write() && tls.write_tls(&mut words).is_ok_and(|n| n > 0) {}
        alert::finish(&mut words, failure, summary, tls.protocol_version());
        alert = alert::at_end(&words).map(alert::sent).or(alert);
        // The socket's buffer has room for a server's first flights.
        let _ = client.last_words().write_all(&words);
    }
    say_goodbye(client, tls).await;
    alert
}

/// Whether what is sent now in a handshake is not encrypted. `spoken`: something was sent before.
fn is_in_plain(tls: &ServerConnection, spoken: bool) -> bool {
    if !spoken && !tls.wants_write() {
        return true;
    }
    match tls.protocol_version() {
        // A server encrypts from its own Finished on: its last flight, or its first if it resumes.
        Some(ProtocolVersion::TLSv1_2) => tls.is_handshaking() && tls.handshake_kind() != Some(HandshakeKind::Resumed),
        // It encrypts right after ServerHello, for which keys were agreed on.
        _ => tls.negotiated_key_exchange_group().is_none(),
    }
}

fn blame(failure: ProcessFailure) -> HandshakeError {
    let error = match failure {
        ProcessFailure::Overloaded => return HandshakeError::Overloaded,
        ProcessFailure::Internal(error) => {
            tracing::error!("a handshake failed by our own fault: {error}");
            let error = Box::new(rustls::Error::General(error));
            return HandshakeError::Failed(Failure::Internal, Some(error));
        }
        ProcessFailure::Tls(error) => error,
    };
    let failure = match &error {
        rustls::Error::NoCertificatesPresented
        | rustls::Error::InvalidCertificate(_)
        | rustls::Error::InvalidCertRevocationList(_) => Failure::Certificate,
        rustls::Error::AlertReceived(_) => Failure::Closed,
        rustls::Error::General(text) if text == alert::NO_CERTIFICATE => Failure::UnknownName,
        _ => Failure::Protocol,
    };
    HandshakeError::Failed(failure, Some(Box::new(error)))
}

/// Counts and tells a handshake that failed. Returns whether the client may have something to read, and to send.
fn fail(error: HandshakeError, peer: SocketAddr, log: &mut LogEntry, worker: &WorkerState) -> bool {
    let (failure, error) = match error {
        HandshakeError::Failed(failure, error) => (failure, error),
        HandshakeError::Overloaded => {
            worker.stats.refused(Refusal::Engine);
            log.refused(Refusal::Engine.name());
            tracing::debug!(%peer, "refused: the engine's queue is full");
            return true;
        }
    };
    worker.stats.failed(failure);
    log.failed(failure.name());
    let (result, reason) = (failure.name(), error.as_deref().map(reason::of));
    // Of certificates the log always tells, since the operator has chosen who may come; of all else, which anybody can
    // cause, only on demand.
    match failure {
        Failure::Certificate => {
            if let Some(untold) = worker.certificates.may_log() {
                let reason = reason.as_deref();
                tracing::info!(%peer, reason, untold, "a client is refused for its certificate");
            }
        }
        _ => tracing::debug!(%peer, result, reason = reason.as_deref(), "handshake failed"),
    }
    log.reason(reason);
    failure != Failure::Timeout
}

fn has_plaintext(tls: &mut ServerConnection) -> bool {
    matches!(tls.reader().fill_buf(), Ok(bytes) if !bytes.is_empty())
}

/// Whether the client has sent close_notify and nothing before it that is still unread.
fn said_goodbye(tls: &mut ServerConnection) -> bool {
    matches!(tls.reader().fill_buf(), Ok([]))
}

/// Sends what is due (an alert, close_notify) if the socket takes it now, and ends our direction.
async fn say_goodbye(client: &mut Client, tls: &mut ServerConnection) {
    send_last_words(client, tls);
    let _ = client.shut_down();
}

/// Reads what the client still sends, for a while and, if `is_bounded`, not much, and drops it. A socket
/// that is closed with unread bytes in it sends a reset, by which the client may lose the alert that came
/// before.
async fn linger(client: &mut Client, worker: &WorkerState, admission: Admission, is_bounded: bool) {
    let mut left = if is_bounded { LINGER_BYTES } else { usize::MAX };
    let pending = worker.idle.enter(Kind::Lingering, admission);
    let drained = pending.until(|cx| {
        let mut turn = Turn::default();
        while left > 0 {
            ready!(turn.poll(cx));
            let mut scratch = worker.scratch.borrow_mut();
            match ready!(client.poll_receive(cx, &mut scratch)) {
                Ok(0) | Err(_) => break,
                Ok(read) => {
                    left = left.saturating_sub(read);
                    turn.moved(read);
                }
            }
        }
        Poll::Ready(())
    });
    // Boxed: a connection that is relayed must not keep room for it.
    let _ = timeout(LINGER, Box::pin(drained)).await;
}

/// Hands what rustls has queued to the kernel, as much as it takes. The kernel sends it together
/// with the end of the stream, which the caller must cause at once.
fn send_last_words(client: &Client, tls: &mut ServerConnection) {
    while tls.wants_write() && tls.write_tls(&mut client.last_words()).is_ok_and(|n| n > 0) {}
}

/// Polls once; returns `Pending` instead of waiting.
async fn poll_once<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    poll_fn(|cx| Poll::Ready(poll(cx))).await
}

/// Reads of one handshake before the event loop looks at other sockets and timers. Few handshakes have more.
const READS_A_TURN: usize = 4;
/// How long a client that gets no further may go on sending, and for how many bytes if it was refused.
const LINGER: Duration = Duration::from_secs(5);
const LINGER_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of the future that an asynchronous function of seven arguments returns.
    fn size_of_future<A, B, C, D, E, G, H, F: Future>(_: impl FnOnce(A, B, C, D, E, G, H) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_costs_a_small_task() {
        let size = size_of_future(serve);
        assert!(size <= 960, "{size} bytes a connection; what has grown?");
    }
}
