//! Configuration of one listener: addresses, backend, protocol, certificates.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::backend::Backend;
use super::network::Network;
use super::values::{OcspSource, ProxyVersion, listen_addresses, one_or_several, paths, seconds};

/// Addresses with the same certificates and the same backends. There must be one of these sections, and may be many.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Listener {
    /// Addresses to listen on: `0.0.0.0:443` is for all of IPv4, `[::]:443` for all of IPv6 and for that only.
    #[serde(deserialize_with = "listen_addresses")]
    pub listen: Vec<SocketAddr>,
    /// Where the decrypted bytes of connections without a route go: to the address with the fewest connections, of up
    /// to 64. Default: these connections are closed, and at least one route is needed.
    #[serde(default, deserialize_with = "one_or_several")]
    pub backend: Vec<Backend>,
    /// TLS to `backend`.
    pub backend_tls: Option<BackendTls>,
    /// Checks of `backend`.
    pub health_check: Option<HealthCheck>,
    /// Other backends.
    #[serde(rename = "route", default)]
    pub routes: Vec<Route>,
    /// Networks of load balancers, whose connections must begin with a header of the PROXY protocol
    /// ([serve.md](serve.md#behind-a-load-balancer)).
    #[serde(default)]
    pub proxy_protocol_from: Vec<Network>,
    /// The backend gets a header of the PROXY protocol. `v1`: a line with both addresses. `v2`: the same in 28 bytes
    /// (52 with IPv6), as HAProxy's `send-proxy-v2`. `v2-records`: also the application protocol, the host name, the
    /// TLS version, the cipher suite by OpenSSL's name, as HAProxy sends it, and whether a client certificate was
    /// shown, with its common name.
    pub proxy_protocol_to: Option<ProxyVersion>,
    /// For protocols in which the server speaks first (SMTP, IMAP, MySQL): a client that sends close_notify right
    /// behind its handshake hears the backend. Otherwise it has asked for nothing, as health checks and probes do,
    /// and the backend is not contacted.
    #[serde(default)]
    pub backend_speaks_first: bool,
    /// Application protocols that are offered, most wanted first, each of 1 to 255 bytes. Default: `[]`, ALPN is not
    /// answered.
    #[serde(default)]
    pub alpn: Vec<String>,
    /// Protocol versions. Default: both.
    #[serde(default = "both_versions")]
    pub versions: Vec<TlsVersion>,
    /// Names of the IANA registry in upper or lower case, most wanted first. Default: all, AES-128-GCM first.
    #[serde(default)]
    pub cipher_suites: Vec<String>,
    /// Key exchange groups, written likewise, most wanted first; `P-256` and similar names work as well. Default:
    /// X25519MLKEM768, X25519, secp256r1 and secp384r1, for backends, too; others, as SecP256r1MLKEM768, have to be
    /// asked for.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Client certificates.
    pub client_auth: Option<ClientAuth>,
    /// Session resumption.
    #[serde(default)]
    pub tickets: Tickets,
    /// Kinds of key, most wanted first, for a name with several certificates; kinds that are not listed come last.
    /// Default: `ecdsa`, `ed25519`, `rsa`, `ml-dsa`.
    #[serde(default = "usual_preference")]
    pub certificate_preference: Vec<KeyKind>,
    /// What a client gets that names no host, or one that no certificate has.
    #[serde(default)]
    pub unknown_names: UnknownNames,
    /// Certificates.
    #[serde(rename = "certificate", default)]
    pub certificates: Vec<Certificate>,
    /// [Directories of certificates](serve.md#directories), which come behind the sections, in the order of the
    /// files' names.
    #[serde(rename = "certificates", default, deserialize_with = "paths")]
    pub certificate_directories: Vec<PathBuf>,
}

/// A backend for host names, for application protocols, or for names with protocols. One of both is needed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Route {
    /// Host names that clients ask for, exact or with `*.` for one more label. Default: all, and clients that name
    /// none.
    #[serde(default, deserialize_with = "one_or_several")]
    pub server_name: Vec<String>,
    /// Application protocols agreed on, each in `alpn` of the listener. Default: all, and connections that agree on
    /// none.
    #[serde(default, deserialize_with = "one_or_several")]
    pub alpn: Vec<String>,
    /// Where the decrypted bytes go, as for a listener.
    #[serde(deserialize_with = "one_or_several")]
    pub backend: Vec<Backend>,
    /// TLS to this backend.
    pub backend_tls: Option<BackendTls>,
    /// Checks of this backend.
    pub health_check: Option<HealthCheck>,
}

/// Checks of each address of `backend`, for a listener or a route. Without this section nothing is checked.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct HealthCheck {
    /// What an address must do to count as up.
    pub kind: CheckKind,
    /// From one check of an address to the next, give or take a tenth; at least 0.1.
    #[serde(rename = "interval_seconds", deserialize_with = "seconds")]
    pub interval: Duration,
    /// How long one check may take.
    #[serde(rename = "timeout_seconds", deserialize_with = "seconds")]
    pub timeout: Duration,
    /// Checks in sequence that must succeed before an address that was down is up. At least 1.
    pub rise: u32,
    /// Checks in sequence that must fail before an address that was up is down. At least 1.
    pub fall: u32,
    /// What is asked for; only with `http`. Default: `/`.
    pub path: Option<String>,
}

/// What an address of a backend must do to count as up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckKind {
    /// It takes a connection.
    #[default]
    Tcp,
    /// It answers a GET request with a status from 200 to 399, over TLS if there is `backend_tls`.
    Http,
    /// It completes a TLS handshake as `backend_tls` describes it.
    Tls,
}

/// TLS to `backend`, for a listener or a route. Without this section, it gets the decrypted bytes as they are. No
/// setting turns the check of its certificate off.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct BackendTls {
    /// PEM file of the authorities that sign the backend's certificate, or of that certificate itself. Default: the
    /// authorities of the system (`SSL_CERT_FILE` and `SSL_CERT_DIR` count).
    pub ca: Option<PathBuf>,
    /// What the certificate must have: a host name, which is also sent (SNI), or an IP address. UNIX sockets need it.
    /// Default: the host name in `backend`, or the IP address.
    pub server_name: Option<String>,
    /// PEM file with the chain, leaf first, for a backend that asks for a certificate; needs `key`.
    pub cert: Option<PathBuf>,
    /// PEM file with the private key of `cert`.
    pub key: Option<PathBuf>,
    /// The backend is offered the application protocol that the client has agreed on; otherwise none. One that does
    /// not agree on it gets none of the client's bytes: the connection goes to another address.
    pub pass_alpn: bool,
    /// Protocol versions. Default: both.
    pub versions: Vec<TlsVersion>,
}

/// [Session resumption](running.md#resumed-sessions) by tickets.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Tickets {
    /// TLS 1.3 tickets after each full handshake, at most 16; 0 turns resumption off for both versions.
    pub count: usize,
    /// How long one ticket key encrypts, 1 to 21600; it decrypts for as long again, and is then erased, also when no
    /// client comes. With keys from files it has no meaning. Default: `21600`.
    #[serde(rename = "rotation_seconds", deserialize_with = "seconds")]
    pub rotation: Duration,
    /// How long after its full handshake a session can be resumed, however often its tickets are renewed; 1 to
    /// 604800. TLS 1.2 keeps one secret for all that time. Default: `86400`.
    #[serde(rename = "session_seconds", deserialize_with = "seconds")]
    pub session: Duration,
    /// Files and directories of ticket keys that other machines have as well. Default: the process makes keys of its
    /// own.
    #[serde(deserialize_with = "paths")]
    pub keys: Vec<PathBuf>,
}

/// A certificate. A listener has one at least, here or in a directory of `certificates`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Certificate {
    /// PEM file with the chain, leaf first.
    pub cert: PathBuf,
    /// PEM file with the private key; it may be the same file.
    pub key: PathBuf,
    /// Host names for which it answers. Default: those in the certificate.
    #[serde(default)]
    pub names: Vec<String>,
    /// Where its [OCSP response](running.md#ocsp-responses) comes from; `cert` must then have the issuer's
    /// certificate, too. Default: clients get no response.
    pub ocsp: Option<OcspSource>,
}

/// Certificates of clients ([serve.md](serve.md#client-certificates)). Without this section clients are asked for
/// none.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ClientAuth {
    /// Whether a client may come without one.
    pub mode: ClientAuthMode,
    /// PEM file of the authorities that sign them, or of such certificates themselves.
    pub ca: PathBuf,
    /// PEM file of revocation lists and nothing else. Every authority in the client's chain needs its list in it; if
    /// the next update of a list is overdue, all clients of that authority are refused. Default: revocation is not
    /// checked.
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

/// What a client gets that names no host, or one that no certificate has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnknownNames {
    /// The first certificate.
    #[default]
    Default,
    /// The alert unrecognized_name.
    Refuse,
}

/// A kind of private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyKind {
    /// ECDSA on P-256, P-384 or P-521.
    Ecdsa,
    /// Ed25519.
    Ed25519,
    /// RSA.
    Rsa,
    /// ML-DSA-44, -65 or -87.
    #[serde(rename = "ml-dsa")]
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
            backend_tls: None,
            health_check: None,
            routes: Vec::new(),
            proxy_protocol_from: Vec::new(),
            proxy_protocol_to: None,
            backend_speaks_first: false,
            alpn: Vec::new(),
            versions: both_versions(),
            cipher_suites: Vec::new(),
            groups: Vec::new(),
            client_auth: None,
            tickets: Tickets::default(),
            certificate_preference: usual_preference(),
            unknown_names: UnknownNames::default(),
            certificates: Vec::new(),
            certificate_directories: Vec::new(),
        }
    }

    /// TLS to its backend, and then to those of its routes, each at its key. `key`: the listener's own.
    pub(crate) fn backend_tls(&self, key: &str) -> impl Iterator<Item = (String, Option<&BackendTls>)> {
        let own = (format!("{key}.backend_tls"), self.backend_tls.as_ref());
        let routes = self.routes.iter().enumerate();
        let routes = routes.map(move |(index, route)| {
            let key = format!("{key}.route[{index}].backend_tls");
            (key, route.backend_tls.as_ref())
        });
        std::iter::once(own).chain(routes)
    }
}

impl Route {
    /// For these host names, with all application protocols.
    pub fn new(server_name: Vec<String>, backend: Vec<Backend>) -> Self {
        Self {
            server_name,
            alpn: Vec::new(),
            backend,
            backend_tls: None,
            health_check: None,
        }
    }
}

impl BackendTls {
    /// With certificates that the authorities of the file `ca` sign.
    pub fn new(ca: impl Into<PathBuf>) -> Self {
        Self {
            ca: Some(ca.into()),
            ..Self::default()
        }
    }
}

impl Default for BackendTls {
    fn default() -> Self {
        Self {
            ca: None,
            server_name: None,
            cert: None,
            key: None,
            pass_alpn: false,
            versions: both_versions(),
        }
    }
}

impl HealthCheck {
    /// With the usual times.
    pub fn new(kind: CheckKind) -> Self {
        Self {
            kind,
            ..Self::default()
        }
    }
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self {
            kind: CheckKind::default(),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            rise: 2,
            fall: 3,
            path: None,
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
    vec![KeyKind::Ecdsa, KeyKind::Ed25519, KeyKind::Rsa, KeyKind::MlDsa]
}

/// Who takes a ticket key from memory can read all sessions of TLS 1.2 for which it made tickets.
pub(super) const LONGEST_ROTATION: Duration = Duration::from_secs(6 * 3600);
