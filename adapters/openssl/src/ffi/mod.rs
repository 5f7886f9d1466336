//! All that is unsafe: what OpenSSL and the provider exchange, and the functions that each calls of the other.
//!
//! `abi` has the structures, `params` and `objects` read what callers pass, `libcrypto` and `defaults` are
//! OpenSSL's functions. `provider` says what is offered, and the other files are what OpenSSL calls for it.

pub(crate) mod abi;
pub(crate) mod cipher;
pub(crate) mod comparison;
pub(crate) mod defaults;
pub(crate) mod exchange;
pub(crate) mod hybrid;
pub(crate) mod keymgmt;
pub(crate) mod keys;
pub(crate) mod libcrypto;
pub(crate) mod library;
pub(crate) mod objects;
pub(crate) mod params;
pub(crate) mod paused;
pub(crate) mod provider;
pub(crate) mod signature;
pub(crate) mod signature_context;
pub(crate) mod status;
pub(crate) mod suspension;
