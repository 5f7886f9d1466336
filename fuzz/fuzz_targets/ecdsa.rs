//! Signatures on P-256 and P-384 from lanes are accepted by aws-lc-rs, and lanes and aws-lc-rs give
//! the same verdict on every signature, good, damaged or made up.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use widelane_crypto::ecdsa::{Curve, Signing, Verification};
use widelane_crypto::sign::{Input, Key, Request};
use widelane_crypto::verify::{self, Scheme};
use widelane_crypto::{Backend, Hash, OnBackend, Operation, Preference, Task};

static WORKS: LazyLock<[(OnBackend<Signing>, OnBackend<Verification>); 2]> = LazyLock::new(|| {
    let backend = Preference::Auto.resolve().unwrap_or(Backend::AwsLc);
    Curve::ALL.map(|curve| {
        let signing = Signing(curve).on(backend).expect("an available backend");
        let verification = Verification(curve).on(backend).expect("an available backend");
        (signing, verification)
    })
});

fuzz_target!(|data: &[u8]| {
    let Some((&first, rest)) = data.split_first() else {
        return;
    };
    let curve = Curve::ALL[usize::from(first & 1)];
    let (signing, verification) = &WORKS[usize::from(first & 1)];
    let Some((scalar, rest)) = rest.split_at_checked(curve.bytes()) else {
        return;
    };
    let Ok(key) = Key::from_sec1_der(&sec1(scalar)) else {
        return;
    };
    let (message, made_up) = rest.split_at(rest.len() / 2);
    let request = Request::new(&key, key.schemes()[0], Input::Message(message));
    let request = request.expect("the scheme of the key");
    let signature = signing.pass(&[request]).remove(0).expect("a good key signs");
    let mut damaged = signature.clone();
    if let Some((&place, &with)) = made_up.first().zip(made_up.get(1)) {
        let place = usize::from(place) % damaged.len();
        damaged[place] ^= with;
    }
    let info = key.public_key_info_der();
    let point = &info[info.len() - curve.point_bytes()..];
    let to_verify = |hash, signature: &[u8]| {
        let scheme = Scheme::Ecdsa(curve, hash);
        verify::Request::new(scheme, point, message, signature).expect("a good key")
    };
    let hashes = [Hash::Sha256, Hash::Sha384, Hash::Sha512];
    let other = hashes[usize::from(first >> 1) % 3];
    let own = Hash::of(curve);
    let requests = [
        to_verify(own, &signature),
        to_verify(own, &damaged),
        to_verify(other, &signature),
        to_verify(other, made_up),
    ];
    let verdicts = verification.pass(&requests);
    assert!(verdicts[0].is_ok());
    for (request, ours) in requests.iter().zip(verdicts) {
        assert_eq!(ours, verification.alone(request), "{request:?}");
    }
});

/// `ECPrivateKey` without anything that is optional: the length of the secret tells the curve.
fn sec1(scalar: &[u8]) -> Vec<u8> {
    let len = scalar.len() as u8;
    let mut der = vec![0x30, 5 + len, 2, 1, 1, 4, len];
    der.extend_from_slice(scalar);
    der
}
