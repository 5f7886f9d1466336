//! The state that new connections of a listener share.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use widelane_access_log::Sink;

use crate::back::routes::Routes;
use crate::config::{Limits, Network, ProxyVersion};
use crate::front::sources::SourceLimits;
use crate::material::in_use::FilesInUse;

/// State that new connections of one listener share. A reload replaces it as a whole.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) tls: Arc<ServerConfig>,
    pub(crate) backends: Routes,
    /// Load balancers that say who their clients are.
    pub(crate) proxies: Vec<Network>,
    /// The header that the backend gets.
    pub(crate) proxy_header: Option<ProxyVersion>,
    /// `backend_speaks_first`.
    pub(crate) speaks_first: bool,
    /// Destination of their lines. `None`: they have none.
    pub(crate) access_log: Option<Arc<Sink>>,
    pub(crate) limits: Limits,
    /// `limits.connections`, or what stands for it.
    pub(crate) most_connections: usize,
    /// `limits.source`, with what stands for absent values.
    pub(crate) source: SourceLimits,
    pub(crate) files: FilesInUse,
}

/// The place of one listening address, which outlives the sites that fill it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) number: usize,
    pub(crate) address: SocketAddr,
    pub(crate) site: ArcSwap<Site>,
}

impl Site {
    /// Returns whether connections from `peer` begin with a PROXY header.
    pub(crate) fn has_proxy(&self, peer: IpAddr) -> bool {
        self.proxies.iter().any(|proxy| proxy.contains(peer))
    }
}
