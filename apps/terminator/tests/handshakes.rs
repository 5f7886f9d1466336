//! Handshakes with other people's clients and ours: versions, certificates, ALPN, client
//! certificates, resumption.

mod common;

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::*;
use rustls::{HandshakeKind, SignatureScheme};
use widelane_terminator::{ClientAuth, Placement, Server};

/// Batched inline, batched on a vector core, and not batched.
fn modes(files: &Files) -> Vec<(&'static str, Server)> {
    let mut servers = Vec::new();
    for mode in ["inline", "vector-cores", "off"] {
        let certificates = vec![
            files.certificate(Kind::Rsa, &["a.example", "localhost"]),
            files.certificate(Kind::Ecdsa, &["b.example", "*.b.example"]),
            files.certificate(Kind::Ed25519, &["d.example"]),
        ];
        let mut config = config(vec![listener(echo(), certificates)]);
        config.batching.enabled = mode != "off";
        if mode == "vector-cores" {
            config.batching.placement = Placement::VectorCores;
            config.batching.vector_cpus = "0".parse().expect("a list");
        }
        servers.push((mode, start(&config)));
    }
    servers
}

#[test]
fn openssl_s_client_with_both_versions_and_all_keys() {
    if !installed("openssl") {
        return;
    }
    let files = Files::new();
    for (mode, server) in modes(&files) {
        let address = server.addresses()[0];
        for version in ["-tls1_2", "-tls1_3"] {
            for (name, kind) in [
                ("a.example", "RSA"),
                ("b.example", "ECDSA"),
                ("d.example", "ed25519"),
            ] {
                let mut client = Command::new("openssl")
                    .args(["s_client", "-connect", &address.to_string(), version])
                    .args(["-servername", name])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .expect("openssl");
                client
                    .stdin
                    .take()
                    .expect("stdin")
                    .write_all(b"Q\n")
                    .expect("sent");
                let output = client.wait_with_output().expect("an end");
                let text = String::from_utf8_lossy(&output.stdout);
                assert!(output.status.success(), "{mode} {version} {name}: {text}");
                let line = text
                    .lines()
                    .find(|line| line.starts_with("Peer signature type:"));
                assert!(
                    line.is_some_and(|line| line.contains(kind)),
                    "{mode} {name}: {line:?}"
                );
            }
        }
    }
}

#[test]
fn curl_with_both_versions() {
    if !installed("curl") {
        return;
    }
    let page = tcp_backend(|mut client| {
        let mut request = [0; 1024];
        let _ = std::io::Read::read(&mut client, &mut request);
        let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    });
    let files = Files::new();
    for enabled in [true, false] {
        let certificate = files.certificate(Kind::Rsa, &["localhost"]);
        let mut config = config(vec![listener(page.clone(), vec![certificate])]);
        config.batching.enabled = enabled;
        let server = start(&config);
        let url = format!("https://{}/", server.addresses()[0]);
        for version in ["1.2", "1.3"] {
            let output = Command::new("curl")
                .args(["-sk", "--tls-max", version, &url])
                .output()
                .expect("curl");
            assert_eq!(
                output.stdout,
                b"hello",
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        assert_eq!(metric(&server, OK_12), 1);
        assert_eq!(metric(&server, OK_13), 1);
    }
}

#[test]
fn the_certificate_follows_the_host_name() {
    let files = Files::new();
    let one = files.certificate(Kind::Rsa, &["a.example"]);
    let two = files.certificate(Kind::Rsa, &["b.example", "*.b.example"]);
    let three = files.certificate(Kind::Ecdsa, &["x.b.example"]);
    let mut four = files.certificate(Kind::Ecdsa, &["ignored.example"]);
    four.names = vec!["Named.Example".into()];
    let certificates = vec![one.clone(), two.clone(), three.clone(), four.clone()];
    let server = start(&config(vec![listener(echo(), certificates)]));
    for wish in [Wish::default(), Wish::tls12()] {
        for (name, expected) in [
            ("a.example", &one),
            ("A.EXAMPLE", &one),
            ("b.example", &two),
            ("y.b.example", &two),
            ("x.b.example", &three),
            ("deep.y.b.example", &one),
            ("named.example", &four),
            ("ignored.example", &one),
            ("unknown.example", &one),
            ("127.0.0.1", &one),
        ] {
            let stream = connect(server.addresses()[0], name, &wish.config()).expect(name);
            let shown = &stream.conn.peer_certificates().expect("a certificate")[0];
            assert_eq!(*shown, leaf(expected), "{name}");
        }
    }
}

#[test]
fn several_keys_for_one_name_go_by_what_the_client_verifies() {
    let files = Files::new();
    let ecdsa = files.certificate(Kind::Ecdsa, &["a.example"]);
    let rsa = files.certificate(Kind::Rsa, &["a.example"]);
    let server = start(&config(vec![listener(
        echo(),
        vec![ecdsa.clone(), rsa.clone()],
    )]));
    for (scheme, expected) in [
        (SignatureScheme::ECDSA_NISTP256_SHA256, &ecdsa),
        (SignatureScheme::RSA_PSS_SHA256, &rsa),
    ] {
        let wish = Wish {
            schemes: vec![scheme],
            ..Wish::default()
        };
        let stream = connect(server.addresses()[0], "a.example", &wish.config()).expect("TLS");
        assert_eq!(
            stream.conn.peer_certificates().expect("a certificate")[0],
            leaf(expected)
        );
    }
}

#[test]
fn alpn_takes_the_servers_first_choice_and_refuses_strangers() {
    let files = Files::new();
    let mut one = listener(echo(), vec![files.certificate(Kind::Ecdsa, &["a.example"])]);
    one.alpn = vec!["h2".into(), "http/1.1".into()];
    let server = start(&config(vec![one]));
    let ask = |protocols: &[&[u8]]| {
        let alpn = protocols.iter().map(|name| name.to_vec()).collect();
        connect(
            server.addresses()[0],
            "a.example",
            &Wish {
                alpn,
                ..Wish::default()
            }
            .config(),
        )
    };
    let both = ask(&[b"http/1.1", b"h2"]).expect("TLS");
    assert_eq!(both.conn.alpn_protocol(), Some(&b"h2"[..]));
    let one = ask(&[b"http/1.1"]).expect("TLS");
    assert_eq!(one.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    let none = ask(&[]).expect("TLS");
    assert_eq!(none.conn.alpn_protocol(), None);
    let stranger = ask(&[b"smtp"]).expect_err("no common protocol").to_string();
    assert!(stranger.contains("NoApplicationProtocol"), "{stranger}");
}

#[test]
fn client_certificates_none_optional_required() {
    let files = Files::new();
    let (ca, identity) = files.client_authority("somebody");
    let identity = Arc::new(identity);
    let stranger = Arc::new(Files::new().client_authority("stranger").1);
    for (mode, without, with, wrong) in [
        (ClientAuth::Optional, true, true, false),
        (ClientAuth::Required, false, true, false),
    ] {
        let mut one = listener(echo(), vec![files.certificate(Kind::Rsa, &["a.example"])]);
        one.client_auth = mode;
        one.client_ca = Some(ca.clone());
        let server = start(&config(vec![one]));
        for versions in [Wish::default().versions, Wish::tls12().versions] {
            for (identity, accepted) in [
                (None, without),
                (Some(&identity), with),
                (Some(&stranger), wrong),
            ] {
                let wish = Wish {
                    versions: versions.clone(),
                    identity: identity.cloned(),
                    ..Wish::default()
                };
                // In TLS 1.3 the client learns of the refusal only after its own handshake.
                let served = connect(server.addresses()[0], "a.example", &wish.config())
                    .and_then(|mut stream| ping(&mut stream));
                assert_eq!(
                    served.is_ok(),
                    accepted,
                    "{mode:?} {versions:?}: {served:?}"
                );
            }
        }
        let refused = if without { 2 } else { 4 };
        eventually("all counted", || metric(&server, REFUSED) == refused);
    }
}

#[test]
fn sessions_resume_also_after_a_reload_but_not_under_another_client_policy() {
    let files = Files::new();
    let (ca, _) = files.client_authority("somebody");
    let certificate = files.certificate(Kind::Rsa, &["a.example"]);
    let mut config = config(vec![listener(echo(), vec![certificate])]);
    let server = start(&config);
    for wish in [Wish::default(), Wish::tls12()] {
        // One client configuration remembers the tickets.
        let client = wish.config();
        let kind = || {
            let mut stream = connect(server.addresses()[0], "a.example", &client).expect("TLS");
            ping(&mut stream).expect("an answer");
            stream.conn.handshake_kind()
        };
        assert_eq!(kind(), Some(HandshakeKind::Full));
        assert_eq!(kind(), Some(HandshakeKind::Resumed));
        server.reload(&document(&config)).expect("a reload");
        assert_eq!(kind(), Some(HandshakeKind::Resumed));

        config.listeners[0].client_auth = ClientAuth::Optional;
        config.listeners[0].client_ca = Some(ca.clone());
        server.reload(&document(&config)).expect("a reload");
        assert_eq!(
            kind(),
            Some(HandshakeKind::Full),
            "a ticket of a laxer policy"
        );
        config.listeners[0].client_auth = ClientAuth::None;
        config.listeners[0].client_ca = None;
        server.reload(&document(&config)).expect("a reload");
    }
    assert_eq!(
        metric(
            &server,
            r#"widelane_handshakes_total{result="ok",version="1.3",resumed="yes"}"#
        ),
        2
    );
    assert_eq!(
        metric(
            &server,
            r#"widelane_handshakes_total{result="ok",version="1.2",resumed="yes"}"#
        ),
        2
    );
}

#[test]
fn no_tickets_means_no_resumption() {
    let files = Files::new();
    let mut one = listener(echo(), vec![files.certificate(Kind::Ecdsa, &["a.example"])]);
    one.tickets.count = 0;
    let server = start(&config(vec![one]));
    for wish in [Wish::default(), Wish::tls12()] {
        let client = wish.config();
        for _ in 0..2 {
            let mut stream = connect(server.addresses()[0], "a.example", &client).expect("TLS");
            ping(&mut stream).expect("an answer");
            assert_eq!(stream.conn.handshake_kind(), Some(HandshakeKind::Full));
        }
    }
}

#[test]
fn versions_suites_and_groups_can_be_restricted() {
    let files = Files::new();
    let certificate = files.certificate(Kind::Rsa, &["a.example"]);
    let mut one = listener(echo(), vec![certificate]);
    one.versions = vec![widelane_terminator::TlsVersion::Tls13];
    one.cipher_suites = vec!["TLS_CHACHA20_POLY1305_SHA256".into()];
    one.groups = vec!["secp384r1".into()];
    let server = start(&config(vec![one.clone()]));
    let stream = hello(server.addresses()[0]).expect("TLS");
    let suite = stream
        .conn
        .negotiated_cipher_suite()
        .expect("a suite")
        .suite();
    assert_eq!(suite, rustls::CipherSuite::TLS13_CHACHA20_POLY1305_SHA256);
    let group = stream
        .conn
        .negotiated_key_exchange_group()
        .expect("a group")
        .name();
    assert_eq!(group, rustls::NamedGroup::secp384r1);
    let old = connect(server.addresses()[0], "a.example", &Wish::tls12().config());
    assert!(old.is_err(), "TLS 1.2 is not allowed");

    one.groups = vec!["X448".into()];
    let error = Server::check(&document(&config(vec![one]))).expect_err("an unknown group");
    assert!(
        error
            .to_string()
            .contains("`X448` is not known; choose from"),
        "{error}"
    );
}

const OK_12: &str = r#"widelane_handshakes_total{result="ok",version="1.2",resumed="no"}"#;
const OK_13: &str = r#"widelane_handshakes_total{result="ok",version="1.3",resumed="no"}"#;
const REFUSED: &str = r#"widelane_handshakes_total{result="certificate",version="",resumed=""}"#;
