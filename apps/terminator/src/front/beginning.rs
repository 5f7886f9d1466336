//! A connection before its handshake: it waits for a PROXY header, a ClientHello, and its turn.

use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use rustls::ServerConnection;
use tokio::time::{Instant, timeout_at};

use crate::back::relay::ProxiedAddresses;
use crate::front::admission::Admission;
use crate::front::alert;
use crate::front::client::Client;
use crate::front::gate::Permit;
use crate::front::idle_queue::{Evicted, PendingClient};
use crate::front::opening::{FIRST_READ, Opening};
use crate::front::proxy_header;
use crate::front::site::Site;
use crate::io::PollSocket;
use crate::observe::stats::{Failure, Refusal};
use crate::worker_state::WorkerState;

/// Reason why a connection has no handshake.
pub(super) enum NotBegun {
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

/// Waits for the client's first bytes.
pub(super) async fn first_bytes(
    client: &mut Client,
    worker: &WorkerState,
    pending: &PendingClient,
) -> Result<Vec<u8>, NotBegun> {
    let received = pending.until(|cx| poll_bytes(client, worker, cx, <[u8]>::to_vec));
    Ok(received.await??)
}

/// Behind a load balancer, which first says in a PROXY header who the client is and which address it has connected
/// to: waits for the client's first bytes after that.
pub(super) async fn behind_proxy(
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
pub(super) fn too_late(site: &Site) -> NotBegun {
    NotBegun::Failed(match site.limits.first_byte < site.limits.handshake {
        true => Failure::Silent,
        false => Failure::Timeout,
    })
}

/// Waits for the rest of a ClientHello, of which `early` has come, and for the handshake's turn, and makes the TLS
/// state that reads it. So a client that says nothing, or not enough, or gives up, costs no TLS state.
pub(super) async fn begin(
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
    drop(pending);
    let permit = worker.gate.enter(admission.source(), client, ends).await?;
    Ok((admission, permit, start_tls(site, opening)?))
}

/// The TLS state of a client, and its first messages as far as they have come.
pub(super) type Started = (Box<ServerConnection>, Opening);

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
