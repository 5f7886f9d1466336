//! Ticket keys that several machines share through etcd.
//!
//! [`rules`] decides which keys are in force and what is to be written, without input or output. [`sealed`] is
//! the form in which keys lie in etcd. [`store`] hands keys to listeners, and tells what is wrong. `client` asks
//! etcd, on a thread of its own; it is there if the feature `etcd` is.

#![cfg_attr(not(feature = "etcd"), allow(dead_code))]

#[cfg(feature = "etcd")]
mod client;
pub(crate) mod rules;
pub(crate) mod sealed;
pub(crate) mod settings;
pub(crate) mod store;
