//! The rustls provider: aws-lc-rs, with RSA private keys that sign in passes.

use std::sync::OnceLock;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use widelane_engine::Engine;

use crate::signing::Keys;

/// What [`aws_lc_rs::default_provider`] offers, with RSA signatures batched across connections by
/// [`Engine::global`]: a swap of one line.
///
/// ```
/// # fn main() -> Result<(), rustls::Error> {
/// // was: let provider = rustls::crypto::aws_lc_rs::default_provider();
/// let provider = widelane_rustls::default_provider();
/// let config = rustls::ServerConfig::builder_with_provider(provider.into())
///     .with_safe_default_protocol_versions()?
///     .with_no_client_auth();
/// # drop(config);
/// # Ok(())
/// # }
/// ```
///
/// or, for all configurations of a program, at the top of its `main`:
///
/// ```
/// widelane_rustls::default_provider().install_default().expect("installed once");
/// ```
///
/// Threads that sign at the same time share passes; nothing waits for company. The engine starts no
/// threads, and every call returns the same one. Where the CPU lacks the instructions, or the
/// environment variable `WIDELANE_CPU_DISABLE=avx512ifma` switches them off, aws-lc-rs signs.
pub fn default_provider() -> CryptoProvider {
    static KEYS: OnceLock<Keys> = OnceLock::new();
    with_keys(KEYS.get_or_init(|| Keys::new(Engine::global())))
}

/// The same with an engine that the caller has configured. Give the same engine to
/// [`Driver::new`](crate::Driver::new).
///
/// rustls keeps key loaders for ever (`&'static`), so each call leaks a few bytes and one handle of
/// `engine`: call it once an engine and clone what it returns. [`Engine::shutdown`] still ends the
/// engine; signing fails from then on.
pub fn provider(engine: &Engine) -> CryptoProvider {
    with_keys(Box::leak(Box::new(Keys::new(engine))))
}

fn with_keys(keys: &'static Keys) -> CryptoProvider {
    CryptoProvider {
        key_provider: keys,
        ..aws_lc_rs::default_provider()
    }
}
