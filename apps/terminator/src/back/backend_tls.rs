//! TLS to a backend: this server is the client there.
//!
//! Handshakes with backends go through the same driver as those of our own clients, so that their key exchanges and
//! signature checks join the passes of the others.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::{ClientSessionMemoryCache, Resumption, WebPkiServerVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ClientConnection};
use rustls_pki_types::ServerName;

use crate::back::backend::Socket;
use crate::back::tls_failure::TlsFailure;
use crate::config::{Backend, BackendTls, Fault};
use crate::crypto::Crypto;
use crate::handshaker::ClientHandshake;
use crate::io::{read_tls, write_tls};
use crate::material::files::{Authorities, ClientFiles};
use crate::material::pinned::Pinned;
use crate::material::tls::{protocol_versions, usual_groups};

/// The configuration of TLS to one backend.
pub(crate) struct BackendTlsConfig {
    /// All but sessions and application protocols, which differ from one connection to the next.
    base: ClientConfig,
    /// The configured name.
    name: Option<ServerName<'static>>,
    pass_alpn: bool,
    /// The sessions of each worker, by the address that gave them: another machine may not know them.
    sessions: Vec<Mutex<Vec<OfAddress>>>,
}

type OfAddress = (Backend, Arc<ClientSessionMemoryCache>);

impl BackendTlsConfig {
    pub(crate) fn build(
        key: &str,
        wanted: &BackendTls,
        files: ClientFiles,
        crypto: &Crypto,
        workers: usize,
    ) -> Result<Arc<Self>, Fault> {
        let mut provider = crypto.provider.clone();
        provider.kx_groups = usual_groups(crypto);
        let provider = Arc::new(provider);
        let Authorities { roots, listed } = files.authorities;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
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

    /// Returns what the certificate of a backend must name that is `written` so in the configuration.
    pub(crate) fn name_of(&self, written: &Backend) -> Option<ServerName<'static>> {
        self.name.clone().or_else(|| written.server_name())
    }

    /// Returns the configuration for a connection of this worker to `address`, whose client has agreed on `alpn`.
    pub(crate) fn config(&self, worker: usize, address: &Backend, alpn: Option<&[u8]>) -> Arc<ClientConfig> {
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
            Some(wanted) if tls.alpn_protocol() != Some(wanted) => Err(TlsFailure::no_protocol(wanted)),
            _ => Ok(tls),
        }
    }

    fn sessions_with(&self, worker: usize, address: &Backend) -> Option<Arc<ClientSessionMemoryCache>> {
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

impl fmt::Debug for BackendTlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendTlsConfig")
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
        let sent = poll_fn(|cx| write_tls(socket, &mut tls, cx)).await;
        sent.map_err(|error| TlsFailure::closed(Some(&error)))?;
        if !tls.is_handshaking() {
            return Ok(tls);
        }
        let read = poll_fn(|cx| read_tls(socket, &mut tls, cx)).await;
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
                let _ = write_tls(socket, &mut tls, cx);
                std::task::Poll::Ready(())
            })
            .await;
            return Err(TlsFailure::of(&failure, &name));
        }
    }
}

/// Sessions that one worker keeps of one address: rustls has eight tickets for one server.
const SESSIONS: usize = 8;
