//! The OpenSSL provider: servers that use OpenSSL 3.0 or later sign and agree on keys in passes with
//! other connections, without being built anew.
//!
//! What it is: a shared object that OpenSSL loads as its configuration says. It offers RSA, ECDSA,
//! Ed25519 and ML-DSA signatures, X25519 and ECDH key exchanges, the post-quantum groups of TLS 1.3 and
//! ChaCha20-Poly1305, and gives everything else to OpenSSL's own provider `default`. It uses OpenSSL's
//! public interfaces only, and links to no library of it.
//!
//! What it is not: an event loop. A call waits in one of three ways, which `waiting` describes; the
//! library that suspends handshakes in synchronous servers is in `shim/`.
//!
//! Where to start: `provider` says what is offered, `keymgmt`, `signature`, `exchange` and `cipher` are
//! the functions that OpenSSL calls, `keys` is what they work on, `prepared` says when a key is prepared. A
//! signature goes through `signature`, `signature_context` and `signers`.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod abi;
mod choice;
#[allow(unsafe_code)]
mod cipher;
#[allow(unsafe_code)]
mod comparison;
#[allow(unsafe_code)]
mod defaults;
mod engine;
#[allow(unsafe_code)]
mod exchange;
mod family;
mod forked;
mod forks;
#[allow(unsafe_code)]
mod hybrid;
#[allow(unsafe_code)]
mod keymgmt;
#[allow(unsafe_code)]
mod keys;
#[allow(unsafe_code)]
mod libcrypto;
mod log;
#[cfg(all(loom, test))]
mod models;
#[allow(unsafe_code)]
mod objects;
#[allow(unsafe_code)]
mod options;
#[allow(unsafe_code)]
mod params;
#[allow(unsafe_code)]
mod paused;
mod prepared;
#[allow(unsafe_code)]
mod provider;
mod queue;
#[allow(unsafe_code)]
mod signature;
#[allow(unsafe_code)]
mod signature_context;
mod signers;
#[allow(unsafe_code)]
mod status;
#[allow(unsafe_code)]
mod suspension;
mod sync;
mod waiting;

/// Held by tests that look at what the whole process has counted, and by those that count.
#[cfg(test)]
static COUNTING: std::sync::Mutex<()> = std::sync::Mutex::new(());
