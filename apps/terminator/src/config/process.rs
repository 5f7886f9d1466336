//! Configuration of one process, over all listeners.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use serde::Deserialize;
use widelane_access_log::{LogFormat, LogTarget};
use widelane_affinity::Cpus;
use widelane_batching::Overload;
use widelane_crypto::chacha20poly1305::Choice;

use super::batching::Batching;
use super::listener::Listener;
use super::values::{choice, maybe_seconds, metrics_address, seconds};

/// Keys of the process. They come first in the file, before any section.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Config {
    /// Event-loop threads. *Restart.* Default: one for each CPU of the process's cpuset, vector cores included, but
    /// no more than the quota of its cgroup pays for.
    pub workers: Option<NonZeroUsize>,
    /// The CPUs to which workers are pinned, by turns. CPUs that the process may not use are left out with a warning;
    /// if none remains, the server does not start. *Restart.* Values: CPUs, as `"0,2-3"`. Default: not pinned.
    pub cpus: Cpus,
    /// The user that the server becomes, if it is started as root, before it starts any thread. *Restart.*
    pub user: Option<String>,
    /// The group that it becomes; needs `user`. *Restart.* Default: that of `user`.
    pub group: Option<String>,
    /// A crash may leave a core file, or hand one to the program of /proc/sys/kernel/core_pattern. It has private
    /// keys in it. *Restart.*
    pub core_files: bool,
    /// The code for the suites with ChaCha20-Poly1305: 512-bit registers with and without IFMA, 256-bit ones, these
    /// without vector multiplications, or AWS-LC. Some CPUs lower the clock of a whole core for it: in Intel's terms
    /// `256-light` asks for licence 0, `256` for 1, both 512-bit forms for 2. `auto` is the widest that runs here,
    /// unless the [profile](serve.md#batching) says otherwise. *Restart.* Values: `auto`, `512-ifma`, `512`, `256`,
    /// `256-light`, `aws-lc`. Default: `auto`.
    #[serde(deserialize_with = "choice")]
    pub chacha20poly1305: Choice,
    /// Certificates, keys, OCSP responses, authorities, revocation lists and ticket keys are read again when their
    /// files change; `false`: on SIGHUP alone.
    pub watch: bool,
    /// Where the [access log](running.md#access-log) goes.
    pub access_log: LogTarget,
    /// `json` is an object a line; `text` is the same as `key=value`, with `-` for `null`.
    pub access_log_format: LogFormat,
    /// What an orderly stop may take.
    pub drain: Drain,
    /// How public-key operations are gathered.
    pub batching: Batching,
    /// Where Prometheus may ask.
    pub metrics: Metrics,
    /// What one process accepts.
    pub limits: Limits,
    /// The addresses served.
    #[serde(rename = "listener")]
    pub listeners: Vec<Listener>,
}

impl Config {
    /// Whether any backend is to be checked.
    pub(crate) fn has_checks(&self) -> bool {
        self.listeners.iter().any(|listener| {
            let mut routes = listener.routes.iter();
            listener.health_check.is_some() || routes.any(|route| route.health_check.is_some())
        })
    }
}

/// An orderly stop.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Drain {
    /// How long live connections may go on after SIGTERM or SIGINT.
    #[serde(rename = "seconds", deserialize_with = "seconds")]
    pub timeout: Duration,
}

/// Metrics and health, over plain HTTP: use a local address. *Restart.*
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Metrics {
    /// The address of [`/metrics`](running.md#metrics) and `/healthz`, for example `127.0.0.1:9464`.
    #[serde(deserialize_with = "metrics_address")]
    pub listen: Option<SocketAddr>,
}

/// What one process accepts, over all listeners. [running.md](running.md#limits) says what happens at a limit. 0 is
/// refused.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Limits {
    /// Live connections. Each needs two file descriptors. Default: as many as there are descriptors for.
    pub connections: Option<usize>,
    /// Connections inside their handshake.
    pub handshakes: usize,
    /// What one source of connections may hold of these.
    pub source: PerSource,
    /// From accept to the client's first byte. TLS clients speak first and at once; 5 seconds leave time for a first
    /// packet that is lost twice.
    #[serde(rename = "first_byte_seconds", deserialize_with = "seconds")]
    pub first_byte: Duration,
    /// From accept to the end of the handshake.
    #[serde(rename = "handshake_seconds", deserialize_with = "seconds")]
    pub handshake: Duration,
    /// How long a handshake may wait for its worker before a queue that grows counts as overload
    /// ([running.md](running.md#overload)): from then on the newest go first, and what cannot be served in time is
    /// left to the kernel or refused. 0: handshakes begin in the order in which they come, however many there are.
    /// *Restart.* Values: seconds, also 0. Default: 0.02.
    #[serde(rename = "handshake_wait_seconds", deserialize_with = "maybe_seconds")]
    pub handshake_wait: Duration,
    /// Without a byte in either direction.
    #[serde(rename = "idle_seconds", deserialize_with = "seconds")]
    pub idle: Duration,
    /// To reach one address of the backend, with its TLS handshake; three times as long for all of them.
    #[serde(rename = "backend_connect_seconds", deserialize_with = "seconds")]
    pub backend_connect: Duration,
}

/// What one source may hold of these, so that one host cannot take all places. A source is a network of clients: one
/// IPv4 address or one IPv6 /64, unless the prefixes say otherwise.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct PerSource {
    /// Leading bits of an IPv4 address that name a source, 1 to 32.
    pub ipv4_prefix: u8,
    /// Leading bits of an IPv6 address that name a source, 1 to 128.
    pub ipv6_prefix: u8,
    /// Connections inside their handshake, or whose handshake has failed and that are not closed yet (five seconds at
    /// most). Default: half of the places of the whole server (of `limits.handshakes`, or of the possible connections
    /// if they are fewer), at least 64.
    pub handshakes: Option<usize>,
    /// Connections, from accept to their end. Default: not limited.
    pub connections: Option<usize>,
    /// New connections a second; as many as in one second may come at once. Default: not limited, because no number
    /// is right for both a browser and a load balancer.
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
            handshake_wait: Duration::from_nanos(Overload::TARGET),
            idle: Duration::from_secs(300),
            backend_connect: Duration::from_secs(5),
        }
    }
}

impl PerSource {
    /// Half of the handshakes of a small server would refuse one busy client. Where the whole
    /// server has fewer places than this, they go to the clients that come first.
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
