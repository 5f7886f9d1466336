//! The provider without a driver: any rustls program, blocking.

mod common;

use std::sync::Arc;
use std::thread;

use common::*;
use rustls::crypto::aws_lc_rs;
use rustls::server::ServerConnection;
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, Error, InconsistentKeys, NamedGroup, ServerConfig, SignatureAlgorithm, SignatureScheme};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use widelane_engine::Engine;
use widelane_rustls::{default_provider, provider};

#[test]
fn threads_sign_at_the_same_time() {
    let engine = engine();
    let identity = rsa(RSA_2048);
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
    let identity = rsa(RSA_3072);
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
    let identity = generate(Kind::EcdsaP384);
    let config = server_config(provider(&engine), &identity);
    let client = checking_client_config(provider(&engine), &TLS13, &identity, None);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..4).for_each(|_| handshake_of(&config, &client)));
        }
    });
    for (operation, sides) in of_a_handshake("p384-ecdsa") {
        let jobs = counted(&engine, &operation).jobs;
        assert_eq!(jobs, 8 * 4 * sides, "{operation}");
    }
}

#[test]
fn a_key_that_is_not_the_certificates_is_found_out() {
    let engine = engine();
    let crypto = provider(&engine);
    for pem in [RSA_2048, RSA_2176, RSA_3072, RSA_4096] {
        let identity = rsa(pem);
        let chain = identity.chain.clone();
        for key in [identity.key.clone_key(), pkcs1(&identity.key)] {
            let pair = CertifiedKey::from_der(chain.clone(), key, &crypto).unwrap();
            // Not merely unknown: the key tells its public half.
            pair.keys_match().unwrap();
        }
        let other = if pem == RSA_2048 { RSA_3072 } else { RSA_2048 };
        let error = CertifiedKey::from_der(chain, pkcs8(other), &crypto).unwrap_err();
        assert_eq!(error, Error::InconsistentKeys(InconsistentKeys::KeyMismatch));
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
    let load = |key| crypto.key_provider.load_private_key(key).unwrap_err().to_string();

    let small = load(pkcs8(RSA_1024));
    assert!(small.contains("1024") && small.contains("2048"), "{small}");

    let mut der = pkcs8(RSA_2048).secret_der().to_vec();
    der.truncate(700);
    let cut = load(PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der)));
    assert!(cut.contains("PKCS#8"), "{cut}");
}

#[test]
fn keys_that_only_aws_lc_reads_sign_without_the_engine() {
    let engine = engine();
    let explicit = PrivateSec1KeyDer::from(EXPLICIT_P256.to_vec());
    let key = provider(&engine)
        .key_provider
        .load_private_key(explicit.into())
        .unwrap();
    assert_eq!(key.algorithm(), SignatureAlgorithm::ECDSA);
    let scheme = SignatureScheme::ECDSA_NISTP256_SHA256;
    let signer = key.choose_scheme(&[scheme]).unwrap();
    Engine::shutdown(&engine);
    signer.sign(b"message").unwrap();
}

#[test]
fn an_engine_that_is_shut_down_signs_no_more() {
    let engine = engine();
    let key = provider(&engine)
        .key_provider
        .load_private_key(pkcs8(RSA_2048))
        .unwrap();
    let signer = key.choose_scheme(&[SignatureScheme::RSA_PSS_SHA256]).unwrap();
    signer.sign(b"before").unwrap();
    Engine::shutdown(&engine);
    let error = signer.sign(b"after").unwrap_err().to_string();
    assert!(error.contains("shut down"), "{error}");
}

fn blocking_handshake(config: &Arc<ServerConfig>, version: &'static rustls::SupportedProtocolVersion) {
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

/// A key on P-256 whose curve is given by its parameters (`openssl ecparam -param_enc explicit`).
const EXPLICIT_P256: [u8; 364] = [
    0x30, 0x82, 0x01, 0x68, 0x02, 0x01, 0x01, 0x04, 0x20, 0xc7, 0x13, 0x21, 0xa6, 0xea, 0x31, 0x87, 0x8e, 0x1f, 0x67,
    0xa3, 0x79, 0xde, 0x1a, 0x03, 0x22, 0xb5, 0xac, 0x11, 0xb1, 0xbd, 0x6a, 0x02, 0xeb, 0xff, 0xf6, 0x82, 0x44, 0xb9,
    0x4e, 0x4f, 0x62, 0xa0, 0x81, 0xfa, 0x30, 0x81, 0xf7, 0x02, 0x01, 0x01, 0x30, 0x2c, 0x06, 0x07, 0x2a, 0x86, 0x48,
    0xce, 0x3d, 0x01, 0x01, 0x02, 0x21, 0x00, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0x30, 0x5b, 0x04, 0x20, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfc, 0x04,
    0x20, 0x5a, 0xc6, 0x35, 0xd8, 0xaa, 0x3a, 0x93, 0xe7, 0xb3, 0xeb, 0xbd, 0x55, 0x76, 0x98, 0x86, 0xbc, 0x65, 0x1d,
    0x06, 0xb0, 0xcc, 0x53, 0xb0, 0xf6, 0x3b, 0xce, 0x3c, 0x3e, 0x27, 0xd2, 0x60, 0x4b, 0x03, 0x15, 0x00, 0xc4, 0x9d,
    0x36, 0x08, 0x86, 0xe7, 0x04, 0x93, 0x6a, 0x66, 0x78, 0xe1, 0x13, 0x9d, 0x26, 0xb7, 0x81, 0x9f, 0x7e, 0x90, 0x04,
    0x41, 0x04, 0x6b, 0x17, 0xd1, 0xf2, 0xe1, 0x2c, 0x42, 0x47, 0xf8, 0xbc, 0xe6, 0xe5, 0x63, 0xa4, 0x40, 0xf2, 0x77,
    0x03, 0x7d, 0x81, 0x2d, 0xeb, 0x33, 0xa0, 0xf4, 0xa1, 0x39, 0x45, 0xd8, 0x98, 0xc2, 0x96, 0x4f, 0xe3, 0x42, 0xe2,
    0xfe, 0x1a, 0x7f, 0x9b, 0x8e, 0xe7, 0xeb, 0x4a, 0x7c, 0x0f, 0x9e, 0x16, 0x2b, 0xce, 0x33, 0x57, 0x6b, 0x31, 0x5e,
    0xce, 0xcb, 0xb6, 0x40, 0x68, 0x37, 0xbf, 0x51, 0xf5, 0x02, 0x21, 0x00, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00,
    0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9,
    0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51, 0x02, 0x01, 0x01, 0xa1, 0x44, 0x03, 0x42, 0x00, 0x04, 0xa3, 0x2a, 0xd5, 0x6c,
    0xc7, 0xcc, 0x72, 0x1d, 0x5d, 0xd5, 0x5d, 0xb2, 0x4c, 0xeb, 0x04, 0xaa, 0xe5, 0x6d, 0x10, 0xec, 0x11, 0x6f, 0x55,
    0x54, 0x71, 0x10, 0x14, 0x7e, 0xe4, 0xea, 0x69, 0x24, 0x67, 0xcf, 0x88, 0x2f, 0x99, 0xe4, 0x9b, 0xfa, 0xc2, 0x8f,
    0x09, 0x63, 0xb3, 0x75, 0x11, 0x0b, 0x61, 0xd9, 0x8a, 0x4a, 0xd4, 0xb4, 0xbb, 0x54, 0x8e, 0xd0, 0x39, 0x0a, 0xdb,
    0x2f, 0x2f, 0xec,
];
