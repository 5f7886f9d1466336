//! Verifying hostile ML-DSA signatures in lanes never panics, agrees with aws-lc-rs, and harms no
//! neighbour; loading hostile keys never panics, and a key that is accepted signs.
//!
//! The first byte chooses the size. The rest is a list of changes to a sound key, message and
//! signature, which gets past the structure, and once more the signature as it is.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use widelane_crypto::mldsa::{Signing, Size, Verification};
use widelane_crypto::sign::{Algorithm, Input, Key, Request};
use widelane_crypto::verify::{self, Scheme};
use widelane_crypto::{OnBackend, Operation, Preference, Task};

fuzz_target!(|data: &[u8]| {
    let Some((&first, data)) = data.split_first() else {
        return;
    };
    let sound = &SOUND[usize::from(first) % SOUND.len()];
    let public = public_key(&sound.key);
    let (key, message, signature) = sound.changed(data);
    let requests = [
        sound.to_verify(&public, MESSAGE, &sound.signature),
        sound.to_verify(&key, &message, &signature),
        sound.to_verify(&public, MESSAGE, &signature),
        sound.to_verify(&public, MESSAGE, data),
        sound.to_verify(&public, MESSAGE, &sound.signature),
    ];
    let answers = sound.verification.pass(&requests);
    assert!(answers[0].is_ok() && answers[4].is_ok());
    for (request, answer) in requests.iter().zip(&answers) {
        assert_eq!(sound.verification.alone(request).is_ok(), answer.is_ok());
    }

    match Key::from_pkcs8_der(data) {
        Ok(key) if key.algorithm() == Algorithm::MlDsa(sound.size) => {
            let answers = sound.signing.pass(&[request(&key)]);
            let signature = answers[0].as_ref().expect("an accepted key signs");
            let request = sound.to_verify(&public_key(&key), MESSAGE, signature);
            assert!(sound.verification.alone(&request).is_ok());
        }
        Ok(_) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

struct Sound {
    size: Size,
    key: Key,
    signature: Vec<u8>,
    signing: OnBackend<Signing>,
    verification: OnBackend<Verification>,
}

impl Sound {
    fn new(size: Size) -> Self {
        let backend = Preference::Auto.resolve().expect("some backend runs here");
        let signing = Signing(size).on(backend).expect("the backend runs here");
        let key = Key::from_secret(Algorithm::MlDsa(size), &[5; 32]).expect("a seed has 32 bytes");
        Self {
            size,
            signature: signing.alone(&request(&key)).expect("a sound key signs"),
            key,
            signing,
            verification: Verification(size).on(backend).expect("the backend runs here"),
        }
    }

    /// Every key of the right length is one.
    fn to_verify(&self, key: &[u8], message: &[u8], signature: &[u8]) -> verify::Request {
        let request = verify::Request::new(Scheme::MlDsa(self.size), key, message, signature);
        request.expect("a key of this length")
    }

    /// Public key, message and signature with changes of three bytes each: where (big-endian) and
    /// what.
    fn changed(&self, data: &[u8]) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let mut key = public_key(&self.key);
        let (mut message, mut signature) = (MESSAGE.to_vec(), self.signature.clone());
        for change in data.chunks_exact(3) {
            let mut at = usize::from(u16::from_be_bytes([change[0], change[1]]));
            for part in [&mut signature, &mut key, &mut message] {
                match part.get_mut(at) {
                    Some(byte) => {
                        *byte ^= change[2];
                        break;
                    }
                    None => at -= part.len(),
                }
            }
        }
        (key, message, signature)
    }
}

fn request(key: &Key) -> Request {
    let request = Request::new(key, key.schemes()[0], Input::Message(MESSAGE));
    request.expect("the scheme of the key")
}

fn public_key(key: &Key) -> Vec<u8> {
    let Algorithm::MlDsa(size) = key.algorithm() else {
        unreachable!("keys here are for ML-DSA");
    };
    let info = key.public_key_info_der();
    info[info.len() - size.public_key_len()..].to_vec()
}

const MESSAGE: &[u8] = b"message";

static SOUND: LazyLock<[Sound; 3]> = LazyLock::new(|| Size::ALL.map(Sound::new));
