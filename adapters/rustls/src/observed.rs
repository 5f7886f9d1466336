//! What tracers see of a handshake: see `docs/trace.md`.

use std::any::TypeId;

use rustls::client::ClientConnectionData;
use rustls::{ConnectionCommon, HandshakeKind};
use widelane_probes::{Agreed, Connection, Ending, Side};

use crate::driver::HandshakeError;

/// Shows the handshake of one connection to `widelane trace` and other tracers. A
/// [`Handshake`](crate::Handshake) does so by itself: this is for programs that call rustls without a
/// driver.
///
/// Dropped in the middle, it tells that the connection was closed.
#[derive(Debug, Default)]
pub struct Observed(Connection);

impl Observed {
    /// Before each call of [`process_new_packets`](ConnectionCommon::process_new_packets): the calling
    /// thread begins with the handshake, or goes on with it.
    pub fn step<D: 'static>(&mut self, connection: &ConnectionCommon<D>) {
        self.begin(connection);
        self.0.step();
    }

    /// After each call: it may have ended the handshake.
    pub fn stepped<D>(
        &mut self,
        connection: &ConnectionCommon<D>,
        failure: Option<&rustls::Error>,
    ) {
        if self.0.is_under_way() {
            match failure {
                None if connection.is_handshaking() => {}
                None => self.0.ended(agreed(connection), Ending::Complete, None),
                Some(error) => self
                    .0
                    .ended(agreed(connection), Ending::Protocol, alert(error)),
            }
        }
    }

    /// The handshake begins, unless it has begun before.
    pub(crate) fn begin<D: 'static>(&mut self, _: &ConnectionCommon<D>) {
        let client = TypeId::of::<D>() == TypeId::of::<ClientConnectionData>();
        self.0.begin(match client {
            true => Side::Client,
            false => Side::Server,
        });
    }

    /// A client's handshake begins, with the making of its connection.
    pub(crate) fn begin_client(&mut self) {
        self.0.begin(Side::Client);
    }

    /// The calling thread goes on with a step.
    pub(crate) fn resumed(&self) {
        self.0.step();
    }

    /// It has failed, perhaps before there was a connection.
    pub(crate) fn failed<D>(
        &mut self,
        connection: Option<&ConnectionCommon<D>>,
        error: &HandshakeError,
    ) {
        let (ending, alert) = match error {
            HandshakeError::Tls(error) => (Ending::Protocol, alert(error)),
            HandshakeError::Closed | HandshakeError::Io(_) => (Ending::Closed, None),
            HandshakeError::Overloaded | HandshakeError::ShutDown | HandshakeError::NoStack(_) => {
                (Ending::Own, None)
            }
        };
        let agreed = connection.map(agreed).unwrap_or_default();
        self.0.ended(agreed, ending, alert);
    }
}

/// What was agreed upon so far.
fn agreed<D>(connection: &ConnectionCommon<D>) -> Agreed {
    let suite = connection.negotiated_cipher_suite();
    let group = connection.negotiated_key_exchange_group();
    Agreed {
        version: connection.protocol_version().map_or(0, u16::from),
        cipher: suite.map_or(0, |suite| suite.suite().into()),
        group: group.map_or(0, |group| group.name().into()),
        resumed: (connection.handshake_kind()).map(|kind| kind == HandshakeKind::Resumed),
    }
}

/// The alert that the peer has sent.
fn alert(error: &rustls::Error) -> Option<u8> {
    match error {
        rustls::Error::AlertReceived(alert) => Some((*alert).into()),
        _ => None,
    }
}
