//! The provider without a driver: any rustls program, blocking.

mod common;

use std::sync::Arc;
use std::thread;

use common::*;
use rustls::crypto::aws_lc_rs;
use rustls::server::ServerConnection;
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, Error, InconsistentKeys, NamedGroup, ServerConfig, SignatureAlgorithm,
    SignatureScheme,
};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use widelane_engine::Engine;
use widelane_rustls::{default_provider, provider};

#[test]
fn threads_sign_at_the_same_time() {
    let engine = engine();
    let identity = Identity::rsa(RSA_2048);
    let config = server_config(only_signing(&engine), &identity);
    thread::scope(|scope| {
        for version in [&TLS12, &TLS13].into_iter().cycle().take(8) {
            let config = config.clone();
            scope.spawn(move || (0..4).for_each(|_| blocking_handshake(&config, version)));
        }
    });
    let counters = engine.counters();
    assert_eq!(counters.iter().map(|one| one.jobs).sum::<u64>(), 8 * 4);
}

#[test]
fn the_default_provider_is_a_swap_of_one_line() {
    let identity = Identity::rsa(RSA_3072);
    let config = server_config(default_provider(), &identity);
    blocking_handshake(&config, &TLS13);
    blocking_handshake(&config, &TLS12);
    let (ours, theirs) = (default_provider(), aws_lc_rs::default_provider());
    assert_eq!(
        format!("{:?}", ours.cipher_suites),
        format!("{:?}", theirs.cipher_suites)
    );
    let names = ours.kx_groups.iter().map(|group| group.name());
    let names: Vec<_> = names.collect();
    assert_eq!(names[0], NamedGroup::X25519MLKEM768);
    for group in theirs.kx_groups {
        assert!(names.contains(&group.name()), "{group:?}");
    }
}

#[test]
fn blocking_handshakes_do_everything_through_the_engine() {
    let engine = engine();
    let identity = Identity::generate(&rcgen::PKCS_ECDSA_P384_SHA384);
    let config = server_config(provider(&engine), &identity);
    let client = checking_client_config(provider(&engine), &TLS13, &identity, None);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..4).for_each(|_| handshake_of(&config, &client)));
        }
    });
    for (operation, sides) in [
        ("x25519-keygen", 2),
        ("x25519-derive", 2),
        ("mlkem768-keygen", 1),
        ("mlkem768-encaps", 1),
        ("mlkem768-decaps", 1),
        ("p384-ecdsa-sign", 1),
        ("p384-ecdsa-verify", 2),
    ] {
        assert_eq!(
            counted(&engine, operation).jobs,
            8 * 4 * sides,
            "{operation}"
        );
    }
}

#[test]
fn a_key_that_is_not_the_certificates_is_found_out() {
    let engine = engine();
    let crypto = provider(&engine);
    for pem in [RSA_2048, RSA_2176, RSA_3072, RSA_4096] {
        let identity = Identity::rsa(pem);
        let chain = vec![identity.cert.clone()];
        for key in [identity.pkcs8(), identity.pkcs1()] {
            let pair = CertifiedKey::from_der(chain.clone(), key, &crypto).unwrap();
            // Not merely unknown: the key tells its public half.
            pair.keys_match().unwrap();
        }
        let other = if pem == RSA_2048 { RSA_3072 } else { RSA_2048 };
        let error = CertifiedKey::from_der(chain, pkcs8(other), &crypto).unwrap_err();
        assert_eq!(
            error,
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch)
        );
    }
}

#[test]
fn pss_with_sha256_is_preferred_and_each_scheme_is_served() {
    use SignatureScheme as S;
    let engine = engine();
    let key = provider(&engine)
        .key_provider
        .load_private_key(pkcs8(RSA_2048))
        .unwrap();
    assert_eq!(key.algorithm(), SignatureAlgorithm::RSA);
    let best_first = [
        S::RSA_PSS_SHA256,
        S::RSA_PSS_SHA384,
        S::RSA_PSS_SHA512,
        S::RSA_PKCS1_SHA256,
        S::RSA_PKCS1_SHA384,
        S::RSA_PKCS1_SHA512,
    ];
    for (skipped, &expected) in best_first.iter().enumerate() {
        let mut offered = vec![S::ECDSA_NISTP256_SHA256, S::RSA_PKCS1_SHA1];
        offered.extend(best_first[skipped..].iter().rev());
        let signer = key.choose_scheme(&offered).unwrap();
        assert_eq!(signer.scheme(), expected);
        assert_eq!(signer.sign(b"message").unwrap().len(), 256);
    }
    let ecdsa = [S::ECDSA_NISTP256_SHA256, S::ED25519];
    assert!(key.choose_scheme(&ecdsa).is_none());
}

#[test]
fn refused_keys_are_told_why() {
    let crypto = default_provider();
    let load = |key| {
        crypto
            .key_provider
            .load_private_key(key)
            .unwrap_err()
            .to_string()
    };

    let small = load(pkcs8(RSA_1024));
    assert!(small.contains("1024") && small.contains("2048"), "{small}");

    let mut der = pkcs8(RSA_2048).secret_der().to_vec();
    der.truncate(700);
    let cut = load(PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der)));
    assert!(cut.contains("PKCS#8"), "{cut}");
}

#[test]
fn an_engine_that_is_shut_down_signs_no_more() {
    let engine = engine();
    let key = provider(&engine)
        .key_provider
        .load_private_key(pkcs8(RSA_2048))
        .unwrap();
    let signer = key
        .choose_scheme(&[SignatureScheme::RSA_PSS_SHA256])
        .unwrap();
    signer.sign(b"before").unwrap();
    Engine::shutdown(&engine);
    let error = signer.sign(b"after").unwrap_err().to_string();
    assert!(error.contains("shut down"), "{error}");
}

fn blocking_handshake(
    config: &Arc<ServerConfig>,
    version: &'static rustls::SupportedProtocolVersion,
) {
    handshake_of(config, &client_config(version));
}

/// A handshake in memory, both sides on the calling thread.
fn handshake_of(config: &Arc<ServerConfig>, client_config: &Arc<ClientConfig>) {
    let mut server = ServerConnection::new(config.clone()).unwrap();
    let mut client = client(client_config, "localhost");
    while client.is_handshaking() || server.is_handshaking() {
        let mut flight = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut flight).unwrap();
        }
        let mut rest = &flight[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets().unwrap();
        }
        flight.clear();
        while server.wants_write() {
            server.write_tls(&mut flight).unwrap();
        }
        let mut rest = &flight[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
        }
    }
}
