//! The side of backends: their names and addresses, whether they are up, and the relay to them.

pub(crate) mod attempts;
pub(crate) mod backend;
pub(crate) mod backend_tls;
pub(crate) mod checks;
pub(crate) mod health;
pub(crate) mod host_names;
pub(crate) mod pace;
pub(crate) mod pool;
pub(crate) mod proxy;
pub(crate) mod relay;
pub(crate) mod routes;
pub(crate) mod tls_failure;
pub(crate) mod upstream;
