//! Loading an RSA private key from hostile bytes never panics, and a key that is accepted signs,
//! and its signatures verify.
//!
//! The input is tried as PKCS#8, as PKCS#1 and as PEM, and once more as a list of changes to a
//! sound key, which gets past the structure and to the arithmetic.

#![no_main]

use aws_lc_rs::signature::{RSA_PSS_2048_8192_SHA256, UnparsedPublicKey};
use libfuzzer_sys::fuzz_target;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use std::sync::LazyLock;
use widelane_crypto::sign::{Algorithm, Input, Key, Request};

fuzz_target!(|data: &[u8]| {
    let changed = changed(data);
    for key in [
        Key::from_pkcs8_der(data),
        Key::from_pkcs1_der(data),
        Key::from_pem(data),
        Key::from_pkcs1_der(&changed),
    ] {
        match key {
            Ok(key) if key.algorithm() == Algorithm::Rsa => works(&key),
            Ok(_) => {}
            // A message must be possible for every error.
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
});

fn works(key: &Key) {
    const MESSAGE: &[u8] = b"message";
    // PSS with SHA-256.
    let request = Request::new(key, key.schemes()[0], Input::Message(MESSAGE));
    let signature = request.expect("randomness").alone();
    let signature = signature.expect("an accepted key signs");
    assert_eq!(signature.len(), key.signature_len());
    let spki = key.public_key_info_der();
    let public = UnparsedPublicKey::new(&RSA_PSS_2048_8192_SHA256, &spki);
    // aws-lc-rs refuses long public exponents; those signatures were checked when they were made.
    if public.parse().is_ok() {
        public
            .verify(MESSAGE, &signature)
            .expect("the signature of an accepted key verifies");
    }
}

/// A sound key with changes of three bytes each: where (big-endian) and what.
fn changed(data: &[u8]) -> Vec<u8> {
    let mut der = SOUND.clone();
    for change in data.chunks_exact(3) {
        let index = usize::from(u16::from_be_bytes([change[0], change[1]])) % der.len();
        der[index] ^= change[2];
    }
    der
}

static SOUND: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let pem = include_bytes!("../../crates/crypto/tests/data/rsa2048_a_pkcs1.pem");
    let der = PrivateKeyDer::from_pem_slice(pem).expect("a sound key");
    der.secret_der().to_vec()
});
