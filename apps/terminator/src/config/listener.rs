//! What one listener has: addresses, backend, protocol, certificates.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::values::{
    Backend, Network, OcspSource, ProxyVersion, SecretFile, listen_addresses, one_or_several,
    paths, seconds, texts,
};

/// One group of addresses with the same certificates and the same backends.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Listener {
    /// Addresses to listen on.
    #[serde(deserialize_with = "listen_addresses")]
    pub listen: Vec<SocketAddr>,
    /// Where the decrypted bytes of connections go for which there is no route: to the address with the
    /// fewest connections. Empty: these connections are closed.
    #[serde(default, deserialize_with = "one_or_several")]
    pub backend: Vec<Backend>,
    /// TLS to `backend`. `None`: it gets the decrypted bytes as they are.
    #[serde(default)]
    pub backend_tls: Option<BackendTls>,
    /// Whether and how the addresses of `backend` are checked.
    #[serde(default)]
    pub health_check: Option<HealthCheck>,
    /// Other backends, for host names or application protocols.
    #[serde(rename = "route", default)]
    pub routes: Vec<Route>,
    /// Networks of load balancers that begin each connection with a PROXY protocol header, from which
    /// the client's address is taken. Others are clients themselves.
    #[serde(default)]
    pub proxy_protocol_from: Vec<Network>,
    /// Send a PROXY protocol header of this version to the backend.
    #[serde(default)]
    pub proxy_protocol_to: Option<ProxyVersion>,
    /// The backend may speak before the client does, as those of SMTP, IMAP and MySQL: a client that ends its
    /// direction right behind its handshake gets what the backend says. Otherwise the backend is not contacted.
    #[serde(default)]
    pub backend_speaks_first: bool,
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
    /// What a client gets that names no host, or one that no certificate has.
    #[serde(default)]
    pub unknown_names: UnknownNames,
    /// Certificates. Those with all names of the first one answer clients that name no host or an
    /// unknown one.
    #[serde(rename = "certificate", default)]
    pub certificates: Vec<Certificate>,
    /// Directories of more certificates, whose files are named after each other. They come behind `certificates`,
    /// in the order of the files' names.
    #[serde(rename = "certificates", default, deserialize_with = "paths")]
    pub certificate_directories: Vec<PathBuf>,
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
    /// TLS to this backend. That of the listener's `backend` does not count here.
    #[serde(default)]
    pub backend_tls: Option<BackendTls>,
    /// Whether and how the addresses of this backend are checked.
    #[serde(default)]
    pub health_check: Option<HealthCheck>,
}

/// Checks of the addresses of a backend.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct HealthCheck {
    /// What an address must do to count as up.
    pub kind: CheckKind,
    /// The time from one check of an address to the next.
    #[serde(rename = "interval_seconds", deserialize_with = "seconds")]
    pub interval: Duration,
    /// How long one check may take.
    #[serde(rename = "timeout_seconds", deserialize_with = "seconds")]
    pub timeout: Duration,
    /// Checks that must succeed in sequence before an address that was down is up.
    pub rise: u32,
    /// Checks that must fail in sequence before an address that was up is down.
    pub fall: u32,
    /// What is asked for over HTTP. `None`: `/`.
    pub path: Option<String>,
}

/// What an address of a backend must do to count as up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckKind {
    /// Take a connection.
    #[default]
    Tcp,
    /// Answer a GET request with a status from 200 to 399, in TLS if it speaks that.
    Http,
    /// Complete a TLS handshake.
    Tls,
}

/// TLS to a backend.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct BackendTls {
    /// PEM file of the authorities that sign its certificate. `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// The host name or IP address that must be in its certificate, and that it is asked for. `None`: the
    /// host name of the backend as it is configured, or else its IP address.
    pub server_name: Option<String>,
    /// PEM file with the chain that is shown to a backend that asks for a certificate, leaf first.
    pub cert: Option<PathBuf>,
    /// PEM file with the private key of `cert`.
    pub key: Option<PathBuf>,
    /// Offer the application protocol that the client has agreed on, and no other.
    pub pass_alpn: bool,
    /// Protocol versions.
    pub versions: Vec<TlsVersion>,
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
    /// Take keys from etcd, which other machines take from there as well. `rotation` is how long one key
    /// encrypts; it decrypts for two rotations more. `None`: no etcd.
    pub etcd: Option<Etcd>,
}

/// An etcd in which ticket keys are. One instance makes them, all take them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Etcd {
    /// Its members: `https://HOST:PORT`, or `http://` without TLS.
    #[serde(deserialize_with = "texts")]
    pub endpoints: Vec<String>,
    /// What the names of the keys in etcd begin with. Instances with the same prefix share their keys.
    #[serde(default = "usual_prefix")]
    pub prefix: String,
    /// The secret under which the ticket keys in etcd are encrypted, the same on all machines.
    pub key_file: SecretFile,
    /// A user of etcd. `None`: none, or that of the client certificate.
    #[serde(default)]
    pub user: Option<String>,
    /// Its password.
    #[serde(default)]
    pub password_file: Option<SecretFile>,
    /// PEM file of the authorities that sign etcd's certificates.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// PEM file of this client's own certificate.
    #[serde(default)]
    pub cert: Option<PathBuf>,
    /// PEM file of its key.
    #[serde(default)]
    pub key: Option<SecretFile>,
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
            etcd: None,
        }
    }
}

impl Etcd {
    /// An etcd with these members and the usual prefix, without TLS and without a user.
    pub fn new(endpoints: Vec<String>, key_file: SecretFile) -> Self {
        Self {
            endpoints,
            prefix: usual_prefix(),
            key_file,
            user: None,
            password_file: None,
            ca: None,
            cert: None,
            key: None,
        }
    }
}

fn usual_prefix() -> String {
    "/widelane/tickets".into()
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
