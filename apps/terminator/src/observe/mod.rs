//! Everything that operators see: counters and their endpoint, the access log, reasons of failures.

pub(crate) mod encode;
pub(crate) mod endpoint;
pub(crate) mod log_entry;
pub(crate) mod log_limiter;
pub(crate) mod page;
pub(crate) mod reason;
pub(crate) mod scrape;
pub(crate) mod scrape_format;
pub(crate) mod stats;
