//! Requests for measurements, by keys that are public.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::{Algorithm, Input, Key, Request};
use crate::passes::lock;
use crate::rsa;

impl Algorithm {
    /// The secret of a key, as [`Key::from_secret`] takes it.
    pub(crate) fn specimen(self) -> &'static [u8] {
        match self {
            Self::Rsa => rsa::Size::Rsa2048.specimen(),
            Self::Ecdsa(curve) => &[0x5a; 48][..curve.bytes()],
            Self::Ed25519 | Self::MlDsa(_) => &[0x5a; 32],
        }
    }
}

/// The key of a secret. It is loaded once, as a server's is.
pub(crate) fn specimen_key(algorithm: Algorithm, secret: &'static [u8]) -> Key {
    static KNOWN: Mutex<BTreeMap<(&str, &[u8]), Key>> = Mutex::new(BTreeMap::new());
    let name = algorithm.operations()[0];
    let mut known = lock(&KNOWN);
    let load = || Key::from_secret(algorithm, secret).expect("our own key is sound");
    known.entry((name, secret)).or_insert_with(load).clone()
}

/// The request that a TLS 1.3 server makes.
pub(crate) fn specimen(algorithm: Algorithm) -> Request {
    specimen_by(algorithm, algorithm.specimen())
}

/// Makes a specimen with the key of this secret.
pub(crate) fn specimen_by(algorithm: Algorithm, secret: &'static [u8]) -> Request {
    let key = specimen_key(algorithm, secret);
    let request = Request::new(&key, key.schemes()[0], Input::Message(SPECIMEN_MESSAGE));
    request.expect("the scheme of the key, and the system has random bytes")
}

/// Message of the length that a TLS 1.3 server signs with SHA-384: 64 spaces, a text of 33 bytes, a zero, and a hash
/// value (RFC 8446, section 4.4.3).
pub(crate) const SPECIMEN_MESSAGE: &[u8] = &[0x20; 64 + 33 + 1 + 48];
