//! The rustls provider: aws-lc-rs, with public-key operations in passes.

use std::sync::LazyLock;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use widelane_crypto::chacha20poly1305::{Choice, Cipher};
use widelane_engine::Engine;

use crate::groups::{OFFERED, kx_groups};
use crate::random::Stocked;
use crate::signing::Keys;
use crate::suites::cipher_suites;
use crate::verify;

/// Provider with all that [`aws_lc_rs::default_provider`] offers and more, with public-key operations batched across
/// connections by [`Engine::global`]: a swap of one line.
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
/// Threads that agree on keys, sign or verify at the same time share passes; no operation waits for
/// others to arrive. The engine starts no threads, and every call returns the same one. Where the CPU lacks
/// the instructions, or the environment variable `WIDELANE_CPU_DISABLE=avx512ifma` switches them
/// off, aws-lc-rs does everything.
pub fn default_provider() -> CryptoProvider {
    static PROVIDER: LazyLock<CryptoProvider> = LazyLock::new(|| provider(Engine::global()));
    PROVIDER.clone()
}

/// Provider with an engine that the caller has configured. Give the same engine to
/// [`Driver::new`](crate::Driver::new).
///
/// The key exchange groups are, best first, X25519MLKEM768, X25519, secp256r1, secp384r1,
/// SecP256r1MLKEM768 and SecP384r1MLKEM1024; see [`kx_groups`] for others.
///
/// ChaCha20-Poly1305 runs in registers as wide as there are; see [`cipher_suites`] for others.
///
/// `secure_random` is AWS-LC's generator. During a step of a [`Driver`](crate::Driver) it hands out
/// bytes that were taken from AWS-LC in advance, for the public values that rustls needs there:
/// randoms, session ids, nonces of tickets. A callback that makes a key during a handshake takes its
/// bytes from a generator of its own.
///
/// rustls keeps what a provider consists of for ever (`&'static`), so each call leaks a few
/// kilobytes and some handles of `engine`: call it once an engine and clone what it returns.
/// [`Engine::shutdown`] still ends the engine; handshakes fail from then on.
pub fn provider(engine: &Engine) -> CryptoProvider {
    let theirs = aws_lc_rs::default_provider();
    let mut kx_groups = kx_groups(engine);
    kx_groups.truncate(OFFERED);
    let suites = Cipher::new(Choice::Auto).map_or(theirs.cipher_suites.clone(), cipher_suites);
    CryptoProvider {
        cipher_suites: suites,
        kx_groups,
        signature_verification_algorithms: verify::in_passes(theirs.signature_verification_algorithms, engine),
        secure_random: Box::leak(Box::new(Stocked::new(theirs.secure_random))),
        key_provider: Box::leak(Box::new(Keys::new(engine))),
    }
}
