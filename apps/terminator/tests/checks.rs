//! Checks of backends.

mod common;

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::named::*;
use common::*;
use widelane_terminator::{Backend, BackendTls, CheckKind, Config, HealthCheck, Server};
use widelane_testkit::clients::{VERSIONS, server_config};

fn checked(files: &Files, backends: Vec<Backend>, kind: CheckKind) -> Config {
    let mut one = listener(echo(), vec![files.certificate(Kind::Ecdsa, &["a.example"])]);
    one.backend = backends;
    let mut check = HealthCheck::new(kind);
    check.interval = Duration::from_millis(100);
    one.health_check = Some(check);
    config(vec![one])
}

fn checks(server: &Server, backend: &Backend, result: &str) -> u64 {
    let labels = format!(r#"{{backend="{backend}",result="{result}"}} "#);
    let series = format!("widelane_backend_checks_total{labels}");
    let page = metrics(server);
    let line = page.lines().find_map(|line| line.strip_prefix(&series));
    line.map_or(0, |value| value.parse().expect("a number"))
}

#[test]
fn an_address_that_goes_is_noticed_without_a_client_and_is_taken_again() {
    let files = Files::new();
    let mut a = Named::start(b'a');
    let b = Named::start(b'b');
    let config = checked(&files, vec![a.backend(), b.backend()], CheckKind::Tcp);
    let server = start(&config);
    let address = server.addresses()[0];
    eventually("checks", || checks(&server, &a.backend(), "ok") > 1);
    assert_eq!(gauge(&server, "up", &a.backend()), 1);
    a.stop();
    eventually("it is down", || gauge(&server, "up", &a.backend()) == 0);
    assert!(checks(&server, &a.backend(), "failed") >= 3);
    for _ in 0..4 {
        assert_eq!(served_by(address, "a.example", &[]).0, 'b');
    }
    // No connection was tried there: the checks have found it.
    assert_eq!(connects(&server, &a.backend(), "failed"), 0);
    let a = Named::at(a.address, b'a');
    eventually("it is up", || gauge(&server, "up", &a.backend()) == 1);

    // Without checks, nothing is known to be down.
    let mut b = b;
    b.stop();
    eventually("it is down", || gauge(&server, "up", &b.backend()) == 0);
    let mut without = config.clone();
    without.listeners[0].health_check = None;
    server.reload(&document(&without)).expect("a reload");
    assert_eq!(gauge(&server, "up", &b.backend()), 1);
}

#[test]
fn a_status_tells_and_an_address_without_another_is_used_all_the_same() {
    let files = Files::new();
    let status = Arc::new(AtomicUsize::new(503));
    let told = status.clone();
    let backend = tcp_backend(move |mut client| {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if client.read_exact(&mut byte).is_err() {
                return;
            }
            request.extend(byte);
            if request == b"ping" {
                let _ = client.write_all(b"ping");
                return;
            }
        }
        assert!(request.starts_with(b"GET /healthz HTTP/1.1\r\nHost: "));
        let status = told.load(Ordering::Relaxed);
        let _ = write!(client, "HTTP/1.1 {status} Whatever\r\n\r\n");
    });
    let mut config = checked(&files, vec![backend.clone()], CheckKind::Http);
    let check = config.listeners[0].health_check.as_mut().expect("a check");
    check.path = Some("/healthz".into());
    let server = start(&config);
    eventually("it is down", || gauge(&server, "up", &backend) == 0);
    let mut stream = hello(server.addresses()[0]).expect("TLS");
    ping(&mut stream).expect("an answer");
    status.store(204, Ordering::Relaxed);
    eventually("it is up", || gauge(&server, "up", &backend) == 1);
}

#[test]
fn a_certificate_tells() {
    let files = Files::new();
    let authority = Authority::in_file("of backends", &files.path("ca.pem"));
    Authority::in_file("unknown", &files.path("other.pem"));
    let identity = authority.server(&["127.0.0.1"], 10);
    let tls = Arc::new(server_config(&identity, &VERSIONS));
    let backend = tcp_backend(move |socket| {
        let conn = rustls::ServerConnection::new(tls.clone()).expect("TLS");
        let _ = rustls::StreamOwned::new(conn, socket).read(&mut [0; 9]);
    });
    let mut config = checked(&files, vec![backend.clone()], CheckKind::Tls);
    config.listeners[0].backend_tls = Some(BackendTls::new(files.path("other.pem")));
    let server = start(&config);
    eventually("it is down", || gauge(&server, "up", &backend) == 0);
    config.listeners[0].backend_tls = Some(BackendTls::new(files.path("ca.pem")));
    server.reload(&document(&config)).expect("a reload");
    eventually("it is up", || gauge(&server, "up", &backend) == 1);
}
