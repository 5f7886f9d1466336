//! The handshake of a connection, from the ClientHello to a client that is still there.

use std::future::poll_fn;
use std::io::{self, BufRead, Write};
use std::task::{Context, Poll};

use rustls::{HandshakeKind, ProtocolVersion, ServerConnection};
use widelane_access_log::{Alert, LogEntry};

use crate::front::alert;
use crate::front::client::Client;
use crate::front::client_hello::ClientHelloSummary;
use crate::front::farewell::{say_goodbye, send_last_words};
use crate::front::gate::Permit;
use crate::front::opening::{FIRST_READ, Opening, TOO_LONG};
use crate::front::read_ahead::Expected;
use crate::handshaker::{Handshake, ProcessFailure};
use crate::io::{PollSocket, read_tls, write_tls};
use crate::observe::log_entry;
use crate::observe::stats::Failure;
use crate::worker_state::WorkerState;

/// Presence of the client at the end of its handshake.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Here,
    Gone,
}

pub(super) enum HandshakeError {
    Failed(Failure, Option<Box<rustls::Error>>),
    Overloaded,
}

impl From<Failure> for HandshakeError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure, None)
    }
}

pub(super) async fn handshake(
    client: &mut Client,
    (mut tls, permit): (Box<ServerConnection>, Permit),
    opening: &mut Opening,
    speaks_first: bool,
    announced: &mut Handshake,
    worker: &WorkerState,
    log: &mut LogEntry,
) -> Result<(Box<ServerConnection>, Presence), HandshakeError> {
    announced.took += permit.waited;
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

/// Returns whether a client that has sent close_notify has closed its socket as well. rustls reads no further
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

/// Returns whether what is sent now in a handshake is not encrypted. `spoken`: something was sent before.
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

pub(super) fn blame(failure: ProcessFailure) -> HandshakeError {
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

pub(super) fn has_plaintext(tls: &mut ServerConnection) -> bool {
    matches!(tls.reader().fill_buf(), Ok(bytes) if !bytes.is_empty())
}

/// Returns whether the client has sent close_notify and nothing before it that is still unread.
fn said_goodbye(tls: &mut ServerConnection) -> bool {
    matches!(tls.reader().fill_buf(), Ok([]))
}

/// Polls once; returns `Pending` instead of waiting.
async fn poll_once<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    poll_fn(|cx| Poll::Ready(poll(cx))).await
}

/// Reads of one handshake before the event loop looks at other sockets and timers. Few handshakes have more.
const READS_A_TURN: usize = 4;
