//! The side of clients: listening sockets, limits, and handshakes up to their end.

pub(crate) mod admission;
pub(crate) mod alert;
pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod evictable;
pub(crate) mod gate;
pub(crate) mod introduction;
pub(crate) mod nearby;
pub(crate) mod offer;
pub(crate) mod opening;
pub(crate) mod short_nonces;
pub(crate) mod site;
pub(crate) mod sockets;
pub(crate) mod sources;
pub(crate) mod suites;
pub(crate) mod transcript;
