//! rustls with public-key operations batched across connections.
//!
//! What it is, in two steps:
//!
//! 1. [`default_provider`] and [`provider`]: a rustls 0.23
//!    [`CryptoProvider`](rustls::crypto::CryptoProvider). It is aws-lc-rs except for public-key
//!    operations, which run in the lanes of wide vector registers, several a pass: key exchange on
//!    X25519, P-256, P-384 and with ML-KEM, signatures by RSA, ECDSA, Ed25519 and ML-DSA keys, and
//!    the verification of all of these (of RSA, 2048 bits). Any rustls program can use it by
//!    changing one line; threads that do the same at the same time share passes.
//! 2. [`Driver`]: for programs in which one thread serves many connections, or makes them. There an
//!    operation that blocks keeps all other connections from submitting theirs, so the driver runs
//!    each handshake step on a small stack of its own and suspends it while jobs of other
//!    connections join its own. [`Driver::accept`] makes a [`ServerStream`] out of a socket, and
//!    [`Driver::connect`] a [`ClientStream`]; [`Driver::turns`] is for event loops of your own.
//!
//! What it is not: a TLS implementation (that is rustls), a scheduler (`widelane-engine`) or
//! arithmetic (`widelane-crypto`). Hashes and AES-GCM are aws-lc-rs's, and so is every operation on
//! a CPU without the instructions, with unusual keys (P-521, RSA of uncommon size) and wherever it
//! is the faster way.
//!
//! Where to start:
//!
//! ```
//! use std::sync::Arc;
//!
//! use rustls::ServerConfig;
//! use rustls_pki_types::{CertificateDer, PrivateKeyDer};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use tokio::net::TcpListener;
//! use tokio::runtime::Builder;
//! use tokio::task::spawn_local;
//! use widelane_engine::{Config, Engine};
//! use widelane_rustls::{Driver, provider};
//!
//! fn serve(
//!     chain: Vec<CertificateDer<'static>>,
//!     key: PrivateKeyDer<'static>,
//! ) -> Result<(), Box<dyn std::error::Error>> {
//!     let engine = Engine::start(Config::default())?;
//!     let config = ServerConfig::builder_with_provider(provider(&engine).into())
//!         .with_safe_default_protocol_versions()?
//!         .with_no_client_auth()
//!         .with_single_cert(chain, key)?;
//!     let config = Arc::new(config);
//!
//!     // One event loop a thread; each has a driver of its own.
//!     let runtime = Builder::new_current_thread().enable_all().build_local(Default::default())?;
//!     runtime.block_on(async {
//!         let driver = Driver::new(&engine);
//!         spawn_local(driver.clone().flusher());
//!         let listener = TcpListener::bind("127.0.0.1:0").await?;
//!         loop {
//!             let (socket, _) = listener.accept().await?;
//!             socket.set_nodelay(true)?;
//!             let (driver, config) = (driver.clone(), config.clone());
//!             spawn_local(async move {
//!                 let mut stream = driver.accept(config, socket).await?;
//!                 let mut line = [0; 1024];
//!                 let read = stream.read(&mut line).await?;
//!                 stream.write_all(&line[..read]).await?;
//!                 stream.shutdown().await?;
//!                 Ok::<_, Box<dyn std::error::Error>>(())
//!             });
//!         }
//!     })
//! }
//! ```
//!
//! Prefer tokio's `LocalRuntime`, as here, to a `LocalSet`: it polls the sockets more often under
//! load and wakes tasks without system calls.

#![deny(unsafe_code)]

mod driver;
mod generation;
mod groups;
mod jobs;
mod observed;
mod provider;
mod random;
mod schedule;
mod signing;
mod stream;
mod suites;
mod suspend;
mod verify;

pub use driver::{Driver, Handshake, HandshakeError, Turns};
pub use groups::kx_groups;
pub use observed::Observed;
pub use provider::{default_provider, provider};
pub use stream::{ClientStream, ServerStream, TlsStream};
pub use suites::cipher_suites;
