//! Signatures of peers: in certificates, in chains of them and over handshakes.

mod common;

use std::sync::Arc;

use common::*;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::client::ResolvesClientCert;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::version::{TLS12, TLS13};
use rustls::{CertificateError, ClientConfig, Error, RootCertStore, ServerConfig, SignatureAlgorithm, SignatureScheme};
use rustls_pki_types::{PrivatePkcs8KeyDer, SignatureVerificationAlgorithm, alg_id};
use widelane_engine::Engine;
use widelane_rustls::{HandshakeError, provider};

#[test]
fn clients_certificates_of_every_kind_are_verified_in_both_roles() {
    for engine in engines() {
        let server = rsa(RSA_2048);
        for (kind, own) in each() {
            let our_server = mutual_server_config(provider(&engine), &server, &own);
            let their_server = mutual_server_config(theirs(), &server, &own);
            // ML-DSA is for TLS 1.3 only.
            let versions = if kind.starts_with("mldsa") { 1 } else { 2 };
            on_event_loop(&engine, async |driver| {
                for version in [&TLS13, &TLS12].into_iter().take(versions) {
                    let client = |crypto| checking_client_config(crypto, version, &server, Some(&own));
                    for pair in [
                        connect(&driver, &our_server, client(theirs())),
                        connect(&driver, &their_server, client(provider(&engine))),
                    ] {
                        assert_eq!(pair.complete().await.client_certificates, 1, "{kind}");
                    }
                }
            });
            let versions = versions as u64;
            let jobs = |operation| counted(&engine, &format!("{kind}-{operation}")).jobs;
            // Our server signs with RSA as well, and our client verifies such signatures.
            let roles = if kind == "rsa2048" { 2 } else { 1 };
            assert_eq!(jobs("sign"), roles * versions, "{kind}");
            // That of the certificate and that of the handshake.
            assert_eq!(jobs("verify"), roles * 2 * versions, "{kind}");
        }
    }
}

#[test]
fn a_client_without_a_certificate_is_refused() {
    let engine = engine();
    let identity = generate(Kind::Ecdsa);
    let config = mutual_server_config(provider(&engine), &identity, &identity);
    on_event_loop(&engine, async |driver| {
        let client = checking_client_config(theirs(), &TLS13, &identity, None);
        let (refused, _) = connect(&driver, &config, client).ends().await;
        assert!(
            matches!(refused, Err(HandshakeError::Tls(Error::NoCertificatesPresented))),
            "{refused:?}"
        );
    });
}

#[test]
fn forged_handshakes_are_refused_beside_good_ones() {
    for engine in engines() {
        let server = rsa(RSA_2048);
        for (kind, own) in each() {
            let config = mutual_server_config(provider(&engine), &server, &own);
            let good = checking_client_config(theirs(), &TLS13, &server, Some(&own));
            let forger = forging(&good, &own);
            on_event_loop(&engine, async |driver| {
                let pairs: Vec<_> = (0..12)
                    .map(|number| {
                        let forged = number % 3 == 0;
                        let client = if forged { &forger } else { &good };
                        (forged, connect(&driver, &config, client.clone()))
                    })
                    .collect();
                for (forged, pair) in pairs {
                    if forged {
                        let (server, client) = pair.ends().await;
                        assert_forged(server.map(drop), kind);
                        let alert = client.unwrap_err();
                        assert!(alert.to_string().contains("DecryptError"), "{alert}");
                    } else {
                        assert_eq!(pair.complete().await.client_certificates, 1);
                    }
                }
            });
            let verify = counted(&engine, &format!("{kind}-verify"));
            assert_eq!(verify.jobs, 2 * 12);
            assert!(3 * verify.passes <= verify.jobs, "{} passes", verify.passes);
        }
    }
}

#[test]
fn forged_servers_are_refused_by_clients() {
    for engine in engines() {
        for (kind, identity) in each() {
            let key = theirs().key_provider.load_private_key(identity.key.clone_key());
            let key = CertifiedKey::new(identity.chain.clone(), Arc::new(Forger(key.unwrap())));
            let config = ServerConfig::builder_with_provider(theirs().into())
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_cert_resolver(Arc::new(Single(key)));
            let config = Arc::new(config);
            let client = checking_client_config(provider(&engine), &TLS13, &identity, None);
            on_event_loop(&engine, async |driver| {
                let (_, client) = connect(&driver, &config, client).ends().await;
                assert_forged(client, kind);
            });
        }
    }
}

#[test]
fn chains_of_several_kinds_are_verified() {
    let engine = engine();
    let server = rsa(RSA_2048);
    // P-521 has no lanes; its signature is in the middle of the chain.
    let root = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    let middle = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512).unwrap();
    let low = KeyPair::generate_for(&rcgen::PKCS_ML_DSA_65).unwrap();
    let leaf = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let authority = |name: &str| {
        let mut params = CertificateParams::new([name.to_string()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    };
    let root_cert = authority("root").self_signed(&root).unwrap();
    let root_issuer = Issuer::new(authority("root"), &root);
    let middle_cert = authority("middle").signed_by(&middle, &root_issuer).unwrap();
    let middle_issuer = Issuer::new(authority("middle"), &middle);
    let low_cert = authority("low").signed_by(&low, &middle_issuer).unwrap();
    let low_issuer = Issuer::new(authority("low"), &low);
    let params = CertificateParams::new(["client".to_string()]).unwrap();
    let leaf_cert = params.signed_by(&leaf, &low_issuer).unwrap();

    let crypto = Arc::new(provider(&engine));
    let mut roots = RootCertStore::empty();
    roots.add(root_cert.der().clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), crypto.clone()).build();
    let config = ServerConfig::builder_with_provider(crypto)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.unwrap())
        .with_single_cert(server.chain.clone(), server.key.clone_key())
        .unwrap();
    let chain = [&leaf_cert, &low_cert, &middle_cert].map(|cert| cert.der().clone());
    let client = ClientConfig::builder_with_provider(theirs().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(server.as_root())
        .with_client_auth_cert(chain.to_vec(), PrivatePkcs8KeyDer::from(leaf.serialize_der()).into())
        .unwrap();
    on_event_loop(&engine, async |driver| {
        let pair = connect(&driver, &Arc::new(config), Arc::new(client));
        assert_eq!(pair.complete().await.client_certificates, 3);
    });
    for kind in ["p384-ecdsa", "mldsa65", "ed25519"] {
        assert_eq!(counted(&engine, &format!("{kind}-verify")).jobs, 1);
    }
}

#[test]
fn the_same_algorithms_are_offered_as_by_aws_lc() {
    let ours = provider(&engine()).signature_verification_algorithms;
    let theirs = theirs().signature_verification_algorithms;
    let ids = |algorithms: &[&dyn SignatureVerificationAlgorithm]| {
        let ids = |one: &&dyn SignatureVerificationAlgorithm| (one.public_key_alg_id(), one.signature_alg_id());
        algorithms.iter().map(ids).collect::<Vec<_>>()
    };
    assert_eq!(ids(ours.all), ids(theirs.all));
    assert_eq!(ours.supported_schemes(), theirs.supported_schemes());
    for ((_, ours), (_, theirs)) in ours.mapping.iter().zip(theirs.mapping) {
        assert_eq!(ids(ours), ids(theirs));
    }
}

#[test]
fn without_the_engine_aws_lc_verifies() {
    let stopped = engine();
    stopped.shutdown();
    for (kind, identity) in &each() {
        let (algorithm, key, signature) = specimen(&stopped, identity);
        assert!(algorithm.verify_signature(&key, MESSAGE, &signature).is_ok(), "{kind}");
        assert!(
            algorithm.verify_signature(&key, b"other", &signature).is_err(),
            "{kind}"
        );
    }
    assert_eq!(totals(&stopped).0, 0);
}

#[test]
fn forms_of_keys_that_have_no_lanes_are_aws_lcs() {
    let engine = engine();
    let identity = generate(Kind::Ecdsa);
    let (algorithm, key, signature) = specimen(&engine, &identity);
    assert!(algorithm.verify_signature(&key, MESSAGE, &signature).is_ok());
    assert_eq!(counted(&engine, "p256-ecdsa-verify").jobs, 1);
    // A compressed point (SEC 1, section 2.3.3) is lawful in a certificate.
    let sign = 2 + (key[64] & 1);
    let compressed = [&[sign], &key[1..33]].concat();
    assert!(algorithm.verify_signature(&compressed, MESSAGE, &signature).is_ok());
    // What is no key at all is refused by both.
    for bad in [&key[..64], &key[1..], &[0], &[]] {
        assert!(algorithm.verify_signature(bad, MESSAGE, &signature).is_err());
    }
    assert_eq!(counted(&engine, "p256-ecdsa-verify").jobs, 1);
}

#[test]
fn rsa_keys_of_other_sizes_are_aws_lcs() {
    let engine = engine();
    for (pem, jobs) in [(RSA_2048, 3), (RSA_2176, 0), (RSA_3072, 0), (RSA_4096, 0)] {
        let before = counted(&engine, "rsa2048-verify").jobs;
        let (algorithm, key, signature) = specimen(&engine, &rsa(pem));
        let verify = |key: &[u8], message: &[u8], signature: &[u8]| {
            let verdict = algorithm.verify_signature(key, message, signature);
            verdict.is_ok()
        };
        assert!(verify(&key, MESSAGE, &signature));
        assert!(!verify(&key, b"other", &signature));
        assert!(!verify(&key, MESSAGE, &signature[1..]));
        // What is no key at all is refused by both.
        for bad in [&key[..64], &key[1..], &[0], &[]] {
            assert!(!verify(bad, MESSAGE, &signature));
        }
        assert_eq!(counted(&engine, "rsa2048-verify").jobs, before + jobs);
    }
}

const MESSAGE: &[u8] = b"a message";

/// The algorithm of `identity` through `engine`, its public key and a signature of [`MESSAGE`].
fn specimen(engine: &Engine, identity: &Identity) -> (&'static dyn SignatureVerificationAlgorithm, Vec<u8>, Vec<u8>) {
    let key = theirs()
        .key_provider
        .load_private_key(identity.key.clone_key())
        .unwrap();
    let algorithms = provider(engine).signature_verification_algorithms;
    let signer = key.choose_scheme(&algorithms.supported_schemes()).unwrap();
    let mut mapping = algorithms.mapping.iter();
    let (_, algorithms) = mapping.find(|(scheme, _)| *scheme == signer.scheme()).unwrap();
    let info = key.public_key().unwrap();
    let key_len = match algorithms[0].public_key_alg_id() {
        // Behind the headers of two sequences and a bit string, and the algorithm.
        alg_id::RSA_ENCRYPTION => info.len() - 24,
        alg_id::ECDSA_P256 => 65,
        alg_id::ECDSA_P384 => 97,
        alg_id::ED25519 => 32,
        alg_id::ML_DSA_44 => 1312,
        alg_id::ML_DSA_65 => 1952,
        _ => 2592,
    };
    let public = info[info.len() - key_len..].to_vec();
    (algorithms[0], public, signer.sign(MESSAGE).unwrap())
}

#[track_caller]
fn assert_forged(result: Result<(), HandshakeError>, kind: &str) {
    const FORGED: Error = Error::InvalidCertificate(CertificateError::BadSignature);
    assert!(
        matches!(&result, Err(HandshakeError::Tls(error)) if *error == FORGED),
        "{kind}: {result:?}"
    );
}

/// `config` with a key whose signatures are wrong by a bit.
fn forging(config: &Arc<ClientConfig>, own: &Identity) -> Arc<ClientConfig> {
    let key = theirs().key_provider.load_private_key(own.key.clone_key()).unwrap();
    let key = CertifiedKey::new(own.chain.clone(), Arc::new(Forger(key)));
    let mut config = config.as_ref().clone();
    config.client_auth_cert_resolver = Arc::new(Single(key));
    Arc::new(config)
}

#[derive(Debug)]
struct Single(CertifiedKey);

impl ResolvesClientCert for Single {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::new(self.0.clone()))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl rustls::server::ResolvesServerCert for Single {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::new(self.0.clone()))
    }
}

#[derive(Debug)]
struct Forger(Arc<dyn SigningKey>);

impl SigningKey for Forger {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(ForgingSigner(self.0.choose_scheme(offered)?)))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}

#[derive(Debug)]
struct ForgingSigner(Box<dyn Signer>);

impl Signer for ForgingSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let mut signature = self.0.sign(message)?;
        let middle = signature.len() / 2;
        signature[middle] ^= 1;
        Ok(signature)
    }

    fn scheme(&self) -> SignatureScheme {
        self.0.scheme()
    }
}
