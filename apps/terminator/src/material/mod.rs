//! Files of the configuration, and what handshakes need of them: certificates, keys, tickets, OCSP responses.

pub(crate) mod certificate;
pub(crate) mod certificate_directory;
pub(crate) mod files;
pub(crate) mod identity;
pub(crate) mod in_use;
pub(crate) mod pinned;
pub(crate) mod read;
pub(crate) mod resumption;
pub(crate) mod stapling;
pub(crate) mod ticket_files;
pub(crate) mod ticket_key;
pub(crate) mod tls;
pub(crate) mod watch;
