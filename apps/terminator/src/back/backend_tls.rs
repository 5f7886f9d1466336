//! TLS to a backend: this server is the client there.
//!
//! Its handshakes go through the same driver as those of our own clients, so that their key exchanges and
//! signature checks join the passes of the others.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::{ClientSessionMemoryCache, Resumption, WebPkiServerVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, HandshakeKind};
use rustls_pki_types::ServerName;

use crate::back::backend::Socket;
use crate::config::{Backend, BackendTls, Fault};
use crate::front::connection::{pending_if_blocked, write_all};
use crate::material::files::{Authorities, ClientFiles};
use crate::material::pinned::Pinned;
use crate::observe::reason;
use crate::signing::{ClientHandshake, ProcessFailure, SigningSource};
use crate::material::tls::{protocol_versions, usual_groups};

/// How one backend is spoken to.
pub(crate) struct Speech {
    /// Without sessions and application protocols, which differ from one connection to the next.
    base: ClientConfig,
    /// As configured.
    name: Option<ServerName<'static>>,
    pass_alpn: bool,
    /// The sessions of each worker, by the address that gave them: another machine may not know them.
    sessions: Vec<Mutex<Vec<OfAddress>>>,
}

type OfAddress = (Backend, Arc<ClientSessionMemoryCache>);

/// How handshakes with one address have ended.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    full: AtomicU64,
    resumed: AtomicU64,
    failed: [AtomicU64; Reason::ALL.len()],
}

/// Why a handshake with a backend has failed.
#[derive(Debug)]
pub(crate) struct TlsFailure {
    pub(crate) reason: Reason,
    problem: String,
    remedy: String,
}

/// The same for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// No authority that we know has signed its certificate.
    UnknownCa,
    /// Its certificate is for another name.
    WrongName,
    /// Its certificate has expired, or is not valid yet.
    Expired,
    /// Its certificate is bad in another way.
    Certificate,
    /// What it sends is no TLS.
    NotTls,
    /// It does not speak the application protocol that the client has agreed on.
    Alpn,
    /// It has sent an alert.
    Alert,
    /// It has closed the connection.
    Closed,
    /// It did not answer in time.
    Timeout,
    /// It breaks the protocol, or nothing could be agreed on.
    Protocol,
    /// Our own fault: the engine's queue is full, or memory is short.
    Internal,
}

impl Speech {
    pub(crate) fn build(
        key: &str,
        wanted: &BackendTls,
        files: ClientFiles,
        signing: &SigningSource,
        workers: usize,
    ) -> Result<Arc<Self>, Fault> {
        let mut provider = signing.provider.clone();
        provider.kx_groups = usual_groups(signing);
        let provider = Arc::new(provider);
        let Authorities { roots, listed } = files.authorities;
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let verifier = verifier.build().map_err(|_| {
            let remedy = "give CA certificates (X.509, PEM)";
            Fault::new(format!("{key}.ca"), "there are no authorities", remedy)
        })?;
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&protocol_versions(&wanted.versions))
            .map_err(|error| {
                let remedy = "write [\"1.2\", \"1.3\"]";
                Fault::new(format!("{key}.versions"), error.to_string(), remedy)
            })?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned::new(verifier, listed, &[])));
        let mut base = match files.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let certified = identity.certify(&provider)?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
            }
        };
        base.resumption = Resumption::disabled();
        let name = wanted.server_name.as_deref();
        Ok(Arc::new(Self {
            base,
            name: name.and_then(|name| ServerName::try_from(name.to_owned()).ok()),
            pass_alpn: wanted.pass_alpn,
            sessions: (0..workers).map(|_| Mutex::default()).collect(),
        }))
    }

    /// What the certificate of a backend must name that is `written` so in the configuration.
    pub(crate) fn name_of(&self, written: &Backend) -> Option<ServerName<'static>> {
        self.name.clone().or_else(|| written.server_name())
    }

    /// For a connection of this worker to `address`, whose client has agreed on `alpn`.
    pub(crate) fn config(
        &self,
        worker: usize,
        address: &Backend,
        alpn: Option<&[u8]>,
    ) -> Arc<ClientConfig> {
        let mut config = self.base.clone();
        if let Some(sessions) = self.sessions_with(worker, address) {
            config.resumption = Resumption::store(sessions);
        }
        if self.pass_alpn {
            config.alpn_protocols = alpn.map(<[u8]>::to_vec).into_iter().collect();
        }
        Arc::new(config)
    }

    /// Refuses a backend that has not agreed on the protocol of the client, whose bytes it would take for others.
    pub(crate) fn agreed(
        &self,
        tls: Box<ClientConnection>,
        alpn: Option<&[u8]>,
    ) -> Result<Box<ClientConnection>, TlsFailure> {
        match alpn.filter(|_| self.pass_alpn) {
            Some(wanted) if tls.alpn_protocol() != Some(wanted) => {
                Err(TlsFailure::no_protocol(wanted))
            }
            _ => Ok(tls),
        }
    }

    fn sessions_with(
        &self,
        worker: usize,
        address: &Backend,
    ) -> Option<Arc<ClientSessionMemoryCache>> {
        let known = self.sessions.get(worker)?;
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().find(|(of, _)| of == address);
        if let Some((_, sessions)) = found {
            return Some(sessions.clone());
        }
        // Addresses of a host name come and go.
        if known.len() >= Backend::MOST {
            known.remove(0);
        }
        let sessions = Arc::new(ClientSessionMemoryCache::new(SESSIONS));
        known.push((address.clone(), sessions.clone()));
        Some(sessions)
    }
}

impl fmt::Debug for Speech {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Speech")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A handshake over `socket`, on which nothing else has happened but a PROXY header.
pub(crate) async fn shake(
    socket: &mut Socket,
    mut announced: ClientHandshake,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> Result<Box<ClientConnection>, TlsFailure> {
    let tls = announced.start(config, name.clone()).await;
    let mut tls = tls.map_err(|failure| TlsFailure::of(&failure, &name))?;
    loop {
        let sent = poll_fn(|cx| write_all(&mut socket.with(cx), &mut tls)).await;
        sent.map_err(|error| TlsFailure::closed(Some(&error)))?;
        if !tls.is_handshaking() {
            return Ok(tls);
        }
        let read = poll_fn(|cx| pending_if_blocked(tls.read_tls(&mut socket.with(cx)))).await;
        match read {
            Ok(0) => return Err(TlsFailure::closed(None)),
            Ok(_) => {}
            Err(error) => return Err(TlsFailure::closed(Some(&error))),
        }
        let result;
        (tls, result) = announced.process(tls).await;
        if let Err(failure) = result {
            // Our alert, if the socket takes it at once. What comes of it does not matter any more.
            poll_fn(|cx| {
                let _ = write_all(&mut socket.with(cx), &mut tls);
                std::task::Poll::Ready(())
            })
            .await;
            return Err(TlsFailure::of(&failure, &name));
        }
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
            .map(|reason| (reason.label(), &self.failed[*reason as usize]));
        let good = [("full", &self.full), ("resumed", &self.resumed)];
        let all = good.into_iter().chain(failed);
        all.map(|(result, count)| (result, count.load(Relaxed)))
    }
}

impl TlsFailure {
    pub(crate) fn is_late(&self) -> bool {
        self.reason == Reason::Timeout
    }

    /// Whether the client can be the cause. Then one failure says nothing of the address.
    pub(crate) fn may_be_the_clients(&self) -> bool {
        matches!(self.reason, Reason::Closed | Reason::Alpn)
    }

    pub(crate) fn late() -> Self {
        Self {
            reason: Reason::Timeout,
            problem: "it takes connections but does not answer a TLS handshake in time".into(),
            remedy: SPEAK_TLS.into(),
        }
    }

    fn closed(error: Option<&io::Error>) -> Self {
        let how = error.map_or("it closes the connection".into(), ToString::to_string);
        Self {
            reason: Reason::Closed,
            problem: format!("the TLS handshake broke off ({how})"),
            remedy: SPEAK_TLS.into(),
        }
    }

    fn no_protocol(wanted: &[u8]) -> Self {
        Self {
            reason: Reason::Alpn,
            problem: format!(
                "it does not agree on the application protocol of the client, `{}`",
                wanted.escape_ascii()
            ),
            remedy: OTHER_PROTOCOL.into(),
        }
    }

    /// The same failure, of a handshake to which this PROXY header was the prelude.
    pub(crate) fn behind(mut self, header: &[u8]) -> Self {
        if !header.is_empty()
            && matches!(
                self.reason,
                Reason::Closed | Reason::NotTls | Reason::Timeout
            )
        {
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

    fn of(failure: &ProcessFailure, name: &ServerName<'_>) -> Self {
        let internal = |problem: String| Self {
            reason: Reason::Internal,
            problem,
            remedy: String::new(),
        };
        let error = match failure {
            ProcessFailure::Tls(error) => error,
            ProcessFailure::Overloaded => return internal("the engine's queue is full".into()),
            ProcessFailure::Internal(text) => return internal(text.clone()),
        };
        let (reason, remedy) = Self::diagnose(error, name);
        Self {
            reason,
            problem: format!("TLS handshake failed: {}", reason::of(error)),
            remedy,
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
                Bad::Expired | Bad::ExpiredContext { .. } => (
                    Reason::Expired,
                    "renew the backend's certificate".into(),
                ),
                Bad::NotValidYet | Bad::NotValidYetContext { .. } => (
                    Reason::Expired,
                    "set the clocks of both machines right".into(),
                ),
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
                "give a client certificate that the backend takes in `backend_tls.cert` and `backend_tls.key`"
                    .into(),
            ),
            Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
                (Reason::Alpn, OTHER_PROTOCOL.into())
            }
            Error::AlertReceived(AlertDescription::UnrecognisedName) => (
                Reason::Alert,
                format!(
                    "the backend does not know `{}`: correct `backend_tls.server_name`",
                    name.to_str()
                ),
            ),
            Error::AlertReceived(_) => (
                Reason::Alert,
                "the log of the backend says why it refuses".into(),
            ),
            _ => (
                Reason::Protocol,
                "let both speak the same versions and cipher suites, and see whether TLS is spoken at this \
                 address (`openssl s_client -connect`)"
                    .into(),
            ),
        }
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.remedy[..] {
            "" => f.write_str(&self.problem),
            remedy => write!(f, "{}; {remedy}", self.problem),
        }
    }
}

impl Reason {
    pub(crate) const ALL: [Self; 11] = [
        Self::UnknownCa,
        Self::WrongName,
        Self::Expired,
        Self::Certificate,
        Self::NotTls,
        Self::Alpn,
        Self::Alert,
        Self::Closed,
        Self::Timeout,
        Self::Protocol,
        Self::Internal,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::UnknownCa => "unknown_ca",
            Self::WrongName => "wrong_name",
            Self::Expired => "expired",
            Self::Certificate => "certificate",
            Self::NotTls => "not_tls",
            Self::Alpn => "alpn",
            Self::Alert => "alert",
            Self::Closed => "closed",
            Self::Timeout => "timeout",
            Self::Protocol => "protocol",
            Self::Internal => "internal",
        }
    }
}

const SPEAK_TLS: &str = "let the backend speak TLS at this address, or take `backend_tls` out";
const OTHER_PROTOCOL: &str = "let the backend speak the protocols that clients agree on, or set `backend_tls.pass_alpn` to false";
/// What one worker keeps of one address: rustls has eight tickets for one server.
const SESSIONS: usize = 8;
