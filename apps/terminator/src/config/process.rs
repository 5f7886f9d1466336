//! What one process has once, over all listeners.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use widelane_affinity::Cpus;
use widelane_crypto::chacha20poly1305::Choice;

use super::batching::Batching;
use super::listener::Listener;
use super::values::{LogFormat, LogTarget, choice, metrics_address, seconds};

/// A whole configuration. `Config::default()` listens nowhere; every other field has a usable
/// value.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Config {
    /// Event-loop threads. `None`: one for each CPU of `cpus`, or of the process's cpuset, vector cores
    /// included, but no more than the quota of its cgroup pays for.
    pub workers: Option<NonZeroUsize>,
    /// CPUs to pin the workers to, round robin. Empty: not pinned; where there are vector cores,
    /// workers stay off those that are not given back.
    pub cpus: Cpus,
    /// User to become once the sockets are bound. Only root can ask for that.
    pub user: Option<String>,
    /// Group to become once the sockets are bound. `None`: the user's own group.
    pub group: Option<String>,
    /// Let a crash leave a core file, which has private keys in it.
    pub core_files: bool,
    /// Which registers ChaCha20-Poly1305 uses.
    #[serde(deserialize_with = "choice")]
    pub chacha20poly1305: Choice,
    /// Read certificates, keys, authorities, revocation lists and ticket keys again when their files
    /// change.
    pub watch: bool,
    /// Where a line for each client connection goes when it ends.
    pub access_log: LogTarget,
    /// How these lines are written.
    pub access_log_format: LogFormat,
    /// What an orderly stop may take.
    pub drain: Drain,
    /// How public-key operations are gathered.
    pub batching: Batching,
    /// Where Prometheus may ask.
    pub metrics: Metrics,
    /// What one process accepts.
    pub limits: Limits,
    /// Where fetched OCSP responses are kept for the next start; see
    /// [`Document::keep_responses_in`](super::Document::keep_responses_in).
    #[serde(skip)]
    pub ocsp_directory: Option<PathBuf>,
    /// The addresses served.
    #[serde(rename = "listener")]
    pub listeners: Vec<Listener>,
}

/// What an orderly stop may take.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Drain {
    /// How long live connections may go on after SIGTERM.
    #[serde(rename = "seconds", deserialize_with = "seconds")]
    pub timeout: Duration,
}

/// Where Prometheus may ask.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Metrics {
    /// Address of `/metrics` and `/healthz`, plain HTTP. `None`: not served.
    #[serde(deserialize_with = "metrics_address")]
    pub listen: Option<SocketAddr>,
}

/// What one process accepts, over all listeners.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Limits {
    /// Live connections. `None`: as many as the process may have descriptors for. Where all are
    /// taken, the oldest connection that has sent nothing makes room for a new one; without such a
    /// connection, the new one is closed.
    pub connections: Option<usize>,
    /// Connections that have not finished their handshake, with the same rule.
    pub handshakes: usize,
    /// What one source of connections may hold of these.
    pub source: PerSource,
    /// Time from accept to the client's first byte.
    #[serde(rename = "first_byte_seconds", deserialize_with = "seconds")]
    pub first_byte: Duration,
    /// Time from accept to the end of the handshake.
    #[serde(rename = "handshake_seconds", deserialize_with = "seconds")]
    pub handshake: Duration,
    /// Time without a byte in either direction.
    #[serde(rename = "idle_seconds", deserialize_with = "seconds")]
    pub idle: Duration,
    /// Time to reach an address of the backend.
    #[serde(rename = "backend_connect_seconds", deserialize_with = "seconds")]
    pub backend_connect: Duration,
}

/// What one source of connections may hold. A source is one network of clients.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct PerSource {
    /// Leading bits of an IPv4 address that name a source.
    pub ipv4_prefix: u8,
    /// Leading bits of an IPv6 address that name a source.
    pub ipv6_prefix: u8,
    /// Connections that have not finished their handshake. `None`: half of those that the whole
    /// server may have, but at least [`PerSource::LEAST_HANDSHAKES`].
    pub handshakes: Option<usize>,
    /// Connections, from accept to their end. `None`: not limited.
    pub connections: Option<usize>,
    /// New connections a second; as many again may come at once. `None`: not limited.
    pub connections_per_second: Option<u32>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            workers: None,
            cpus: Cpus::default(),
            user: None,
            group: None,
            core_files: false,
            chacha20poly1305: Choice::default(),
            watch: true,
            access_log: LogTarget::default(),
            access_log_format: LogFormat::default(),
            drain: Drain::default(),
            batching: Batching::default(),
            metrics: Metrics::default(),
            limits: Limits::default(),
            ocsp_directory: None,
            listeners: Vec::new(),
        }
    }
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: None,
            handshakes: 4096,
            source: PerSource::default(),
            first_byte: Duration::from_secs(5),
            handshake: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            backend_connect: Duration::from_secs(5),
        }
    }
}

impl PerSource {
    /// Half of the handshakes of a small server would refuse one busy client. Where the whole
    /// server has fewer places than this, the places are for everybody who comes first.
    pub const LEAST_HANDSHAKES: usize = 64;

    /// The limit of handshakes, on a server that has places for `all`.
    pub(crate) fn handshakes_of(&self, all: usize) -> usize {
        let half = (all / 2).max(Self::LEAST_HANDSHAKES);
        self.handshakes.unwrap_or(half)
    }
}

impl Default for PerSource {
    fn default() -> Self {
        Self {
            ipv4_prefix: 32,
            ipv6_prefix: 64,
            handshakes: None,
            connections: None,
            connections_per_second: None,
        }
    }
}
