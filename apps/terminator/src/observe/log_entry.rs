//! Names and numbers of a handshake for its line in the access log.

use aws_lc_rs::digest::{SHA256, digest};
use rustls::{HandshakeKind, ProtocolVersion, ServerConnection};
use widelane_access_log::{Agreed, Complete};

use crate::material::tls::{group_name, iana_name};

/// Agreements of client and server so far.
pub(crate) fn agreed(tls: &ServerConnection) -> Agreed<'_> {
    Agreed {
        server_name: tls.server_name(),
        version: tls.protocol_version().map(|version| match version {
            ProtocolVersion::TLSv1_2 => "1.2",
            ProtocolVersion::TLSv1_3 => "1.3",
            _ => "?",
        }),
        suite: tls.negotiated_cipher_suite().map(|suite| iana_name(suite.suite())),
        group: tls
            .negotiated_key_exchange_group()
            .map(|group| group_name(group.name())),
    }
}

/// Facts about a handshake that is complete.
pub(crate) fn complete(tls: &ServerConnection) -> Complete<'_> {
    let shown = tls.peer_certificates().and_then(<[_]>::first);
    Complete {
        resumed: tls.handshake_kind() == Some(HandshakeKind::Resumed),
        alpn: tls.alpn_protocol(),
        certificate: shown.and_then(|shown| digest(&SHA256, shown).as_ref().try_into().ok()),
    }
}
