//! What one listener has: addresses, backend, protocol, certificates.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::values::{
    Backend, Network, OcspSource, ProxyVersion, one_or_several, optional_proxy_version, paths,
    seconds,
};

/// One group of addresses with the same certificates and the same backends.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Listener {
    /// Addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// Where the decrypted bytes of connections go for which there is no route: to the address with the
    /// fewest connections. Empty: these connections are closed.
    #[serde(default, deserialize_with = "one_or_several")]
    pub backend: Vec<Backend>,
    /// Other backends, for host names or application protocols.
    #[serde(rename = "route", default)]
    pub routes: Vec<Route>,
    /// Networks of load balancers that begin each connection with a PROXY protocol header, from which
    /// the client's address is taken. Others are clients themselves.
    #[serde(default)]
    pub proxy_protocol_from: Vec<Network>,
    /// Send a PROXY protocol header of this version to the backend. Earlier releases called it
    /// `proxy_protocol`, and `true` meant version 2.
    #[serde(
        default,
        alias = "proxy_protocol",
        deserialize_with = "optional_proxy_version"
    )]
    pub proxy_protocol_to: Option<ProxyVersion>,
    /// Application protocols, most wanted first. Empty: ALPN is not answered.
    #[serde(default)]
    pub alpn: Vec<String>,
    /// Protocol versions.
    #[serde(default = "both_versions")]
    pub versions: Vec<TlsVersion>,
    /// Cipher suites by IANA name, most wanted first. Empty: all, AES-128-GCM first.
    #[serde(default)]
    pub cipher_suites: Vec<String>,
    /// Key exchange groups, most wanted first. Empty: all, the post-quantum hybrid first.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Whether clients are asked for a certificate, and whose are good.
    #[serde(default)]
    pub client_auth: Option<ClientAuth>,
    /// Session resumption.
    #[serde(default)]
    pub tickets: Tickets,
    /// Kinds of key, most wanted first, where several certificates are for the host that a client
    /// names. Kinds that are not listed come after those that are.
    #[serde(default = "usual_preference")]
    pub certificate_preference: Vec<KeyKind>,
    /// Certificates. Those with a name of the first one answer clients that name no host or an
    /// unknown one.
    #[serde(rename = "certificate", default)]
    pub certificates: Vec<Certificate>,
}

/// A backend for some of a listener's connections.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Route {
    /// Host names that clients ask for: exact, or `*.` and a name for one more label. Empty: all, and
    /// clients that ask for none.
    #[serde(default, deserialize_with = "one_or_several")]
    pub server_name: Vec<String>,
    /// Application protocols agreed on. Empty: all, and connections that agree on none.
    #[serde(default, deserialize_with = "one_or_several")]
    pub alpn: Vec<String>,
    /// Where the decrypted bytes go.
    #[serde(deserialize_with = "one_or_several")]
    pub backend: Vec<Backend>,
}

/// Session resumption by tickets.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Tickets {
    /// TLS 1.3 tickets sent after a full handshake; 0 turns resumption off for both versions.
    pub count: usize,
    /// How long one ticket key encrypts; it decrypts for as long again. At most six hours.
    #[serde(rename = "rotation_seconds", deserialize_with = "seconds")]
    pub rotation: Duration,
    /// How long after its full handshake a session can be resumed, however often its tickets are
    /// renewed. At most a week.
    #[serde(rename = "session_seconds", deserialize_with = "seconds")]
    pub session: Duration,
    /// Files and directories with keys that other machines have as well. The first key encrypts, all
    /// decrypt; `rotation` has no meaning then. Empty: the process makes its own keys.
    #[serde(deserialize_with = "paths")]
    pub keys: Vec<PathBuf>,
}

/// A certificate chain and its key.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Certificate {
    /// PEM file with the chain, leaf first.
    pub cert: PathBuf,
    /// PEM file with the private key.
    pub key: PathBuf,
    /// Host names it answers for. Empty: those in the certificate.
    #[serde(default)]
    pub names: Vec<String>,
    /// Where its OCSP response comes from. `None`: clients get none.
    #[serde(default)]
    pub ocsp: Option<OcspSource>,
}

/// Client certificates.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ClientAuth {
    /// Whether a client may come without one.
    pub mode: ClientAuthMode,
    /// PEM file of the authorities that sign them.
    pub ca: PathBuf,
    /// PEM file of revocation lists. If there is one, every authority of a client's chain needs its
    /// list in it, and a list past its next update refuses all clients of that authority.
    #[serde(default)]
    pub crl: Option<PathBuf>,
}

/// Whether a client may come without a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientAuthMode {
    /// It may; a certificate that it shows must be good.
    Optional,
    /// No connection without a good one.
    Required,
}

/// A kind of private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyKind {
    /// ECDSA on P-256, P-384 or P-521.
    Ecdsa,
    /// Ed25519.
    Ed25519,
    /// RSA.
    Rsa,
    /// ML-DSA-44, -65 or -87.
    MlDsa,
}

/// A TLS protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum TlsVersion {
    /// TLS 1.2
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3
    #[serde(rename = "1.3")]
    Tls13,
}

impl Listener {
    /// A listener with default policy and no certificate yet.
    pub fn new(listen: Vec<SocketAddr>, backend: Backend) -> Self {
        Self {
            listen,
            backend: vec![backend],
            routes: Vec::new(),
            proxy_protocol_from: Vec::new(),
            proxy_protocol_to: None,
            alpn: Vec::new(),
            versions: both_versions(),
            cipher_suites: Vec::new(),
            groups: Vec::new(),
            client_auth: None,
            tickets: Tickets::default(),
            certificate_preference: usual_preference(),
            certificates: Vec::new(),
        }
    }
}

impl Route {
    /// For these host names, with all application protocols.
    pub fn new(server_name: Vec<String>, backend: Vec<Backend>) -> Self {
        Self {
            server_name,
            alpn: Vec::new(),
            backend,
        }
    }
}

impl ClientAuth {
    /// Certificates signed by an authority of the file `ca`.
    pub fn new(mode: ClientAuthMode, ca: impl Into<PathBuf>) -> Self {
        Self {
            mode,
            ca: ca.into(),
            crl: None,
        }
    }
}

impl Certificate {
    /// A certificate for the names that it contains.
    pub fn new(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            cert: cert.into(),
            key: key.into(),
            names: Vec::new(),
            ocsp: None,
        }
    }
}

impl Default for Tickets {
    fn default() -> Self {
        Self {
            count: 2,
            rotation: LONGEST_ROTATION,
            session: Duration::from_secs(24 * 3600),
            keys: Vec::new(),
        }
    }
}

pub(super) fn both_versions() -> Vec<TlsVersion> {
    vec![TlsVersion::Tls12, TlsVersion::Tls13]
}

/// ECDSA first: every client of today verifies it, and it is the shortest and cheapest. ML-DSA
/// last: it adds ten kilobytes and more to a handshake, for which the operator should ask.
pub(super) fn usual_preference() -> Vec<KeyKind> {
    vec![
        KeyKind::Ecdsa,
        KeyKind::Ed25519,
        KeyKind::Rsa,
        KeyKind::MlDsa,
    ]
}

/// Who takes a ticket key from memory can read all sessions of TLS 1.2 for which it made tickets.
pub(super) const LONGEST_ROTATION: Duration = Duration::from_secs(6 * 3600);
