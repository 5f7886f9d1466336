//! Events of a handshake for tracers: see `docs/trace.md`.

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
        self.resumed();
    }

    /// After each call: it may have ended the handshake.
    pub fn stepped<D>(&mut self, connection: &ConnectionCommon<D>, failure: Option<&rustls::Error>) {
        if self.0.is_under_way() {
            match failure {
                None if connection.is_handshaking() => {}
                None => self.end(agreed(connection), Ending::Complete, None),
                Some(error) => self.end(agreed(connection), Ending::Protocol, alert(error)),
            }
        }
    }

    /// The handshake begins, unless it has begun before.
    pub(crate) fn begin<D: 'static>(&mut self, _: &ConnectionCommon<D>) {
        let client = TypeId::of::<D>() == TypeId::of::<ClientConnectionData>();
        self.begin_as(match client {
            true => Side::Client,
            false => Side::Server,
        });
    }

    /// A client's handshake begins, with the making of its connection.
    pub(crate) fn begin_client(&mut self) {
        self.begin_as(Side::Client);
    }

    // Functions of their own, so that each probe has one place: a tracer attaches to all.

    #[inline(never)]
    fn begin_as(&mut self, side: Side) {
        self.0.begin(side);
    }

    /// The calling thread goes on with a step.
    #[inline(never)]
    pub(crate) fn resumed(&self) {
        self.0.step();
    }

    #[inline(never)]
    fn end(&mut self, agreed: Agreed, ending: Ending, alert: Option<u8>) {
        self.0.ended(agreed, ending, alert);
    }

    /// Reports a failed handshake, perhaps before there was a connection.
    pub(crate) fn failed<D>(&mut self, connection: Option<&ConnectionCommon<D>>, error: &HandshakeError) {
        let (ending, alert) = match error {
            HandshakeError::Tls(error) => (Ending::Protocol, alert(error)),
            HandshakeError::Closed | HandshakeError::Io(_) => (Ending::Closed, None),
            HandshakeError::Overloaded | HandshakeError::ShutDown | HandshakeError::NoStack(_) => (Ending::Own, None),
        };
        let agreed = connection.map(agreed).unwrap_or_default();
        self.end(agreed, ending, alert);
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        if self.0.is_under_way() {
            self.end(Agreed::default(), Ending::Closed, None);
        }
    }
}

/// Parameters that were agreed upon so far.
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::ServerConnection;

    fn server() -> ServerConnection {
        let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let chain = vec![key.cert.der().clone()];
        let secret = key.signing_key.serialize_der().try_into().unwrap();
        let config = rustls::ServerConfig::builder_with_provider(crate::default_provider().into());
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(chain, secret);
        ServerConnection::new(config.unwrap().into()).unwrap()
    }

    #[test]
    fn a_handshake_ends_by_an_error_and_only_once() {
        let (mut observed, mut server) = (Observed::default(), server());
        observed.step(&server);
        observed.stepped(&server, None);
        assert!(observed.0.is_under_way(), "the client has said nothing");
        server.read_tls(&mut &b"GET / HTTP/1.1\r\n"[..]).unwrap();
        observed.step(&server);
        let result = server.process_new_packets();
        observed.stepped(&server, result.as_ref().err());
        assert!(result.is_err() && !observed.0.is_under_way());
        observed.step(&server);
        assert!(!observed.0.is_under_way(), "it does not begin again");
    }

    #[test]
    fn only_alerts_of_the_peer_are_told() {
        let received = rustls::Error::AlertReceived(rustls::AlertDescription::UnknownCA);
        assert_eq!(alert(&received), Some(48));
        assert_eq!(alert(&rustls::Error::DecryptError), None);
    }
}
