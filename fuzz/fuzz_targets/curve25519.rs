//! X25519 and Ed25519 in lanes give what aws-lc-rs gives, for any secrets, shares, messages, keys
//! and signatures, a few of them in one pass.
//!
//! Each part of the input makes a request of every kind. Its first byte says what to damage in the
//! request, or that nothing is damaged.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use widelane_crypto::agreement::{self, Curve, Outcome, Secret};
use widelane_crypto::ed25519::{Signing, Verification};
use widelane_crypto::sign::{Algorithm, Input, Key, Request, Scheme};
use widelane_crypto::verify;
use widelane_crypto::x25519::{Derivation, Keygen};
use widelane_crypto::{Backend, OnBackend, Operation, Task};

fuzz_target!(|data: &[u8]| {
    let stretches: Vec<_> = data.chunks(STRETCH).filter(|part| part.len() == STRETCH).collect();
    for works in WORKS.iter() {
        agreement(works, &stretches);
        signatures(works, &stretches);
    }
});

fn agreement(works: &Works, stretches: &[&[u8]]) {
    let secret = |part: &[u8]| Secret::from_bytes(Curve::X25519, &part[1..33]).expect("32 bytes");
    let requests: Vec<_> = stretches.iter().map(|part| secret(part).public()).collect();
    let share = |outcome: Outcome| outcome.expect("every secret has one").into_share();
    let answers = works.keygen.pass(&requests).into_iter().map(share);
    assert!(answers.eq(requests.iter().map(|request| share(request.alone()))));

    let derive = |part: &&[u8]| secret(part).derive(&part[33..65]).expect("32 bytes");
    let requests: Vec<agreement::Request> = stretches.iter().map(derive).collect();
    let bytes = |outcome: Outcome| {
        let shared = outcome.map(|answer| answer.into_shared().expect("what was asked for"));
        shared.map(|shared| shared.as_bytes().to_vec())
    };
    let answers = works.derivation.pass(&requests).into_iter().map(bytes);
    assert!(answers.eq(requests.iter().map(|request| bytes(request.alone()))));
}

fn signatures(works: &Works, stretches: &[&[u8]]) {
    let keys: Vec<_> = stretches.iter().map(|part| key(&array(&part[1..]))).collect();
    let message = |part: &&[u8]| part[33..33 + usize::from(part[0] >> 3)].to_vec();
    let requests: Vec<_> = keys
        .iter()
        .zip(stretches)
        .map(|(key, part)| {
            let request = Request::new(key, Scheme::Ed25519, Input::Message(&message(part)));
            request.expect("the scheme of the key")
        })
        .collect();
    let signatures = works.signing.pass(&requests);
    let expected: Vec<_> = requests.iter().map(|request| works.signing.alone(request)).collect();
    assert_eq!(signatures, expected);

    let requests: Vec<_> = keys
        .iter()
        .zip(stretches)
        .zip(signatures)
        .map(|((key, part), signature)| {
            let mut signature = signature.expect("a sound key signs");
            let info = key.public_key_info_der();
            let mut public = array(&info[info.len() - 32..]);
            match part[0] & 7 {
                0 => signature[..32].copy_from_slice(&part[33..65]),
                1 => signature[32..].copy_from_slice(&part[33..65]),
                2 => public = array(&part[33..]),
                3 => signature.truncate(part[33].into()),
                4 => signature[usize::from(part[33]) % 64] ^= part[34],
                _ => {}
            }
            let scheme = verify::Scheme::Ed25519;
            let request = verify::Request::new(scheme, &public, &message(part), &signature);
            request.expect("32 bytes")
        })
        .collect();
    let verification = &works.verification;
    let expected: Vec<_> = requests.iter().map(|request| verification.alone(request)).collect();
    assert_eq!(verification.pass(&requests), expected);
}

fn key(seed: &[u8; 32]) -> Key {
    Key::from_secret(Algorithm::Ed25519, seed).expect("every seed is a key")
}

fn array(bytes: &[u8]) -> [u8; 32] {
    bytes[..32].try_into().expect("32 bytes")
}

struct Works {
    keygen: OnBackend<Keygen>,
    derivation: OnBackend<Derivation>,
    signing: OnBackend<Signing>,
    verification: OnBackend<Verification>,
}

static WORKS: LazyLock<Vec<Works>> = LazyLock::new(|| {
    let works = |backend| -> Option<Works> {
        Some(Works {
            keygen: Keygen.on(backend).ok()?,
            derivation: Derivation.on(backend).ok()?,
            signing: Signing.on(backend).ok()?,
            verification: Verification.on(backend).ok()?,
        })
    };
    Backend::ALL.into_iter().filter_map(works).collect()
});

const STRETCH: usize = 65;
