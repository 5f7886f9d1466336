//! Errors of a run as a whole ([`LoadError`]) and of one connection ([`Fault`]).

use rustix::io::Errno;
use rustls::{AlertDescription, CertificateError};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Reason why a run could not be made. Failures of single connections are counted in the report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The caller: the target is not an address, or its name does not resolve.
    #[error("cannot use `{}` as the target: {reason}", .target.escape_debug())]
    Target {
        /// Target as given.
        target: String,
        /// Reason why the target cannot be used.
        reason: String,
    },
    /// The caller: the plan contradicts itself.
    #[error("{0}")]
    Plan(String),
    /// The operator: the file given as `--ca` cannot be used.
    #[error("cannot use {} as --ca: {reason}", path.display())]
    CaFile {
        /// The file.
        path: PathBuf,
        /// Reason why it cannot be used.
        reason: String,
    },
    /// The operator: a file given as `--certificate` or `--key` cannot be used.
    #[error("cannot use {} as the client's certificate or key: {reason}", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// Reason why it cannot be used.
        reason: String,
    },
    /// The machine: no bundle of trusted certificates was found.
    #[error(
        "found no bundle of trusted certificates on this system; \
         name one with --ca FILE, or skip the check with --insecure"
    )]
    NoSystemRoots,
    /// The server, or the address: no connection was made.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// The server's address.
        address: SocketAddr,
        /// Reason, and what to do.
        reason: String,
    },
    /// The server: its certificate is not trusted.
    #[error(
        "{address} shows a certificate that is not trusted as `{server_name}`: {reason}; name its \
         issuer with --ca FILE, the name it is for with --server-name, or skip the check with \
         --insecure"
    )]
    Certificate {
        /// The server's address.
        address: SocketAddr,
        /// The name that was expected.
        server_name: String,
        /// Reason.
        reason: String,
    },
    /// The server: the first handshake failed.
    #[error("the first handshake with {address} failed: {reason}")]
    Handshake {
        /// The server's address.
        address: SocketAddr,
        /// Reason, and what to do.
        reason: String,
    },
    /// The machine: too few file descriptors for the connections asked for.
    #[error(
        "{needed} file descriptors are needed and this process may have {limit}; raise the limit \
         (ulimit -Hn, LimitNOFILE=) or lower --concurrency"
    )]
    Descriptors {
        /// Number that the plan needs.
        needed: u64,
        /// The hard limit.
        limit: u64,
    },
    /// The caller: a CPU that cannot be used.
    #[error("cannot pin a thread to CPU {cpu} ({source}); see `nproc --all` and `taskset -p $$`")]
    Cpu {
        /// Number of the CPU.
        cpu: usize,
        /// Error of the system.
        source: io::Error,
    },
    /// The machine: something the system refused.
    #[error("cannot {what}: {source}")]
    System {
        /// Attempted step.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

impl LoadError {
    /// Something that the system refused while this was attempted.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> Self {
        move |error| Self::System {
            what,
            source: error.into(),
        }
    }
}

/// Reason why one connection failed. Failures with the same text are counted together.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// No TCP connection.
    #[error("connect: {}", describe(*.0))]
    Connect(Errno),
    /// No local port was left.
    #[error("connect: no local port left")]
    Ports,
    /// No file descriptor was left.
    #[error("connect: no file descriptor left")]
    Descriptors,
    /// Reset during the handshake.
    #[error("reset during the handshake")]
    Reset,
    /// Reset after our Finished, without a sign that the server has accepted it.
    #[error("reset after our Finished")]
    ResetUnconfirmed,
    /// Closed by the server during the handshake.
    #[error("closed during the handshake")]
    Closed,
    /// Closed by the server, though it was to be held open.
    #[error("closed while held open")]
    ClosedIdle,
    /// The server sent a fatal alert.
    #[error("tls alert: {}", alert_name(*.0))]
    Alert(AlertDescription),
    /// The server's certificate was refused.
    #[error("certificate: {}", certificate_reason(.0))]
    Certificate(CertificateError),
    /// The server broke the protocol, or offers nothing that we can use.
    #[error("tls: {0}")]
    Tls(rustls::Error),
    /// The connection took longer than allowed, in this stage.
    #[error("timeout: {0}")]
    Timeout(Stage),
    /// The server did not agree to TLS, for this reason.
    #[error("no agreement to TLS")]
    StartTls(String),
    /// The answer had this HTTP status.
    #[error("http {0}")]
    Http(u16),
    /// The answer was not HTTP/1.1.
    #[error("http: malformed answer")]
    HttpMalformed,
    /// The answer ended early.
    #[error("answer cut short")]
    Truncated,
    /// Any other error of the socket.
    #[error("socket: {}", describe(*.0))]
    Socket(Errno),
}

/// Stage in which a connection waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stage {
    #[error("connect")]
    Connect,
    #[error("handshake")]
    Handshake,
    #[error("answer")]
    Answer,
}

impl Fault {
    /// The fault for an error of a socket call in `stage`.
    pub(crate) fn from_errno(errno: Errno, stage: Stage) -> Self {
        match (errno, stage) {
            (Errno::ADDRNOTAVAIL, _) => Self::Ports,
            (Errno::MFILE | Errno::NFILE, _) => Self::Descriptors,
            (errno, Stage::Connect) => Self::Connect(errno),
            (Errno::CONNRESET | Errno::PIPE, _) => Self::Reset,
            // From a write on a connection that was never established.
            (Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH, _) => Self::Connect(errno),
            (errno, _) => Self::Socket(errno),
        }
    }

    /// The fault for an error of rustls.
    pub(crate) fn from_tls(error: rustls::Error) -> Self {
        match error {
            rustls::Error::AlertReceived(alert) => Self::Alert(alert),
            rustls::Error::InvalidCertificate(error) => Self::Certificate(error),
            error => Self::Tls(error),
        }
    }

    /// The error if the trial connection has this fault. `None`: the run goes on.
    pub(crate) fn into_load_error(
        self,
        address: SocketAddr,
        server_name: &str,
        timeout: Duration,
    ) -> Option<LoadError> {
        let seconds = timeout.as_secs_f64();
        let connect = |reason: String| Some(LoadError::Connect { address, reason });
        let handshake = |reason: String| Some(LoadError::Handshake { address, reason });
        match self {
            Self::Connect(Errno::CONNREFUSED) => connect(
                "connection refused: nothing listens there; start the server, or check address \
                 and port"
                    .into(),
            ),
            Self::Connect(errno) => connect(describe(errno)),
            Self::Ports => connect(
                "no local port is left; see net.ipv4.ip_local_port_range, or wait for sockets in \
                 TIME_WAIT (`ss -s`)"
                    .into(),
            ),
            Self::Descriptors => connect("no file descriptor is left; see `ulimit -n`".into()),
            Self::Timeout(Stage::Connect) => connect(format!(
                "no answer in {seconds} s; check the address and firewalls, or raise --timeout"
            )),
            Self::Timeout(Stage::Handshake) => handshake(format!(
                "it took longer than {seconds} s; is that a TLS server? Raise --timeout if so"
            )),
            Self::Certificate(error) => Some(LoadError::Certificate {
                address,
                server_name: server_name.to_owned(),
                reason: certificate_reason(&error),
            }),
            Self::Alert(alert) => handshake(format!(
                "the server sent the alert {}{}",
                alert_name(alert),
                alert_remedy(alert)
            )),
            Self::Tls(error @ rustls::Error::InvalidMessage(_)) => handshake(format!(
                "{error}; is that a TLS server? Other protocols and plain text give this error"
            )),
            Self::Tls(error) => handshake(error.to_string()),
            Self::StartTls(reason) => handshake(format!("{reason}; is --starttls the server's protocol?")),
            fault @ (Self::Reset | Self::ResetUnconfirmed | Self::Closed | Self::Socket(_)) => {
                handshake(format!("{fault}; the server's log may say why"))
            }
            // The handshake worked, so a run gives useful results.
            Self::Timeout(Stage::Answer) | Self::Http(_) | Self::HttpMalformed | Self::Truncated | Self::ClosedIdle => {
                None
            }
        }
    }
}

fn describe(errno: Errno) -> String {
    // Without "(os error 111)", which `io::Error` adds and which does not help people.
    let text = io::Error::from(errno).to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_lowercase()
}

fn certificate_reason(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => "its issuer is unknown".into(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".into(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "it is not valid yet".into(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for other names".into()
        }
        CertificateError::BadSignature => "a signature is wrong".into(),
        // Nearly always a certificate that `openssl req -x509` made. webpki's words for it are hard
        // to understand.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is a self-signed authority's own certificate".into()
        }
        other => other.to_string(),
    }
}

fn alert_name(alert: AlertDescription) -> String {
    // The names of RFC 8446 are those of rustls in snake case.
    let mut name = String::new();
    for c in format!("{alert:?}").chars() {
        if c.is_ascii_uppercase() && !name.is_empty() && !name.ends_with(char::is_uppercase) {
            name.push('_');
        }
        name.push(c);
    }
    name.to_lowercase()
}

fn alert_remedy(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::ProtocolVersion => ": it does not speak the version offered; try another with --tls",
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
            ": it shares no group, cipher suite or signature algorithm with what was offered; \
             try others with --group (in TLS 1.2 it must include the curve of an ECDSA \
             certificate), --cipher, --sigalg or --tls"
        }
        AlertDescription::UnrecognisedName => {
            ": it does not know the name asked for; name one it knows with --server-name"
        }
        AlertDescription::NoApplicationProtocol => ": it speaks none of the protocols offered with --alpn",
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
            ": it asks for a client certificate; give one with --certificate and --key"
        }
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown => ": it does not take the client certificate given with --certificate",
        _ => "; the server's log may say why",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_have_their_standard_names() {
        assert_eq!(alert_name(AlertDescription::HandshakeFailure), "handshake_failure");
        assert_eq!(alert_name(AlertDescription::UnknownCA), "unknown_ca");
        assert_eq!(alert_name(AlertDescription::BadRecordMac), "bad_record_mac");
    }

    #[test]
    fn kinds_do_not_mix_stages() {
        let refused = Fault::from_errno(Errno::CONNREFUSED, Stage::Connect);
        assert_eq!(refused.to_string(), "connect: connection refused");
        let late = Fault::from_errno(Errno::CONNREFUSED, Stage::Handshake);
        assert_eq!(late.to_string(), "connect: connection refused");
        let reset = Fault::from_errno(Errno::CONNRESET, Stage::Handshake);
        assert_eq!(reset.to_string(), "reset during the handshake");
        assert_eq!(
            Fault::from_errno(Errno::MFILE, Stage::Connect).to_string(),
            Fault::Descriptors.to_string()
        );
    }
}
