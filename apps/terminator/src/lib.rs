//! A TLS terminator: it accepts TLS 1.3 and 1.2, and relays the decrypted bytes to a backend.
//!
//! What it is: per-core event loops ([`Server`]) in front of TCP or UNIX-socket backends, with
//! handshakes whose public-key operations are batched across connections; configured by a
//! [`Document`] (TOML file or flags), reloadable without losing a connection.
//!
//! What it is not: an HTTP server or a load balancer. It does not look into the bytes that it
//! relays, and every listener has exactly one backend.
//!
//! Where to start: [`Config`] for what can be said, [`Server::start`] for the order of events at
//! start-up, `connection` for the life of one connection.

#![deny(unsafe_code)]

mod config;
mod connection;
mod cores;
mod demo;
mod endpoint;
mod material;
mod privileges;
mod proxy;
mod resources;
mod server;
mod signals;
mod signing;
mod sockets;
mod stats;
mod tenants;
mod tls;
mod worker;

pub use config::{
    Backend, Batching, Certificate, ClientAuth, ClientAuthMode, Config, ConfigError, CpuList,
    Document, Drain, KeyKind, Limits, Listener, Metrics, Placement, SigningBackend, Tickets,
    TlsVersion,
};
pub use demo::{Demo, DemoError};
pub use server::{Server, ServerError};
pub use signals::Signals;
