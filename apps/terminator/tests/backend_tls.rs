//! TLS to the backend.

mod common;

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use common::*;
use rcgen::ExtendedKeyUsagePurpose;
use rustls::server::WebPkiClientVerifier;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use widelane_terminator::{Backend, BackendTls, Config, ProxyVersion, Server};
use widelane_testkit::clients::{VERSIONS, server_config};
use widelane_testkit::openssl;

type Served = StreamOwned<ServerConnection, TcpStream>;

struct World {
    files: Files,
    authority: Authority,
}

impl World {
    fn new() -> Self {
        let files = Files::new();
        let authority = Authority::in_file("of backends", &files.path("backend-ca.pem"));
        Self { files, authority }
    }

    fn tls(&self) -> BackendTls {
        BackendTls::new(self.files.path("backend-ca.pem"))
    }

    fn config(&self, backends: Vec<Backend>, tls: BackendTls) -> Config {
        let certificate = self.files.certificate(Kind::Ecdsa, &["a.example"]);
        let mut one = listener(backends[0].clone(), vec![certificate]);
        one.backend = backends;
        one.backend_tls = Some(tls);
        config(vec![one])
    }

    fn good(&self) -> ServerConfig {
        server(self.authority.server(&["127.0.0.1"], 10))
    }
}

fn server(identity: Identity) -> ServerConfig {
    server_config(&identity, &VERSIONS)
}

/// A backend that speaks TLS, with a thread for each connection.
fn backend(config: ServerConfig, serve: impl Fn(Served) + Send + Sync + 'static) -> Backend {
    let config = Arc::new(config);
    tcp_backend(move |socket| {
        let tls = ServerConnection::new(config.clone()).expect("TLS");
        serve(StreamOwned::new(tls, socket));
    })
}

fn goodbye(stream: &mut Served) {
    stream.conn.send_close_notify();
    while stream.conn.wants_write() {
        if stream.conn.write_tls(&mut stream.sock).is_err() {
            return;
        }
    }
    let _ = stream.sock.shutdown(Shutdown::Write);
}

fn echo_in_tls(mut stream: Served) {
    let mut block = vec![0; 64 << 10];
    while let Ok(read) = stream.read(&mut block) {
        if read == 0 {
            goodbye(&mut stream);
            return;
        }
        if stream.write_all(&block[..read]).is_err() {
            return;
        }
    }
}

fn handshakes(server: &Server, backend: &Backend, result: &str) -> u64 {
    let labels = format!(r#"{{backend="{backend}",result="{result}"}}"#);
    metric(server, &format!("widelane_backend_tls_handshakes_total{labels}"))
}

fn up(server: &Server, backend: &Backend) -> u64 {
    metric(server, &format!(r#"widelane_backend_up{{backend="{backend}"}}"#))
}

#[test]
fn bytes_pass_both_ways_and_sessions_are_resumed() {
    let world = World::new();
    for batched in [true, false] {
        for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
            let identity = world.authority.server(&["127.0.0.1"], 10);
            let tls = server_config(&identity, &[version]);
            let echo = backend(tls, echo_in_tls);
            let mut config = world.config(vec![echo.clone()], world.tls());
            config.workers = std::num::NonZeroUsize::new(1);
            config.batching.enabled = batched;
            let server = start(&config);
            for _ in 0..4 {
                works(&server);
            }
            assert_eq!(handshakes(&server, &echo, "full"), 1);
            assert_eq!(handshakes(&server, &echo, "resumed"), 3);
            let clean = r#"widelane_connections_ended_total{how="clean"}"#;
            eventually("clean ends", || metric(&server, clean) == 4);
        }
    }
}

/// The other address serves the client, who notices nothing.
#[test]
fn what_is_wrong_with_a_backend_is_told_and_another_one_is_taken() {
    let world = World::new();
    let stranger = Authority::new("unknown");
    let plain = tcp_backend(|mut client| {
        let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let from = |identity| backend(server(identity), echo_in_tls);
    let cases = [
        ("unknown_ca", from(stranger.server(&["127.0.0.1"], 10))),
        ("wrong_name", from(world.authority.server(&["b.example"], 10))),
        ("expired", from(world.authority.server(&["127.0.0.1"], -1))),
        ("not_tls", plain),
        (
            "closed",
            tcp_backend(|mut client| {
                let _ = client.read(&mut [0; 4096]);
                let _ = client.shutdown(Shutdown::Both);
            }),
        ),
    ];
    for (reason, bad) in cases {
        let good = backend(world.good(), echo_in_tls);
        let both = vec![bad.clone(), good.clone()];
        let mut config = world.config(both, world.tls());
        config.workers = std::num::NonZeroUsize::new(1);
        let server = start(&config);
        // Equal addresses are taken in turn: one of two comes to the bad one.
        works(&server);
        works(&server);
        // Once, or again if its pause of a second is over on a busy machine.
        assert!(handshakes(&server, &bad, reason) >= 1, "{reason}");
        // A client can be the cause of an end: one of these says nothing of the address.
        let is_up = u64::from(reason == "closed");
        assert_eq!(up(&server, &bad), is_up, "{reason}");
        assert_eq!(handshakes(&server, &good, reason), 0, "{reason}");

        let server = start(&world.config(vec![bad], world.tls()));
        let mut stream = hello(server.addresses()[0]).expect("TLS");
        assert_unanswered(&mut stream);
    }
}

/// nginx before 1.23.2 does so with a long PROXY header.
#[test]
fn an_address_that_ends_handshakes_is_left_out_after_ten_in_sequence_and_not_before() {
    let world = World::new();
    let bad = tcp_backend(|mut client| {
        let _ = client.read(&mut [0; 4096]);
    });
    let good = backend(world.good(), echo_in_tls);
    let mut config = world.config(vec![bad.clone(), good], world.tls());
    config.workers = std::num::NonZeroUsize::new(1);
    config.listeners[0].proxy_protocol_to = None;
    let server = start(&config);
    for _ in 0..40 {
        let known = handshakes(&server, &bad, "closed");
        assert_eq!(up(&server, &bad), u64::from(known < 10), "{known}");
        if known == 10 {
            return;
        }
        works(&server);
    }
    panic!("it was not asked ten times");
}

/// Else it would take what it gets for another protocol.
#[test]
fn a_backend_that_does_not_agree_on_the_clients_protocol_does_not_get_its_bytes() {
    let world = World::new();
    let speaking = |protocols: &[&str]| {
        let mut tls = world.good();
        tls.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        backend(tls, echo_in_tls)
    };
    let (none, other, good) = (speaking(&[]), speaking(&["http/1.1"]), speaking(&["h2"]));
    let mut tls = world.tls();
    tls.pass_alpn = true;
    let mut config = world.config(vec![none.clone(), other.clone(), good.clone()], tls.clone());
    config.workers = std::num::NonZeroUsize::new(1);
    config.listeners[0].alpn = vec!["h2".into()];
    let server = start(&config);
    let wish = Wish {
        alpn: vec![b"h2".to_vec()],
        ..Wish::default()
    };
    for _ in 0..4 {
        let mut stream = connect(server.addresses()[0], "a.example", &wish.config()).expect("TLS");
        ping(&mut stream).expect("an answer");
        finish(&mut stream).expect("an orderly end");
    }
    let full = |backend| handshakes(&server, backend, "full") + handshakes(&server, backend, "resumed");
    assert_eq!((full(&none), full(&other), full(&good)), (0, 0, 4));
    assert!(handshakes(&server, &none, "alpn") > 0 && handshakes(&server, &other, "alpn") > 0);
    assert_eq!(
        (up(&server, &none), up(&server, &other)),
        (1, 1),
        "others may be served there"
    );
    // A client that has agreed on nothing is served by any of them.
    works(&server);

    let server = start(&{
        let mut config = world.config(vec![none], tls);
        config.listeners[0].alpn = vec!["h2".into()];
        config
    });
    let mut stream = connect(server.addresses()[0], "a.example", &wish.config()).expect("TLS");
    assert_unanswered(&mut stream);
}

/// Such a certificate comes from `openssl req -x509`, and many have it.
#[test]
fn a_backends_certificate_that_is_listed_itself_is_taken_if_all_else_is_right() {
    let world = World::new();
    let file = world.files.path("itself.pem");
    let own = |name: &str, days: i64, usages: &[ExtendedKeyUsagePurpose]| {
        let identity = Identity::as_authority(name, days, usages);
        std::fs::write(&file, &identity.pem).expect("written");
        let config = server(identity);
        (backend(config, echo_in_tls), BackendTls::new(&file))
    };
    let (backend, tls) = own("127.0.0.1", 1, &[]);
    works(&start(&world.config(vec![backend.clone()], tls)));
    // Another one, also of the same name.
    std::fs::write(&file, Identity::as_authority("127.0.0.1", 1, &[]).pem).expect("written");
    let refused = |backend: Backend, tls: BackendTls, reason: &str| {
        let server = start(&world.config(vec![backend.clone()], tls));
        let mut stream = hello(server.addresses()[0]).expect("TLS");
        assert_unanswered(&mut stream);
        assert_eq!(handshakes(&server, &backend, reason), 1, "{reason}");
    };
    refused(backend, BackendTls::new(&file), "certificate");
    let (backend, tls) = own("b.example", 1, &[]);
    refused(backend, tls, "wrong_name");
    let (backend, tls) = own("127.0.0.1", -1, &[]);
    refused(backend, tls, "expired");
    let (backend, tls) = own("127.0.0.1", 1, &[ExtendedKeyUsagePurpose::ClientAuth]);
    refused(backend, tls, "certificate");
}

#[test]
fn a_backend_that_stalls_in_its_handshake_has_its_time_and_no_more() {
    let world = World::new();
    let stalls = tcp_backend(|mut client| {
        let _ = io::copy(&mut client, &mut io::sink());
    });
    let good = backend(world.good(), echo_in_tls);
    let mut config = world.config(vec![stalls.clone(), good], world.tls());
    config.workers = std::num::NonZeroUsize::new(1);
    config.limits.backend_connect = Duration::from_millis(300);
    let server = start(&config);
    works(&server);
    works(&server);
    assert_eq!(handshakes(&server, &stalls, "timeout"), 1);
    assert_eq!(up(&server, &stalls), 0);
}

#[test]
fn large_bodies_pass_whole_and_each_side_may_end_first() {
    let world = World::new();
    let (report, received) = mpsc::channel();
    let report = Mutex::new(report);
    let tls = backend(world.good(), move |mut stream| {
        stream.write_all(&pattern(8 << 20)).expect("sent");
        goodbye(&mut stream);
        let mut body = Vec::new();
        stream.read_to_end(&mut body).expect("close_notify");
        report.lock().expect("a lock").send(body).expect("reported");
    });
    let server = start(&world.config(vec![tls], world.tls()));
    for wish in [Wish::default(), Wish::tls12()] {
        let mut stream = connect(server.addresses()[0], "a.example", &wish.config()).expect("TLS");
        let mut down = Vec::new();
        stream.read_to_end(&mut down).expect("close_notify");
        assert!(down == pattern(8 << 20));
        stream.write_all(&pattern(8 << 20)).expect("our side is still open");
        close_sending(&mut stream).expect("closed");
        let up = received.recv_timeout(PATIENCE).expect("a body");
        assert!(up == pattern(8 << 20));
    }

    let tls = backend(world.good(), |mut stream| {
        let mut request = Vec::new();
        stream.read_to_end(&mut request).expect("close_notify");
        assert_eq!(request, b"all of it");
        stream.write_all(&pattern(8 << 20)).expect("sent");
        goodbye(&mut stream);
    });
    let server = start(&world.config(vec![tls], world.tls()));
    let mut stream = hello(server.addresses()[0]).expect("TLS");
    stream.write_all(b"all of it").expect("sent");
    let body = finish(&mut stream).expect("close_notify");
    assert!(body == pattern(8 << 20));
}

#[test]
fn an_answer_that_is_cut_short_is_not_passed_on_as_a_whole_one() {
    let world = World::new();
    let tls = backend(world.good(), |mut stream| {
        stream.write_all(b"half an answ").expect("sent");
        // The end of the stream, without close_notify.
        let _ = stream.sock.shutdown(Shutdown::Write);
        let _ = io::copy(&mut stream.sock, &mut io::sink());
    });
    let server = start(&world.config(vec![tls], world.tls()));
    let mut stream = hello(server.addresses()[0]).expect("TLS");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect_err("a torn stream");
    let broken = r#"widelane_connections_ended_total{how="backend"}"#;
    eventually("it is counted", || metric(&server, broken) == 1);
}

#[test]
fn a_client_that_is_cut_off_is_not_passed_on_as_one_that_has_ended() {
    let world = World::new();
    let (report, ended) = mpsc::channel();
    let report = Mutex::new(report);
    let tls = backend(world.good(), move |mut stream| {
        let end = stream.read_to_end(&mut Vec::new());
        report.lock().expect("a lock").send(end.is_err()).expect("reported");
    });
    let server = start(&world.config(vec![tls], world.tls()));
    let mut stream = hello(server.addresses()[0]).expect("TLS");
    stream.write_all(b"half a requ").expect("sent");
    stream.sock.shutdown(Shutdown::Write).expect("closed");
    assert!(ended.recv_timeout(PATIENCE).expect("an end"));
}

#[test]
fn a_new_authority_is_taken_over_by_a_reload() {
    let world = World::new();
    let good = backend(world.good(), echo_in_tls);
    let ca = world.files.path("in-use.pem");
    Authority::in_file("old", &ca);
    let config = world.config(vec![good], BackendTls::new(&ca));
    let server = start(&config);
    let mut stream = hello(server.addresses()[0]).expect("TLS");
    assert!(ping(&mut stream).is_err());
    std::fs::copy(world.files.path("backend-ca.pem"), &ca).expect("written");
    server.reload(&document(&config)).expect("a reload");
    works(&server);
}

#[test]
fn names_protocols_and_client_certificates_reach_the_backend() {
    let world = World::new();
    let clients = Authority::new("of clients");
    let roots = Arc::new(clients.as_root());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider().into());
    let identity = world.authority.server(&["app.example"], 10);
    let mut tls = ServerConfig::builder_with_provider(provider().into())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_single_cert(identity.chain, identity.key)
        .expect("an identity");
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let tls = backend(tls, |mut stream| {
        stream.read_exact(&mut [0; 4]).expect("a request");
        let name = stream.conn.server_name().unwrap_or("-").to_owned();
        let alpn = stream.conn.alpn_protocol().unwrap_or(b"-");
        let alpn = String::from_utf8_lossy(alpn).into_owned();
        let known = stream.conn.peer_certificates().is_some();
        let told = format!("{name} {alpn} {known}");
        stream.write_all(told.as_bytes()).expect("sent");
        goodbye(&mut stream);
    });
    let identity = clients.client(Kind::Ecdsa, "widelane");
    let [cert, key] = identity.write(&*world.files, "own");
    let mut wanted = world.tls();
    wanted.server_name = Some("app.example".into());
    wanted.cert = Some(cert);
    wanted.key = Some(key);
    for (pass_alpn, expected) in [(true, "app.example http/1.1 true"), (false, "app.example - true")] {
        wanted.pass_alpn = pass_alpn;
        let mut config = world.config(vec![tls.clone()], wanted.clone());
        config.listeners[0].alpn = vec!["http/1.1".into()];
        let server = start(&config);
        let wish = Wish {
            alpn: vec![b"http/1.1".to_vec()],
            ..Wish::default()
        };
        let mut stream = connect(server.addresses()[0], "a.example", &wish.config()).expect("TLS");
        stream.write_all(b"tell").expect("sent");
        let mut told = String::new();
        stream.read_to_string(&mut told).expect("an orderly end");
        assert_eq!(told, expected);
    }
}

#[test]
fn the_proxy_header_comes_before_the_handshake() {
    let world = World::new();
    // Speaks TLS after the header.
    let behind_header = |tls: ServerConfig| {
        let tls = Arc::new(tls);
        tcp_backend(move |mut socket| {
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                let mut byte = [0];
                socket.read_exact(&mut byte).expect("a header");
                line.extend(byte);
            }
            assert!(line.starts_with(b"PROXY TCP4 127.0.0.1 127.0.0.1 "));
            let tls = ServerConnection::new(tls.clone()).expect("TLS");
            echo_in_tls(StreamOwned::new(tls, socket));
        })
    };
    let proxied = behind_header(world.good());
    // A failed handshake has served no client: the header does not keep the client from the next address.
    let stranger = Authority::new("unknown");
    let bad = behind_header(server(stranger.server(&["127.0.0.1"], 10)));
    let mut config = world.config(vec![bad, proxied], world.tls());
    config.listeners[0].proxy_protocol_to = Some(ProxyVersion::V1);
    let server = start(&config);
    works(&server);
    works(&server);
}

#[test]
fn openssl_is_a_backend() {
    if installed("openssl").is_none() {
        return;
    }
    let world = World::new();
    let identity = world.authority.server(&["127.0.0.1"], 10);
    let [cert, key] = identity
        .write(&*world.files, "server")
        .map(|file| file.display().to_string());
    for version in ["-tls1_3", "-tls1_2"] {
        let openssl = openssl::Server::start(
            &mut Command::new("openssl"),
            &["-www", version, "-cert", &cert, "-key", &key],
        );
        let server = start(&world.config(vec![Backend::Tcp(openssl.address)], world.tls()));
        let mut stream = hello(server.addresses()[0]).expect("TLS");
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("sent");
        let mut page = Vec::new();
        let _ = stream.read_to_end(&mut page);
        let page = String::from_utf8_lossy(&page);
        assert!(page.contains("s_server"), "{version}: {page}");
    }
}
