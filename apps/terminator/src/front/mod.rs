//! The side of clients: listening sockets, limits, and handshakes up to their end.

pub(crate) mod admission;
pub(crate) mod alert;
pub(crate) mod beginning;
pub(crate) mod client;
pub(crate) mod client_hello;
pub(crate) mod connection;
pub(crate) mod farewell;
pub(crate) mod gate;
pub(crate) mod handshake;
pub(crate) mod idle_queue;
pub(crate) mod opening;
pub(crate) mod proxy_header;
pub(crate) mod read_ahead;
pub(crate) mod short_nonces;
pub(crate) mod site;
pub(crate) mod sockets;
pub(crate) mod sources;
pub(crate) mod suites;
pub(crate) mod transcript;
