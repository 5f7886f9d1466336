//! A TLS terminator: it accepts TLS 1.3 and 1.2, and relays the decrypted bytes to a backend.
//!
//! What it is: per-core event loops ([`Server`]) in front of TCP or UNIX-socket backends, with
//! handshakes whose public-key operations are batched across connections; configured by a
//! [`Document`] (TOML file or flags), reloadable without losing a connection.
//!
//! What it is not: an HTTP server. It does not look into the bytes that it relays. It spreads
//! connections over the addresses of a backend, also those of host names, but sends them no checks of its own.
//!
//! Where to start: [`Config`] for what can be said, [`Server::start`] for the order of events at
//! start-up, `connection` for the life of one connection.

#![forbid(unsafe_code)]

mod as_inside;
mod back;
mod buffer;
mod config;
mod cores;
mod crypto;
mod demo;
mod front;
mod handshaker;
mod housekeeping;
mod io;
mod lending;
mod material;
mod next_start;
mod number;
mod observe;
mod prepared;
mod privileges;
mod resources;
mod server;
mod server_error;
mod shared;
mod signals;
mod turn;
mod worker;
mod worker_state;

pub use config::{
    Backend, BackendTls, Batching, Certificate, CheckKind, ClientAuth, ClientAuthMode, Config, ConfigError, Document,
    Drain, HealthCheck, HostPort, KeyKind, Limits, Listener, Metrics, Network, OcspSource, PerSource, ProxyVersion,
    Route, Tickets, TlsVersion, UnknownNames,
};
pub use demo::{Demo, DemoError};
pub use material::ticket_files::{TicketDirectory, TicketFile, TicketFilesError};
pub use server::Server;
pub use server_error::ServerError;
pub use signals::Signals;
pub use widelane_access_log::{LogFormat, LogTarget};
pub use widelane_affinity::Cpus;
pub use widelane_batching::PlacementChoice;

/// Parts of the private modules for fuzz targets. No part of the interface.
#[doc(hidden)]
pub mod fuzzing {
    use crate::back::proxy::{Facts, header};
    use crate::front::client_hello::Hello;
    use crate::front::opening::Opening;
    use crate::front::proxy_header;
    use crate::material::ticket_key::KeyBytes;
    use crate::observe::scrape_format::Format;
    use std::net::SocketAddr;

    /// A PROXY header that a load balancer has sent: its length, and client and server if it names
    /// them. `Ok(None)`: there is more to come.
    #[expect(clippy::type_complexity, reason = "for one caller")]
    pub fn introduction(bytes: &[u8]) -> Result<Option<(usize, Option<[SocketAddr; 2]>)>, String> {
        match proxy_header::parse(bytes) {
            Ok(header) => Ok(header.map(|header| (header.length, header.ends))),
            Err(problem) => Err(problem.to_string()),
        }
    }

    /// Offer in the first bytes of a connection, if they are a record with a whole ClientHello: the newest
    /// version, and whether there are groups.
    pub fn offer(bytes: &[u8]) -> Option<(Option<u16>, bool)> {
        let (Hello { summary, .. }, _) = Hello::in_record(bytes)?;
        Some((summary.version.map(u16::from), !summary.lacks_groups))
    }

    /// Bytes that rustls gets of the first ones of a connection, which come in pieces of a size; and the same again as
    /// the client has sent it, if that differs.
    pub fn opening(bytes: &[u8], size: usize) -> (Vec<u8>, Option<Vec<u8>>) {
        let (passed, changed) = Opening::default().passed(bytes.chunks(size));
        let restored = changed.map(|changed| changed.restore(&passed));
        (passed, restored)
    }

    /// Returns whether a reader of metrics whose request has this field `Accept` gets OpenMetrics.
    pub fn accepts_openmetrics(accept: &[u8]) -> bool {
        Format::asked_for([accept].into_iter()) == Format::OpenMetrics
    }

    /// The status in the answer of a backend to a check. `Ok(None)`: there is more to come.
    pub fn check_status(answer: &[u8]) -> Result<Option<u16>, String> {
        crate::back::checks::status_of(answer)
    }

    /// The keys in a file of ticket keys, the one that encrypts first.
    pub fn ticket_keys(file: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let keys = KeyBytes::parse(file)?;
        Ok(keys.iter().map(|key| key.as_bytes().to_vec()).collect())
    }

    /// The PROXY header of a connection: client and server, then names, of which `version` and
    /// `cipher` are ours and the others are the client's.
    pub fn proxy_header(
        [client, server]: [SocketAddr; 2],
        alpn: Option<&[u8]>,
        authority: Option<&str>,
        [version, cipher]: [&str; 2],
        certificate: Option<Option<&str>>,
        resumed: bool,
    ) -> Vec<u8> {
        header(&Facts {
            client,
            server,
            alpn,
            authority,
            version,
            cipher: Some(cipher),
            certificate,
            resumed,
        })
    }
}
