//! Cryptographic operations for many callers at once: keys, padding, blinding and result checks.
//!
//! What it is: the layer between arithmetic and protocols. It loads and checks keys, turns
//! messages into the integers that the kernels work on, runs passes over several requests and
//! releases a result only after it was verified. [`sign`] has private keys and requests of all
//! kinds of signatures; families: [`rsa`], [`ecdsa`], [`ed25519`] and [`mldsa`] signatures and
//! their verification, [`ecdh`] and [`x25519`] key agreement, [`mlkem`] key encapsulation.
//! [`agreement`] has requests of all kinds of key agreement, and the groups of TLS.
//! And [`chacha20poly1305`], the cipher, whose lanes all work on one message, and [`hmac`], without
//! lanes, for key schedules.
//!
//! What it is not: a scheduler. Which requests share a pass, and when it runs, is decided by
//! `batching` and carried out by `engine`. Nor does it contain arithmetic for vector registers
//! (`kernels`) or protocol code (`adapters`).
//!
//! Where to start: [`sign::Key::from_der`] loads a key, [`sign::Request::new`] makes a request,
//! [`sign::Request::alone`] answers it at once. [`rsa::Signing`] is a [`Task`] that answers several
//! together: [`Task::on`] makes an [`Operation`] of it for a [`Backend`], the code that does the
//! arithmetic.
//!
//! ```
//! use widelane_crypto::sign::{Input, Key, Request};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pem = include_bytes!("../tests/data/rsa2048_a.pem");
//! let key = Key::from_pem(pem)?;
//! let request = Request::new(&key, key.schemes()[0], Input::Message(b"message"))?;
//! let signature = request.alone()?;
//! assert_eq!(signature.len(), 256);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

#[cfg(test)]
mod acvp;
pub mod agreement;
mod backend;
pub mod chacha20poly1305;
pub mod ecdh;
pub mod ecdsa;
pub mod ed25519;
mod faults;
mod hash;
pub mod hmac;
mod lanes25519;
pub mod mldsa;
pub mod mlkem;
mod nist;
mod operation;
mod passes;
pub mod rsa;
mod secrecy;
pub mod sign;
pub mod verify;
pub mod x25519;

pub use agreement::{AgreeError, Shared};
pub use backend::{Backend, BackendUnavailable, ParseBackendError, Preference};
pub use hash::Hash;
pub use operation::{OnBackend, Operation, Request, Task};
pub use widelane_cpu::Target;
