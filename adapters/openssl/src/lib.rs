//! The OpenSSL provider: servers that use OpenSSL 3.0 or later sign and agree on keys in passes with
//! other connections, without being built anew.
//!
//! What it is: a shared object that OpenSSL loads as its configuration says. It offers RSA, ECDSA,
//! Ed25519 and ML-DSA signatures, X25519 and ECDH key exchanges, the post-quantum groups of TLS 1.3 and
//! ChaCha20-Poly1305, and gives everything else to OpenSSL's own provider `default`. It uses OpenSSL's
//! public interfaces only, and links to no library of it.
//!
//! What it is not: an event loop. A call waits in one of three ways, which `jobs::waiting` describes; the
//! library that suspends handshakes in synchronous servers is in `shim/`.
//!
//! Where to start: `ffi` has all that is unsafe. There, `provider` says what is offered, `keymgmt`, `signature`,
//! `exchange` and `cipher` are the functions that OpenSSL calls, and `keys` is what they work on. `prepared` says
//! when a key is prepared. A signature goes through `signature`, `signature_context` and `signers`.

#![deny(unsafe_code)]

mod choice;
mod engine;
mod family;
#[allow(unsafe_code)]
mod ffi;
mod forked;
mod forks;
mod jobs;
mod log;
mod options;
mod prepared;
mod signers;

/// Held by tests that look at what the whole process has counted, and by those that count.
#[cfg(test)]
static COUNTING: std::sync::Mutex<()> = std::sync::Mutex::new(());
