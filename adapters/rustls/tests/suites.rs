//! Records with ChaCha20-Poly1305 in every form, and keys of every suite of TLS 1.3, to and from
//! aws-lc-rs.

mod common;

use std::io::{Read, Write};
use std::sync::Arc;

use common::*;
use rustls::crypto::tls13::Hkdf;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::ServerConnection;
use rustls::version::{TLS12, TLS13};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, ConnectionCommon, Error, HandshakeKind, SideData,
    SupportedCipherSuite, SupportedProtocolVersion,
};
use widelane_crypto::chacha20poly1305::{Choice, Cipher, Form};
use widelane_rustls::{cipher_suites, default_provider};

#[test]
fn records_of_every_form_are_those_of_aws_lc() {
    for (form, ours) in suites_of_all_forms() {
        let theirs = aws_lc_rs::default_provider().cipher_suites;
        for version in [&TLS13, &TLS12] {
            for (client, server) in [(&ours, &theirs), (&theirs, &ours), (&ours, &ours)] {
                let (mut client, mut server) = connect(client, server, version);
                for len in LENGTHS {
                    exchange(&mut client, &mut server, len, &form);
                    exchange(&mut server, &mut client, len, &form);
                }
                if version.version == TLS13.version {
                    client.refresh_traffic_keys().unwrap();
                    exchange(&mut client, &mut server, 12_000, &form);
                    server.refresh_traffic_keys().unwrap();
                    exchange(&mut server, &mut client, 12_000, &form);
                    exchange(&mut client, &mut server, 100, &form);
                }
            }
        }
    }
}

#[test]
fn a_changed_or_truncated_record_is_refused() {
    for (form, ours) in suites_of_all_forms() {
        for version in [&TLS13, &TLS12] {
            for len in [1, 300, 3000, 16_000] {
                // In its text and in its tag.
                for from_the_end in [1, 16, 17] {
                    let (mut client, mut server) = connect(&ours, &ours, version);
                    let mut record = written(&mut client, &vec![7; len]);
                    let at = record.len() - from_the_end;
                    record[at] ^= 0x10;
                    assert_eq!(refusal(&mut server, &record), Error::DecryptError, "{form}");
                }
            }
            for len in [0, 1, 15, 16] {
                let (_, mut server) = connect(&ours, &ours, version);
                let record = [&[23, 3, 3, 0, len][..], &vec![0; len.into()]].concat();
                assert_eq!(refusal(&mut server, &record), Error::DecryptError, "{form}");
            }
        }
    }
}

#[test]
fn a_record_of_another_place_in_the_stream_is_refused() {
    for (form, ours) in suites_of_all_forms() {
        for version in [&TLS13, &TLS12] {
            let (mut client, mut server) = connect(&ours, &ours, version);
            let _lost = written(&mut client, b"first");
            let second = written(&mut client, b"second");
            assert_eq!(refusal(&mut server, &second), Error::DecryptError, "{form}");
        }
    }
}

#[test]
fn the_order_and_the_names_are_those_of_aws_lc() {
    let names = |suites: &[SupportedCipherSuite]| -> Vec<CipherSuite> {
        suites.iter().map(SupportedCipherSuite::suite).collect()
    };
    let theirs = names(&aws_lc_rs::default_provider().cipher_suites);
    for (_, ours) in suites_of_all_forms() {
        assert_eq!(names(&ours), theirs);
        // QUIC stays possible.
        for suite in ours.iter().filter_map(SupportedCipherSuite::tls13) {
            assert!(suite.quic.is_some());
        }
    }
    assert_eq!(names(&default_provider().cipher_suites), theirs);
}

#[test]
fn every_suite_of_tls13_derives_the_keys_of_aws_lc() {
    let identity = generate(Kind::Ecdsa);
    let with = |suite: SupportedCipherSuite| CryptoProvider {
        cipher_suites: vec![suite],
        ..aws_lc_rs::default_provider()
    };
    for (form, ours) in suites_of_all_forms() {
        for ours in ours.into_iter().filter(|suite| suite.tls13().is_some()) {
            let theirs = aws_lc_rs::default_provider().cipher_suites;
            let theirs = theirs.into_iter().find(|s| s.suite() == ours.suite());
            let theirs = theirs.unwrap();
            let hkdf = |suite: SupportedCipherSuite| {
                let hkdf: *const dyn Hkdf = suite.tls13().unwrap().hkdf_provider;
                hkdf
            };
            assert!(!std::ptr::addr_eq(hkdf(ours), hkdf(theirs)), "{ours:?}");
            for (client, server) in [(ours, theirs), (theirs, ours)] {
                let server = server_config(with(server), &identity);
                let client = ClientConfig::builder_with_provider(with(client).into())
                    .with_protocol_versions(&[&TLS13])
                    .unwrap()
                    .dangerous()
                    .with_custom_certificate_verifier(any_chain())
                    .with_no_client_auth();
                let client = Arc::new(client);
                // The second time, a binder proves that the client may have its ticket.
                for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
                    let mut client = common::client(&client, "localhost");
                    let mut server = ServerConnection::new(server.clone()).unwrap();
                    shake_hands(&mut client, &mut server);
                    assert_eq!(client.handshake_kind(), Some(kind), "{ours:?}");
                    let export = |result: Result<[u8; 100], Error>| result.unwrap();
                    assert_eq!(
                        export(client.export_keying_material([0; 100], b"label", Some(b"a"))),
                        export(server.export_keying_material([0; 100], b"label", Some(b"a"))),
                    );
                    exchange(&mut client, &mut server, 1000, &form);
                    server.refresh_traffic_keys().unwrap();
                    exchange(&mut server, &mut client, 1000, &form);
                    exchange(&mut client, &mut server, 1000, &form);
                }
            }
        }
    }
}

fn suites_of_all_forms() -> Vec<(Form, Vec<SupportedCipherSuite>)> {
    let mut all = Vec::new();
    for form in Form::ALL {
        match Cipher::new(Choice::Exactly(form)) {
            Ok(cipher) => all.push((form, cipher_suites(cipher))),
            Err(error) => eprintln!("SKIP: {error}"),
        }
    }
    all
}

/// A connection, after its handshake, that uses ChaCha20-Poly1305.
fn connect(
    client: &[SupportedCipherSuite],
    server: &[SupportedCipherSuite],
    version: &'static SupportedProtocolVersion,
) -> (ClientConnection, ServerConnection) {
    let provider = |suites: &[SupportedCipherSuite]| CryptoProvider {
        cipher_suites: suites.iter().copied().filter(is_chacha20).collect(),
        ..aws_lc_rs::default_provider()
    };
    let identity = generate(Kind::Ecdsa);
    let config = server_config(provider(server), &identity);
    let mut server = ServerConnection::new(config).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(provider(client)))
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(any_chain())
        .with_no_client_auth();
    let mut client = common::client(&Arc::new(config), "localhost");
    shake_hands(&mut client, &mut server);
    for suite in [client.negotiated_cipher_suite(), server.negotiated_cipher_suite()] {
        assert!(is_chacha20(&suite.unwrap()));
    }
    (client, server)
}

fn shake_hands(client: &mut ClientConnection, server: &mut ServerConnection) {
    while client.is_handshaking() || server.is_handshaking() {
        let flight = sent(client);
        received(server, &flight).unwrap();
        let flight = sent(server);
        received(client, &flight).unwrap();
    }
}

fn is_chacha20(suite: &SupportedCipherSuite) -> bool {
    format!("{:?}", suite.suite()).contains("CHACHA20_POLY1305")
}

/// `len` bytes arrive as they were sent.
fn exchange<A: SideData, B: SideData>(
    from: &mut ConnectionCommon<A>,
    to: &mut ConnectionCommon<B>,
    len: usize,
    form: &Form,
) {
    let text: Vec<u8> = (0..len).map(|i| (i * 31 + len) as u8).collect();
    let records = written(from, &text);
    received(to, &records).unwrap();
    let mut found = vec![0; len];
    to.reader().read_exact(&mut found).unwrap();
    assert!(found == text, "{form}: {len} bytes");
    // What the other side has to say, such as new keys.
    let answer = sent(to);
    received(from, &answer).unwrap();
}

/// The records that `text` becomes.
fn written<A: SideData>(connection: &mut ConnectionCommon<A>, text: &[u8]) -> Vec<u8> {
    connection.set_buffer_limit(None);
    connection.writer().write_all(text).unwrap();
    sent(connection)
}

fn sent<A: SideData>(connection: &mut ConnectionCommon<A>) -> Vec<u8> {
    let mut bytes = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut bytes).unwrap();
    }
    bytes
}

fn received<A: SideData>(connection: &mut ConnectionCommon<A>, mut bytes: &[u8]) -> Result<(), Error> {
    while !bytes.is_empty() {
        connection.read_tls(&mut bytes).unwrap();
        connection.process_new_packets()?;
    }
    Ok(())
}

fn refusal<A: SideData>(connection: &mut ConnectionCommon<A>, record: &[u8]) -> Error {
    received(connection, record).unwrap_err()
}

/// Bytes: short ones, up to whole records of TLS.
const LENGTHS: [usize; 9] = [1, 64, 500, 961, 1500, 3000, 10_000, 16_383, 16_384];
