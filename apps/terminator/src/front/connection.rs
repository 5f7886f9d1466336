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

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustls::HandshakeKind;
use tokio::time::{Instant, timeout_at};
use widelane_access_log::LogEntry;

use crate::back::relay::{ProxiedAddresses, Session};
use crate::front::beginning::{NotBegun, begin, behind_proxy, first_bytes, too_late};
use crate::front::client::Client;
use crate::front::farewell::linger;
use crate::front::handshake::{HandshakeError, Presence, handshake};
use crate::front::idle_queue::PendingClient;
use crate::front::site::Site;
use crate::handshaker::Handshake;
use crate::observe::stats::{End, Failure, Refusal};
use crate::observe::{log_entry, reason};
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
    let took = announced.took;
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
    // Of certificates the log always tells, since the operator has chosen who may come; of all else, which any client can
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
