//! A configuration made ready to be served: all that can fail, but for opening sockets.

use std::sync::Arc;

use rustls::time_provider::DefaultTimeProvider;
use widelane_access_log::Prepared as PreparedLog;
use widelane_ocsp::Staples;

use crate::back::backend_tls::BackendTlsConfig;
use crate::back::routes::Routes;
use crate::config::{ConfigError, Document, Fault, Listener};
use crate::front::site::Site;
use crate::front::sources::SourceLimits;
use crate::material::files::Files;
use crate::material::in_use::{CertificateFile, FilesInUse, TicketKeyFile};
use crate::material::resumption::TicketKeys;
use crate::material::{stapling, tls};
use crate::resources;
use crate::shared::Shared;

/// A configuration that can take the place of the one in use. Dropped, it has changed nothing.
pub(crate) struct Prepared {
    pub(crate) document: Document,
    /// One for each listener.
    pub(crate) sites: Vec<Arc<Site>>,
    pub(crate) kept: Kept,
    pub(crate) log: PreparedLog,
}

/// Ticket keys and OCSP responses of a configuration, which the next one takes over where it names the same.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) keys: TicketKeys,
    pub(crate) staples: Staples,
}

impl Prepared {
    /// Makes the sites of `document` out of its `files`. `before` belongs to the configuration in use.
    pub(crate) fn new(
        document: &Document,
        files: Vec<Files>,
        log: PreparedLog,
        before: &Kept,
        shared: &Shared,
    ) -> Result<Self, ConfigError> {
        let locate = |fault| document.locate(fault);
        let config = document.config();
        let most_connections = resources::connection_limit(&config.limits);
        let source = SourceLimits::new(&config.limits, most_connections);
        let store = stapling::store(document);
        let mut kept = Kept::default();
        let mut sites = Vec::new();
        for (index, (listener, mut files)) in config.listeners.iter().zip(files).enumerate() {
            let key = format!("listener[{index}]");
            let find = |pair| stapling::find(pair, store.as_ref(), &before.staples, &mut kept.staples);
            let staples = files.certificates.iter_mut().filter_map(find).collect();
            let in_use = FilesInUse {
                certificates: files.certificates.iter().map(CertificateFile::from).collect(),
                ticket_keys: TicketKeyFile::all(&files.ticket_keys),
                staples,
            };
            let tls_configs = tls_configs(&key, listener, &mut files, shared).map_err(locate)?;
            let tls = tls::build(
                &key,
                listener,
                files,
                &shared.crypto,
                Arc::new(DefaultTimeProvider),
                &before.keys,
                &mut kept.keys,
            );
            sites.push(Arc::new(Site {
                tls: tls.map_err(locate)?,
                backends: Routes::new(listener, &shared.upstreams, &tls_configs),
                proxies: listener.proxy_protocol_from.clone(),
                proxy_header: listener.proxy_protocol_to,
                speaks_first: listener.backend_speaks_first,
                access_log: log.sink.clone(),
                limits: config.limits.clone(),
                most_connections,
                source,
                files: in_use,
            }));
        }
        Ok(Self {
            document: document.clone(),
            sites,
            kept,
            log,
        })
    }
}

/// TLS to the backend of a listener, and then to those of its routes.
fn tls_configs(
    key: &str,
    listener: &Listener,
    files: &mut Files,
    shared: &Shared,
) -> Result<Vec<Option<Arc<BackendTlsConfig>>>, Fault> {
    let all = listener.backend_tls(key).zip(std::mem::take(&mut files.backend_tls));
    all.map(|((key, wanted), files)| {
        let built = wanted
            .zip(files)
            .map(|(wanted, files)| BackendTlsConfig::build(&key, wanted, files, &shared.crypto, shared.stats.len()));
        built.transpose()
    })
    .collect()
}
