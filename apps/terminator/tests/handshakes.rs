//! Handshakes with curl and with clients of our own: versions, certificates, ALPN, client
//! certificates, resumption. OpenSSL's clients are in `interop`.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

use common::*;
use rcgen::ExtendedKeyUsagePurpose;
use rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock, OutputLengthError};
use rustls::crypto::{CipherSuiteCommon, hmac};
use rustls::{HandshakeKind, SignatureScheme, SupportedCipherSuite, Tls13CipherSuite};
use rustls_pki_types::ServerName;
use widelane_terminator::{Certificate, ClientAuth, ClientAuthMode, KeyKind, Server};

#[test]
fn curl_with_both_versions() {
    if installed("curl").is_none() {
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
            assert_eq!(output.stdout, b"hello", "{}", String::from_utf8_lossy(&output.stderr));
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
fn a_dot_at_the_end_of_the_host_name_does_not_count() {
    let files = Files::new();
    let one = files.certificate(Kind::Rsa, &["a.example"]);
    let two = files.certificate(Kind::Ecdsa, &["b.example"]);
    let server = start(&config(vec![listener(echo(), vec![one, two.clone()])]));
    // rustls' client leaves the dot out. TLS 1.2 shows the certificate unencrypted.
    let name = ServerName::try_from("b.example_").expect("a name");
    let mut client = rustls::ClientConnection::new(Wish::tls12().config(), name).expect("a client");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("in memory");
    let written = bytes.windows(10).position(|at| at == b"b.example_");
    bytes[written.expect("the name") + 9] = b'.';
    let mut socket = TcpStream::connect(server.addresses()[0]).expect("a connection");
    socket.write_all(&bytes).expect("sent");
    socket.shutdown(Shutdown::Write).expect("closed");
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).expect("an answer");
    let shown = leaf(&two);
    assert!(answer.windows(shown.len()).any(|at| at == &shown[..]));
}

#[test]
fn several_keys_for_one_name_go_by_preference_and_by_what_the_client_verifies() {
    let files = Files::new();
    // In an order that must not decide which certificate is chosen.
    let kinds = [Kind::MlDsa65, Kind::Rsa, Kind::Ed25519, Kind::EcdsaP384, Kind::Ecdsa];
    let certificates = kinds.map(|kind| files.certificate(kind, &["a.example"]));
    let [ml_dsa, rsa, ed25519, p384, p256] = &certificates;
    let other = files.certificate(Kind::Ecdsa, &["b.example"]);
    let mut one = listener(echo(), [&certificates[..], std::slice::from_ref(&other)].concat());
    let server = start(&config(vec![one.clone()]));
    let shown = |server: &Server, name: &str, schemes: &[SignatureScheme]| {
        let wish = Wish {
            schemes: schemes.to_vec(),
            ..Wish::default()
        };
        let stream = connect(server.addresses()[0], name, &wish.config()).expect("TLS");
        stream.conn.peer_certificates().expect("a certificate")[0].clone()
    };
    // With and without a name that the server knows.
    for name in ["a.example", "unknown.example", "127.0.0.1"] {
        for (schemes, expected) in [
            // What current browsers and OpenSSL offer first: of the same kind, as written.
            (&Wish::default().schemes[..], p384),
            (&[SignatureScheme::ECDSA_NISTP256_SHA256], p256),
            (&[SignatureScheme::ED25519, SignatureScheme::RSA_PSS_SHA256], ed25519),
            (&[SignatureScheme::ML_DSA_65, SignatureScheme::RSA_PSS_SHA256], rsa),
            (&[SignatureScheme::ML_DSA_65], ml_dsa),
        ] {
            let shown = shown(&server, name, schemes);
            assert_eq!(shown, leaf(expected), "{name} {schemes:?}");
        }
    }
    one.certificate_preference = vec![KeyKind::MlDsa, KeyKind::Rsa];
    server.reload(&document(&config(vec![one]))).expect("a reload");
    for (schemes, expected) in [
        (&Wish::default().schemes[..], ml_dsa),
        (&[SignatureScheme::ED25519, SignatureScheme::RSA_PSS_SHA256], rsa),
        (&[SignatureScheme::ED25519], ed25519),
    ] {
        assert_eq!(shown(&server, "a.example", schemes), leaf(expected), "{schemes:?}");
    }
}

#[test]
fn a_client_without_a_known_name_gets_the_names_of_the_first_certificate() {
    let files = Files::new();
    let first = files.certificate(Kind::Rsa, &["a.example", "b.example", "192.0.2.1"]);
    // Of a kind that is preferred, and with some of the names.
    let some = files.certificate(Kind::Ecdsa, &["b.example", "192.0.2.1"]);
    let no_address = files.certificate(Kind::EcdsaP384, &["a.example", "b.example"]);
    let all = ["c.example", "192.0.2.1", "B.example", "a.example"];
    let all = files.certificate(Kind::Ed25519, &all);
    let mut certificates = vec![first.clone(), some.clone(), no_address];
    for expected in [&first, &all] {
        let server = start(&config(vec![listener(echo(), certificates.clone())]));
        for (name, expected) in [
            ("unknown.example", expected),
            ("192.0.2.1", expected),
            ("b.example", &some),
        ] {
            let wish = Wish::default().config();
            let stream = connect(server.addresses()[0], name, &wish).expect(name);
            let shown = &stream.conn.peer_certificates().expect("a certificate")[0];
            assert_eq!(*shown, leaf(expected), "{name}");
        }
        certificates.push(all.clone());
    }
}

#[test]
fn no_common_signature_algorithm_is_an_alert() {
    let files = Files::new();
    for (kind, scheme, versions) in [
        (Kind::Ed25519, SignatureScheme::RSA_PSS_SHA256, Wish::default()),
        // rustls has no alert for a suitable algorithm with an unsuitable hash.
        (Kind::Ecdsa, SignatureScheme::ECDSA_NISTP384_SHA384, Wish::tls12()),
    ] {
        let certificate = files.certificate(kind, &["a.example"]);
        let server = start(&config(vec![listener(echo(), vec![certificate])]));
        let wish = Wish {
            schemes: vec![scheme],
            ..versions
        };
        let refused = connect(server.addresses()[0], "a.example", &wish.config());
        let error = refused.expect_err("no common algorithm").to_string();
        assert!(error.contains("HandshakeFailure"), "{error}");
    }
}

#[test]
fn ml_dsa_is_left_to_tls_1_3() {
    let files = Files::new();
    let kinds = [Kind::MlDsa44, Kind::Ecdsa];
    let [ml_dsa, ecdsa] = kinds.map(|kind| files.certificate(kind, &["a.example"]));
    let mut one = listener(echo(), vec![ml_dsa.clone(), ecdsa.clone()]);
    one.certificate_preference = vec![KeyKind::MlDsa];
    let server = start(&config(vec![one]));
    // As OpenSSL does it: no suites of a version that is not offered.
    let mut tls12 = Wish::tls12();
    tls12.suites.retain(|suite| suite.tls13().is_none());
    for (wish, expected) in [(Wish::default(), &ml_dsa), (tls12, &ecdsa)] {
        let stream = connect(server.addresses()[0], "a.example", &wish.config()).expect("TLS");
        let shown = &stream.conn.peer_certificates().expect("a certificate")[0];
        assert_eq!(*shown, leaf(expected));
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
    // As with nginx: a server of HTTP/1.1 speaks HTTP/1.0, which `curl --http1.0` offers alone.
    let old = ask(&[b"http/1.0"]).expect("TLS");
    assert_eq!(old.conn.alpn_protocol(), Some(&b"http/1.0"[..]));
    let both = ask(&[b"http/1.0", b"http/1.1"]).expect("TLS");
    assert_eq!(both.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
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
        (ClientAuthMode::Optional, true, true, false),
        (ClientAuthMode::Required, false, true, false),
    ] {
        let mut one = listener(echo(), vec![files.certificate(Kind::Rsa, &["a.example"])]);
        one.client_auth = Some(ClientAuth::new(mode, &ca));
        let server = start(&config(vec![one]));
        for versions in [Wish::default().versions, Wish::tls12().versions] {
            for (identity, accepted) in [(None, without), (Some(&identity), with), (Some(&stranger), wrong)] {
                let wish = Wish {
                    versions: versions.clone(),
                    identity: identity.cloned(),
                    ..Wish::default()
                };
                // In TLS 1.3 the client learns of the refusal only after its own handshake.
                let served = connect(server.addresses()[0], "a.example", &wish.config())
                    .and_then(|mut stream| ping(&mut stream));
                assert_eq!(served.is_ok(), accepted, "{mode:?} {versions:?}: {served:?}");
            }
        }
        let refused = if without { 2 } else { 4 };
        eventually("all counted", || metric(&server, REFUSED) == refused);
    }
}

#[test]
fn refused_client_certificates_get_their_alert() {
    let files = Files::new();
    let ca = files.path("ca.pem");
    let authority = Authority::in_file("test authority", &ca);
    let list = files.path("revoked.pem");
    std::fs::write(&list, authority.revoke("the thief", 10)).expect("written");
    let mut one = listener(echo(), vec![files.certificate(Kind::Ecdsa, &["a.example"])]);
    let mut client_auth = ClientAuth::new(ClientAuthMode::Required, &ca);
    client_auth.crl = Some(list.clone());
    one.client_auth = Some(client_auth);
    let config = config(vec![one]);
    let server = start(&config);
    let other = Authority::in_file("another authority", &files.path("other.pem"));
    let identity = |authority: &Authority, name| Arc::new(authority.client(Kind::Ecdsa, name));
    let serve = |identity: Option<Arc<Identity>>| {
        let wish = Wish {
            identity,
            ..Wish::default()
        };
        let stream = connect(server.addresses()[0], "a.example", &wish.config());
        stream.and_then(|mut stream| ping(&mut stream))
    };
    let refusal = |identity| serve(identity).expect_err("refused").to_string();
    serve(Some(identity(&authority, "somebody"))).expect("it is not revoked");
    for (identity, alert) in [
        (None, "CertificateRequired"),
        (Some(identity(&other, "somebody")), "UnknownCA"),
        (Some(identity(&authority, "the thief")), "CertificateRevoked"),
    ] {
        let error = refusal(identity);
        assert!(error.contains(alert), "{alert}: {error}");
    }

    // A list past its date proves nothing any more, until a reload finds a newer one.
    std::fs::write(&list, authority.revoke("the thief", -1)).expect("written");
    server.reload(&document(&config)).expect("a reload");
    refusal(Some(identity(&authority, "somebody")));
    std::fs::write(&list, authority.revoke("nobody", 10)).expect("written");
    server.reload(&document(&config)).expect("a reload");
    serve(Some(identity(&authority, "the thief"))).expect("forgiven");
    eventually("all counted", || metric(&server, REFUSED) == 4);

    std::fs::write(&list, "nothing").expect("written");
    let error = server.reload(&document(&config)).expect_err("no list in it");
    let error = error.to_string();
    assert!(
        error.contains("has no revocation list; give a PEM file with"),
        "{error}"
    );
}

#[test]
fn a_client_that_does_not_have_its_key_is_refused_and_its_neighbours_are_not() {
    let files = Files::new();
    let ca = files.path("ca.pem");
    let authority = Authority::in_file("test authority", &ca);
    let mut one = listener(echo(), vec![files.certificate(Kind::Ecdsa, &["a.example"])]);
    one.client_auth = Some(ClientAuth::new(ClientAuthMode::Required, &ca));
    let mut config = config(vec![one]);
    // One worker, so that all are verified together.
    config.workers = std::num::NonZeroUsize::new(1);
    let server = start(&config);
    let address = server.addresses()[0];
    for kind in [Kind::Rsa, Kind::Ecdsa, Kind::EcdsaP384, Kind::Ed25519, Kind::MlDsa65] {
        let good = Arc::new(authority.client(kind, "good"));
        let forged = Arc::new(Identity {
            key: authority.client(kind, "another key").key,
            ..authority.client(kind, "forged")
        });
        std::thread::scope(|scope| {
            for index in 0..16 {
                let bad = index % 3 == 0;
                let identity = if bad { forged.clone() } else { good.clone() };
                scope.spawn(move || {
                    let wish = Wish {
                        identity: Some(identity),
                        ..Wish::default()
                    };
                    let served = connect(address, "a.example", &wish.config_with_any_key())
                        .and_then(|mut stream| ping(&mut stream));
                    match served {
                        Ok(()) => assert!(!bad, "{kind:?}"),
                        Err(error) => {
                            let error = error.to_string();
                            assert!(bad, "{kind:?}: {error}");
                            assert!(error.contains("DecryptError"), "{kind:?}: {error}");
                        }
                    }
                });
            }
        });
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

        config.listeners[0].client_auth = Some(ClientAuth::new(ClientAuthMode::Optional, &ca));
        server.reload(&document(&config)).expect("a reload");
        assert_eq!(kind(), Some(HandshakeKind::Full), "a ticket of a laxer policy");
        config.listeners[0].client_auth = None;
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

/// Over real sockets, alone and batched. The moments are tested with a clock that can be set, in
/// `resumption`.
#[test]
fn a_reload_with_a_new_revocation_list_ends_only_the_sessions_that_it_names() {
    let files = Files::new();
    let ca = files.path("ca.pem");
    let authority = Authority::in_file("test authority", &ca);
    let list = files.path("revoked.pem");
    for enabled in [true, false] {
        std::fs::write(&list, authority.revoke("an earlier client", 10)).expect("written");
        let mut one = listener(echo(), vec![files.certificate(Kind::Ecdsa, &["a.example"])]);
        let mut client_auth = ClientAuth::new(ClientAuthMode::Required, &ca);
        client_auth.crl = Some(list.clone());
        one.client_auth = Some(client_auth);
        let mut config = config(vec![one]);
        config.batching.enabled = enabled;
        let server = start(&config);
        let client = |versions: Wish, name| {
            let identity = Some(Arc::new(authority.client(Kind::Ecdsa, name)));
            Wish { identity, ..versions }.config()
        };
        let kind = |client| {
            let mut stream = connect(server.addresses()[0], "a.example", client)?;
            ping(&mut stream)?;
            Ok::<_, std::io::Error>(stream.conn.handshake_kind())
        };
        let clients = [Wish::default(), Wish::tls12()].map(|wish| (client(wish.clone(), "good"), client(wish, "bad")));
        for client in clients.iter().flat_map(|(good, bad)| [good, bad]) {
            assert_eq!(kind(client).expect("TLS"), Some(HandshakeKind::Full));
            assert_eq!(kind(client).expect("TLS"), Some(HandshakeKind::Resumed));
        }
        std::fs::write(&list, authority.revoke("bad", 10)).expect("written");
        server.reload(&document(&config)).expect("a reload");
        for (good, bad) in &clients {
            assert_eq!(kind(good).expect("TLS"), Some(HandshakeKind::Resumed));
            let error = kind(bad).expect_err("revoked").to_string();
            assert!(error.contains("CertificateRevoked"), "{error}");
        }
    }
}

/// Such a certificate comes from `openssl req -x509`, and many have it.
#[test]
fn a_client_certificate_that_is_listed_itself_is_taken_if_all_else_is_right() {
    let files = Files::new();
    let log = files.path("access.log");
    let both = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let identities = [
        Identity::as_authority("plain", 1, &[]),
        Identity::as_authority("both", 1, &both),
        Identity::as_authority("server", 1, &both[..1]),
        Identity::as_authority("old", -1, &[]),
    ];
    let pems: Vec<_> = identities.iter().map(|one| one.pem.as_str()).collect();
    std::fs::write(files.path("listed.pem"), pems.concat()).expect("written");
    let client_auth = ClientAuth::new(ClientAuthMode::Required, files.path("listed.pem"));
    let mut one = listener(echo(), vec![files.certificate(Kind::Ecdsa, &["a.example"])]);
    one.client_auth = Some(client_auth);
    let mut config = config(vec![one]);
    config.access_log = log.to_str().expect("text").parse().expect("a target");
    let server = start(&config);
    let [plain, both, server_only, old] = identities.map(Arc::new);
    let other = Arc::new(Identity::as_authority("plain", 1, &[]));
    let mut expected = 0;
    for versions in [Wish::default().versions, Wish::tls12().versions] {
        for (identity, refusal) in [
            (&plain, None),
            (&both, None),
            (&server_only, Some("it lacks clientAuth")),
            (&old, Some("has expired, on ")),
            (&other, Some("is that of an authority (CA:TRUE)")),
        ] {
            let wish = Wish {
                versions: versions.clone(),
                identity: Some(identity.clone()),
                ..Wish::default()
            };
            let client = wish.config();
            let served = || {
                let stream = connect(server.addresses()[0], "a.example", &client);
                stream.and_then(|mut stream| ping(&mut stream).map(|()| stream.conn.handshake_kind()))
            };
            match refusal {
                None => {
                    assert_eq!(served().expect("served"), Some(HandshakeKind::Full));
                    // Its ticket is good for as long as it is listed.
                    assert_eq!(served().expect("served"), Some(HandshakeKind::Resumed));
                }
                Some(reason) => {
                    assert!(served().is_err(), "{reason}");
                    expected += 1;
                    eventually(reason, || {
                        let log = std::fs::read_to_string(&log).unwrap_or_default();
                        let refused = log.lines().filter(|line| line.contains(r#""end":"certificate""#));
                        let refused: Vec<_> = refused.collect();
                        refused.len() == expected && refused.last().is_some_and(|line| line.contains(reason))
                    });
                }
            }
        }
        // Its own key is wanted, as ever.
        let thief = Identity {
            chain: plain.chain.clone(),
            key: other.key.clone_key(),
            pem: String::new(),
            key_pem: String::new(),
        };
        let wish = Wish {
            versions,
            identity: Some(Arc::new(thief)),
            ..Wish::default()
        };
        let stolen = connect(server.addresses()[0], "a.example", &wish.config_with_any_key());
        assert!(stolen.and_then(|mut stream| ping(&mut stream)).is_err());
        expected += 1;
    }
}

/// HKDF as the provider has it, which notes the nonces of tickets.
struct Noting(&'static dyn Hkdf);

static NONCES: Mutex<Vec<usize>> = Mutex::new(Vec::new());

impl Hkdf for Noting {
    fn extract_from_zero_ikm(&self, salt: Option<&[u8]>) -> Box<dyn HkdfExpander> {
        self.0.extract_from_zero_ikm(salt)
    }

    fn extract_from_secret(&self, salt: Option<&[u8]>, secret: &[u8]) -> Box<dyn HkdfExpander> {
        self.0.extract_from_secret(salt, secret)
    }

    fn expander_for_okm(&self, okm: &OkmBlock) -> Box<dyn HkdfExpander> {
        Box::new(NotingExpander(self.0.expander_for_okm(okm)))
    }

    fn hmac_sign(&self, key: &OkmBlock, message: &[u8]) -> hmac::Tag {
        self.0.hmac_sign(key, message)
    }
}

struct NotingExpander(Box<dyn HkdfExpander>);

impl HkdfExpander for NotingExpander {
    fn expand_slice(&self, info: &[&[u8]], output: &mut [u8]) -> Result<(), OutputLengthError> {
        self.0.expand_slice(info, output)
    }

    fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
        if let [_, _, b"tls13 ", b"resumption", _, nonce] = info {
            NONCES.lock().expect("a lock").push(nonce.len());
        }
        self.0.expand_block(info)
    }

    fn hash_len(&self) -> usize {
        self.0.hash_len()
    }
}

/// wolfSSL before 5.6 ends a connection with longer ones.
#[test]
fn ticket_nonces_have_eight_bytes_and_sessions_resume() {
    let files = Files::new();
    let (ca, identity) = files.client_authority("a client");
    let mut identity = identity;
    // So that a ticket has more than one record.
    let filler = files.path("filler.pem");
    let filler = Authority::in_file("filler", &filler).client(Kind::MlDsa87, "filler");
    identity.chain.extend(std::iter::repeat_n(filler.chain[0].clone(), 7));
    let identity = Arc::new(identity);
    for enabled in [true, false] {
        for client_auth in [None, Some(ClientAuth::new(ClientAuthMode::Required, &ca))] {
            let mut one = listener(echo(), vec![files.certificate(Kind::Ecdsa, &["a.example"])]);
            one.tickets.count = 3;
            one.client_auth = client_auth;
            let mut config = config(vec![one]);
            config.batching.enabled = enabled;
            let server = start(&config);
            for suite in provider().cipher_suites {
                let SupportedCipherSuite::Tls13(suite) = suite else {
                    continue;
                };
                let suite = Tls13CipherSuite {
                    common: CipherSuiteCommon {
                        suite: suite.common.suite,
                        hash_provider: suite.common.hash_provider,
                        confidentiality_limit: suite.common.confidentiality_limit,
                    },
                    hkdf_provider: Box::leak(Box::new(Noting(suite.hkdf_provider))),
                    aead_alg: suite.aead_alg,
                    quic: None,
                };
                let wish = Wish {
                    suites: vec![SupportedCipherSuite::Tls13(Box::leak(Box::new(suite)))],
                    identity: Some(identity.clone()),
                    ..Wish::default()
                };
                let client = wish.config();
                for kind in [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed] {
                    let mut stream = connect(server.addresses()[0], "a.example", &client).expect("TLS");
                    ping(&mut stream).expect("an answer");
                    assert_eq!(stream.conn.handshake_kind(), Some(kind));
                    let nonces = std::mem::take(&mut *NONCES.lock().expect("a lock"));
                    assert_eq!(nonces, [8; 3]);
                }
            }
        }
    }
}

/// The reference says so.
#[test]
fn the_usual_groups_are_the_same_with_and_without_batching() {
    let files = Files::new();
    for enabled in [true, false] {
        let mut config = simple(&files, Kind::Ecdsa, echo());
        config.batching.enabled = enabled;
        let server = start(&config);
        use rustls::crypto::aws_lc_rs::{ALL_KX_GROUPS, kx_group};
        for group in ALL_KX_GROUPS {
            let wish = Wish {
                groups: vec![*group],
                ..Wish::default()
            };
            let agreed = connect(server.addresses()[0], "a.example", &wish.config());
            let usual = [
                kx_group::X25519MLKEM768,
                kx_group::X25519,
                kx_group::SECP256R1,
                kx_group::SECP384R1,
            ];
            let is_usual = usual.iter().any(|usual| usual.name() == group.name());
            assert_eq!(agreed.is_ok(), is_usual, "{:?}", group.name());
        }
    }
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
fn aes_128_comes_first_unless_the_client_does_not_offer_it() {
    let files = Files::new();
    let certificate = files.certificate(Kind::Ecdsa, &["a.example"]);
    let server = start(&config(vec![listener(echo(), vec![certificate])]));
    let agreed = |wish: Wish| {
        let stream = connect(server.addresses()[0], "a.example", &wish.config()).expect("TLS");
        let suite = stream.conn.negotiated_cipher_suite().expect("a suite");
        suite.suite()
    };
    use rustls::CipherSuite::*;
    let last = |suite| {
        let mut wish = Wish::default();
        wish.suites.sort_by_key(|s| s.suite() == suite);
        wish
    };
    assert_eq!(agreed(last(TLS13_AES_128_GCM_SHA256)), TLS13_AES_128_GCM_SHA256);
    let without = |suite| {
        let mut wish = Wish::default();
        wish.suites.retain(|s| s.suite() != suite);
        wish
    };
    assert_eq!(agreed(without(TLS13_AES_128_GCM_SHA256)), TLS13_AES_256_GCM_SHA384);
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
    let suite = stream.conn.negotiated_cipher_suite().expect("a suite").suite();
    assert_eq!(suite, rustls::CipherSuite::TLS13_CHACHA20_POLY1305_SHA256);
    let group = stream.conn.negotiated_key_exchange_group().expect("a group").name();
    assert_eq!(group, rustls::NamedGroup::secp384r1);
    let old = connect(server.addresses()[0], "a.example", &Wish::tls12().config());
    assert!(old.is_err(), "TLS 1.2 is not allowed");

    one.groups = vec!["X448".into()];
    let error = Server::check(&document(&config(vec![one]))).expect_err("an unknown group");
    assert!(
        error.to_string().contains("`X448` is not known; choose from"),
        "{error}"
    );
}

#[test]
fn a_listener_on_whose_versions_no_client_could_agree_is_refused() {
    use widelane_terminator::TlsVersion::{Tls12, Tls13};
    let files = Files::new();
    let rsa = files.certificate(Kind::Rsa, &["a.example"]);
    let ed25519 = files.certificate(Kind::Ed25519, &["a.example"]);
    let ml_dsa = files.certificate(Kind::MlDsa65, &["a.example"]);
    let ecdsa_suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
    let both = [Tls12, Tls13];
    let check = |certificate: &_, versions: &[_], suites: &[&str], groups: &[&str]| {
        let mut one = listener(echo(), vec![Certificate::clone(certificate)]);
        one.versions = versions.to_vec();
        one.cipher_suites = suites.iter().map(|&name| name.to_owned()).collect();
        one.groups = groups.iter().map(|&name| name.to_owned()).collect();
        Server::check(&document(&config(vec![one])))
    };
    let no_key = "cipher_suites: no certificate has a key for those for TLS 1.2, which `versions` allows; \
                  allow more of them, or use another certificate, or set versions = [\"1.3\"]";
    for (certificate, versions, suites, groups, expected) in [
        (&rsa, &both[..1], &[ecdsa_suite][..], &[][..], no_key),
        (&ml_dsa, &both[..1], &[], &[], no_key),
        (
            &rsa,
            &both[1..],
            &[ecdsa_suite],
            &[],
            "cipher_suites: none of these is for TLS 1.3, which `versions` allows; add one, for example \
             TLS_AES_128_GCM_SHA256, or set",
        ),
        (
            &rsa,
            &both[..1],
            &[],
            &["X25519MLKEM768"],
            "groups: none of these is for TLS 1.2, which `versions` allows; add one, for example X25519, or \
             set versions = [\"1.3\"]",
        ),
    ] {
        let error = check(certificate, versions, suites, groups).expect_err("no handshake possible");
        let error = error.to_string();
        assert!(error.contains(expected), "{error}");
    }
    check(&rsa, &both, &["TLS_AES_128_GCM_SHA256"], &[]).expect("TLS 1.3 is left");
    check(&rsa, &both, &[], &["X25519MLKEM768"]).expect("TLS 1.3 is left");
    check(&rsa, &both, &["TLS_AES_128_GCM_SHA256", ecdsa_suite], &[]).expect("TLS 1.3 is left");
    check(&rsa, &both[1..], &[], &["X25519MLKEM768"]).expect("TLS 1.3 has this group");
    check(&ed25519, &both[..1], &[ecdsa_suite], &[]).expect("these suites are for Ed25519, too");
    check(&ml_dsa, &both, &[], &[]).expect("TLS 1.3 is left");
}

const OK_12: &str = r#"widelane_handshakes_total{result="ok",version="1.2",resumed="no"}"#;
const OK_13: &str = r#"widelane_handshakes_total{result="ok",version="1.3",resumed="no"}"#;
const REFUSED: &str = r#"widelane_handshakes_total{result="certificate",version="",resumed=""}"#;
