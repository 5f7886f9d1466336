//! The standard operations: each request reaches the one that is for it, and its signature is
//! right.
#![cfg(not(loom))]

use aws_lc_rs::signature::{self, RsaParameters, UnparsedPublicKey};
use widelane_crypto::rsa::{Passes, PrivateKey, Scheme, SignRequest};
use widelane_crypto::{Backend, Preference};
use widelane_engine::{Config, Engine, Idle, Placement};

/// The keys of `widelane-crypto`'s own tests.
macro_rules! key {
    ($name:literal) => {
        PrivateKey::from_pem(include_bytes!(concat!("../../crypto/tests/data/", $name))).unwrap()
    };
}

#[test]
fn every_size_signs_in_passes_of_its_own() {
    for backend in available_backends() {
        let passes = Passes::new(Preference::Exactly(backend)).unwrap();
        let engine = start(backend, Placement::Inline);
        let worker = engine.worker();
        let mut signed = Vec::new();
        for (key, _) in keys() {
            // Two keys' worth of every padding and hash: mixed in every pass.
            for scheme in Scheme::ALL.into_iter().chain(Scheme::ALL) {
                let message = format!("{} bits, {scheme:?}", key.modulus_bits()).into_bytes();
                let request = SignRequest::new(&key, scheme, &message).unwrap();
                let ticket = worker.submit(request).unwrap();
                signed.push((key.clone(), scheme, message, ticket));
            }
        }
        while worker.turn(Idle::Yes) > 0 {}
        for (key, scheme, message, ticket) in signed {
            let signature = ticket.wait().unwrap().unwrap();
            verify(&key, scheme, &message, &signature);
        }
        for ((key, name), counters) in keys().iter().zip(engine.counters()) {
            let lanes = key.accelerated().map_or(1, |size| passes.lanes(size));
            assert_eq!((counters.name, counters.lanes), (*name, lanes), "{backend}");
            let all = 2 * Scheme::ALL.len();
            assert_eq!(counters.jobs, all as u64, "{backend} {name}");
            assert_eq!(
                counters.passes,
                all.div_ceil(lanes) as u64,
                "{backend} {name}"
            );
        }
    }
}

#[test]
fn every_placement_signs() {
    for backend in available_backends() {
        for placement in [Placement::Inline, Placement::VectorCores { cpus: vec![0] }] {
            let engine = start(backend, placement);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let (key, _) = &keys()[0];
                        let request = SignRequest::new(key, Scheme::PssSha256, b"hello").unwrap();
                        let signature = engine.run(request).unwrap().unwrap();
                        verify(key, Scheme::PssSha256, b"hello", &signature);
                    });
                }
            });
            assert_eq!(engine.counters()[0].jobs, 4);
        }
    }
}

#[test]
fn a_backend_that_is_missing_is_an_error_that_says_so() {
    for backend in Backend::ALL
        .into_iter()
        .filter(|backend| !backend.is_available())
    {
        let config = Config {
            backend: Preference::Exactly(backend),
            ..Config::default()
        };
        let error = Engine::start(config).unwrap_err().to_string();
        assert!(error.contains(backend.name()), "{error}");
    }
}

#[test]
fn the_global_engine_is_one_engine() {
    let (key, name) = keys().swap_remove(0);
    let request = SignRequest::new(&key, Scheme::Pkcs1Sha256, b"hello").unwrap();
    let signature = Engine::global().run(request).unwrap().unwrap();
    verify(&key, Scheme::Pkcs1Sha256, b"hello", &signature);
    let counters = Engine::global().counters();
    assert_eq!((counters[0].name, counters[0].jobs), (name, 1));
}

fn keys() -> Vec<(PrivateKey, &'static str)> {
    vec![
        (key!("rsa2048_a.pem"), "rsa2048-sign"),
        (key!("rsa3072_a.pem"), "rsa3072-sign"),
        (key!("rsa4096_a.pem"), "rsa4096-sign"),
        (key!("rsa2560.pem"), "rsa-sign"),
    ]
}

fn available_backends() -> Vec<Backend> {
    let (available, missing): (Vec<_>, Vec<_>) = Backend::ALL
        .into_iter()
        .partition(|backend| backend.is_available());
    for backend in missing {
        eprintln!("SKIP: {backend} does not run here");
    }
    available
}

fn start(backend: Backend, placement: Placement) -> Engine {
    let backend = Preference::Exactly(backend);
    Engine::start(Config {
        backend,
        placement,
        ..Config::default()
    })
    .unwrap()
}

fn verify(key: &PrivateKey, scheme: Scheme, message: &[u8], signature: &[u8]) {
    let parameters: &'static RsaParameters = match scheme {
        Scheme::Pkcs1Sha256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Scheme::Pkcs1Sha384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Scheme::Pkcs1Sha512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        Scheme::PssSha256 => &signature::RSA_PSS_2048_8192_SHA256,
        Scheme::PssSha384 => &signature::RSA_PSS_2048_8192_SHA384,
        Scheme::PssSha512 => &signature::RSA_PSS_2048_8192_SHA512,
    };
    UnparsedPublicKey::new(parameters, key.public_key_info_der())
        .verify(message, signature)
        .unwrap_or_else(|_| panic!("{} bits, {scheme:?}", key.modulus_bits()));
}
