//! The configuration of the operator: the TOML file, its defaults and its errors.
//!
//! Everything here is text and plain values; files that the configuration names are opened
//! elsewhere (`material`). A fault is reported as *file, line, key, what is wrong, what to do*.

mod backend;
mod batching;
mod check;
mod document;
mod fault;
mod listener;
mod network;
mod place;
mod process;
#[cfg(test)]
mod tests;
mod values;

pub use backend::{Backend, HostPort};
pub use batching::Batching;
pub(crate) use document::Environment;
pub use document::{ConfigError, Document};
pub(crate) use fault::{Fault, is_shortage};
pub use listener::{
    BackendTls, Certificate, CheckKind, ClientAuth, ClientAuthMode, HealthCheck, KeyKind, Listener, Route, Tickets,
    TlsVersion, UnknownNames,
};
pub use network::Network;
pub use process::{Config, Drain, Limits, Metrics, PerSource};
pub use values::{OcspSource, ProxyVersion};
