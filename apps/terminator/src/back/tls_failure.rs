//! Failed TLS handshakes with backends: what was wrong, what to do, and how many there were.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustls::{AlertDescription, CertificateError, ClientConnection, HandshakeKind};
use rustls_pki_types::ServerName;
use widelane_text::named;

use crate::handshaker::ProcessFailure;
use crate::observe::reason;

/// Counts of handshakes with one address, by result.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    full: AtomicU64,
    resumed: AtomicU64,
    failed: [AtomicU64; Reason::ALL.len()],
}

/// A failed handshake with a backend: what was wrong, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{problem}{}{remedy}", if .remedy.is_empty() { "" } else { "; " })]
pub(crate) struct TlsFailure {
    pub(crate) reason: Reason,
    problem: String,
    remedy: String,
}

named! {
    /// The reason of a failed handshake, as metrics show it.
    pub(crate) enum Reason {
        /// No authority that we know has signed its certificate.
        UnknownCa = "unknown_ca",
        /// The backend's certificate is for another name.
        WrongName = "wrong_name",
        /// The backend's certificate has expired, or is not valid yet.
        Expired = "expired",
        /// The backend's certificate is bad in another way.
        Certificate = "certificate",
        /// The backend sends something that is no TLS.
        NotTls = "not_tls",
        /// The backend does not speak the application protocol that the client has agreed on.
        Alpn = "alpn",
        /// The backend has sent an alert.
        Alert = "alert",
        /// The backend has closed the connection.
        Closed = "closed",
        /// The backend did not answer in time.
        Timeout = "timeout",
        /// The backend breaks the protocol, or nothing could be agreed on.
        Protocol = "protocol",
        /// Our own fault: the engine's queue is full, or memory is short.
        Internal = "internal",
    }
}

impl Handshakes {
    pub(crate) fn succeeded(&self, tls: &ClientConnection) {
        let counter = match tls.handshake_kind() {
            Some(HandshakeKind::Resumed) => &self.resumed,
            _ => &self.full,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(crate) fn failed(&self, reason: Reason) {
        self.failed[reason as usize].fetch_add(1, Relaxed);
    }

    /// Counts by result.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let failed = Reason::ALL
            .iter()
            .map(|reason| (reason.name(), &self.failed[*reason as usize]));
        let good = [("full", &self.full), ("resumed", &self.resumed)];
        let all = good.into_iter().chain(failed);
        all.map(|(result, count)| (result, count.load(Relaxed)))
    }
}

impl TlsFailure {
    pub(crate) fn is_late(&self) -> bool {
        self.reason == Reason::Timeout
    }

    /// Returns whether the client can be the cause. Then one failure says nothing of the address.
    pub(crate) fn may_be_the_clients(&self) -> bool {
        matches!(self.reason, Reason::Closed | Reason::Alpn)
    }

    fn new(reason: Reason, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (problem, remedy) = (problem.into(), remedy.into());
        Self {
            reason,
            problem,
            remedy,
        }
    }

    pub(crate) fn late() -> Self {
        let problem = "it takes connections but does not answer a TLS handshake in time";
        Self::new(Reason::Timeout, problem, SPEAK_TLS)
    }

    pub(crate) fn closed(error: Option<&io::Error>) -> Self {
        let how = error.map_or("it closes the connection".into(), ToString::to_string);
        Self::new(
            Reason::Closed,
            format!("the TLS handshake broke off ({how})"),
            SPEAK_TLS,
        )
    }

    pub(crate) fn no_protocol(wanted: &[u8]) -> Self {
        let wanted = wanted.escape_ascii();
        let problem = format!("it does not agree on the application protocol of the client, `{wanted}`");
        Self::new(Reason::Alpn, problem, OTHER_PROTOCOL)
    }

    /// Adds to the remedy of a failed handshake that a PROXY header came before it.
    pub(crate) fn behind(mut self, header: &[u8]) -> Self {
        if !header.is_empty() && matches!(self.reason, Reason::Closed | Reason::NotTls | Reason::Timeout) {
            self.remedy = format!(
                "a PROXY header of {} bytes came first: let the backend expect one at this address (nginx: \
                 `listen … ssl proxy_protocol`; before 1.23.2 it reads 107 bytes at most, which `v2-records` can \
                 exceed), or take `proxy_protocol_to` out; or else {}",
                header.len(),
                self.remedy
            );
        }
        self
    }

    pub(crate) fn of(failure: &ProcessFailure, name: &ServerName<'_>) -> Self {
        match failure {
            ProcessFailure::Tls(error) => {
                let (reason, remedy) = Self::diagnose(error, name);
                Self::new(reason, format!("TLS handshake failed: {}", reason::of(error)), remedy)
            }
            ProcessFailure::Overloaded => Self::new(Reason::Internal, "the engine's queue is full", ""),
            ProcessFailure::Internal(text) => Self::new(Reason::Internal, text, ""),
        }
    }

    fn diagnose(error: &rustls::Error, name: &ServerName<'_>) -> (Reason, String) {
        use CertificateError as Bad;
        use rustls::Error;
        match error {
            Error::InvalidCertificate(bad) => match bad {
                Bad::UnknownIssuer => (
                    Reason::UnknownCa,
                    "give the authority that signed the backend's certificate in `backend_tls.ca`, and let \
                     the backend send all certificates between"
                        .into(),
                ),
                Bad::NotValidForName | Bad::NotValidForNameContext { .. } => (
                    Reason::WrongName,
                    format!(
                        "give the backend a certificate for `{}`, or write a name of its certificate into \
                         `backend_tls.server_name`",
                        name.to_str()
                    ),
                ),
                Bad::Expired | Bad::ExpiredContext { .. } => {
                    (Reason::Expired, "renew the backend's certificate".into())
                }
                Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                    (Reason::Expired, "set the clocks of both machines right".into())
                }
                _ => (
                    Reason::Certificate,
                    "give the backend a certificate of a server (X.509 v3)".into(),
                ),
            },
            Error::InvalidMessage(_) => (Reason::NotTls, SPEAK_TLS.into()),
            Error::AlertReceived(
                AlertDescription::CertificateRequired
                | AlertDescription::BadCertificate
                | AlertDescription::UnknownCA
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                | AlertDescription::AccessDenied,
            ) => (
                Reason::Alert,
                "give a client certificate that the backend takes in `backend_tls.cert` and `backend_tls.key`".into(),
            ),
            Error::AlertReceived(AlertDescription::NoApplicationProtocol) => (Reason::Alpn, OTHER_PROTOCOL.into()),
            Error::AlertReceived(AlertDescription::UnrecognisedName) => (
                Reason::Alert,
                format!(
                    "the backend does not know `{}`: correct `backend_tls.server_name`",
                    name.to_str()
                ),
            ),
            Error::AlertReceived(_) => (Reason::Alert, "the log of the backend says why it refuses".into()),
            _ => (
                Reason::Protocol,
                "let both speak the same versions and cipher suites, and see whether TLS is spoken at this \
                 address (`openssl s_client -connect`)"
                    .into(),
            ),
        }
    }
}

const SPEAK_TLS: &str = "let the backend speak TLS at this address, or take `backend_tls` out";
const OTHER_PROTOCOL: &str =
    "let the backend speak the protocols that clients agree on, or set `backend_tls.pass_alpn` to false";
